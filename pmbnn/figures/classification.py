"""Predicted classes of held-out rows: confusion, uncertainty, reliability, risk and coverage."""

from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from pmbnn.figures import style
from pmbnn.prediction.metrics import BINS, expected_calibration_error
from pmbnn.prediction.rejection import HELD_OUT, risk_coverage
from pmbnn.results.reading import group_of, values_of

OOD = "ood_"
"""Start of the names of groups with images that a classifier was never shown."""

MOMENTS = ("probability", "sd")


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
    probability, sd = (values_of(trace, group, name, ..., "output") for name in MOMENTS)
    classes = values_of(trace, group, "output", "output")
    return Predictions(tuple(map(str, classes)), probability, sd)


def held_out_group(trace: xr.DataTree) -> str:
    """Group of the digits that were not fitted: the validation ones where they are kept.

    Raises
    ------
    ValueError
        If the trace keeps neither.
    """
    found = [group for group in HELD_OUT if group in trace.children]
    if not found:
        raise ValueError(f"The trace must have one of the groups {', '.join(sorted(HELD_OUT))}.")
    return found[0]


def rows_name(group: str) -> str:
    """What the rows of a group are, in words: ``validation``, ``normal noise``."""
    return group.removesuffix("_predictions").removeprefix(OOD).replace("_", " ")


def ood_groups(trace: xr.DataTree) -> list[str]:
    """Groups of images that the classifier was never shown, in the order they are stored.

    Raises
    ------
    ValueError
        If the trace has none.
    """
    found = [group for group in trace.children if group.startswith(OOD)]
    if not found:
        raise ValueError(f"The trace must have a group whose name starts with `{OOD}`.")
    return found


# Which classes a fit takes for one another, and how sure it is of that


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


# How uncertain a fit is of all held-out images, and whether it errs where it expects to


VARIANCE = "variance over draws, summed over classes"
RATE = "expected error rate"

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
    found = uncertainty_of(trace, group)
    names = predictions_of(trace, group).classes
    figure = style.new_figure(10.5, 7.4)
    panels = figure.subplots(2, 2)
    _draw_variances(panels[0, 0], found)
    _draw_rates(panels[0, 1], found)
    _draw_variance_of_classes(panels[1, 0], found, names)
    _draw_rates_of_classes(panels[1, 1], found, names)
    for axes in panels.flat:
        axes.tick_params(labelsize=style.TICK_SIZE)
    style.set_title(figure, f"{title}\n{len(found.label)} {rows_name(group)} images")
    return figure


def _draw_variances(axes: Axes, found: Uncertainty) -> None:
    clipped = np.maximum(found.variance, VARIANCE_BINS[0])
    for values, style_of in _parts(clipped, found.right):
        axes.hist(values, VARIANCE_BINS, **style_of)
    axes.set_xscale("log")
    axes.set_xlabel(f"{VARIANCE} (at least $10^{{-6}}$)", fontsize=style.LABEL_SIZE)
    _finish_counts(axes, found.right)


def _draw_rates(axes: Axes, found: Uncertainty) -> None:
    zero = found.error_rate == 0
    width = RATE_BINS[1]
    edges = [NO_ERROR - width / 2, NO_ERROR + width / 2, *RATE_BINS]
    placed = np.where(zero, NO_ERROR, found.error_rate)
    for values, style_of in _parts(placed, found.right):
        axes.hist(values, edges, **style_of)
    axes.set_xticks([NO_ERROR, *RATE_BINS[::4]], ["exactly 0", "", "0.2", "0.4", "0.6", "0.8", "1"])
    axes.set_xlabel(RATE, fontsize=style.LABEL_SIZE)
    _finish_counts(axes, found.right)


def _parts(values: np.ndarray, right: np.ndarray):
    """Mistakes filled, and correct ones as an outline that does not hide them."""
    yield values[~right], {"color": WRONG, "alpha": 0.75}
    yield values[right], {"histtype": "step", "color": RIGHT, "linewidth": 1.4}


def _finish_counts(axes: Axes, right: np.ndarray) -> None:
    axes.set_yscale("log")
    axes.set_ylim(bottom=COUNTS_FROM)
    axes.set_ylabel("images (logarithmic scale)", fontsize=style.LABEL_SIZE)
    handles = [
        Patch(facecolor="none", edgecolor=RIGHT, label=f"correct ({right.sum()})"),
        Patch(color=WRONG, alpha=0.75, label=f"misclassified ({(~right).sum()})"),
    ]
    axes.legend(handles=handles, fontsize=style.TICK_SIZE)


