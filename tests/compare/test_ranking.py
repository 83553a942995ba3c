"""Which combination is best, by how much, and how certain that is."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pmbnn.compare.intervals import t_interval
from pmbnn.compare.scores import HELD_OUT, NO_SCORE, SCORES, rank_combinations, ranking_score
from pmbnn.prediction.predictor import PREDICTIVES
from pmbnn.results.ranking import (
    BEST,
    EQUIVALENT,
    LEVEL,
    NOT_WORSE,
    SIGNIFICANTLY_WORSE,
    UNDECIDED,
    differences_to_best,
    pairwise_half_widths,
)
from pmbnn.results.record import is_unrepeated
from pmbnn.results.tables import combine

SEEDS = range(5)


def cells(made, prior, scores, seeds=SEEDS, **changes):
    return [
        made.record(prior, dataset=made.MOONS | {"seed": seed}, excess_nll=value, **changes)
        for seed, value in zip(seeds, scores, strict=True)
    ]


def found(records):
    table = rank_combinations(combine(records))
    return {row["prior"]: row for row in table.to_dict("records")}


def test_differences_are_paired_by_data_seed(made):
    """Seeds differ far more than priors do: an unpaired error would tell nothing apart."""
    base = np.array([0.1, 0.9, 0.5, 0.3, 0.7])
    step = np.array([0.010, 0.012, 0.011, 0.009, 0.013])
    rows = found(cells(made, "normal", base) + cells(made, "laplace", base + step))
    assert rows["normal"]["verdict"] == BEST and np.isnan(rows["normal"]["difference"])
    worse = rows["Laplace"]
    assert worse["verdict"] == SIGNIFICANTLY_WORSE
    assert worse["difference"] == pytest.approx(step.mean())
    assert worse["difference_se"] == pytest.approx(stats.sem(step))
    # Of two combinations the interval is that of the paired t test, but for the bootstrap's error.
    low, high = stats.t.interval(0.95, 4, step.mean(), stats.sem(step))
    tolerance = 0.03 * (high - low)
    assert (worse["low"], worse["high"]) == pytest.approx((low, high), abs=tolerance)
    assert worse["se"] == pytest.approx(stats.sem(base + step))


def test_an_interval_that_holds_zero_tells_nothing_apart(made):
    base = np.full(5, 0.5)
    noisy = base + [0.3, -0.2, 0.1, -0.1, 0.0]
    rows = found(cells(made, "normal", base) + cells(made, "laplace", noisy))
    assert rows["Laplace"]["verdict"] == NOT_WORSE
    assert rows["Laplace"]["low"] < 0 < rows["Laplace"]["high"]


def test_the_interval_covers_as_often_as_it_says():
    """Of two combinations named beforehand; seeds differ far more than combinations do."""
    rng, n = np.random.default_rng(0), 400
    base = rng.normal(0.5, 1.0, size=(n, 5))
    others = base + 0.02 + 0.05 * rng.normal(size=(n, 5))
    found = pd.DataFrame([t_interval(difference) for difference in others - base])
    covered = ((found["low"] < 0.02) & (found["high"] > 0.02)).sum()
    low, high = stats.binom.interval(0.999, n, LEVEL)
    assert low <= covered <= high
    # And the verdict has the level of the test where there is no difference.
    null = [t_interval(difference)["low"] > 0 for difference in others - base - 0.02]
    low, high = stats.binom.interval(0.999, n, (1 - LEVEL) / 2)
    assert low <= sum(null) <= high


# Intervals of all pairs


@pytest.mark.parametrize(("seeds", "sds"), [(3, (1, 1)), (5, (1, 5)), (12, (0.2, 1))])
def test_two_methods_have_the_interval_of_the_paired_t_test(seeds, sds):
    scores = np.random.default_rng(seeds).normal(size=(seeds, 2)) * sds
    expected = stats.t.ppf(0.975, seeds - 1) * stats.sem(scores[:, 0] - scores[:, 1])
    assert pairwise_half_widths(scores)[0, 1] == pytest.approx(expected, rel=0.04)


def test_many_data_seeds_have_the_intervals_of_tukey():
    """Where methods vary by the same amount: the range of four, studentised."""
    scores = np.random.default_rng(1).normal(size=(150, 4))
    pairs = pairwise_half_widths(scores)[np.triu_indices(4, 1)]
    residuals = scores - scores.mean(axis=0) - scores.mean(axis=1, keepdims=True) + scores.mean()
    error = np.sqrt((residuals**2).sum() / (149 * 3) / 150)
    assert pairs.mean() == pytest.approx(
        error * stats.studentized_range.ppf(0.95, 4, 149 * 3), rel=0.03
    )


def test_what_all_methods_have_in_common_on_a_data_seed_does_not_matter():
    scores = np.random.default_rng(2).normal(size=(6, 5))
    shifted = scores + 64 * np.arange(6)[:, None]
    np.testing.assert_allclose(
        pairwise_half_widths(shifted), pairwise_half_widths(scores), rtol=0.2
    )


@pytest.mark.parametrize(
    "scores", [np.ones((5, 3)) * [0.1, 0.2, 0.3], np.arange(6.0).reshape(2, 3)]
)
def test_without_an_error_there_is_no_interval(scores):
    assert np.isnan(pairwise_half_widths(scores)).all()


def test_a_score_that_is_not_finite_has_no_interval_and_leaves_the_others_theirs():
    scores = np.random.default_rng(3).normal(size=(5, 4))
    expected = pairwise_half_widths(scores[:, :3])
    scores[1, 3] = np.inf
    half_widths = pairwise_half_widths(scores)
    np.testing.assert_array_equal(half_widths[:3, :3], expected)
    assert np.isnan(half_widths[3]).all() and np.isnan(half_widths[:, 3]).all()


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 5, 20])
@pytest.mark.parametrize("methods", [4, 13])
@pytest.mark.parametrize(("large", "correlation"), [(0, 0), (1, 0), (0.5, 0), (0.5, 0.9)])
def test_of_methods_that_do_not_differ_some_is_called_worse_in_one_ranking_of_twenty(
    monkeypatch, large, correlation, methods, seeds
):
    """However many there are, and though some vary five times as much, together or not.

    What is wrong does not depend on the true means: intervals move with them.
    """
    monkeypatch.setattr("pmbnn.results.ranking.BOOTSTRAP", 500)
    rng, number = np.random.default_rng([seeds, methods]), 300
    is_large = np.arange(methods) < (large if large >= 1 else large * methods)
    weight, wrong = np.where(is_large, correlation, 0), 0
    for _ in range(number):
        shared, own = rng.normal(size=(seeds, 1)), rng.normal(size=(seeds, methods))
        scores = np.sqrt(weight) * shared + np.sqrt(1 - weight) * own
        scores = np.where(is_large, 5, 1) * scores + 10 * rng.normal(size=(seeds, 1))
        mean = scores.mean(axis=0)
        best = mean.argmin()
        wrong += (mean - mean[best] > pairwise_half_widths(scores)[best])[mean > mean[best]].any()
    assert wrong <= stats.binom.ppf(0.999, number, 1 - LEVEL)


@pytest.mark.slow
def test_a_method_that_is_worse_by_four_deviations_is_found():
    rng, found = np.random.default_rng(0), 0
    for _ in range(50):
        scores = rng.normal(size=(5, 13)) + 4 * (np.arange(13) == 12)
        mean = scores.mean(axis=0)
        best = mean.argmin()
        found += mean[12] - mean[best] > pairwise_half_widths(scores)[best, 12]
    assert found >= 40


def splits(rng, number=10, rows=100, held_out=20):
    """Test errors of two learners on random splits of one pool, ``(split, learner)``.

    Both regress on an input that says nothing of the target, each on one of its own: over pools,
    neither is better.
    """
    x, y = rng.normal(size=(2, rows)), rng.normal(size=rows)
    order = rng.permuted(np.tile(np.arange(rows), (number, 1)), axis=1)
    test, train = order[:, :held_out], order[:, held_out:]
    slopes = (x[:, train] * y[train]).sum(-1) / (x[:, train] ** 2).sum(-1)
    return ((y[test] - slopes[..., None] * x[:, test]) ** 2).mean(-1).T


@pytest.mark.parametrize(("overlap", "at_least", "at_most"), [(0.25, 0.0, 0.07), (0.0, 0.12, 1.0)])
def test_splits_of_the_same_rows_are_no_independent_data(overlap, at_least, at_most):
    """The verdict keeps its level of 5 % where the overlap is known, and not where it is not."""
    rng, found = np.random.default_rng(0), []
    for _ in range(500):
        one, other = splits(rng).T
        row = t_interval(one - other, overlap)
        found.append(row["low"] > 0 or row["high"] < 0)
    assert at_least <= np.mean(found) <= at_most


def test_a_difference_over_splits_of_the_same_rows_can_be_found():
    """By hand: an interval reaches 0.72 deviations of a split, or 1.34 where ten overlap."""
    spread = np.linspace(-1, 1, 10)
    spread /= spread.std(ddof=1)

    def low(difference, overlap):
        return t_interval(spread + difference, overlap)["low"]

    assert low(1.4, 0.25) > 0 and low(1.0, 0.0) > 0
    assert low(1.0, 0.25) < 0
    assert low(1.4, 0.25) == pytest.approx(1.4 - 1.338, abs=1e-3)


def test_what_a_record_says_of_its_splits_counts(made):
    base, step = np.full(5, 0.5), np.array([0.010, 0.012, 0.011, 0.009, 0.013])
    records = cells(made, "normal", base) + cells(made, "laplace", base + step)
    alone = found(records)["Laplace"]
    shared = found([made.changed(r, overlap=0.25) for r in records])["Laplace"]
    longer = np.sqrt(1 + 5 * 0.25)
    assert shared["difference_se"] == pytest.approx(alone["difference_se"] * longer)
    width = alone["high"] - alone["low"]
    assert shared["high"] - shared["low"] == pytest.approx(width * longer)
    assert shared["se"] == pytest.approx(alone["se"] * longer)


@pytest.mark.parametrize("seeds", [1, 2])
def test_of_one_or_two_data_seeds_no_interval_is_known(made, seeds):
    scores = {"normal": [0.1, 0.2], "laplace": [9.0, 9.2]}
    rows = found([r for p, v in scores.items() for r in cells(made, p, v[:seeds], range(seeds))])
    assert (rows["Laplace"]["verdict"], rows["Laplace"]["shared"]) == (UNDECIDED, seeds)
    assert rows["Laplace"]["difference"] == pytest.approx(8.95, abs=0.06)
    assert np.isnan([rows["Laplace"][name] for name in ("low", "high")]).all()
    assert np.isnan(rows["Laplace"]["difference_se"]) == (seeds == 1)


def test_methods_that_failed_on_a_seed_are_compared_on_the_others(made):
    """With intervals of its own: those of both sets of data seeds hold at once."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=5)
    full = cells(made, "normal", base) + cells(made, "laplace", base + 1 + 0.1 * rng.normal(size=5))
    short = cells(made, "cauchy", base[:4] + 2 + 0.1 * rng.normal(size=4), range(4))
    alone, both = found(full)["Laplace"], found(full + short)
    assert (both["Laplace"]["shared"], both["Cauchy"]["shared"]) == (5, 4)
    assert both["Cauchy"]["verdict"] == SIGNIFICANTLY_WORSE
    longer = (both["Laplace"]["high"] - both["Laplace"]["low"]) / (alone["high"] - alone["low"])
    expected = stats.t.ppf(1 - 0.025 / 2, 4) / stats.t.ppf(0.975, 4)
    assert longer == pytest.approx(expected, rel=0.05)


