"""The pictures whose most probable class is least probable."""

import xarray as xr
from matplotlib.figure import Figure

from pmbnn.figures.picture_sheet import Picture, kept_pictures, pictured_group, plot_sheet
from pmbnn.figures.predictions import rows_name

MOST = 24
COLUMNS = 6


def least_confident(trace: xr.DataTree) -> list[Picture]:
    """The 24 pictures whose predicted class has the lowest probability, lowest first.

    They are validation pictures where the trace keeps those, else test pictures.

    Raises
    ------
    ValueError
        If the trace keeps neither.
    """
    kept = kept_pictures(trace, pictured_group(trace))
    return sorted(kept, key=lambda picture: picture.probability)[:MOST]


def plot_least_confident(trace: xr.DataTree, title: str) -> Figure:
    """Held-out pictures of lowest confidence, with true and predicted class and its probability.

    The title says whether they are validation or test pictures.

    Raises
    ------
    ValueError
        If the trace keeps neither.
    """
    shown = least_confident(trace)
    images = f"{rows_name(pictured_group(trace))} images of lowest confidence"
    title = f"{title}\nthe {len(shown)} {images}: probability of the predicted class"
    return plot_sheet(shown, _words, COLUMNS, title)


def _words(picture: Picture) -> str:
    wrong = "" if picture.right else " (wrong)"
    return f"{picture.true}, called {picture.predicted}{wrong}\n{picture.probability:.2f}"
