"""Where the weights of each layer are early in a fit and late: their means and their sds."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.figures.training import first_and_last, step_name
from pmbnn.results.reading import values_of

COLUMNS = {"mean": "posterior means", "sd": "posterior sds"}

LEAST = 1e-3
"""Share of the highest bar from which a bin counts as part of what is shown of an axis."""


def shown_tensors(names: list[str]) -> list[int]:
    """Places of the weights, without biases, which are too few for a histogram."""
    weights = [at for at, name in enumerate(names) if name.startswith("weight")]
    return weights or list(range(len(names)))


def shown_snapshots(trace: xr.DataTree) -> list[int]:
    """Places of the early and the late histograms.

    They are of the steps at which examples were kept, where there are such, so that the
    figures belong together.

    Raises
    ------
    ValueError
        If the trace has no snapshots in its group ``fit``.
    """
    steps = values_of(trace, "fit", "snapshot_step")
    if "snapshot_examples" in trace.children:
        asked = values_of(trace, "snapshot_examples", "snapshot_step")
        chosen = asked[first_and_last(asked)]
        if np.isin(chosen, steps).all():
            return [int(np.flatnonzero(steps == step)[0]) for step in chosen]
    return first_and_last(steps)


def plot_weights(trace: xr.DataTree, title: str) -> Figure:
    """Histograms of posterior means and sds, a row for each layer's weights.

    Each is scaled to its own highest bar, for the sds of an early step are all but equal.

    Raises
    ------
    ValueError
        If the trace has no histograms in its group ``fit``.
    """
    density = {
        kind: values_of(trace, "fit", f"snapshot_{kind}_density", "snapshot", "tensor", "bin")
        for kind in COLUMNS
    }
    edges = {k: values_of(trace, "fit", f"{k}_edge", "tensor", "edge") for k in COLUMNS}
    steps = values_of(trace, "fit", "snapshot_step")
    names = [str(name) for name in values_of(trace, "fit", "tensor")]
    tensors, snapshots = shown_tensors(names), shown_snapshots(trace)
    figure = style.new_figure(9.0, 1.6 * len(tensors) + 1.4)
    panels = figure.subplots(len(tensors), 2, squeeze=False)
    for line, tensor in zip(panels, tensors, strict=True):
        for axes, kind in zip(line, COLUMNS, strict=True):
            heights = density[kind][snapshots, tensor]
            labels = [step_name(steps[at]) for at in snapshots]
            _draw(axes, heights, edges[kind][tensor], labels)
        line[0].set_ylabel(names[tensor].replace("_", " "), fontsize=style.LABEL_SIZE)
    for axes, words in zip(panels[0], COLUMNS.values(), strict=True):
        axes.set_title(words, fontsize=style.LABEL_SIZE)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    below = {"loc": "outside lower center", "ncols": len(labels), "frameon": False}
    figure.legend(handles, labels, fontsize=style.LABEL_SIZE, **below)
    style.set_title(figure, f"{title}\neach histogram is scaled to its own highest bar")
    return figure


def _draw(axes: Axes, heights: np.ndarray, edges: np.ndarray, labels: list[str]) -> None:
    """Densities over each other, all filled lightly, cut to where they are."""
    highest = heights.max(axis=1, keepdims=True)
    heights = np.divide(heights, highest, out=np.zeros(heights.shape), where=highest > 0)
    for row, (density, label) in enumerate(zip(heights, labels, strict=True)):
        colour = style.CLASS_COLOURS[row]
        axes.stairs(density, edges, fill=True, color=colour, alpha=0.25)
        axes.stairs(density, edges, color=colour, linewidth=1.2, label=label)
    seen = np.flatnonzero((heights > LEAST).any(axis=0))
    if len(seen):
        axes.set_xlim(edges[seen[0]], edges[seen[-1] + 1])
    axes.set_ylim(0, 1.05)
    axes.set_yticks([])
    axes.tick_params(labelsize=style.TICK_SIZE)
