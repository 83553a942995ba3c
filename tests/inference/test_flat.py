"""A model on one flat vector: places, shapes and what a trace keeps."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.logprob.transforms import LogTransform
from scipy.stats import invgamma

from pmbnn.inference.flat import flat_vector, flatten_model
from pmbnn.models.build import dense_classifier
from pmbnn.models.hyperpriors import InverseGamma

X = np.random.default_rng(0).normal(size=(12, 2))
Y = np.arange(12) % 3


def build(**settings):
    return dense_classifier(X, Y, hidden=(4,), **settings)


def test_slots():
    """Every value variable has its place, nothing between, equal priors side by side."""
    model = build(hyperprior="half_normal")
    flat = flatten_model(model, rows=12)
    assert {slot.name: slot.shape for slot in flat.layout.slots} == {
        "layer_1_scale_log__": (),
        "weight_1_z": (2, 4),
        "bias_1_z": (4,),
        "layer_2_scale_log__": (),
        "weight_2_z": (4, 3),
        "bias_2_z": (3,),
    }
    assert [slot.start for slot in flat.layout.slots[1:]] == [
        slot.stop for slot in flat.layout.slots[:-1]
    ]
    assert flat.layout.slots[0].start == 0
    assert flat.size == 29
    kinds = [slot.name.endswith("_z") for slot in flat.layout.slots]
    assert kinds in (sorted(kinds), sorted(kinds, reverse=True))


def test_slots_of_unlike_priors():
    """In the model's order, but what has the prior of an earlier one comes next to it."""
    with pm.Model() as model:
        pm.Normal("a", 0.0, 1.0)
        pm.Normal("b", 0.0, 2.0)
        pm.Laplace("c", 0.0, 1.0)
        pm.Normal("d", 0.0, 1.0, shape=3)
        pm.Normal("e", [0.0, 0.0], 1.0)
        pm.HalfNormal("f", 1.0)
        pm.Laplace("g", 0.0, 1.0)
        pm.HalfNormal("h", 1.0, default_transform=None)
        pm.Normal("y", 0.0, 1.0, observed=X[:, 0])
    names = [slot.name for slot in flatten_model(model, 12).layout.slots]
    assert names == ["a", "d", "b", "c", "g", "e", "f_log__", "h"]


def test_unpacked(evaluate):
    """Parts of a vector, as of an array."""
    flat, vector = flatten_model(build(hyperprior="half_normal"), 12), np.arange(29.0)
    parts = flat.layout.unravel(pt.constant(vector))
    assert list(parts) == [slot.name for slot in flat.layout.slots]
    for found, slot in zip(evaluate(list(parts.values()), {}), flat.layout.slots, strict=True):
        assert found.shape == slot.shape
        np.testing.assert_array_equal(found, slot.of(vector))


@pytest.mark.parametrize("rows", [12, 5, None])
def test_static_shapes(rows):
    flat = flatten_model(build(), rows)
    assert {name: v.type.shape for name, v in flat.data.items()} == {
        "x": (rows, 2),
        "target": (rows,),
        "prior_scale": (),
    }
    assert flat_vector(flat).type.shape == (flat.size,) == (27,)
    assert {name: v.type.shape for name, v in flat.free.items()} == {
        slot.name: slot.shape for slot in flat.layout.slots
    }


def at_a_point(model, flat, rows, evaluate, graphs):
    """Values of `graphs` at a random flat vector, and the point that it stands for."""
    vector, values = np.random.default_rng(1).normal(size=flat.size), flat_vector(flat)
    data = {"x": X[:rows], "target": Y[:rows].astype(np.int32)}
    data |= {"hyperprior_alpha": 2.0, "hyperprior_beta": 1.0}
    given = {values: vector} | {v: data[name] for name, v in flat.data.items()}
    parts = {slot.name: slot.of(vector) for slot in flat.layout.slots}
    point = {v: parts[v.name] for v in model.value_vars}
    return evaluate(flat.at(values, graphs), given), point


