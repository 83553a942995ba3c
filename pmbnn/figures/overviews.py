"""Overviews of a results folder: which there are for a set of cells, and what draws each."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure
from xarray import DataTree

from pmbnn.core.errors import must_be_one_of
from pmbnn.figures.classification import (
    plot_class_pairs,
    plot_reliability,
    plot_risk_coverage,
    plot_uncertainty,
)
from pmbnn.figures.grids import plot_accuracy_overview, plot_design, plot_grid, plot_ladder
from pmbnn.figures.image_sheets import (
    plot_confident_mistakes,
    plot_least_confident,
    plot_most_uncertain,
    plot_points,
    plot_samples,
    plot_snapshot_examples,
)
from pmbnn.figures.maps import (
    MapPair,
    plot_map_overview,
    plot_plane,
    plot_posterior_maps,
    plot_surface,
)
from pmbnn.figures.ood import plot_letters, plot_ood, plot_ood_examples
from pmbnn.figures.regression import (
    MOST,
    plot_compared_curves,
    plot_curves,
    plot_pit,
    plot_predicted_observed,
)
from pmbnn.figures.training import plot_training
from pmbnn.figures.uncertainty_parts import plot_uncertainty_parts
from pmbnn.figures.weights import (
    comparable_rows,
    plot_last_layer,
    plot_network,
    plot_scales,
    plot_weights,
    shown_rows,
)
from pmbnn.results.derived import is_current
from pmbnn.results.loading import ExperimentResults, StoredCell, load_results
from pmbnn.results.names import (
    LADDER,
    Variant,
    best_group,
    cell_title,
    combination_title,
    dataset_label,
    dataset_title,
    distinct_names,
    families,
    group_by_settings,
    pairs,
    variants,
)
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
from pmbnn.results.tables import SCORE_NAMES, combine

# Kinds of figures of one cell, with the groups of a trace that each needs to be drawn


class CellFigure(NamedTuple):
    """One kind of figure.

    Attributes
    ----------
    file
        End of the name of its file.
    plot
        Function of a trace, with the groups below, and a title that draws it.
    needs
        Groups, which may be patterns, each with an array it must hold for this to be drawn.
    uses
        Further groups that are read where the trace has them.
    arrays
        Regular expression of the arrays of these groups that are read.
    is_of_data
        Whether it shows the data alone, which no model and no fit changes.
    names_objective
        Whether the function takes the name of what the fit maximised, as ``objective``.
    """

    file: str
    plot: Callable[..., Figure]
    needs: tuple[tuple[str, str], ...]
    uses: tuple[str, ...] = ()
    arrays: str = ".*"
    is_of_data: bool = False
    names_objective: bool = False

    def groups(self, stored: Mapping[str, frozenset[str]]) -> list[str]:
        """Groups to load of a trace that holds these arrays; none if it cannot be drawn."""
        needed = [
            [g for g, arrays in stored.items() if fnmatchcase(g, pattern) and name in arrays]
            for pattern, name in self.needs
        ]
        if not all(needed):
            return []
        used = [group for group in self.uses if group in stored]
        return list(dict.fromkeys(chain(*needed, used)))


def draw_cell(
    results: Results, record: CellRecord, figure: CellFigure, groups: list[str], which: str = ""
) -> Figure:
    """Figure of a stored cell from these groups of its trace; its title ends in `which`."""
    trace = load_arrays(results, record.name, dict.fromkeys(groups, figure.arrays))
    title = dataset_title(record.cell.dataset) if figure.is_of_data else cell_title(record)
    further = {"objective": record.cell.objective} if figure.names_objective else {}
    return figure.plot(trace, f"{title}{which}", **further)


TEST = "test_predictions"
IMAGES = ((TEST, "image"),)
VALIDATION = ("validation_predictions",)
ROWS = (("constant_data", "x"), ("observed_data", "y"))

MAP = CellFigure(
    "map", plot_plane, (("predictions", "x1"),), (TEST,), arrays="probability|sd|x|label"
)
CURVES = CellFigure("curves", plot_curves, (("curve_*", "mean"), *ROWS))

SURFACE = CellFigure(
    "map",
    plot_surface,
    (("predictions", "mean"), (TEST, "target")),
    arrays="mean|epistemic_sd|x|target",
)

OF_DENSITIES = (
    CURVES,
    SURFACE,
    CellFigure(
        "predicted-observed",
        plot_predicted_observed,
        ((TEST, "total_interval"), (TEST, "target")),
        arrays="mean|target|total_interval",
    ),
    CellFigure("pit", plot_pit, ((TEST, "pit"),), arrays="pit"),
    CellFigure(
        "uncertainty-parts",
        plot_uncertainty_parts,
        ((TEST, "total_sd"), (TEST, "epistemic_sd")),
        ("predictions", "curve_1", "curve_2", "curve_3", "constant_data", "observed_data"),
    ),
)
"""In the order in which a page shows them."""

OF_CLASS_PROBABILITIES = (
    # Points of a plane are those that a map was drawn of.
    CellFigure("points", plot_points, (*ROWS, ("predictions", "x1")), is_of_data=True),
    CellFigure("samples", plot_samples, IMAGES),
    CellFigure("training", plot_training, (("fit", "snapshot_accuracy"),), names_objective=True),
    CellFigure("classes", plot_class_pairs, IMAGES),
    CellFigure("gallery", plot_most_uncertain, IMAGES),
    CellFigure("uncertainty", plot_uncertainty, IMAGES, VALIDATION),
    CellFigure("confident-mistakes", plot_confident_mistakes, IMAGES, VALIDATION),
    CellFigure("least-confident", plot_least_confident, IMAGES, VALIDATION),
    CellFigure(
        "reliability",
        plot_reliability,
        ((TEST, "probability"), (TEST, "label")),
        arrays="probability|sd|label",
    ),
    CellFigure("risk-coverage", plot_risk_coverage, IMAGES),
    CellFigure(
        "uncertainty-parts",
        plot_uncertainty_parts,
        ((TEST, "entropy"), (TEST, "mutual_information")),
        ("predictions",),
        arrays="entropy|mutual_information|probability|sd",
    ),
    CellFigure("ood", plot_ood, ((TEST, "sd"), ("ood_*", "sd")), VALIDATION),
    CellFigure(
        "ood-examples", plot_ood_examples, ((TEST, "sd"), ("ood_*", "example_image")), VALIDATION
    ),
    CellFigure("letters", plot_letters, (*IMAGES, ("ood_letters", "example_image")), VALIDATION),
    CellFigure(
        "weights", plot_weights, (("fit", "snapshot_mean_density"),), ("snapshot_examples",)
    ),
    CellFigure(
        "network", plot_network, (("posterior", "weight_1"), ("fit", "elbo")), ("restarts",)
    ),
    CellFigure("examples", plot_snapshot_examples, (("snapshot_examples", "probability"),)),
)
"""In the order in which a page shows them."""


LONGEST_VARIANT = 60
"""Letters of a file name that say which variant it is of; longer ones become a number."""

Drawings = Iterator[tuple[str, Callable[[], Figure]]]
"""Names of figures, with what draws each."""


class Sheet(NamedTuple):
    """Cells that belong into one set of figures.

    They share everything but prior, hyperprior and seeds. ``file`` starts the names of
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
    every = [sheet for family in families(records) for sheet in _name_sheets(family)]
    files = _numbered([sheet.file for sheet in every])
    return [sheet._replace(file=file) for sheet, file in zip(every, files, strict=True)]


