"""Errors of an experiment file: one line that names the place, the value and the choices."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError

from pmbnn.spec import Specification

LONGEST_VALUE = 60
"""Characters of a value that a message shows: it stays one readable line."""

REQUIREMENTS = {
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "tuple_type": "must be a list",
    "finite_number": "must be a finite number",
    "greater_than": "must be > {gt}",
    "greater_than_equal": "must be >= {ge}",
    "less_than": "must be < {lt}",
    "less_than_equal": "must be <= {le}",
    "too_long": "must have at most {max_length} entries",
    "too_short": "must have at least {min_length} entries",
}
"""What a value must be, by pydantic's type of error; the braces name its context."""


class ConfigError(ValueError):
    """An experiment that cannot be run as written; the message is one line."""


def show(value: object) -> str:
    """Value on one line, as an experiment file would write it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, tuple | list):
        text = f"[{', '.join(show(item) for item in value[:LONGEST_VALUE])}]"
    elif isinstance(value, dict):
        text = f"{{{', '.join(f'{key}: {show(item)}' for key, item in value.items())}}}"
    else:
        text = repr(value)
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


def must(place: str, requirement: str, value: object) -> ConfigError:
    """Error that a value is not what it must be."""
    return ConfigError(f"`{place}` {requirement}, got {show(value)}.")


def must_be_one_of(place: str, choices: Iterable[object], value: object) -> ConfigError:
    """Error that a value is not among the choices, with the nearest of them."""
    names = sorted({str(choice) for choice in choices})
    message = f"`{place}` must be one of {', '.join(names)}, got {show(value)}"
    near = _nearest(value, names)
    return ConfigError(f"{message}; did you mean `{near}`?" if near else f"{message}.")


def check_keys(value: Mapping, choices: Iterable[str], place: str) -> None:
    """Raise ConfigError if a mapping has a key that is not among the choices."""
    names = sorted(choices)
    for key in value:
        if key in names:
            continue
        near = _nearest(key, names)
        hint = f"; did you mean `{near}`?" if near else "."
        name = key if isinstance(key, str) and key.isprintable() else show(key)
        where = f"`{place}`" if place else "The experiment file"
        raise ConfigError(f"{where} has no key `{name}`{hint} Choices: {', '.join(names)}.")


def validated[S: Specification](
    cls: type[S], values: Mapping[str, Any], places: Mapping[str, str], place: str
) -> S:
    """Specification of the given values; an error names the place its value came from."""
    try:
        return cls(**values)
    except ValidationError as error:
        raise _translated(error.errors()[0], cls, places, place) from None


def _translated(
    error: Mapping[str, Any], cls: type[Specification], places: Mapping[str, str], place: str
) -> ConfigError:
    """Pydantic's error in the wording of this project."""
    kind, context, value = error["type"], error.get("ctx", {}), error["input"]
    where = _where(error["loc"], places, place)
    if kind == "value_error":
        return ConfigError(f"`{where}` {context['error']}.")
    if kind == "missing":
        return ConfigError(f"`{where}` is missing.")
    if kind == "literal_error":
        return must_be_one_of(where, _literals(cls.model_fields[error["loc"][0]].annotation), value)
    if kind in REQUIREMENTS:
        bounds = {name: _plain(bound) for name, bound in context.items()}
        return must(where, REQUIREMENTS[kind].format(**bounds), value)
    return ConfigError(f"`{where}` is not valid: {' '.join(error['msg'].split())}.")


def _where(loc: tuple[str | int, ...], places: Mapping[str, str], place: str) -> str:
    """Place in the file of pydantic's location: a field, then indices and names of types."""
    if not loc:
        return place
    field, *rest = loc
    indices = "".join(f"[{part}]" for part in rest if isinstance(part, int))
    return places.get(field, f"{place}.{field}") + indices


def _literals(annotation: object) -> list[object]:
    """Every value that a Literal, or a union with one, allows."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [value for part in get_args(annotation) for value in _literals(part)]


def _plain(number: object) -> object:
    """Whole numbers without their `.0`."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _nearest(value: object, names: list[str]) -> str | None:
    if not isinstance(value, str):
        return None
    import difflib

    return next(iter(difflib.get_close_matches(value, names, n=1)), None)
