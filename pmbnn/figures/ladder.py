"""The repair ladder: distance from the posterior against what a fit costs."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, PercentFormatter

from pmbnn.figures import style
from pmbnn.results.names import dataset_row_label

WIDTH, HEIGHT = 4.6, 4.0
"""Of a panel, in inches."""

WORDS = {"best": "", "equal": ", pooled", "elbo": ", by ELBO", "stacked": ", stacked", "chains": ""}
"""What is added to a guide's name for each mixture of its restarts."""


def plot_ladder(table: pd.DataFrame, title: str) -> Figure:
    """Total variation from the posterior against cost, a panel a data set.

    A large marker is a rung's mean over posteriors, small ones are single posteriors; the dashed
    line is near enough, and the reference lies at its own floor.

    Parameters
    ----------
    table
        As `pmbnn.compare.agreement.ladder_table` makes it; not empty.
    """
    panels = list(table.groupby(_data_of(table), sort=False))
    looks = _looks(table)
    figure = style.new_figure(WIDTH * len(panels), HEIGHT + 1.2)
    drawn = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (name, rows) in zip(drawn, panels, strict=True):
        _draw_panel(axes, rows, looks)
        axes.set_title(name, fontsize=style.LABEL_SIZE)
        axes.set_xlabel("time of a cell, share of the reference's", fontsize=style.LABEL_SIZE)
    drawn[0].set_ylabel("total variation from the posterior", fontsize=style.LABEL_SIZE)
    pairs = [pair for axes in drawn for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
    handles = {label: handle for handle, label in reversed(pairs)}
    below = {"loc": "outside lower center", "ncols": 3 * len(panels), "frameon": False}
    figure.legend(handles.values(), handles, fontsize=style.TICK_SIZE, **below)
    style.set_title(figure, title)
    return figure


def _data_of(table: pd.DataFrame) -> pd.Series:
    """Name of each row's data set: ``moons, noise 0.4``."""
    settings = table.filter(regex=r"^dataset\.").rename(
        columns=lambda name: name[len("dataset.") :]
    )
    return pd.Series(map(dataset_row_label, settings.to_dict("records")), index=table.index)


def _looks(table: pd.DataFrame) -> Mapping[tuple[str, str], tuple[str, str]]:
    """Colour of each guide and marker of each mixture, by rung."""
    guides, mixtures = (list(dict.fromkeys(table[name])) for name in ("guide", "mixture"))
    return {
        (guide, mixture): (
            style.CLASS_COLOURS[guides.index(guide) % len(style.CLASS_COLOURS)],
            style.MARKERS[mixtures.index(mixture) % len(style.MARKERS)],
        )
        for guide in guides
        for mixture in mixtures
    }


def _draw_panel(axes: Axes, rows: pd.DataFrame, looks: Mapping) -> None:
    for rung, of_rung in rows.groupby(["guide", "mixture"], sort=False):
        colour, marker = looks[rung]
        cost, distance = of_rung["cost"], of_rung["total_variation"]
        axes.plot(cost, distance, marker, color=colour, markersize=3, alpha=0.45, linestyle="none")
        guide, mixture = rung
        label = guide.replace("_", " ") + WORDS.get(mixture, "")
        axes.plot(
            cost.mean(), distance.mean(), marker, color=colour, markersize=9,
            markeredgecolor="black", markeredgewidth=0.7, linestyle="none", label=label,
        )  # fmt: skip
    axes.axhline(rows["target"].iloc[0], color=style.GREY, linestyle="--", linewidth=1)
    axes.set(xscale="log", yscale="log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(color="#DDDDDD", linewidth=0.6, which="both")
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=style.TICK_SIZE)
