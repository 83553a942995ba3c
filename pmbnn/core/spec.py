"""Base class and registries of the named parts of an experiment file."""

import functools
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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

from pmbnn.core.display import settings_table
from pmbnn.core.errors import (
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

    A specification holds settings only. Its methods import PyMC, JAX or scikit-learn
    themselves, so that reading and planning an experiment stays quick.

    Python code may pass whatever an experiment file may have: NumPy's numbers and arrays become
    plain numbers and tuples, so that equal settings have one text; names and mappings become the
    parts that they name.

    Raises
    ------
    ArgumentError
        If there is no such setting.
    ConfigError
        If a value is not valid.
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

    @property
    def written_fields(self) -> tuple[str, ...]:
        """Names of the fields that an experiment file with every default filled in has."""
        return tuple(type(self).model_fields)

    def _repr_html_(self) -> str:
        return settings_table(self)

    # With this attribute, as that of its own, pydantic does not call it to read JSON.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


class Tune(Specification):
    """Candidate values, evenly spaced on a logarithmic axis, from which each cell chooses one.

    Parameters
    ----------
    log
        Lowest value, highest value and number of candidates, 2 to 100: ``[0.01, 10, 7]``.
    """

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
    """Field that was added to a class with specifications in stored results.

    ``decimal: str = added(".")`` stands for ``decimal: str = "."``. Names of cells and PRNG keys
    are hashes of the text of all settings. A field of this kind is in that text, in records and in
    every other dump only where it differs from its default, so that cells stored before the field
    existed keep their names and numbers, and are grouped with new ones. Files of experiments may
    name it as any other field.

    Parameters
    ----------
    default
        Value that stands for the behaviour of the class before it had the field. It must never
        change.
    **settings
        Further arguments of `pydantic.Field`, such as ``gt=0``.

    Returns
    -------
    FieldInfo
        Default of the class attribute.

    Notes
    -----
    A field that is renamed keeps its first name in that text, as its ``serialization_alias``.
    """
    # Its text, which digests of classes of a notebook include, is the same in every process.
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
    """Stored settings of a class under the names that fields and values have now.

    In experiment files a first name is an error, whose message has the new one.
    """
    names = {f.serialization_alias or name: name for name, f in cls.model_fields.items()}
    current = {names.get(key, key): value for key, value in settings.items()}
    for name, field in cls.model_fields.items():
        value = current.get(name)
        if isinstance(value, str):
            current[name] = _new_values((field.annotation, field.metadata)).get(value, value)
        if isinstance(value, Mapping):
            for part in specification_classes(field.annotation):
                renamed, kind = with_new_names(part, value), part.model_fields.get("kind")
                if kind is None or kind.default == renamed.get("kind"):
                    current[name] = renamed
    return current


def _new_values(annotation: object) -> dict[str, str]:
    """Values of a field that were renamed, by their first names."""
    serializer = getattr(annotation, "func", None)
    if getattr(serializer, "func", None) is _first_value:
        return {first: new for new, first in serializer.args[0].items()}
    parts = annotation if isinstance(annotation, tuple | list) else get_args(annotation)
    return {first: new for part in parts for first, new in _new_values(part).items()}


class Registry[S: Specification](dict[str, type[S]]):
    """Specification classes by their names in experiment files.

    Attributes
    ----------
    tag
        The field that has the name.
    default
        Default name; None where the file must have one.
    """

    tag: str = "kind"
    default: str | None = None

    def class_of(self, settings: Mapping[str, Any]) -> type[S]:
        """The class of stored settings; a KeyError has the name of an unknown one."""
        return self[settings.get(self.tag, self.default)]


def registry[S: Specification](*classes: type[S]) -> Registry[S]:
    """Specification classes by their ``kind``."""
    return Registry({cls.model_fields["kind"].default: cls for cls in classes})


def validated[S: Specification](
    cls: type[S], settings: Mapping[str, Any], places: Mapping[str, str], place: str
) -> S:
    """Specification with checked settings.

    Parameters
    ----------
    places
        Places of settings that are not simply ``place.field``.
    place
        Place of all of them.

    Raises
    ------
    ConfigError
        If there is no such setting, or its value is not valid; it names the place.
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
    parts = {
        name: _part(fields[name].annotation, value, places.get(name, within(place, name)))
        for name, value in settings.items()
    }
    try:
        BaseModel.__init__(spec, **parts)
    except ValidationError as error:
        raise translated(error.errors(), type(spec), places, place) from None


def named[S: Specification](
    value: str | Mapping[str, Any] | S,
    choices: Mapping[str, type[S]],
    place: str,
    base: type[Specification],
) -> S:
    """Specification that Python code passes as such, by its name, or by a mapping with its name.

    Raises
    ------
    ConfigError
        If the name or a setting is unknown, or a value is not valid.
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


# Values of Python code as an experiment file would have them


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
    """A value of a field, with specifications in place of their names and mappings."""
    value, classes = plain(value), specification_classes(annotation)
    if isinstance(value, Mapping) and classes and not are_kinds(classes):
        # In records, what does not expand stands without its name.
        for cls in classes:
            if value.keys() <= cls.model_fields.keys():
                return validated(cls, value, {}, place)
        return only_part(classes, value, place)
    if isinstance(value, str | Mapping) and are_kinds(classes):
        # A base class stands for all classes registered under it, which its field validates.
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


def only_part(
    classes: Sequence[type[Specification]], value: Mapping[str, Any], place: str
) -> Specification:
    """Specification in a place without kinds.

    It is of the only class; or, of classes that do not expand, of that which the only key names.
    """
    if classes[0].expands:
        return validated(classes[0], value, {}, place)
    named_classes = {cls.__name__.lower(): cls for cls in classes}
    check_keys(value, [*named_classes], place)
    if len(value) != 1:
        raise must(place, f"must have one of the keys {', '.join(sorted(named_classes))}", value)
    ((key, settings),) = value.items()
    if not isinstance(settings, Mapping):
        raise must(within(place, key), "must be a mapping", settings)
    return validated(named_classes[key], settings, {}, within(place, key))


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
    return any("kind" in cls.model_fields for cls in classes)


METRICS: dict[str, dict[str, Callable[[Any, Any], float]]] = {}
"""User-defined metrics, functions of a prediction and the targets: by the key of the kind of
prediction (``class_probabilities``, ``density``), then by name."""


# Origins of user-defined parts


SESSION = "this session"
"""Name of the source of classes that were typed into a notebook."""


@dataclass(frozen=True)
class Origin:
    """Origin of a registered part.

    Attributes
    ----------
    file
        The file, or `SESSION`.
    digest
        SHA-256 of the source.
    name
        The file as an experiment file writes it, the module, or `SESSION`.
    """

    file: str
    digest: str
    name: str


ORIGINS: dict[Any, Origin] = {}
"""Origins of classes and metrics that are not part of the package."""


def digests_of(spec: Specification) -> set[str]:
    """SHA-256 of every user-defined source of a specification and its parts."""
    return digests_among(classes_of(spec))


def digests_among(parts: Iterable[Any]) -> set[str]:
    """SHA-256 of every user-defined source of the parts."""
    return {ORIGINS[part].digest for part in parts if part in ORIGINS}


@functools.cache  # cells share their specifications
def classes_of(spec: Specification) -> frozenset[type]:
    """Class of a specification and its base classes, and those of all specifications in it."""
    classes = set(type(spec).__mro__)
    for name in type(spec).model_fields:
        value = getattr(spec, name)
        for entry in value if isinstance(value, tuple) else (value,):
            if isinstance(entry, Specification):
                classes |= classes_of(entry)
    return frozenset(classes)
