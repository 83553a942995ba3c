"""Tables that are sorted by their headings and filtered by words and choices."""

from collections.abc import Sequence
from typing import NamedTuple

from pmbnn.report.markup import Markup, element, join


class Column(NamedTuple):
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

    ``order`` is the number it is sorted by if it has one; ``text`` is what it is chosen by, for
    content that is markup.
    """

    content: object
    order: float | None = None
    text: str | None = None

    @property
    def choice(self) -> str:
        """Words by which its row is chosen."""
        return str(self.content) if self.text is None else self.text


def data_table(
    name: str, title: str, noun: str, columns: Sequence[Column], rows: Sequence[Sequence[Entry]]
) -> Markup:
    """A table with what filters it above.

    Parameters
    ----------
    name
        Starts the names of its parts.
    title
        Names it for those who do not see it.
    noun
        What a row is, in the plural.
    columns
        The first is the heading of its row.
    rows
        Entries in the order of the columns.
    """
    head = element("tr", *(_heading(column) for column in columns))
    body = join(element("tr", *map(_cell, columns, row, range(len(row)))) for row in rows)
    table = element(
        "table",
        element("caption", title, class_="unseen"),
        element("thead", head),
        element("tbody", body),
    )
    scroll = element("div", table, class_="scroll", tabindex="0", role="region", aria_label=title)
    return element("div", _filters(name, noun, columns, rows), scroll, class_="data-table", id=name)


def _filters(name: str, noun: str, columns: Sequence[Column], rows) -> Markup:
    words = element("input", type="search", id=f"{name}-words", placeholder="any words of a row")
    choices = [
        _choice(name, at, column, [row[at].choice for row in rows])
        for at, column in enumerate(columns)
        if column.choose
    ]
    count = element("output", f"{len(rows)} {noun}", data_noun=noun, aria_live="polite")
    search = element("label", element("span", "filter"), words)
    return element("div", search, *choices, count, class_="filters", role="search")


def _choice(name: str, at: int, column: Column, words: Sequence[str]) -> Markup:
    """A list of what stands in a column; nothing where all rows say the same."""
    found = list(dict.fromkeys(word for word in words if word))
    if len(found) < 2:
        return Markup("")
    options = [
        element("option", value, value=value, selected=value == column.start) for value in found
    ]
    every = element("option", "all", value="")
    box = element("select", every, *options, data_column=at, id=f"{name}-{at}")
    return element("label", element("span", column.title), box)


def _heading(column: Column) -> Markup:
    button = element("button", column.title, type="button", title=column.note or None)
    kind = "number" if column.number else None
    return element("th", button, scope="col", aria_sort="none", class_=kind)


def _cell(column: Column, entry: Entry, at: int) -> Markup:
    kind = "number" if column.number else None
    order = None if entry.order is None else repr(float(entry.order))
    if at == 0:
        return element("th", entry.content, scope="row", data_order=order)
    text = entry.text if column.choose else None
    return element("td", entry.content, class_=kind, data_order=order, data_text=text)
