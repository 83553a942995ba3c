"""Tables of results: one row a cell, and means over data seeds.

A *record* is what ``metrics.json`` of a cell holds. Settings appear in tables under dotted
names (``dataset.noise``), results under their own.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pmbnn.short_names import short_name

Record = Mapping[str, Any]

RANKED_BY = "validation_nll"
"""Score on held-out training rows by which a best cell is chosen: never a test number."""

SEED = "dataset.seed"

FIT_SEED = "inference.seed"
"""Seed of the fits: cells that differ in it, or in the data seed, are repetitions."""

MAIN_SCORES = ("accuracy", "rmse")
"""What a cell is judged by first: of classes, of numbers."""

SCORE_WORDS = {"accuracy": "accuracy", "rmse": "RMSE"}


def metrics_row(record: Record) -> dict[str, Any]:
    """One flat row: name, status, settings, results, time."""
    row = {key: record[key] for key in ("sweep", "name", "status")}
    row |= settings_row(record)
    row |= record["results"]
    if "pictures" in record:
        row |= _flatten(record["pictures"]["rejection"], "rejection")
        row |= _flatten(record["pictures"].get("held_out", {}), "held_out")
    row |= {"seconds": record["seconds"], "reason": record["reason"]}
    return row


def unfamiliar_rows(record: Record) -> list[dict[str, Any]]:
    """A row for each unfamiliar set of pictures shown to a cell, the test digits first.

    A set that could not be had has a ``reason`` instead of numbers. Entropies are in bits.
    """
    if "pictures" not in record:
        return []
    pictures = record["pictures"]
    sets = {"test": pictures["test"]} | pictures["unfamiliar"]
    sets |= {name: {"reason": reason} for name, reason in pictures["unavailable"].items()}
    head = {key: record[key] for key in ("sweep", "name")} | settings_row(record)
    return [
        head | {"set": name} | {k: v for k, v in numbers.items() if not isinstance(v, Mapping)}
        for name, numbers in sets.items()
    ]


def settings_row(record: Record) -> dict[str, Any]:
    """Settings under dotted names; lists as words with a hyphen between.

    What a list holds of specifications is given its short name: ``conv32x5.valid.tanh``.
    """
    return dict(_flatten(record["settings"], ""))


def label(section: Mapping[str, Any]) -> str:
    """Short name of one setting for a table or an axis: ``fixed 0.1``, ``half_normal``."""
    scale = section.get("scale")
    if isinstance(scale, Mapping):
        return f"{section['kind']} (tuned)"
    return section["kind"] if scale is None else f"{section['kind']} {scale:g}"


def has_no_scale(hyperprior: Mapping[str, Any]) -> bool:
    """Whether this stands in the place of a hyperprior for a prior without a scale."""
    return "scale" in hyperprior and hyperprior["scale"] is None


def distinct_labels(
    sections: Sequence[Mapping[str, Any]], name: Callable[[Mapping[str, Any]], str] = label
) -> list[str]:
    """Name of each section; where two would be called the same, with what sets them apart."""
    names = [name(section) for section in sections]
    found = []
    for section, own in zip(sections, names, strict=True):
        alike = [s for s, other in zip(sections, names, strict=True) if other == own]
        found.append(", ".join([own, *differences(section, alike)]))
    return found


def differences(section: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> list[str]:
    """Anything set in a section otherwise than in some of ``others``: ``sigma 0.1``."""
    rows = [settings_row({"settings": other}) for other in others]
    return [
        f"{key} {_number(value)}"
        for key, value in settings_row({"settings": section}).items()
        if any(row.get(key) != value for row in rows)
    ]


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def data_label(record: Record) -> str:
    """Name of a data set without its seed: ``moons, noise 0.4``."""
    dataset = record["settings"]["dataset"]
    shown = [f"{key} {dataset[key]:g}" for key in ("noise", "factor") if key in dataset]
    return ", ".join([dataset["kind"], *shown])


def summarise(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Mean and standard error over seeds of every result, one row a combination.

    Failed cells are counted (``failed``) and left out of the means. Rows are in order of
    first appearance. The standard error is that of the mean, empty for a single seed.
    """
    rows = []
    for group in group_by_settings(records):
        first = group[0]
        usable = [r for r in group if r["results"]]
        row = {"sweep": first["sweep"], **_common_settings(group)}
        row |= {"cells": len(group), "failed": len(group) - len(usable)}
        for name in usable[0]["results"] if usable else ():
            row[name], row[f"{name}_se"] = mean_and_error(repetitions(usable, name))
        rows.append(row)
    return rows


def _common_settings(group: Sequence[Record]) -> dict[str, Any]:
    """What is set in all records of a group, the data seed left out."""
    common = settings_row(group[0])
    common.pop(SEED, None)
    if any(settings_row(r).get(FIT_SEED) != common.get(FIT_SEED) for r in group):
        del common[FIT_SEED]
    return common


def group_by_settings(records: Iterable[Record]) -> list[list[Record]]:
    """Records that differ in their seeds only, together."""
    groups: dict[tuple, list[Record]] = {}
    for record in records:
        settings = settings_row(record)
        for seed in (SEED, FIT_SEED):
            settings.pop(seed, None)
        groups.setdefault((record["sweep"], *settings.items()), []).append(record)
    return list(groups.values())


def repetitions(group: Iterable[Record], name: str) -> list[float | None]:
    """A result of every data seed, the mean over its fits; with one data seed, of every fit.

    Fits to the same data are not independent of each other: a standard error over them and
    over data seeds alike would be too small.
    """
    by_data: dict[Any, list[float | None]] = {}
    for record in group:
        by_data.setdefault(settings_row(record).get(SEED), []).append(record["results"].get(name))
    if len(by_data) < 2:
        return [value for values in by_data.values() for value in values]
    means = [mean_and_error(values)[0] for values in by_data.values()]
    return [None if math.isnan(mean) else mean for mean in means]


def best_group(records: Iterable[Record]) -> list[Record]:
    """The combination with the lowest mean held-out score; empty where nothing is scored."""
    groups = group_by_settings(records)
    scored = [(mean_and_error(_scores(group))[0], group) for group in groups]
    scored = [(score, group) for score, group in scored if math.isfinite(score)]
    return min(scored, key=lambda pair: pair[0])[1] if scored else []


def main_score(records: Iterable[Record]) -> str:
    """Name of the result that some cells are judged by first."""
    known = {name for record in records for name in record["results"]}
    return next((name for name in MAIN_SCORES if name in known), MAIN_SCORES[0])


def mean_and_error(values: Sequence[float | None]) -> tuple[float, float]:
    """Mean and its standard error; not a number where there is nothing to tell them from."""
    known = [v for v in values if v is not None]
    if not known:
        return math.nan, math.nan
    mean = math.fsum(known) / len(known)
    if len(known) < 2:
        return mean, math.nan
    variance = math.fsum((v - mean) ** 2 for v in known) / (len(known) - 1)
    return mean, math.sqrt(variance / len(known))


def _scores(group: Sequence[Record]) -> list[float]:
    """Held-out scores of a combination; one failed or unscored cell rules it out."""
    scores = [r["results"].get(RANKED_BY) if r["results"] else None for r in group]
    return [math.nan if score is None else score for score in scores]


def _flatten(value: Any, prefix: str) -> Iterable[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flatten(inner, f"{prefix}.{key}" if prefix else key)
    elif isinstance(value, list | tuple):
        yield prefix, "-".join(map(_word, value))
    else:
        yield prefix, value


def _word(entry: Any) -> str:
    return short_name(entry) if isinstance(entry, Mapping) else str(entry)
