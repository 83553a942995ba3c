"""Base class, field types and errors of the data sets of an experiment file."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from pmbnn.spec import Specification, renamed_values
from pmbnn.spec.errors import UserError

if TYPE_CHECKING:
    from pmbnn.data.arrays import Dataset, Line

Seed = Annotated[int, Field(ge=0, lt=2**32)]
Standardise = Literal["feature", "global", "none"]
Task = Annotated[
    Literal["classification", "regression"],
    renamed_values(classification="classes", regression="numbers"),
]
Missing = Annotated[Literal["error", "mean", "drop"], renamed_values(error="refuse")]
Redundant = Annotated[Literal["error", "drop", "keep"], renamed_values(error="refuse")]

SIDE = 28
"""Height and width of the digits of MNIST."""

DEFAULT_LIKELIHOODS: dict[Task, str] = {"classification": "categorical", "regression": "normal"}
"""Kind of the default likelihood of each task."""


class DataError(UserError):
    """A data set that is unavailable: a missing, foreign or damaged file, too few rows."""


class DataSettingError(DataError):
    """A setting of a data set that does not fit the rows.

    ``setting`` is its name and ``rule`` the requirement, from which `check_data` makes a message
    with the place in the experiment file.
    """

    def __init__(self, setting: str, rule: str) -> None:
        super().__init__(f"`{setting}` {rule}.")
        self.setting, self.rule = setting, rule

    def __reduce__(self):
        # By its own arguments: it may come from another process.
        return type(self), (self.setting, self.rule)


SHOWN = 10
"""Names that a message lists at most."""


def show_names(names: Sequence) -> str:
    """Names on one line, the first `SHOWN` of many."""
    shown = ", ".join(f"`{name_of(name)}`" for name in list(names)[:SHOWN])
    more = len(names) - SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def check_choice(setting: str, name: str, choices: Sequence[str], title: str) -> None:
    """Raise DataSettingError if a setting is a name that a file does not have."""
    if name not in choices:
        rule = f"must be one of {show_names(choices)} of {title}, got {name!r}"
        raise DataSettingError(setting, rule)


def check_unique(setting: str, names: Sequence[str], noun: str) -> None:
    """Raise DataSettingError if a setting has a name twice."""
    for name in names:
        if names.count(name) > 1:
            raise DataSettingError(setting, f"must name each {noun} once, got {name!r} twice")


def name_of(value: Any) -> str:
    """Name of a class: a number without a needless fraction, a truth value as YAML writes it."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:g}" if abs(value) < 1e6 else str(int(value))
    return str(value)


class DatasetSpec(Specification):
    """A data set of an experiment file."""

    kind: str
    seed: Seed = 0

    image_shape: ClassVar[tuple[int, int] | None] = None
    """Height and width where a row is an image."""

    channels: ClassVar[int] = 1
    """Channels of an image: 1 of grey, 3 of red, green and blue."""

    has_bright_foreground: ClassVar[bool] = False
    """Whether images are bright on black, as digits are: figures have them dark on white paper."""

    is_user_data: ClassVar[bool] = False
    """Whether the rows are the user's, so that they must be read to plan."""

    locations: ClassVar[dict[str, Any]] = {}
    """Fields that only locate the rows and names, as pydantic's ``exclude``: no result depends on
    them."""

    n_classes: ClassVar[int | None] = None
    """Number of classes; None where the targets are numbers."""

    n_targets: ClassVar[int] = 1
    """Number of targets a row."""

    @property
    def task_of_rows(self) -> Task:
        """``classification`` where targets are class labels, else ``regression``."""
        return "regression" if self.n_classes is None else "classification"

    @property
    def declared_task(self) -> Task | None:
        """The task, if the settings decide it; None where the rows must be read."""
        return None if self.is_user_data else self.task_of_rows

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one row: ``(channel, row, column)`` of an image, or ``(feature,)``."""
        shape = self.image_shape
        return (self.channels, *shape) if shape else (self.n_features,)

    @property
    def is_planar(self) -> bool:
        """Whether the inputs are points of a plane, so that maps can be drawn."""
        return False

    def lines(self) -> "tuple[Line, ...]":
        """Lines through the inputs along which predicted numbers are drawn."""
        return ()

    @property
    def line_points(self) -> int:
        """Number of points of all `lines`, which a plan counts without NumPy."""
        return 0

    def check(self) -> None:
        """Raise DataError over faults that show without loading all rows."""

    def load(self) -> "Dataset":
        """Load or generate the rows, split and standardise them."""
        raise NotImplementedError
