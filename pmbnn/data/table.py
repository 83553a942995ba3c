"""Tables of one's own: CSV, Parquet and Excel files."""

from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pmbnn.data.base import Standardise
from pmbnn.data.local_files import Stamp, find, stamp_of
from pmbnn.data.own import SplitRows
from pmbnn.spec import added

if TYPE_CHECKING:
    from pmbnn.data.raw import RawRows


class Table(SplitRows):
    """Rows of a table: CSV, also packed (``.gz``, ``.bz2``, ``.xz``, ``.zip``), Parquet or Excel.

    ``target`` names the column that is to be predicted, ``features`` those that it is predicted
    from: all others unless given, less those under ``without``. Text is one-hot encoded, a column
    ``colour=red`` for each category, and so are numbers in columns named under ``categorical``;
    truth values are 0 and 1. ``target: [[height, weight]]``, several columns of numbers, has all of
    them predicted by one network.

    Targets of text and truth values are classes, numbers are numbers. Whole numbers may be either,
    and ``target_is`` says which: ``classes`` or ``numbers``; where they have ten values or fewer
    it must. Numbers are standardised on the training rows, unless ``standardise_target`` is
    false.

    ``missing`` says what is done where a value is missing: ``refuse``, take the ``mean`` of the
    training rows, or ``drop`` the row; ``redundant`` the same of columns that are constant or
    repeat another: ``refuse``, ``drop`` or ``keep``.

    How a text file is written is detected, unless ``separator`` (other than a comma), ``decimal``,
    ``thousands`` and ``encoding`` say it. In a column of numbers, words such as ``NA`` and ``?``
    are missing values (`pmbnn.data.text_columns.MISSING_WORDS`); in a column of text, only empty
    entries are.
    """

    kind: Literal["table"] = "table"
    file: str
    target: str | tuple[str, ...]
    features: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    target_is: Literal["classes", "numbers"] | None = None
    missing: Literal["refuse", "mean", "drop"] = "refuse"
    redundant: Literal["refuse", "drop", "keep"] = "refuse"
    separator: str = ","
    decimal: Literal[".", ","] | None = added(None)
    thousands: Literal[",", ".", " ", "'"] | None = added(None)
    encoding: str | None = added(None)
    standardise: Standardise = "feature"
    standardise_target: bool = True

    # How a file is read decides its rows, which cells are known by.
    locations: ClassVar[dict[str, Any]] = {
        "file": True,
        "decimal": True,
        "thousands": True,
        "encoding": True,
        "split": {"file": True},
    }

    @property
    def format(self) -> tuple[str, str | None, str | None, str | None]:
        """How the file is to be read, as `pmbnn.data.table_file.Format`."""
        return self.separator, self.decimal, self.thousands, self.encoding

    def raw(self) -> "RawRows":  # noqa: D102
        path = find(self.file, self._folders, "file")
        columns = (self.target, self.features, self.without, self.categorical, self.split.group)
        return _raw(
            stamp_of(path), self.file, self.format, columns,
            self.target_is, self.missing, self.redundant,
        )  # fmt: skip


@lru_cache(maxsize=8)
def _raw(
    stamp: Stamp, title: str, given: tuple, columns: tuple, target_is, missing, redundant
) -> "RawRows":
    from pmbnn.data.frames import Columns, raw_of_frame
    from pmbnn.data.table_file import Format, read_table

    frame = read_table(stamp, title, Format(*given)).frame
    return raw_of_frame(frame, Columns(*columns), target_is, missing, redundant, title)
