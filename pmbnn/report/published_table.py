"""Published numbers beside ours, and the meaning of their marks."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pmbnn.core.numbers import number_text
from pmbnn.experiment.published import Published, PublishedTable, are_meant
from pmbnn.report.images import Overview, RepeatedFigure, repeated_figures
from pmbnn.report.tables import CellView, DataTable, Entry, Heading
from pmbnn.results.loading import is_named
from pmbnn.results.names import best_group, settings_row
from pmbnn.results.tables import WHERE_CORRECTED, by_data_seed, mean_and_error, overlap_of

# Published numbers beside ours: which cells hold ours, and by how much they differ


SCALES: Mapping[str, float] = {"%": 100.0, "points": 100.0, "min": 1 / 60}
"""Factors from the units of metrics.json, shares and seconds, by the unit of a published number."""


class Comparison(NamedTuple):
    """A published number and ours.

    Attributes
    ----------
    published
        The number.
    ours
        Mean over ``cells``, in the unit of the published number; None if there is none.
    error
        Its standard error over seeds, corrected where these split the same rows; not a number where
        there is one seed or no spread.
    difference
        Ours less published, or less the nearer end of a range; None where either is no number.
    cells
        Cells that hold ours.
    """

    published: Published
    ours: float | str | None
    error: float
    difference: float | None
    cells: tuple[CellView, ...]


def compare_published(
    published: Sequence[Published], cells: Sequence[CellView]
) -> list[Comparison]:
    """Every published number beside ours, in their order."""
    by_name = {number.id: number for number in published if number.id}
    return [_comparison(number, by_name, cells) for number in published]


def _comparison(
    number: Published, by_name: Mapping[str, Published], cells: Sequence[CellView]
) -> Comparison:
    ours, error, cells_of_ours = _our_value(number, cells)
    if number.over is not None and isinstance(ours, float):
        below = _our_value(by_name[number.over], cells)[0]
        is_number = isinstance(below, float) and below != 0
        ours, error = (ours / below if is_number else None), math.nan
    difference = _relative_difference(ours, number.value)
    return Comparison(number, ours, error, difference, cells_of_ours)


def _our_value(
    number: Published, cells: Sequence[CellView]
) -> tuple[float | str | None, float, tuple[CellView, ...]]:
    """Our value of a number: mean, standard error, and the cells that hold it."""
    if number.path is None:
        return None, math.nan, ()
    chosen = [cell for cell in cells if _matches(cell, number)]
    if number.choose == "best":
        best = {record.name for record in best_group([cell.record for cell in chosen])}
        chosen = [cell for cell in chosen if cell.record.name in best]
    every = [(cell, value_at(cell.content, number.path)) for cell in chosen]
    values = [(cell, value) for cell, value in every if value is not None]
    if not values:
        return None, math.nan, ()
    with_value = tuple(cell for cell, _ in values)
    if not all(isinstance(value, int | float) for _, value in values):
        return ", ".join(dict.fromkeys(str(v) for _, v in values)), math.nan, with_value
    ours = by_data_seed((cell.record, _in_unit(value, number)) for cell, value in values)
    mean, error = mean_and_error(ours, overlap_of(cell.record for cell in with_value))
    # A spread of rounding errors is none.
    return mean, error if error > 1e-12 * abs(mean) else math.nan, with_value


def _matches(cell: CellView, number: Published) -> bool:
    """Whether a cell is of the experiment and has the settings that a number names."""
    if number.experiment is not None and not is_named(cell.experiment, number.experiment):
        return False
    row = settings_row(cell.record.settings) | {"sweep": cell.record.sweep}
    return are_meant(number.where, row)


def value_at(record: Any, path: str) -> Any:
    """Value at a path of names and list indices; None if there is no such path."""
    for part in path.split("/"):
        try:
            record = record[int(part)] if isinstance(record, list | tuple) else record[part]
        except (KeyError, IndexError, ValueError, TypeError):
            return None
    return record


def _in_unit(value: float, number: Published) -> float:
    value = 1 - value if number.error else value
    return value**number.power * number.factor * SCALES.get(number.unit, 1.0)


def _relative_difference(ours: float | str | None, value: Any) -> float | None:
    """Ours less a value, or less the nearer end of a range."""
    if not isinstance(ours, float) or isinstance(value, str):
        return None
    low, high = value if isinstance(value, tuple) else (value, value)
    return ours - min(max(ours, low), high)


MARKS = {
    "stated": ("stated", "stated in the publication"),
    "elsewhere": ("from elsewhere", "published by others"),
    "bound": ("bound", "a mathematical bound"),
    "ours": ("ours", "our reading, choice or definition"),
}
"""Name and meaning of each mark."""

NO_BREAK = "\N{NO-BREAK SPACE}"

SHARES = ("accuracy",)
"""Units that are not written beside a number, which is a share."""

COMPARED, TESTED = "found", "checked by a test"
ABSENT, NO_NUMBER = "not among these results", "no stored number"

STATUS_PHRASES = {
    COMPARED: "beside ours from the results on this page",
    TESTED: "checked by a test of the suite",
    ABSENT: "whose results are not on this page",
    NO_NUMBER: "that no results hold as a number",
}
"""Whether our number is there, as the page says it."""

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
        Names of the experiments that it is compared with.
    statuses
        Number of comparisons of each status, as text.
    marks, studies
        Meanings of marks, each with its number, and of the names of studies.
    claims
        Published claims, by the comparison that tests each.
    figures
        Published figures, and where ours are.
    table
        Every number.
    """

    title: str
    statuses: list[str]
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
    """A table beside the cells of the experiments that name it; ``number`` is its own."""
    comparisons = compare_published(published.numbers, cells)
    statuses = Counter(map(_status, comparisons))
    marks = Counter(c.published.mark for c in comparisons)
    name = "published" if number == 0 else f"published-{number}"
    rows = [_row(comparison) for comparison in comparisons]
    return PublishedView(
        title=", ".join(dict.fromkeys(cell.experiment for cell in cells)),
        statuses=[f"{statuses[s]} {text}" for s, text in STATUS_PHRASES.items() if statuses[s]],
        marks=[(mark_entry(m), meaning, marks[m]) for m, (_, meaning) in MARKS.items() if marks[m]],
        studies=published.studies,
        claims=published.claims,
        figures=repeated_figures(published, overviews),
        table=DataTable(name, "Published numbers beside ours", "numbers", HEADINGS, rows),
    )


