"""Snapshots of a fit on its way: what they keep, and that taking them changes nothing."""

import numpy as np
import pytest
from tiers import slow_but

from pmbnn.inference.advi import build_program
from pmbnn.inference.groups import Checkpoints
from pmbnn.inference.groups import fit as fit_replicas
from pmbnn.inference.guides import softplus
from pmbnn.inference.result import Replica, derive_keys
from pmbnn.inference.settings import Inference
from pmbnn.models.build import dense_classifier

ROWS, STEPS = 60, 450
X = np.random.default_rng(0).normal(size=(ROWS, 2))
Y = (X[:, 0] * X[:, 1] > 0).astype(int)
WANTED = (0, 1, 100, 449, STEPS)


def engine_of(width=2, **settings):
    model = dense_classifier(X, Y, hidden=(3,))
    return build_program(model, Inference(steps=STEPS, **settings), ROWS, width)


def replicas(n=2):
    data = {"x": X, "target": Y, "prior_scale": 1.0}
    return [Replica(data, derive_keys(f"replica/{i}")) for i in range(n)]


@pytest.fixture(scope="module")
def program():
    return engine_of()


@pytest.fixture(scope="module")
def looked_at(program):
    return fit_replicas(program, replicas(), snapshots=WANTED)


def check_equal(snapshots, others):
    for one, other in zip(snapshots, others, strict=True):
        assert one.step == other.step
        assert one.kl == other.kl
        np.testing.assert_array_equal(one.scale, other.scale)
        for name in one.constrained:
            np.testing.assert_array_equal(one.constrained[name], other.constrained[name])


def test_the_fit_is_the_same(program, looked_at):
    """Bit for bit, its history cut elsewhere."""
    for fit, plain in zip(looked_at, fit_replicas(program, replicas()), strict=True):
        np.testing.assert_array_equal(fit.loc, plain.loc)
        np.testing.assert_array_equal(fit.scale, plain.scale)
        assert plain.snapshots == ()
        assert set(WANTED[1:]) <= set(fit.history.step)
        lengths, sums = (np.diff([0, *f.history.step]) for f in (fit, plain)), []
        for f, n in zip((fit, plain), lengths, strict=True):
            sums.append((f.history.log_likelihood @ n, f.history.kl @ n))
        assert sums[0][0] == pytest.approx(sums[1][0], rel=1e-6)
        # An exact divergence is computed where windows end, and taken to be straight between.
        assert sums[0][1] == pytest.approx(sums[1][1], rel=1e-3)


def test_what_is_kept(program, looked_at):
    """The start, the end, and what a fit that ends there would find."""
    for i, fit in enumerate(looked_at):
        assert [s.step for s in fit.snapshots] == list(WANTED)
        start, *_, end = fit.snapshots
        rho = np.full(fit.loc.shape, np.log(np.expm1(0.05)))
        np.testing.assert_allclose(start.scale, softplus(rho), rtol=1e-5)
        np.testing.assert_array_equal(end.constrained["loc"], fit.loc)
        np.testing.assert_array_equal(end.scale, fit.scale)
        loc, scale = start.constrained["loc"], start.scale.astype(float)
        exact = np.sum(0.5 * (loc**2 + scale**2 - 1) - np.log(scale))
        assert start.kl == pytest.approx(exact, rel=1e-5)
        assert fit.snapshots[1].constrained["loc"][i] != loc[i]


@pytest.mark.slow
def test_one_by_one(looked_at):
    """As one replica at a time; in the last bits the numbers differ from those of a group."""
    program = engine_of(width=1)
    for fit, other in zip(
        fit_replicas(program, replicas(), snapshots=WANTED), looked_at, strict=True
    ):
        for one, two in zip(fit.snapshots[:3], other.snapshots[:3], strict=True):
            np.testing.assert_allclose(one.constrained["loc"], two.constrained["loc"], atol=1e-3)
            assert one.kl == pytest.approx(two.kl, rel=1e-3)


@pytest.mark.slow
def test_averages_are_kept():
    """What is reported at the end is what a snapshot at the end finds."""
    (fit,) = fit_replicas(engine_of(iterate_averaging=0.5), replicas(1), snapshots=[STEPS])
    np.testing.assert_array_equal(fit.snapshots[0].constrained["loc"], fit.loc)


def test_beyond_the_end(program):
    for fit in fit_replicas(program, replicas(), snapshots=[20, STEPS + 1], steps=30):
        assert [s.step for s in fit.snapshots] == [20]


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("at", slow_but([300], [1, 300]))
def test_resumed(program, looked_at, at, tmp_path):
    """Snapshots from before an interruption are not lost, nor taken twice."""

    def interrupt(done, steps, elbo, current):
        if done >= at:
            raise Interrupted

    checkpoints = Checkpoints(tmp_path, 0.0)
    with pytest.raises(Interrupted):
        fit_replicas(program, replicas(), interrupt, checkpoints, snapshots=WANTED)
    resumed = fit_replicas(program, replicas(), None, checkpoints, snapshots=WANTED)
    for fit, whole in zip(resumed, looked_at, strict=True):
        check_equal(fit.snapshots, whole.snapshots)
        np.testing.assert_array_equal(fit.history.elbo, whole.history.elbo)
