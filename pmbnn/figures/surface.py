"""Numbers over the plane: the posterior mean beside its uncertainty, with the test rows."""

from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.figures.plane import draw_over_plane, name_axes, shape_of
from pmbnn.results.plane import plane_features
from pmbnn.results.reading import by_target, values_of

GROUP, TEST = "predictions", "test_predictions"

PANEL, MAP = 4.6, 3.1
"""Widths of a panel with its colour bar, and of its map alone, in inches."""


class _Surface(NamedTuple):
    x1: np.ndarray
    x2: np.ndarray
    mean: np.ndarray
    epistemic_sd: np.ndarray


def plot_surface(trace: xr.DataTree, title: str) -> Figure:
    """Mean and epistemic standard deviation over the plane; a row for each of several targets.

    Test rows have the colour of their target, on the scale of the mean; one beyond it has that of
    its end.

    Raises
    ------
    ValueError
        If the trace has no group ``predictions`` of numbers.
    """
    features, of_targets = plane_features(trace), by_target(trace)
    surfaces = {name: _surface(own) for name, own in of_targets.items()}
    height = 0.75 + MAP * shape_of(next(iter(surfaces.values())))
    figure = style.new_figure(2 * PANEL, 0.5 + height * len(surfaces))
    panels = figure.subplots(len(surfaces), 2, squeeze=False)
    for line, (name, surface) in zip(panels, surfaces.items(), strict=True):
        test = of_targets[name][TEST].dataset
        limits = float(surface.mean.min()), float(surface.mean.max())
        image = draw_over_plane(line[0], surface, surface.mean, style.VALUES, limits)
        _draw_rows(line[0], test, c=test["target"].values, norm=image.norm, cmap=style.VALUES)
        style.add_colour_bar(figure, image, line[0], f"posterior mean of {name or 'y'}")
        # A point has no uncertainty.
        sd = surface.epistemic_sd
        highest = style.upper_limit([sd], np.inf) if sd.any() else 1.0
        image = draw_over_plane(line[1], surface, sd, style.UNCERTAINTY, (0.0, highest))
        _draw_rows(line[1], test, color="white")
        label = "epistemic sd: that of the output over posterior draws"
        style.add_colour_bar(figure, image, line[1], label)
        for axes in line:
            name_axes(axes, features)
            axes.tick_params(labelsize=style.TICK_SIZE)
    style.set_title(figure, f"{title}\ntest rows have the colour of their target on the left")
    return figure


def _surface(trace: xr.DataTree) -> _Surface:
    mean, sd = (values_of(trace, GROUP, name, "x1", "x2") for name in ("mean", "epistemic_sd"))
    coordinates = trace[GROUP]
    return _Surface(coordinates["x1"].values, coordinates["x2"].values, mean, sd)


def _draw_rows(axes: Axes, test: xr.Dataset, **colours) -> None:
    """Test rows within the frame of a map."""
    axes.autoscale(enable=False)
    x = test["x"].values
    axes.scatter(x[:, 0], x[:, 1], s=14, linewidths=0.6, edgecolors="black", zorder=3, **colours)
