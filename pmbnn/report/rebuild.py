"""Figures and comparisons of a results folder that are missing or stale, made again."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from pmbnn.compare.claims import FILE as CLAIMS
from pmbnn.compare.claims import claims_table, write_claims
from pmbnn.compare.contrasts import FILE as VERDICTS
from pmbnn.compare.contrasts import have_chains, make_verdicts, write_verdicts
from pmbnn.figures import Drawing, draw_files, missing_cell_figures, outdated_overviews
from pmbnn.fitting.helpers import ALONE, Helpers
from pmbnn.prior_predictive.figure import outdated_priors
from pmbnn.report.rendering import check_writable
from pmbnn.results.loading import ExperimentResults, find_overviews
from pmbnn.results.present import ResultsError, StorageError


class Part(NamedTuple):
    """Figures or a table made of a folder's cells: the name, and how it is made.

    ``due`` returns what is missing or stale, or whether something is; ``make`` makes that.
    """

    name: str
    due: Callable[[ExperimentResults], Any]
    make: Callable[[ExperimentResults, Any, Helpers], object]


def rebuild(
    folder: ExperimentResults, say: Callable[[str], None], helpers: Helpers = ALONE
) -> ExperimentResults:
    """The folder with all figures and comparisons that its cells give.

    Files that were made of these cells are left alone. Those that cannot be made or written are
    left out, and a line says so.

    Parameters
    ----------
    folder
        The results as read; cells are not changed.
    say
        Called with a line on each part that is made, or cannot be.
    helpers
        Processes that share the work.
    """
    for part in PARTS:
        try:
            if due := part.due(folder):
                check_writable(folder.results.folder)
                say(f"{folder.name}: making {part.name} from {len(folder.records)} stored cells")
                part.make(folder, due, helpers)
        except (ResultsError, StorageError) as error:
            say(f"{error} Figures and comparisons that are missing or stale are left out.")
            break
        except (OSError, LookupError, ValueError) as error:
            reason = " ".join(str(error).split())
            say(f"{folder.name}: {part.name} left out, {type(error).__name__}: {reason}")
    return replace(folder, figures=find_overviews(folder.results, folder.records))


def _write_claims(folder: ExperimentResults, _: bool, helpers: Helpers) -> None:
    """Write the table of comparisons; there is none where no cell allows any."""
    table = claims_table(folder.name, folder.results, folder.records, helpers)
    write_claims(folder.results.folder / CLAIMS, table)
    folder.note_made([CLAIMS])


def _write_verdicts(folder: ExperimentResults, *_: object) -> None:
    folder.note_made(write_verdicts(folder.results, make_verdicts(folder)))


def _draw(
    folder: ExperimentResults, due: Sequence[Drawing], helpers: Helpers, what: str = "overviews"
) -> None:
    draw_files(due, folder.results, helpers, what)


PARTS = (
    Part("overview figures", lambda f: outdated_overviews(f.results, f.records), _draw),
    Part(
        "missing figures of single cells",
        lambda f: missing_cell_figures(f.results, f.records),
        partial(_draw, what="figures of cells"),
    ),
    Part("figures of priors", lambda f: outdated_priors(f.results, f.records), _draw),
    Part("comparisons", lambda f: f.is_stale(CLAIMS), _write_claims),
    Part("verdicts", lambda f: f.is_stale(VERDICTS) and have_chains(f), _write_verdicts),
)
