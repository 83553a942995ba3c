"""What methods say along a line across a gap, gathered from stored cells and from elsewhere."""

import numpy as np
import pytest
from study.infinite_width import LimitingProcess
from study.lines import along_lines

from pmbnn.data import DataError
from pmbnn.results.store import Results, trace_writer

CHAINS = [[0.0] * 5, [2.0] * 5, [4.0] * 5], [[1.0] * 5, [2.0] * 5, [3.0] * 5]
TABLE = """
curves:
  - {study: s, source: theirs, file: theirs/hmc.csv, position: lambda,
     where: {network.hidden: "50", hyperprior.scale: 4}}
"""


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setenv("PMBNN_DATA", str(tmp_path / "data"))
    results = Results(tmp_path / "results")
    results.prepare()
    return results


def stored(results, record, trace):
    return results.save_cell(record, {"trace.nc": trace_writer(trace)})


def test_methods_come_in_order_whatever_that_of_the_cells(made, results):
    sampled = stored(results, made.line_record("b", "mclmc"), made.line_trace(0.5, 2.0, CHAINS))
    fitted = stored(results, made.line_record("a"), made.line_trace(0.25, 1.0))
    (line,) = along_lines(results, [sampled, fitted])
    assert [estimate.method for estimate in line.estimates] == [
        "mean_field",
        "mclmc",
        "gaussian_process",
    ]
    assert [estimate.record and estimate.record.name for estimate in line.estimates] == [
        "a",
        "b",
        None,
    ]
    np.testing.assert_array_equal(line.estimates[1].sd, np.full(5, 2.0))
    np.testing.assert_array_equal(line.position, np.linspace(-2, 2, 5))
    assert (line.name, line.gap) == ("λ", 0)
    assert line.reference.method == "mclmc"


def test_lines_of_one_name_have_different_labels(made, results):
    cells = []
    for name, rate in (("a", 0.01), ("b", 0.001)):
        record = made.line_record(name)
        record.settings["inference"]["learning_rate"] = rate
        cells.append(stored(results, record, made.line_trace()))
    (line,) = along_lines(results, cells)
    words = ["mean_field, learning_rate 0.01", "mean_field, learning_rate 0.001"]
    assert [estimate.method for estimate in line.estimates] == [*words, "gaussian_process"]


def test_rows_are_projected_in_their_own_units(made, results):
    cell = stored(results, made.line_record("a"), made.line_trace())
    (line,) = along_lines(results, [cell])
    np.testing.assert_allclose(line.rows[0], [1.56, 1.42, -1.24, -1.62])
    np.testing.assert_allclose(line.rows[1], [2.2, 2.0, -1.8, -2.3])
    assert line.reference is None


def test_error_of_a_standard_deviation_by_hand(made, results):
    """Mixtures of two of three chains, whose means are 0, 2 and 4."""
    cell = stored(results, made.line_record("b", "nuts"), made.line_trace(2.0, 2.7, CHAINS))
    (line,) = along_lines(results, [cell])
    pairs = [((2, 2), (4, 3)), ((0, 1), (4, 3)), ((0, 1), (2, 2))]
    sds = [
        np.sqrt(np.mean([s**2 + m**2 for m, s in pair]) - np.mean([m for m, _ in pair]) ** 2)
        for pair in pairs
    ]
    expected = np.sqrt(2 / 3 * np.sum((sds - np.mean(sds)) ** 2))
    np.testing.assert_allclose(line.estimates[0].error, expected)


def test_the_limit_is_given_the_rows(made, results):
    """Standardised, as the network sees them."""
    cell = stored(results, made.line_record("a"), made.line_trace())
    (line,) = along_lines(results, [cell])
    x = (np.array([[1.0, 1.2], [0.9, 1.1], [-1.0, -0.8], [-1.1, -1.2]]) - 1) / 2
    at = (line.position[:, None] * [0.6, 0.8] - 1) / 2
    mean, sd = LimitingProcess(1, 4.0, 1.0).condition(x, line.rows[1], 0.1, at)
    np.testing.assert_allclose(line.estimates[-1].mean, mean, rtol=1e-4)
    np.testing.assert_allclose(line.estimates[-1].sd, sd, rtol=1e-4)


def test_networks_without_a_known_limit_have_none(made, results):
    record = made.line_record("a")
    settings = record.settings | {"network": record.settings["network"] | {"activation": "tanh"}}
    cell = stored(results, made.changed(record, settings=settings), made.line_trace())
    (line,) = along_lines(results, [cell])
    assert [estimate.method for estimate in line.estimates] == ["mean_field"]


def test_published_moments_where_their_file_is(made, results):
    cells = [stored(results, made.line_record("one"), made.line_trace())]
    other = made.line_record("other", scale=2.0)
    cells.append(stored(results, other, made.line_trace()))
    (results.folder / "published.yaml").write_text(TABLE)
    assert all(line.estimates[-1].method != "published" for line in along_lines(results, cells))
    file = results.folder.parent / "data" / "theirs" / "hmc.csv"
    file.parent.mkdir(parents=True)
    file.write_text("lambda,mean,variance\n-2,0,4\n0,1,1\n2,2,9\n")
    first, second = along_lines(results, cells)
    assert first.reference is first.estimates[-1]
    np.testing.assert_allclose(first.estimates[-1].mean, [0, 0.5, 1, 1.5, 2])
    np.testing.assert_allclose(first.estimates[-1].sd, [2, 1.5, 1, 2, 3])
    assert second.estimates[-1].method == "gaussian_process"
    file.write_text("lambda,mean\n-2,0\n")
    with pytest.raises(DataError, match="variance is missing"):
        along_lines(results, cells)


def test_lines_without_a_gap_are_left_out(made, results):
    without = stored(results, made.line_record("a"), made.line_trace(gap=None))
    curve = stored(results, made.line_record("b"), made.curves_trace())
    assert along_lines(results, [without, curve]) == []
