"""Intervals that hold together: against the t test, and by simulation."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pmbnn.compare.contrasts import COUNTS, verdict_table
from pmbnn.compare.intervals import (
    Layout,
    build_model,
    interval_verdict,
    joint_intervals,
    mean_draws,
    simultaneous_intervals,
)

MARGIN = 1.0


def differences(rng, truth, sd, seeds=5, share=0.5):
    """Differences about true means ``(contrast, data)`` with standard deviations alike."""
    truth, shape = np.asarray(truth, float), (*np.shape(truth), seeds)
    effect, rest = rng.normal(size=(1, *shape[1:])), rng.normal(size=shape)
    noise = np.sqrt(share) * effect + np.sqrt(1 - share) * rest
    values = truth[..., None] + np.broadcast_to(sd, truth.shape)[..., None] * noise
    index = pd.MultiIndex.from_product(map(range, shape), names=["contrast", "data", "seed"])
    return pd.Series(values.ravel(), index)


# What can be worked out


def test_intervals_of_known_normals_are_those_of_the_largest_deviation():
    rng, sd = np.random.default_rng(0), np.array([1.0, 10.0, 0.1])
    draws = pd.DataFrame(3 + sd * rng.normal(size=(200_000, 3)), columns=list("abc"))
    found = simultaneous_intervals(draws)
    reach = stats.norm.ppf((1 + 0.95 ** (1 / 3)) / 2)
    np.testing.assert_allclose(found["mean"], 3, atol=0.1)
    np.testing.assert_allclose(found["high"] - found["mean"], reach * sd, rtol=0.02)
    np.testing.assert_allclose(found["mean"] - found["low"], reach * sd, rtol=0.02)


def test_what_never_moves_has_no_width_and_does_not_widen_others():
    rng = np.random.default_rng(0)
    draws = pd.DataFrame({"a": np.full(50_000, 2.0), "b": rng.normal(size=50_000)})
    found = simultaneous_intervals(draws)
    assert found.loc["a"].tolist() == [2, 2, 2]
    assert found.loc["b", "high"] == pytest.approx(1.96, rel=0.03)


def test_differences_that_are_all_the_same_need_no_program():
    index = differences(np.random.default_rng(0), [[0.0]], 1.0).index
    for value in (0.0, 0.3):
        assert (mean_draws(pd.Series(value, index)) == value).all(axis=None)


def test_entries_of_two_seeds_have_no_interval():
    values = differences(np.random.default_rng(0), [[0.0]], 1.0, seeds=2)
    assert mean_draws(values).empty
    assert joint_intervals({"a": values}).empty


def test_the_density_is_that_of_normals_with_equal_correlations(evaluate):
    # Two data sets of two data seeds each; the second contrast has no value on the last of them.
    layout = Layout((0, 0, 1, 1, 2, 2, 3), (0, 1, 0, 1, 2, 3, 2))
    model = build_model(layout)
    rng = np.random.default_rng(0)
    y, z, own = (rng.normal(size=size) for size in (7, 4, 4))
    typical, differing, share = 0.3, 0.7, 0.4
    sd = np.exp(typical + differing * own)
    mean = z * sd / np.sqrt([2, 2, 2, 1])
    expected = np.log(sd).sum()
    for seed in range(4):
        rows = [i for i, of in enumerate(layout.seed) if of == seed]
        own_sd = sd[np.array(layout.entry)[rows]]
        equal = share + (1 - share) * np.eye(len(rows))
        covariance = np.outer(own_sd, own_sd) * equal
        centre = mean[np.array(layout.entry)[rows]]
        expected += stats.multivariate_normal(centre, covariance).logpdf(y[rows])
    values = {"typical_log_sd": typical, "differing_log_sd": differing, "own_log_sd": own, "z": z}
    values |= {"share_of_seed": share}
    model["y"].set_value(y)
    found = sum(evaluate(model.potentials, {model[name]: v for name, v in values.items()}))
    assert found == pytest.approx(expected + 7 * np.log(2 * np.pi) / 2)


@pytest.fixture(scope="module")
def single():
    """One contrast on one data set with five data seeds, and its draws."""
    values = differences(np.random.default_rng(1), [[40.0]], 0.02)
    return values, mean_draws(values)


@pytest.mark.slow
def test_a_single_entry_has_the_tails_of_t(single):
    values, draws = single
    t = stats.t(len(values) - 1, values.mean(), values.sem())
    shares = [0.005, 0.025, 0.16, 0.84, 0.975, 0.995]
    inside = t.cdf(np.quantile(draws, shares))
    # Some 2,000 independent draws; the normal's would be off by 0.02 and more at the ends.
    np.testing.assert_allclose(inside, shares, atol=0.012)


@pytest.mark.slow
def test_splits_of_the_same_rows_have_tails_of_t_and_a_longer_scale(single):
    values, _ = single
    (name,) = values.index.unique("data")
    draws = mean_draws(values, overlap={name: 0.25, "another": 9.0})
    shares = [0.005, 0.025, 0.16, 0.84, 0.975, 0.995]
    t = stats.t(4, values.mean(), values.std() * np.sqrt(1 / 5 + 0.25))
    np.testing.assert_allclose(t.cdf(np.quantile(draws, shares)), shares, atol=0.012)


@pytest.mark.slow
def test_the_unit_of_differences_does_not_matter(single):
    values, draws = single
    pd.testing.assert_frame_equal(mean_draws(1024 * values), 1024 * draws)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bits(single):
    values, draws = single
    pd.testing.assert_frame_equal(mean_draws(values), draws)
    assert not mean_draws(values, random_seed=1).equals(draws)


# Simulated comparisons. Contrasts vary as measured ones do: some twice as much as others. Where
# nothing is to be found, the truth is at the margin, where it is found most easily.

TRUTH = np.array([[1.0, -1.0], [-1.0, 1.0], [9.0, -9.0]])
SDS = np.array([[0.5], [1.2], [2.3]])


def simulated(number, truth=TRUTH, sds=SDS, **settings):
    """For each of some comparisons: which intervals hold, and the verdicts, ``(entry,)`` each."""
    held, verdicts = [], []
    for i in range(number):
        values = differences(np.random.default_rng(i), truth, sds, **settings)
        one = simultaneous_intervals(mean_draws(values, i))
        held.append((one["low"] <= truth.ravel()) & (one["high"] >= truth.ravel()))
        verdicts.append(verdicts_of(one))
    return np.array(held), np.array(verdicts)


def verdicts_of(intervals):
    return [interval_verdict(*ends, MARGIN) for ends in intervals[["low", "high"]].to_numpy()]


@pytest.mark.slow
def test_a_few_comparisons_hold_and_find_what_is_there():
    for truth, verdict in ((1.0, "undecided"), (9.0, "worse")):
        held, verdicts = simulated(12, np.array([[truth]]), 1.0)
        # Of 12 intervals at 95 %, 10 or more hold with probability 0.98, and 9 with 0.998.
        assert held.sum() >= 9
        assert (verdicts == verdict).sum() >= 9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sds", "share", "seeds"), [(np.ones((3, 1)), 0.5, 5), (SDS, 0.9, 5), (SDS, 0.5, 3)]
)
def test_families_hold_at_their_level_and_find_what_is_there(sds, share, seeds):
    number = 40
    held, verdicts = simulated(number, TRUTH, sds, share=share, seeds=seeds)
    # Three standard errors below 95 %; of intervals that hold one by one, 74 % of such families
    # would, were they independent.
    assert held.all(axis=1).mean() >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / number)
    wrong = (verdicts[:, :4] != "undecided").any(axis=1)
    assert wrong.mean() <= 0.05 + 3 * np.sqrt(0.95 * 0.05 / number)
    assert not (verdicts[:, 4:] == ["better", "worse"]).any()
    if seeds == 5:
        assert (verdicts[:, 4:] == ["worse", "better"]).mean() >= 0.8


@pytest.mark.slow
def test_verdicts_are_wrong_in_one_table_of_twenty_at_most():
    reference = np.array([[0.0, 0.0], [-6.0, 6.0], [-6.0, 0.9]])
    advi = np.array([[0.0, 0.9], [-6.0, 6.0], [9.0, 14.0]])
    posterior = ["equivalent", "equivalent", "better", "worse", "better", "equivalent"]
    of_advi = [*["faithful"] * 4, "reverses", "distorts"]
    right = np.array([posterior, of_advi]).T
    said = []
    for i in range(12):
        rng = np.random.default_rng(i)
        deltas = differences(rng, reference, 0.2).rename("delta_reference").reset_index()
        deltas["delta_advi"] = differences(rng, advi, 0.3).to_numpy()
        deltas["delta"] = deltas["delta_advi"] - deltas["delta_reference"]
        deltas = deltas.assign(
            delta_reference_mcse=0.0,
            delta_advi_mcse=np.nan,
            doubtful=0,
            overlap=0.0,
            **dict.fromkeys(COUNTS, 0),
        )
        table = verdict_table(deltas.assign(metric="nll", exploratory=False), MARGIN, i)
        said.append(table[["posterior_verdict", "advi_verdict"]].to_numpy())
    said = np.array(said)
    wrong = ((said != right) & (said != "undecided")).any(axis=(1, 2))
    # Binomial: of 12 tables at 5 %, more than 3 are wrong with probability 0.002.
    assert wrong.sum() <= 3
    # All but those whose truth is next to the margin.
    sure = [(0, 0), (2, 0), (2, 1), (3, 0), (3, 1), (4, 0), (4, 1), (5, 1)]
    assert np.mean([said[:, i, j] == right[i, j] for i, j in sure]) >= 0.8
