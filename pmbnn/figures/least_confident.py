"""The pictures whose most probable class is least probable."""

import xarray as xr
from matplotlib.figure import Figure

from pmbnn.figures.picture_sheet import Picture, kept_pictures, plot_sheet

MOST = 24
COLUMNS = 6


def least_confident(trace: xr.DataTree) -> list[Picture]:
    """The 24 pictures whose predicted class has the lowest probability, lowest first.

    Raises
    ------
    ValueError
        If the trace keeps no test pictures.
    """
    return sorted(kept_pictures(trace), key=lambda picture: picture.probability)[:MOST]


def plot_least_confident(trace: xr.DataTree, title: str) -> Figure:
    """Test pictures of lowest confidence, with true and predicted class and its probability.

    Raises
    ------
    ValueError
        If the trace has no group ``test_predictions``, or keeps no pictures there.
    """
    shown = least_confident(trace)
    note = "probability of the predicted class"
    title = f"{title}\nthe {len(shown)} test images of lowest confidence: {note}"
    return plot_sheet(shown, _words, COLUMNS, title)


def _words(picture: Picture) -> str:
    wrong = "" if picture.right else " (wrong)"
    return f"{picture.true}, called {picture.predicted}{wrong}\n{picture.probability:.2f}"
