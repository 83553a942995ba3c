"""YAML as experiment files use it: read with one-line errors, written so that it reads back.

Scalars follow YAML 1.2: ``1e-3`` is a number, ``on`` and ``yes`` are text (``on`` is a key of
the hyperpriors), ``010`` is ten and a date is text. Duplicate keys are errors.
"""

import re
from pathlib import Path

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError
from yaml.scanner import ScannerError

from pmbnn.core.errors import ConfigError

MOST_BYTES = 4_000_000
"""Largest file that is read: the largest experiment has a hundredth of this."""

MOST_VALUES, MOST_LEVELS = 1_000_000, 50
"""A few lines of aliases can stand for more values than memory holds."""

TOO_LARGE = (
    f"must have at most {MOST_VALUES:,} values and {MOST_LEVELS} levels, aliases written out"
)

_DIGITS = "+-0123456789"
_RESOLVERS = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9][0-9_]*", _DIGITS),
    (
        "float",
        r"[-+]?([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        _DIGITS + ".",
    ),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", r"<<", "<"),
)
"""Tag, pattern and possible first characters of every scalar that is not plain text."""


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the scalars of YAML 1.2, no key twice, and a limit."""

    yaml_implicit_resolvers = {}

    def __init__(self, text):
        super().__init__(text)
        # Finish a node before the next, so that a node within itself is an error.
        self.deep_construct = True

    def fetch_flow_collection_start(self, TokenClass):  # noqa: N803
        # For each token, the scanner goes through every bracket that is open.
        if self.flow_level >= MOST_LEVELS:
            raise ScannerError(None, None, TOO_LARGE, self.get_mark())
        super().fetch_flow_collection_start(TokenClass)

    def compose_node(self, parent, index):
        node = super().compose_node(parent, index)
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        parts = node.value if isinstance(node, yaml.SequenceNode) else [n for p in pairs for n in p]
        # An alias is the anchored node itself, which has no size yet if it encloses the alias.
        node.size = 1 + sum(getattr(part, "size", 0) for part in parts)
        node.levels = 1 + max((getattr(part, "levels", 0) for part in parts), default=0)
        if node.size > MOST_VALUES or node.levels > MOST_LEVELS:
            raise ComposerError(None, None, TOO_LARGE, node.start_mark)
        return node

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value:
            text = (key.tag, key.value) if isinstance(key, yaml.ScalarNode) else id(key)
            if text in seen and key.tag != "tag:yaml.org,2002:merge":
                problem = f"key `{key.value}` appears twice"
                raise ConstructorError(None, None, problem, key.start_mark)
            seen.add(text)
        return super().construct_mapping(node, deep)

    def construct_decimal(self, node):
        """Whole number; a leading zero does not make it octal."""
        return int(self.construct_scalar(node).replace("_", ""))


class _Dumper(yaml.SafeDumper):
    """Dumper that quotes the text that some reader would take for something else.

    Readers of YAML 1.1, PyYAML's own among them, take ``on`` and ``no`` for truth values, ``1:30``
    for 90 and ``2024-01-31`` for a date; some take ``y`` and ``n`` for truth values as well. Those
    of YAML 1.2 take ``0o17`` for 15.
    """

    yaml_implicit_resolvers = {}

    def ignore_aliases(self, data):
        """Write everything out: anchors are hard to read."""
        return True


for _tag, _pattern, _first in _RESOLVERS:
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(
            f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first)
        )
for _first, _others in yaml.resolver.Resolver.yaml_implicit_resolvers.items():
    for _tag, _pattern in _others:
        _Dumper.add_implicit_resolver(_tag, _pattern, [_first])
_Dumper.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^[yYnN]$"), list("yYnN"))
_Dumper.add_implicit_resolver("tag:yaml.org,2002:int", re.compile("^0o[0-7]+$"), ["0"])
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_decimal)


def read_yaml(path: str | Path) -> dict:
    """Mapping in a YAML file.

    Raises
    ------
    ConfigError
        The file cannot be read, is not YAML, is empty, or contains something else.
    """
    value = parse_yaml(read_text(Path(path)), str(path))
    if value is None:
        raise ConfigError(f"{path} is empty.")
    if not isinstance(value, dict):
        raise ConfigError(f"{path} must hold a mapping with `name` and `sweeps`.")
    return value


def parse_yaml(text: str, source: str) -> object:
    """Value of a YAML text; `source` names it in errors."""
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{source}{where}: {_line(error.problem or error.context)}.") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - (text.rfind("\n", 0, error.position) + 1) + 1
        where = f"line {line}, column {column}"
        raise ConfigError(f"{source}, {where}: {_line(error.reason)}.") from None
    except RecursionError:
        raise ConfigError(f"{source}: {TOO_LARGE}.") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{source}: {_line(error)}.") from None


def yaml_text(value: object) -> str:
    """YAML text that reads back as the same value."""
    return _dumped(value, width=100)


def flow_text(value: object) -> str:
    """YAML text of a value on one line, as it stands within brackets."""
    return _dumped(value, default_flow_style=True, width=float("inf")).strip()


def _dumped(value: object, **settings: object) -> str:
    settings |= {"Dumper": _Dumper, "sort_keys": False}
    text = yaml.dump(value, allow_unicode=True, **settings)
    # PyYAML writes breaks of lines other than "\n" as they are, and reads them as spaces.
    if any(sign in text for sign in "\x85\u2028\u2029"):
        return yaml.dump(value, allow_unicode=False, **settings)
    return text


def read_text(path: Path) -> str:
    """Text of a file of moderate size.

    Raises
    ------
    ConfigError
        It cannot be read, is too large, or is not UTF-8.
    """
    try:
        if path.is_file() and path.stat().st_size > MOST_BYTES:
            raise ConfigError(f"{path} is too large: must have at most {MOST_BYTES:,} bytes.")
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start}).") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}.") from None


def _line(message: object) -> str:
    """Message on one line, without a full stop."""
    return " ".join(str(message).split()).rstrip(".")
