"""Means of contrasts over data sets: by quadrature, by simulation, and by the command."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

from pmbnn.cli import app
from pmbnn.compare.intervals import t_interval
from pmbnn.compare.over_data import COLUMNS, mean_over_data, over_data_table

# What can be worked out

MEANS, ERRORS = np.array([0.3, -0.1, 0.6, 0.2]), np.array([0.1, 0.2, 0.5, 0.1])


def test_it_is_the_posterior_of_the_model_by_brute_force():
    """True differences are drawn, not integrated out: importance sampling from a wide proposal."""
    rng, number = np.random.default_rng(0), 400_000
    # With u = sqrt(t) the prior is flat.
    between = rng.uniform(0, 2, number) ** 2
    mean = 0.2 + 0.6 * rng.standard_t(3, number)
    sd = np.hypot(ERRORS, between[:, None])
    log_weight = stats.norm.logpdf(MEANS, mean[:, None], sd).sum(axis=1)
    weight = np.exp(log_weight - stats.t.logpdf((mean - 0.2) / 0.6, 3))
    weight /= weight.sum()
    order = np.argsort(mean)
    low, high = np.interp([0.05, 0.95], weight[order].cumsum(), mean[order])
    got = mean_over_data(MEANS, ERRORS, 0.9)
    assert got["mean"] == pytest.approx(weight @ mean, abs=0.005)
    assert (got["low"], got["high"]) == (
        pytest.approx(low, abs=0.01),
        pytest.approx(high, abs=0.01),
    )
    order = np.argsort(between)
    median = np.interp(0.5, weight[order].cumsum(), between[order])
    assert got["sd_between"] == pytest.approx(median, rel=0.02)


def test_the_unit_does_not_matter():
    one, other = mean_over_data(MEANS, ERRORS, 0.95), mean_over_data(8 * MEANS, 8 * ERRORS, 0.95)
    assert other == pytest.approx({name: 8 * value for name, value in one.items()}, rel=1e-6)


def test_a_data_set_that_says_nothing_changes_nothing():
    more = mean_over_data(np.append(MEANS, 50.0), np.append(ERRORS, 1e4), 0.95)
    # The grid of standard deviations moves with the number of data sets.
    assert more == pytest.approx(mean_over_data(MEANS, ERRORS, 0.95), rel=0.01)


def test_many_alike_data_sets_have_the_error_of_their_weighted_mean():
    means = np.full(200, 0.3)
    one = mean_over_data(means, np.full(200, 0.1), 0.95)
    half = stats.norm.ppf(0.975) * 0.1 / np.sqrt(200)
    assert (one["low"], one["high"]) == pytest.approx((0.3 - half, 0.3 + half), abs=0.05 * half)


def test_data_sets_that_differ_widely_have_an_interval_like_that_of_a_t_test():
    means = stats.norm.ppf((np.arange(12) + 0.5) / 12)
    one = mean_over_data(means, np.full(12, 1e-3), 0.95)
    expected = t_interval(means)
    assert one["low"] == pytest.approx(expected["low"], rel=0.05)
    assert one["sd_between"] == pytest.approx(means.std(ddof=1), rel=0.15)


# Simulated comparisons of five tables on twenty splits


def held(spread, unlike, overlap, number=200):
    """How often intervals have the truth: errors are alike, or differ ``exp(±unlike)`` fold.

    Splits of a table share an error, whose variance is that of one split times the overlap.
    """
    rng, seeds, hits = np.random.default_rng(0), 20, 0
    for _ in range(number):
        sds = np.exp(rng.normal(0, unlike, (5, 1)))
        shared = rng.normal(0, np.sqrt(overlap), (5, 1))
        errors = sds * (shared + rng.normal(size=(5, seeds)))
        differences = rng.normal(0, spread, (5, 1)) + errors
        table = over_data_table(deltas(differences, overlap), 0.01)
        hits += (table["low"] <= 0).item() and (table["high"] >= 0).item()
    return hits / number


def deltas(differences, overlap=0.0):
    """A table of deltas of one contrast, of ``(data, seed)`` differences of ensembles."""
    places = enumerate(differences)
    return pd.DataFrame(
        {"contrast": "a less b", "exploratory": False, "metric": "nll", "data": f"table {i}",
         "data_set": i, "seed": seed, "overlap": overlap, "delta_reference": np.nan,
         "delta_advi": np.nan, "delta_ensemble": value}
        for i, row in places for seed, value in enumerate(row)
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("overlap", [0.0, 1 / 9])
@pytest.mark.parametrize("unlike", [0.0, 1.5])
@pytest.mark.parametrize("spread", [0.0, 0.25, 1.0])
def test_intervals_hold_at_their_level(spread, unlike, overlap):
    """Standard deviations between tables of none to some standard errors of one (.22 and .40)."""
    share = held(spread, unlike, overlap)
    assert share >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 200)


# Tables


def test_rows_are_of_contrasts_on_three_data_sets_with_four_data_seeds():
    rng = np.random.default_rng(0)
    made = deltas(rng.normal(size=(4, 6)), overlap=0.25)
    few = made[(made["data"] != "table 3") | (made["seed"] < 3)]
    (row,) = over_data_table(few, 0.01).to_dict("records")
    assert row["data_sets"] == 3
    ones = [t_interval(group["delta_ensemble"], 0.25) for _, group in few.groupby("data")][:3]
    # With five degrees of freedom the variance of Student's t is 5/3.
    errors = np.array([one["se"] for one in ones]) * np.sqrt(5 / 3)
    expected = mean_over_data(np.array([one["difference"] for one in ones]), errors, 0.95)
    assert row["mean"] == expected["mean"] and row["low"] == expected["low"]
    assert over_data_table(few[few["data"] != "table 2"], 0.01).empty


def test_several_networks_on_a_data_set_are_one_data_set():
    made = deltas(np.random.default_rng(0).normal(size=(3, 6)))
    wide = made.assign(data=made["data"] + ", wide", delta_ensemble=made["delta_ensemble"] + 0.2)
    (one,) = over_data_table(
        made.assign(delta_ensemble=made["delta_ensemble"] + 0.1), 0.01
    ).to_dict("records")
    (both,) = over_data_table(pd.concat([made, wide]), 0.01).to_dict("records")
    assert both == pytest.approx(one)
    two = pd.concat([made, wide]).query("data_set < 2")
    assert two["data"].nunique() == 4 and over_data_table(two, 0.01).empty


def test_intervals_of_a_table_hold_together():
    made = deltas(np.random.default_rng(0).normal(size=(4, 6)))
    both = pd.concat([made, made.assign(contrast="c less d")])
    one, two = over_data_table(made, 0.01), over_data_table(both, 0.01)
    assert (two["low"] < one["low"].item()).all() and (two["high"] > one["high"].item()).all()


@pytest.mark.parametrize(
    ("values", "mean", "verdict"),
    [([np.inf], np.inf, "worse"), ([-np.inf], -np.inf, "better"), ([np.inf, -np.inf], np.nan, "")],
)
def test_an_infinite_difference_is_not_left_out(values, mean, verdict):
    differences = np.random.default_rng(0).normal(size=(4, 6))
    differences[: len(values), 2] = values
    (row,) = over_data_table(deltas(differences), 0.01).to_dict("records")
    assert row["data_sets"] == 4 and row["verdict"] == (verdict or "undecided")
    np.testing.assert_equal([row["mean"], row["low"], row["high"]], [mean] * 3)


def test_differences_that_do_not_vary_are_left_out():
    assert over_data_table(deltas(np.zeros((4, 6))), 0.01).empty
    assert list(over_data_table(deltas(np.zeros((4, 6))), 0.01).columns) == list(COLUMNS)


def test_the_command_prints_and_writes_means_over_data_sets(made, tmp_path):
    rng, stored = np.random.default_rng(0), []
    for noise in (0.1, 0.2, 0.3):
        for seed in range(4):
            data = made.MOONS | {"noise": noise, "seed": seed}
            for hyperprior, better in ((made.HALF_NORMAL, 1.0), (made.FIXED, 0.0)):
                nll = 0.1 * rng.normal() - better
                record = made.record(dataset=data, hyperprior=hyperprior, excess_nll=nll)
                stored.append((record, None))
    folder = made.store(tmp_path / "toy", stored).folder
    done = CliRunner().invoke(app, ["compare", str(folder)])
    assert done.exit_code == 0, done.output
    assert "contrasts over data sets" in done.output
    (row,) = pd.read_csv(folder / "compare_over_data.csv").to_dict("records")
    assert (row["method"], row["data_sets"], row["verdict"]) == ("advi", 3, "better")
    assert row["low"] < -1 < row["high"]
