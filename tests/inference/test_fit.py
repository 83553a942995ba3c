"""Verdicts on made histories, and random streams."""

import subprocess
import sys

import numpy as np
import pytest

from pmbnn.inference.fit import Fit, final_elbo, random_streams, verdict

WINDOWS = 200
STEP = 50 * np.arange(1, WINDOWS + 1)
GUIDE = (np.zeros(3), np.ones(3))


def noise(sd, random_seed=0):
    return sd * np.random.default_rng(random_seed).normal(size=WINDOWS)


def status(history, loc=GUIDE[0], scale=GUIDE[1], improper=False):
    return verdict(history, STEP[: len(history)], loc, scale, improper)


def test_flat_history_converges():
    rise = -100 * np.exp(-np.arange(WINDOWS) / 10)
    assert status(-300 + rise + noise(1.0))[0] == "converged"


def test_rise_is_not_converged():
    """Half a unit a window is 10 between tenths, against errors of a third and 0.3."""
    found, reason = status(-300 + 0.5 * np.arange(WINDOWS) + noise(1.0))
    assert found == "not_converged"
    assert reason.startswith("the last tenth of the steps raised the ELBO by 9.")


@pytest.mark.parametrize(("gain", "expected"), [(0.25, "converged"), (0.35, "not_converged")])
def test_a_thousandth_is_settled(gain, expected):
    """Without noise only the size of the gain counts: 0.3 is a thousandth of the ELBO."""
    history = np.full(WINDOWS, -300.0)
    history[-20:] += gain
    assert status(history)[0] == expected


@pytest.mark.parametrize(("factor", "expected"), [(2.98, "converged"), (3.02, "not_converged")])
def test_three_standard_errors_are_settled(factor, expected):
    """Windows of ±1 have a known error; the ELBO is near zero, so its size does not count."""
    history = np.tile([-1.0, 1.0], WINDOWS // 2)
    error = np.sqrt(2 * (20 / 19) / 20)
    history[-20:] += factor * error
    assert status(history)[0] == expected


def test_a_fall_is_settled():
    assert status(-300 - 0.5 * np.arange(WINDOWS))[0] == "converged"


@pytest.mark.parametrize("windows", [1, 2, 14])
def test_too_few_windows(windows):
    """One window a tenth has no standard error."""
    assert status(np.full(windows, -3.0)) == ("not_converged", "too few steps to tell")


def test_enough_windows():
    assert status(np.full(20, -3.0))[0] == "converged"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("improper", [False, True])
def test_diverged(value, improper):
    """The first window that is not finite is named; improper or not."""
    history = np.full(WINDOWS, -300.0)
    history[[7, 9]] = value
    found = status(history, improper=improper)
    assert found == ("diverged", "the ELBO was not finite by step 400")


@pytest.mark.parametrize("broken", ["loc", "scale"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_parameters_diverged(broken, value):
    """After the last window nothing but the guide tells."""
    guide = {broken: np.array([0.5, value, 0.5])}
    found = status(np.full(WINDOWS, -300.0), **guide)
    assert found == ("diverged", "some parameter of the guide is not finite")


def test_improper():
    found, reason = status(-300 + 0.5 * np.arange(WINDOWS), improper=True)
    assert found == "improper"
    assert reason == "the posterior is improper, its ELBO has no maximum"


def test_final_elbo():
    assert final_elbo(np.arange(200.0)) == 189.5
    assert final_elbo(np.arange(14.0)) == 13
    assert final_elbo(np.array([-5.0])) == -5
    assert np.isnan(final_elbo(np.array([1.0, np.nan])))


@pytest.mark.parametrize("name", ["converged", "not_converged", "improper", "diverged"])
def test_only_divergence_is_failure(name):
    fit = Fit(*GUIDE, np.zeros(1), np.ones(1), 0.0, name, "", random_streams("a"))
    assert fit.failed == (name == "diverged")


def words(streams):
    return [streams.initial, streams.noise, streams.batches, streams.draws]


def test_streams_differ():
    """From each other and between identities, also those that look alike."""
    names = ("fit/0", "fit/1", "fit/10", "choose/0", "", "é", "fit/0 ")
    found = [word for name in names for word in words(random_streams(name))]
    assert all(word.shape == (4,) and word.dtype == np.uint32 for word in found)
    assert len({word.tobytes() for word in found}) == 4 * len(names)
    # Keys are made of the first two words of a stream.
    assert len({word[:2].tobytes() for word in found}) == 4 * len(names)


def test_streams_depend_on_the_identity_only():
    """Not on NumPy's global state, nor on the hash seed of the process."""
    code = (
        "import numpy as np; np.random.seed(1)\n"
        "from pmbnn.inference.fit import random_streams\n"
        "random_streams('another')\n"
        "s = random_streams('fit/0')\n"
        "print(*np.concatenate([s.initial, s.noise, s.batches, s.draws]))"
    )
    expected = " ".join(str(w) for w in np.concatenate(words(random_streams("fit/0"))))
    for seed in ("0", "1"):
        found = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert found.stdout.strip() == expected
