"""Mistakes that the fit itself does not expect: no posterior draw says another class."""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.figures.picture_sheet import GROUP, Picture, kept_pictures, plot_sheet
from pmbnn.figures.predictions import predictions_of
from pmbnn.figures.reading import values_of

MOST = 24
COLUMNS = 6


def confident_mistakes(trace: xr.DataTree) -> list[Picture]:
    """Misclassified pictures, those with the lowest expected error rate and most probable first.

    Where some have an expected error rate of exactly zero, only these.

    Raises
    ------
    ValueError
        If the trace keeps no test pictures.
    """
    wrong = [picture for picture in kept_pictures(trace) if not picture.right]
    wrong.sort(key=lambda picture: (picture.error_rate, -picture.probability))
    certain = [picture for picture in wrong if picture.error_rate == 0]
    return (certain or wrong)[:MOST]


def plot_confident_mistakes(trace: xr.DataTree, title: str) -> Figure:
    """Misclassified test pictures of which the expected error rate is exactly zero.

    If there are none, the title says so, and those of the lowest rate are shown instead.

    Raises
    ------
    ValueError
        If the trace has no group ``test_predictions``, or keeps no pictures there.
    """
    shown = confident_mistakes(trace)
    title = f"{title}\n{_note(trace, shown)}"
    if not shown:
        return _nothing(title)
    return plot_sheet(shown, _words, COLUMNS, title)


def _note(trace: xr.DataTree, shown: list[Picture]) -> str:
    """What is shown, and out of how many."""
    true, rate = (values_of(trace, GROUP, name) for name in ("label", "error_rate"))
    wrong = predictions_of(trace, GROUP).predicted != true
    certain = int(np.sum(wrong & (rate == 0)))
    of = f"of {wrong.sum()} misclassified test images"
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