def _numbered(files: Sequence[str]) -> list[str]:
    """Names of files, with a number where some are equal.

    Names of data sets may differ in a sign alone, which a name of a file does not have.
    """
    number, seen, names = Counter(files), Counter[str](), []
    for file in files:
        seen[file] += 1
        names.append(f"{file}-{seen[file]}" if number[file] > 1 else file)
    return names


def _name_sheets(family: list[Variant]) -> list[Sheet]:
    """Sheets of one sweep and data set, told apart by the settings in which they differ."""
    suffixes = [as_file_name("-".join(variant.words)) for variant in family]
    if len(set(suffixes)) < len(suffixes) or max(map(len, suffixes)) > LONGEST_VARIANT:
        suffixes = [f"variant-{number}" for number in range(1, len(family) + 1)]
    cell = family[0].records[0].cell
    start = f"{cell.sweep}-{as_file_name(dataset_label(cell.dataset))}"
    return [
        Sheet(f"{start}-{suffix}" if suffix else start, variant.title, list(variant.records))
        for variant, suffix in zip(family, suffixes, strict=True)
    ]


def as_file_name(text: str) -> str:
    """The text as a part of a file name: its letters, digits and points."""
    return re.sub(r"(?:[^\w.]|_)+", "-", text).strip("-.")


