"""What the data look like: training points of a plane, and images of each class."""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.figures.plane import name_axes, set_frame
from pmbnn.results.plane import plane_map
from pmbnn.results.reading import images_of, target_standardisation, values_of

TEST = "test_predictions"

MOST = 10
"""Images shown of a class at most."""

PLACE, SIDE = 0.8, 0.58
"""Width of an image with the room about it, and of itself, in inches."""


def training_points(trace: xr.DataTree) -> tuple[np.ndarray, np.ndarray]:
    """Training inputs ``(observation, feature)`` and what was observed there, in raw units.

    Raises
    ------
    ValueError
        If the trace keeps no training rows.
    """
    names = ("x", "standardisation_mean", "standardisation_sd")
    x, mean, sd = (values_of(trace, "constant_data", name) for name in names)
    y, of_targets = values_of(trace, "observed_data", "y"), target_standardisation(trace)
    return x * sd + mean, y if of_targets.is_identity else of_targets.undo(y)


def plot_points(trace: xr.DataTree, title: str) -> Figure:
    """Training points in the plane, by class, in the units of the data.

    Raises
    ------
    ValueError
        If the trace keeps no training points.
    """
    x, label = training_points(trace)
    figure = style.new_figure(5.2, 4.6)
    axes = figure.subplots()
    for index, name in enumerate(values_of(trace, "predictions", "output")):
        own = x[label == index]
        which = index % len(style.MARKERS)
        axes.plot(
            own[:, 0],
            own[:, 1],
            linestyle="none",
            marker=style.MARKERS[which],
            markersize=4,
            alpha=0.7,
            color=style.CLASS_COLOURS[which],
            label=f"class {name} ({len(own)})",
        )
    plane = plane_map(trace)
    set_frame(axes, plane)
    name_axes(axes, plane.features)
    axes.tick_params(labelsize=style.TICK_SIZE)
    axes.legend(fontsize=style.TICK_SIZE)
    style.set_title(figure, f"{title}\ntraining points")
    return figure


def samples_by_class(trace: xr.DataTree) -> dict[str, list[np.ndarray]]:
    """Kept test images of each class, in the order of the test rows.

    Raises
    ------
    ValueError
        If the trace keeps no test images.
    """
    images = images_of(trace, TEST, "image", "image")
    rows = values_of(trace, TEST, "image_index")
    kept = dict(zip(rows.tolist(), images, strict=True))
    label = values_of(trace, TEST, "label")
    names = values_of(trace, TEST, "output")
    return {
        str(name): [kept[row] for row in sorted(kept) if label[row] == index][:MOST]
        for index, name in enumerate(names)
    }


def plot_samples(trace: xr.DataTree, title: str) -> Figure:
    """Test images in a row for each class.

    They are those that the trace keeps, so images that the fit finds hard are more frequent
    than in the data.

    Raises
    ------
    ValueError
        If the trace has no group ``test_predictions``, or keeps no images there.
    """
    found = samples_by_class(trace)
    note = "test images by class: the first ones and those that the fit finds hard"
    title = f"{title}\n{note}"
    beside = max(style.words_width(name, style.TITLE_SIZE) for name in found) + 0.3
    width = beside + PLACE * max(5, *map(len, found.values()))
    height = PLACE * len(found) + style.TITLE_HEIGHT * len(style.title_lines(title, width)) + 0.3
    figure = style.fixed_figure(width, height)
    paper = style.add_paper(figure)
    for row, (name, images) in enumerate(found.items(), start=1):
        bottom = PLACE * (len(found) - row)
        side = {"ha": "right", "va": "center", "fontsize": style.TITLE_SIZE}
        paper.text(beside - 0.15, bottom + PLACE / 2, name, **side)
        for column, image in enumerate(images):
            left = beside + column * PLACE
            style.place_pixels(paper, image, left, bottom + (PLACE - SIDE) / 2, SIDE)
    style.set_title(figure, title)
    return figure
