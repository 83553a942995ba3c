"""What the training points of planar data look like."""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.figures.reading import values_of


def training_points(trace: xr.DataTree) -> tuple[np.ndarray, np.ndarray]:
    """Raw training points ``(observation, 2)`` and their classes.

    Raises
    ------
    ValueError
        If the trace keeps no training points.
    """
    names = ("x", "standardisation_mean", "standardisation_sd")
    x, mean, sd = (values_of(trace, "constant_data", name) for name in names)
    return x * sd + mean, values_of(trace, "observed_data", "y")


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
    for index in np.unique(label).astype(int):
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
            label=f"class {index} ({len(own)})",
        )
    axes.set_aspect("equal")
    axes.set_xlabel("x1", fontsize=style.LABEL_SIZE)
    axes.set_ylabel("x2", fontsize=style.LABEL_SIZE)
    axes.tick_params(labelsize=style.TICK_SIZE)
    axes.legend(fontsize=style.TICK_SIZE)
    style.set_title(figure, f"{title}\ntraining points")
    return figure