def sheet_of(path: Path, files: Iterable[str]) -> str:
    """The longest of the starts of sheets' file names that a figure's has; empty without any."""
    starts = [file for file in files if path.stem.startswith(f"{file}-")]
    return max(starts, key=len, default="")


# Kinds of figures, by what a cell predicts


class FigureKinds(NamedTuple):
    """Figures that cells of one type of prediction can have.

    Attributes
    ----------
    of_cell
        Figures in the folder of each cell: the first of these that it can be drawn as.
    of_sheet
        Kinds of figures of one sheet among all records, with what draws each.
    of_folder
        Figures that go beyond a sheet, by the whole start of their names; of cells, and the digest
        of all cells of the folder.
    """

    of_cell: tuple[CellFigure, ...]
    of_sheet: Callable[[Results, Sheet, Sequence[CellRecord]], Drawings]
    of_folder: Callable[[Results, Sequence[CellRecord], str], Drawings]


def _class_figures(results: Results, sheet: Sheet, records: Sequence[CellRecord]) -> Drawings:
    """Figures of class probabilities."""
    combinations, title = combine(sheet.records), sheet.title
    if any(MAP.groups(stored_variables(results, record.name)) for record in sheet.finished):
        load = partial(load_map, results)
        yield "maps", partial(plot_map_overview, combinations, load, title)
    yield "accuracy", partial(plot_accuracy_overview, combinations, title)
    stored = stored_variables(results, sheet.shown.name)
    if "x" not in stored.get("test_predictions", ()):
        yield "grid", partial(plot_grid, combinations, title)
    yield from _sampled_beside(results, sheet, records)
    if min(combinations.shape) > 1:
        yield "design", partial(plot_design, combinations, title)
    if comparable_rows(combinations):
        load = partial(_load_posterior, results, learned_scales)
        yield "scales", partial(plot_scales, combinations, load, title)
    if shown_rows(combinations):
        load = partial(_load_posterior, results, last_layer)
        yield "last-layer", partial(plot_last_layer, combinations, load, title)
    yield from _shown_cell_figures(results, sheet, OF_CLASS_PROBABILITIES)


def _number_figures(results: Results, sheet: Sheet, records: Sequence[CellRecord]) -> Drawings:
    """Figures of densities of numbers."""
    return _shown_cell_figures(results, sheet, OF_DENSITIES)


def _shown_cell_figures(results: Results, sheet: Sheet, figures: Sequence[CellFigure]) -> Drawings:
    """Those of the figures that the trace of the sheet's best cell can be drawn as."""
    stored = stored_variables(results, sheet.shown.name)
    for figure in figures:
        which = _seed_words(sheet) if figure.is_of_data else _which(sheet)
        if groups := figure.groups(stored):
            yield figure.file, partial(draw_cell, results, sheet.shown, figure, groups, which)


def _which(sheet: Sheet) -> str:
    """Which cell of a sheet is shown, to stand after its title; empty if there is no other."""
    if len(sheet.records) == 1:
        return ""
    is_best = bool(best_group(sheet.records))
    which = "best cell by held-out score" if is_best else "first cell with results"
    differing = _differing(sheet.records)[sheet.shown.name]
    return f"{differing} ({which}{_seed_words(sheet)})"


