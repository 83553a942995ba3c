"""Overrides: settings of an experiment file that a command or a call changes.

``inference.steps=20000`` sets a field of a section in every sweep, ``prior=laplace`` a whole
section, ``toy.prior=laplace`` that of the sweep ``toy``. The value is YAML. A comma outside
brackets, braces and quotes separates the values of an axis: ``prior=normal,laplace`` is
``prior: [normal, laplace]``, ``network.hidden=[50],[50,50]`` is ``hidden: [[50], [50, 50]]``. The
result is checked as any experiment file is.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from pmbnn.core.errors import ConfigError, must, must_be_one_of, show
from pmbnn.core.spec import Registry, plain
from pmbnn.experiment.cells import SOURCES
from pmbnn.experiment.expand import DEFAULTS
from pmbnn.experiment.yaml_file import flow_text, parse_yaml

KEY = "overrides"
"""Key of the experiment file of a results folder: overrides that are in it already."""

OF_EXPERIMENT = ("contrasts", "margin", "published")
"""Settings of the whole experiment that can be overridden, beside sections of sweeps."""

LONGEST_SUFFIX = 80
"""Characters of the overrides in the name of a results folder."""

Overrides = dict[str, Any]
"""Values as an experiment file has them, by dotted key."""

Overridden = Sequence[str] | Mapping[str, Any]
"""Overrides as a user gives them: texts ``KEY=VALUE``, or a mapping."""


def read_overrides(given: Overridden, place: str = "--set") -> Overrides:
    """Overrides of texts ``KEY=VALUE``, or of a mapping of keys to values.

    Parameters
    ----------
    given
        In a mapping, values are as in an experiment file: a list is an axis.
    place
        What gives them, for messages.

    Raises
    ------
    ConfigError
        One cannot be read, or a key is given twice.
    """
    if isinstance(given, str) or not isinstance(given, Sequence | Mapping):
        raise must(place, "must be a list of KEY=VALUE, or a mapping", given)
    pairs = given.items() if isinstance(given, Mapping) else (_pair(one, place) for one in given)
    overrides: Overrides = {}
    for key, value in pairs:
        if key in overrides:
            raise ConfigError(
                f"`{place} {key}` is given twice: several values are `{key}=first,second`."
            )
        overrides[key] = _as_written(value, f"{place} {key}")
    return overrides


def _as_written(value: object, place: str) -> object:
    """A value of Python code as an experiment file has it."""
    value = plain(value)
    if isinstance(value, Mapping):
        return {key: _as_written(one, place) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_as_written(one, place) for one in value]
    if not isinstance(value, str | int | float | bool | None):
        raise must(place, "must be a value as an experiment file has it", value)
    return value


def _pair(text: object, place: str) -> tuple[str, Any]:
    """Key and value of a text."""
    key, _, value = (part.strip() for part in str(text).partition("="))
    if not isinstance(text, str) or not key or not value:
        raise ConfigError(f"`{place}` must be KEY=VALUE, got {show(text)}.")
    values = parse_yaml(f"[{value}]", f"`{place} {key}`")
    if not isinstance(values, list) or not values:
        raise ConfigError(f"`{place}` must be KEY=VALUE, got {show(text)}.")
    return key, values if len(values) > 1 else values[0]


def override_texts(overrides: Mapping[str, Any]) -> tuple[str, ...]:
    """Overrides as texts ``KEY=VALUE``, which read back as the same."""
    return tuple(f"{key}={_value_text(value)}" for key, value in overrides.items())


def _value_text(value: object) -> str:
    values = value if isinstance(value, list) and len(value) > 1 else [value]
    return ",".join(flow_text([one])[1:-1] for one in values)


def folder_suffix(texts: Sequence[str]) -> str:
    """Overrides in the name of a results folder, which no other overrides share."""
    text = "-".join(texts)
    safe = re.sub(r"-*([,=])-*", r"\1", re.sub(r"[^A-Za-z0-9_.,=+-]+", "-", text))
    safe = safe[:LONGEST_SUFFIX].rstrip("-.,=+")
    if safe == text:
        return safe
    return f"{safe}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def overridden(content: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Content of an experiment file with overrides in every sweep.

    A field is set in the entries of a section whose kind has it; where none has it, in all, so that
    the error is the same as that of the file. Whole sections are set before their fields, and every
    sweep before a single one, in whatever order they are given.

    Raises
    ------
    ConfigError
        A key is unknown, or names something within what is no mapping.
    """
    content = deepcopy(dict(content))
    listed = content.get("sweeps")
    sweeps = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    names = {sweep.get("name") for sweep in sweeps}.difference(SOURCES)

    def breadth(override: tuple[str, Any]) -> tuple[int, bool]:
        parts = override[0].split(".")
        is_of_one = parts[0] in names
        return len(parts) - is_of_one, is_of_one

    for key, value in sorted(overrides.items(), key=breadth):
        if key in OF_EXPERIMENT:
            content[key] = value
            continue
        first, *path = key.split(".")
        named = [sweep for sweep in sweeps if first in names and sweep.get("name") == first]
        if named:
            first, path = path[0] if path else "", path[1:]
        if first not in SOURCES:
            names = [] if named else [*OF_EXPERIMENT, *(str(one.get("name")) for one in sweeps)]
            raise must_be_one_of(f"--set {key}", [*SOURCES, *names], first)
        for sweep in named or sweeps:
            sweep[first] = _section(sweep, first, path, value, key) if path else value
    return content


