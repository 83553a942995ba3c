"""A model on one flat vector: places, shapes and what a trace keeps."""

import numpy as np
import pymc as pm
import pytest

from pmbnn.inference.flat import flatten_model
from pmbnn.models import dense_classifier

X = np.random.default_rng(0).normal(size=(12, 2))
Y = np.arange(12) % 3


def build(**settings):
    return dense_classifier(X, Y, hidden=(4,), **settings)


def test_slots():
    """The value variables one after the other, in the model's order, nothing between."""
    model = build(hyperprior="half_normal")
    flat = flatten_model(model, rows=12)
    assert [slot.name for slot in flat.slots] == [v.name for v in model.value_vars]
    assert {slot.name: slot.shape for slot in flat.slots} == {
        "layer_1_scale_log__": (),
        "weight_1_z": (2, 4),
        "bias_1_z": (4,),
        "layer_2_scale_log__": (),
        "weight_2_z": (4, 3),
        "bias_2_z": (3,),
    }
    assert [slot.start for slot in flat.slots[1:]] == [slot.stop for slot in flat.slots[:-1]]
    assert flat.slots[0].start == 0
    assert flat.size == 29


@pytest.mark.parametrize("rows", [12, 5, None])
def test_static_shapes(rows):
    flat = flatten_model(build(), rows)
    assert {name: v.type.shape for name, v in flat.data.items()} == {
        "x": (rows, 2),
        "target": (rows,),
        "prior_scale": (),
    }
    assert flat.values.type.shape == (27,)


@pytest.mark.parametrize("rows", [12, 5])
def test_values(rows, evaluate):
    """Prior and likelihood are PyMC's, at a point whose every element has its place."""
    model = build(hyperprior="inverse_gamma")
    shorter = dense_classifier(X[:rows], Y[:rows], hidden=(4,), hyperprior="inverse_gamma")
    flat = flatten_model(model, rows)
    vector = np.random.default_rng(1).normal(size=flat.size)
    rows_of = {"x": X[:rows], "target": Y[:rows].astype(np.int32)}
    values = rows_of | {"hyperprior_alpha": 2.0, "hyperprior_beta": 1.0}
    given = {flat.values: vector} | {v: values[name] for name, v in flat.data.items()}
    found = evaluate([flat.log_prior, flat.log_likelihood], given)
    point = {
        v: vector[slot.start : slot.stop].reshape(slot.shape)
        for v, slot in zip(shorter.value_vars, flat.slots, strict=True)
    }
    prior = [term.sum() for term in shorter.logp(vars=shorter.free_RVs, sum=False)]
    rows_of_y = shorter.logp(vars=shorter.observed_RVs, sum=False)[0]
    *terms, by_row = evaluate([*prior, rows_of_y], point)
    np.testing.assert_allclose(found[0], sum(terms), rtol=1e-10)
    np.testing.assert_allclose(found[1], by_row, rtol=1e-10)


@pytest.mark.parametrize(("prior", "improper"), [("flat", True), ("cauchy", False)])
def test_improper(prior, improper):
    assert flatten_model(build(prior=prior), rows=12).improper is improper


def test_one_improper_variable_is_enough():
    with pm.Model() as model:
        slope, level = pm.Normal("slope"), pm.Flat("level")
        pm.Normal("y", slope * X[:, 0] + level, observed=X[:, 1])
    assert flatten_model(model, rows=12).improper


def test_posterior_leaves_out_standard_draws():
    weights = {"weight_1", "bias_1", "weight_2", "bias_2"}
    assert set(flatten_model(build(), 12).posterior) == weights
    learned = flatten_model(build(hyperprior="half_cauchy"), 12).posterior
    assert set(learned) == weights | {"layer_1_scale", "layer_2_scale"}
