"""Axes of the grid: from one section of a sweep to its specifications.

A list where a scalar belongs is an axis, and a section is the product of its axes, the first
in the file slowest.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import NoneType
from typing import Any, get_args, get_origin

from pmbnn.core.errors import ConfigError, check_keys, must, must_be_one_of, show
from pmbnn.core.spec import (
    Registry,
    Specification,
    are_kinds,
    only_part,
    registry,
    specification_classes,
    union_parts,
    validated,
)
from pmbnn.experiment.cells import REGISTRIES

MOST_CELLS = 100_000
"""Cells of the largest grid that is expanded: beyond it a typo is likelier than a plan."""

type Placed = tuple[str, Any]
"""A value with the place in the file that it comes from."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One specification that a section stands for.

    Attributes
    ----------
    place
        Where the file writes it.
    spec
        The specification.
    places
        Where the file writes each field that it gives.
    """

    place: str
    spec: Specification
    places: Mapping[str, str]

    def place_of(self, name: str) -> str:
        """Where the file gives a field, or would give it."""
        return self.places.get(name, f"{self.place}.{name}")


def expand_section(
    value: object,
    place: str,
    source: Registry | type[Specification],
) -> list[Choice]:
    """Specifications of a section, each once.

    Parameters
    ----------
    value
        A name, a mapping, or a list of those.
    place
        Where the file has the section, such as ``sweeps[0].prior``.
    source
        A registry, from which a name picks a class; or the class itself.

    Raises
    ------
    ConfigError
        Anything in the section is not valid.
    """
    choices = [
        choice
        for item_place, item in axis(value, place)
        for choice in _expand_item(item, item_place, source)
    ]
    _check_repeats((choice.place, choice.spec) for choice in choices)
    return choices


def axis(value: object, place: str) -> list[Placed]:
    """Values along an axis: the entries of a list, or one scalar alone."""
    if not isinstance(value, list):
        return [(place, value)]
    if not value:
        raise ConfigError(f"`{place}` must not be empty.")
    seen: dict[object, str] = {}
    for index, entry in enumerate(value):
        # Numbers are compared by value (1 and 1.0 are the same), all else by how it looks.
        number = isinstance(entry, int | float) and not isinstance(entry, bool)
        first = seen.setdefault(entry if number else repr(entry), f"{place}[{index}]")
        if first != f"{place}[{index}]":
            raise must(f"{place}[{index}]", f"must not repeat `{first}`", entry)
    return [(f"{place}[{index}]", entry) for index, entry in enumerate(value)]


def check_names(names: Sequence[str], place: str) -> None:
    """Raise ConfigError if two entries of a list have one name."""
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if (other := first.setdefault(name, index)) != index:
            raise must(f"{place}[{index}].name", f"must not repeat `{place}[{other}].name`", name)


def check_size(lengths: Sequence[int], place: str) -> None:
    """Raise ConfigError if a product of axes is too large to expand."""
    size = math.prod(lengths)
    if size > MOST_CELLS:
        raise must(place, f"must stand for at most {MOST_CELLS} combinations", size)


def _expand_item(item: object, place: str, source) -> list[Choice]:
    if isinstance(source, type):
        return _expand_mapping(item, place, source)
    tag = source.tag
    if isinstance(item, str):
        return _expand_mapping({}, place, _class_of(item, place, source), {tag: (place, item)})
    if not isinstance(item, dict):
        raise must(place, "must be a name, a mapping or a list of those", item)
    if tag not in item and source.default is None:
        raise ConfigError(f"`{place}.{tag}` is missing. Choices: {', '.join(sorted(source))}.")
    rest = {key: value for key, value in item.items() if key != tag}
    return [
        choice
        for named in axis(item.get(tag, source.default), f"{place}.{tag}")
        for choice in _expand_mapping(
            rest, place, _class_of(named[1], named[0], source), {tag: named}
        )
    ]


def _class_of(kind: object, place: str, source) -> type[Specification]:
    if not isinstance(kind, str) or kind not in source:
        raise must_be_one_of(place, source, kind)
    return source[kind]


def _expand_mapping(
    item: object,
    place: str,
    cls: type[Specification],
    named: Mapping[str, Placed] | None = None,
) -> list[Choice]:
    """The product of a mapping's axes, as specifications of one class.

    `named` is the field that picked the class.
    """
    if not isinstance(item, dict):
        raise must(place, "must be a mapping", item)
    check_keys(item, cls.model_fields, place)
    axes = {name: [placed] for name, placed in (named or {}).items()}
    axes |= {
        name: _field_axis(cls.model_fields[name].annotation, value, f"{place}.{name}")
        for name, value in item.items()
    }
    check_size([len(values) for values in axes.values()], place)
    choices = []
    for combination in product(*axes.values()):
        places = {name: where for name, (where, _) in zip(axes, combination, strict=True)}
        values = {name: value for name, (_, value) in zip(axes, combination, strict=True)}
        choices.append(Choice(place, validated(cls, values, places, place), places))
    return choices


def _field_axis(annotation: object, value: object, place: str) -> list[Placed]:
    """Values along the axis of one field, read as its annotation says."""
    parts = union_parts(annotation)
    specs = specification_classes(annotation)
    lists = [part for part in parts if get_origin(part) is tuple]
    if lists and set(parts) <= {*lists, NoneType}:
        return _axis_of_lists(value, place, specification_classes(get_args(lists[0])[0]))
    if lists and not specs:
        return [(where, _tuples(entry)) for where, entry in axis(value, place)]
    if not specs:
        return axis(value, place)
    if are_kinds(specs):
        values = _axis_of_kinds(value, place, classes_by_kind(specs))
        return [(where, _tuples(entry)) for where, entry in values] if lists else values
    spec = specs[0]
    if not spec.expands:
        # ``{tune: {...}}`` is the class of that name, its lists no axes.
        return [
            (where, only_part(specs, entry, where) if isinstance(entry, dict) else _tuples(entry))
            for where, entry in axis(value, place)
        ]
    return [
        (choice.place, choice.spec)
        for where, entry in axis(value, place)
        for choice in _expand_mapping(entry, where, spec)
    ]


def _axis_of_kinds(value: object, place: str, source: Registry) -> list[Placed]:
    """Values along an axis of names and mappings of several kinds; others stay as they are."""
    values: list[Placed] = []
    for where, entry in axis(value, place):
        if isinstance(entry, str | dict):
            values += [(c.place, c.spec) for c in _expand_item(entry, where, source)]
        else:
            values.append((where, entry))
    return values


def classes_by_kind(classes: Sequence[type[Specification]]) -> Registry:
    """Classes by kind; a base stands for all that are registered under it."""
    if len(classes) == 1 and classes[0] in REGISTRIES:
        return REGISTRIES[classes[0]]
    return registry(*classes)


def _axis_of_lists(
    value: object, place: str, classes: Sequence[type[Specification]]
) -> list[Placed]:
    """Values along an axis whose values are lists: of scalars, or of the given classes."""
    lists = _lists(value, place)
    if not classes:
        return [(where, _tuples(entry)) for where, entry in lists]
    source = classes_by_kind(classes)
    values = [(where, s) for where, entry in lists for s in _sequences(entry, where, source)]
    _check_repeats(values)
    return values


def _sequences(items: list, place: str, source: Registry) -> Iterator[tuple[Specification, ...]]:
    """Every sequence of specifications that a list of names and mappings stands for."""
    choices = []
    for index, item in enumerate(items):
        if not isinstance(item, str | dict):
            raise must(f"{place}[{index}]", "must be a name or a mapping", item)
        choices.append(_expand_item(item, f"{place}[{index}]", source))
    check_size([len(options) for options in choices], place)
    for chosen in product(*choices):
        yield tuple(choice.spec for choice in chosen)


def _lists(value: object, place: str) -> list[Placed]:
    """Values along an axis, each of which must be a list."""
    rule = "must be a list of lists, because a list alone is an axis of the grid"
    if not isinstance(value, list):
        raise must(place, f"{rule}: write {show([[value]])}", value)
    if not any(isinstance(entry, list) for entry in value):
        raise must(place, f"{rule}: write {show([value])}", value)
    for where, entry in axis(value, place):
        if not isinstance(entry, list):
            raise must(where, "must be a list, like the other values of its axis", entry)
    return axis(value, place)


def _tuples(value: object) -> object:
    """Value with tuples in place of lists, as the frozen specifications have them."""
    return tuple(_tuples(entry) for entry in value) if isinstance(value, list) else value


def _check_repeats(choices: Iterable[Placed]) -> None:
    """Raise ConfigError if two of the specifications, or sequences of them, are equal."""
    seen: dict[object, str] = {}
    for place, choice in choices:
        if choice in seen:
            raise ConfigError(f"`{place}` repeats a choice that `{seen[choice]}` has made.")
        seen[choice] = place
