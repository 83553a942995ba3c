"""Contrasts that an experiment file names: which cells are held against which, said beforehand.

A contrast selects two kinds of cells, ``first`` and ``second``. A pair is one of each that agree in
everything else, data seed and inference included.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pmbnn.experiment.cells import MARGIN, SOURCES, Cell, Contrast, Contrasts, Selection
from pmbnn.experiment.yaml_file import read_yaml
from pmbnn.spec import Specification
from pmbnn.spec.errors import ConfigError, UserError, check_keys, must, must_be_one_of, show

SECTIONS = ("dataset", "network", "prior", "hyperprior")
"""Sections that a selection may name."""

SIDES = ("first", "second")

_ABSENT = object()
"""What a cell has under a field that its kind does not know."""


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
    found: list[Contrast] = []
    for index, item in enumerate(listed):
        contrast = _contrast(item, f"contrasts[{index}]")
        for other, earlier in enumerate(found):
            if earlier.name == contrast.name:
                rule = f"must not repeat `contrasts[{other}].name`"
                raise must(f"contrasts[{index}].name", rule, contrast.name)
        found.append(contrast)
    return Contrasts(tuple(found), float(margin))


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
    """Raise ConfigError if a contrast names what there is not, or no clear pairs of cells."""
    if not contrasts.listed:
        return
    for index, contrast in enumerate(contrasts.listed):
        place = f"contrasts[{index}]"
        for side in SIDES:
            selection = getattr(contrast, side)
            _check_fields(selection, f"{place}.{side}")
            if not any(selects(selection, cell) for cell in cells):
                raise must(f"{place}.{side}", "must match a cell of the plan", selection)
        try:
            found = pairs(contrast, cells)
        except AmbiguousError as error:
            raise ConfigError(f"`{place}` {error}.") from None
        if not found:
            raise ConfigError(
                f"`{place}` must match a pair of cells that differ only in what it names "
                f"({', '.join(_named(contrast))}), got none for {show(contrast.name)}."
            )


class AmbiguousError(UserError):
    """A contrast has several cells to hold one against; the message says what it must say."""


def pairs(contrast: Contrast, cells: Sequence[Cell]) -> list[tuple[int, int]]:
    """Indices of a contrast's pairs: alike in all sections but those that it names.

    Data sets are always the same: a selection of them only leaves others out.

    Raises
    ------
    AmbiguousError
        If there are several cells on a side of a pair.
    """
    named = set(_named(contrast)) - {"dataset"}
    sides: tuple[dict[Cell, list[int]], ...] = ({}, {})
    for index, cell in enumerate(cells):
        for side, found in zip(SIDES, sides, strict=True):
            if selects(getattr(contrast, side), cell):
                rest = replace(cell, sweep="", **dict.fromkeys(named))
                found.setdefault(rest, []).append(index)
    first, second = sides
    shared = [key for key in first if key in second]
    for side, found in zip(SIDES, sides, strict=True):
        for key in shared:
            if len(found[key]) > 1:
                raise AmbiguousError(_ambiguous(side, [cells[i] for i in found[key]]))
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
    """A field of a specification as a file has it, also where stored text leaves it out."""
    stored = spec.model_dump(mode="json", include={name})
    field = type(spec).model_fields.get(name)
    return stored.get(name, _ABSENT if field is None else field.default)


def _is(value: object, said: object) -> bool:
    """Whether a setting is what a file says; ``tune`` stands for every tuned value."""
    if isinstance(value, Mapping) and "log" in value:
        if said == "tune":
            return True
        said = said.get("tune", said) if isinstance(said, Mapping) else said
        value, said = ([*v.values()] if isinstance(v, Mapping) else v for v in (value, said))
    if isinstance(value, list | tuple) and isinstance(said, list | tuple):
        return len(value) == len(said) and all(map(_is, value, said))
    # True == 1 in Python, but not in an experiment file.
    return value == said and isinstance(value, bool) == isinstance(said, bool)


def _named(contrast: Contrast) -> list[str]:
    return [name for name in SECTIONS if name in contrast.first or name in contrast.second]


def _ambiguous(side: str, cells: Sequence[Cell]) -> str:
    """What a selection must say more of, with the choices."""
    stored = {s: [getattr(cell, s).model_dump(mode="json") for cell in cells] for s in SECTIONS}
    values = {
        f"{section}.{name}": dict.fromkeys(show(settings.get(name)) for settings in listed)
        for section, listed in stored.items()
        for name in listed[0]
    }
    differing = {name: found for name, found in values.items() if len(found) > 1}
    choices = "; ".join(f"{key}: {', '.join(values)}" for key, values in differing.items())
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
    found = {}
    for section, said in value.items():
        fields = {"kind": said} if isinstance(said, str) else said
        if not isinstance(fields, dict) or not fields:
            raise must(f"{place}.{section}", "must be a kind or a mapping of fields", said)
        found[section] = dict(fields)
    return found


def _check_fields(selection: Selection, place: str) -> None:
    """Raise ConfigError if a selection has a kind or a field that there is not."""
    for section, fields in selection.items():
        kinds, where = SOURCES[section], f"{place}.{section}"
        kind = fields.get("kind")
        if "kind" in fields and (not isinstance(kind, str) or kind not in kinds):
            raise must_be_one_of(where, kinds, kind)
        classes = [kinds[kind]] if kind else list(kinds.values())
        check_keys(fields, {name for cls in classes for name in cls.model_fields}, where)
