"""Training points of a plane, and images by class."""

import numpy as np
import pytest
import xarray as xr

from pmbnn.figures.image_sheets import plot_points, plot_samples, samples_by_class
from pmbnn.figures.overviews import OF_CLASS_PROBABILITIES
from pmbnn.results.reading import PHOTOGRAPHS

RAW = np.array([[0.0, 1.0], [2.0, -1.0], [4.0, 3.0]])
LABEL = np.array([0, 1, 1])


@pytest.fixture
def planar(made):
    mean, sd = RAW.mean(axis=0), RAW.std(axis=0)
    constant = xr.Dataset(
        {
            "x": (("observation", "feature"), (RAW - mean) / sd),
            "standardisation_mean": ("feature", mean),
            "standardisation_sd": ("feature", sd),
        }
    )
    observed = xr.Dataset({"y": ("observation", LABEL)})
    groups = {"/constant_data": constant, "/observed_data": observed}
    plane = made.plane_trace(resolution=(3, 3))["predictions"].to_dataset()
    plane = plane.assign_coords(output=["ill", "well"])
    return xr.DataTree.from_dict(groups | {"/predictions": plane})


def test_points_are_in_the_units_of_the_data(planar, words):
    figure = plot_points(planar, "moons, noise 0.4")
    (axes,) = figure.axes
    for index, line in enumerate(axes.lines):
        np.testing.assert_allclose(line.get_xydata(), RAW[index == LABEL], atol=1e-12)
    assert len(axes.lines) == 2
    assert {"class ill (1)", "class well (2)"} <= set(words(figure))
    figure.draw_without_rendering()
    assert not figure.legends[0].get_window_extent().overlaps(axes.get_window_extent())


def test_they_are_drawn_of_a_plane_alone(planar):
    (figure,) = (figure for figure in OF_CLASS_PROBABILITIES if figure.plot is plot_points)
    held = {name: frozenset(planar[name].dataset.data_vars) for name in planar.children}
    assert figure.groups(held) == [], "points of more dimensions have no map"
    held["predictions"] = frozenset({"x1", "x2"})
    groups = figure.groups(held)
    assert {"constant_data", "observed_data"} <= set(groups)
    part = xr.DataTree.from_dict(
        {f"/{n}": planar[n].dataset for n in groups if n in planar.children}
    )
    assert figure.plot(part, "moons").axes


def test_a_trace_without_points_is_rejected(planar):
    with pytest.raises(ValueError, match="observed_data"):
        plot_points(planar.drop_nodes("observed_data"), "moons")


# Images


@pytest.fixture(scope="module")
def trace(made):
    return made.small_image_trace()


def test_kept_images_of_each_class_in_the_order_of_rows(trace):
    test = trace["test_predictions"].dataset
    rows = test["image_index"].values
    for name, images in samples_by_class(trace).items():
        own = np.flatnonzero(test["label"].values[rows] == int(name))[:10]
        np.testing.assert_array_equal(images, 255 - test["image"].values[own])


def test_photographs_are_shown_as_they_are(trace):
    of_digits, photographs = samples_by_class(trace), trace.copy()
    photographs["test_predictions"].attrs[PHOTOGRAPHS] = 1
    for name, images in samples_by_class(photographs).items():
        np.testing.assert_array_equal(images, [255 - image for image in of_digits[name]])


def test_a_row_for_each_class(full, words):
    found = samples_by_class(full)
    figure = plot_samples(full, "MNIST")
    (paper,) = figure.axes
    drawn = [image.get_array() for image in paper.images]
    np.testing.assert_array_equal(drawn, [image for some in found.values() for image in some])
    assert {str(digit) for digit in range(10)} <= set(words(figure))
    assert not paper.axison
    lefts, bottoms = np.array([image.get_extent() for image in paper.images]).T[[0, 2]]
    assert len(np.unique(bottoms)) == len(found)
    assert len(np.unique(lefts)) == max(map(len, found.values()))


def test_a_class_without_images_leaves_its_row_empty(trace, words):
    test = trace["test_predictions"].dataset
    seven = test["label"].values[test["image_index"].values] == 7
    trace = type(trace).from_dict({"/test_predictions": test.isel(image=~seven)})
    assert samples_by_class(trace)["7"] == []
    assert "7" in words(plot_samples(trace, "MNIST"))


def test_a_trace_without_images_is_rejected(made):
    with pytest.raises(ValueError, match="`test_predictions` must have `image`"):
        plot_samples(made.plane_trace(resolution=(3, 3)), "moons")
