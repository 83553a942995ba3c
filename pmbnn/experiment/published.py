"""Published numbers to set beside stored results: the table that an experiment file names.

``published: FILE`` in an experiment file names it, relative to that file. The report shows each
number beside the mean of ours; docs/experiment_files.md has an example.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from pmbnn.core.errors import REQUIREMENTS, ConfigError, must, must_be_one_of
from pmbnn.experiment.yaml_file import parse_yaml, read_text

FILE = "published.yaml"
"""Name of the table's copy in a results folder."""


def _number_text_or_range(value: object) -> object:
    if isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_number, value)):
        return tuple(map(float, value))
    if isinstance(value, str) or _is_number(value):
        return value
    raise ValueError("must be a number, a pair of numbers, or text")


def _setting(value: object) -> object:
    if isinstance(value, str | bool) or _is_number(value):
        return value
    raise ValueError("must be a number, text, or true or false")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _relative(pattern: str) -> str:
    if not pattern or "/" in pattern:
        raise ValueError("must be the name of a figure without its folder")
    return pattern


Value = Annotated[Any, BeforeValidator(_number_text_or_range)]
Setting = Annotated[Any, BeforeValidator(_setting)]


class _Part(BaseModel):
    model_config = ConfigDict(
        # Only a sweep and the report read such a table: a plan builds no validators.
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        defer_build=True,
    )


class Shared(_Part):
    """Fields that a group of numbers gives, and that a number may give otherwise."""

    study: str | None = None
    source: str | None = None
    mark: Literal["stated", "elsewhere", "bound", "ours"] | None = None
    kind: Literal["result", "setting"] | None = None
    experiment: str | None = None
    held_by: str | None = None
    where: dict[str, Setting] = {}


class Published(Shared):
    """One published number.

    Attributes
    ----------
    id
        Name by which another number may refer to it; empty if none does.
    study
        Short name of the study that published it.
    quantity, value, unit
        The number and what it measures. A pair is a range; a text is a finding in words.
    mark, source
        Whose number it is.
    kind
        A ``result`` of a fit, or a ``setting``.
    experiment
        Name of the experiment that makes ours; None for any that names this table.
    where
        Settings, under dotted names, of the cells of ours.
    path
        Place of ours in metrics.json: names, and places in lists, with strokes between.
    power, factor
        Ours is raised to one and multiplied by the other.
    error
        Ours is 1 less the number at `path`.
    choose
        Mean over all cells, or over those of the combination with the best held-out score.
    over
        Name of another number, of which ours is a multiple.
    held_by
        Test that holds this number where no results do.
    note
        In what ours differs, or why there is none.
    """

    id: str = Field(default="", pattern=r"^[a-z0-9._-]*$")
    quantity: str
    value: Value
    unit: str = ""
    path: str | None = None
    power: float = 1.0
    factor: float = 1.0
    error: bool = False
    choose: Literal["mean", "best"] = "mean"
    over: str | None = None
    note: str = ""


class Group(Shared):
    """Numbers of one study that share source, mark and place of ours."""

    study: str
    source: str
    mark: Literal["stated", "elsewhere", "bound", "ours"] = "stated"
    kind: Literal["result", "setting"] = "result"
    numbers: tuple[Published, ...]


class PublishedFigure(_Part):
    """A published figure: the experiments that draw ours, and patterns of its files' names.

    ``command`` is what draws it; without one, that of the table, for the first experiment.
    """

    name: str
    shows: str
    experiments: tuple[str, ...] = Field(min_length=1)
    files: tuple[Annotated[str, AfterValidator(_relative)], ...] = Field(min_length=1)
    command: str = ""


class PublishedCurve(_Part):
    """Published moments of a function along a line through the inputs.

    Attributes
    ----------
    study, source
        What they are of, and whose they are.
    file
        A CSV file beneath the local folder of data, of which no copy is kept; where it is not
        there, nothing is shown.
    position
        Its column of positions on the line; others are ``mean`` and ``variance``, of the function
        without noise.
    where
        Settings, under dotted names, of the cells of the same posterior.
    """

    study: str
    source: str
    file: str
    position: str = "x"
    where: dict[str, Setting]


class PublishedSplits(_Part):
    """Published results of a method split by split, which `pmbnn baselines` pairs ours with.

    Attributes
    ----------
    method, source
        What the method is called, and whose results they are.
    file
        A CSV file, looked up like files of data: columns ``set``, ``split`` and metrics.
    """

    method: str
    source: str = ""
    file: str


