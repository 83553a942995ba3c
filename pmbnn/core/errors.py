"""Errors of settings: one line that names the place, the value and the choices."""

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

if TYPE_CHECKING:
    from pmbnn.core.spec import Specification

LONGEST_VALUE = 60
"""Characters of a value that a message shows at most."""

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
"""Requirements by pydantic's type of error, with fields of its context in braces."""

SYNONYMS = {
    "advi": "mean_field",
    "classes": "classification",
    "csv": "table",
    "excel": "table",
    "fullrank_advi": "full_rank",
    "numbers": "regression",
    "parquet": "table",
    "path": "file",
    "refuse": "error",
    "share": "random",
    "target_is": "task",
    "test": "test_size",
}
"""Other names of some choices and settings: of PyMC, of files, and first ones of this package."""

HABITS = {
    "method": "guide",
    "n": "steps",
    "n_init": "tuning",
    "nuts_sampler": "engine",
    "progressbar": "progress",
    "random_state": "random_seed",
    "seed": "random_seed",
    "step": "engine",
    "target_accept": "target_acceptance",
    "tune": "tuning",
}
"""Names of some arguments in PyMC or scikit-learn."""


class UserError(ValueError):
    """An error that the user can correct: a command prints its message and no traceback.

    Attributes
    ----------
    exit_status
        Exit status of a command: 2 for bad input, 3 where the same command can be run again.
    """

    exit_status = 2


class ConfigError(UserError):
    """Settings that are not valid; the message is one line."""


class SettingError(ValueError):
    """What a validator of a whole specification raises about one field, or about all (None)."""

    def __init__(self, field: str | None, rule: str) -> None:
        super().__init__(rule)
        self.field = field


class ArgumentError(ConfigError, TypeError):
    """An argument that a function or class does not have: a TypeError, like Python's own."""


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
    """Error that a value does not meet a requirement."""
    return ConfigError(f"`{place}` {requirement}, got {show(value)}.")


def must_be_one_of(place: str, choices: Iterable[object], value: object) -> ConfigError:
    """Error that a value is not among the choices, with the nearest of them."""
    names = sorted({str(choice) for choice in choices})
    hint = _hint(_nearest(value, names))
    return ConfigError(f"`{place}` must be one of {', '.join(names)}, got {show(value)}{hint}")


def check_arguments(
    arguments: Iterable[str], choices: Iterable[str], function: str, **elsewhere: str
) -> None:
    """Raise ArgumentError if a function is called with an argument that it does not have.

    Parameters
    ----------
    function
        Name of the function, such as ``pb.fit``.
    elsewhere
        Sentences on arguments that have no counterpart among the choices.
    """
    names = sorted(choices)
    for name in arguments:
        if name in names:
            continue
        if HABITS.get(name) in names:
            hint = _hint(HABITS[name])
        elif name in elsewhere:
            hint = f": {elsewhere[name]}"
        else:
            hint = _hint(_nearest(name, names))
        raise ArgumentError(
            f"`{function}` has no argument `{name}`{hint} Choices: {', '.join(names)}."
        )


def check_whole(value: object, place: str, least: int = 1) -> int:
    """The value as an integer of at least ``least``; it may be one of NumPy.

    Raises
    ------
    ConfigError
        If it is not a whole number, or too small.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise must(place, "must be a whole number", value)
    if value < least:
        raise must(place, f"must be >= {least}", value)
    return int(value)


def check_keys(value: Mapping, choices: Iterable[str], place: str) -> None:
    """Raise ConfigError if a mapping has a key that is not among the choices."""
    names = sorted(choices)
    for key in value:
        if key in names:
            continue
        name = key if isinstance(key, str) and key.isprintable() else show(key)
        where = f"`{place}`" if place else "The experiment file"
        hint = _hint(_nearest(key, names))
        raise ConfigError(f"{where} has no key `{name}`{hint} Choices: {', '.join(names)}.")


def translated(
    errors: Sequence[Mapping[str, Any]],
    cls: "type[Specification]",
    places: Mapping[str, str],
    place: str,
) -> ConfigError:
    """The first of pydantic's errors, in the wording of this project.

    Parameters
    ----------
    places
        Places of fields that are not simply ``place.field``.
    place
        Place of all settings; empty for those of a class that Python code calls.
    """
    # Of the errors of a union, that of the type that was validated furthest.
    own = [error for error in errors if error["loc"][:1] == errors[0]["loc"][:1]]
    error = max(own, key=lambda error: len(error["loc"]))
    kind, context, value = error["type"], error.get("ctx", {}), error["input"]
    where = _where(error["loc"], places, place) or cls.__name__
    if kind == "value_error":
        if isinstance(context["error"], ConfigError):  # it has its place already
            return context["error"]
        if field := getattr(context["error"], "field", None):
            where = _where((field,), places, place)
        return ConfigError(f"`{where}` {context['error']}.")
    if kind == "missing":
        return ConfigError(f"`{where}` is missing.")
    if kind == "literal_error":
        return must_be_one_of(where, _literals(cls.model_fields[error["loc"][0]].annotation), value)
    if kind in REQUIREMENTS:
        bounds = {name: _plain(bound) for name, bound in context.items()}
        rule = REQUIREMENTS[kind].format(**bounds)
        if kind in ("float_type", "int_type") and _is_number(value):
            rule += " and not text (PyYAML reads 1e-3 as text: write 1.0e-3)"
        return must(where, rule, value)
    return ConfigError(f"`{where}` is not valid: {' '.join(error['msg'].split())}.")


def _where(loc: tuple[str | int, ...], places: Mapping[str, str], place: str) -> str:
    """Place in the file for pydantic's location: a field, then indices and names of types."""
    if not loc:
        return place
    field, *rest = loc
    indices = "".join(f"[{part}]" for part in rest if isinstance(part, int))
    return places.get(field, within(place, field)) + indices


def within(place: str, field: str) -> str:
    """Place of a field of settings."""
    return f"{place}.{field}" if place else field


def _literals(annotation: object) -> list[object]:
    """Every value that a Literal, or a union with one, allows."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [value for part in get_args(annotation) for value in _literals(part)]


def _is_number(value: object) -> bool:
    """Whether a value is text that reads as a number."""
    try:
        return isinstance(value, str) and math.isfinite(float(value))
    except ValueError:
        return False


def _plain(number: object) -> object:
    """Whole numbers without their `.0`."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _hint(near: str | None) -> str:
    """End of a message, with the choice that was probably meant."""
    return f"; did you mean `{near}`?" if near else "."


def _nearest(value: object, names: list[str]) -> str | None:
    if not isinstance(value, str):
        return None
    if SYNONYMS.get(value.lower()) in names:
        return SYNONYMS[value.lower()]
    import difflib

    return next(iter(difflib.get_close_matches(value.lower(), names, n=1)), None)


def reason_of(error: BaseException) -> str:
    """One line of an exception: its class and message."""
    return f"{type(error).__name__}: {error}".splitlines()[0]
