"""Which combination is best, by how much, and how certain that is."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pmbnn.compare.intervals import (
    BEST,
    LEVEL,
    NO_INTERVAL,
    NOT_WORSE,
    SIGNIFICANTLY_WORSE,
    t_interval,
)
from pmbnn.compare.ranking import NO_SCORE, rank_combinations
from pmbnn.compare.scores import HELD_OUT, SCORES, ranking_score
from pmbnn.prediction.predictor import PREDICTIVES
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
    low, high = stats.t.interval(0.95, 4, step.mean(), stats.sem(step))
    assert (worse["low"], worse["high"]) == (pytest.approx(low), pytest.approx(high))
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


def test_of_one_data_seed_no_error_is_known(made):
    rows = found(cells(made, "normal", [0.1], [0]) + cells(made, "laplace", [9.0], [0]))
    assert (rows["Laplace"]["verdict"], rows["Laplace"]["shared"]) == (NO_INTERVAL, 1)
    assert rows["Laplace"]["difference"] == pytest.approx(8.9)
    assert np.isnan([rows["Laplace"][name] for name in ("difference_se", "low", "high")]).all()


def test_differences_without_spread_have_no_error(made):
    rows = found(cells(made, "normal", [0.25] * 5) + cells(made, "laplace", [0.5] * 5))
    assert (rows["Laplace"]["verdict"], rows["Laplace"]["shared"]) == (NO_INTERVAL, 5)


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
    assert table["verdict"].tolist() == [BEST, NO_INTERVAL]
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
