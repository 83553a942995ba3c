"""Figures and comparisons of a results folder, made again where they are missing or out of date."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from pmbnn.compare.claims import FILE as CLAIMS
from pmbnn.compare.claims import claims_table, write_claims
from pmbnn.compare.contrasts import FILE as VERDICTS
from pmbnn.compare.verdicts import have_reference, make_verdicts, write_verdicts
from pmbnn.experiment.machine import cores
from pmbnn.figures import draw_cells, draw_files, missing_cell_figures, outdated_overviews
from pmbnn.figures.priors import outdated_priors
from pmbnn.report.writing import check_writable
from pmbnn.results.loading import ExperimentResults, find_overviews
from pmbnn.results.store import ResultsError


class Part(NamedTuple):
    """Something that is made of a folder's cells: its name, whether it is due, what makes it."""

    words: str
    is_due: Callable[[ExperimentResults], bool]
    make: Callable[[ExperimentResults], None]


def rebuild(folder: ExperimentResults, say: Callable[[str], None]) -> ExperimentResults:
    """The folder with all figures and comparisons that its cells give.

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
            say(f"{error} Its figures and comparisons are shown as they are.")
            break
        except (OSError, LookupError, ValueError) as error:
            reason = " ".join(str(error).split())
            say(f"{folder.name}: {part.words} stay as they are, {type(error).__name__}: {reason}")
    return replace(folder, figures=find_overviews(folder.results))


def _newest_cell(folder: ExperimentResults) -> float:
    """When the newest cell was written."""
    cells = folder.results.cells
    return max((cells / r.name / "metrics.json").stat().st_mtime for r in folder.records)


def _lacks_claims(folder: ExperimentResults) -> bool:
    path = folder.results.folder / CLAIMS
    return not path.is_file() or path.stat().st_mtime < _newest_cell(folder)


def _write_claims(folder: ExperimentResults) -> None:
    """Write the table of comparisons; there is none where no cell allows any."""
    table = claims_table(folder.name, folder.results, folder.records, cores())
    write_claims(folder.results.folder / CLAIMS, table)


def _lacks_verdicts(folder: ExperimentResults) -> bool:
    path = folder.results.folder / VERDICTS
    missing = not path.is_file() or path.stat().st_mtime < _newest_cell(folder)
    return missing and have_reference(folder)


def _write_verdicts(folder: ExperimentResults) -> None:
    write_verdicts(folder.results, make_verdicts(folder))


PARTS = (
    Part(
        "overview figures",
        lambda folder: bool(outdated_overviews(folder.results, folder.records)),
        lambda folder: draw_files(
            outdated_overviews(folder.results, folder.records), folder.results, cores()
        ),
    ),
    Part(
        "missing figures of single cells",
        lambda folder: bool(missing_cell_figures(folder.results, folder.records)),
        lambda folder: draw_cells(folder.results, folder.records, cores()),
    ),
    Part(
        "figures of priors",
        lambda folder: bool(outdated_priors(folder.results, folder.records)),
        lambda folder: draw_files(
            outdated_priors(folder.results, folder.records), folder.results, cores()
        ),
    ),
    Part("comparisons", _lacks_claims, _write_claims),
    Part("verdicts", _lacks_verdicts, _write_verdicts),
)