@pytest.mark.parametrize(("rows", "centred"), [(12, True), (5, False)])
def test_values(rows, centred, evaluate):
    """Prior and likelihood are PyMC's, at a point whose every element has its place."""
    hyperprior = InverseGamma(centred=centred)
    shorter = dense_classifier(X[:rows], Y[:rows], hidden=(4,), hyperprior=hyperprior)
    flat = flatten_model(build(hyperprior=hyperprior), rows)
    names = [v.name for v in shorter.value_vars]
    assert set(flat.log_priors) == set(names)
    priors = [flat.log_priors[name] for name in names]
    graphs = [flat.log_likelihoods["y"], flat.log_prior, *priors]
    (by_row, prior, *priors), point = at_a_point(shorter, flat, rows, evaluate, graphs)
    terms = [term.sum() for term in shorter.logp(vars=shorter.free_RVs, sum=False)]
    rows_of_y = shorter.logp(vars=shorter.observed_RVs, sum=False)[0]
    *expected, expected_by_row = evaluate([*terms, rows_of_y], point)
    np.testing.assert_allclose(priors, expected, rtol=1e-10)
    np.testing.assert_allclose(prior, sum(expected), rtol=1e-10)
    np.testing.assert_allclose(by_row, expected_by_row, rtol=1e-10)


def test_densities_without_the_jacobian(evaluate):
    """Of the scale itself: the log-transformation adds its logarithm, and to it alone."""
    model = build(hyperprior="inverse_gamma")
    with_it, without = (flatten_model(model, 12, jacobian=j) for j in (True, False))
    found = [
        at_a_point(model, flat, 12, evaluate, [flat.log_priors[v.name] for v in model.value_vars])
        for flat in (with_it, without)
    ]
    (value, point), (other, _) = found
    logarithms = [point[v] if v.name.endswith("_log__") else 0.0 for v in model.value_vars]
    np.testing.assert_allclose(np.subtract(value, other), logarithms, atol=1e-12)
    scale = np.exp(point[model.value_vars[0]])
    np.testing.assert_allclose(other[0], invgamma(2.0, scale=1.0).logpdf(scale), rtol=1e-10)
    assert sum(logarithm != 0 for logarithm in logarithms) == 2


def test_distributions(evaluate):
    """Kind, transformation, and parameters as graphs of the other free variables and data."""
    flat = flatten_model(build(hyperprior=InverseGamma(centred=True)), 12)
    assert set(flat.distributions) == {slot.name for slot in flat.layout.slots}
    scale, weight = (flat.distributions[n] for n in ("layer_1_scale_log__", "weight_1"))
    assert scale.kind is type(pm.InverseGamma.rv_op)
    assert isinstance(scale.transform, LogTransform)
    assert weight.kind is type(pm.Normal.rv_op)
    assert weight.transform is None
    given = {flat.free["layer_1_scale_log__"]: np.log(3.0)}
    given |= {flat.data["hyperprior_alpha"]: 2.5, flat.data["hyperprior_beta"]: 0.5}
    found = evaluate([*scale.parameters, *weight.parameters], given)
    assert [float(np.squeeze(f)) for f in found] == pytest.approx([2.5, 0.5, 0.0, 3.0])


@pytest.mark.parametrize(("prior", "improper"), [("flat", True), ("cauchy", False)])
def test_improper(prior, improper):
    assert flatten_model(build(prior=prior), rows=12).improper is improper


def test_one_improper_variable_is_enough():
    with pm.Model() as model:
        slope, level = pm.Normal("slope"), pm.Flat("level")
        pm.Normal("y", slope * X[:, 0] + level, observed=X[:, 1])
    assert flatten_model(model, rows=12).improper


def test_posterior_is_all_that_is_not_observed():
    """What a trace leaves out is not decided here."""
    weights = {"weight_1", "bias_1", "weight_2", "bias_2"}
    assert set(flatten_model(build(), 12).posterior) == weights
    learned = flatten_model(build(hyperprior="half_cauchy"), 12).posterior
    standard = {f"{name}_z" for name in weights}
    assert set(learned) == weights | standard | {"layer_1_scale", "layer_2_scale"}
