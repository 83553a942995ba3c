"""Verdicts on made histories."""

import numpy as np
import pytest

from pmbnn.inference.convergence import final_mean, late_gain, may_stop, verdict
from pmbnn.inference.program import relative_rate
from pmbnn.inference.settings import Inference

WINDOWS = 200
LENGTH = 50
STEP = LENGTH * np.arange(1, WINDOWS + 1)
EVEN = np.full(WINDOWS, LENGTH)


def noise(sd, random_seed=0):
    return sd * np.random.default_rng(random_seed).normal(size=WINDOWS)


def way(schedule):
    """Learning rates of the steps of each window, summed."""
    rates = np.asarray(relative_rate(Inference(schedule=schedule), np.arange(STEP[-1]), STEP[-1]))
    return rates.reshape(WINDOWS, LENGTH).sum(axis=1)


def status(history, along=EVEN, is_finite=True, improper=False):
    n = len(history)
    return verdict(history, STEP[:n], along[:n], is_finite, improper)


def test_flat_history_converges():
    rise = -100 * np.exp(-np.arange(WINDOWS) / 10)
    assert status(-300 + rise + noise(1.0))[0] == "converged"


def test_noise_converges():
    """The gain of pure noise is above three standard errors in one of four hundred fits."""
    found = [status(noise(10.0, i))[0] for i in range(4000)]
    # Student's t with 38 degrees of freedom: 0.24 %, with a standard error of 0.08 %.
    assert 0 < found.count("not_converged") / 4000 < 0.0055


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
    history = -320 + 20 * np.cumsum(along) / along.sum() + noise(0.01)
    found, reason = status(history, along)
    assert found == "not_converged"
    assert reason.startswith("the last tenth of the way raised the ELBO by 2")
    assert status(history)[0] == "converged"
    settled = -300 - 20 * (along == along[0]) + noise(0.01)
    assert status(settled, along)[0] == "converged"


@pytest.mark.parametrize("schedule", ["one_cycle", "cosine"])
def test_what_a_falling_rate_explains_is_no_rise(schedule):
    """Parameters that settle as the rate falls raise the ELBO of a fit that has converged."""
    along = way(schedule)
    history = -300 - 30 * along / along.max() + noise(0.3)
    assert history[-20:].mean() - history[-60:-40].mean() > 1
    gain = late_gain(history, STEP, along)
    assert abs(gain.value) < 4 * gain.error
    assert status(history, along)[0] == "converged"


@pytest.mark.parametrize("schedule", ["one_cycle", "cosine"])
def test_drift_and_its_error(schedule):
    """Over many noises, the drift of a tenth of the way is found, with the error that it says."""
    along = way(schedule)
    truth = -300 - 30 * along / along.max() + 50 * np.cumsum(along) / along.sum()
    found = [late_gain(truth + noise(2.0, i), STEP, along) for i in range(400)]
    scores = np.array([(gain.value - 5) / gain.error for gain in found])
    assert abs(scores.mean()) < 4 / 20
    assert scores.std() == pytest.approx(1, abs=0.15)


def test_gain_is_of_tenths_of_the_way():
    """At a constant rate, of tenths of the windows; the last one may be shorter."""
    along = np.append(np.full(WINDOWS - 1, 50.0), 10.0)
    history = np.zeros(WINDOWS)
    history[160:180] = 1.0
    history[180:] = 4.0
    step = np.append(STEP[:-1], STEP[-2] + 10)
    gain = late_gain(history, step, along)
    assert gain.value == pytest.approx(3.0, abs=0.2)
    assert not gain.is_within(3)


def cut(history, at, schedule="constant"):
    """The same windows, those with a snapshot in them cut in two; steps and rates with them."""
    step = np.union1d(STEP, at)
    rates = np.asarray(relative_rate(Inference(schedule=schedule), np.arange(step[-1]), step[-1]))
    sums = np.add.reduceat(rates, [0, *step[:-1]])
    return history[np.searchsorted(STEP, step)], step, sums


