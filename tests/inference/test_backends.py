"""Same noise, same number: the compiled objective against PyTensor's evaluation of its graph.

What XLA runs has been through rewrites and forms of its own (products and softmaxes of few units,
maxima of few pixels, rows that only fill up); PyTensor computes the graph as it was written, in
Python and in double precision. `test_elbo` holds that graph against PyMC.
"""

from dataclasses import replace

import jax
import numpy as np
import pytensor
import pytest

from pmbnn.data.arrays import Rows
from pmbnn.inference.batches import cast
from pmbnn.inference.program import build_program, split_objective
from pmbnn.inference.settings import ESTIMATORS, Inference
from pmbnn.inference.xla.compile import precision
from pmbnn.models.build import build_model, model_data
from pmbnn.models.hyperpriors import Fixed, HalfNormal, InverseGamma
from pmbnn.models.likelihoods import Categorical
from pmbnn.models.likelihoods import Normal as NormalLikelihood
from pmbnn.models.networks import Convolution, Dense, Flatten, Layered, MaxPool
from pmbnn.models.priors import Laplace, Normal

# Enough rows for the forms that are made for few units and many rows, and some to fill up.
N = 70
RNG = np.random.default_rng(0)
POINTS, IMAGES = RNG.normal(size=(N, 2)), RNG.normal(size=(N, 2 * 6 * 6))
TOLERANCE = {"float64": 1e-10, "float32": 1e-5}


def rows_of(x, y, classes=(), shape=()):
    return Rows(x, y, tuple(f"x{i}" for i in range(x.shape[1])), classes, shape)


LABELS, CLASSES = RNG.permutation(N) % 3, tuple("abc")
NUMBERS = POINTS @ [1.0, -2.0] + 0.3 * RNG.normal(size=N)
DENSE = Dense(hidden=(3,))
CONVOLUTION = Layered(layers=(Convolution(filters=3, size=3), MaxPool(), Flatten()))
MODELS = {
    "points": (DENSE, Normal(), HalfNormal(), Categorical(), rows_of(POINTS, LABELS, CLASSES)),
    "images": (
        *(CONVOLUTION, Normal(), Fixed(), Categorical()),
        rows_of(IMAGES, LABELS, CLASSES, (2, 6, 6)),
    ),
    "regression": (
        *(DENSE, Laplace(), Fixed(), NormalLikelihood(sd=InverseGamma())),
        rows_of(POINTS, NUMBERS),
    ),
}
"""Network, prior, hyperprior, likelihood and rows; the last one learns its noise."""

CASES = [
    *(("points", {"estimator": estimator}) for estimator in ESTIMATORS),
    *(("images", {"estimator": estimator}) for estimator in ("reparameterisation", "flipout")),
    ("regression", {"estimator": "local_reparameterisation"}),
    ("points", {"guide": "low_rank", "rank": 2}),
    ("points", {"guide": "full_rank"}),
    ("regression", {"guide": "low_rank", "rank": 2, "estimator": "path_derivative"}),
]
"""The divergence is exact wherever it can be, as it is unless asked for otherwise."""


def build(name, settings):
    """Engine of a model, and the values of its data variables."""
    network, prior, hyperprior, likelihood, rows = MODELS[name]
    model = build_model(network, prior, hyperprior, likelihood, rows)
    data = model_data(hyperprior, rows, likelihood)
    return build_program(model, settings, N, width=1, dtype="float64"), data


def inputs(program):
    """Parameters of the guide, its scales between 0.2 and 1, and noise of every kind."""
    rng = np.random.default_rng(1)
    shapes, asked = program.guide.shapes, program.objective.noise
    parameters = {name: 0.5 * rng.normal(size=shape) for name, shape in shapes.items()}
    parameters["rho"] = rng.uniform(-1.5, 0.5, shapes["rho"])
    draw = {"normal": rng.standard_normal, "sign": lambda shape: rng.choice([-1.0, 1.0], shape)}
    return parameters, {name: draw[n.kind](n.variable.type.shape) for name, n in asked.items()}


def by_jax(program, data, dtype):
    """ELBO and its gradients by the name of the parameter, as the loop takes them."""
    with precision(dtype):
        precompute, evaluate = split_objective(program.objective)
        program = replace(program, dtype=dtype, precompute=precompute, evaluate=evaluate)
        parameters, noise = (cast(arrays, dtype) for arrays in inputs(program))
        prepared = program.prepare(cast(data, dtype, program.flat.row_data, program.padding))
        slope = jax.jit(jax.value_and_grad(lambda p: -program.loss(p, noise, prepared, 1.0)[0]))
        elbo, gradients = slope(parameters)
    assert {a.dtype for a in (elbo, *gradients.values())} == {np.dtype(dtype)}
    return {"elbo": elbo} | gradients


def by_pytensor(program, data, evaluate):
    """The same, of the same graph, by PyTensor's own operations and gradients."""
    o, (parameters, noise) = program.objective, inputs(program)
    with precision("float64"):
        data = {
            k: np.asarray(v)
            for k, v in cast(data, "float64", program.flat.row_data, program.padding).items()
        }
    given = {v: parameters[name] for name, v in o.parameters.items()}
    given |= {n.variable: noise[name] for name, n in o.noise.items()}
    given |= {v: data[name] for name, v in o.data.items()}
    elbo = o.log_likelihood - o.kl
    gradients = pytensor.grad(elbo, list(o.parameters.values()))
    found = evaluate([elbo, *gradients], given)
    return dict(zip(["elbo", *o.parameters], found, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    CASES,
    ids=[" ".join([n, *map(str, s.values())]) for n, s in CASES],
)
def test_equals_pytensor(name, settings, evaluate):
    """The ELBO, and its gradient in each parameter of the guide to a share of its length."""
    program, data = build(name, Inference(**settings))
    expected = by_pytensor(program, data, evaluate)
    for dtype, tolerance in TOLERANCE.items():
        found = by_jax(program, data, dtype)
        assert found.keys() == expected.keys()
        for part, exact in expected.items():
            error = np.linalg.norm(np.asarray(found[part], np.float64) - exact)
            assert error <= tolerance * np.linalg.norm(exact), (part, dtype)
