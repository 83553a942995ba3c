"""Overviews of a results folder: which there are for a set of cells, and what draws each."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure
from xarray import DataTree

from pmbnn.figures.cell_figures import (
    CURVES,
    MAP,
    OF_CLASS_PROBABILITIES,
    OF_DENSITIES,
    SURFACE,
    CellFigure,
    draw_cell,
)
from pmbnn.figures.grids import plot_accuracy_overview, plot_design, plot_grid
from pmbnn.figures.ladder import plot_ladder
from pmbnn.figures.maps import MapPair, plot_map_overview, plot_posterior_maps
from pmbnn.figures.regression import MOST, plot_compared_curves
from pmbnn.figures.weights import comparable_rows, plot_last_layer, plot_scales, shown_rows
from pmbnn.results.derived import is_current
from pmbnn.results.groups import (
    LADDER,
    Variant,
    best_group,
    families,
    group_by_settings,
    pairs,
    variants,
)
from pmbnn.results.names import combination_title, dataset_label, dataset_title
from pmbnn.results.reading import (
    SCALE,
    WEIGHT,
    PlaneMap,
    last_layer,
    learned_scales,
    load_arrays,
    load_groups,
    plane_map,
    stored_variables,
)
from pmbnn.results.record import CellRecord
from pmbnn.results.store import Results
from pmbnn.results.tables import SCORE_WORDS, Combinations, combine

LONGEST_VARIANT = 60
"""Letters of a file name that say which variant it is of; longer ones become a number."""

Drawings = Iterator[tuple[str, Callable[[], Figure]]]


class Sheet(NamedTuple):
    """Cells that belong into one set of figures.

    They share everything but prior, hyperprior and data seed. ``file`` starts the names of
    the figures, ``title`` their titles.
    """

    file: str
    title: str
    records: list[CellRecord]

    @property
    def finished(self) -> list[CellRecord]:
        """Those of its cells that have results."""
        return [record for record in self.records if record.results]

    @property
    def shown(self) -> CellRecord:
        """The cell that stands for all: the best by held-out score, else the first finished."""
        return (best_group(self.records) or self.finished)[0]


def sheets(records: Sequence[CellRecord]) -> list[Sheet]:
    """All records in the sets that are drawn together, in order of first appearance."""
    return [sheet for family in families(records) for sheet in _name_sheets(family)]


def _name_sheets(family: list[Variant]) -> list[Sheet]:
    """Sheets of one sweep and data set, told apart by the settings in which they differ."""
    suffixes = [as_file_name("-".join(variant.words)) for variant in family]
    if len(set(suffixes)) < len(suffixes) or max(map(len, suffixes)) > LONGEST_VARIANT:
        suffixes = [f"variant-{number}" for number in range(1, len(family) + 1)]
    found = []
    for variant, suffix in zip(family, suffixes, strict=True):
        cell = variant.records[0].cell
        start = f"{cell.sweep}-{as_file_name(dataset_label(cell.dataset))}"
        file = f"{start}-{suffix}" if suffix else start
        found.append(Sheet(file, variant.title, list(variant.records)))
    return found


def as_file_name(words: str) -> str:
    """Part of a file name that says these words."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", words).strip("-.")


def sheet_of(path: Path, files: Iterable[str]) -> str:
    """Start of a figure's file name that is a sheet's; the longest, or empty where none is."""
    fitting = [file for file in files if path.stem.startswith(f"{file}-")]
    return max(fitting, key=len, default="")


# What is predicted: the kinds of figures of each type


class FigureKinds(NamedTuple):
    """Figures that cells of one type of prediction can have.

    Attributes
    ----------
    of_cell
        What lies in the folder of each cell: the first of these that it can be drawn as.
    of_sheet
        Kinds of figures of one sheet among all records, with what draws each.
    of_folder
        Figures that go beyond a sheet, by the whole start of their names; of cells, and the digest
        of all cells of the folder.
    """

    of_cell: tuple[CellFigure, ...]
    of_sheet: Callable[[Results, Sheet, Sequence[CellRecord]], Drawings]
    of_folder: Callable[[Results, Sequence[CellRecord], str], Drawings]


def _of_classes(results: Results, sheet: Sheet, records: Sequence[CellRecord]) -> Drawings:
    """Figures of class probabilities."""
    combinations = combine(sheet.records)
    if any(MAP.groups(stored_variables(results, record.name)) for record in sheet.finished):
        load = partial(load_map, results)
        yield "maps", partial(plot_map_overview, combinations, load, sheet.title)
    yield "accuracy", partial(plot_accuracy_overview, combinations, sheet.title)
    stored = stored_variables(results, sheet.shown.name)
    if "x" not in stored.get("test_predictions", ()):
        yield "grid", partial(plot_grid, combinations, sheet.title)
    yield from _beside_posterior(results, sheet, records)
    yield from _of_priors(results, sheet.title, combinations)
    yield from _of_shown_cell(results, sheet, OF_CLASS_PROBABILITIES)


def _of_numbers(results: Results, sheet: Sheet, records: Sequence[CellRecord]) -> Drawings:
    """Figures of densities of numbers."""
    return _of_shown_cell(results, sheet, OF_DENSITIES)


def _ladder(results: Results, records: Sequence[CellRecord], digest: str) -> Drawings:
    """What better guides cost, where some posterior was fitted in several ways."""
    file = results.folder / LADDER
    if is_current(results, LADDER, digest):
        title = "Repair ladder: large marks are means over posteriors, small ones single posteriors"
        yield "repair-ladder", partial(_draw_ladder, file, title)


def _draw_ladder(file: Path, title: str) -> Figure:
    return plot_ladder(pd.read_csv(file), title)


