"""Intervals that hold together: against the t test, and by simulation."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pmbnn.compare.contrasts import COUNTS, METHODS, verdict_table
from pmbnn.compare.intervals import interval_verdict, joint_intervals, t_interval

MARGIN = 1.0
ENDS = ["mean", "low", "high"]


def differences(rng, truth, sd, seeds=5, share=0.5):
    """Differences about true means ``(contrast, data)`` with standard deviations alike."""
    truth, shape = np.asarray(truth, float), (*np.shape(truth), seeds)
    effect, rest = rng.normal(size=(1, *shape[1:])), rng.normal(size=shape)
    noise = np.sqrt(share) * effect + np.sqrt(1 - share) * rest
    values = truth[..., None] + np.broadcast_to(sd, truth.shape)[..., None] * noise
    index = pd.MultiIndex.from_product(map(range, shape), names=["contrast", "data", "seed"])
    return pd.Series(values.ravel(), index)


# What can be worked out


def half_widths(intervals):
    return ((intervals["high"] - intervals["low"]) / 2).to_numpy()


@pytest.mark.parametrize("overlap", [0.0, 0.25])
@pytest.mark.parametrize("seeds", [3, 5, 12])
def test_a_single_interval_is_that_of_the_t_test(seeds, overlap):
    values = differences(np.random.default_rng(seeds), [[40.0]], 0.02, seeds)
    (name,) = values.index.unique("data")
    intervals = joint_intervals({"a": values}, {name: overlap, "another": 9.0})
    expected = t_interval(values, overlap)
    assert intervals["mean"].item() == pytest.approx(expected["difference"])
    for end in ("low", "high"):
        length = expected[end] - expected["difference"]
        assert (intervals[end] - intervals["mean"]).item() == pytest.approx(length, rel=0.01)


@pytest.mark.parametrize("overlap", [0.0, 0.25])
def test_what_a_single_interval_can_find_is_that_of_the_t_test(overlap):
    """Against the power of Student's t test, by its noncentral distribution."""
    seeds = 30
    values = differences(np.random.default_rng(0), [[0.0]], 0.02, seeds)
    (found,) = joint_intervals({"a": values}, {values.index[0][1]: overlap}).to_dict("records")
    error = values.std() * np.sqrt(1 / seeds + overlap)
    critical, noncentrality = stats.t.ppf(0.975, seeds - 1), found["detectable"] / error
    assert stats.nct.sf(critical, seeds - 1, noncentrality) == pytest.approx(0.8, abs=0.01)
    limit = stats.norm.ppf(0.975) * values.std() * np.sqrt(overlap)
    assert found["limit"] == pytest.approx(limit, rel=0.02)


@pytest.mark.parametrize("rows", [100, 1_000_000])
def test_rounding_errors_of_equal_differences_are_no_spread(rows):
    """One row more of each test set is right; p-values of 1e-29 had been told of it."""
    right = rows * np.array([0.8, 0.81, 0.9])
    differences = (right + 1) / rows - right / rows
    assert np.ptp(differences) > 0
    found = t_interval(differences)
    assert found["difference"] == pytest.approx(1 / rows, rel=1e-6)
    assert np.isnan([found["low"], found["high"], found["p_value"]]).all()


def test_many_standard_deviations_that_are_equal_are_estimated_as_one():
    """Of 24 means with one standard deviation from 4 data seeds, by Šidák's inequality."""
    values = differences(np.random.default_rng(0), np.zeros((6, 4)), 2.0, seeds=4, share=0.0)
    within = values - values.groupby(level=["contrast", "data"]).transform("mean")
    sd = np.sqrt((within**2).sum() / (24 * 3))
    expected = stats.t.ppf((1 + 0.95 ** (1 / 24)) / 2, 24 * 3) * sd / 2
    # Standard deviations that may differ make them longer.
    assert half_widths(joint_intervals({"a": values})).mean() == pytest.approx(expected, rel=0.1)


def test_a_data_set_with_larger_differences_has_longer_intervals_and_leaves_others_theirs():
    values = differences(np.random.default_rng(0), np.zeros((3, 4)), 1.0, seeds=10)
    is_first = values.index.get_level_values("data") == 0
    unlike = values * np.where(is_first, 1.0, 100.0)
    alone, both = (half_widths(joint_intervals({"a": v})) for v in (values[is_first], unlike))
    # A bootstrap with the mean variance of all would have them 50 times as long.
    assert (both.reshape(3, 4)[:, 0] < 2 * alone).all()
    assert (both.reshape(3, 4)[:, 1:] > 20 * alone[:, None]).all()


def test_differences_that_do_not_vary_have_no_width_and_leave_others_theirs():
    values = differences(np.random.default_rng(0), [[0.0]], 1.0)
    alone = joint_intervals({"a": values})
    for value in (0.0, 0.3):
        both = joint_intervals({"a": values, "b": pd.Series(value, values.index)})
        np.testing.assert_allclose(both.loc["b", ENDS], value)
        assert both.loc["b", ["detectable", "limit"]].isna().all(axis=None)
        pd.testing.assert_frame_equal(both.loc[["a"]], alone)


def test_a_difference_that_is_infinite_once_is_so_on_average_and_leaves_others_their_intervals():
    values = differences(np.random.default_rng(0), [[0.0]], 1.0)
    alone = joint_intervals({"a": values})
    both = joint_intervals({"a": values, "b": values.mask(values == values.max(), np.inf)})
    assert (both.loc["b", ENDS] == np.inf).all(axis=None)
    pd.testing.assert_frame_equal(both.loc[["a"]], alone)


