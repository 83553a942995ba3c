"""Errors of contrasts by row: by hand, by simulation, and by the command."""

import math

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats
from typer.testing import CliRunner

from pmbnn.cli import app
from pmbnn.compare.intervals import t_interval
from pmbnn.compare.rows import COLUMNS, clustered_error, why_not_random, with_intervals
from pmbnn.results.row_scores import SplitRows

# What can be worked out


def test_differences_of_a_row_are_summed_before_they_are_squared():
    """Rows 0 to 3 in two splits of two and three rows; row 1 is in both."""
    differences = [np.array([1.0, 3.0]), np.array([2.0, 0.0, 4.0])]
    mean, error, rows = clustered_error(differences, [np.array([0, 1]), np.array([1, 2, 3])])
    # Weights are 1/4 and 1/6, and the mean of both splits is 2.
    sums = [-1 / 4, 1 / 4 + 0 / 6, -2 / 6, 2 / 6]
    assert (mean, rows) == (2.0, 4)
    assert error == pytest.approx(np.sqrt(4 / 3 * np.sum(np.square(sums))))


def test_of_one_split_of_different_rows_it_is_the_error_of_a_mean():
    values = np.random.default_rng(0).normal(size=30)
    mean, error, rows = clustered_error([values], [np.arange(30)])
    assert (mean, rows) == (pytest.approx(values.mean()), 30)
    assert error == pytest.approx(values.std(ddof=1) / np.sqrt(30))


def test_the_same_test_rows_again_add_nothing():
    """Nor do rows that are in a table twice."""
    values, numbers = np.random.default_rng(0).normal(size=30), np.arange(30)
    once = clustered_error([values], [numbers])
    assert clustered_error([values] * 5, [numbers] * 5) == pytest.approx(once)
    assert clustered_error([np.tile(values, 2)], [np.tile(numbers, 2)]) == pytest.approx(once)


def test_of_one_row_there_is_no_error():
    mean, error, rows = clustered_error([np.array([1.0]), np.array([3.0])], [np.zeros(1, int)] * 2)
    assert (mean, rows) == (2.0, 1) and np.isnan(error)


def test_intervals_hold_together_by_the_inequality_of_sidak():
    table = pd.DataFrame({"difference": [0.3, -0.2, 0.0, 0.0], "rows": [50, 400, 50, 1]})
    table = with_intervals(table.assign(se_rows=[0.05, 0.01, 0.0, np.nan]), margin=0.1)
    level = (1 + 0.95**0.5) / 2  # two intervals have a length
    reach = 0.05 * stats.t.ppf(level, 49), 0.01 * stats.t.ppf(level, 399)
    assert table["low"].to_list()[:3] == pytest.approx([0.3 - reach[0], -0.2 - reach[1], 0])
    assert table["high"].to_list()[:3] == pytest.approx([0.3 + reach[0], -0.2 + reach[1], 0])
    assert list(table["verdict"]) == ["worse", "better", "equivalent", "undecided"]


# Simulated comparisons: 20 random splits of 300 rows, a tenth of which are test rows each


ROWS, SPLITS, TEST = 300, 20, 30
OVERLAP = TEST / (ROWS - TEST)
NUMBER = 1000
BOUND = 3 * np.sqrt(0.95 * 0.05 / NUMBER)


def simulated(of_row=1.0, of_split=0.0, noise=0.5):
    """Means of differences about zero, their errors by row, pooled and over splits, and effects.

    A difference is the effect of its row, in all splits, that of the training set of its split, and
    noise of its own. ``(comparison,)`` each; the last is the mean effect of the training sets.
    """
    found = []
    for i in range(NUMBER):
        rng = np.random.default_rng(i)
        rows = rng.permuted(np.tile(np.arange(ROWS), (SPLITS, 1)), axis=1)[:, :TEST]
        training = of_split * rng.normal(size=SPLITS)
        effects = of_row * rng.normal(size=ROWS)[rows] + training[:, None]
        differences = effects + noise * rng.normal(size=rows.shape)
        mean, error, _ = clustered_error([*differences], [*rows])
        pooled = differences.std(ddof=1) / np.sqrt(differences.size)
        splits = t_interval(differences.mean(axis=1), OVERLAP)["se"]
        found.append((mean, error, pooled, splits, training.mean()))
    return np.array(found).T


def coverage(mean, error, truth=0.0, freedom=ROWS - 1):
    """Share of intervals that hold."""
    return np.mean(np.abs(mean - truth) <= stats.t.ppf(0.975, freedom) * error)


