"""A fitted network twice: a number on every connection, and a distribution on every connection."""

import re

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.results.weights import best_draws

MOST_UNITS = 3
"""Units of a layer that are drawn; with more, connections can no longer be told apart."""

WEIGHT = re.compile(r"weight_(\d+)")


def dense_weights(trace: xr.DataTree) -> list[np.ndarray]:
    """Draws of each dense layer's weights under the best restart, ``(draw, input, output)``.

    Of a network that begins with convolutions, the dense layers behind them.

    Raises
    ------
    ValueError
        If the trace has no group ``posterior``.
    """
    posterior = best_draws(trace)
    found = {int(m[1]): str(m[0]) for n in posterior if (m := WEIGHT.fullmatch(str(n)))}
    draws = [posterior[found[layer]].transpose("draw", ...).values for layer in sorted(found)]
    return [array for array in draws if array.ndim == 3]


def plot_network(trace: xr.DataTree, title: str) -> Figure:
    """Schematic of a deterministic network beside a Bayesian one, filled with a fit's weights.

    The numbers on the left are posterior means, which stand for the weights that a deterministic
    fit would find. The curves on the right are normal ones of every weight's posterior mean and
    standard deviation, all of a layer on one axis, with a tick at zero. Of wide layers the units
    with the largest outgoing weights are drawn. Biases are left out.

    Raises
    ------
    ValueError
        If the trace has no group ``posterior``.
    """
    layers = dense_weights(trace)
    sizes = [layers[0].shape[1], *(layer.shape[2] for layer in layers)]
    units = _shown_units(layers)
    kept = [len(shown) for shown in units]
    figure = style.new_figure(2 * (1.8 * len(layers) + 0.7), 1.25 * max(kept) + 1.5)
    left, right = figure.subplots(1, 2)
    for axes, words in ((left, "a number on each connection"), (right, "a distribution on each")):
        axes.set_title(words, fontsize=style.LABEL_SIZE)
        _draw_units(axes, sizes, kept)
    for number, draws in enumerate(layers):
        shown = draws[:, units[number]][:, :, units[number + 1]]
        _write_numbers(left, number, shown)
        _draw_distributions(right, number, shown)
    note = "" if sizes == kept else f"; {MOST_UNITS} units of a layer at most are drawn"
    style.set_title(figure, f"{title}\ndeterministic beside Bayesian{note}")
    return figure


def _shown_units(layers: list[np.ndarray]) -> list[np.ndarray]:
    """Units of each layer that are drawn, ascending; of the outputs, the first."""
    sizes = [np.abs(draws.mean(axis=0)).sum(axis=1) for draws in layers]
    largest = [np.sort(np.argsort(-size, kind="stable")[:MOST_UNITS]) for size in sizes]
    return [*largest, np.arange(min(MOST_UNITS, layers[-1].shape[2]))]


def _heights(units: int) -> np.ndarray:
    """Heights of a layer's units, one apart, about zero."""
    return (units - 1) / 2 - np.arange(units)


def _draw_units(axes: Axes, sizes: list[int], kept: list[int]) -> None:
    """Every unit as a dot, every connection as a line, and how many units are left out."""
    names = ["inputs", *(f"hidden {layer}" for layer in range(1, len(kept) - 1)), "outputs"]
    words = {"ha": "center", "fontsize": style.TICK_SIZE, "color": style.GREY}
    for layer, (size, units) in enumerate(zip(sizes, kept, strict=True)):
        heights = _heights(units)
        axes.text(layer, (max(kept) - 1) / 2 + 0.45, names[layer], **words)
        axes.plot(np.full(units, layer), heights, "o", color="black", markersize=9, zorder=3)
        if layer + 1 < len(kept):
            for start in heights:
                for end in _heights(kept[layer + 1]):
                    axes.plot([layer, layer + 1], [start, end], color="#BBBBBB", linewidth=0.7)
        if size > units:
            axes.text(layer, heights[-1] - 0.35, f"{size - units} more", **words)
    middle = max(kept) / 2
    axes.set(xlim=(-0.4, len(kept) - 0.6), ylim=(-middle, middle + 0.2))
    axes.set_axis_off()


def _places(draws: np.ndarray) -> np.ndarray:
    """Where along and how high each connection is written on, ``(input, output, 2)``.

    A share 1 / (outputs + 1) of the way along, the connections of all units lie evenly spaced
    one above the other, so that nothing covers anything else.
    """
    inputs, outputs = draws.shape[1:]
    share = 1 / (outputs + 1)
    start, end = np.meshgrid(_heights(inputs), _heights(outputs), indexing="ij")
    return np.stack([np.full(start.shape, share), (1 - share) * start + share * end], axis=-1)


def _write_numbers(axes: Axes, layer: int, draws: np.ndarray) -> None:
    means = draws.mean(axis=0)
    box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "#DDDDDD"}
    for place, mean in zip(_places(draws).reshape(-1, 2), means.ravel(), strict=True):
        axes.text(layer + place[0], place[1], f"{mean:+.1f}", ha="center", va="center",
                  fontsize=style.TICK_SIZE - 1, bbox=box, zorder=4)  # fmt: skip


def _draw_distributions(axes: Axes, layer: int, draws: np.ndarray) -> None:
    """A normal curve of every weight's mean and sd, all of a layer on one axis of weights."""
    from matplotlib.patches import Rectangle

    mean, sd = draws.mean(axis=0).ravel(), draws.std(axis=0).ravel()
    reach = 1.05 * float(np.max(np.abs(mean) + 3 * sd))
    at = np.linspace(-1, 1, 121)
    width, height = 0.16, 0.8 / (draws.shape[2] + 1)
    for place, m, s in zip(_places(draws).reshape(-1, 2), mean, sd, strict=True):
        x, bottom = layer + place[0], place[1] - height / 2
        curve = np.exp(-0.5 * ((at * reach - m) / max(s, 1e-9)) ** 2)
        corner = (x - width, bottom)
        box = {"facecolor": "white", "edgecolor": "#DDDDDD", "linewidth": 0.5, "zorder": 4}
        axes.add_patch(Rectangle(corner, 2 * width, height, **box))
        axes.vlines(x, bottom, bottom + 0.25 * height, color=style.GREY, linewidth=0.7, zorder=5)
        axes.fill_between(x + width * at, bottom, bottom + 0.9 * height * curve,
                          color=style.CLASS_COLOURS[0], linewidth=0, zorder=6)  # fmt: skip
