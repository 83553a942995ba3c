"""What every named part of an experiment file has in common."""

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import UnionType
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializationInfo,
    ValidationError,
    model_validator,
)

from pmbnn.spec.display import settings_table
from pmbnn.spec.errors import (
    ConfigError,
    check_arguments,
    check_keys,
    must,
    must_be_one_of,
    translated,
    within,
)

Positive = Annotated[float, Field(gt=0)]


class Specification(BaseModel):
    """Frozen, strictly typed description of one part of an experiment.

    A specification holds settings only. What it needs of PyMC, JAX or scikit-learn is
    imported inside its methods, so that reading and planning an experiment stays quick.

    Python code may give whatever an experiment file may: NumPy's numbers and arrays become
    plain numbers and tuples, so that settings have one text however they were given; names and
    mappings become the parts that they stand for.

    Raises
    ------
    ArgumentError
        If there is no such setting.
    ConfigError
        If a value is not what it must be.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        validate_default=True,
        # A class that no experiment uses need not build its validator.
        defer_build=True,
    )

    expands: ClassVar[bool] = True
    """Whether a list in the place of one of its scalars is an axis of the grid."""

    def __init__(self, /, **settings: Any) -> None:
        check_arguments(settings, type(self).model_fields, type(self).__name__)
        _fill(self, settings, {}, "")

    def _repr_html_(self) -> str:
        return settings_table(self)

    # Says that pydantic need not call it where it reads JSON, as it does not call its own.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


class Tune(Specification):
    """Candidate values ``[low, high, count]``, evenly spaced on a logarithmic axis."""

    expands: ClassVar[bool] = False
    log: tuple[Positive, Positive, Annotated[int, Field(ge=2, le=100)]]

    @model_validator(mode="after")
    def _ascending(self):
        low, high, _ = self.log
        if low >= high:
            raise ValueError(f"must have low < high in `log`, got {low:g} and {high:g}")
        return self

    @property
    def candidates(self) -> tuple[float, ...]:
        """The values to try, ascending."""
        low, high, count = self.log
        return tuple(low * (high / low) ** (i / (count - 1)) for i in range(count))


def added(default: Any, **settings: Any) -> Any:
    """Field that was added to a class whose specifications results folders already hold.

    ``decimal: str = added(".")`` stands for ``decimal: str = "."``. Names of cells and PRNG keys
    are hashes of the text of all settings. A field of this kind is in that text, in records and in
    every other dump only where it differs from its default, so that cells stored before the field
    existed keep their names and numbers, and are grouped with new ones. Files of experiments may
    name it as any other field.

    Parameters
    ----------
    default
        What the class did before it had the field. It must never change.
    **settings
        Further arguments of `pydantic.Field`, such as ``gt=0``.

    Returns
    -------
    FieldInfo
        To be the default of the class attribute.

    Notes
    -----
    A field that is renamed keeps its first name in that text, as its ``serialization_alias``.
    """
    # Its text is the same in every process: digests of classes of a notebook have it.
    return Field(default, exclude_if=partial(operator.eq, default), **settings)


def renamed_values(**first: str) -> PlainSerializer:
    """Annotation of a field some of whose values were renamed.

    Names of cells and PRNG keys are hashes of the text of all settings, which keeps first names.

    Parameters
    ----------
    **first
        The first name of each of them.
    """
    return PlainSerializer(partial(_first_value, first))


def _first_value(first: Mapping[str, str], value: Any, info: SerializationInfo) -> Any:
    return first.get(value, value) if info.by_alias else value


def with_new_names(cls: type[Specification], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Stored settings of a class with what was renamed since under its new names.

    Experiment files are not read so: there, a first name is an error that says the new one.
    """
    names = {f.serialization_alias or name: name for name, f in cls.model_fields.items()}
    found = {names.get(key, key): value for key, value in settings.items()}
    for name, field in cls.model_fields.items():
        value = found.get(name)
        if isinstance(value, str):
            found[name] = _new_values((field.annotation, field.metadata)).get(value, value)
        if isinstance(value, Mapping):
            for part in specification_classes(field.annotation):
                renamed, kind = with_new_names(part, value), part.model_fields.get("kind")
                if kind is None or kind.default == renamed.get("kind"):
                    found[name] = renamed
    return found


def _new_values(annotation: object) -> dict[str, str]:
    """Values of a field that were renamed, by their first names."""
    serializer = getattr(annotation, "func", None)
    if getattr(serializer, "func", None) is _first_value:
        return {first: new for new, first in serializer.args[0].items()}
    parts = annotation if isinstance(annotation, tuple | list) else get_args(annotation)
    return {first: new for part in parts for first, new in _new_values(part).items()}


class Registry[S: Specification](dict[str, type[S]]):
    """Specification classes by the name that an experiment file calls them.

    Attributes
    ----------
    tag
        The field that has the name.
    default
        The name where a file gives none; None where it must.
    """

    tag: str = "kind"
    default: str | None = None

    def class_of(self, settings: Mapping[str, Any]) -> type[S]:
        """The class that stored settings are of; a KeyError names what is unknown."""
        return self[settings.get(self.tag, self.default)]


