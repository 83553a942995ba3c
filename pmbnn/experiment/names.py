"""Names of cells and of the specifications they are made of, for folders, tables and the plan."""

import functools
import re
from collections.abc import Container, Mapping
from pathlib import PurePath
from typing import Any

from pmbnn.data.base import DatasetSpec
from pmbnn.experiment.cells import Cell
from pmbnn.inference.samplers.settings import Sampling
from pmbnn.inference.settings import DEFAULT_STEPS
from pmbnn.models.likelihoods import Categorical
from pmbnn.models.networks import MaxPool, Network
from pmbnn.models.priors import StudentT
from pmbnn.spec import Specification, Tune

LABEL_LENGTH = 119

ALWAYS_SHOWN = {
    (DatasetSpec, "seed"),
    (MaxPool, "size"),
    (Network, "hidden"),
    (Sampling, "engine"),
    (StudentT, "nu"),
}
"""Fields that a label shows even where they have their default."""

LOCATIONS = ("file", "path")
"""Fields whose file alone is shown, without its folder and endings."""

NEVER_SHOWN = {"kind", "folder", "restarts", "validation", "improper_scale_cap"}
"""Fields that would make every label longer and tell little."""

SHORT_WORDS = {"convolution": "conv", "max_pool": "pool"}
"""Kinds that are cut short."""


def cell_label(cell: Cell) -> str:
    """Readable name of a cell, safe as part of a folder's name; cells may share one.

    It depends on the cell alone, not on the grid around it, so that a folder keeps its name
    when the experiment grows.
    """
    parts = [spec_label(cell.dataset), *model_words(cell)]
    safe = re.sub(r"[^A-Za-z0-9._+-]+", "-", "_".join(parts))
    return safe[:LABEL_LENGTH].rstrip("-._")


def model_words(cell: Cell, scale: bool = True) -> list[str]:
    """Network, prior, hyperprior (with its constants if asked), and what else is unusual."""
    hyperprior = spec_label(cell.hyperprior, None if scale else cell.hyperprior.structure)
    words = [spec_label(cell.network), spec_label(cell.prior), hyperprior]
    if cell.likelihood != Categorical():
        words.append(spec_label(cell.likelihood))
    unusual = spec_label(cell.inference)
    return [*words, unusual] if unusual else words


def spec_label(spec: Specification, among: Container[str] | None = None) -> str:
    """Kind of a specification and every field that is unusual (`among` some), hyphens between."""
    kind = [spec.kind] if "kind" in type(spec).model_fields else []
    fields = [name for name in _shown_fields(spec) if among is None or name in among]
    return "-".join(kind + [_field_label(name, getattr(spec, name)) for name in fields])


def file_label(named: str) -> str:
    """Name of a file without its folder and endings: ``boston`` of ``uci/boston.csv.gz``."""
    name = PurePath(named).name
    return name.partition(".")[0] or name


def short_name(settings: Mapping[str, Any]) -> str:
    """Kind, numbers and words of a specification: ``conv32x5.same.relu``.

    Parameters
    ----------
    settings
        The specification's fields, as a record holds them; ``kind`` among them.
    """
    numbers, words = [], []
    for name, value in settings.items():
        if isinstance(value, bool):
            words.append(name if value else f"no_{name}")
        elif isinstance(value, int | float):
            numbers.append(f"{value:.15g}")
        elif value is not None and name != "kind":
            words.append(str(value))
    kind = settings["kind"]
    return ".".join([SHORT_WORDS.get(kind, kind) + "x".join(numbers), *words])


@functools.cache  # cells share their specifications
def _shown_fields(spec: Specification) -> list[str]:
    """Fields that a label shows, in its order."""
    fields = [name for name in type(spec).model_fields if _is_shown(spec, name)]
    # The seed comes last, where names that differ in nothing else are told apart.
    return sorted(fields, key=lambda name: (name == "seed") - (name == "engine"))


def _is_shown(spec: Specification, name: str) -> bool:
    """Whether a label shows a field."""
    value = getattr(spec, name)
    if name in NEVER_SHOWN or value is None:
        return False
    if isinstance(spec, DatasetSpec) and spec.locations.get(name) is True:
        return name in LOCATIONS
    if any(isinstance(spec, cls) and name == field for cls, field in ALWAYS_SHOWN):
        return True
    usual = DEFAULT_STEPS if name == "steps" else type(spec).model_fields[name].default
    return value != usual


def _field_label(name: str, value: object) -> str:
    """One field: a text as it is, a number after the name of its field."""
    if name in LOCATIONS:
        return file_label(value)
    if isinstance(value, bool):
        return name if value else f"no_{name}"
    if isinstance(value, int | float):
        # The value of `sigma_1` must not run into its number.
        return f"{name}{'_' if name[-1].isdigit() else ''}{number_label(value)}"
    if isinstance(value, tuple):
        return "-".join(map(_entry_label, value)) or "linear"
    if isinstance(value, Specification) and not isinstance(value, Tune):
        return f"{name}-{spec_label(value)}"
    if isinstance(value, Tune):
        return "tuned-" + "-".join(number_label(entry) for entry in value.log)
    return str(value)


def _entry_label(entry: Specification | float | str) -> str:
    """One entry of a list: a number, a name, or a specification with what is unusual of it."""
    if isinstance(entry, str):
        return entry
    if not isinstance(entry, Specification):
        return number_label(entry)
    fields = entry.model_dump(mode="json")
    return short_name({k: v for k, v in fields.items() if k == "kind" or _is_shown(entry, k)})


def number_label(value: object) -> str:
    """A number without trailing zeros: ``0.4``, ``1``; anything else as it is written."""
    return f"{value:g}" if isinstance(value, float) else str(value)
