"""Ranks of known truths: how far their distribution functions are from uniform ones.

ArviZ's own plot draws one band for a single quantity, at points of its own, and says that it will
no longer: panels here have the band that verdicts are told by, at the ranks that there are.
"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.prediction.calibration import ERROR, alive, curves, uniformity
from pmbnn.results.ranks import StoredRanks

COLUMNS = 4
PANEL = (2.7, 2.1)
"""Width and height of a panel, in inches."""


def plot_calibration(stored: StoredRanks, title: str) -> Figure:
    """A panel for each test quantity: difference of the ranks' distribution function, and band.

    A line above zero on the left has truths below the draws more often than it should; one that
    leaves the band is named with what is wrong with the draws.

    Raises
    ------
    ValueError
        If no simulation has ranks.
    """
    ranks = alive(stored.ranks)
    found = uniformity(ranks, stored.draws)
    drawn = curves(ranks, stored.draws)
    rows = -(-len(found) // COLUMNS)
    figure = style.new_figure(PANEL[0] * min(COLUMNS, len(found)) + 0.4, PANEL[1] * rows + 1.1)
    panels = figure.subplots(rows, min(COLUMNS, len(found)), squeeze=False, sharex=True).ravel()
    for axes, name, one, curve in zip(panels, stored.quantities, found, drawn, strict=False):
        _draw(axes, curve, one.verdict == "miscalibrated")
        words = one.direction or one.verdict
        axes.set_title(f"{name}\n{words}", fontsize=style.LABEL_SIZE, parse_math=False)
    for axes in panels[len(found) :]:
        axes.set_axis_off()
    figure.supxlabel(
        f"rank of the truth among {stored.draws} draws, as a fraction", fontsize=style.LABEL_SIZE
    )
    figure.supylabel("ECDF less uniform", fontsize=style.LABEL_SIZE)
    lost = len(stored.ranks) - len(ranks)
    counted = f"{len(ranks)} simulations" + (f", {lost} more diverged" if lost else "")
    band = f"band left by exact draws in {ERROR:.0%} of such figures at most"
    truths = f"truths from the {stored.truths}"
    style.set_title(figure, f"{title}\n{truths}: {counted}; {band}")
    return figure


def _draw(axes: Axes, curve, miscalibrated: bool) -> None:
    colour = style.CLASS_COLOURS[1 if miscalibrated else 0]
    rank = np.concatenate([[0.0], curve.rank, [1.0]])
    low, high, difference = (
        np.concatenate([[0.0], values, [0.0]])
        for values in (curve.low, curve.high, curve.difference)
    )
    axes.fill_between(rank, low, high, color=style.GREY, alpha=0.2, linewidth=0)
    axes.axhline(0, color=style.GREY, linewidth=0.8)
    axes.plot(rank, difference, color=colour, linewidth=1.4)
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.tick_params(labelsize=style.TICK_SIZE)
