"""Uncertainty in a gap, method by method."""

import numpy as np
import pandas as pd
import pytest

from pmbnn.compare.in_between import FILE, in_between_table, write_in_between
from pmbnn.results.store import Results, trace_writer


@pytest.fixture
def results(tmp_path):
    results = Results(tmp_path)
    results.prepare()
    return results


def stored(results, record, trace):
    return results.save_cell(record, {"trace.nc": trace_writer(trace)})


def test_numbers_by_hand(made, results):
    sd = np.array([0.5, 1.0, 2.0, 0.25, 0.5])
    chains = [[0.0] * 5, [0.0] * 5], [sd * 0.5, sd * 1.5]
    cells = [
        stored(results, made.line_record("fit"), made.line_trace(0.5, 0.5)),
        stored(results, made.line_record("ref", "mclmc"), made.line_trace(0.0, sd, chains)),
    ]
    table = in_between_table(results, cells).set_index("method")
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


def test_the_table_is_written_and_goes_when_there_is_none(made, results):
    cell = stored(results, made.line_record("fit"), made.line_trace())
    write_in_between(results, [cell])
    assert list(pd.read_csv(results.folder / FILE)["method"]) == ["mean_field", "gaussian_process"]
    write_in_between(results, [])
    assert not (results.folder / FILE).exists()
