"""Numbers of the published write-ups, and where ours is found: ``published.yaml``, checked."""

from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from pmbnn.specification import Specification
from pmbnn.yaml_file import parse_yaml

FILE = "published.yaml"

Mark = Literal["stated", "elsewhere", "bound", "ours"]

MARKS: Mapping[Mark, str] = {
    "stated": "stated in the write-up",
    "elsewhere": "published by others",
    "bound": "a mathematical bound",
    "ours": "our reading, choice or definition",
}

SCALES: Mapping[str, float] = {"%": 100.0, "points": 100.0, "min": 1 / 60}
"""What numbers of metrics.json, in shares and seconds, are multiplied by for a unit."""

Value = float | int | str | tuple[float, float]
Setting = float | int | bool | str


class Shared(Specification):
    """What a group says of its numbers, and a number may say otherwise."""

    source: str | None = None
    mark: Mark | None = None
    kind: Literal["result", "setting"] | None = None
    experiment: str | None = None
    held_by: str | None = None
    where: dict[str, Setting] = {}


class Number(Shared):
    """One entry of a group as the file has it; `Published` says what is what."""

    id: str = Field(pattern=r"^[a-z0-9.-]+$")
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
    """Numbers of one system that share source, mark and place of ours."""

    system: Literal["S1", "S2", "S3", "S4"]
    source: str
    mark: Mark = "stated"
    kind: Literal["result", "setting"] = "result"
    numbers: tuple[Number, ...]


class Published(Specification):
    """One published number.

    Attributes
    ----------
    id
        Its name.
    system
        System of which it is: S1 to S4.
    quantity, value, unit
        What was found there. A pair is a range; a text is what was said in words.
    mark, source
        Whose number it is.
    kind
        A ``result`` of a fit, or a ``setting``.
    experiment
        File under ``experiments/`` that makes ours.
    where
        Settings, under dotted names, of the cells of ours.
    path
        Place of ours in metrics.json: names, and places in lists, with strokes between.
    power, factor
        What is found is raised to one and multiplied by the other.
    error
        Ours is 1 less what is found.
    choose
        Mean over all cells found, or over those of the combination with the best held-out score.
    over
        Name of another number, of which ours is a multiple.
    held_by
        Test that holds this number where no results do.
    note
        In what ours differs, or why there is none.
    """

    id: str
    system: str
    quantity: str
    value: Value
    unit: str
    mark: Mark
    source: str
    kind: str
    experiment: str | None
    where: dict[str, Setting]
    path: str | None
    power: float
    factor: float
    error: bool
    choose: str
    over: str | None
    held_by: str | None
    note: str

    @model_validator(mode="after")
    def _has_ours(self):
        if self.path and not self.experiment:
            raise ValueError(f"has a path and no experiment: {self.id}")
        if not (self.path or self.held_by or self.note):
            raise ValueError(f"says nothing of ours: {self.id}")
        return self


class File(Specification):
    """All groups of the file."""

    groups: tuple[Group, ...]


def load_published() -> tuple[Published, ...]:
    """Every published number, in the order of the file.

    Raises
    ------
    ValueError
        If the file is not as it must be.
    """
    text = files("pmbnn.report").joinpath(FILE).read_text(encoding="utf-8")
    return read_published(parse_yaml(text, FILE))


def read_published(content: Any) -> tuple[Published, ...]:
    """Numbers of a file's content: a list of groups.

    Raises
    ------
    ValueError
        If it is not as it must be, or two numbers have one name.
    """
    try:
        # As JSON would be read, for a tuple of the model is a list of the file.
        groups = File.model_validate({"groups": content}, strict=False).groups
        numbers = tuple(_resolved(group, number) for group in groups for number in group.numbers)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{FILE}, {where}: {first['msg']}, got {first['input']!r}.") from None
    ids = [number.id for number in numbers]
    twice = sorted({name for name in ids if ids.count(name) > 1})
    unknown = sorted({n.over for n in numbers if n.over and n.over not in ids})
    if twice or unknown:
        problem = f"twice: {', '.join(twice)}" if twice else f"unknown: {', '.join(unknown)}"
        raise ValueError(f"{FILE} names a number that is {problem}.")
    return numbers


def _resolved(group: Group, number: Number) -> Published:
    """A number with what its group says."""
    shared = group.model_dump(exclude={"numbers"})
    own = number.model_dump()
    said = {key: value for key, value in own.items() if value is not None}
    return Published(**(own | shared | said | {"where": group.where | number.where}))
