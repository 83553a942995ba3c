"""Contrasts of an experiment file: which cells are compared, named before anything is fitted.

A contrast selects two kinds of cells, ``first`` and ``second``. A pair is one of each that agree in
everything else, data seed and inference included.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pmbnn.core.errors import ConfigError, UserError, check_keys, must, must_be_one_of, show
from pmbnn.core.spec import Specification
from pmbnn.experiment.axes import check_names
from pmbnn.experiment.cells import MARGIN, SOURCES, Cell, Contrast, Contrasts, Selection
from pmbnn.experiment.yaml_file import read_yaml
from pmbnn.models.hyperpriors import Match

SECTIONS = ("dataset", "network", "prior", "hyperprior")
"""Sections that a selection may name."""

SIDES = ("first", "second")

_ABSENT = object()
"""Value of a field that the kind of a cell does not have."""


def read_contrasts(content: Mapping[str, Any]) -> Contrasts:
    """The contrasts of an experiment file, or of its copy in a results folder, checked in form.

    Raises
    ------
    ConfigError
        If a key, a name or a value is not as it must be.
    """
    margin = content.get("margin", MARGIN)
    is_number = isinstance(margin, int | float) and not isinstance(margin, bool)
    if not is_number or not 0 < margin < math.inf:
        raise must("margin", "must be a number > 0", margin)
    listed = content.get("contrasts", [])
    if not isinstance(listed, list):
        raise must("contrasts", "must be a list", listed)
    contrasts = [_contrast(item, f"contrasts[{index}]") for index, item in enumerate(listed)]
    check_names([contrast.name for contrast in contrasts], "contrasts")
    return Contrasts(tuple(contrasts), float(margin))


def stored_contrasts(folder: Path) -> Contrasts:
    """The contrasts of the experiment of a results folder; none where it is not recorded.

    Raises
    ------
    ConfigError
        If its copy of the experiment file cannot be read.
    """
    path = folder / "experiment.yaml"
    return read_contrasts(read_yaml(path)) if path.is_file() else Contrasts()


def check_contrasts(contrasts: Contrasts, cells: Sequence[Cell]) -> None:
    """Raise ConfigError if a contrast matches no cell, or no clear pairs of cells."""
    for index, contrast in enumerate(contrasts.listed):
        place = f"contrasts[{index}]"
        for side in SIDES:
            selection = getattr(contrast, side)
            _check_fields(selection, f"{place}.{side}")
            if not any(selects(selection, cell) for cell in cells):
                raise must(f"{place}.{side}", "must match a cell of the plan", selection)
        try:
            matched = pairs(contrast, cells)
        except AmbiguousError as error:
            raise ConfigError(f"`{place}` {error}.") from None
        if not matched:
            raise ConfigError(
                f"`{place}` must match a pair of cells that differ only in what it names "
                f"({', '.join(_named(contrast))}), got none for {show(contrast.name)}."
            )


class AmbiguousError(UserError):
    """A contrast matches several cells on a side of a pair; the message says what must be named."""


def pairs(contrast: Contrast, cells: Sequence[Cell]) -> list[tuple[int, int]]:
    """Indices of a contrast's pairs: cells equal in all sections but those that it names.

    Data sets are always the same: a selection of them only leaves others out.

    Raises
    ------
    AmbiguousError
        If there are several cells on a side of a pair.
    """
    named = set(_named(contrast)) - {"dataset"}
    sides: tuple[dict[Cell, list[int]], ...] = ({}, {})
    for index, cell in enumerate(cells):
        for side, matches in zip(SIDES, sides, strict=True):
            if selects(getattr(contrast, side), cell):
                rest = replace(cell, sweep="", **dict.fromkeys(named))
                matches.setdefault(rest, []).append(index)
    first, second = sides
    shared = [key for key in first if key in second]
    for side, matches in zip(SIDES, sides, strict=True):
        for key in shared:
            if len(matches[key]) > 1:
                raise AmbiguousError(_ambiguous(side, [cells[i] for i in matches[key]]))
    chosen = [(first[key][0], second[key][0]) for key in shared]
    if any(one == other for one, other in chosen):
        raise AmbiguousError("must not hold a cell against itself: `first` and `second` overlap")
    return chosen


def selects(selection: Selection, cell: Cell) -> bool:
    """Whether a cell has every field of a selection."""
    return all(
        _is(_field(getattr(cell, section), name), value)
        for section, fields in selection.items()
        for name, value in fields.items()
    )


def _field(spec: Specification, name: str) -> object:
    """Field of a specification as a file has it; its default where stored text leaves it out."""
    stored = spec.model_dump(mode="json", include={name})
    field = type(spec).model_fields.get(name)
    return stored.get(name, _ABSENT if field is None else field.default)


def _is(value: object, wanted: object) -> bool:
    """Whether a setting is that of a file.

    ``tune`` stands for every tuned value, ``match`` for every matched one.
    """
    if isinstance(value, Mapping) and value.keys() == Match.model_fields.keys():
        wanted = wanted.get("match") if isinstance(wanted, Mapping) else wanted
        if isinstance(wanted, Mapping):
            return all(name in value and _is(value[name], v) for name, v in wanted.items())
        return wanted == "match"
    if isinstance(value, Mapping) and "log" in value:
        if wanted == "tune":
            return True
        wanted = wanted.get("tune", wanted) if isinstance(wanted, Mapping) else wanted
        value, wanted = ([*v.values()] if isinstance(v, Mapping) else v for v in (value, wanted))
    if isinstance(value, list | tuple) and isinstance(wanted, list | tuple):
        return len(value) == len(wanted) and all(map(_is, value, wanted))
    # True == 1 in Python, but not in an experiment file.
    return value == wanted and isinstance(value, bool) == isinstance(wanted, bool)


def _named(contrast: Contrast) -> list[str]:
    return [name for name in SECTIONS if name in contrast.first or name in contrast.second]


def _ambiguous(side: str, cells: Sequence[Cell]) -> str:
    """Message with the settings that a selection must name, and their values."""
    stored = {s: [getattr(cell, s).model_dump(mode="json") for cell in cells] for s in SECTIONS}
    values = {
        f"{section}.{name}": dict.fromkeys(show(settings.get(name)) for settings in listed)
        for section, listed in stored.items()
        for name in listed[0]
    }
    choices = "; ".join(f"{key}: {', '.join(v)}" for key, v in values.items() if len(v) > 1)
    rule = f"must name one cell a pair, but `{side}` matches {len(cells)} that differ in"
    return f"{rule} {choices}"


def _contrast(item: object, place: str) -> Contrast:
    if not isinstance(item, dict):
        raise must(place, "must be a mapping with name, first and second", item)
    check_keys(item, ["name", *SIDES], place)
    for key in ("name", *SIDES):
        if key not in item:
            raise ConfigError(f"`{place}.{key}` is missing.")
    name = item["name"]
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise must(f"{place}.name", "must be text on one line", name)
    return Contrast(name, *(_selection(item[side], f"{place}.{side}") for side in SIDES))


def _selection(value: object, place: str) -> Selection:
    if not isinstance(value, dict) or not value:
        raise must(place, "must be a mapping of sections", value)
    check_keys(value, SECTIONS, place)
    selection = {}
    for section, setting in value.items():
        fields = {"kind": setting} if isinstance(setting, str) else setting
        if not isinstance(fields, dict) or not fields:
            raise must(f"{place}.{section}", "must be a kind or a mapping of fields", setting)
        selection[section] = dict(fields)
    return selection


def _check_fields(selection: Selection, place: str) -> None:
    """Raise ConfigError if a selection has an unknown kind or field."""
    for section, fields in selection.items():
        kinds, where = SOURCES[section], f"{place}.{section}"
        kind = fields.get("kind")
        if "kind" in fields and (not isinstance(kind, str) or kind not in kinds):
            raise must_be_one_of(where, kinds, kind)
        classes = [kinds[kind]] if kind else list(kinds.values())
        check_keys(fields, {name for cls in classes for name in cls.model_fields}, where)
