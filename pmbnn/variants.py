"""Records that differ in prior, hyperprior and data seed only, and what sets them apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pmbnn.tables import SEED, Record, data_label, settings_row


@dataclass(frozen=True)
class Variant:
    """Records that are shown together: ``words`` tell them from others on the same data."""

    words: tuple[str, ...]
    records: tuple[Record, ...]


def families(records: Sequence[Record]) -> list[list[Variant]]:
    """Variants of each sweep and data set, in order of first appearance."""
    groups: dict[tuple, list[Record]] = {}
    for record in records:
        rest = settings_without(record, "prior", "hyperprior")
        groups.setdefault((record["sweep"], *rest.items()), []).append(record)
    alike: dict[tuple[str, str], list[list[Record]]] = {}
    for group in groups.values():
        alike.setdefault((group[0]["sweep"], data_label(group[0])), []).append(group)
    return [
        [Variant(_words(group[0], [g[0] for g in family]), tuple(group)) for group in family]
        for family in alike.values()
    ]


def settings_without(record: Record, *sections: str) -> dict[str, Any]:
    """Everything set, under dotted names, but for the data seed and some sections."""
    return {
        key: value
        for key, value in settings_row(record).items()
        if key != SEED and key.split(".")[0] not in sections
    }


def _words(record: Record, others: Sequence[Record]) -> tuple[str, ...]:
    """Anything that is not the same in all variants of a family: ``hidden 5-5``."""
    rows = [settings_without(other, "prior", "hyperprior") for other in others]
    own = settings_without(record, "prior", "hyperprior")
    return tuple(
        f"{_short_name(key)} {value}"
        for key, value in own.items()
        if any(row.get(key) != value for row in rows)
    )


def _short_name(key: str) -> str:
    """Last part of a dotted name, or all of it where that alone says little."""
    *_, owner, last = key.split(".")
    if last == "log":  # of a value that is tuned
        return f"tuned {owner.replace('_', ' ')}"
    return key.replace(".", " ") if last in ("kind", "seed") else last.replace("_", " ")
