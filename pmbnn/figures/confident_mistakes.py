"""Mistakes that the fit itself does not expect: no posterior draw says another class."""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.figures.picture_sheet import Picture, kept_pictures, pictured_group, plot_sheet
from pmbnn.figures.predictions import predictions_of, rows_name
from pmbnn.figures.reading import values_of

MOST = 24
COLUMNS = 6


def confident_mistakes(trace: xr.DataTree) -> list[Picture]:
    """Misclassified pictures, those with the lowest expected error rate and most probable first.

    Where some have an expected error rate of exactly zero, only these. They are validation
    pictures where the trace keeps those, else test pictures.

    Raises
    ------
    ValueError
        If the trace keeps neither.
    """
    kept = kept_pictures(trace, pictured_group(trace))
    wrong = [picture for picture in kept if not picture.right]
    wrong.sort(key=lambda picture: (picture.error_rate, -picture.probability))
    certain = [picture for picture in wrong if picture.error_rate == 0]
    return (certain or wrong)[:MOST]


def plot_confident_mistakes(trace: xr.DataTree, title: str) -> Figure:
    """Misclassified held-out pictures of which the expected error rate is exactly zero.

    If there are none, the title says so, and those of the lowest rate are shown instead. It
    also says whether they are validation or test pictures.

    Raises
    ------
    ValueError
        If the trace keeps neither.
    """
    shown = confident_mistakes(trace)
    title = f"{title}\n{_note(trace, shown)}"
    if not shown:
        return _nothing(title)
    return plot_sheet(shown, _words, COLUMNS, title)


def _note(trace: xr.DataTree, shown: list[Picture]) -> str:
    """What is shown, and out of how many."""
    group = pictured_group(trace)
    true, rate = (values_of(trace, group, name) for name in ("label", "error_rate"))
    wrong = predictions_of(trace, group).predicted != true
    certain = int(np.sum(wrong & (rate == 0)))
    of = f"of {wrong.sum()} misclassified {rows_name(group)} images"
    if not certain:
        instead = f"; shown are the {len(shown)} with the lowest" if shown else ""
        return f"{of.replace('of', 'none of', 1)} has an expected error rate of zero{instead}"
    some = f" ({len(shown)} shown)" if len(shown) < certain else ""
    return f"{certain} {of} have an expected error rate of exactly zero{some}: all draws agree"


def _nothing(title: str) -> Figure:
    figure = style.new_figure(1.6 * COLUMNS, 2.4)
    style.draw_empty(figure.subplots(), "no misclassified picture is kept")
    style.set_title(figure, title)
    return figure


def _words(picture: Picture) -> str:
    rate = f", rate {picture.error_rate:.2g}" if picture.error_rate > 0 else ""
    return f"{picture.true} → {picture.predicted}\nprobability {picture.probability:.2f}{rate}"
