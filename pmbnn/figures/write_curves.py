"""Which curves of regressions are drawn, from which traces, and under which titles."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from matplotlib.figure import Figure

from pmbnn.figures.compared_curves import MOST, plot_compared_curves
from pmbnn.figures.curves import plot_curves
from pmbnn.figures.reading import load_groups, stored_variables
from pmbnn.figures.titles import cell_title, combination_title, data_title
from pmbnn.storage import Results
from pmbnn.tables import Record, data_label, group_by_settings
from pmbnn.variants import families

ROWS = ("constant_data", "observed_data")


def has_curves(stored: Mapping[str, frozenset[str]]) -> bool:
    """Whether a trace with these arrays by group is that of a regression."""
    return "curve_1" in stored


def draw_cell_curves(results: Results, record: Record, which: str) -> Figure:
    """Curves of one stored cell."""
    return plot_curves(_load(results, record), f"{cell_title(record)}{which}")


def compared_curves(
    results: Results, records: Sequence[Record]
) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """Label of each data set with several regressions, and what draws them beneath each other.

    Of cells that differ in their data seed only, the first is shown.
    """
    shown: dict[str, list[tuple[Record, str]]] = {}
    for family in families([r for r in records if _is_regression(results, r)]):
        for variant in family:
            for group in group_by_settings(variant.records):
                named = group[0], _row_name(group[0], variant.words)
                shown.setdefault(data_label(group[0]), []).append(named)
    for label, cells in shown.items():
        if len(cells) > 1:
            yield label, partial(_draw_compared, results, cells[:MOST])


def _is_regression(results: Results, record: Record) -> bool:
    # What is scored tells most of them apart without a look at their traces.
    scored = record["results"] or {}
    return "rmse" in scored and has_curves(stored_variables(results, record["name"]))


def _row_name(record: Record, words: Sequence[str]) -> str:
    numbers = f"RMSE {record['results']['rmse']:.3g}"
    return f"{record['sweep']}: {'; '.join([*words, combination_title(record), numbers])}"


def _draw_compared(results: Results, cells: Sequence[tuple[Record, str]]) -> Figure:
    traces = [_load(results, record) for record, _ in cells]
    title = f"{data_title(cells[0][0])}: one row a cell, the first data seed of each"
    return plot_compared_curves(traces, [name for _, name in cells], title)


def _load(results: Results, record: Record):
    held = stored_variables(results, record["name"])
    curves = [name for name in held if name.startswith("curve_")]
    return load_groups(results, record["name"], [*curves, *ROWS])