def _of_shown_cell(results: Results, sheet: Sheet, figures: Sequence[CellFigure]) -> Drawings:
    """Those of the figures that the trace of the sheet's best cell can be drawn as."""
    stored = stored_variables(results, sheet.shown.name)
    for figure in figures:
        groups = figure.groups(stored)
        if groups:
            draw = partial(draw_cell, results, sheet.shown, figure, groups, _which(sheet))
            yield figure.file, draw


def _which(sheet: Sheet) -> str:
    """Which cell of a sheet is shown, to stand after its title; empty if there is no other."""
    if len(sheet.records) == 1:
        return ""
    words = (
        "best cell by held-out score" if best_group(sheet.records) else "first cell with results"
    )
    if len({record.cell.data_seed for record in sheet.finished}) > 1:
        words += f", data seed {sheet.shown.cell.data_seed}"
    return f" ({words})"


# Maps, priors


def load_map(results: Results, name: str) -> PlaneMap | None:
    """Map of the cell of that name; None if it has none."""
    trace = load_arrays(results, name, {"predictions": "probability|sd"})
    return plane_map(trace) if "predictions" in trace.children else None


def _beside_posterior(results: Results, sheet: Sheet, records: Sequence[CellRecord]) -> Drawings:
    """Maps of the sheet's fits beside those of sampled cells, the first data seed of each."""
    of_sheet = {record.name for record in sheet.finished}
    found = {
        combination_title(fitted.cell, fitted.chosen_scale): (fitted, sampled)
        for fitted, sampled in reversed(list(pairs(records)))
        if fitted.name in of_sheet
    }
    chosen = list(reversed(found.items()))
    if chosen and MAP.groups(stored_variables(results, chosen[0][1][0].name)):
        engine = chosen[0][1][1].cell.inference.engine.upper()
        title = f"{sheet.title}: fitted, beside the posterior sampled by {engine}"
        yield "posterior", partial(_draw_beside, results, chosen, title)


def _draw_beside(
    results: Results, chosen: Sequence[tuple[str, tuple[CellRecord, CellRecord]]], title: str
) -> Figure:
    maps = [MapPair(name, *(load_map(results, r.name) for r in both)) for name, both in chosen]
    seeds = {fitted.cell.data_seed for _, (fitted, _) in chosen}
    which = f", data seed {min(seeds)}" if len(seeds) == 1 else ", first data seed of each"
    return plot_posterior_maps(maps, f"{title}{which}")


def _of_priors(results: Results, title: str, combinations: Combinations) -> Drawings:
    """Figures that set priors and hyperpriors beside each other."""
    if min(combinations.shape) > 1:
        yield "design", partial(plot_design, combinations, title)
    if comparable_rows(combinations):
        load = partial(_load_posterior, results, learned_scales)
        yield "scales", partial(plot_scales, combinations, load, title)
    if shown_rows(combinations):
        load = partial(_load_posterior, results, last_layer)
        yield "last-layer", partial(plot_last_layer, combinations, load, title)


def _load_posterior[T](results: Results, read: Callable[[DataTree], T], name: str) -> T:
    draws = f"{WEIGHT.pattern}|{SCALE.pattern}"
    wanted = {"posterior": draws, "restarts": draws, "fit": ""}
    return read(load_arrays(results, name, wanted))


# Curves beneath each other


def _compared_curves(results: Results, records: Sequence[CellRecord], _: str) -> Drawings:
    """Curves of all cells of each data set that has several.

    Of cells that differ in their data seed only, the first is shown.
    """
    having = [r for r in records if CURVES.groups(stored_variables(results, r.name))]
    shown: dict[str, list[tuple[CellRecord, str]]] = {}
    for variant in variants(having):
        for first, *_ in group_by_settings(variant.records):
            named = first, _row_name(first, variant.words)
            shown.setdefault(dataset_label(first.cell.dataset), []).append(named)
    for label, cells in shown.items():
        if len(cells) > 1:
            draw = partial(_draw_compared_curves, results, cells[:MOST])
            yield f"{as_file_name(label)}-curves", draw


def _row_name(record: CellRecord, words: Sequence[str]) -> str:
    score = "rmse" if "rmse" in record.results else "nll"
    numbers = f"{SCORE_WORDS[score]} {record.results[score]:.3g}"
    combination = combination_title(record.cell, record.chosen_scale)
    return f"{record.sweep}: {'; '.join([*words, combination, numbers])}"


def _draw_compared_curves(results: Results, cells: Sequence[tuple[CellRecord, str]]) -> Figure:
    traces = []
    for record, _ in cells:
        groups = CURVES.groups(stored_variables(results, record.name))
        traces.append(load_groups(results, record.name, groups))
    data = dataset_title(cells[0][0].cell.dataset)
    title = f"{data}: one row a cell, the first data seed of each"
    return plot_compared_curves(traces, [name for _, name in cells], title)


FIGURES = {
    "class_probabilities": FigureKinds((MAP,), _of_classes, _ladder),
    "density": FigureKinds((CURVES, SURFACE), _of_numbers, _compared_curves),
}
"""By `CellRecord.predictive`, the type of what a cell's likelihood predicts."""


def sheet_figures(
    results: Results, sheet: Sheet, records: Sequence[CellRecord]
) -> dict[str, Callable[[], Figure]]:
    """What draws each kind of figure of a sheet, that in the folder of its shown cell included."""
    kinds = FIGURES.get(sheet.shown.predictive)
    if kinds is None:
        return {}
    of_cell = _of_shown_cell(results, sheet, kinds.of_cell)
    return dict(of_cell) | dict(kinds.of_sheet(results, sheet, records))
