"""The repair ladder: distance from the posterior against what a fit costs."""

from collections.abc import Mapping
from itertools import cycle

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, PercentFormatter

from pmbnn.figures import style
from pmbnn.results.names import dataset_row_label

WIDTH, HEIGHT = 4.6, 4.0
"""Size of a panel, in inches."""

WORDS = {"best": "", "equal": ", pooled", "elbo": ", by ELBO", "stacked": ", stacked", "chains": ""}
"""Words that follow a guide's name, by the mixture of its restarts."""


@style.with_sizes
def plot_ladder(table: pd.DataFrame, title: str) -> Figure:
    """Total variation from the posterior against cost, a panel a data set.

    A large marker is a rung's mean over posteriors, small ones are single posteriors; the dashed
    line is near enough, and the reference lies at its own floor.

    Parameters
    ----------
    table
        As `pmbnn.compare.agreement.ladder_table` makes it; not empty.
    """
    datasets = table.filter(regex=r"^dataset\.").rename(
        columns=lambda n: n.removeprefix("dataset.")
    )
    names = [dataset_row_label(row) for row in datasets.to_dict("records")]
    panels = list(table.groupby(pd.Series(names, index=table.index), sort=False))
    guides, mixtures = (list(table[name].unique()) for name in ("guide", "mixture"))
    colours = dict(zip(guides, cycle(style.CLASS_COLOURS), strict=False))
    markers = dict(zip(mixtures, cycle(style.MARKERS), strict=False))
    figure = style.new_figure(WIDTH * len(panels), HEIGHT + 1.2)
    drawn = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (name, rows) in zip(drawn, panels, strict=True):
        _draw_panel(axes, rows, colours, markers)
        axes.set_title(name)
        axes.set_xlabel("time of a cell, share of the reference's")
    drawn[0].set_ylabel("total variation from the posterior")
    pairs = [pair for axes in drawn for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
    handles = {label: handle for handle, label in reversed(pairs)}
    figure.legend(handles.values(), handles, ncols=3 * len(panels), **style.BELOW)
    style.set_title(figure, title)
    return figure


def _draw_panel(
    axes: Axes, rows: pd.DataFrame, colours: Mapping[str, str], markers: Mapping[str, str]
) -> None:
    for (guide, mixture), rung in rows.groupby(["guide", "mixture"], sort=False):
        look = {"color": colours[guide], "marker": markers[mixture], "linestyle": "none"}
        cost, distance = rung["cost"], rung["total_variation"]
        axes.plot(cost, distance, markersize=3, alpha=0.45, **look)
        label = guide.replace("_", " ") + WORDS.get(mixture, "")
        edge = {"markeredgecolor": "black", "markeredgewidth": 0.7}
        axes.plot(cost.mean(), distance.mean(), markersize=9, label=label, **edge, **look)
    axes.axhline(rows["target"].iloc[0], color=style.GREY, linestyle="--", linewidth=1)
    axes.set(xscale="log", yscale="log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(color="#DDDDDD", linewidth=0.6, which="both")
    axes.set_axisbelow(True)
