"""The JSON Schema of experiment files, by which editors complete and check them.

It is made of the specification classes and their docstrings, read as `pmbnn.experiment.axes` reads
them: a list where a scalar belongs is an axis. What depends on several fields at once, or on the
data, is checked when a file is loaded.
"""

import inspect
import re
from collections.abc import Iterable
from types import NoneType
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo

from pmbnn.core.spec import Registry, Specification
from pmbnn.experiment.axes import are_kinds, classes_by_kind, specification_classes, union_parts
from pmbnn.experiment.cells import MARGIN, SOURCES
from pmbnn.experiment.contrasts import SECTIONS, SIDES
from pmbnn.experiment.expand import DEFAULTS, NAME

DIALECT = "https://json-schema.org/draft/2020-12/schema"

TEXTS = {
    "name": "Name of the experiment, and of its results folder: letters, digits, `_` and `-`.",
    "data_folder": "Folder in which data are looked up first, and plugins that are not beside this "
    "file; relative to this file.",
    "plugins": "Python files and packages that register user-defined parts, beside this file.",
    "overrides": "Settings that a command changed, KEY=VALUE each; a results folder has them.",
    "published": "A file with published numbers to compare the results with.",
    "contrasts": "Which cells are compared, named before anything is fitted.",
    "margin": "Difference of NLL, nats an observation, below which two cells are equivalent. "
    f"Default: {MARGIN:g}.",
    "sweeps": "Grids: every combination of what their sections list is fitted.",
    "sweeps.name": "Name of the sweep, in figures, tables and names of files.",
    "plugins.file": "The Python file or package, relative to this file.",
    "plugins.sha256": "SHA-256 of its source. A plugin of another source is an error.",
    "contrasts.name": "Name of the contrast in tables.",
    "contrasts.first": "Cells whose NLL is compared with that of `second`.",
    "contrasts.second": "Cells from whose NLL the difference is taken.",
    "dataset": "Data sets.",
    "network": "Networks: how inputs become outputs.",
    "prior": "Priors of weights and biases.",
    "hyperprior": "Scales of the priors: fixed, or learned under a hyperprior.",
    "likelihood": "Distributions of targets given outputs; by default that of the data set.",
    "inference": "How the posterior is approximated by a fit, or sampled.",
    "predict": "Predictions, and what is stored of them.",
}

KIND = "Name, on which the other settings depend."

Schema = dict[str, Any]


def schema() -> Schema:
    """JSON Schema (draft 2020-12) of experiment files, with what is registered by now."""
    definitions: dict[str, Schema] = {}
    sections = {name: _section(name, definitions) for name in SOURCES}
    required = [name for name in SOURCES if name not in (*DEFAULTS, "likelihood")]
    name = {"type": "string", "pattern": f"^{NAME.pattern}$"}
    sweep = _mapping(_described({"name": name}, "sweeps.") | sections, ["name", *required])
    selection = _mapping({name: _selected(name) for name in SECTIONS})
    contrast = {"name": {"type": "string"}} | dict.fromkeys(SIDES, selection)
    plugin = dict.fromkeys(("file", "sha256"), {"type": "string"})
    properties = {
        "name": name,
        "data_folder": {"type": "string"},
        "plugins": {
            "type": "array",
            "items": {
                "anyOf": [{"type": "string"}, _mapping(_described(plugin, "plugins."), plugin)]
            },
        },
        "published": {"type": "string"},
        "overrides": {"type": "array", "items": {"type": "string"}},
        "contrasts": {"type": "array", "items": _mapping(_described(contrast, "contrasts."))},
        "margin": {"type": "number", "exclusiveMinimum": 0},
        "sweeps": {"type": "array", "items": sweep, "minItems": 1},
    }
    whole = _mapping(_described(properties), ["name", "sweeps"])
    return {"$schema": DIALECT, "title": "pmbnn experiment"} | whole | {"$defs": definitions}


def _described(properties: dict[str, Schema], place: str = "") -> dict[str, Schema]:
    return {k: part | {"description": TEXTS[f"{place}{k}"]} for k, part in properties.items()}


def _selected(section: str) -> Schema:
    text = f"The {section} of these cells: a kind, or a mapping with some of its fields."
    return {"type": ["object", "string"], "description": text}


