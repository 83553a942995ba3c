"""What the pictures of each class look like."""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.figures.picture_sheet import GROUP, draw_digit
from pmbnn.figures.reading import values_of

MOST = 10
"""Pictures shown of a class at most."""


def samples_by_class(trace: xr.DataTree) -> dict[str, list[np.ndarray]]:
    """Kept test pictures of each class, in the order of the test rows.

    Raises
    ------
    ValueError
        If the trace keeps no test pictures.
    """
    images = values_of(trace, GROUP, "image", "image", "row", "column")
    rows = values_of(trace, GROUP, "image_index")
    kept = dict(zip(rows.tolist(), images, strict=True))
    label = values_of(trace, GROUP, "label")
    names = values_of(trace, GROUP, "output")
    return {
        str(name): [kept[row] for row in sorted(kept) if label[row] == index][:MOST]
        for index, name in enumerate(names)
    }


def plot_samples(trace: xr.DataTree, title: str) -> Figure:
    """Test pictures in a row for each class.

    They are those that the trace keeps, so pictures that the fit finds hard are more frequent
    than in the data.

    Raises
    ------
    ValueError
        If the trace has no group ``test_predictions``, or keeps no pictures there.
    """
    found = samples_by_class(trace)
    columns = max(1, *map(len, found.values()))
    figure = style.new_figure(0.75 * columns + 0.6, 0.75 * len(found) + 0.9)
    panels = figure.subplots(len(found), columns, squeeze=False)
    for line, (name, images) in zip(panels, found.items(), strict=True):
        for axes in line:
            axes.set_axis_off()
        for axes, image in zip(line, images, strict=False):
            draw_digit(axes, image)
        place = {"ha": "right", "va": "center", "transform": line[0].transAxes}
        line[0].text(-0.2, 0.5, name, fontsize=style.TITLE_SIZE, **place)
    note = "test images by class: the first ones and those that the fit finds hard"
    style.set_title(figure, f"{title}\n{note}")
    return figure
