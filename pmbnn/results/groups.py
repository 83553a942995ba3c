"""How cells are grouped: repetitions, variants of a data set, and values by data seed."""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
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