def test_intervals_hold_where_rows_are_the_sample():
    mean, error, pooled, _, _ = simulated()
    assert coverage(mean, error) == pytest.approx(0.95, abs=BOUND)
    # The relative error of a variance of so many means is 2 / sqrt(2 · 1000).
    assert np.mean(error**2) == pytest.approx(mean.var(), rel=3 * np.sqrt(2 / NUMBER))
    # Without clusters, differences of a row count as those of several.
    assert coverage(mean, pooled) < 0.85


def test_intervals_hold_where_differences_of_a_row_are_independent():
    mean, error, pooled, _, _ = simulated(of_row=0.0)
    assert coverage(mean, error) == pytest.approx(0.95, abs=BOUND)
    assert np.mean(error / pooled) == pytest.approx(1, abs=0.02)


def test_what_other_training_sets_would_change_is_left_out():
    """They hold for the training sets that were drawn; Nadeau and Bengio's for others, too."""
    mean, error, _, splits, training = simulated(of_split=0.5)
    assert coverage(mean, error, training) == pytest.approx(0.95, abs=BOUND)
    assert coverage(mean, error) < 0.85
    assert coverage(mean, splits, freedom=SPLITS - 1) >= 0.95 - BOUND


# Splits that are not random

DRAWN = np.random.default_rng(7)
FEATURES = np.stack(
    [DRAWN.normal(size=300), DRAWN.integers(0, 2, 300), DRAWN.exponential(size=300)], axis=1
)


def why(chosen):
    """Of test rows by their numbers, one array for each data seed."""
    splits = {seed: SplitRows(FEATURES[rows], rows.astype(float)) for seed, rows in chosen.items()}
    return why_not_random(splits, chosen)


def test_random_splits_and_folds_are_random():
    for _ in range(30):
        assert why({seed: DRAWN.permutation(300)[:60] for seed in range(5)}) == ""
        assert why(dict(enumerate(DRAWN.permutation(300).reshape(5, 60)))) == ""
    assert why({0: np.arange(300), 1: np.arange(300)}) == "", "no rows are left to compare with"


def test_gaps_are_not_random():
    """The middle third of an input, as Foong et al. (2019) split tables; or one end of it."""
    gaps = {seed: FEATURES[:, at].argsort()[100:200] for seed, at in enumerate((0, 2))}
    assert why(gaps).startswith("the test rows of data seed 0 were not drawn at random: their in")
    ends = {seed: FEATURES[:, 2].argsort()[60 * seed :][:60] for seed in range(3)}
    assert "not drawn at random: their input 3 has another distribution" in why(ends)


# The command

TABLE = {"kind": "table", "file": "rows.csv", "target": "y", "task": "regression"}
MILE = {"engine": "mile", "seed": 0}
GROUPED = TABLE | {"file": "groups.csv", "split": {"kind": "random", "group": "shop"}}


def cells(made, rng, overlap=0.25, dataset=TABLE, seeds=4, gap=False, **results):
    """Pairs of cells on splits of some rows, whose log scores differ by about 0.3.

    Test rows are drawn at random; or they are a part of the range of one input after the other.
    """
    count = 240 if gap else 40
    rows, common = rng.normal(size=(count, 3)), 0.2 * rng.normal(size=count)
    for seed in range(seeds):
        chosen = rows[:, seed].argsort()[80:160] if gap else rng.permutation(40)[:8]
        x, base = rows[chosen], rng.normal(size=len(chosen))
        for hyperprior, gain in ((made.HALF_NORMAL, 0.3 + common[chosen]), (made.FIXED, 0.0)):
            scores = base + gain
            record = made.record(
                hyperprior=hyperprior,
                dataset=dataset | {"seed": seed},
                inference=MILE,
                predictive="density",
                nll=-float(scores.mean()),
                **results,
            )
            arrays = {"log_score": scores.astype("f4"), "target": x[:, 0]}
            arrays = {name: ("test_observation", array) for name, array in arrays.items()}
            arrays["x"] = ("test_observation", "feature"), x
            trace = {"/test_predictions": xr.Dataset(arrays), "/constant_data": xr.Dataset()}
            yield (
                made.changed(record, status="ensemble", overlap=overlap),
                xr.DataTree.from_dict(trace),
            )


def run(*arguments):
    return CliRunner().invoke(app, ["compare", "--rows", *map(str, arguments)])