def mark_entry(mark: str) -> Entry:
    """Mark of a number as a badge."""
    return Entry(MARKS[mark][0], badge=f"mark-{mark}")


def _status(comparison: Comparison) -> str:
    """Whether ours is there, and if not, why."""
    if comparison.ours is not None:
        return COMPARED
    if comparison.published.held_by is not None:
        return TESTED
    return ABSENT if comparison.published.path else NO_NUMBER


def _row(comparison: Comparison) -> list[Entry]:
    number = comparison.published
    return [
        Entry(number.quantity, note=number.note),
        Entry(number.study),
        Entry(number.kind),
        Entry(_value(number), _number(number.value)),
        mark_entry(number.mark),
        _our_entry(comparison),
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
    return " to ".join(number_text(end, digits=7) for end in ends) + _unit(number.unit)


def _unit(unit: str) -> str:
    return f" {unit}" if unit and unit not in SHARES else ""


def _number(value: object) -> float | None:
    value = value[0] if isinstance(value, tuple) else value
    return None if isinstance(value, str) else float(value)


def _our_entry(comparison: Comparison) -> Entry:
    ours = comparison.ours
    if ours is None:
        return Entry(_status(comparison), quiet=True)
    if isinstance(ours, str):
        entry = Entry(ours)
    else:
        text = number_text(ours, comparison.error).replace(" ± ", f"{NO_BREAK}±{NO_BREAK}")
        entry = Entry(text + _unit(comparison.published.unit), ours)
    if len(comparison.cells) == 1:
        cell = comparison.cells[0]
        return entry._replace(opens=cell.key, label=f"{entry.text}, open cell: {cell.title}")
    return entry


def _difference(comparison: Comparison) -> str:
    difference = comparison.difference
    if difference is None or comparison.published.path is None:
        return ""
    return number_text(difference, digits=3, signed=True)


def _origin(comparison: Comparison) -> Entry:
    """Experiment file of ours, with the number of cells, or the test that holds the number."""
    number, cells = comparison.published, comparison.cells
    if comparison.ours is None and number.held_by:
        return Entry(number.held_by, code=True)
    note = f"{len(cells)} cells" if len(cells) > 1 else ""
    if not number.experiment:
        return Entry(note)
    return Entry(f"{number.experiment}.yaml", code=True, note=note)