def test_differences_of_two_data_seeds_have_no_interval():
    assert joint_intervals({"a": differences(np.random.default_rng(0), [[0.0]], 1.0, 2)}).empty


def test_differences_that_lack_a_data_seed_have_intervals_by_the_others():
    values = differences(np.random.default_rng(0), [[0.0], [0.0]], 1.0, seeds=6)
    fewer = joint_intervals({"a": values.iloc[:-1]})
    assert fewer["mean"].tolist() == pytest.approx([values[:6].mean(), values[6:11].mean()])


def test_the_unit_of_differences_does_not_matter():
    values = differences(np.random.default_rng(1), [[0.0], [1.0]], 1.0)
    pd.testing.assert_frame_equal(
        joint_intervals({"a": 1024 * values}), 1024 * joint_intervals({"a": values})
    )


# Simulated comparisons. Contrasts vary as measured ones do: some twice as much as others. Where
# nothing is to be found, the truth is at the margin, where it is found most easily.

TRUTH = np.array([[1.0, -1.0], [-1.0, 1.0], [9.0, -9.0]])
SDS = np.array([[0.5], [1.2], [2.3]])


def simulated(number, truth=TRUTH, sds=SDS, **settings):
    """For each of some comparisons: which intervals hold, and the verdicts, ``(entry,)`` each."""
    held, verdicts = [], []
    for i in range(number):
        values = differences(np.random.default_rng(i), truth, sds, **settings)
        one = joint_intervals({"": values})
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
            **dict.fromkeys(("delta_ensemble", "delta_ensemble_mcse"), np.nan),
            ensemble_seeds=0,
            doubtful=0,
            overlap=0.0,
            **dict.fromkeys((*COUNTS, "both_infinite"), 0),
            **{f"pairs_{method}": 0 for method in METHODS},
        )
        table = verdict_table(deltas.assign(metric="nll", exploratory=False), MARGIN)
        said.append(table[["posterior_verdict", "advi_verdict"]].to_numpy())
    said = np.array(said)
    wrong = ((said != right) & (said != "undecided")).any(axis=(1, 2))
    # Binomial: of 12 tables at 5 %, more than 3 are wrong with probability 0.002.
    assert wrong.sum() <= 3
    # All but those whose truth is next to the margin.
    sure = [(0, 0), (2, 0), (2, 1), (3, 0), (3, 1), (4, 0), (4, 1), (5, 1)]
    assert np.mean([said[:, i, j] == right[i, j] for i, j in sure]) >= 0.8


SPLITS, OVERLAP = 20, 1 / 9
UCI_SDS = np.array([0.1, 0.1, 0.3, 0.01, 0.4])
"""Of five tables: differences on the smallest vary forty times as much as on the largest."""


def on_splits(rng, splits):
    """Differences of three contrasts on standard splits, nine rows of ten for training.

    All splits of a table share an error, whose variance is that of a split times the overlap.
    """
    shape = (3, len(UCI_SDS), splits)
    shared, rest = rng.normal(0, np.sqrt(OVERLAP), shape[:2]), rng.normal(size=shape)
    values = UCI_SDS[:, None] * (shared[..., None] + rest)
    index = pd.MultiIndex.from_product(map(range, shape), names=["contrast", "data", "seed"])
    return pd.Series(values.ravel(), index)


@pytest.mark.slow
@pytest.mark.parametrize("splits", [SPLITS, 200])
def test_contrasts_on_standard_splits(splits):
    """Level, length and power of `experiments/uci_posterior.yaml`."""
    number, overlap = 40, dict.fromkeys(range(len(UCI_SDS)), OVERLAP)
    sds, error = np.tile(UCI_SDS, 3), np.sqrt(1 / splits + OVERLAP)
    held, widths, found, alone, said = [], [], [], [], []
    for i in range(number):
        values = on_splits(np.random.default_rng([i, splits]), splits)
        one, other = (joint_intervals({"": values}, o) for o in (overlap, None))
        for intervals, all_hold in ((one, held), (other, alone)):
            all_hold.append(((intervals["low"] <= 0) & (intervals["high"] >= 0)).all())
        widths.append(half_widths(one) / sds)
        said.append((one[["detectable", "limit"]].T / sds).to_numpy())
        # Intervals move with the data: the effect that would have been found.
        found.append(-(one["low"] / sds).to_numpy())
        alone.append((joint_intervals({"": values})["low"] <= 0).all())
    assert np.mean(held) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / number)
    level = (1 + 0.95 ** (1 / len(sds))) / 2
    known, unknown = stats.norm.ppf(level), stats.t.ppf(level, splits - 1)
    assert known * error < np.mean(widths) < 1.02 * unknown * error
    # The smallest effect that is found with a power of 0.8, in standard deviations of a split: 1.66
    # with 20 splits, 1.30 with 200. However many there are, no interval is below 0.98.
    smallest, limit = np.mean(said, axis=(0, 2))
    assert np.quantile(found, 0.8) == pytest.approx(smallest, rel=0.08)
    assert smallest == pytest.approx(1.66 if splits == SPLITS else 1.30, abs=0.03)
    assert np.mean(widths) > limit == pytest.approx(0.98, rel=0.02)
    # Without the shared error most tables would have a wrong verdict.
    assert np.mean(alone) < 0.5