def _draw_variance_of_classes(axes: Axes, found: Uncertainty, names: tuple[str, ...]) -> None:
    clipped = np.maximum(found.variance, VARIANCE_BINS[0])
    groups = [clipped[found.label == index] for index in range(len(names))]
    axes.boxplot(
        groups, positions=range(len(names)), whis=(5, 95), showfliers=False, widths=0.6,
        patch_artist=True, boxprops={"facecolor": "#CFE2F1"}, medianprops={"color": "black"},
    )  # fmt: skip
    axes.set_yscale("log")
    axes.set_ylabel(VARIANCE, fontsize=style.LABEL_SIZE)
    axes.set_title("quartiles, and 5 to 95 % of the images", fontsize=style.LABEL_SIZE)
    _name_classes(axes, names)


def _draw_rates_of_classes(axes: Axes, found: Uncertainty, names: tuple[str, ...]) -> None:
    bars = {
        "expected error rate": (found.error_rate, "#7FB2D9"),
        "actual error rate": (~found.right, WRONG),
    }
    for side, (label, (values, colour)) in zip((-0.2, 0.2), bars.items(), strict=True):
        heights = [
            100 * values[found.label == index].mean() if (found.label == index).any() else np.nan
            for index in range(len(names))
        ]
        axes.bar(np.arange(len(names)) + side, heights, 0.4, color=colour, label=label)
    axes.set_ylabel("mean over images, in %", fontsize=style.LABEL_SIZE)
    axes.legend(fontsize=style.TICK_SIZE)
    _name_classes(axes, names)


def _name_classes(axes: Axes, names: tuple[str, ...]) -> None:
    axes.set_xticks(range(len(names)), names)
    axes.set_xlabel("true class", fontsize=style.LABEL_SIZE)


# How often classes come true that were predicted with some probability


GROUP = "test_predictions"

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


def plot_reliability(trace: xr.DataTree, title: str) -> Figure:
    """Accuracy of test rows against the probability of the predicted class, with intervals.

    Below the diagonal, predictions are surer than they are right. The bins are those of the
    calibration error; below stands how many rows each has.

    Raises
    ------
    ValueError
        If the trace has no group ``test_predictions``, or the group not what this needs.
    """
    found, label = predictions_of(trace, GROUP), values_of(trace, GROUP, "label")
    bins = reliability(found.confidence, found.predicted == label)
    figure = style.new_figure(5.2, 5.6)
    axes, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    start = 1 / len(found.classes)
    axes.plot([start, 1], [start, 1], color=style.GREY, linewidth=1)
    colour = style.CLASS_COLOURS[0]
    axes.vlines(bins.confidence, bins.low, bins.high, color=colour, linewidth=1.4)
    axes.plot(bins.confidence, bins.accuracy, "o", color=colour, markersize=5)
    axes.set(xlim=(start - 0.02, 1.02), ylim=(-0.02, 1.02))
    axes.set_ylabel("share predicted correctly", fontsize=style.LABEL_SIZE)
    axes.grid(color="#E5E5E5", linewidth=0.8)
    below.bar(bins.confidence, bins.rows, width=0.5 / BINS, color=colour)
    below.set_yscale("log")
    below.set_ylim(0.5, 2 * bins.rows.max())
    below.yaxis.set_major_formatter("{x:g}")
    below.set_ylabel("rows", fontsize=style.LABEL_SIZE)
    below.set_xlabel("probability of the predicted class", fontsize=style.LABEL_SIZE)
    for panel in (axes, below):
        panel.tick_params(labelsize=style.TICK_SIZE)
    error = expected_calibration_error(found.probability.astype(np.float64), label)
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
    found = []
    for number in np.unique(index):
        own = index == number
        right, rows = int(correct[own].sum()), int(own.sum())
        ends = binomtest(right, rows).proportion_ci(LEVEL, method="wilson")
        found.append((confidence[own].mean(), right / rows, ends.low, ends.high, rows))
    return Bins(*map(np.array, zip(*found, strict=True)))


# How often a fit errs on the images it accepts, if it rejects those it is least sure of


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