def registry[S: Specification](*classes: type[S]) -> Registry[S]:
    """Specification classes by their ``kind``."""
    return Registry({cls.model_fields["kind"].default: cls for cls in classes})


def validated[S: Specification](
    cls: type[S], settings: Mapping[str, Any], places: Mapping[str, str], place: str
) -> S:
    """Specification of the given settings.

    Parameters
    ----------
    places
        Where each of them was given, where that is not simply ``place.field``.
    place
        Of all of them.

    Raises
    ------
    ConfigError
        If there is no such setting, or its value is not what it must be; it names the place.
    """
    check_keys(settings, cls.model_fields, place)
    spec = cls.__new__(cls)
    _fill(spec, settings, places, place)
    return spec


def _fill(
    spec: Specification, settings: Mapping[str, Any], places: Mapping[str, str], place: str
) -> None:
    """Set the fields of a new specification, checked."""
    fields = type(spec).model_fields
    given = {
        name: _part(fields[name].annotation, value, places.get(name, within(place, name)))
        for name, value in settings.items()
    }
    try:
        BaseModel.__init__(spec, **given)
    except ValidationError as error:
        raise translated(error.errors(), type(spec), places, place) from None


def named[S: Specification](
    value: str | Mapping[str, Any] | S,
    choices: Mapping[str, type[S]],
    place: str,
    base: type[Specification],
) -> S:
    """Specification that Python code gives whole, by its name, or by a mapping with its name.

    Raises
    ------
    ConfigError
        If the name or a setting is unknown, or a value is not what it must be.
    TypeError
        If it is none of these.
    """
    if isinstance(value, base):
        return value
    tag = choices.tag if isinstance(choices, Registry) else "kind"
    if isinstance(value, str):
        if value not in choices:
            raise must_be_one_of(place, choices, value)
        return choices[value](**{tag: value})
    if not isinstance(value, Mapping):
        example = f"pb.{place}s.{list(choices.values())[1].__name__}()"
        raise TypeError(
            f"`{place}` must be a name, a mapping or a {base.__name__} such as `{example}`, "
            f"got {value!r}."
        )
    if tag not in value:
        raise ConfigError(f"`{place}.{tag}` is missing. Choices: {', '.join(sorted(choices))}.")
    if value[tag] not in choices:
        raise must_be_one_of(f"{place}.{tag}", choices, value[tag])
    return validated(choices[value[tag]], value, {}, place)


# What Python code gives, as an experiment file would have it


def plain(value: Any) -> Any:
    """Python's own numbers and tuples for NumPy's and for lists; text for paths."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    if getattr(value, "ndim", None) and hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, list | tuple | range):
        return tuple(map(plain, value))
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _part(annotation: object, value: Any, place: str) -> Any:
    """A value of a field, with specifications for the names and mappings of such."""
    value, classes = plain(value), specification_classes(annotation)
    if isinstance(value, Mapping) and len(classes) == 1 and not are_kinds(classes):
        # In records, what does not expand stands without its name.
        if value.keys() <= classes[0].model_fields.keys():
            return validated(classes[0], value, {}, place)
        return only_part(classes[0], value, place)
    if isinstance(value, str | Mapping) and are_kinds(classes):
        # A base class stands for all that are registered under it: its field knows them.
        whole = all(isinstance(cls.model_fields["kind"].default, str) for cls in classes)
        return named(value, registry(*classes), place, Specification) if whole else value
    parts = union_parts(annotation)
    entries = [t for t in parts if get_origin(t) is tuple]
    if isinstance(value, int | float) and entries == parts and Ellipsis in get_args(parts[0]):
        return (value,)  # as `hidden=5`; in a file it would look like an axis
    if isinstance(value, tuple) and entries and specification_classes(get_args(entries[0])[0]):
        of_entry = get_args(entries[0])[0]
        return tuple(_part(of_entry, entry, f"{place}[{i}]") for i, entry in enumerate(value))
    return value


def only_part[S: Specification](cls: type[S], value: Mapping[str, Any], place: str) -> S:
    """A specification of the one class that may stand there; what does not expand has its name."""
    if cls.expands:
        return validated(cls, value, {}, place)
    key = cls.__name__.lower()
    check_keys(value, [key], place)
    if not isinstance(value.get(key), Mapping):
        raise must(within(place, key), "must be a mapping", value.get(key))
    return validated(cls, value[key], {}, within(place, key))


def union_parts(annotation: object) -> list[object]:
    """Types that a union allows; the type itself if it is no union."""
    if get_origin(annotation) is Annotated:
        return union_parts(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [part for option in get_args(annotation) for part in union_parts(option)]
    return [annotation]


def specification_classes(annotation: object) -> list[type[Specification]]:
    """Classes of specifications that an annotation allows."""
    parts = union_parts(annotation)
    return [p for p in parts if isinstance(p, type) and issubclass(p, Specification)]


def are_kinds(classes: Sequence[type[Specification]]) -> bool:
    """Whether a name or a ``kind`` tells which of the classes is meant."""
    return len(classes) > 1 or any("kind" in cls.model_fields for cls in classes)


METRICS: dict[str, dict[str, Callable[[Any, Any], float]]] = {}
"""Metrics of one's own, functions of a prediction and the targets: by the key of the kind of
prediction (``class_probabilities``, ``density``), then by name."""
