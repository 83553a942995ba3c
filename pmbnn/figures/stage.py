"""The stage of figures: those that are missing or stale, drawn by several processes.

A cell is finished without its figure: `CellDrawer` draws figures of cells beside the fitting, as
these are stored; `draw_cells` those that are still missing; `draw_files` the overviews.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from pmbnn.core.files import whole_file
from pmbnn.core.stages import stage
from pmbnn.figures.overviews import FIGURES, draw_cell, sheets
from pmbnn.figures.style import save_figure
from pmbnn.fitting.helpers import ALONE, HelperPool, Helpers
from pmbnn.results.derived import cells_digest, note_files
from pmbnn.results.loading import find_overviews
from pmbnn.results.present import storing
from pmbnn.results.reading import stored_variables
from pmbnn.results.record import CellRecord
from pmbnn.results.store import Results

NICENESS = 10
"""Niceness of a process that draws beside others that fit: it gets a tenth of a busy core."""


class Drawing(NamedTuple):
    """A figure's file, and the function that draws it, which can be sent to another process.

    `cells` is the digest of the cells that it is made of, empty for a figure in a cell's folder;
    `plugin` names the registered figure that it is, with the version of its code.
    """

    path: Path
    draw: Callable[[], Figure]
    cells: str = ""
    plugin: str | None = None


# Figures that are missing or stale


def missing_cell_figures(results: Results, records: Sequence[CellRecord]) -> list[Drawing]:
    """Figures that cells can have in their folders and lack.

    None is out of date: a cell that is fitted again loses its figure with its folder.
    """
    drawings = []
    for record in records:
        kinds, folder = FIGURES.get(record.predictive), results.cells / record.name
        if kinds is None or not (folder / "trace.nc").is_file():
            continue
        paths = {figure: folder / f"{figure.file}.png" for figure in kinds.of_cell}
        if any(path.is_file() for path in paths.values()):
            continue
        stored = stored_variables(results, record.name)
        for figure, path in paths.items():
            if groups := figure.groups(stored):
                drawings.append(Drawing(path, partial(draw_cell, results, record, figure, groups)))
                break
    return drawings


def overviews_of(results: Results, records: Sequence[CellRecord]) -> list[Drawing]:
    """Overviews of every data set of every sweep.

    Where other settings than prior, hyperprior and data seed vary, there is one set of
    figures for each variant. Cells without results show as empty panels; a data set of which
    no cell has results is left out.
    """
    drawn, digest = [], cells_digest(records)
    for sheet in sheets(records):
        if sheet.finished and (kinds := FIGURES.get(sheet.shown.predictive)):
            figures = kinds.of_sheet(results, sheet, records)
            drawn += [(f"{sheet.file}-{kind}", draw) for kind, draw in figures]
    for predictive, kinds in FIGURES.items():
        cells = [r for r in records if r.predictive == predictive and r.results]
        drawn += kinds.of_folder(results, cells, digest)
    return [Drawing(results.figures / f"{file}.png", draw, digest) for file, draw in drawn]


def outdated_overviews(
    results: Results, records: Sequence[CellRecord], every: Sequence[Drawing] | None = None
) -> list[Drawing]:
    """Overviews that are missing, or were made of other cells.

    `every` are those of `overviews_of`, where they were listed already.
    """
    every = overviews_of(results, records) if every is None else every
    current = set(find_overviews(results, records))
    return [drawing for drawing in every if drawing.path not in current]


# Drawing


def draw_cells(results: Results, records: Sequence[CellRecord]) -> list[Path]:
    """Paths of the figures drawn of cells that lacked theirs."""
    return draw_files(missing_cell_figures(results, records), results, what="figures of cells")


def draw_files(
    drawings: Sequence[Drawing], results: Results, helpers: Helpers = ALONE, what: str = "overviews"
) -> list[Path]:
    """Paths of the files drawn, in the order given; this process and its helpers share the work.

    `what` is the name of the stage.
    """
    with storing(results.figures):
        results.figures.mkdir(parents=True, exist_ok=True)
    if not drawings:
        return []
    writes = [partial(_write, drawing, results) for drawing in drawings]
    with stage(what, len(drawings), "figure") as report_progress:
        paths = helpers.share(writes, report_progress)
    made: dict[tuple[str, str | None], list[str]] = {}
    for drawing in drawings:
        if drawing.cells:
            file = drawing.path.relative_to(results.folder).as_posix()
            made.setdefault((drawing.cells, drawing.plugin), []).append(file)
    for (digest, plugin), files in made.items():
        note_files(results, files, digest, plugin=plugin)
    return paths


class CellDrawer(HelperPool):
    """Draws figures of cells in a process of low priority, beside those that fit.

    A figure that it has not drawn when it is closed, or when its process is ended, is still
    missing, and `draw_cells` draws it. A figure that cannot be drawn is an error there.

    Parameters
    ----------
    results
        The folder in which cells are stored.
    """

    def __init__(self, results: Results) -> None:
        super().__init__(1, NICENESS)
        self.results = results

    def add(self, record: CellRecord) -> None:
        """Have the figure of a stored cell drawn, if it can have one."""
        if drawings := missing_cell_figures(self.results, [record]):
            self.submit([partial(_write, drawing, self.results) for drawing in drawings])


def _write(drawing: Drawing, results: Results) -> Path:
    """Draw and save a figure so that its name never stands for half a file."""
    figure = drawing.draw()
    # In the folder that `Results.prepare` clears of what an interrupted run leaves behind;
    # figures of cells have one name, and so many processes can draw them at once.
    with storing(drawing.path), whole_file(drawing.path, results.folder) as part:
        save_figure(figure, part)
    return drawing.path
