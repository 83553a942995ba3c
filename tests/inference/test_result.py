"""What goes into a fit and comes out of it."""

import subprocess
import sys

import numpy as np
import pytest

from pmbnn.inference.result import Fit, History, Replica, derive_keys


def a_fit(status):
    constrained = {"loc": np.arange(3.0), "scale": np.ones(3)}
    history = History(*(np.zeros(1) for _ in range(4)))
    return Fit(constrained, np.ones(3), history, 0.0, status, "", derive_keys("a"))


@pytest.mark.parametrize("status", ["converged", "not_converged", "improper", "diverged"])
def test_only_divergence_is_failure(status):
    assert a_fit(status).failed == (status == "diverged")


def test_means_of_the_guide():
    np.testing.assert_array_equal(a_fit("converged").loc, [0.0, 1.0, 2.0])


def test_a_replica_takes_the_learning_rate_of_the_settings():
    assert Replica({}, derive_keys("a")).learning_rate is None


def each_of(keys):
    return [keys.initial, keys.noise, keys.batches, keys.draws]


def test_keys_differ():
    """From each other and between identities, also those that look alike."""
    names = ("fit/0", "fit/1", "fit/10", "choose/0", "", "é", "fit/0 ")
    found = [key for name in names for key in each_of(derive_keys(name))]
    assert all(key.shape == (4,) and key.dtype == np.uint32 for key in found)
    assert len({key.tobytes() for key in found}) == 4 * len(names)
    # A JAX key is made of the first two words.
    assert len({key[:2].tobytes() for key in found}) == 4 * len(names)


def test_keys_depend_on_the_identity_only():
    """Not on NumPy's global state, nor on the hash seed of the process."""
    code = (
        "import numpy as np; np.random.seed(1)\n"
        "from pmbnn.inference.result import derive_keys\n"
        "derive_keys('another')\n"
        "s = derive_keys('fit/0')\n"
        "print(*np.concatenate([s.initial, s.noise, s.batches, s.draws]))"
    )
    expected = " ".join(str(w) for w in np.concatenate(each_of(derive_keys("fit/0"))))
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == expected
