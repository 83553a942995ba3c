"""Training points of planar data."""

import numpy as np
import pytest
import xarray as xr

from pmbnn.figures.cell_figures import CELL_FIGURES
from pmbnn.figures.points import plot_points

RAW = np.array([[0.0, 1.0], [2.0, -1.0], [4.0, 3.0]])
LABEL = np.array([0, 1, 1])


@pytest.fixture
def trace():
    mean, sd = RAW.mean(axis=0), RAW.std(axis=0)
    constant = xr.Dataset(
        {
            "x": (("observation", "feature"), (RAW - mean) / sd),
            "standardisation_mean": ("feature", mean),
            "standardisation_sd": ("feature", sd),
        }
    )
    observed = xr.Dataset({"y": ("observation", LABEL)})
    return xr.DataTree.from_dict({"/constant_data": constant, "/observed_data": observed})


def test_points_are_in_the_units_of_the_data(trace, words):
    figure = plot_points(trace, "moons, noise 0.4")
    (axes,) = figure.axes
    for index, line in enumerate(axes.lines):
        np.testing.assert_allclose(line.get_xydata(), RAW[index == LABEL], atol=1e-12)
    assert len(axes.lines) == 2
    assert {"class 0 (1)", "class 1 (2)"} <= set(words(figure))


def test_they_are_drawn_of_a_plane_alone(trace):
    (figure,) = (figure for figure in CELL_FIGURES if figure.plot is plot_points)
    held = {name: frozenset(trace[name].dataset.data_vars) for name in trace.children}
    assert figure.groups(held) == [], "points of more dimensions have no map"
    held["predictions"] = frozenset({"x1", "x2"})
    groups = figure.groups(held)
    assert {"constant_data", "observed_data"} <= set(groups)
    part = xr.DataTree.from_dict({f"/{n}": trace[n].dataset for n in groups if n in trace.children})
    assert figure.plot(part, "moons").axes


def test_a_trace_without_points_is_refused(trace):
    with pytest.raises(ValueError, match="observed_data"):
        plot_points(trace.drop_nodes("observed_data"), "moons")