def test_thirteen_combinations_that_do_not_differ_are_not_called_worse(made):
    """Paired t tests call one of these worse, uncorrected."""
    rng = np.random.default_rng(4)
    base = rng.normal(size=5)
    scores = {prior: base + rng.normal(size=5) for prior in "abcdefghijklm"}
    rows = found([r for prior, values in scores.items() for r in cells(made, prior, values)])
    best = next(name for name, row in rows.items() if row["verdict"] == BEST)
    assert {row["verdict"] for name, row in rows.items() if name != best} == {NOT_WORSE}
    assert any(t_interval(v - scores[best])["low"] > 0 for n, v in scores.items() if n != best)


def test_differences_without_spread_have_no_error(made):
    rows = found(cells(made, "normal", [0.25] * 5) + cells(made, "laplace", [0.5] * 5))
    assert (rows["Laplace"]["verdict"], rows["Laplace"]["shared"]) == (UNDECIDED, 5)


def test_fits_of_one_data_seed_count_as_one(made):
    fits = [
        made.record(inference={"steps": 10, "seed": fit}, excess_nll=value)
        for fit, value in enumerate((0.1, 0.3))
    ]
    (row,) = found(fits).values()
    assert (row["mean"], row["seeds"]) == (pytest.approx(0.2), 1)


