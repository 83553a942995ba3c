"""Which classes a fit takes for one another, and how sure it is of that."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.results.reading import group_of


def class_pairs(test: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Count and mean uncertainty of test rows by true and predicted class.

    Both have shape ``(true class, predicted class)``. Uncertainty is the standard deviation
    over posterior draws of the predicted class's probability; it is not a number where a
    pair never occurs.
    """
    axes = ("test_observation", "output")
    probability, sd = (test[name].transpose(*axes).values for name in ("probability", "sd"))
    true, predicted = test["label"].values, probability.argmax(axis=1)
    counts = np.zeros((probability.shape[1],) * 2, dtype=np.int64)
    total = np.zeros(counts.shape)
    np.add.at(counts, (true, predicted), 1)
    np.add.at(total, (true, predicted), sd[np.arange(len(true)), predicted])
    mean = np.divide(total, counts, out=np.full(counts.shape, np.nan), where=counts > 0)
    return counts, mean


def plot_class_pairs(trace: xr.DataTree, title: str) -> Figure:
    """Figure of true against predicted class: number of test images beside mean uncertainty.

    Pairs that never occur are blank. Counts are coloured on a logarithmic scale, for
    mistakes would not show beside the diagonal otherwise.

    Raises
    ------
    ValueError
        If the trace has no group ``test_predictions``.
    """
    test = group_of(trace, "test_predictions")
    names = [str(name) for name in test["output"].values]
    counts, mean = class_pairs(test)
    side = max(3.6, 0.42 * len(names))
    figure = style.new_figure(2 * (side + 1.2), side + 0.8)
    left, right = figure.subplots(1, 2)
    _draw_counts(figure, left, counts)
    _draw_uncertainty(figure, right, mean)
    for axes in (left, right):
        axes.set_xticks(range(len(names)), names, fontsize=style.TICK_SIZE)
        axes.set_yticks(range(len(names)), names, fontsize=style.TICK_SIZE)
        axes.set_xlabel("predicted class", fontsize=style.LABEL_SIZE)
        axes.set_ylabel("true class", fontsize=style.LABEL_SIZE)
        axes.set_facecolor("white")
    style.set_title(figure, title)
    return figure


def _draw_counts(figure: Figure, axes: Axes, counts: np.ndarray) -> None:
    shown = np.ma.masked_equal(counts, 0)
    # Twice the largest at least: a logarithmic scale needs two different ends.
    scale = LogNorm(1, max(2, counts.max()))
    image = axes.imshow(shown, cmap=style.COUNTS, norm=scale)
    words = [[str(n) if n else "" for n in line] for line in counts]
    style.draw_numbers(axes, image, words, style.TICK_SIZE)
    label = "test images (logarithmic scale)"
    style.add_colour_bar(figure, image, axes, label, shrink=0.85, format="{x:.0f}")


def _draw_uncertainty(figure: Figure, axes: Axes, mean: np.ndarray) -> None:
    highest = style.upper_limit([mean], 0.5)
    image = style.draw_image(axes, np.ma.masked_invalid(mean), style.UNCERTAINTY, (0.0, highest))
    words = [["" if np.isnan(v) else f"{v:.2f}".lstrip("0") for v in line] for line in mean]
    style.draw_numbers(axes, image, words, style.TICK_SIZE - 1)
    label = "mean sd of the predicted class's probability"
    style.add_colour_bar(figure, image, axes, label, shrink=0.85)
