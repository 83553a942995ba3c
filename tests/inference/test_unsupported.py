"""What is said of a model that cannot be fitted, and what PyTensor computes in place of JAX."""

import any_models
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from tiers import slow_but

import pmbnn as pb
from pmbnn.inference.batches import model_values
from pmbnn.inference.flat import flat_vector, flatten_model
from pmbnn.inference.observed import interpreted
from pmbnn.inference.samplers.chains import Chains, Samples
from pmbnn.inference.samplers.settings import Mclmc
from pmbnn.inference.unsupported import (
    computed_by_pytensor,
    first_line,
    names_in_jax,
    why_not_finite,
)
from pmbnn.models.build import dense_classifier
from pmbnn.prediction import api
from pmbnn.prediction.draws import KeptDraws
from pmbnn.prediction.posterior import Posterior
from pmbnn.prediction.predictor import Predictor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 2))


class Twice(Op):
    """An operation without a form in JAX."""

    def make_node(self, x):
        x = pt.as_tensor_variable(x)
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = 2 * inputs[0]


def with_deterministic():
    with pm.Model() as model:
        w = pm.Normal("w", shape=2)
        pm.Deterministic("twice", Twice()(w))
        pm.Deterministic("total", w.sum())
        pm.Normal("y", X @ w, 1.0, observed=X[:, 0])
    return model


def test_deterministics_without_a_form_in_jax():
    flat = flatten_model(with_deterministic(), 12)
    assert names_in_jax(flat, "float64") == ["w", "total"]
    vectors = RNG.normal(size=(5, 2))
    found = computed_by_pytensor(flat, ["twice"], vectors, {})
    np.testing.assert_array_equal(found["twice"], 2 * vectors)


def drawn_by_chains(model):
    values = RNG.normal(size=(2, 4, 2))
    chains = Chains(values, {"lp": np.zeros((2, 4))}, np.zeros(2, bool))
    samples = Samples(chains, "undecided", "made up", None, {})
    kept, verdict = {0: KeptDraws(chains.merged)}, ("undecided", "made up", "no posterior")
    posterior = Posterior(
        model, Mclmc(), kept, {0: 1.0}, 0, *verdict, dtype="float64", samples=samples
    )
    return posterior.to_datatree()


def drawn_by_fit(model):
    return pb.fit(model, steps=20, progress=False).to_datatree(6)


@pytest.mark.parametrize("drawn", slow_but([drawn_by_chains], [drawn_by_fit, drawn_by_chains]))
def test_they_are_computed_by_pytensor(drawn):
    """They have no part in the density, and their draws belong to those of the other variables."""
    posterior = drawn(with_deterministic())["posterior"]
    assert list(posterior.data_vars) == ["w", "twice", "total"]
    np.testing.assert_allclose(posterior["twice"], 2 * posterior["w"])
    np.testing.assert_allclose(posterior["total"], posterior["w"].sum("w_dim_0"))


def test_models_of_this_package_may_have_them_too():
    model = dense_classifier(X, np.arange(12) % 2, hidden=(2,))
    with model:
        pm.Deterministic("twice", Twice()(model["bias_2"]))
    draws = Predictor(model, pb.Categorical())
    values = RNG.normal(size=(3, draws.flat.size)).astype("f4")
    found = draws.posterior(model_values(model), values)
    np.testing.assert_allclose(found["twice"], 2 * found["bias_2"], rtol=1e-5)


# --- densities and gradients that are not finite ------------------------------------------


def of_likelihood(w):
    pm.Normal("y", X @ w, 1.0, observed=np.where(np.arange(12) == 5, np.inf, X[:, 0]))


def of_potential(w):
    pm.Potential("wall", pt.log(-pt.sum(w**2)))


def of_prior(w):
    pm.Normal("second", 0.0, pt.log(-pt.exp(w[0])))


def of_gradient(w):
    root = pt.sqrt(pt.sum(pt.maximum(w**2 - 100, 0)))
    pm.Normal("y", X @ w + root, 1.0, observed=X[:, 0])


CASES = {
    of_likelihood: "the log-density of `y` is -inf in row 5",
    of_potential: "the log-density of `wall` is nan",
    of_prior: "the log-density of `second` is -inf",
    of_gradient: "the gradient of the log-density of `y` by `w` is not finite",
}


def not_finite(part):
    with pm.Model() as model:
        part(pm.Normal("w", shape=2))
    return model


@pytest.mark.parametrize("part", CASES, ids=lambda part: part.__name__)
def test_the_term_that_is_not_finite_is_named(part):
    flat = flatten_model(not_finite(part), 12)
    points = RNG.normal(size=(3, flat.size))
    expected = f"{CASES[part]} at the start, at 3 of 3 random points"
    assert why_not_finite(flat, {}, points, "float64") == expected


def test_terms_that_are_finite():
    flat = flatten_model(with_deterministic(), 12)
    assert why_not_finite(flat, {}, RNG.normal(size=(3, 2)), "float64") is None


def test_fits_name_it():
    """In place of advice on the learning rate."""
    message = "^`model` cannot be fitted: the log-density of `wall` is nan"
    with pytest.raises(ValueError, match=message):
        pb.fit(not_finite(of_potential), steps=20, progress=False)


@pytest.mark.parametrize("chains", ["made_up", pytest.param("real", marks=pytest.mark.slow)])
def test_chains_name_it(monkeypatch, chains):
    if chains == "made_up":
        broken = Chains(np.zeros((2, 4, 2)), {}, np.ones(2, bool))
        samples = Samples(broken, "diverged", "2 of 2 chains", None, {})
        monkeypatch.setattr(api, "sample_whitened", lambda *_, **__: samples)
    message = "^`model` cannot be sampled: the log-density of `wall` is nan"
    with pytest.raises(ValueError, match=message):
        pb.sample(not_finite(of_potential), chains=2, draws=4, tuning=20, progress=False)


# --- missing entries of vectors -----------------------------------------------------------


@pytest.mark.slow
def test_missing_entries_of_a_vector():
    """The density is PyMC's own; that of the missing entries is in the rows that they are of."""
    model = any_models.missing_entries()
    flat, vector = flatten_model(model, 12), None
    vector = flat_vector(flat)
    total = sum(g.sum() for g in [*flat.log_priors.values(), *flat.log_likelihoods.values()])
    ours = interpreted([vector], flat.at(vector, [total])[0])
    theirs = interpreted(model.value_vars, model.logp())
    point = RNG.normal(size=flat.size)
    parts = flat.layout.unravel(point)
    expected = theirs(*(parts[v.name] for v in model.value_vars))
    assert ours(point) == pytest.approx(float(expected), rel=1e-12)
    approx = pb.fit(model, steps=20, progress=False)
    assert approx.sample(3)["y"].shape == (3, 12, 2)


def test_an_error_without_a_message_is_named_by_its_class():
    assert first_line(NotImplementedError()) == "NotImplementedError"
    assert first_line(ValueError("\nthe reason\nand more")) == "the reason"
