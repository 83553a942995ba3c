"""Records that differ in prior, hyperprior and seeds only, and what sets them apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pmbnn.results.record import CellRecord
from pmbnn.results.references import MIXTURE, is_sampled
from pmbnn.results.tables import FIT_SEED, SEED, data_label, settings_row

ENGINE = "inference.engine"

KL_WEIGHT, KL_SCALING = "inference.kl_weight", "inference.kl_scaling"

STATED = {KL_WEIGHT: 1, KL_SCALING: "sum"}
"""Settings that are named unless they have this value: a fit is then not of the posterior."""


@dataclass(frozen=True)
class Variant:
    """Records that are shown together.

    ``words`` tell them from others on the same data, and say what a fit is of where that is
    not the posterior.
    """

    words: tuple[str, ...]
    records: tuple[CellRecord, ...]


def families(records: Sequence[CellRecord]) -> list[list[Variant]]:
    """Variants of each sweep and data set, in order of first appearance."""
    groups: dict[tuple, list[CellRecord]] = {}
    for record in records:
        rest = settings_without(record, "prior", "hyperprior")
        groups.setdefault((record.sweep, *rest.items()), []).append(record)
    alike: dict[tuple[str, str], list[list[CellRecord]]] = {}
    for group in groups.values():
        alike.setdefault((group[0].sweep, data_label(group[0])), []).append(group)
    return [
        [Variant(_words(group[0], [g[0] for g in family]), tuple(group)) for group in family]
        for family in alike.values()
    ]


def settings_without(record: CellRecord, *sections: str) -> dict[str, Any]:
    """Everything set, under dotted names, but for the seeds and some sections."""
    return {
        key: value
        for key, value in settings_row(record.settings).items()
        if key not in (SEED, FIT_SEED) and key.split(".")[0] not in sections
    }


def _words(record: CellRecord, others: Sequence[CellRecord]) -> tuple[str, ...]:
    """Anything that is not the same in all variants of a family: ``hidden 5-5``.

    What is `STATED` is named wherever it is not as usual, even in a family of one.
    """
    rows = [settings_without(other, "prior", "hyperprior") for other in others]
    own = settings_without(record, "prior", "hyperprior")
    if is_sampled(record):
        # It says nothing of chains, which are always mixed alike.
        own.pop(MIXTURE, None)
    # Engines have settings of their own, which say nothing that the engine's name does not.
    comparable = [row for row in rows if row.get(ENGINE) == own.get(ENGINE)]
    return tuple(
        _setting_words(key, value)
        for key, value in own.items()
        if any(
            row.get(key) != value
            for row in (comparable if key.startswith("inference.") and key != ENGINE else rows)
        )
        or value != STATED.get(key, value)
    )


def _setting_words(key: str, value: Any) -> str:
    """A setting with its value: ``hidden 5-5``, ``KL weight 0.1``, ``KL by first dimension``."""
    if key == KL_WEIGHT:
        return f"KL weight {value:g}"
    if key == KL_SCALING:
        return f"KL by {value.replace('_', ' ')}"
    return f"{_short_name(key)} {value}"


def _short_name(key: str) -> str:
    """Last part of a dotted name, or all of it where that alone says little."""
    *_, owner, last = key.split(".")
    if last == "log":  # of a value that is tuned
        return f"tuned {owner.replace('_', ' ')}"
    return key.replace(".", " ") if last in ("kind", "seed") else last.replace("_", " ")
