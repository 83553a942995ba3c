"""The function along a line across a gap: numbers of the table, panels of the figure."""

import numpy as np
import pandas as pd
import pytest
from study.in_between import gap_figures, in_between_table, plot_lines
from study.lines import AlongLine, CurveEstimate

from pmbnn.results.store import Results, trace_writer

X = np.linspace(-2, 2, 5)


@pytest.fixture
def store(tmp_path):
    store = Results(tmp_path)
    store.prepare()
    return store


def stored(results, record, trace):
    return results.save_cell(record, {"trace.nc": trace_writer(trace)})


def test_numbers_by_hand(made, store, results_of):
    sd = np.array([0.5, 1.0, 2.0, 0.25, 0.5])
    chains = [[0.0] * 5, [0.0] * 5], [sd * 0.5, sd * 1.5]
    cells = [
        stored(store, made.line_record("fit"), made.line_trace(0.5, 0.5)),
        stored(store, made.line_record("ref", "mclmc"), made.line_trace(0.0, sd, chains)),
    ]
    table = in_between_table(results_of(store, cells)).set_index("method")
    assert list(table.index) == ["mean_field", "mclmc", "gaussian_process"]
    assert list(table["sd_in_gap"])[:2] == [0.5, 2.0]
    fit, reference = table.loc["mean_field"], table.loc["mclmc"]
    assert (reference["smallest_before"], reference["smallest_after"]) == (0.5, 0.25)
    # Without one of two chains the other is left, half as wide or half as wide again.
    assert reference["sd_in_gap_mcse"] == pytest.approx(1.0)
    assert reference["relative_mcse"] == pytest.approx(0.5)
    assert (fit["reference"], fit["name"], fit["status"]) == ("mclmc", "fit", "converged")
    ratios = fit[["ratio_median", "ratio_smallest", "ratio_largest"]]
    np.testing.assert_allclose(list(ratios), [1.0, 0.25, 2.0])
    expected = np.sqrt(np.mean((0.5 / sd) ** 2))
    assert fit["mean_distance"] == pytest.approx(expected)
    assert pd.isna(reference["reference"]) and pd.isna(fit["sd_in_gap_mcse"])
    assert table.loc["gaussian_process", "hyperprior.scale"] == 4.0


def test_a_figure_for_each_data_set_with_a_gap(made, store, results_of, words):
    cell = stored(store, made.line_record("fit"), made.line_trace())
    ((name, figure),) = gap_figures(results_of(store, [cell])).items()
    assert any("the function along a line across the gap" in word for word in words(figure))
    assert name
    curve = stored(store, made.line_record("curve"), made.line_trace(gap=None))
    assert gap_figures(results_of(store, [curve])) == {}
    assert in_between_table(results_of(store, [curve])).empty


def along(made, *estimates, scale=4.0):
    rows = np.array([[-1.0, 1.0], [0.0, 3.0]])
    return AlongLine(made.line_record("a", scale=scale), X, "λ", 0.0, rows, estimates)


def estimate(method, mean=0.0, sd=1.0):
    return CurveEstimate(method, np.full(5, mean), np.full(5, sd))


def test_a_row_for_each_posterior_and_a_panel_for_each_method(made, words):
    first = along(
        made, estimate("mean_field"), estimate("mclmc", 2.0), estimate("published", 0.0, 9.0)
    )
    second = along(made, estimate("mean_field"), estimate("gaussian_process"), scale=1.5)
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
    line = along(made, estimate("mclmc", 2.0, 0.5), estimate("published", 1.0, 3.0))
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
    line = along(made, estimate("mclmc, thin 20", 1.0), estimate("mclmc, thin 50", 2.0))
    first, second, _ = plot_lines([line], "title").axes
    assert (first.get_title(), second.get_title()) == ("MCLMC, thin 20", "MCLMC, thin 50")
    assert first.lines[0].get_ydata()[0] == 1.0
    assert second.lines[0].get_ydata()[0] == 2.0
    assert first.lines[0].get_color() != second.lines[0].get_color()


def test_nothing_to_draw(made):
    with pytest.raises(ValueError, match="must have an estimate that was not published"):
        plot_lines([along(made, estimate("published"))], "title")