def one_sweep_remedy(error: str, changed: Overrides, valid: Sequence[str]) -> str:
    """How to change a setting where the file allows it, if it was changed in every sweep.

    Parameters
    ----------
    error
        Message on a sweep, which begins with its place.
    valid
        Names of the sweeps that can be read.
    """
    section = re.match(r"`sweeps\[\d+\]\.(\w+)", error)
    keys = [key for key in changed if section and key.split(".")[0] == section[1]]
    if not keys or not valid:
        return ""
    ways = ", ".join(f"`--set {name}.{keys[0]}=…`" for name in sorted(valid))
    return f"`--set {keys[0]}` changes every sweep. Change only those that allow it: {ways}."


def _section(sweep: Mapping, section: str, path: Sequence[str], value: object, key: str) -> object:
    """A section of a sweep with a field set."""
    source, written = SOURCES[section], sweep.get(section, DEFAULTS.get(section, {}))
    tag = source.tag if isinstance(source, Registry) else "kind"
    entries = [
        {tag: entry} if isinstance(entry, str) else deepcopy(entry)
        for entry in (written if isinstance(written, list) else [written])
    ]
    mappings = [entry for entry in entries if isinstance(entry, dict)]
    for entry in [e for e in mappings if _has_field(e, source, path[0])] or mappings:
        _set(entry, path, value, key)
    # Entries that differed in this field alone have become one.
    entries = [entry for i, entry in enumerate(entries) if entry not in entries[:i]]
    return entries if len(entries) > 1 else entries[0]


def _has_field(entry: Mapping[str, Any], source: Any, name: str) -> bool:
    """Whether some kind of an entry has a field; one that is unknown may have it."""
    if not isinstance(source, Registry):
        return True
    kinds = entry.get(source.tag, source.default)
    kinds = kinds if isinstance(kinds, list) else [kinds]
    classes = [source.get(kind) if isinstance(kind, str) else None for kind in kinds]
    return any(cls is None or name == source.tag or name in cls.model_fields for cls in classes)


def _set(mapping: dict[str, Any], path: Sequence[str], value: object, key: str) -> None:
    """Set a value at a path within a mapping, whose parts are made where they are missing."""
    name, *rest = path
    if not rest:
        mapping[name] = value
        return
    inner = mapping.get(name)
    inner = {} if inner is None else {"kind": inner} if isinstance(inner, str) else inner
    for part in inner if isinstance(inner, list) else [inner]:
        if not isinstance(part, dict):
            raise must(f"--set {key}", f"must name a mapping before `.{rest[0]}`", part)
        _set(part, rest, value, key)
    mapping[name] = inner
