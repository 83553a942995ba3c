"""R-hat of functions of the draws, and how long chains go on."""

import re

import numpy as np
import pytest
from arviz_stats.base import array_stats

from pmbnn.inference.samplers.chains import Chains, Convergence, Tuning, function_rhat
from pmbnn.inference.samplers.run import Walk, sample_until_agreed, verdict

rng = np.random.default_rng(0)
TUNED = Tuning(np.zeros(4, bool), {})
START = Walk(state=0)


def chains_of(values, n_not_finite=0):
    diverging = np.full(values.shape[:2], n_not_finite > 0)
    return Chains(values, {"diverging": diverging}, diverging.any(axis=1))


def test_rhat_is_arviz_s():
    values = rng.normal(size=(4, 50, 3)) + np.array([0.0, 0.2, 1.0]) * np.arange(4)[:, None, None]
    found = function_rhat(values)
    expected = [array_stats.rhat(values[..., i], chain_axis=0, draw_axis=1) for i in range(3)]
    np.testing.assert_allclose(found, expected)
    assert found[0] < 1.1 < 1.3 < found[2]


def test_constants_and_what_is_not_finite():
    """A probability that is 1 in every draw agrees; one that differs by chain does not."""
    values = np.ones((4, 20, 4))
    values[..., 1] = np.arange(4)[:, None]
    values[2, 3, 2] = np.nan
    values[..., 3] = rng.normal(size=(4, 20))
    found = function_rhat(values)
    assert found[0] == 1.0
    assert np.isinf(found[1])
    assert np.isinf(found[2])
    assert 0.9 < found[3] < 1.3


def test_where_several_functions_have_none_the_chains_disagree():
    """Among many, and with no other."""
    values = rng.normal(size=(4, 50, 20))
    values[..., :5] = np.nan
    for some in (values, values[..., :1], values[..., :2]):
        found = Convergence.of(some)
        assert found.percentile == found.largest == np.inf
        assert not found.passed


@pytest.mark.parametrize(
    ("percentile", "largest", "passed"),
    [(1.02, 1.05, True), (1.021, 1.03, False), (1.0, 1.051, False)],
)
def test_both_bounds_hold(percentile, largest, passed):
    assert Convergence(percentile, largest, draws=10).passed is passed


class Script:
    """Chains that disagree for some blocks and then are drawn from one distribution."""

    def __init__(self, disagreeing, broken_at=None):
        self.disagreeing, self.broken_at, self.calls = disagreeing, broken_at, 0

    def __call__(self, walk):
        values = np.random.default_rng(self.calls).normal(size=(4, 400, 2))
        if self.calls < self.disagreeing:
            values += np.array([0.0, 0.0, 0.0, 1.5])[:, None, None]
        self.calls += 1
        broken = int(self.calls == self.broken_at)
        return walk.followed_by(self.calls, chains_of(values, n_not_finite=broken))


@pytest.mark.parametrize(
    ("disagreeing", "doublings", "blocks", "status"),
    [(0, 3, 1, "converged"), (1, 3, 8, "converged"), (8, 3, 8, "undecided"),
     (8, 1, 2, "undecided"), (1, 0, 1, "undecided")],
)  # fmt: skip
def test_draws_double_until_the_chains_agree(disagreeing, doublings, blocks, status):
    """One block of eight that disagrees counts for an eighth of the mean only."""
    script, reports = Script(disagreeing), []
    found, convergence = sample_until_agreed(
        script,
        START,
        lambda v: v,
        400,
        doublings,
        lambda done, wanted, words: reports.append((done, wanted, bool(words))),
    )
    assert script.calls == blocks
    assert found.chains.values.shape == (4, 400 * blocks, 2)
    doubled = [2**i for i in range(4) if 2**i <= blocks]
    assert [done for done, _, agreed in reports if agreed] == [400 * n for n in doubled]
    assert all(done <= wanted for done, wanted, _ in reports)
    assert verdict(found.chains, convergence, TUNED, improper=False)[0] == status


def test_a_broken_chain_ends_it():
    script = Script(disagreeing=8, broken_at=3)
    found, convergence = sample_until_agreed(script, START, lambda v: v, 400, 3, lambda *_: None)
    assert script.calls == 3
    status, reason = verdict(found.chains, convergence, TUNED, improper=False)
    assert status == "diverged"
    assert reason.startswith("4 of 4 chains met a log-density or a gradient that is not finite")


@pytest.mark.parametrize(
    ("n_broken", "status", "words"),
    [(1, "converged", "; 1 of 8 chains met .* to 1 draws, and are left out$"),
     (2, "diverged", "^2 of 8 chains met ")],
)  # fmt: skip
def test_one_broken_chain_in_eight_is_left_out(n_broken, status, words):
    """It would have kept the others from agreeing."""
    values = rng.normal(size=(8, 400, 2))
    values[:n_broken] += 50
    diverging = np.zeros((8, 400), bool)
    diverging[:n_broken, 7] = True
    broken = Chains(values, {"diverging": diverging}, diverging.any(axis=1))
    found, convergence = sample_until_agreed(
        lambda walk: walk.followed_by(1, broken), START, lambda v: v, 400, 3, lambda *_: None
    )
    given, reason = verdict(
        found.chains, convergence, Tuning(np.zeros(8, bool), {}), improper=False
    )
    assert given == status
    assert re.search(words, reason)
    np.testing.assert_array_equal(found.chains.whole.values, values[n_broken:])


def test_every_run_that_estimates_an_evidence_counts():
    values = np.zeros((16, 4, 2))
    broken = np.arange(16) == 3
    statistics = {"diverging": np.zeros((16, 4), bool)}
    assert not Chains(values, statistics, broken).too_many_broken
    runs = statistics | {"log_evidence": np.zeros((16, 4))}
    assert Chains(values, runs, broken).too_many_broken


def test_a_chain_that_could_not_be_tuned_is_broken():
    found, convergence = sample_until_agreed(Script(0), START, lambda v: v, 400, 3, lambda *_: None)
    untuned = Tuning(np.array([False, False, True, False]), {})
    assert verdict(found.chains, convergence, untuned, improper=False) == (
        "diverged",
        "the tuning of 1 of 4 chains found no step",
    )


def test_chains_that_agree_on_biased_draws_have_not_converged():
    found, convergence = sample_until_agreed(Script(0), START, lambda v: v, 400, 3, lambda *_: None)
    doubtful = TUNED._replace(doubt="steps are too long")
    status, reason = verdict(found.chains, convergence, doubtful, improper=False)
    assert (status, reason) == ("undecided", f"steps are too long; {convergence}")


@pytest.mark.parametrize(("disagreeing", "status"), [(0, "converged"), (8, "undecided")])
def test_an_improper_prior_is_noted_beside_the_verdict(disagreeing, status):
    found, convergence = sample_until_agreed(
        Script(disagreeing), START, lambda v: v, 400, 3, lambda *_: None
    )
    plain = verdict(found.chains, convergence, TUNED, improper=False)
    noted = "; a prior is improper, and draws cannot tell whether the posterior is"
    expected = (status, plain[1] + noted)
    assert verdict(found.chains, convergence, TUNED, improper=True) == expected


def test_broken_chains_under_an_improper_prior_have_diverged():
    script = Script(disagreeing=8, broken_at=1)
    found, convergence = sample_until_agreed(script, START, lambda v: v, 400, 3, lambda *_: None)
    assert verdict(found.chains, convergence, TUNED, improper=True)[0] == "diverged"
