"""Tables of prior predictive checks, for the terminal and the report."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pmbnn.prior_predictive.store import StoredPrior
from pmbnn.results.names import dataset_title, distinct, title
from pmbnn.results.tables import of_targets
from pmbnn.results.units import with_unit

MEASURES = {
    "constant": "constant functions",
    "expected_entropy": "entropy of a function",
    "entropy": "entropy of the mean",
    "boundary_length": "length of the boundary",
    "saturated": "saturated hidden units",
    "common_class": "probability of the commoner class",
    "common_class_sd": "its sd over functions",
    "output_range": "range of a function",
    "output_sd": "half width of 68 %",
    "noise": "sd of the noise",
    "target_range": "range of the targets",
    "targets_within": "targets within 95 %",
}
"""Headings of the numbers of a prior."""

SUMMARISED = {
    "constant": "constant",
    "expected_entropy": "entropy",
    "boundary_length": "boundary",
    "saturated": "saturated",
    "output_range": "range",
}
"""Short headings of those that the terminal shows; ``prior.csv`` has them all."""


class PriorWords(NamedTuple):
    """Names of the parts of a combination that tell it from others beside it."""

    data: str
    network: str
    prior: str
    hyperprior: str


def prior_words(priors: Sequence[StoredPrior]) -> list[PriorWords]:
    """Names of combinations, each with what tells it from those of the same kinds."""
    cells = [prior.cell for prior in priors]
    data = [dataset_title(cell.dataset) for cell in cells]
    parts = (
        distinct([getattr(cell, section) for cell in cells], title)
        for section in ("network", "prior", "hyperprior")
    )
    return [
        words._replace(hyperprior=f"{words.hyperprior} (candidate)") if prior.tuned else words
        for prior, words in zip(priors, map(PriorWords, data, *parts), strict=True)
    ]


def measure_words(
    priors: Sequence[StoredPrior], headings: Mapping[str, str] = MEASURES
) -> dict[str, str]:
    """Headings with units of the numbers that some combination has, by name."""
    stored = [n for prior in priors for n, value in prior.numbers.items() if value is not None]
    return {
        name: with_unit(f"{headings[measure]}{target}", measure)
        for name, (measure, target) in of_targets(headings, stored).items()
    }


def summary(priors: Sequence[StoredPrior]) -> tuple[list[str], list[list[str]], list[str]]:
    """Headings, a row for each combination, and those headings that are of numbers."""
    numbers = measure_words(priors, SUMMARISED)
    rows = [
        [*words, *(_with_error(prior, name) for name in numbers)]
        for prior, words in zip(priors, prior_words(priors), strict=True)
    ]
    return [*PriorWords._fields, *numbers.values()], rows, list(numbers.values())


def _with_error(prior: StoredPrior, name: str) -> str:
    value, error = prior.numbers.get(name), prior.numbers.get(f"{name}_mcse")
    if value is None:
        return ""
    return f"{value:.3g}" if error is None else f"{value:.3g} ± {error:.1g}"