def test_the_command_prints_and_writes_errors_by_row(made, tmp_path):
    rng = np.random.default_rng(0)
    stored = [*cells(made, rng), *cells(made, rng, dataset=GROUPED)]
    stored += cells(made, rng, 0.0, dataset=TABLE | {"file": "own.csv"})
    stored += cells(made, rng, dataset=made.MOONS, excess_nll=0.1)
    folder = made.store(tmp_path / "toy", stored).folder
    done = run(folder)
    assert done.exit_code == 0, done.output
    assert done.stderr.count("left out: ") == 3
    for why in ("keeps groups of rows", "not split the same rows", "fresh points"):
        assert why in done.stderr
    assert "cell 0/8" in done.stderr  # progress
    written = pd.read_csv(folder / "compare_rows.csv")
    assert list(written.columns) == list(COLUMNS)
    (row,) = written.to_dict("records")
    assert (row["method"], row["metric"], row["seeds"]) == ("ensemble", "nll", 4)
    traces = [trace["test_predictions"].dataset for _, trace in stored[:8]]
    differences = [b["log_score"].values - a["log_score"].values
                   for a, b in zip(traces[::2], traces[1::2], strict=True)]  # fmt: skip
    targets = [trace["target"].values for trace in traces[::2]]
    numbers = np.unique(np.concatenate(targets), return_inverse=True)[1].reshape(4, 8)
    mean, error, rows = clustered_error(differences, [*numbers])
    assert rows < 32  # some are in several splits
    assert (row["difference"], row["rows"]) == (pytest.approx(mean), rows)
    assert row["se_rows"] == pytest.approx(error, rel=1e-6)
    over_splits = t_interval(np.mean(differences, axis=1), 0.25)["se"]
    assert row["se_nadeau_bengio"] == pytest.approx(over_splits, rel=1e-5)
    assert row["verdict"] == "better"
    assert not (folder / "compare.csv").exists()


@pytest.mark.parametrize("overlap", [0.0, 0.25])
def test_with_one_data_seed_it_is_the_paired_error_of_its_rows(made, tmp_path, overlap):
    stored = [*cells(made, np.random.default_rng(0), overlap, seeds=1)]
    done = run(made.store(tmp_path, stored).folder)
    assert done.exit_code == 0, done.output
    (row,) = pd.read_csv(tmp_path / "compare_rows.csv").to_dict("records")
    learned, fixed = (trace["test_predictions"]["log_score"].values for _, trace in stored)
    assert (row["seeds"], row["rows"]) == (1, 8)
    assert row["difference"] == pytest.approx(np.mean(fixed - learned), rel=1e-5)
    assert row["se_rows"] == pytest.approx(np.std(fixed - learned, ddof=1) / np.sqrt(8), rel=1e-5)
    assert np.isnan(row["se_nadeau_bengio"])


def test_a_folder_without_such_contrasts_is_said_so(made, tmp_path):
    folder = made.store(tmp_path, [*cells(made, np.random.default_rng(0), 0.0)]).folder
    done = run(folder)
    assert done.exit_code == 2
    assert f"error: The folder `{folder}` has no contrast of the test NLL on one" in done.stderr


def test_two_infinite_scores_have_no_error(made, tmp_path):
    stored = [
        (made.changed(record, results=record.results | {"nll": math.inf}), trace)
        for record, trace in cells(made, np.random.default_rng(0))
    ]
    done = run(made.store(tmp_path, stored).folder)
    assert "both scores of a pair of cells are infinite" in " ".join(done.output.split())
    assert not (tmp_path / "compare_rows.csv").exists()


def test_gap_splits_are_left_out(made, tmp_path):
    stored = [*cells(made, np.random.default_rng(0), gap=True, seeds=3)]
    done = run(made.store(tmp_path, stored).folder)
    assert done.exit_code == 2
    assert "left out: table rows" in done.stderr
    assert "the test rows of data seed 0 were not drawn at random" in done.stderr
    assert not (tmp_path / "compare_rows.csv").exists()


def test_scores_that_are_not_those_of_the_record_are_refused(made, tmp_path):
    (record, trace), *others = cells(made, np.random.default_rng(0))
    record = made.changed(record, results=record.results | {"nll": 9.0})
    done = run(made.store(tmp_path, [(record, trace), *others]).folder)
    assert done.exit_code == 2
    assert (
        f"error: The cell `{record.name}` does not predict its test rows as it did" in done.stderr
    )
