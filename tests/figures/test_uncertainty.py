"""Variance over classes and expected error rate of all held-out images."""

import numpy as np
import pytest
import xarray as xr

from pmbnn.figures.classification import (
    RATE_BINS,
    VARIANCE_BINS,
    plot_uncertainty,
    uncertainty_of,
)

TITLE = "MNIST: a cell"
GROUP = "validation_predictions"


@pytest.fixture(scope="module")
def drawn(full):
    """The four panels, with the arrays they were drawn from."""
    group = full[GROUP].dataset
    right = group["probability"].values.argmax(axis=1) == group["label"].values
    variance = (group["sd"].values.astype("f8") ** 2).sum(axis=1)
    return plot_uncertainty(full, TITLE).axes, group, right, variance


def heights(axes):
    return np.array([bar.get_height() for bar in axes.patches if hasattr(bar, "get_height")])


def outline(axes):
    """Heights of an outlined histogram: it goes up and down at every edge."""
    (polygon,) = (patch for patch in axes.patches if hasattr(patch, "get_xy") and patch.get_fill()
                  is False)  # fmt: skip
    return polygon.get_xy()[1:-1:2, 1]


def test_variance_is_summed_over_classes(full, drawn):
    *_, variance = drawn
    np.testing.assert_allclose(uncertainty_of(full, GROUP).variance, variance)


def test_histograms_of_the_variance(drawn):
    panels, _, right, variance = drawn
    clipped = np.maximum(variance, 1e-6)
    expected = np.histogram(clipped[~right], VARIANCE_BINS)[0]
    np.testing.assert_array_equal(heights(panels[0]), expected)
    expected = np.histogram(clipped[right], VARIANCE_BINS)[0]
    np.testing.assert_allclose(outline(panels[0]), expected, atol=1e-6)
    assert panels[0].get_xscale() == panels[0].get_yscale() == "log"


def test_an_error_rate_of_exactly_zero_has_its_own_bar(drawn):
    panels, group, right, _ = drawn
    # Shares of 20 draws are all at edges of bins; in single precision, 7 / 20 is below 0.35.
    agree = np.rint(20 * group["error_rate"].values[~right])
    expected = [np.sum(agree == 0), 0]
    expected += np.histogram(agree[agree > 0], np.rint(20 * RATE_BINS))[0].tolist()
    np.testing.assert_array_equal(heights(panels[1]), expected)
    assert outline(panels[1])[0] == pytest.approx(np.sum(group["error_rate"].values[right] == 0))
    assert "exactly 0" in [label.get_text() for label in panels[1].get_xticklabels()]


def test_expected_beside_actual_error_rate_of_each_class(drawn):
    panels, group, right, _ = drawn
    label, rate = group["label"].values, group["error_rate"].values
    means = [[100 * a[label == digit].mean() for digit in range(10)] for a in (rate, ~right)]
    np.testing.assert_allclose(heights(panels[3]), np.ravel(means), rtol=1e-5)


def test_medians_of_the_variance_by_class(drawn):
    panels, group, _, variance = drawn
    medians = panels[2].lines[4::5]
    expected = [np.median(variance[group["label"].values == digit]) for digit in range(10)]
    found = sorted(line.get_ydata()[0] for line in medians)
    np.testing.assert_allclose(found, sorted(np.maximum(expected, 1e-6)), rtol=1e-5)


def test_words_say_which_rows_and_how_many_of_each_kind(drawn, words):
    panels, _, right, _ = drawn
    found = words(panels[0].figure)
    assert f"{TITLE} {len(right)} validation images" in found
    assert f"correct ({right.sum()})" in found
    assert f"misclassified ({(~right).sum()})" in found


def test_without_validation_rows_test_rows_are_shown(made, words):
    found = words(plot_uncertainty(made.small_image_trace(), TITLE))
    assert f"{TITLE} 200 test images" in found


def test_certain_and_faultless_predictions_can_be_drawn(made, words):
    p = np.eye(10)[np.arange(40) % 9][None]
    group = made.predictions(p, "test_observation", np.arange(40) % 9)
    trace = xr.DataTree.from_dict({"/test_predictions": group})
    figure = plot_uncertainty(trace, TITLE)
    assert {"correct (40)", "misclassified (0)"} <= set(words(figure))
    assert heights(figure.axes[0]).sum() == 0
    assert outline(figure.axes[0])[0] == pytest.approx(40)


def test_a_trace_without_held_out_rows_is_rejected():
    with pytest.raises(ValueError, match="must have one of the groups"):
        plot_uncertainty(xr.DataTree(), TITLE)
