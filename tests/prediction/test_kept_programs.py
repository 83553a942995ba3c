"""Programs that are kept as long as their model, and what must never be taken from them."""

import gc
import weakref

import numpy as np
import pymc as pm
import pytensor
import pytest

import pmbnn as pb
from pmbnn.inference.samplers import mclmc, nuts

SHORT = {"chains": 4, "draws": 100, "tuning": 200, "descent": 100, "progress": False}


@pytest.fixture
def built(monkeypatch):
    """A list that grows by one each time that programs are made."""
    made = []
    for module in (mclmc, nuts):
        build = module._programs
        monkeypatch.setattr(
            module, "_programs", lambda *a, build=build: made.append(1) or build(*a)
        )
    return made


@pytest.mark.parametrize("engine", ["nuts", pytest.param("mclmc", marks=pytest.mark.slow)])
def test_a_model_that_changed_is_sampled_as_it_is_now(built, engine):
    """Its data need no new program; another number in its graph and another term do."""

    def mean_sum(model):
        chains = pb.sample(model, engine=engine, **SHORT).chains
        return chains.values.sum(axis=-1).mean()

    shift = pytensor.shared(0.0)
    with pm.Model() as model:
        data = pm.Data("data", np.zeros(20))
        x = pm.Normal("x", 0.0, 10.0, shape=2)
        pm.Normal("y", x.sum() + shift, 1.0, observed=data)
    assert mean_sum(model) == pytest.approx(0, abs=0.1)
    with model:
        pm.set_data({"data": np.full(20, 5.0)})
    assert mean_sum(model) == pytest.approx(5, abs=0.1)
    assert len(built) == 1
    shift.set_value(2.0)
    assert mean_sum(model) == pytest.approx(3, abs=0.1)
    with model:
        pm.Potential("pull", -500 * (x.sum() - 9) ** 2)
    assert mean_sum(model) == pytest.approx(9, abs=0.2)
    assert len(built) == 3
    model_is_alive = weakref.ref(model)
    del model, data, x
    gc.collect()
    assert model_is_alive() is None
