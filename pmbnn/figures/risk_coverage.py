"""How often a fit errs on the images it accepts, if it rejects those it is least sure of."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.figures.predictions import predictions_of
from pmbnn.prediction.rejection import risk_coverage
from pmbnn.results.reading import values_of

GROUP = "test_predictions"


def uncertainty_scores(trace: xr.DataTree) -> dict[str, np.ndarray]:
    """Uncertainty scores of every test image, by name.

    Raises
    ------
    ValueError
        If the trace has no group ``test_predictions``, or the group not what this needs.
    """
    predictions = predictions_of(trace, GROUP)
    return {
        "sd of the predicted class": predictions.uncertainty,
        "predictive entropy": values_of(trace, GROUP, "entropy"),
        "mutual information": values_of(trace, GROUP, "mutual_information"),
        "1 − highest probability": 1 - predictions.confidence.astype(np.float64),
    }


def plot_risk_coverage(trace: xr.DataTree, title: str) -> Figure:
    """Error rate among accepted test images against their share, by what is rejected first.

    The legend gives the area under each curve. The thin line rejects the mistakes themselves
    first, which no measure of uncertainty can do better.

    Raises
    ------
    ValueError
        If the trace has no group ``test_predictions``, or the group not what this needs.
    """
    ways = uncertainty_scores(trace)
    wrong = predictions_of(trace, GROUP).predicted != values_of(trace, GROUP, "label")
    figure = style.new_figure(7.5, 5.0)
    axes = figure.subplots()
    for number, (name, uncertainty) in enumerate(ways.items()):
        colour, line = style.CLASS_COLOURS[number], ("-", "--", "-.", ":")[number]
        _draw(axes, *risk_coverage(uncertainty, ~wrong), name, color=colour, linestyle=line)
    # Told apart by their places, for mistakes of equal uncertainty would all count at once.
    best = np.argsort(np.argsort(wrong, kind="stable"))
    name = "the mistakes themselves (best possible)"
    _draw(axes, *risk_coverage(best, ~wrong), name, color=style.GREY, linewidth=1)
    _finish(figure, axes, wrong)
    note = f"{wrong.sum()} of {len(wrong)} test images misclassified"
    style.set_title(figure, f"{title}\n{note}")
    return figure


def _draw(axes: Axes, coverage: np.ndarray, risk: np.ndarray, name: str, **kwargs) -> None:
    label = f"{name}: area {100 * risk.mean():.3f} %"
    # A logarithmic scale has no place for the stretch without mistakes.
    shown = np.where(risk > 0, 100 * risk, np.nan)
    axes.plot(100 * coverage, shown, label=label, **{"linewidth": 1.6} | kwargs)


def _finish(figure: Figure, axes: Axes, wrong: np.ndarray) -> None:
    axes.set_xlabel("test images accepted, in %", fontsize=style.LABEL_SIZE)
    axes.set_ylabel("misclassified among them, in %", fontsize=style.LABEL_SIZE)
    axes.tick_params(labelsize=style.TICK_SIZE)
    if not wrong.any():
        style.draw_empty(axes, "no test image is misclassified")
        return
    axes.set_xlim(0, 101)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(color="#E5E5E5", linewidth=0.8)
    handles, labels = axes.get_legend_handles_labels()
    below = {"loc": "outside lower center", "ncols": 2, "frameon": False}
    figure.legend(handles, labels, title="rejected first, by", fontsize=style.TICK_SIZE,
                  title_fontsize=style.TICK_SIZE, handlelength=3.5, **below)  # fmt: skip
