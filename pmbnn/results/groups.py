"""Groups of cells: repetitions, variants of a data set, fits and samples of one posterior.

Fits are compared with samples of the same posterior.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pmbnn.results.names import dataset_label, dataset_title, variant_words
from pmbnn.results.record import CellRecord

RANKED_BY = "validation_nll"
"""Score on held-out training rows by which a best cell is chosen: never a test number."""


def grouped[Item, Key: Hashable](
    items: Iterable[Item], key: Callable[[Item], Key]
) -> dict[Key, list[Item]]:
    """Items, such as records, by a key, in order of first appearance."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def group_by_settings(records: Iterable[CellRecord]) -> list[list[CellRecord]]:
    """Groups of records that differ in their seeds alone; devices are told apart."""
    groups = grouped(records, lambda record: (record.device, record.cell.without_seeds))
    return list(groups.values())


@dataclass(frozen=True)
class Variant:
    """Records that differ in prior, hyperprior and seeds only.

    ``words`` are the settings that differ from other variants of the same data, and those of fits
    that are not of the posterior.
    """

    words: tuple[str, ...]
    records: tuple[CellRecord, ...]

    @property
    def label(self) -> str:
        """Sweep, data set and words: ``toy: moons, noise 0.4; hidden 5-5``."""
        cell = self.records[0].cell
        return f"{cell.sweep}: {'; '.join([dataset_label(cell.dataset), *self.words])}"

    @property
    def title(self) -> str:
        """The data set in words, and the words."""
        return "; ".join([dataset_title(self.records[0].cell.dataset), *self.words])


def families(records: Sequence[CellRecord]) -> list[list[Variant]]:
    """Variants of each sweep and data set, in order of first appearance."""
    variants = grouped(
        records, lambda r: replace(r.cell.without_seeds, prior=None, hyperprior=None)
    )
    cells = grouped(variants, lambda cell: (cell.sweep, dataset_label(cell.dataset)))
    return [
        [Variant(variant_words(cell, family), tuple(variants[cell])) for cell in family]
        for family in cells.values()
    ]


def variants(records: Sequence[CellRecord]) -> list[Variant]:
    """Variants of all sweeps and data sets."""
    return [variant for family in families(records) for variant in family]


def best_group(records: Iterable[CellRecord]) -> list[CellRecord]:
    """Records of the combination with the lowest mean held-out score; empty without scores."""
    scored = [(np.mean(_scores(group)), group) for group in group_by_settings(records)]
    scored = [(score, group) for score, group in scored if math.isfinite(score)]
    return min(scored, key=lambda pair: pair[0])[1] if scored else []


def _scores(group: Sequence[CellRecord]) -> list[float]:
    """Held-out scores of a combination; one failed or unscored cell rules it out."""
    scores = [r.results.get(RANKED_BY) if r.results else None for r in group]
    return [math.nan if score is None else score for score in scores]


# Fitted cells and the sampled cells of the same posterior


LADDER = "ladder.csv"
"""File of a results folder with its repair ladder: a row for each posterior and method."""

CHAINS = "chains"
"""Mixture of sampled cells in tables; fits have that of their restarts."""

ERRORS = 3.0
"""Monte-Carlo standard errors that a bound of the evidence must be above by."""


def model_key(record: CellRecord) -> tuple[Hashable, ...]:
    """Key of a posterior: its settings and data, and the scale where one was chosen."""
    return *posterior_key(record), record.results.get("scale")


def posterior_key(record: CellRecord) -> tuple[Hashable, ...]:
    """Key of a posterior and its predictions, by settings and data."""
    return record.fingerprint, record.cell.posterior


def pairs(records: Sequence[CellRecord]) -> Iterator[tuple[CellRecord, CellRecord]]:
    """Every fitted cell with each valid sampled one of the same posterior.

    Where a scale was tuned and the two cells chose different ones, the posteriors differ.
    """
    yield from _fits_with_samplers(records, model_key)


def other_scales(records: Sequence[CellRecord]) -> list[tuple[CellRecord, CellRecord]]:
    """Fitted and sampled cells of the same settings that chose different scales."""
    every = _fits_with_samplers(records, posterior_key)
    return [pair for pair in every if len(set(map(model_key, pair))) > 1]


def _fits_with_samplers(
    records: Sequence[CellRecord], key: Callable[[CellRecord], tuple]
) -> Iterator[tuple[CellRecord, CellRecord]]:
    finished = [r for r in valid_cells(records) if r.results]
    sampled = grouped((r for r in finished if r.cell.is_sampled), key)
    for record in finished if sampled else ():
        if not record.cell.is_sampled and not record.cell.is_tempered:
            yield from ((record, other) for other in sampled.get(key(record), ()))


def sampler_pairs(
    records: Sequence[CellRecord], key: Callable[[CellRecord], tuple] = model_key
) -> Iterator[tuple[CellRecord, CellRecord]]:
    """Every further sampled cell of a posterior with the first one: other engines, steps, seeds.

    Invalid ones are left out; cells of one posterior have one `key`.
    """
    first: dict[tuple, CellRecord] = {}
    for record in valid_cells(records):
        if not record.results or not record.cell.is_sampled:
            continue
        other = first.setdefault(key(record), record)
        if other is not record:
            yield record, other


def invalid_chains(records: Sequence[CellRecord]) -> dict[str, str]:
    """Reasons why sampled cells cannot be of the posterior, by name.

    The log evidence is the posterior's mean log-likelihood less its divergence from the prior. So
    that mean is no lower than any ELBO or evidence of the same model; chains that are all stuck in
    one place, which agree with each other, may be.
    """
    if not any(record.cell.is_sampled for record in records):
        return {}
    bounds: dict[tuple, list[tuple[float, str]]] = {}
    for record in records:
        if bounds_evidence(record):
            name = "log_evidence" if record.cell.is_sampled else "elbo"
            bound = record.results.get(name)
            error = record.results.get(f"{name}_mcse", 0.0)
            if bound is not None:
                words = name.replace("_", " ").replace("elbo", "ELBO")
                bounds.setdefault(model_key(record), []).append((bound - ERRORS * error, words))
    reasons = {}
    for record in records:
        mean, lower = record.results.get("log_likelihood"), bounds.get(model_key(record))
        if lower and mean is not None and record.cell.is_sampled:
            bound, name = max(lower)
            if mean + ERRORS * record.results["log_likelihood_mcse"] < bound:
                reasons[record.name] = (
                    f"{record.name}: these draws are not of the posterior, whatever their R-hat "
                    f"says: their mean log-likelihood is {mean:.1f} nats, and the {name} of the "
                    f"same model is {bound:.1f}"
                )
    return reasons


def bounds_evidence(record: CellRecord) -> bool:
    """Whether the ELBO or evidence of a cell bounds the evidence of its posterior.

    A point has no width, and its objective is a density.
    """
    return record.status != "improper" and not record.cell.is_point and not record.cell.is_tempered


def valid_cells(records: Sequence[CellRecord]) -> list[CellRecord]:
    """Records without those of `invalid_chains`."""
    invalid = invalid_chains(records)
    return [record for record in records if record.name not in invalid]