@pytest.mark.parametrize("schedule", ["constant", "one_cycle", "cosine", "exponential"])
@pytest.mark.parametrize("at", [[7], [9001, 9530, 9949, 9999], range(3, 10_000, 70)])
def test_snapshots_within_windows_change_no_verdict(schedule, at):
    """Rates are of steps, whatever the lengths of the windows that they are summed over."""
    done = np.cumsum(way(schedule)) / way(schedule).sum()
    for rise, expected in ((0, "converged"), (60, "not_converged")):
        history = -300 + rise * done + noise(0.3)
        whole, parts = (late_gain(*cut(history, of, schedule)) for of in ([], at))
        assert parts.value == pytest.approx(whole.value, abs=0.3 * whole.error)
        # Windows that were cut have the same noise on both sides here.
        assert parts.error == pytest.approx(whole.error, rel=0.4)
        assert verdict(*cut(history, at, schedule), True, False)[0] == expected


def test_a_window_counts_by_its_length():
    """A single step is as noisy as it is short."""
    history, step, along = cut(noise(1.0), STEP[150:] - 1)
    short = np.diff(step, prepend=0) == 1
    history[short] = 1000.0
    expected = late_gain(noise(1.0), STEP, EVEN).value
    assert late_gain(history, step, along).value == pytest.approx(expected, abs=1.0)


def test_an_exponential_fall_differs_from_no_rise():
    """It is a straight line in what is done: the whole difference counts as gain."""
    along = way("exponential")
    history = -300 + 20 * np.cumsum(along) / along.sum() + noise(0.01)
    found, reason = status(history, along)
    assert found == "not_converged"
    assert reason.startswith("the last tenth of the way raised the ELBO by 2")
    assert status(-300 + noise(0.01), along)[0] == "converged"


@pytest.mark.parametrize(("gain", "expected"), [(2.95, "converged"), (3.05, "not_converged")])
def test_a_thousandth_is_settled(gain, expected):
    """Without noise only the size of the gain counts: 3 is a thousandth of the ELBO."""
    history = np.full(WINDOWS, -3000.0)
    history[-20:] += gain
    assert status(history)[0] == expected


@pytest.mark.parametrize(("gain", "expected"), [(0.95, "converged"), (1.05, "not_converged")])
def test_a_nat_is_settled(gain, expected):
    """Although the ELBO itself is next to zero."""
    history = np.zeros(WINDOWS)
    history[-20:] += gain
    assert status(history)[0] == expected


@pytest.mark.parametrize(("factor", "expected"), [(2.98, "converged"), (3.02, "not_converged")])
def test_three_standard_errors_are_settled(factor, expected):
    """Windows of ±10 have a known error; the ELBO is near zero, so its size does not count."""
    history = np.tile([-10.0, 10.0], WINDOWS // 2)
    error = 10 * np.sqrt(2 * (20 / 19) / 20)
    history[-20:] += factor * error
    assert late_gain(history, STEP, EVEN).error == pytest.approx(error, rel=1e-12)
    assert status(history)[0] == expected


@pytest.mark.parametrize(("factor", "expected"), [(0.98, True), (1.02, False)])
def test_stopping_takes_quarters_and_one_standard_error(factor, expected):
    history = np.tile([-10.0, 10.0], WINDOWS // 2)
    error = 10 * np.sqrt(2 * (50 / 49) / 50)
    history[-50:] += factor * error
    assert may_stop(history, STEP, EVEN) == expected


def test_stopping_waits_for_enough_windows():
    assert may_stop(np.full(80, -3.0), STEP[:80], EVEN[:80])
    assert not may_stop(np.full(77, -3.0), STEP[:77], EVEN[:77])


def test_stopping_waits_for_a_slow_rise():
    """A nat in a quarter of the way is little; two are not, whatever a tenth of it shows."""
    rise = np.arange(WINDOWS) / (WINDOWS / 4)
    assert may_stop(0.9 * rise, STEP, EVEN)
    assert not may_stop(1.1 * rise, STEP, EVEN)


def test_a_fall_is_settled():
    assert status(-300 - 0.5 * np.arange(WINDOWS))[0] == "converged"


@pytest.mark.parametrize("windows", [1, 2, 14, 40])
def test_too_few_windows(windows):
    """Of 40, a tenth has four: its standard error would mean little."""
    history = np.full(windows, -3.0)
    assert status(history) == ("not_converged", "too few steps to tell")
    assert late_gain(history, STEP[:windows], EVEN[:windows]) is None


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
    assert final_mean(np.arange(3.0)) == 2
    assert final_mean(np.array([-5.0])) == -5
    assert np.isnan(final_mean(np.array([1.0, np.nan])))
