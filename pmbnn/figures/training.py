"""Diagnostics of a fit over its steps."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.results.reading import (
    group_of,
    values_of,
)

DIAGNOSTICS = {
    "accuracy": ("accuracy", ""),
    "elbo": ("ELBO", "nats per row"),
    "log_likelihood": ("expected log-likelihood", "nats per row"),
    "kl": ("KL", "nats per row"),
    "evidence": ("mean approximate evidence", ""),
}
"""Name of each diagnostic in words, and its unit if it has one, by its name in a trace."""

PANELS_A_ROW = 3
"""Panels beside each other at most."""

WIDE = 30.0
"""Ratio of the largest to the smallest size from which a scale is logarithmic: below, a linear
one shows both."""


def first_and_last(steps: np.ndarray) -> list[int]:
    """Indices of the first snapshot after the start and of the last; one if they are the same."""
    first, last = int(np.argmax(steps > 0)), len(steps) - 1
    return [first, last] if last > first else [last]


def step_name(step: int) -> str:
    """A step in words: ``step 6,000``."""
    return f"step {int(step):,}"


@style.with_sizes
def plot_training(trace: xr.DataTree, title: str, objective: str = "ELBO") -> Figure:
    """Every diagnostic that was recorded against the step, by part of the data.

    Scales are linear in size, or logarithmic where values differ much in size.

    Parameters
    ----------
    trace
        Trace with diagnostics in its group ``fit``.
    title
        Title of the figure.
    objective
        Name of what the fit maximised, which the trace has as ``elbo``. If it is no ELBO, there is
        no panel of a divergence or an evidence; that of a log-likelihood is shown once.

    Raises
    ------
    ValueError
        If the trace has no diagnostics in its group ``fit``.
    """
    steps = values_of(trace, "fit", "snapshot_step")
    fit = group_of(trace, "fit")
    left_out = () if objective == "ELBO" else ("kl", "evidence")
    left_out += ("elbo",) if objective == "log-likelihood" else ()
    shown = [n for n in DIAGNOSTICS if f"snapshot_{n}" in fit and n not in left_out]
    if not shown:
        raise ValueError("The group `fit` must have `snapshot_accuracy`.")
    rows = -(-len(shown) // PANELS_A_ROW)
    figure = style.new_figure(11.0, 3.0 * rows + 1.0)
    panels = list(figure.subplots(rows, min(PANELS_A_ROW, len(shown)), squeeze=False).flat)
    for axes, name in zip(panels, shown, strict=False):
        _draw_values(axes, steps, fit[f"snapshot_{name}"])
        heading, unit = DIAGNOSTICS[name]
        scale = "logarithmic scale" if axes.get_yscale() != "linear" else ""
        heading = objective if name == "elbo" else heading
        axes.set(title=heading, ylabel=", ".join(filter(None, (unit, scale))))
    for axes in panels[len(shown) :]:
        axes.set_axis_off()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=style.LABEL_SIZE, ncols=len(labels), **style.BELOW)
    style.set_title(figure, title)
    return figure


def _draw_values(axes: Axes, steps: np.ndarray, values: xr.DataArray) -> None:
    """Draw one line for each part, or one for all where the diagnostic has no parts."""
    if "part" in values.dims:
        lines = values.transpose("part", "snapshot").values
        for number, (part, line) in enumerate(zip(values["part"].values, lines, strict=True)):
            colour, marker = style.CLASS_COLOURS[number], style.MARKERS[number]
            axes.plot(steps, line, color=colour, marker=marker, markersize=3.5, label=str(part))
    else:
        axes.plot(steps, values.values, color="black", marker="o", markersize=3.5)
    _scale(axes, values.values)
    axes.set_xlabel("step")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.get_major_locator().set_params(nbins=5)
    axes.grid(True)


def _scale(axes: Axes, values: np.ndarray) -> None:
    """Make an axis logarithmic where values of one sign differ much in size; up is greater."""
    finite = values[np.isfinite(values)]
    sizes = np.abs(finite)
    one_sign = len(finite) and (finite.min() > 0 or finite.max() < 0)
    if not one_sign or sizes.max() < WIDE * sizes.min():
        return
    if finite.min() > 0:
        axes.set_yscale("log")
    else:
        axes.set_yscale("symlog", linthresh=float(sizes.min()))
    axes.yaxis.set_major_formatter("{x:g}")
