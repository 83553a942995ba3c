"""Figure of the ranks of truths: how far their ECDFs are from uniform ones.

ArviZ's own plot draws one band for a single quantity, at points of its own, and says that it will
no longer: panels here have the band that verdicts rest on, at the possible ranks.
"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmbnn.calibration.ranks import ERROR, RankEcdf, rank_ecdfs, valid_ranks
from pmbnn.calibration.store import StoredRanks
from pmbnn.figures import style

COLUMNS = 4
PANEL = (2.7, 2.1)
"""Width and height of a panel, in inches."""


def plot_calibration(stored: StoredRanks, title: str) -> Figure:
    """A panel for each test quantity: difference of the ranks' ECDF from a uniform one, and band.

    A line above zero on the left has truths below the draws more often than it should; one that
    leaves the band is named with what is wrong with the draws.

    Raises
    ------
    ValueError
        If no simulation has ranks.
    """
    ecdfs = rank_ecdfs(stored.ranks, stored.draws)
    columns, rows = min(COLUMNS, len(ecdfs)), -(-len(ecdfs) // COLUMNS)
    figure = style.new_figure(PANEL[0] * columns + 0.4, PANEL[1] * rows + 1.1)
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True).ravel()
    for axes, name, ecdf in zip(panels, stored.quantities, ecdfs, strict=False):
        _draw(axes, ecdf)
        verdict = ecdf.direction or ecdf.verdict
        axes.set_title(f"{name}\n{verdict}", fontsize=style.LABEL_SIZE, parse_math=False)
    for axes in panels[len(ecdfs) :]:
        axes.set_axis_off()
    figure.supxlabel(
        f"rank of the truth among {stored.draws} draws, as a fraction", fontsize=style.LABEL_SIZE
    )
    figure.supylabel("ECDF less uniform", fontsize=style.LABEL_SIZE)
    valid = len(valid_ranks(stored.ranks))
    failed = len(stored.ranks) - valid
    counted = f"{valid} simulations" + (f", {failed} more diverged" if failed else "")
    band = f"band left by exact draws in {ERROR:.0%} of such figures at most"
    style.set_title(figure, f"{title}\ntruths from the {stored.truths}: {counted}; {band}")
    return figure


def _draw(axes: Axes, ecdf: RankEcdf) -> None:
    colour = style.CLASS_COLOURS[1 if ecdf.verdict == "miscalibrated" else 0]
    rank = np.concatenate([[0.0], ecdf.rank, [1.0]])
    low, high, difference = (
        np.concatenate([[0.0], values, [0.0]]) for values in (ecdf.low, ecdf.high, ecdf.difference)
    )
    axes.fill_between(rank, low, high, color=style.GREY, alpha=0.2, linewidth=0)
    axes.axhline(0, color=style.GREY, linewidth=0.8)
    axes.plot(rank, difference, color=colour, linewidth=1.4)
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.tick_params(labelsize=style.TICK_SIZE)
