"""Class against class."""

from itertools import pairwise

import numpy as np
import pytest
import xarray as xr
from matplotlib.colors import LogNorm

from pmbnn.figures.classification import class_pairs, plot_class_pairs, predictions_of

TITLE = "MNIST: Normal prior, half-normal hyperprior, accuracy 0.500"


@pytest.fixture
def trace():
    """Four images of three classes: 0 right twice, 1 taken for 2, 2 for 0."""
    probability = [[0.8, 0.1, 0.1], [0.6, 0.2, 0.2], [0.1, 0.2, 0.7], [0.5, 0.3, 0.2]]
    sd = [[0.1, 0.9, 0.9], [0.3, 0.9, 0.9], [0.9, 0.9, 0.25], [0.4, 0.9, 0.9]]
    axes = ("test_observation", "output")
    test = {"probability": (axes, probability), "sd": (axes, sd)}
    test["label"] = (axes[:1], [0, 0, 1, 2])
    coords = {"output": ["a", "b", "c"]}
    return xr.DataTree.from_dict({"/test_predictions": xr.Dataset(test, coords)})


def test_counts_and_mean_uncertainty_of_the_predicted_class(trace):
    label = trace["test_predictions"]["label"].values
    counts, mean = class_pairs(predictions_of(trace, "test_predictions"), label)
    np.testing.assert_array_equal(counts, [[2, 0, 0], [0, 0, 1], [1, 0, 0]])
    nan = np.nan
    np.testing.assert_allclose(mean, [[0.2, nan, nan], [nan, nan, 0.25], [0.4, nan, nan]])


def test_true_classes_go_down_and_predicted_ones_across(trace):
    left, right, *_ = plot_class_pairs(trace, TITLE).axes
    assert {t.get_position(): t.get_text() for t in left.texts} == {
        (0, 0): "2",
        (2, 1): "1",
        (0, 2): "1",
    }
    assert {t.get_position(): t.get_text() for t in right.texts} == {
        (0, 0): ".20",
        (2, 1): ".25",
        (0, 2): ".40",
    }
    for axes in (left, right):
        assert axes.get_xlabel() == "predicted class"
        assert axes.get_ylabel() == "true class"
        assert [t.get_text() for t in axes.get_xticklabels()] == ["a", "b", "c"]


def test_pairs_without_images_are_blank(trace):
    for axes in plot_class_pairs(trace, TITLE).axes[:2]:
        blank = np.ma.getmaskarray(axes.images[0].get_array())
        np.testing.assert_array_equal(blank, [[0, 1, 1], [1, 1, 0], [0, 1, 1]])


def test_counts_have_logarithmic_colours(trace):
    assert isinstance(plot_class_pairs(trace, TITLE).axes[0].images[0].norm, LogNorm)


def test_words_of_the_figure(made, words):
    found = words(plot_class_pairs(made.small_image_trace(), TITLE))
    assert TITLE in found
    assert "test images (logarithmic scale)" in found
    assert "mean sd of the predicted class's probability" in found


def test_a_trace_without_test_predictions_is_rejected():
    with pytest.raises(ValueError, match="must have a group `test_predictions`, got none"):
        plot_class_pairs(xr.DataTree(), TITLE)


def test_names_of_classes_stand_as_they_are_and_apart(trace):
    """Between two signs of a dollar matplotlib reads a formula; long names covered each other."""
    names = ["$5-$10, a range with a long name", "$10-$20", "c_d^e"]
    trace["test_predictions"] = xr.DataTree(
        trace["test_predictions"].to_dataset().assign_coords(output=names)
    )
    figure = plot_class_pairs(trace, TITLE)
    figure.draw_without_rendering()
    for axes in figure.axes[:2]:
        labels = axes.get_xticklabels()
        assert [label.get_text() for label in labels] == names
        assert not any(label.get_parse_math() for label in (*labels, *axes.get_yticklabels()))
        ends = [label.get_window_extent().extents[[0, 2]] for label in labels]
        assert all(one[1] < other[0] for one, other in pairwise(ends))
