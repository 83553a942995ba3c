"""Published numbers beside ours, and what their marks mean."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pmbnn.experiment.published import Published, PublishedTable
from pmbnn.report.beside import Comparison, beside
from pmbnn.report.cells import CellView
from pmbnn.report.data_table import DataTable, Entry, Heading
from pmbnn.report.numbers import WHERE_CORRECTED, plain, signed
from pmbnn.report.overview_figures import Overview, RepeatedFigure, repeated_figures

MARKS = {
    "stated": ("stated", "stated in the publication"),
    "elsewhere": ("from elsewhere", "published by others"),
    "bound": ("bound", "a mathematical bound"),
    "ours": ("ours", "our reading, choice or definition"),
}
"""Name and meaning of each mark."""

NO_BREAK = "\N{NO-BREAK SPACE}"

SHARES = ("accuracy",)
"""Units that are left out beside a number: it is a share."""

FOUND, HELD = "found", "holds (test)"
ABSENT, NO_NUMBER = "not among these results", "no stored number"

STANDINGS = {
    FOUND: "beside ours from the results on this page",
    HELD: "held by a test of the suite",
    ABSENT: "whose results are not on this page",
    NO_NUMBER: "that no results hold as a number",
}
"""Whether ours is there, in words."""

HEADINGS = (
    Heading("quantity"),
    Heading("study", choose=True),
    Heading("kind", choose=True, start="result"),
    Heading("published", number=True),
    Heading("mark", choose=True),
    Heading("ours", number=True, note=f"mean ± {WHERE_CORRECTED}"),
    Heading("difference", number=True, note="ours less published; 0 inside a range"),
    Heading("source", choose=True),
    Heading("ours from", note="experiment file and cells, or the test that holds the number"),
)


class PublishedView(NamedTuple):
    """A table of published numbers as it is shown.

    Attributes
    ----------
    title
        The results that it stands beside.
    standings
        How many numbers have ours beside them, and why the others have not.
    marks, studies
        What marks and names of studies mean; each mark with its class and number.
    claims
        What was claimed, by the comparison that tests it.
    figures
        Published figures, and where ours are.
    table
        Every number.
    """

    title: str
    standings: list[str]
    marks: list[tuple[Entry, str, int]]
    studies: Mapping[str, str]
    claims: Mapping[str, str]
    figures: list[RepeatedFigure]
    table: DataTable


def published_view(
    number: int,
    published: PublishedTable,
    cells: Sequence[CellView],
    overviews: Mapping[str, Sequence[Overview]],
) -> PublishedView:
    """A table beside the cells of the experiments that name it; ``number`` tells it from others."""
    comparisons = beside(published.numbers, cells)
    standings = Counter(map(_standing, comparisons))
    marks = Counter(c.published.mark for c in comparisons)
    name = "published" if number == 0 else f"published-{number}"
    rows = [_row(comparison) for comparison in comparisons]
    return PublishedView(
        title=", ".join(dict.fromkeys(cell.experiment for cell in cells)),
        standings=[f"{standings[s]} {words}" for s, words in STANDINGS.items() if standings[s]],
        marks=[
            (mark_entry(mark), meaning, marks[mark])
            for mark, (_, meaning) in MARKS.items()
            if marks[mark]
        ],
        studies=published.studies,
        claims=published.claims,
        figures=repeated_figures(published, overviews),
        table=DataTable(name, "Published numbers beside ours", "numbers", HEADINGS, rows),
    )


def mark_entry(mark: str) -> Entry:
    """Mark of a number with a colour of its own."""
    return Entry(MARKS[mark][0], badge=f"mark-{mark}")


def _standing(comparison: Comparison) -> str:
    """Whether ours is there, and if not, why."""
    if comparison.ours is not None:
        return FOUND
    if comparison.published.held_by is not None:
        return HELD
    return ABSENT if comparison.published.path else NO_NUMBER


def _row(comparison: Comparison) -> list[Entry]:
    number = comparison.published
    return [
        Entry(number.quantity, note=number.note),
        Entry(number.study),
        Entry(number.kind),
        Entry(_value(number), _number(number.value)),
        mark_entry(number.mark),
        _ours(comparison),
        Entry(_difference(comparison), comparison.difference),
        Entry(number.source),
        _origin(comparison),
    ]


def _value(number: Published) -> str:
    """A published value as it was printed, with its unit."""
    value = number.value
    if isinstance(value, str):
        return value
    ends = value if isinstance(value, tuple) else (value,)
    return " to ".join(plain(end, 7) for end in ends) + _unit(number.unit)


def _unit(unit: str) -> str:
    if not unit or unit in SHARES:
        return ""
    return f" {unit}"


def _number(value: object) -> float | None:
    value = value[0] if isinstance(value, tuple) else value
    return None if isinstance(value, str) else float(value)


def _ours(comparison: Comparison) -> Entry:
    ours = comparison.ours
    if ours is None:
        return Entry(_standing(comparison), quiet=True)
    words = plain(ours, 4) if isinstance(ours, float) else ours
    error = plain(comparison.error, 2)
    words = f"{words}{NO_BREAK}±{NO_BREAK}{error}" if error else words
    words += _unit(comparison.published.unit) if isinstance(ours, float) else ""
    entry = Entry(words, ours if isinstance(ours, float) else None)
    if len(comparison.cells) == 1:
        cell = comparison.cells[0]
        return entry._replace(opens=cell.key, label=f"{words}, open cell: {cell.title}")
    return entry


def _difference(comparison: Comparison) -> str:
    difference = comparison.difference
    if difference is None or comparison.published.path is None:
        return ""
    return signed(0.0 if abs(difference) < 1e-12 else difference)


def _origin(comparison: Comparison) -> Entry:
    """Where ours is from, or what makes it."""
    number, cells = comparison.published, comparison.cells
    if comparison.ours is None and number.held_by:
        return Entry(number.held_by, code=True)
    note = f"{len(cells)} cells" if len(cells) > 1 else ""
    if not number.experiment:
        return Entry(note)
    return Entry(f"{number.experiment}.yaml", code=True, note=note)
