"""Selection of cells by conditions ``KEY=VALUE``; the same key again means *or*."""

from collections.abc import Sequence

from pmbnn.core.errors import ConfigError, must_be_one_of, show
from pmbnn.core.spec import Specification
from pmbnn.experiment.cells import SOURCES, Cell, short_name
from pmbnn.experiment.yaml_file import parse_yaml

_ABSENT = object()
"""Value under a key that the kind of a cell does not have."""


def select_cells(
    cells: Sequence[Cell], conditions: Sequence[str], option: str = "--only"
) -> list[Cell]:
    """Cells that meet every condition, in their order.

    Parameters
    ----------
    conditions
        ``KEY=VALUE`` each. A key is ``sweep``, a section with a kind (``prior``) or a dotted
        field (``dataset.seed``, ``predict.map.resolution``); a value is YAML, such as
        ``[5, 5]`` for ``network.hidden``; ``tune`` stands for every tuned scale, and a list of
        layers is named as in the tables, ``conv6x5.valid.tanh-flatten``.
    option
        Name of the option that has the conditions, for messages.

    Raises
    ------
    ConfigError
        A condition cannot be read, its key is unknown, or nothing meets it.
    """
    allowed: dict[str, list[str]] = {}
    for condition in conditions:
        key, equals, text = (part.strip() for part in condition.partition("="))
        if not (key and equals and text):
            raise ConfigError(f"`{option}` must be KEY=VALUE, got {show(condition)}.")
        allowed.setdefault(key, []).append(text)
    kept = list(cells)
    for key, texts in allowed.items():
        values = {cell: value for cell in cells if (value := _value(cell, key)) is not _ABSENT}
        if not values:
            raise must_be_one_of(option, _keys(cells), key)
        matching: set[Cell] = set()
        for text in texts:
            setting = parse_yaml(text, f"`{option}`")
            setting = tuple(setting) if isinstance(setting, list) else setting
            matches = {cell for cell, value in values.items() if _is(value, text, setting)}
            if not matches and "," in text and not text.startswith(("[", "{")):
                each = " ".join(f"{option} {key}={one.strip()}" for one in text.split(","))
                raise ConfigError(f"`{option} {key}` must be one value, got {text}: write {each}.")
            if not matches:
                raise must_be_one_of(f"{option} {key}", map(_text, values.values()), text)
            matching |= matches
        kept = [cell for cell in kept if cell in matching]
    if not kept:
        raise ConfigError(f"`{option}` matches no cell: {' '.join(conditions)}.")
    return kept


def _value(cell: Cell, key: str) -> object:
    """Value of a cell under a key; the kind, where the key names a section."""
    if key == "sweep":
        return cell.sweep
    section, *path = key.split(".")
    value: object = cell.settings.get(section, _ABSENT)
    for name in path or ["kind"]:
        has_field = isinstance(value, Specification) and name in type(value).model_fields
        value = getattr(value, name) if has_field else _ABSENT
    return _ABSENT if isinstance(value, Specification) and value.expands else value


def _is(value: object, text: str, setting: object) -> bool:
    """Whether a value of a cell is that of a condition, as its text or as YAML."""
    # True == 1 in Python, but not in an experiment file.
    same = setting == value and isinstance(setting, bool) == isinstance(value, bool)
    return same or _text(value) == text


def _text(value: object) -> str:
    if isinstance(value, Specification):
        return type(value).__name__.lower()
    if isinstance(value, tuple) and any(isinstance(entry, Specification) for entry in value):
        return "-".join(short_name(entry.model_dump(mode="json")) for entry in value)
    return value if isinstance(value, str) else show(value)


def _keys(cells: Sequence[Cell]) -> set[str]:
    """Every key that some cell has."""
    # Few distinct specifications stand behind many cells.
    specs = {(name, spec) for cell in cells for name, spec in cell.settings.items()}
    fields = {f"{section}.{path}" for section, spec in specs for path in _paths(spec)}
    with_kind = {s for s, source in SOURCES.items() if getattr(source, "tag", None) == "kind"}
    return {"sweep"} | with_kind | fields


def _paths(spec: Specification) -> list[str]:
    """Dotted names of a specification's fields, without the kind."""
    paths = []
    for name in type(spec).model_fields:
        value = getattr(spec, name)
        if isinstance(value, Specification) and value.expands:
            paths += [f"{name}.{path}" for path in _paths(value)]
        elif name != "kind":
            paths.append(name)
    return paths
