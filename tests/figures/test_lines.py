"""Figures of the function along a line across a gap."""

import numpy as np
import pytest

from pmbnn.figures.lines import plot_lines
from pmbnn.results.lines import AlongLine, Told

X = np.linspace(-2, 2, 5)


def along(made, *told, scale=4.0):
    rows = np.array([[-1.0, 1.0], [0.0, 3.0]])
    return AlongLine(made.line_record("a", scale=scale), X, "λ", 0.0, rows, told)


def told(method, mean=0.0, sd=1.0):
    return Told(method, np.full(5, mean), np.full(5, sd))


def test_a_row_for_each_posterior_and_a_panel_for_each_method(made, words):
    first = along(made, told("mean_field"), told("mclmc", 2.0), told("published", 0.0, 9.0))
    second = along(made, told("mean_field"), told("gaussian_process"), scale=1.5)
    figure = plot_lines([first, second], "title")
    panels = np.array(figure.axes).reshape(2, 4)
    assert [axes.get_title() for axes in panels[0]] == [
        "mean-field",
        "MCLMC",
        "infinite width (Gaussian process)",
        "standard deviations",
    ]
    found = words(figure)
    assert found.count("not known") == 2
    assert any("fixed scale 1.5" in word for word in found)
    assert "title" in found and "λ" in found
    # One scale for all methods of a row, which holds every band and the rows.
    assert panels[0, 0].get_ylim() == panels[0, 1].get_ylim()
    low, high = panels[0, 0].get_ylim()
    assert low < -18 and high > 18


def test_bands_are_two_standard_deviations_and_published_ones_dashed(made):
    line = along(made, told("mclmc", 2.0, 0.5), told("published", 1.0, 3.0))
    axes, deviations = plot_lines([line], "title").axes
    box = axes.collections[0].get_datalim(axes.transData)
    assert (box.y0, box.y1) == (1.0, 3.0)
    dashed = [one.get_ydata()[0] for one in axes.lines if one.get_linestyle() == "--"]
    assert dashed == [1.0, -5.0, 7.0]
    assert [one.get_ydata()[0] for one in deviations.lines] == [0.5, 3.0]
    assert deviations.get_yscale() == "log"
    (rows,) = [one for one in axes.lines if one.get_marker() == "o"]
    np.testing.assert_array_equal(rows.get_ydata(), [0.0, 3.0])


def test_fits_of_one_kind_have_a_panel_each(made):
    line = along(made, told("mclmc, thin 20", 1.0), told("mclmc, thin 50", 2.0))
    first, second, _ = plot_lines([line], "title").axes
    assert (first.get_title(), second.get_title()) == ("MCLMC, thin 20", "MCLMC, thin 50")
    assert first.lines[0].get_ydata()[0] == 1.0
    assert second.lines[0].get_ydata()[0] == 2.0
    assert first.lines[0].get_color() != second.lines[0].get_color()


def test_nothing_to_draw(made):
    with pytest.raises(ValueError, match="must have what some method says"):
        plot_lines([along(made, told("published"))], "title")
