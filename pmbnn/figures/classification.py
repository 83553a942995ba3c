"""Predicted classes of held-out rows: confusion, uncertainty, reliability, risk and coverage."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from pmbnn.figures import style
from pmbnn.prediction.class_probabilities import HELD_OUT, risk_coverage
from pmbnn.prediction.metrics import BINS, expected_calibration_error
from pmbnn.results.reading import values_of

TEST = "test_predictions"

OOD = "ood_"
"""Start of the names of groups with images that a classifier was never shown."""


class Predictions(NamedTuple):
    """Moments over posterior draws of each class's probability, ``(image, class)``."""

    classes: tuple[str, ...]
    probability: np.ndarray
    sd: np.ndarray

    @property
    def predicted(self) -> np.ndarray:
        """Index of the most probable class, ``(image,)``."""
        return self.probability.argmax(axis=1)

    @property
    def confidence(self) -> np.ndarray:
        """Probability of the predicted class, ``(image,)``."""
        return self.probability.max(axis=1)

    @property
    def uncertainty(self) -> np.ndarray:
        """Standard deviation of the predicted class's probability, ``(image,)``."""
        return np.take_along_axis(self.sd, self.predicted[:, None], axis=1)[:, 0]

    @property
    def entropy(self) -> np.ndarray:
        """Entropy of the mean probabilities in bits, ``(image,)``."""
        p = np.asarray(self.probability, np.float64)
        return -np.sum(p * np.log2(np.maximum(p, np.finfo(np.float64).tiny)), axis=1)

    def take(self, rows: np.ndarray) -> "Predictions":
        """Predictions of some of the images."""
        return self._replace(probability=self.probability[rows], sd=self.sd[rows])


def predictions_of(trace: xr.DataTree, group: str) -> Predictions:
    """Predictions of a group of images.

    Raises
    ------
    ValueError
        If the trace does not have the group.
    """
    probability, sd = (
        values_of(trace, group, moment, ..., "output") for moment in ("probability", "sd")
    )
    classes = values_of(trace, group, "output", "output")
    return Predictions(tuple(map(str, classes)), probability, sd)


def held_out_group(trace: xr.DataTree) -> str:
    """Group of the digits that were not fitted: the validation ones where they are kept.

    Raises
    ------
    ValueError
        If the trace keeps neither.
    """
    group = next((group for group in HELD_OUT if group in trace.children), None)
    if group is None:
        raise ValueError(f"The trace must have one of the groups {', '.join(sorted(HELD_OUT))}.")
    return group


def rows_name(group: str) -> str:
    """Name of the rows of a group, in words: ``validation``, ``normal noise``."""
    return group.removesuffix("_predictions").removeprefix(OOD).replace("_", " ")


def ood_groups(trace: xr.DataTree) -> list[str]:
    """Groups of images that the classifier was never shown, in the order they are stored.

    Raises
    ------
    ValueError
        If the trace has none.
    """
    groups = [group for group in trace.children if group.startswith(OOD)]
    if not groups:
        raise ValueError(f"The trace must have a group whose name starts with `{OOD}`.")
    return groups


# Which classes a fit takes for one another, and how sure it is of that