def _differing(records: Sequence[CellRecord]) -> dict[str, str]:
    """Settings by which cells of one title differ, to stand after it, by the name of a cell."""
    names = distinct_names((record.cell.without_seeds for record in records), combination_title)
    return {
        record.name: names[cell].removeprefix(combination_title(cell))
        for record in records
        for cell in [record.cell.without_seeds]
    }


def _seed_words(sheet: Sheet) -> str:
    """Data seed that is shown of a sheet; empty if there is one alone."""
    seeds = {record.cell.data_seed for record in sheet.finished}
    return f", data seed {sheet.shown.cell.data_seed}" if len(seeds) > 1 else ""


def load_map(results: Results, name: str) -> PlaneMap | None:
    """Map of the cell of that name; None if it has none."""
    trace = load_arrays(results, name, {"predictions": "probability|sd"})
    return plane_map(trace) if "predictions" in trace.children else None


def _sampled_beside(results: Results, sheet: Sheet, records: Sequence[CellRecord]) -> Drawings:
    """Maps of the sheet's fits beside those of sampled cells, the first data seed of each."""
    differing = _differing(sheet.finished)
    first: dict[str, tuple[CellRecord, CellRecord]] = {}
    for fitted, sampled in pairs(records):
        if fitted.name in differing:
            name = combination_title(fitted.cell, fitted.chosen_scale) + differing[fitted.name]
            first.setdefault(name, (fitted, sampled))
    if first:
        fitted, sampled = next(iter(first.values()))
        if MAP.groups(stored_variables(results, fitted.name)):
            seeds = {fitted.cell.data_seed for fitted, _ in first.values()}
            seed = f"data seed {min(seeds)}" if len(seeds) == 1 else "first data seed of each"
            engine = sampled.cell.inference.engine.upper()
            title = f"{sheet.title}: fitted, beside the posterior sampled by {engine}, {seed}"
            yield "posterior", partial(_draw_sampled_beside, results, first, title)


def _draw_sampled_beside(
    results: Results, cells: Mapping[str, tuple[CellRecord, CellRecord]], title: str
) -> Figure:
    maps = [
        MapPair(name, load_map(results, fitted.name), load_map(results, sampled.name))
        for name, (fitted, sampled) in cells.items()
    ]
    return plot_posterior_maps(maps, title)


def _load_posterior[T](results: Results, read: Callable[[DataTree], T], name: str) -> T:
    draws = f"{WEIGHT.pattern}|{SCALE.pattern}"
    return read(load_arrays(results, name, {"posterior": draws, "restarts": draws, "fit": ""}))


# Figures that go beyond a sheet


def _ladder(results: Results, records: Sequence[CellRecord], digest: str) -> Drawings:
    """Distance from the posterior against cost, where some posterior was fitted in several ways."""
    if is_current(results, LADDER, digest):
        yield "repair-ladder", partial(_draw_ladder, results.folder / LADDER)


def _draw_ladder(file: Path) -> Figure:
    title = "Repair ladder: large marks are means over posteriors, small ones single posteriors"
    return plot_ladder(pd.read_csv(file), title)


def _compared_curves(results: Results, records: Sequence[CellRecord], digest: str) -> Drawings:
    """Curves of all cells of each data set that has several.

    Of cells that differ in their data seed only, the first is shown.
    """
    with_curves = [r for r in records if CURVES.groups(stored_variables(results, r.name))]
    shown: dict[str, list[tuple[CellRecord, str]]] = {}
    for variant in variants(with_curves):
        differing = _differing(variant.records)
        for first, *_ in group_by_settings(variant.records):
            row = first, _row_name(first, variant.title_words, differing[first.name])
            shown.setdefault(dataset_label(first.cell.dataset), []).append(row)
    compared = {label: cells for label, cells in shown.items() if len(cells) > 1}
    files = _numbered([f"{as_file_name(label)}-curves" for label in compared])
    for file, cells in zip(files, compared.values(), strict=True):
        yield file, partial(_draw_compared_curves, results, cells)


