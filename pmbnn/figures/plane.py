"""One cell over the plane: the probability of the first class beside its uncertainty."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from pmbnn.figures import style
from pmbnn.results.plane import PlaneMap, plane_map

HIGHEST_SD = 0.5
"""No probability has a larger standard deviation than that of a fair coin."""

WIDTH, PANEL = 10.7, 3.65
"""Widths of the figure of a cell, and of each of its maps, in inches."""

BEFORE, BELOW, ABOVE = 0.8, 0.85, 0.5
"""Room for what is written to the left of a map, below it, and above it beside the title."""

FLATTEST, TALLEST = 0.4, 1.5
"""Shapes of maps, heights as multiples of widths, that fit on a page."""

UNCERTAINTY_LABEL = "sd of that probability over posterior draws"


class OverPlane(Protocol):
    """Something over a grid of raw coordinates of the plane."""

    x1: np.ndarray
    x2: np.ndarray


def name_axes(axes: Axes, features: tuple[str, str]) -> None:
    """Label the axes of a plane."""
    first, second = features
    axes.set_xlabel(first, fontsize=style.LABEL_SIZE, parse_math=False)
    axes.set_ylabel(second, fontsize=style.LABEL_SIZE, parse_math=False)


def plot_plane(trace: xr.DataTree, title: str) -> Figure:
    """Pair of maps of one cell, with its test points and the decision boundary.

    Parameters
    ----------
    trace
        Trace with a group ``predictions``; the points are those of ``test_predictions``, and
        are left out where that is missing.
    title
        What is fitted, in words; see `pmbnn.results.names.cell_title`.

    Raises
    ------
    ValueError
        If the trace has no group ``predictions``.
    """
    plane = plane_map(trace)
    figure, panels, bars = _places(shape_of(plane), len(style.title_lines(title, WIDTH)))
    limit = style.upper_limit([plane.sd], HIGHEST_SD)
    images = draw_probability(panels[0], plane), draw_uncertainty(panels[1], plane, limit)
    labels = probability_label(plane), UNCERTAINTY_LABEL
    for axes, heading in zip(panels, ("posterior probability", "uncertainty"), strict=True):
        draw_decision_boundary(axes, plane)
        axes.locator_params(nbins=5)
        axes.tick_params(labelsize=style.TICK_SIZE)
        name_axes(axes, plane.features)
        # Without a height matplotlib measures all labels anew to find one.
        axes.set_title(heading, fontsize=style.LABEL_SIZE, y=1)
    for axes, bar, image, label in zip(panels, bars, images, labels, strict=True):
        ticks = MaxNLocator(3, steps=(1, 2, 2.5, 5, 10))
        style.add_colour_bar(figure, image, axes, label, cax=bar, ticks=ticks)
    if "test_predictions" in trace.children:
        _draw_points(figure, panels, trace["test_predictions"].dataset)
    style.set_title(figure, title)
    return figure


def _places(shape: float, lines: int) -> tuple[Figure, list[Axes], list[Axes]]:
    """Figure with panels for two maps, and their colour bars, below so many lines of a title."""
    width, height = PANEL, PANEL * shape
    figure = style.fixed_figure(WIDTH, BELOW + height + ABOVE + lines * style.TITLE_HEIGHT)
    starts = (BEFORE, WIDTH / 2 + BEFORE)
    panels = [style.add_panel(figure, at, BELOW, width, height) for at in starts]
    bars = [style.add_panel(figure, at + width + 0.15, BELOW, 0.2, height) for at in starts]
    return figure, panels, bars


def probability_label(plane: PlaneMap) -> str:
    """Meaning of the colours of the first map."""
    return f"probability of class {plane.first_class}"


def shape_of(plane: OverPlane) -> float:
    """Height of a map as a multiple of its width: a square where that would not fit on a page.

    Features of such different ranges have different units.
    """
    (left, right), (bottom, top) = _edges(plane.x1), _edges(plane.x2)
    shape = float((top - bottom) / (right - left))
    return shape if FLATTEST <= shape <= TALLEST else 1.0


def set_frame(axes: Axes, plane: OverPlane) -> None:
    """Limit axes to a map, in its shape."""
    axes.set(xlim=_edges(plane.x1), ylim=_edges(plane.x2))
    axes.set_box_aspect(shape_of(plane))


def draw_probability(axes: Axes, plane: PlaneMap) -> AxesImage:
    """Probability of the first class, ``x1`` to the right and ``x2`` up."""
    return draw_over_plane(axes, plane, plane.probability, style.PROBABILITY, (0.0, 1.0))


def draw_uncertainty(axes: Axes, plane: PlaneMap, highest: float) -> AxesImage:
    """Uncertainty of that probability, in colours that end at ``highest``."""
    return draw_over_plane(axes, plane, plane.sd, style.UNCERTAINTY, (0.0, highest))


def draw_difference(
    axes: Axes, plane: PlaneMap, difference: np.ndarray, largest: float
) -> AxesImage:
    """Differences of probabilities, ``(x1, x2)``, white at zero, colours up to ``largest``."""
    return draw_over_plane(axes, plane, difference, style.DIFFERENCE, (-largest, largest))


def draw_decision_boundary(axes: Axes, plane: PlaneMap, width: float = 1.3) -> None:
    """Line on which the first class has probability one half, white below black."""
    # Matplotlib warns of a contour that lies nowhere.
    if not plane.probability.min() < 0.5 < plane.probability.max():
        return
    below = withStroke(linewidth=width + 1.2, foreground="white")
    axes.contour(
        plane.x1, plane.x2, plane.probability.T, [0.5],
        colors="black", linewidths=width, path_effects=[below],
    )  # fmt: skip


def draw_over_plane(
    axes: Axes, plane: OverPlane, values: np.ndarray, colours: Colormap, limits: tuple[float, float]
) -> AxesImage:
    """Values ``(x1, x2)`` as colours between the limits, ``x1`` to the right and ``x2`` up."""
    extent = (*_edges(plane.x1), *_edges(plane.x2))
    # An image has its first axis going down the page: the transpose puts x1 across.
    kwargs = {"origin": "lower", "extent": extent, "aspect": "auto"}
    image = style.draw_image(axes, values.T, colours, limits, **kwargs)
    set_frame(axes, plane)
    return image


def _edges(centres: np.ndarray) -> tuple[float, float]:
    """Outer edges of the pixels around evenly spaced centres."""
    half = (centres[-1] - centres[0]) / (len(centres) - 1) / 2
    return centres[0] - half, centres[-1] + half


def _draw_points(figure: Figure, panels: Sequence[Axes], test: xr.Dataset) -> None:
    """Test points by class, kept inside the maps, and a legend below them."""
    for axes in panels:
        axes.autoscale(enable=False)
        for index, name in enumerate(test["output"].values):
            chosen = test["x"].values[test["label"].values == index]
            axes.scatter(
                chosen[:, 0], chosen[:, 1], s=15, linewidths=0.6, edgecolors="white",
                color=style.CLASS_COLOURS[index % len(style.CLASS_COLOURS)],
                marker=style.MARKERS[index % len(style.MARKERS)],
                label=f"class {name}, test points", zorder=3,
            )  # fmt: skip
    handles, labels = panels[0].get_legend_handles_labels()
    below = {"loc": "lower center", "ncols": len(labels), "frameon": False}
    figure.legend(handles, labels, fontsize=style.TICK_SIZE, markerscale=1.6, **below)
