"""How cells are grouped: repetitions, variants of a data set, fits and samples of one posterior.

Samples are what fits of the same posterior are compared with.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pmbnn.results.names import dataset_label, dataset_title, variant_words
from pmbnn.results.record import CellRecord

RANKED_BY = "validation_nll"
"""Score on held-out training rows by which a best cell is chosen: never a test number."""


def grouped[Key: Hashable](
    records: Iterable[CellRecord], key: Callable[[CellRecord], Key]
) -> dict[Key, list[CellRecord]]:
    """Records by a key, in order of first appearance."""
    groups: dict[Key, list[CellRecord]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return groups


def group_by_settings(records: Iterable[CellRecord]) -> list[list[CellRecord]]:
    """Records that differ in their seeds only, together; fits on other devices are no seeds."""
    groups = grouped(records, lambda record: (record.device, record.cell.without_seeds))
    return list(groups.values())


@dataclass(frozen=True)
class Variant:
    """Records that differ in prior, hyperprior and seeds only.

    ``words`` tell them from others on the same data, and say what a fit is of where that is
    not the posterior.
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
    alike: dict[tuple[str, str], list] = {}
    for cell in variants:
        alike.setdefault((cell.sweep, dataset_label(cell.dataset)), []).append(cell)
    return [
        [Variant(variant_words(cell, family), tuple(variants[cell])) for cell in family]
        for family in alike.values()
    ]


def variants(records: Sequence[CellRecord]) -> list[Variant]:
    """Variants of all sweeps and data sets."""
    return [variant for family in families(records) for variant in family]


def best_group(records: Iterable[CellRecord]) -> list[CellRecord]:
    """The combination with the lowest mean held-out score; empty where nothing is scored."""
    scored = [(np.mean(_scores(group)), group) for group in group_by_settings(records)]
    scored = [(score, group) for score, group in scored if math.isfinite(score)]
    return min(scored, key=lambda pair: pair[0])[1] if scored else []


def _scores(group: Sequence[CellRecord]) -> list[float]:
    """Held-out scores of a combination; one failed or unscored cell rules it out."""
    scores = [r.results.get(RANKED_BY) if r.results else None for r in group]
    return [math.nan if score is None else score for score in scores]


# Fitted cells and the sampled cells of the same posterior


LADDER = "ladder.csv"
"""File of a results folder that holds its repair ladder, a row a posterior and way to fit it."""

CHAINS = "chains"
"""What tables have of sampled cells where fits have the mixture of their restarts."""

ERRORS = 3.0
"""Monte-Carlo standard errors that a bound of the evidence must be above by."""


def model_key(record: CellRecord) -> tuple[Hashable, ...]:
    """Everything that decides the posterior, and the scale that was chosen where one was."""
    return *posterior_key(record), record.results.get("scale")


def posterior_key(record: CellRecord) -> tuple[Hashable, ...]:
    """Settings that decide the posterior and where it is looked at, as a key."""
    return record.fingerprint, record.cell.posterior


def pairs(records: Sequence[CellRecord]) -> Iterator[tuple[CellRecord, CellRecord]]:
    """Every fitted cell with each sampled one of the same posterior that is not refuted.

    Where a scale was tuned and the two chose different ones, posteriors are different ones too.
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

    Those that are refuted are passed over; `key` says what is one posterior.
    """
    first: dict[tuple, CellRecord] = {}
    for record in valid_cells(records):
        if not record.results or not record.cell.is_sampled:
            continue
        other = first.setdefault(key(record), record)
        if other is not record:
            yield record, other


def invalid_chains(records: Sequence[CellRecord]) -> dict[str, str]:
    """Sampled cells that cannot be of the posterior, by name, and why in words.

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
                of = bounds.setdefault(model_key(record), [])
                of.append((bound - ERRORS * error, name.replace("_", " ").replace("elbo", "ELBO")))
    found = {}
    for record in records:
        mean, of = record.results.get("log_likelihood"), bounds.get(model_key(record))
        if of and mean is not None and record.cell.is_sampled:
            bound, name = max(of)
            if mean + ERRORS * record.results["log_likelihood_mcse"] < bound:
                found[record.name] = (
                    f"{record.name}: these draws are not of the posterior, whatever their R-hat "
                    f"says: their mean log-likelihood is {mean:.1f} nats, and the {name} of the "
                    f"same model is {bound:.1f}"
                )
    return found


def bounds_evidence(record: CellRecord) -> bool:
    """Whether what a cell has for an ELBO or an evidence is one, of a posterior that there is.

    A point has no width, and its objective is a density.
    """
    return record.status != "improper" and not record.cell.is_point and not record.cell.is_tempered


def valid_cells(records: Sequence[CellRecord]) -> list[CellRecord]:
    """Records without those of `invalid_chains`."""
    refuted = invalid_chains(records)
    return [record for record in records if record.name not in refuted]
