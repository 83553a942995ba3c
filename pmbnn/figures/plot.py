"""One figure of stored results by its name, drawn anew."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from matplotlib.figure import Figure

from pmbnn.figures.overviews import sheet_figures, sheets
from pmbnn.results.loading import ExperimentResults


class Named(NamedTuple):
    """A figure that could be drawn: its kind, of which cells it is, and what draws it."""

    kind: str
    title: str
    draw: Callable[[], Figure]


def plot(results: ExperimentResults, kind: str, **settings: object) -> Figure:
    """A figure of stored cells, drawn anew from their traces; nothing is fitted.

    Parameters
    ----------
    results
        A results folder, opened by `load_results`.
    kind
        Of the figure: how the names of files in ``figures/`` end (``maps``, ``accuracy``,
        ``design``, ``last-layer``, ``points``, ...), or ``map``. What shows one cell alone shows
        the best by held-out score of those that are left.
    **settings
        Which cells, as for `ExperimentResults.cell`: ``dataset="moons"``.

    Returns
    -------
    matplotlib.figure.Figure
        A notebook shows it; `savefig` writes it.

    Raises
    ------
    ValueError
        If no cell has these settings, they have no such figure, or several, of other data.

    Examples
    --------
    >>> pb.plot(results, "maps", dataset="circles")  # doctest: +SKIP
    """
    there = list(_figures(results.select(**settings)))
    found = [figure for figure in there if figure.kind == kind]
    if not found:
        kinds = ", ".join(sorted({figure.kind for figure in there}))
        raise ValueError(f"`kind` must be one of {kinds} with these cells, got {kind!r}.")
    if len(found) > 1:
        titles = "; ".join(figure.title for figure in found)
        raise ValueError(
            f"`{kind}` is a figure of each of {len(found)}: {titles}. Say which cells, as by "
            "`dataset=...`."
        )
    return found[0].draw()


def _figures(results: ExperimentResults) -> Iterator[Named]:
    for sheet in sheets(results.records):
        if sheet.finished:
            of_sheet = sheet_figures(results.results, sheet, results.records)
            for kind, draw in of_sheet.items():
                yield Named(kind, sheet.title, draw)