def test_who_failed_on_a_seed_is_not_the_best_for_it(made):
    """The one left of the hard seed would be first by its mean alone."""
    short = cells(made, "laplace", [0.1], [0])
    short += [made.record("laplace", dataset=made.MOONS | {"seed": 1}, failed=True)]
    table = rank_combinations(combine(cells(made, "normal", [0.2, 0.8], [0, 1]) + short))
    assert table["prior"].tolist() == ["normal", "Laplace"]
    assert table["verdict"].tolist() == [BEST, UNDECIDED]
    assert table["difference"].tolist()[1] == pytest.approx(-0.1)


def test_failed_combinations_have_no_score(made):
    records = cells(made, "normal", [0.2], [0]) + [made.record("laplace", failed=True)]
    assert found(records)["Laplace"]["verdict"] == NO_SCORE


def test_nothing_is_ranked_by_test_rows(made):
    records = [
        made.record(p, accuracy=a, nll=1 - a, validation_nll=None)
        for p, a in (("normal", 0.9), ("laplace", 0.8))
    ]
    assert ranking_score(records) is None
    assert {row["verdict"] for row in found(records).values()} == {NO_SCORE}


def test_scores_in_their_order(made):
    plain = made.record()
    assert ranking_score([plain]) == "validation_nll"
    images = made.changed(plain, images={"held_out": {"nll": 0.25}})
    assert ranking_score([images]) == HELD_OUT
    assert found([images])["normal"]["mean"] == 0.25
    assert ranking_score([made.record(excess_nll=0.1)]) == "excess_nll"


