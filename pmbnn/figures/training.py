"""What became of a fit's diagnostics over its steps, and which of its snapshots are shown."""

from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.results.reading import group_of, values_of


class Diagnostic(NamedTuple):
    """Name of a diagnostic in a trace, what it is in words, and its unit if it has one."""

    name: str
    words: str
    unit: str = ""


DIAGNOSTICS = (
    Diagnostic("accuracy", "accuracy"),
    Diagnostic("elbo", "ELBO", "nats per image"),
    Diagnostic("log_likelihood", "expected log-likelihood", "nats per image"),
    Diagnostic("kl", "KL", "nats per image"),
    Diagnostic("evidence", "mean approximate evidence"),
)

WIDE = 30.0
"""Ratio of the largest to the smallest size from which a scale is logarithmic: below, a linear
one shows both."""


def first_and_last(steps: np.ndarray) -> list[int]:
    """Places of the first snapshot after the start and of the last; one if they are the same."""
    after_start = np.flatnonzero(steps > 0)
    first = int(after_start[0]) if len(after_start) else 0
    last = len(steps) - 1
    return [first, last] if last > first else [last]


def step_name(step: int) -> str:
    """A step in words: ``step 6,000``."""
    return f"step {int(step):,}"


def plot_training(trace: xr.DataTree, title: str) -> Figure:
    """Every diagnostic that was recorded against the step, by part of the data.

    Scales are linear in size, or logarithmic where values differ much in size.

    Raises
    ------
    ValueError
        If the trace has no diagnostics in its group ``fit``.
    """
    steps = values_of(trace, "fit", "snapshot_step")
    held = group_of(trace, "fit")
    shown = [d for d in DIAGNOSTICS if f"snapshot_{d.name}" in held]
    if not shown:
        raise ValueError("The group `fit` must have `snapshot_accuracy`.")
    rows = -(-len(shown) // 3)
    figure = style.new_figure(11.0, 3.0 * rows + 1.0)
    panels = figure.subplots(rows, min(3, len(shown)), squeeze=False).flat
    for axes, diagnostic in zip(panels, shown, strict=False):
        _draw(axes, steps, held[f"snapshot_{diagnostic.name}"])
        logarithmic = "logarithmic scale" if axes.get_yscale() != "linear" else ""
        axes.set_title(diagnostic.words, fontsize=style.LABEL_SIZE)
        words = ", ".join(filter(None, (diagnostic.unit, logarithmic)))
        axes.set_ylabel(words, fontsize=style.LABEL_SIZE)
    for axes in figure.axes[len(shown) :]:
        axes.set_axis_off()
    handles, labels = figure.axes[0].get_legend_handles_labels()
    below = {"loc": "outside lower center", "ncols": len(labels), "frameon": False}
    figure.legend(handles, labels, fontsize=style.LABEL_SIZE, **below)
    style.set_title(figure, title)
    return figure


def _draw(axes: Axes, steps: np.ndarray, values: xr.DataArray) -> None:
    """One line for each part, or one for all where the diagnostic has no parts."""
    if "part" in values.dims:
        for number, part in enumerate(values["part"].values):
            line = values.transpose("part", "snapshot").values[number]
            colour, marker = style.CLASS_COLOURS[number], style.MARKERS[number]
            axes.plot(steps, line, color=colour, marker=marker, markersize=3.5, label=str(part))
    else:
        axes.plot(steps, values.values, color="black", marker="o", markersize=3.5)
    _scale(axes, values.values)
    axes.set_xlabel("step", fontsize=style.LABEL_SIZE)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.get_major_locator().set_params(nbins=5)
    axes.tick_params(labelsize=style.TICK_SIZE)
    axes.grid(color="#E5E5E5", linewidth=0.8)


def _scale(axes: Axes, values: np.ndarray) -> None:
    """Logarithmic in size where values of one sign differ much, growing upwards as always."""
    sizes = np.abs(values[np.isfinite(values)])
    one_sign = len(sizes) and (np.nanmin(values) > 0 or np.nanmax(values) < 0)
    if not one_sign or sizes.max() < WIDE * sizes.min():
        return
    if np.nanmin(values) > 0:
        axes.set_yscale("log")
    else:
        axes.set_yscale("symlog", linthresh=float(sizes.min()))
    axes.yaxis.set_major_formatter("{x:g}")
