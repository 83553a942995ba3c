"""One figure of stored results by its name, drawn anew."""

import os
from pathlib import Path

from matplotlib.figure import Figure

from pmbnn.figures.overviews import sheet_figures, sheets
from pmbnn.results.loading import ExperimentResults, StoredCell, load_results
from pmbnn.results.store import Results
from pmbnn.spec.errors import must_be_one_of


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