def _row_name(record: CellRecord, variant: Sequence[str], differing: str) -> str:
    name = "rmse" if "rmse" in record.results else "nll"
    score = f"{SCORE_NAMES[name]} {record.results[name]:.3g}"
    combination = combination_title(record.cell, record.chosen_scale) + differing
    return f"{record.sweep}: {'; '.join([*variant, combination, score])}"


def _draw_compared_curves(results: Results, cells: Sequence[tuple[CellRecord, str]]) -> Figure:
    traces = []
    for record, _ in cells[:MOST]:
        groups = CURVES.groups(stored_variables(results, record.name))
        traces.append(load_groups(results, record.name, groups))
    title = (
        f"{dataset_title(cells[0][0].cell.dataset)}: one row a cell, the first data seed of each"
    )
    if len(cells) > MOST:
        title += f"; the first {MOST} of {len(cells)}"
    return plot_compared_curves(traces, [name for _, name in cells[:MOST]], title)


FIGURES = {
    "class_probabilities": FigureKinds((MAP,), _class_figures, _ladder),
    "density": FigureKinds((CURVES, SURFACE), _number_figures, _compared_curves),
}
"""By `CellRecord.predictive`, the type of what a cell's likelihood predicts."""


def sheet_figures(
    results: Results, sheet: Sheet, records: Sequence[CellRecord]
) -> dict[str, Callable[[], Figure]]:
    """What draws each kind of figure of a sheet, that in the folder of its shown cell included."""
    kinds = FIGURES.get(sheet.shown.predictive)
    if kinds is None:
        return {}
    of_cell = _shown_cell_figures(results, sheet, kinds.of_cell)
    return dict(of_cell) | dict(kinds.of_sheet(results, sheet, records))


# One figure of stored results by its name, drawn anew


def plot(
    results: ExperimentResults | StoredCell | Path | str, kind: str, **settings: object
) -> Figure:
    """A figure of stored cells, drawn anew from their traces; nothing is fitted.

    Parameters
    ----------
    results
        A results folder, opened by `load_results`, or its path; or one of its cells.
    kind
        Of the figure: how the names of files in ``figures/`` end (``maps``, ``accuracy``,
        ``design``, ``last-layer``, ``points``, ...), or ``map``. What shows one cell alone shows
        the best by held-out score of those that are left.
    **settings
        Which cells, as for `ExperimentResults.cell`: ``dataset="moons"``.

    Returns
    -------
    matplotlib.figure.Figure
        A notebook shows it; `savefig` writes it, and in a script `show` opens a window.

    Raises
    ------
    ValueError
        If no cell has these settings, they have no such figure, or several, of other data.
    TypeError
        If `results` is something else.

    Examples
    --------
    >>> pb.plot(results, "maps", dataset="circles")  # doctest: +SKIP
    """
    selected = _opened(results).select(**settings)
    figures = [
        (name, sheet.title, draw)
        for sheet in sheets(selected.records)
        if sheet.finished
        for name, draw in sheet_figures(selected.results, sheet, selected.records).items()
    ]
    asked = [(title, draw) for name, title, draw in figures if name == kind]
    if not asked:
        raise must_be_one_of("kind", {name for name, *_ in figures}, kind)
    if len(asked) > 1:
        titles = "; ".join(title for title, _ in asked)
        raise ValueError(
            f"`{kind}` is a figure of each of {len(asked)}: {titles}. Say which cells, as by "
            "`dataset=...`."
        )
    ((_, draw),) = asked
    return draw()


def _opened(results: object) -> ExperimentResults:
    """Results that are given whole, by their folder, or as one of their cells."""
    if isinstance(results, ExperimentResults):
        return results
    if isinstance(results, StoredCell):
        folder, record = Results(results.folder.parent.parent), results.record
        return ExperimentResults(record.sweep, folder, (record,), {}, ())
    if isinstance(results, str | os.PathLike):
        return load_results(Path(results))
    raise TypeError(
        "`results` must be what `load_results` gives, one of its cells, or a results folder, got "
        f"{type(results).__name__}."
    )
