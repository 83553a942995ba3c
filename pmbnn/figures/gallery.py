"""The pictures that a fit is least sure of, by how much posterior draws disagree."""

import xarray as xr
from matplotlib.figure import Figure

from pmbnn.figures.picture_sheet import Picture, kept_pictures, plot_sheet

MOST = 20
COLUMNS = 5


def most_uncertain(trace: xr.DataTree) -> list[Picture]:
    """The 20 pictures whose predicted class's probability varies most, most varying first.

    Raises
    ------
    ValueError
        If the trace keeps no test pictures.
    """
    return sorted(kept_pictures(trace), key=lambda picture: -picture.sd)[:MOST]


def plot_gallery(trace: xr.DataTree, title: str) -> Figure:
    """Most uncertain test pictures, each with true class, predicted class and its probability.

    Wrong predictions are marked by colour and by a word.

    Raises
    ------
    ValueError
        If the trace has no group ``test_predictions``, or keeps no pictures there.
    """
    shown = most_uncertain(trace)
    note = "probability ± its sd over posterior draws"
    title = f"{title}\nthe {len(shown)} most uncertain test images; {note}"
    return plot_sheet(shown, _words, COLUMNS, title)


def _words(picture: Picture) -> str:
    return (
        f"true {picture.true}, predicted {picture.predicted}{'' if picture.right else ' (wrong)'}\n"
        f"{picture.probability:.2f} ± {picture.sd:.2f}"
    )