def test_a_prior_without_scale_is_ranked_too(made):
    flat = cells(made, "flat", [0.1] * 5, hyperprior=made.NO_SCALE)
    table = rank_combinations(combine(cells(made, "normal", [0.2, 0.3, 0.4, 0.5, 0.6]) + flat))
    assert table["hyperprior"].tolist() == ["no scale", "half-normal"]


def test_every_type_of_predictions_has_its_scores():
    assert set(SCORES) == set(PREDICTIVES)
    for scores in SCORES.values():
        assert scores.main[0] in scores.columns and scores.ranked_by


def test_one_ensemble_decides_nothing():
    """Neither about itself nor, if it is the best, about others; two on each data seed do."""
    rng = np.random.default_rng(0)
    scores = 0.01 * pd.DataFrame(rng.normal(size=(5, 3)), columns=["a", "b", "c"]) + [0, 0.5, 1]
    found = differences_to_best(scores, unrepeated=["b"])
    assert list(found["verdict"]) == [BEST, UNDECIDED, SIGNIFICANTLY_WORSE]
    found = differences_to_best(scores, unrepeated=["a"])
    assert list(found["verdict"]) == [BEST, UNDECIDED, UNDECIDED]


def test_a_score_that_is_infinite_once_is_worse_whatever_the_others_are():
    rng = np.random.default_rng(0)
    scores = 0.01 * pd.DataFrame(rng.normal(size=(5, 3)), columns=["a", "b", "c"]) + [0, 0, -1]
    alone = differences_to_best(scores[["a", "b"]])
    scores.loc[3, "c"] = math.inf
    found = differences_to_best(scores)
    assert found.loc["c", "verdict"] == SIGNIFICANTLY_WORSE
    assert (found.loc["c", ["difference", "low", "high"]] == math.inf).all()
    pd.testing.assert_frame_equal(found.loc[["a", "b"]], alone, check_dtype=False)
    # Not even that is said of one ensemble.
    assert differences_to_best(scores, unrepeated=["c"]).loc["c", "verdict"] == UNDECIDED
    more = differences_to_best(-scores, less_is_better=False)
    assert list(more["verdict"]) == list(found["verdict"])


def test_cells_of_one_ensemble_are_unrepeated(made):
    def ensembles(*seeds):
        return [made.record(inference={"engine": "mile", "seed": seed}) for seed in seeds]

    assert is_unrepeated(ensembles(0, 0))
    assert not is_unrepeated(ensembles(0, 1))
    assert not is_unrepeated([made.record(inference={"engine": "mclmc"})])


def test_of_a_score_where_more_is_better_the_highest_is_best():
    """Less of a score is as good as more of its negative; the margin counts from zero."""
    rng = np.random.default_rng(0)
    means = pd.Series({"a": 0.0, "b": 0.02, "c": 1.0})
    scores = 0.01 * pd.DataFrame(rng.normal(size=(5, 3)), columns=means.index) + means
    less = differences_to_best(scores, margin=0.2)
    more = differences_to_best(-scores, margin=0.2, less_is_better=False)
    assert list(less["verdict"]) == [BEST, EQUIVALENT, SIGNIFICANTLY_WORSE]
    assert list(more["verdict"]) == list(less["verdict"])
    np.testing.assert_allclose(more["low"][1:], -less["high"][1:])
    assert list(less["shared"][1:]) == [5, 5]
