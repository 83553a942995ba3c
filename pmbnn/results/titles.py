"""Names of settings in words, for titles and axes."""

from collections.abc import Mapping, Sequence
from typing import Any

from pmbnn.inference.settings import POINT_GUIDES
from pmbnn.results.record import CellRecord
from pmbnn.results.tables import data_label, distinct_labels, has_no_scale, label

CAPITALS = {"cauchy": "Cauchy", "laplace": "Laplace", "mnist": "MNIST", "student": "Student"}
"""Words that keep their capital letters inside a name."""


def pretty(kind: str) -> str:
    """Name of a kind in words: ``half-normal``, ``half-Cauchy``, ``Laplace``."""
    return "-".join(CAPITALS.get(word, word) for word in kind.split("_"))


def section_title(section: Mapping[str, Any]) -> str:
    """Short name of a prior or hyperprior: ``normal``, ``half-Cauchy``, ``fixed 0.1``."""
    return label(section).replace(section["kind"], pretty(section["kind"]), 1)


def data_title(record: CellRecord) -> str:
    """Name of a data set without its seed: ``moons, noise 0.4``."""
    kind = record.settings["dataset"]["kind"]
    return data_label(record).replace(kind, pretty(kind), 1)


def combination_title(record: CellRecord) -> str:
    """Prior and hyperprior of a cell: ``Normal prior, half-normal hyperprior``.

    A fixed scale is named with its value, which is the chosen one where it was tuned.
    """
    prior = pretty(record.settings["prior"]["kind"])
    words = f"{prior[0].upper()}{prior[1:]} prior"
    hyperprior = record.settings["hyperprior"]
    if has_no_scale(hyperprior):
        return f"{words}, no scale"
    if "scale" not in hyperprior:
        return f"{words}, {pretty(hyperprior['kind'])} hyperprior"
    chosen = chosen_scale(record)
    if chosen is not None:
        return f"{words}, fixed scale {chosen:.3g} (tuned)"
    return f"{words}, {section_title(hyperprior).replace('fixed', 'fixed scale', 1)}"


def chosen_scale(record: CellRecord) -> float | None:
    """Scale that was chosen for a cell, if it had to be chosen and is known."""
    tuned = isinstance(record.settings["hyperprior"].get("scale"), Mapping)
    return record.results.get("scale") if tuned else None


def cell_title(record: CellRecord) -> str:
    """Title of a cell's own figure: data, prior, hyperprior, kind of fit and its main score."""
    words = f"{data_title(record)}: {combination_title(record)}{_fit_title(record)}"
    for name, form in (("accuracy", "accuracy {:.3f}"), ("rmse", "RMSE {:.3g}")):
        if record.results.get(name) is not None:
            words += f", {form.format(record.results[name])}"
    return words


def _fit_title(record: CellRecord) -> str:
    """What a fit is besides the usual: a sampler's, a point, or of a tempered posterior."""
    inference = record.settings.get("inference", {})
    if record.sampling is not None:
        return f", by {inference['engine'].upper()}"
    if inference.get("guide") in POINT_GUIDES:
        return f", {inference['guide'].replace('_', ' ')}"
    weight = inference.get("kl_weight", 1.0)
    return "" if weight == 1 else f", KL weight {weight:g}"


def distinct_titles(sections: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name of each section; where two would be called the same, with what sets them apart."""
    return distinct_labels(sections, section_title)
