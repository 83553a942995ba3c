"""Pictures of lowest confidence."""

import numpy as np
import pytest
import xarray as xr

from pmbnn.figures.least_confident import least_confident, plot_least_confident

TITLE = "MNIST: a cell"


@pytest.fixture(scope="module")
def trace(made):
    return made.small_image_trace()


def test_the_least_confident_of_all_rows_in_order(trace):
    p = trace["test_predictions"]["probability"].values
    expected = np.argsort(p.max(axis=1), kind="stable")[:24]
    assert [picture.row for picture in least_confident(trace)] == expected.tolist()


def test_each_is_shown_with_both_classes_and_the_probability(trace, words):
    figure = plot_least_confident(trace, TITLE)
    assert len(figure.axes) == 24
    for axes, picture in zip(figure.axes, least_confident(trace), strict=True):
        np.testing.assert_array_equal(axes.images[0].get_array(), picture.image)
        wrong = "" if picture.right else " (wrong)"
        expected = f"{picture.true}, called {picture.predicted}{wrong}\n{picture.probability:.2f}"
        assert axes.get_title() == expected
    assert any("the 24 test images of lowest confidence" in word for word in words(figure))


def test_validation_images_are_shown_where_they_are_kept(trace, made, words):
    held_out = made.small_image_trace(seed=1)["test_predictions"].to_dataset()
    held_out = held_out.rename(test_observation="validation_observation")
    both = made.both(trace, xr.DataTree.from_dict({"/validation_predictions": held_out}))
    expected = np.argsort(held_out["probability"].values.max(axis=1), kind="stable")[:24]
    assert [picture.row for picture in least_confident(both)] == expected.tolist()
    shown = words(plot_least_confident(both, TITLE))
    assert any("the 24 validation images of lowest confidence" in word for word in shown)


def test_a_trace_without_pictures_is_refused(made):
    with pytest.raises(ValueError, match="`test_predictions` must have `image`"):
        plot_least_confident(made.plane_trace(resolution=(3, 3)), TITLE)