def _section(name: str, definitions: dict[str, Schema]) -> Schema:
    """Schema of a section of a sweep."""
    source = SOURCES[name]
    if isinstance(source, Registry):
        item = _one_of(_of_kinds(source, definitions))
    else:
        item = _reference(source, None, definitions)
    return _axis(item) | {"description": TEXTS[name]}


def _of_kinds(source: Registry, definitions: dict[str, Schema]) -> list[Schema]:
    """Schemas of a name and of a mapping of a registry's classes.

    The keys of a mapping depend on its kind, so that errors are those of that kind, and an unknown
    kind is one error that lists the choices.
    """
    classes = list(dict.fromkeys(source.values()))
    name = "kinds." + "-".join(dict.fromkeys(map(_definition, classes)))
    if name not in definitions:
        definitions[name] = {}  # a class may refer to itself
        names = {"enum": sorted(source)}
        required = [] if source.default else [source.tag]
        definitions[name] = {
            "type": "object",
            "properties": {source.tag: _axis(names) | {"description": KIND}},
            "required": required,
            "allOf": [_if_kind(cls, source, definitions) for cls in classes],
        }
    return [{"enum": sorted(source)}, {"type": "object", "$ref": f"#/$defs/{name}"}]


def _if_kind(cls: type[Specification], source: Registry, definitions: dict[str, Schema]) -> Schema:
    """Schema of a mapping that names a class, alone or in a list of kinds."""
    kinds = {"enum": _kinds(cls, source)}
    either = {"anyOf": [kinds, {"type": "array", "contains": kinds}]}
    condition: Schema = {"properties": {source.tag: either}}
    if source.default not in kinds["enum"]:
        condition["required"] = [source.tag]
    return {"if": condition, "then": _reference(cls, source, definitions)}


def _reference(
    cls: type[Specification], source: Registry | None, definitions: dict[str, Schema]
) -> Schema:
    """Reference to the definition of a class, which is added where it is missing."""
    name = _definition(cls)
    if name not in definitions:
        definitions[name] = {}  # a class may refer to itself
        definitions[name] = _of_class(cls, source, definitions)
    return {"$ref": f"#/$defs/{name}"}


def _kinds(cls: type[Specification], source: Registry) -> list[str]:
    """Names of a class in a registry."""
    return [kind for kind, registered in source.items() if registered is cls]


def _definition(cls: type[Specification]) -> str:
    # Priors and likelihoods have a class of one name.
    return f"{cls.__module__.rpartition('.')[2]}.{cls.__name__}"


def _of_class(
    cls: type[Specification], source: Registry | None, definitions: dict[str, Schema]
) -> Schema:
    plain = cls.model_json_schema(by_alias=False)["properties"]
    descriptions = field_descriptions(cls)
    properties: dict[str, Schema] = {}
    for name, field in cls.model_fields.items():
        if source is not None and name == source.tag:
            # A list of names is an axis of kinds.
            part = _axis({"enum": _kinds(cls, source)}, {"enum": sorted(source)})
        elif cls.expands:
            part = _of_field(field.annotation, plain[name], definitions)
        else:
            part = _without_texts(plain[name])
        if text := descriptions.get(name):
            default = default_text(field)
            text = f"{text} Default: {default}." if default else text
            part |= {"description": text}
        if "default" in plain[name]:
            part |= {"default": plain[name]["default"]}
        properties[name] = part
    required = [name for name, field in cls.model_fields.items() if field.is_required()]
    if source is not None and source.default is None:
        required.append(source.tag)
    return {"description": summary(cls)} | _mapping(properties, required)


