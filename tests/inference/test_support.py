"""Observations outside the support of their distribution are refused before a fit, as PyMC has it.

PyMC gives them a log-probability of -inf, or refuses the parameters.
"""

import re

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pmbnn as pb
from pmbnn.inference.batches import model_values
from pmbnn.inference.flat import flatten_model, value_shapes
from pmbnn.inference.log_density import build_log_density
from pmbnn.inference.observed import check_support
from pmbnn.models.build import dense_classifier

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 2))
LABELS = np.arange(20) % 3


def categorical(labels, as_data=False):
    with pm.Model() as model:
        observed = pm.Data("labels", labels, dims="observation") if as_data else labels
        pm.Categorical("y", logit_p=X @ pm.Normal("w", shape=(2, 3)), observed=observed)
    return model


def normalised(labels):
    with pm.Model() as model:
        size = pt.exp(X @ pm.Normal("w", shape=(2, 3)))
        pm.Categorical("y", p=size / size.sum(axis=1, keepdims=True), observed=labels)
    return model


def bernoulli(labels):
    with pm.Model() as model:
        pm.Bernoulli("y", logit_p=X @ pm.Normal("w", shape=2), observed=labels)
    return model


def changed(value, at, dtype=int):
    found = LABELS.astype(dtype)
    found[at] = value
    return found


SIGNS = np.where(X[:, 0] > 0, 1, -1)
FIRST = int(np.argmax(SIGNS < 0))
"""Row of the first label of -1."""


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (categorical(LABELS + 1), "the integers from 0 to 2, got 3 in row 2 (and 5 more)"),
        (categorical(changed(-1, 4)), "the integers from 0 to 2, got -1 in row 4."),
        (categorical(changed(7, 3), True), "the integers from 0 to 2, got 7 in row 3."),
        (categorical(changed(1.5, 6, float), True), "the integers, got 1.5 in row 6."),
        (normalised(LABELS + 1), "the integers from 0 to 2, got 3 in row 2 (and 5 more)"),
        (bernoulli(SIGNS), f"the integers from 0 to 1, got -1 in row {FIRST} (and "),
        (bernoulli(np.arange(20) % 2 + 1), "the integers from 0 to 1, got 2 in row 1 (and 9 more)"),
    ],
)
def test_labels_outside_the_support(model, words):
    words = f"`y` must be in the support of its distribution, {words}"
    with pytest.raises(ValueError, match=re.escape(words)):
        flatten_model(model, 20).check_labels(model_values(model))


def test_labels_of_new_data_are_checked_by_every_method():
    """Before anything is compiled for them, whatever the labels were when the model was made."""
    model = categorical(LABELS, as_data=True)
    density = build_log_density(model, 20, "float64")
    with pytest.raises(ValueError, match=r"`y` must be .* got 3 in row 0 \(and 19 more\)"):
        density.prepare({"labels": np.full(20, 3)})
    for method, settings in (
        (pb.fit, {}),
        (pb.fit, {"engine": "pymc"}),
        (pb.sample, {}),
    ):
        pm.set_data({"labels": LABELS + 1}, model=model)
        with pytest.raises(ValueError, match=r"`y` must be .* got 3 in row 2 \(and 5 more\)"):
            method(model, progress=False, **settings)


@pytest.mark.slow
def test_labels_are_checked_again_where_draws_are_read():
    model = categorical(LABELS, as_data=True)
    approx = pb.fit(model, steps=20, progress=False)
    assert np.isfinite(approx.log_joint(4)).all()
    pm.set_data({"labels": LABELS + 1}, model=model)
    with pytest.raises(ValueError, match=r"`y` must be .* got 3 in row 2 \(and 5 more\)"):
        approx.sample(4)


def test_labels_of_this_package_are_in_the_support():
    model = dense_classifier(X, LABELS, hidden=(2,))
    flat = flatten_model(model, 20)
    assert flat.n_classes == {"y": 3}
    flat.check_labels(model_values(model))


def observing(distribution, observed, **parameters):
    with pm.Model() as model:
        w = pm.Normal("w", shape=2)
        given = {name: made(w) for name, made in parameters.items()}
        distribution("y", **given, observed=observed)
    return model


def positive(w):
    return pt.exp(X @ w)


def nothing_missing(w):
    return X @ w


def with_missing():
    """As by pm.observe, which does not impute what is missing."""
    observed = X[:, 0].copy()
    observed[3] = np.nan
    with pm.Model() as model:
        rows = pm.Data("rows", np.zeros(20))
        pm.Normal("y", pm.Normal("w"), 1.0, observed=rows)
    rows.set_value(observed)
    return model


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (
            lambda: observing(pm.Poisson, LABELS - 1, mu=positive),
            "in the support of its distribution, that of Poisson, got -1 in row 0 (and 6 more).",
        ),
        (
            lambda: observing(pm.Binomial, LABELS, n=lambda _: 1, logit_p=nothing_missing),
            "that of Binomial, got 2 in row 2 (and 5 more).",
        ),
        (
            lambda: observing(pm.Gamma, X[:, 0], mu=positive, sigma=lambda _: 1.0),
            "that of Gamma, got ",
        ),
        (
            lambda: observing(pm.Beta, LABELS / 1.5, mu=lambda w: pt.sigmoid(X @ w), nu=positive),
            "that of Beta, got ",
        ),
        (with_missing, "that of Normal, got nan in row 3."),
        (
            lambda: observing(pm.Categorical, LABELS, p=lambda w: pt.exp(X @ pt.stack([w] * 3).T)),
            "parameters that its distribution takes, 0 <= p <=1, sum(p) = 1",
        ),
    ],
)
def test_observations_without_a_density(build, words):
    model = build()
    with pytest.raises(ValueError, match=f"^`y` must .*{re.escape(words)}"):
        check_support(model, value_shapes(model))


def test_observations_with_a_density_somewhere():
    """A bound that is learned: at most points some observation lies beyond it."""
    with pm.Model() as model:
        pm.Uniform("y", 0.0, pm.HalfNormal("bound", 5.0), observed=[1.0, 3.0, 5.0])
    check_support(model, value_shapes(model))


def test_total_size_is_refused_with_its_reason():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("w"), 1.0, observed=X[:, 0], total_size=1000)
    for method in (pb.fit, pb.sample):
        with pytest.raises(ValueError, match="^`y` must not have `total_size`, which multiplies"):
            method(model, progress=False)


def far_bound():
    with pm.Model() as model:
        pm.Uniform("y", 0, pm.HalfNormal("top", 5_000), observed=[120.0, 900.0, 433.0])
    return model


def far_parameter():
    with pm.Model() as model:
        pm.Poisson("y", pm.Normal("level", 1_000, 10) - 500, observed=[530])
    return model


@pytest.mark.parametrize("build", [far_bound, far_parameter])
def test_observations_whose_support_is_far_from_zero(build):
    """In units of the data, as the initial point of the model is."""
    model = build()
    check_support(model, value_shapes(model))
