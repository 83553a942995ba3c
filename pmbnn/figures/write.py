"""Every overview of a results folder, drawn from its records and traces."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure
from xarray import DataTree

from pmbnn.classification import HELD_OUT
from pmbnn.figures.cell_figures import CELL_FIGURES, CellFigure
from pmbnn.figures.combinations import Combinations, combine, data_seed
from pmbnn.figures.compared_noise import NOISE, plot_compared_noise
from pmbnn.figures.design import plot_design
from pmbnn.figures.drawing import Drawing, draw_files
from pmbnn.figures.grid import plot_grid
from pmbnn.figures.last_layer import plot_last_layer, shown_rows
from pmbnn.figures.overview_accuracy import plot_accuracy_overview
from pmbnn.figures.overview_maps import plot_map_overview
from pmbnn.figures.plane import PlaneMap, has_map, plane_map
from pmbnn.figures.reading import load_arrays, load_groups, stored_variables
from pmbnn.figures.scales import comparable_rows, plot_scales
from pmbnn.figures.titles import cell_title, data_title
from pmbnn.figures.write_curves import compared_curves, draw_cell_curves, has_curves
from pmbnn.posterior_weights import SCALE, WEIGHT, last_layer, learned_scales
from pmbnn.storage import Results
from pmbnn.tables import Record, best_group, data_label
from pmbnn.variants import Variant, families

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
    records: list[Record]


def write_figures(results: Results, records: Sequence[Record], processes: int = 1) -> list[Path]:
    """Paths of the overviews drawn for every data set of every sweep.

    Where other settings than prior, hyperprior and data seed vary, there is one set of
    figures for each variant. Cells without results show as empty panels; a data set of which
    no cell has results is left out. Up to that many processes draw, this one among them.
    """
    drawings = []
    for sheet in sheets(records):
        if any(record["results"] for record in sheet.records):
            found = _drawings(results, sheet, records)
            drawings += [Drawing(f"{sheet.file}-{kind}.png", draw) for kind, draw in found]
    curves = compared_curves(results, records)
    drawings += [Drawing(f"{_as_file_name(label)}-curves.png", draw) for label, draw in curves]
    return draw_files(results, drawings, processes)


def sheets(records: Sequence[Record]) -> list[Sheet]:
    """All records in the sets that are drawn together, in order of first appearance."""
    return [sheet for family in families(records) for sheet in _name_sheets(family)]


def _name_sheets(family: list[Variant]) -> list[Sheet]:
    """Sheets of one sweep and data set, told apart by the settings in which they differ."""
    suffixes = [_as_file_name("-".join(variant.words)) for variant in family]
    if len(set(suffixes)) < len(suffixes) or max(map(len, suffixes)) > LONGEST_VARIANT:
        suffixes = [f"variant-{number}" for number in range(1, len(family) + 1)]
    found = []
    for variant, suffix in zip(family, suffixes, strict=True):
        first = variant.records[0]
        start = f"{first['sweep']}-{_as_file_name(data_label(first))}"
        file = f"{start}-{suffix}" if suffix else start
        title = "; ".join([data_title(first), *variant.words])
        found.append(Sheet(file, title, list(variant.records)))
    return found


def _as_file_name(words: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", words).strip("-.")


def _drawings(results: Results, sheet: Sheet, records: Sequence[Record]) -> Drawings:
    """Kinds of figures for a sheet, one of all `records`, with what draws each."""
    combinations = combine(sheet.records)
    finished = [record for record in sheet.records if record["results"]]
    if any(has_map(stored_variables(results, record["name"])) for record in finished):
        load = partial(_load_map, results)
        yield "maps", partial(plot_map_overview, combinations, load, sheet.title)
    best = best_group(sheet.records)
    shown = (best or finished)[0]
    which = _which(sheet, bool(best), data_seed(shown) if combinations.seeds > 1 else None)
    stored = stored_variables(results, shown["name"])
    if has_curves(stored):
        yield "curves", partial(draw_cell_curves, results, shown, which)
        return
    yield "accuracy", partial(plot_accuracy_overview, combinations, sheet.title)
    if "x" not in stored.get("test_predictions", ()):
        yield "grid", partial(plot_grid, combinations, sheet.title)
    yield from _prior_drawings(results, sheet.title, combinations)
    for figure in CELL_FIGURES:
        groups = figure.groups(stored)
        if groups:
            yield figure.file, partial(_draw_cell, results, shown, figure, groups, which)
    other = _deterministic(results, shown, records)
    if other is not None:
        yield "noise", partial(_draw_noise, results, shown, other)


def _which(sheet: Sheet, is_best: bool, seed: int | None) -> str:
    """Which cell of a sheet is shown, to stand after its title; empty if there is no other."""
    if len(sheet.records) == 1:
        return ""
    words = "best cell by held-out score" if is_best else "first cell with results"
    return f" ({words})" if seed is None else f" ({words}, data seed {seed})"


def _prior_drawings(results: Results, title: str, combinations: Combinations) -> Drawings:
    """Figures that set priors and hyperpriors beside each other."""
    if min(combinations.shape) > 1:
        yield "design", partial(plot_design, combinations, title)
    if comparable_rows(combinations):
        load = partial(_load_posterior, results, learned_scales)
        yield "scales", partial(plot_scales, combinations, load, title)
    if shown_rows(combinations):
        load = partial(_load_posterior, results, last_layer)
        yield "last-layer", partial(plot_last_layer, combinations, load, title)


def _deterministic(results: Results, shown: Record, records: Sequence[Record]) -> Record | None:
    """The first point fit to the same data that was shown noise, as the given fit was."""

    def knows_noise(record: Record) -> bool:
        return "example_image" in stored_variables(results, record["name"]).get(NOISE, ())

    if _is_point(shown) or not knows_noise(shown):
        return None
    data = shown["settings"]["dataset"]
    alike = (r for r in records if r["results"] and r["settings"]["dataset"] == data)
    return next((r for r in alike if _is_point(r) and knows_noise(r)), None)


def _is_point(record: Record) -> bool:
    return record["settings"].get("inference", {}).get("guide") in ("map", "maximum_likelihood")


def _draw_noise(results: Results, shown: Record, other: Record) -> Figure:
    traces = [load_groups(results, record["name"], [NOISE, *HELD_OUT]) for record in (shown, other)]
    return plot_compared_noise(*traces, f"{cell_title(shown)}, beside {cell_title(other)}")


def _load_map(results: Results, name: str) -> PlaneMap | None:
    trace = load_arrays(results, name, {"predictions": "probability|sd"})
    return plane_map(trace) if "predictions" in trace.children else None


def _load_posterior[T](results: Results, read: Callable[[DataTree], T], name: str) -> T:
    wanted = {"posterior": f"{WEIGHT.pattern}|{SCALE.pattern}", "fit": ""}
    return read(load_arrays(results, name, wanted))


def _draw_cell(
    results: Results, record: Record, figure: CellFigure, groups: list[str], which: str
) -> Figure:
    trace = load_groups(results, record["name"], groups)
    return figure.plot(trace, f"{cell_title(record)}{which}")