def _of_field(annotation: object, plain: Schema, definitions: dict[str, Schema]) -> Schema:
    """Schema of a field of a mapping; `plain` is pydantic's schema of one value."""
    parts = union_parts(annotation)
    lists = [part for part in parts if get_origin(part) is tuple]
    if lists and set(parts) <= {*lists, NoneType}:
        classes = specification_classes(get_args(lists[0])[0])
        if classes:
            items = _one_of(_of_kinds(classes_by_kind(classes), definitions))
            return _list_of({"type": "array", "items": items})
        options = [_without_texts(option) for option in plain.get("anyOf", [plain])]
        return _list_of({"anyOf": [o for o in options if o.get("type") == "array"]})
    specs = specification_classes(annotation)
    scalars = [
        _without_texts(option)
        for option in plain.get("anyOf", [plain])
        if "$ref" not in option and "allOf" not in option
    ]
    if are_kinds(specs):
        scalars += _of_kinds(classes_by_kind(specs), definitions)
    elif specs and specs[0].expands:
        scalars.append({"type": "object"} | _reference(specs[0], None, definitions))
    elif specs:
        keys = {
            spec.__name__.lower(): _reference(spec, None, definitions)
            | {"description": summary(spec)}
            for spec in specs
        }
        one = {"minProperties": 1, "maxProperties": 1}
        scalars.append(_mapping(keys, keys) if len(keys) == 1 else _mapping(keys) | one)
    # A list is a value of its own among others of an axis only.
    alone = [scalar for scalar in scalars if scalar.get("type") != "array"]
    return _axis(_one_of(alone), _one_of(scalars))


def _one_of(options: list[Schema]) -> Schema:
    """One of several schemas, chosen by the type of the value, so that errors are of that type."""
    mappings = [option for option in options if option.get("type") == "object"]
    names = [o for o in options if o.get("type") == "string" or isinstance(o.get("enum"), list)]
    others = [option for option in options if option not in (*mappings, *names)]
    schema = _any_of(others or names or mappings)
    if others and names:
        schema = {"if": {"type": "string"}, "then": _any_of(names), "else": schema}
    if mappings and (others or names):
        schema = {"if": {"type": "object"}, "then": _any_of(mappings), "else": schema}
    return schema


def _any_of(options: list[Schema]) -> Schema:
    if len(options) == 1:
        return options[0]
    rules = [key for option in options for key in option if key != "type"]
    plain = all(isinstance(o.get("type"), str) for o in options) and "$ref" not in rules
    if plain and len(set(rules)) == len(rules):  # each rule is of values of its type alone
        types = {"type": [option["type"] for option in options]}
        return {key: value for option in options for key, value in option.items()} | types
    return {"anyOf": options}


def _axis(item: Schema, entry: Schema | None = None) -> Schema:
    """One value, or a list of several as an axis of the grid, whose entries may be others."""
    return {"if": {"type": "array"}, "then": _list_of(entry or item), "else": item}


def _list_of(item: Schema) -> Schema:
    return {"type": "array", "items": item, "minItems": 1}


def _mapping(properties: dict[str, Schema], required: Iterable[str] = ()) -> Schema:
    needed = list(dict.fromkeys(required))
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema | ({"required": needed} if needed else {})


def _without_texts(plain: Schema) -> Schema:
    return {key: value for key, value in plain.items() if key not in ("title", "default")}


FIELD = re.compile(r"^(\w+(?:, \w+)*)\n((?:^ .*\n?|^\n)+)", re.MULTILINE)
"""Entry of a section of a numpydoc docstring: names, and the indented lines below them."""


def summary(cls: type[Specification]) -> str:
    """First paragraph of the docstring of a class, on one line."""
    return " ".join(inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0].split())


def default_text(field: FieldInfo) -> str:
    """Default of a field as an experiment file writes it.

    It is empty where there is none, and where no value, or a mapping of further settings, is the
    default: the description says what that stands for.
    """
    if field.is_required():
        return ""
    value = field.get_default(call_default_factory=True)
    if isinstance(value, Specification):
        return getattr(value, "kind", "")
    if value is None or value == ():
        return ""
    if isinstance(value, tuple):
        return f"[{list(value)}]"
    return str(value).lower() if isinstance(value, bool) else f"{value}"


def field_descriptions(cls: type[Specification]) -> dict[str, str]:
    """Descriptions of fields in the docstrings of a class and its bases, by name.

    The tag of a class is described by what the class is.
    """
    tags = dict.fromkeys({"kind", "engine"} & cls.model_fields.keys(), f"{summary(cls)}")
    descriptions: dict[str, str] = dict(tags)
    for base in reversed(cls.__mro__):
        text = inspect.cleandoc(base.__dict__.get("__doc__") or "")
        for names, lines in FIELD.findall(f"{text}\n"):
            descriptions |= dict.fromkeys(names.split(", "), " ".join(lines.split()))
    return descriptions