def class_pairs(predictions: Predictions, label: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Count and mean uncertainty of rows by true and predicted class.

    Both have shape ``(true class, predicted class)``. Uncertainty is the standard deviation
    over posterior draws of the predicted class's probability; it is not a number where a
    pair never occurs.
    """
    pairs = label, predictions.predicted
    counts = np.zeros((len(predictions.classes),) * 2, dtype=np.int64)
    total = np.zeros(counts.shape)
    np.add.at(counts, pairs, 1)
    np.add.at(total, pairs, predictions.uncertainty)
    mean = np.divide(total, counts, out=np.full(counts.shape, np.nan), where=counts > 0)
    return counts, mean


@style.with_sizes
def plot_class_pairs(trace: xr.DataTree, title: str) -> Figure:
    """Figure of true against predicted class: number of test images beside mean uncertainty.

    Pairs that never occur are blank. Counts are coloured on a logarithmic scale, for
    mistakes would not show beside the diagonal otherwise.

    Raises
    ------
    ValueError
        If the trace has no group ``test_predictions``.
    """
    predictions = predictions_of(trace, TEST)
    names = predictions.classes
    counts, mean = class_pairs(predictions, values_of(trace, TEST, "label"))
    side = max(3.6, 0.42 * len(names))
    figure = style.new_figure(2 * (side + 1.2), side + 0.8)
    left, right = figure.subplots(1, 2)
    _draw_counts(figure, left, counts)
    _draw_uncertainty(figure, right, mean)
    for axes in (left, right):
        style.name_columns(axes, names, side / len(names))
        axes.set_yticks(range(len(names)), names)
        axes.set_xlabel("predicted class")
        axes.set_ylabel("true class")
        axes.set_facecolor("white")
    style.set_title(figure, title)
    return figure


def _draw_counts(figure: Figure, axes: Axes, counts: np.ndarray) -> None:
    # Twice the largest at least: a logarithmic scale needs two different ends.
    scale = LogNorm(1, max(2, counts.max()))
    image = axes.imshow(np.ma.masked_equal(counts, 0), cmap=style.COUNTS, norm=scale)
    texts = [[str(n) if n else "" for n in line] for line in counts]
    style.draw_texts(axes, image, texts, style.TICK_SIZE)
    label = "test images (logarithmic scale)"
    figure.colorbar(image, ax=axes, label=label, shrink=0.85, format="{x:.0f}")


def _draw_uncertainty(figure: Figure, axes: Axes, mean: np.ndarray) -> None:
    colours = {"cmap": style.UNCERTAINTY, "vmin": 0, "vmax": style.upper_limit([mean], 0.5)}
    image = axes.imshow(np.ma.masked_invalid(mean), interpolation="nearest", **colours)
    texts = [["" if np.isnan(v) else f"{v:.2f}".lstrip("0") for v in line] for line in mean]
    style.draw_texts(axes, image, texts, style.TICK_SIZE - 1)
    label = "mean sd of the predicted class's probability"
    figure.colorbar(image, ax=axes, label=label, shrink=0.85)


# How uncertain a fit is of all held-out images, and whether it errs where it expects to


VARIANCE = "variance over draws, summed over classes"

VARIANCE_BINS = np.logspace(-6, 0, 37)
"""The variance cannot reach 1. What is below the first edge is counted in the first bin."""

RATE_BINS = np.linspace(0.0, 1.0, 21)
NO_ERROR = -0.1
"""Where the bar of an expected error rate of exactly zero stands: clear of the next one."""

RIGHT, WRONG = style.CLASS_COLOURS[:2]
COUNTS_FROM = 0.7
"""Lower end of the counts, on a logarithmic scale: a bar of 1 must be seen."""


class Uncertainty(NamedTuple):
    """Two measures of uncertainty of every image, with its true class and correctness.

    ``variance`` is over posterior draws, of each class's probability, summed over classes;
    ``error_rate`` is the share of draws that say another class than the predicted one.
    """

    variance: np.ndarray
    error_rate: np.ndarray
    label: np.ndarray
    right: np.ndarray


def uncertainty_of(trace: xr.DataTree, group: str) -> Uncertainty:
    """Uncertainty of the images of a group.

    Raises
    ------
    ValueError
        If the trace does not have the group, or the group not what this needs.
    """
    predictions = predictions_of(trace, group)
    label, rate = (values_of(trace, group, name) for name in ("label", "error_rate"))
    variance = np.sum(predictions.sd.astype(np.float64) ** 2, axis=1)
    return Uncertainty(variance, rate, label, predictions.predicted == label)


@style.with_sizes
def plot_uncertainty(trace: xr.DataTree, title: str) -> Figure:
    """Variance over classes and expected error rate of all held-out images.

    Above, their histograms for images that are classified correctly and for others; below,
    both by true class, the expected error rate beside the actual one. Validation images are
    shown where the trace keeps them, else those of the test rows.

    Raises
    ------
    ValueError
        If the trace keeps neither.
    """
    group = held_out_group(trace)
    uncertainty, names = uncertainty_of(trace, group), predictions_of(trace, group).classes
    by_class = [uncertainty.label == index for index in range(len(names))]
    variance = np.maximum(uncertainty.variance, VARIANCE_BINS[0])
    figure = style.new_figure(10.5, 7.4)
    panels = figure.subplots(2, 2)
    _draw_variances(panels[0, 0], variance, uncertainty.right)
    _draw_rates(panels[0, 1], uncertainty)
    _draw_variance_of_classes(panels[1, 0], [variance[rows] for rows in by_class])
    _draw_rates_of_classes(panels[1, 1], uncertainty, by_class)
    for axes in panels[1]:
        style.name_columns(axes, names, 4.4 / len(names))
        axes.set_xlabel("true class")
    style.set_title(figure, f"{title}\n{len(uncertainty.label)} {rows_name(group)} images")
    return figure


def _draw_variances(axes: Axes, variance: np.ndarray, right: np.ndarray) -> None:
    for values, look in _parts(variance, right):
        axes.hist(values, VARIANCE_BINS, **look)
    axes.set_xscale("log")
    axes.set_xlabel(f"{VARIANCE} (at least 10⁻⁶)")
    _finish_counts(axes, right)


def _draw_rates(axes: Axes, uncertainty: Uncertainty) -> None:
    width = RATE_BINS[1]
    edges = [NO_ERROR - width / 2, NO_ERROR + width / 2, *RATE_BINS]
    # Rates are shares of draws, in single precision: some were a hair below the edge they are at.
    rate = np.minimum(uncertainty.error_rate + 1e-6, 1)
    placed = np.where(uncertainty.error_rate == 0, NO_ERROR, rate)
    for values, look in _parts(placed, uncertainty.right):
        axes.hist(values, edges, **look)
    axes.set_xticks([NO_ERROR, *RATE_BINS[::4]], ["exactly 0", "", "0.2", "0.4", "0.6", "0.8", "1"])
    axes.set_xlabel("expected error rate")
    _finish_counts(axes, uncertainty.right)


def _parts(values: np.ndarray, right: np.ndarray) -> Iterator[tuple[np.ndarray, dict[str, Any]]]:
    """Values of mistakes, filled, and of the others, as an outline that does not hide them."""
    yield values[~right], {"color": WRONG, "alpha": 0.75}
    yield values[right], {"histtype": "step", "color": RIGHT, "linewidth": 1.4}


def _finish_counts(axes: Axes, right: np.ndarray) -> None:
    axes.set_yscale("log")
    axes.set_ylim(bottom=COUNTS_FROM)
    axes.set_ylabel("images (logarithmic scale)")
    handles = [
        Patch(facecolor="none", edgecolor=RIGHT, label=f"correct ({right.sum()})"),
        Patch(color=WRONG, alpha=0.75, label=f"misclassified ({(~right).sum()})"),
    ]
    axes.legend(handles=handles)


def _draw_variance_of_classes(axes: Axes, variances: list[np.ndarray]) -> None:
    axes.boxplot(
        variances, positions=range(len(variances)), whis=(5, 95), showfliers=False, widths=0.6,
        patch_artist=True, boxprops={"facecolor": "#CFE2F1"}, medianprops={"color": "black"},
    )  # fmt: skip
    axes.set_yscale("log")
    axes.set_ylabel(VARIANCE)
    axes.set_title("quartiles, and 5 to 95 % of the images")


def _draw_rates_of_classes(
    axes: Axes, uncertainty: Uncertainty, by_class: list[np.ndarray]
) -> None:
    bars = {
        "expected error rate": (-0.2, uncertainty.error_rate, "#7FB2D9"),
        "actual error rate": (0.2, ~uncertainty.right, WRONG),
    }
    for label, (side, values, colour) in bars.items():
        heights = [100 * values[rows].mean() if rows.any() else np.nan for rows in by_class]
        axes.bar(np.arange(len(by_class)) + side, heights, 0.4, color=colour, label=label)
    axes.set_ylabel("mean over images, in %")
    axes.legend()


# How often classes come true that were predicted with some probability


LEVEL = 0.95
"""Confidence of the intervals of each bin's accuracy."""


class Bins(NamedTuple):
    """Predictions by their confidence; of the bins that have any, ``(bin,)`` each.

    Attributes
    ----------
    confidence, accuracy
        Means over a bin.
    low, high
        Interval of the accuracy.
    rows
        How many there are.
    """

    confidence: np.ndarray
    accuracy: np.ndarray
    low: np.ndarray
    high: np.ndarray
    rows: np.ndarray


@style.with_sizes
def plot_reliability(trace: xr.DataTree, title: str) -> Figure:
    """Accuracy of test rows against the probability of the predicted class, with intervals.

    Below the diagonal, predictions are surer than they are right. The bins are those of the
    calibration error; below stands how many rows each has.

    Raises
    ------
    ValueError
        If the trace has no group ``test_predictions``, or the group not what this needs.
    """
    predictions, label = predictions_of(trace, TEST), values_of(trace, TEST, "label")
    bins = reliability(predictions.confidence, predictions.predicted == label)
    figure = style.new_figure(5.2, 5.6)
    axes, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    start, colour = 1 / len(predictions.classes), style.CLASS_COLOURS[0]
    axes.plot([start, 1], [start, 1], color=style.GREY, linewidth=1)
    axes.vlines(bins.confidence, bins.low, bins.high, color=colour, linewidth=1.4)
    axes.plot(bins.confidence, bins.accuracy, "o", color=colour, markersize=5)
    axes.set(xlim=(start - 0.02, 1.02), ylim=(-0.02, 1.02), ylabel="share predicted correctly")
    axes.grid(True)
    below.bar(bins.confidence, bins.rows, width=0.5 / BINS, color=colour)
    below.set_yscale("log")
    below.set(ylim=(0.5, 2 * bins.rows.max()), ylabel="rows")
    below.yaxis.set_major_formatter("{x:g}")
    below.set_xlabel("probability of the predicted class")
    error = expected_calibration_error(predictions.probability.astype(np.float64), label)
    note = f"{LEVEL:.0%} intervals of each bin; expected calibration error {error:.3f}"
    style.set_title(figure, f"{title}\n{note}, {len(label)} test rows")
    return figure


def reliability(confidence: np.ndarray, correct: np.ndarray) -> Bins:
    """Accuracy of predictions by their confidence, in bins of equal width.

    Parameters
    ----------
    confidence, correct
        Probability of the predicted class, and whether it was right, ``(observation,)``.

    References
    ----------
    Guo et al. (2017), On Calibration of Modern Neural Networks, section 2; the intervals are those
    of Wilson (1927), Probable inference, the law of succession, and statistical inference.
    """
    from scipy.stats import binomtest

    confidence = np.asarray(confidence, np.float64)
    # A confidence of exactly 1 belongs into the last bin.
    index = np.minimum((confidence * BINS).astype(int), BINS - 1)
    bins = []
    for number in np.unique(index):
        chosen = index == number
        right, rows = int(correct[chosen].sum()), int(chosen.sum())
        interval = binomtest(right, rows).proportion_ci(LEVEL, method="wilson")
        bins.append((confidence[chosen].mean(), right / rows, *interval, rows))
    return Bins(*map(np.array, zip(*bins, strict=True)))


# How often a fit errs on the images it accepts, if it rejects those it is least sure of


def uncertainty_scores(trace: xr.DataTree) -> dict[str, np.ndarray]:
    """Uncertainty scores of every test image, by name.

    Raises
    ------
    ValueError
        If the trace has no group ``test_predictions``, or the group not what this needs.
    """
    predictions = predictions_of(trace, TEST)
    return {
        "sd of the predicted class": predictions.uncertainty,
        "predictive entropy": values_of(trace, TEST, "entropy"),
        "mutual information": values_of(trace, TEST, "mutual_information"),
        "1 − highest probability": 1 - predictions.confidence.astype(np.float64),
    }


@style.with_sizes
def plot_risk_coverage(trace: xr.DataTree, title: str) -> Figure:
    """Error rate among accepted test images against their share, by what is rejected first.

    The legend gives the area under each curve. The thin line rejects the mistakes themselves
    first, which no measure of uncertainty can do better.

    Raises
    ------
    ValueError
        If the trace has no group ``test_predictions``, or the group not what this needs.
    """
    scores = uncertainty_scores(trace)
    wrong = predictions_of(trace, TEST).predicted != values_of(trace, TEST, "label")
    figure = style.new_figure(7.5, 5.0)
    axes = figure.subplots()
    for number, (name, uncertainty) in enumerate(scores.items()):
        colour, line = style.CLASS_COLOURS[number], ("-", "--", "-.", ":")[number]
        _draw_curve(axes, uncertainty, ~wrong, name, color=colour, linestyle=line, linewidth=1.6)
    # Told apart by their places, for mistakes of equal uncertainty would all count at once.
    best = np.argsort(np.argsort(wrong, kind="stable"))
    name = "the mistakes themselves (best possible)"
    _draw_curve(axes, best, ~wrong, name, color=style.GREY, linewidth=1)
    axes.set_xlabel("test images accepted, in %")
    axes.set_ylabel("misclassified among them, in %")
    if wrong.any():
        axes.set_xlim(0, 101)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.grid(True)
        handles, labels = axes.get_legend_handles_labels()
        heading = {"title": "rejected first, by", "handlelength": 3.5}
        figure.legend(handles, labels, ncols=2, **heading, **style.BELOW)
    else:
        style.draw_empty(axes, "no test image is misclassified")
    note = f"{wrong.sum()} of {len(wrong)} test images misclassified"
    style.set_title(figure, f"{title}\n{note}")
    return figure


def _draw_curve(
    axes: Axes, uncertainty: np.ndarray, correct: np.ndarray, name: str, **look
) -> None:
    coverage, risk = risk_coverage(uncertainty, correct)
    # A logarithmic scale has no place for the stretch without mistakes.
    shown = np.where(risk > 0, 100 * risk, np.nan)
    axes.plot(100 * coverage, shown, label=f"{name}: area {100 * risk.mean():.3f} %", **look)
