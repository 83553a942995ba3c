"""Verdicts on made histories."""

import numpy as np
import pytest

from pmbnn.inference.convergence import final_mean, late_gain, verdict
from pmbnn.inference.optimisers import relative_rate

WINDOWS = 200
LENGTH = 50
STEP = LENGTH * np.arange(1, WINDOWS + 1)
EVEN = np.full(WINDOWS, LENGTH)


def noise(sd, random_seed=0):
    return sd * np.random.default_rng(random_seed).normal(size=WINDOWS)


def way(schedule):
    """Learning rates of the steps of each window, summed."""
    rates = np.asarray(relative_rate(schedule, np.arange(STEP[-1]), STEP[-1]))
    return rates.reshape(WINDOWS, LENGTH).sum(axis=1)


def status(history, along=EVEN, rows=10, is_finite=True, improper=False):
    n = len(history)
    return verdict(history, STEP[:n], along[:n], rows, is_finite, improper)


def test_flat_history_converges():
    rise = -100 * np.exp(-np.arange(WINDOWS) / 10)
    assert status(-300 + rise + noise(1.0))[0] == "converged"


def test_noise_converges():
    """The gain of pure noise is above two standard errors in one of forty fits or so."""
    found = [status(noise(1.0, i))[0] for i in range(2000)]
    # Student's t with 38 degrees of freedom: 2.6 %, with a standard error of 0.36 %.
    assert 0.012 < found.count("not_converged") / 2000 < 0.04


def test_rise_is_not_converged():
    """Half a unit a window is 10 between tenths, against errors of a third and 0.3."""
    found, reason = status(-300 + 0.5 * np.arange(WINDOWS) + noise(1.0))
    assert found == "not_converged"
    assert reason.startswith("the last tenth of the way raised the ELBO by 9.")


@pytest.mark.parametrize("schedule", ["one_cycle", "cosine"])
def test_a_falling_rate_hides_no_rise(schedule):
    """An ELBO that rises with the way, not with the steps, is on its way at the end too.

    Its last windows by number look settled, as the learning rate falls to zero.
    """
    along = way(schedule)
    history = -310 + 10 * np.cumsum(along) / along.sum() + noise(0.01)
    found, reason = status(history, along)
    assert found == "not_converged"
    assert reason.startswith("the last tenth of the way raised the ELBO by 1")
    assert status(history)[0] == "converged"
    settled = -300 - 10 * (along == along[0]) + noise(0.01)
    assert status(settled, along)[0] == "converged"


def test_gain_is_of_tenths_of_the_way():
    """By a rate that is halved for the last 100 windows: 30 windows make its last tenth."""
    along = np.repeat([2.0, 1.0], 100)
    history = np.zeros(WINDOWS)
    history[140:170] = 1.0
    history[170:] = 4.0
    gain = late_gain(history, along, 10)
    assert gain.value == 3.0
    assert gain.error == 0.0
    assert not gain.is_small


@pytest.mark.parametrize(("gain", "expected"), [(0.25, "converged"), (0.35, "not_converged")])
def test_a_thousandth_is_settled(gain, expected):
    """Without noise only the size of the gain counts: 0.3 is a thousandth of the ELBO."""
    history = np.full(WINDOWS, -300.0)
    history[-20:] += gain
    assert status(history)[0] == expected


@pytest.mark.parametrize(("gain", "expected"), [(0.95, "converged"), (1.05, "not_converged")])
def test_little_an_observation_is_settled(gain, expected):
    """Of 10,000 rows, 1 nat is 10⁻⁴ each, although the ELBO itself is next to zero."""
    history = np.zeros(WINDOWS)
    history[-20:] += gain
    assert status(history, rows=10_000)[0] == expected


@pytest.mark.parametrize(("factor", "expected"), [(1.98, "converged"), (2.02, "not_converged")])
def test_two_standard_errors_are_settled(factor, expected):
    """Windows of ±1 have a known error; the ELBO is near zero, so its size does not count."""
    history = np.tile([-1.0, 1.0], WINDOWS // 2)
    error = np.sqrt(2 * (20 / 19) / 20)
    history[-20:] += factor * error
    assert late_gain(history, EVEN, 10).error == pytest.approx(error, rel=1e-12)
    assert status(history)[0] == expected


def test_a_fall_is_settled():
    assert status(-300 - 0.5 * np.arange(WINDOWS))[0] == "converged"


@pytest.mark.parametrize("windows", [1, 2, 14, 40])
def test_too_few_windows(windows):
    """Of 40, a tenth has four: its standard error would mean little."""
    history = np.full(windows, -3.0)
    assert status(history) == ("not_converged", "too few steps to tell")
    assert late_gain(history, EVEN[:windows], 10) is None


def test_enough_windows():
    assert status(np.full(50, -3.0))[0] == "converged"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("improper", [False, True])
def test_diverged(value, improper):
    """The first window that is not finite is named; improper or not."""
    history = np.full(WINDOWS, -300.0)
    history[[7, 9]] = value
    found = status(history, improper=improper)
    assert found == ("diverged", "the ELBO was not finite by step 400")


@pytest.mark.parametrize("improper", [False, True])
def test_parameters_diverged(improper):
    """After the last window nothing but the guide tells."""
    found = status(np.full(WINDOWS, -300.0), is_finite=False, improper=improper)
    assert found == ("diverged", "some parameter of the guide is not finite")


def test_improper():
    found, reason = status(-300 + 0.5 * np.arange(WINDOWS), improper=True)
    assert found == "improper"
    assert reason == "the posterior is improper, its ELBO has no maximum"


def test_final_mean():
    assert final_mean(np.arange(200.0)) == 189.5
    assert final_mean(np.arange(14.0)) == 13
    assert final_mean(np.array([-5.0])) == -5
    assert np.isnan(final_mean(np.array([1.0, np.nan])))