class PublishedTable(_Part):
    """Content of a file of published numbers.

    Attributes
    ----------
    studies
        What the short names of studies stand for.
    claims
        What was claimed, by the comparison in ``claims.csv`` that tests it.
    figures
        Published figures and where ours are.
    curves
        Published curves, which figures and tables of ours show beside our own.
    splits
        Published results of each split, which ours are paired with.
    command
        What draws a figure, ``{experiment}`` standing for the name of its experiment.
    groups
        The numbers.
    """

    studies: dict[str, str] = {}
    claims: dict[str, str] = {}
    figures: tuple[PublishedFigure, ...] = ()
    curves: tuple[PublishedCurve, ...] = ()
    splits: tuple[PublishedSplits, ...] = ()
    command: str = "pmbnn sweep {experiment}.yaml"
    groups: tuple[Group, ...] = ()

    @model_validator(mode="after")
    def _names(self):
        ids = [number.id for group in self.groups for number in group.numbers if number.id]
        for i, group in enumerate(self.groups):
            for j, number in enumerate(group.numbers):
                place = f"groups[{i}].numbers[{j}]"
                if number.id and ids.count(number.id) > 1:
                    raise ValueError(f"`{place}.id` must not repeat another, got '{number.id}'")
                if number.over is not None and number.over not in ids:
                    rule = "must be the id of another number"
                    raise ValueError(f"`{place}.over` {rule}, got '{number.over}'")
                if not (number.path or number.held_by or group.held_by or number.note):
                    raise ValueError(
                        f"`{place}` must have a path of ours, or a note or test (held_by) that "
                        "says why there is none"
                    )
        return self

    @property
    def numbers(self) -> tuple[Published, ...]:
        """Every number with the fields that its group gives, in the order of the file."""
        return tuple(_resolved(group, number) for group in self.groups for number in group.numbers)


def read_published(text: str, name: str) -> PublishedTable:
    """Table of published numbers in the text of a file.

    Parameters
    ----------
    text
        YAML.
    name
        Name of the file, for messages.

    Raises
    ------
    ConfigError
        If it is not as it must be; the message names the file and the place in it.
    """
    try:
        return PublishedTable.model_validate(parse_yaml(text, name))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ConfigError(f"{name}: {_message(first)}") from None


def are_meant(where: Mapping[str, object], row: Mapping[str, object]) -> bool:
    """Whether a row of settings under dotted names has those of a selector."""
    return all(key in row and row[key] == value for key, value in where.items())


def published_text(path: object, folder: Path) -> str | None:
    """Text of the file that an experiment file in a folder names; None where it names none.

    Raises
    ------
    ConfigError
        If it cannot be read.
    """
    if path is None:
        return None
    if not isinstance(path, str) or not path:
        raise must("published", "must be the name of a file", path)
    try:
        return read_text(folder / path)
    except ConfigError as error:
        raise ConfigError(f"`published`: {error}") from None


def _message(error: dict[str, Any]) -> str:
    """Pydantic's error in the wording of experiment files."""
    place, kind, context = _place(error["loc"]), error["type"], error.get("ctx", {})
    if kind == "value_error":
        own = str(context["error"])
        return f"{own}." if own.startswith("`") else str(must(place, own, error["input"]))
    if kind == "missing":
        return f"`{place}` is missing."
    if kind == "extra_forbidden":
        return f"`{place}` is no key of a table of published numbers."
    if kind == "literal_error":
        choices = re.findall(r"'(\w+)'", context["expected"])
        return str(must_be_one_of(place, choices, error["input"]))
    required = {"model_type": "must be a mapping", "dict_type": "must be a mapping"}
    requirement = (REQUIREMENTS | required).get(kind)
    if requirement is None:
        return f"`{place}` is not valid: {error['msg']}."
    return str(must(place, requirement.format(**context), error["input"]))


def _place(loc: tuple[str | int, ...]) -> str:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return place.removeprefix(".") or "the table"


def _resolved(group: Group, number: Published) -> Published:
    """A number with the fields that its group gives."""
    missing = [name for name in Shared.model_fields if getattr(number, name) is None]
    shared = {name: getattr(group, name) for name in missing}
    return number.model_copy(update=shared | {"where": group.where | number.where})
