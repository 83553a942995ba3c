"""Figures and claims of a results folder, made again where they are missing or out of date."""

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from pmbnn.claims.command import TABLE
from pmbnn.claims.rows import claim_rows
from pmbnn.figures import write_figures
from pmbnn.figures.plane import has_map, plot_plane
from pmbnn.figures.reading import load_groups, stored_variables
from pmbnn.figures.style import save_figure
from pmbnn.figures.titles import cell_title
from pmbnn.figures.write import sheets
from pmbnn.figures.write_curves import draw_cell_curves, has_curves
from pmbnn.processes import cores
from pmbnn.report.folders import Folder, find_overviews
from pmbnn.report.overviews import sheet_of
from pmbnn.report.writing import check_writable
from pmbnn.storage import TEMPORARY, Results, ResultsError
from pmbnn.tables import Record


class Part(NamedTuple):
    """Something that is made of a folder's cells: its name, whether it is due, what makes it."""

    words: str
    is_due: Callable[[Folder], bool]
    make: Callable[[Folder], None]


def rebuild(folder: Folder, say: Callable[[str], None]) -> Folder:
    """The folder with all figures and claims that its cells give.

    What is there and no older than the newest cell is left alone. What cannot be made or
    written stays as it is, and a line says so.

    Parameters
    ----------
    folder
        As it was read; its cells are not changed.
    say
        Called with a line on each part that is made, or cannot be.
    """
    for part in PARTS:
        try:
            if part.is_due(folder):
                check_writable(folder.results.folder)
                say(f"{folder.name}: making {part.words} from {len(folder.records)} stored cells")
                part.make(folder)
        except ResultsError as error:
            say(f"{error} Its figures and claims are shown as they are.")
            break
        except (OSError, LookupError, ValueError) as error:
            reason = " ".join(str(error).split())
            say(f"{folder.name}: {part.words} stay as they are, {type(error).__name__}: {reason}")
    return replace(folder, figures=find_overviews(folder.results))


def _newest_cell(folder: Folder) -> float:
    """When the newest cell was written.

    Not when metrics.csv was: a sweep draws its figures before it writes that table.
    """
    cells = folder.results.cells
    return max((cells / r["name"] / "metrics.json").stat().st_mtime for r in folder.records)


def _lacks_overviews(folder: Folder) -> bool:
    """Whether some sheet with results has no figure as new as the cells."""
    wanted = [s.file for s in sheets(folder.records) if any(r["results"] for r in s.records)]
    drawn = dict.fromkeys(wanted, 0.0)
    for path in folder.figures:
        sheet = sheet_of(path, wanted)
        if sheet:
            drawn[sheet] = max(drawn[sheet], path.stat().st_mtime)
    return any(time < _newest_cell(folder) for time in drawn.values())


def _draw_overviews(folder: Folder) -> None:
    """Draw all overviews and let them appear together: a run that is stopped leaves none."""
    results = folder.results
    with tempfile.TemporaryDirectory(
        prefix=TEMPORARY, dir=results.folder, ignore_cleanup_errors=True
    ) as part:
        drawn = Results(results.folder)
        drawn.figures = Path(part)
        paths = write_figures(drawn, folder.records, cores())
        results.figures.mkdir(exist_ok=True)
        for path in paths:
            os.replace(path, results.figures / path.name)


def _missing_cell_figures(folder: Folder) -> Iterator[tuple[Path, Callable[[], Figure]]]:
    """Files of the figures that cells have of their own and lack, with what draws each."""
    results = folder.results
    for record in folder.records:
        cell = results.cells / record["name"]
        if not (cell / "trace.nc").is_file() or any(cell.glob("*.png")):
            continue
        stored = stored_variables(results, record["name"])
        if has_curves(stored):
            yield cell / "curves.png", partial(draw_cell_curves, results, record, "")
        elif has_map(stored):
            yield cell / "map.png", partial(_draw_map, results, record)


def _draw_map(results: Results, record: Record) -> Figure:
    trace = load_groups(results, record["name"], ["predictions", "test_predictions"])
    return plot_plane(trace, cell_title(record))


def _draw_cells(folder: Folder) -> None:
    for path, draw in _missing_cell_figures(folder):
        part = folder.results.folder / f"{TEMPORARY}{path.name}"
        save_figure(draw(), part)
        os.replace(part, path)


def _lacks_claims(folder: Folder) -> bool:
    path = folder.results.folder / TABLE
    return not path.is_file() or path.stat().st_mtime < _newest_cell(folder)


def _write_claims(folder: Folder) -> None:
    """Write the table of the claims; there is none where no cell says anything on them."""
    rows = claim_rows(folder.name, folder.results, folder.records)
    if rows:
        folder.results.write_table(TABLE, rows)
    else:
        folder.results.remove_table(TABLE)


PARTS = (
    Part("overview figures", _lacks_overviews, _draw_overviews),
    Part(
        "missing figures of single cells",
        lambda folder: any(True for _ in _missing_cell_figures(folder)),
        _draw_cells,
    ),
    Part("claims", _lacks_claims, _write_claims),
)
