"""Tables that are sorted by their headings and filtered by words and choices."""

from collections.abc import Sequence
from typing import NamedTuple


class Heading(NamedTuple):
    """Heading of a column; whether it holds numbers, and whether rows are chosen by it.

    ``start`` is the choice that is made at first, ``note`` says more of the heading.
    """

    title: str
    number: bool = False
    choose: bool = False
    start: str = ""
    note: str = ""


class Entry(NamedTuple):
    """What stands in a row under a heading.

    Attributes
    ----------
    words
        What is read; rows are chosen by it.
    order
        Number it is sorted by, if it has one.
    badge
        Class of its colour, where it is a badge.
    opens, label
        Key of the cell that it opens, and what it is called by those who do not see it.
    note, hint
        What stands below it, and what is shown when it is pointed at.
    code, quiet
        Whether it is set as code, or stands back.
    """

    words: str
    order: float | None = None
    badge: str = ""
    opens: str = ""
    label: str = ""
    note: str = ""
    hint: str = ""
    code: bool = False
    quiet: bool = False


class Choice(NamedTuple):
    """A list of what stands in a column, by its place, to choose rows by."""

    at: int
    heading: Heading
    words: tuple[str, ...]


class DataTable(NamedTuple):
    """A table with what filters it above.

    Attributes
    ----------
    name
        Starts the names of its parts.
    title
        Names it for those who do not see it.
    noun
        What a row is, in the plural.
    headings
        The first is the heading of its row.
    rows
        Entries in the order of the headings.
    """

    name: str
    title: str
    noun: str
    headings: Sequence[Heading]
    rows: Sequence[Sequence[Entry]]

    @property
    def choices(self) -> list[Choice]:
        """Columns by which rows are chosen; none where all rows say the same."""
        found = []
        for at, heading in enumerate(self.headings):
            if heading.choose:
                words = tuple(dict.fromkeys(row[at].words for row in self.rows if row[at].words))
                if len(words) > 1:
                    found.append(Choice(at, heading, words))
        return found


class PlainTable(NamedTuple):
    """A table to be read: headings, and rows of words."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
