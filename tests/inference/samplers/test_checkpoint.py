"""Chains that were interrupted go on from where they were."""

import numpy as np
import pytest
from posteriors import MCLMC, regression, sampler_of
from tiers import slow_but

from pmbnn.core.stages import on_progress
from pmbnn.inference.groups import Checkpoint
from pmbnn.inference.samplers.chains import Chains
from pmbnn.inference.samplers.run import Walk, arrays_of, restored, sample_posterior

SETTINGS = {
    "mclmc": MCLMC,
    "nuts": {"chains": 2, "draws": 4, "tuning": 20, "descent": 5},
    "smc": {"chains": 2, "draws": 16, "moves": 1, "leapfrogs": (2, 4)},
}


class Interrupted(Exception):
    """Somebody pressed Ctrl-C."""


def interrupt_after(draws):
    """What interrupts chains once they have so many draws."""

    def told(stages):
        if stages and (stages[-1].stage, stages[-1].done) == ("sample", draws):
            raise Interrupted

    return told


def apart(values):
    """Functions of draws that never agree, so that chains go on as long as they may."""
    return values[..., :1] + 100.0 * np.arange(len(values))[:, None, None]


class Counted:
    """A sampler whose extensions are counted."""

    def __init__(self, sampler):
        self.sampler, self.extensions = sampler, 0

    def __getattr__(self, name):
        return getattr(self.sampler, name)

    def extend(self, *arguments):
        self.extensions += 1
        return self.sampler.extend(*arguments)


@pytest.mark.parametrize("engine", slow_but(["mclmc"], list(SETTINGS)))
def test_interrupted_chains_go_on_with_the_same_bits(engine, tmp_path):
    """After the third block of eight; none is drawn twice."""
    settings = SETTINGS[engine]
    sampler = sampler_of(regression(), engine, **settings)
    whole = sample_posterior(sampler, {}, apart, identity="3")
    assert whole.chains.draws == 8 * settings["draws"]
    sampler, checkpoint = Counted(sampler), Checkpoint(tmp_path / "chains.npz", 0.0)
    told = interrupt_after(3 * settings["draws"])
    with pytest.raises(Interrupted), on_progress(told):
        sample_posterior(sampler, {}, apart, identity="3", checkpoint=checkpoint)
    assert sampler.extensions == 3
    for _ in range(2):
        found = sample_posterior(sampler, {}, apart, identity="3", checkpoint=checkpoint)
        assert sampler.extensions == 8
        assert (found.status, found.reason) == (whole.status, whole.reason)
        assert (found.tuned, found.convergence) == (whole.tuned, whole.convergence)
        np.testing.assert_array_equal(found.chains.values, whole.chains.values)
        assert found.chains.statistics.keys() == whole.chains.statistics.keys()
        for name, values in whole.chains.statistics.items():
            np.testing.assert_array_equal(found.chains.statistics[name], values)


def a_walk():
    values = np.arange(12.0).reshape(2, 3, 2)
    statistics = {"lp": np.ones((2, 3)), "n_steps": np.full((2, 3), 7)}
    return Walk((np.zeros(2), np.array(5)), Chains(values, statistics, np.array([False, True])))


def test_walks_come_back(tmp_path):
    checkpoint, walk = Checkpoint(tmp_path / "chains.npz", 0.0), a_walk()
    assert restored(checkpoint, walk.state) is None
    checkpoint.save_if_due(lambda: arrays_of(Walk(walk.state)))
    assert restored(checkpoint, walk.state).chains is None
    checkpoint.save_if_due(lambda: arrays_of(walk))
    found = restored(checkpoint, walk.state)
    assert found.draws == 3
    np.testing.assert_array_equal(found.chains.values, walk.chains.values)
    np.testing.assert_array_equal(found.chains.broken, walk.chains.broken)
    assert list(found.chains.statistics) == ["lp", "n_steps"]
    np.testing.assert_array_equal(found.state[1], 5)


def test_walks_of_other_shapes_start_again(tmp_path):
    checkpoint, walk = Checkpoint(tmp_path / "chains.npz", 0.0), a_walk()
    checkpoint.save_if_due(lambda: arrays_of(walk))
    assert restored(checkpoint, (np.zeros(3), np.array(5))) is None
    assert restored(checkpoint, (np.zeros(2), np.array(5.0))) is None
