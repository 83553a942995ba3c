"""Draws of the flat vector from the prior: against SciPy, and whatever else is drawn."""

import os
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

import pmbnn as pb
from pmbnn.inference.flat import flatten_model
from pmbnn.prior_predictive.evaluate import seeded_prior_draws

X, Y = np.random.default_rng(0).normal(size=(6, 2)), np.array([0, 1, 0, 1, 0, 1])


def model_of(prior, hyperprior):
    return pb.dense_classifier(X, Y, hidden=(2,), prior=prior, hyperprior=hyperprior)


def part(model, values, name):
    (slot,) = (s for s in flatten_model(model, rows=None).layout.slots if s.name == name)
    return values[:, slot.start : slot.stop]


def seeds(n):
    return [[i, 7] for i in range(n)]


@pytest.mark.parametrize(
    ("prior", "law"),
    [
        (pb.Normal(), stats.norm(scale=0.5)),
        (pb.Laplace(), stats.laplace(scale=0.5)),
        (pb.Cauchy(), stats.cauchy(scale=0.5)),
        (pb.StudentT(nu=3), stats.t(3, scale=0.5)),
    ],
)
def test_weights_have_their_distribution(prior, law):
    model = model_of(prior, pb.Fixed(scale=0.5))
    values = seeded_prior_draws(model, seeds(500))
    assert values.shape == (500, flatten_model(model, rows=None).size)
    assert values.dtype == np.float64
    assert stats.kstest(values.ravel(), law.cdf).pvalue > 1e-3


def test_learned_scales_are_unconstrained():
    model = model_of("normal", pb.HalfNormal(sigma=2.0))
    values = seeded_prior_draws(model, seeds(500))
    scale = np.exp(part(model, values, "layer_1_scale_log__")[:, 0])
    assert stats.kstest(scale, stats.halfnorm(scale=2.0).cdf).pvalue > 1e-3
    other = part(model, values, "layer_2_scale_log__")[:, 0]
    assert abs(stats.spearmanr(scale, other).statistic) < 0.2
    standard = part(model, values, "weight_1_z").ravel()
    assert stats.kstest(standard, stats.norm.cdf).pvalue > 1e-3


def test_a_draw_is_decided_by_its_seed_alone():
    model = model_of("laplace", "half_cauchy")
    every = seeded_prior_draws(model, seeds(5))
    alone = seeded_prior_draws(model_of("laplace", "half_cauchy"), seeds(5)[3:4])
    assert (alone[0] == every[3]).all()
    assert len(np.unique(every[:, 0])) == 5


CODE = """
import numpy as np
import pmbnn as pb
from pmbnn.prior_predictive.evaluate import seeded_prior_draws
x, y = np.zeros((4, 2)), np.array([0, 1, 0, 1])
model = pb.dense_classifier(x, y, (2,), prior="horseshoe", hyperprior="half_normal")
print(seeded_prior_draws(model, [[3, 1]]).tolist())
"""


@pytest.mark.slow
def test_a_draw_is_the_same_in_every_process():
    found = {
        subprocess.run(
            [sys.executable, "-c", CODE],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
