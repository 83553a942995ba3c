"""Curves of several cells on the same data: a row for each cell, a column for each range."""

from collections.abc import Sequence

import xarray as xr
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.figures.curves import add_legend, curve_names, draw_curve, limits, range_words

MOST = 8
"""Cells of one sheet."""


def plot_compared_curves(traces: Sequence[xr.DataTree], names: Sequence[str], title: str) -> Figure:
    """Curves of every cell; each column has one scale, so that bands can be compared by eye.

    Parameters
    ----------
    names
        Of the cells, in the order of their traces; at most `MOST` of both are shown.

    Raises
    ------
    ValueError
        If there is no trace, or one has no curves.
    """
    if not traces:
        raise ValueError("`traces` must not be empty.")
    traces, names = list(traces)[:MOST], list(names)[:MOST]
    columns = curve_names(traces[0])
    figure = style.new_figure(4.2 * len(columns) + 0.8, 2.7 * len(traces) + 1.4)
    panels = figure.subplots(len(traces), len(columns), squeeze=False, sharex="col", sharey="col")
    for column, range_name in enumerate(columns):
        for axes, trace in zip(panels[:, column], traces, strict=True):
            draw_curve(axes, trace, range_name)
        panels[0, column].set_ylim(limits(traces, range_name))
        words = range_words(traces[0], range_name)
        panels[-1, column].set_xlabel(words, fontsize=style.LABEL_SIZE)
    for line, name in zip(panels, names, strict=True):
        line[0].set_title(name, fontsize=style.LABEL_SIZE, loc="left")
        line[0].set_ylabel("y", fontsize=style.LABEL_SIZE)
    add_legend(figure, panels[0, 0])
    style.set_title(figure, title)
    return figure
