"""Curves of a regression: what they show, of one cell and of several."""

import numpy as np
import pytest
import xarray as xr

from pmbnn.figures.regression import MOST, limits, plot_compared_curves, plot_curves

X = np.array([-0.4, 0.0, 0.4])


@pytest.fixture(scope="module")
def trace(made):
    """Maker of traces whose three training rows lie on a parabola."""
    return made.curves_trace


def line_of(axes, label):
    (found,) = [line for line in axes.lines if line.get_label() == label]
    return found.get_xdata(), found.get_ydata()


def test_a_panel_for_each_range(trace):
    figure = plot_curves(trace(), "title")
    first, second = figure.axes
    assert (first.get_xlim(), second.get_xlim()) == ((-1, 1), (-3, 3))
    assert [axes.get_title() for axes in figure.axes] == ["x from −1 to 1", "x from −3 to 3"]
    assert "title" in figure.get_suptitle()


def test_a_panel_shows_mean_deviations_intervals_and_rows(trace):
    axes = plot_curves(trace(spread=0.5), "title").axes[0]
    np.testing.assert_array_equal(line_of(axes, "mean")[1], np.full(11, 2.0))
    np.testing.assert_array_equal(line_of(axes, "± 2 sd, epistemic")[1], np.full(11, 3.0))
    np.testing.assert_array_equal(line_of(axes, "± 2 sd, total")[1], np.full(11, 4.0))
    x, y = line_of(axes, "training rows")
    np.testing.assert_allclose(x, X)  # as they were before they were standardised
    np.testing.assert_allclose(y, X**2)
    shades = {band.get_label(): band.get_datalim(axes.transData) for band in axes.collections}
    assert (shades["95 %, epistemic"].y0, shades["95 %, epistemic"].y1) == (1.5, 2.5)
    assert (shades["95 %, total"].y0, shades["95 %, total"].y1) == (0.5, 3.5)


def test_rows_stand_where_a_line_passes_closest(trace):
    """On a line through two features, whose truth nobody knows."""
    tree = trace()
    x = np.array([[1.0, 2.0], [-3.0, 0.5], [0.0, 0.0]])
    tree["constant_data"] = xr.DataTree(
        xr.Dataset(
            {
                "x": (("observation", "feature"), x),
                "standardisation_mean": ("feature", [0.0, 0.0]),
                "standardisation_sd": ("feature", [1.0, 1.0]),
            }
        )
    )
    curve = tree["curve_1"].to_dataset().drop_vars("truth")
    curve["direction"] = "feature", [0.6, 0.8]
    tree["curve_1"] = xr.DataTree(curve.assign_attrs(position="λ"))
    axes = plot_curves(tree, "title").axes[0]
    np.testing.assert_allclose(line_of(axes, "training rows")[0], x @ [0.6, 0.8])
    assert "truth" not in [line.get_label() for line in axes.lines]
    assert (axes.get_xlabel(), axes.get_title()) == ("λ", "λ from −1 to 1")


def test_truth_may_leave_the_panel(trace):
    low, high = plot_curves(trace(), "title").axes[1].get_ylim()
    assert low < 0.0 and 4.0 < high < 10.0


def test_limits_hold_every_trace(trace):
    low, high = limits([trace(mean=2.0), trace(mean=50.0)], "curve_1")
    assert low < 0 and high > 52


def test_a_spread_without_end_leaves_the_limits_finite(trace):
    """Student's t noise of hardly more than two degrees of freedom."""
    tree = trace(mean=2.0)
    tree["curve_1"]["total_sd"][3] = np.inf
    np.testing.assert_array_equal(limits([tree], "curve_1"), limits([trace(mean=2.0)], "curve_1"))
    assert plot_curves(tree, "title").axes


def test_cells_beneath_each_other_share_their_scales(trace):
    figure = plot_compared_curves([trace(), trace(mean=20.0)], ["one", "two"], "title")
    panels = np.array(figure.axes).reshape(2, 2)
    assert [axes.get_title(loc="left") for axes in panels[:, 0]] == ["one", "two"]
    for column in panels.T:
        assert column[0].get_ylim() == column[1].get_ylim()


def test_a_sheet_has_room_for_so_many(trace):
    traces = [trace()] * (MOST + 1)
    figure = plot_compared_curves(traces, [str(i) for i in range(MOST + 1)], "title")
    assert len(figure.axes) == 2 * MOST


def test_a_trace_without_curves():
    with pytest.raises(ValueError, match="must have a group `curve_1`"):
        plot_curves(xr.DataTree.from_dict({"/posterior": xr.Dataset()}), "title")


def test_no_traces():
    with pytest.raises(ValueError, match="`traces` must not be empty"):
        plot_compared_curves([], [], "title")


def test_a_long_name_takes_nothing_of_its_panel(trace):
    def width(name):
        figure = plot_compared_curves([trace(), trace()], [name, "two"], "title")
        figure.draw_without_rendering()
        return figure.axes[0].get_position().width

    assert width("a prior of some name, " * 8) == pytest.approx(width("one"), rel=0.01)


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ((1990.25, 2024.0), "1990 to 2024"),
        ((2450000.26, 2450010.26), "2450000.3 to 2450010.3"),
        ((-0.125, 5.0), "−0.125 to 5"),
    ],
)
def test_ends_of_a_range_far_from_zero_are_told_apart(trace, ends, text):
    assert plot_curves(trace(ranges=[ends]), "title").axes[0].get_title() == f"x from {text}"
