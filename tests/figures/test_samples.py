"""Pictures by class."""

import numpy as np
import pytest

from pmbnn.figures.samples import plot_samples, samples_by_class


@pytest.fixture(scope="module")
def trace(made):
    return made.small_image_trace()


def test_kept_pictures_of_each_class_in_the_order_of_rows(trace):
    test = trace["test_predictions"].dataset
    rows = test["image_index"].values
    for name, images in samples_by_class(trace).items():
        own = np.flatnonzero(test["label"].values[rows] == int(name))[:10]
        np.testing.assert_array_equal(images, test["image"].values[own])


def test_a_row_for_each_class(full, words):
    found = samples_by_class(full)
    figure = plot_samples(full, "MNIST")
    drawn = [axes.images[0].get_array() for axes in figure.axes if axes.images]
    np.testing.assert_array_equal(drawn, [image for some in found.values() for image in some])
    assert {str(digit) for digit in range(10)} <= set(words(figure))
    assert not any(axes.axison for axes in figure.axes)


def test_a_class_without_pictures_leaves_its_row_empty(trace, words):
    test = trace["test_predictions"].dataset
    seven = test["label"].values[test["image_index"].values] == 7
    trace = type(trace).from_dict({"/test_predictions": test.isel(image=~seven)})
    assert samples_by_class(trace)["7"] == []
    assert "7" in words(plot_samples(trace, "MNIST"))


def test_a_trace_without_pictures_is_refused(made):
    with pytest.raises(ValueError, match="`test_predictions` must have `image`"):
        plot_samples(made.plane_trace(resolution=(3, 3)), "moons")
