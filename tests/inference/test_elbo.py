"""Same noise, same number: the compiled objective against PyMC's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.special import expit
from scipy.stats import norm
from tiers import slow_but

from pmbnn.inference.advi import build_program
from pmbnn.inference.batches import cast
from pmbnn.inference.flat import flatten_model
from pmbnn.inference.guides import softplus
from pmbnn.inference.settings import Inference
from pmbnn.inference.xla.compile import precision
from pmbnn.models.build import dense_classifier
from pmbnn.models.hyperpriors import HYPERPRIORS, HalfNormal

# Enough rows for the forms of products and softmaxes that are made for few units and many rows.
ROWS = 70
X = np.random.default_rng(0).normal(size=(ROWS, 2))
Y = (X[:, 0] * X[:, 1] > 0).astype(int)
PAIRS = ["normal half_normal", "cauchy inverse_gamma", "laplace fixed"]
FORMS = ("auto", "monte_carlo")
TOLERANCE = {"float64": 1e-10, "float32": 1e-5}


@pytest.fixture(params=slow_but(PAIRS[:1], PAIRS))
def case(request):
    """A model, and the values of its data variables."""
    prior, hyperprior = request.param.split()
    model = dense_classifier(X, Y, hidden=(3,), prior=prior, hyperprior=hyperprior)
    constants = HYPERPRIORS[hyperprior]().constants
    return model, {"x": X, "target": Y, **constants}


def parameters_and_noise(size, random_seed=1):
    """Means around 0, scales between 0.2 and 2, standard normal noise."""
    rng = np.random.default_rng(random_seed)
    return 0.5 * rng.normal(size=size), rng.uniform(-1.5, 1.9, size), rng.normal(size=size)


def build(model, dtype="float64", **settings):
    return build_program(model, Inference(**settings), ROWS, width=1, dtype=dtype)


def arrays_of(program, data):
    return cast(data, program.dtype, program.flat.row_data, program.padding)


def slope_of(program):
    """Compiled: the loss at a KL weight and its gradients, log-likelihood and divergence."""

    @jax.jit
    def slope(at, noise, data, kl_weight):
        prepared = program.prepare(data)
        return jax.value_and_grad(program.loss, has_aux=True)(at, noise, prepared, kl_weight)

    return slope


def evaluated(program, data, loc, rho, noise, kl_weight=1.0, slope=None):
    """What `slope_of` a program gives, as a list."""
    dtype = program.dtype
    with precision(dtype):
        at = {"loc": jnp.asarray(loc, dtype), "rho": jnp.asarray(rho, dtype)}
        noise = {"noise": jnp.asarray(noise, dtype)}
        slope = slope or slope_of(program)
        (loss, parts), gradient = slope(at, noise, arrays_of(program, data), kl_weight)
        assert {a.dtype for a in (loss, *parts, *gradient.values())} == {np.dtype(dtype)}
        whole = [loss, gradient["loc"], gradient["rho"], *parts]
        return [np.asarray(a, np.float64) for a in whole]


def compiled(model, data, loc, rho, noise, dtype="float64", **settings):
    """ELBO and its gradients in loc and rho, as the compiled engine has them."""
    program = build(model, dtype, **{"kl": "monte_carlo"} | settings)
    found = evaluated(program, data, loc, rho, noise)
    assert found[0] == pytest.approx(found[4] - found[3], rel=10 * float(np.finfo(dtype).eps))
    return [-a for a in found[:3]]


def in_model_order(model, *vectors):
    """Flat vectors with the variables in the order of the model, and where each element was."""
    flat = flatten_model(model, ROWS)
    places = {slot.name: np.arange(slot.start, slot.stop) for slot in flat.layout.slots}
    order = np.concatenate([places[v.name] for v in model.value_vars])
    return *(vector[order] for vector in vectors), np.argsort(order)


def by_chain_rule(model, loc, rho, noise, evaluate):
    """The same from the gradient of PyMC's log-probability, the rest by hand."""
    loc, rho, noise, back = in_model_order(model, loc, rho, noise)
    scale = np.log1p(np.exp(rho))
    draw, start = loc + scale * noise, 0
    point = {}
    for value, shape in zip(model.value_vars, shapes_of(model), strict=True):
        stop = start + int(np.prod(shape))
        point[value], start = draw[start:stop].reshape(shape), stop
    log_p, slope = evaluate([model.logp(), model.dlogp()], point)
    elbo = log_p + norm(0, scale).entropy().sum()
    return elbo, slope[back], ((slope * noise + 1 / scale) * expit(rho))[back]


def pymc_loss(model, loc, rho, noise, evaluate):
    """Loss and gradients of ``pm.fit``, its noise replaced by ours."""
    given = pt.matrix("given")
    with pytensor.config.change_flags(mode="FAST_COMPILE", cxx=""):
        advi = pm.ADVI(model=model)
        group = advi.approx.groups[0]
        loss = advi.objective(1, more_replacements={group.symbolic_initial: given})
    shared = [group.params_dict[name] for name in ("mu", "rho")]
    loc, rho, noise, back = in_model_order(model, loc, rho, noise)
    # PyMC's order of the variables is its own affair.
    order = np.concatenate(
        [np.arange(group.ddim)[group.ordering[v.name][1]] for v in model.value_vars]
    )
    theirs = np.empty((3, group.ddim))
    theirs[:, order] = loc, rho, noise
    for variable, value in zip(shared, theirs[:2], strict=True):
        variable.set_value(value)
    value, *gradients = evaluate([loss, *pytensor.grad(loss, shared)], {given: theirs[2:]})
    return value, *(g[order][back] for g in gradients)


def shapes_of(model):
    shapes = {slot.name: slot.shape for slot in flatten_model(model, ROWS).layout.slots}
    return [shapes[v.name] for v in model.value_vars]


def check(found, expected, dtype="float64"):
    """Each of value and gradients, to a share of its largest element."""
    for a, b in zip(found, expected, strict=True):
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=0, atol=TOLERANCE[dtype] * np.abs(b).max())


def test_equals_pymc(case, evaluate):
    """PyMC's log-probability, and the objective of ``pm.fit``.

    The loss of ``pm.fit`` has log q at the draw where ours has the entropy. The two differ by
    ½ Σ(1 - noise²), which no parameter moves: gradients are the same.
    """
    model, data = case
    size = sum(int(np.prod(shape)) for shape in shapes_of(model))
    loc, rho, noise = parameters_and_noise(size)
    expected = by_chain_rule(model, loc, rho, noise, evaluate)
    loss, *gradients = pymc_loss(model, loc, rho, noise, evaluate)
    check((-loss + 0.5 * np.sum(1 - noise**2), *(-g for g in gradients)), expected)
    check(compiled(model, data, loc, rho, noise), expected)


@pytest.mark.slow
def test_single_precision_equals_pymc(case, evaluate):
    model, data = case
    at = parameters_and_noise(sum(int(np.prod(shape)) for shape in shapes_of(model)))
    expected = by_chain_rule(model, *at, evaluate)
    check(compiled(model, data, *at, "float32"), expected, "float32")


@pytest.mark.slow
def test_hand_written_model(evaluate):
    """A model without coordinates or data variables is fitted as it is."""
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1.0)
        weight = pm.StudentT("weight", nu=4, sigma=scale, shape=(2, 3))
        pm.Categorical("y", logit_p=X @ weight, observed=Y)
    at = parameters_and_noise(7)
    check(compiled(model, {}, *at), by_chain_rule(model, *at, evaluate))


@pytest.mark.slow
def test_scale_cap(evaluate):
    """Under a flat prior every scale above the cap counts as the cap, and stays unmoved."""
    model = dense_classifier(X, Y, hidden=(3,), prior="flat")
    loc, rho, noise = parameters_and_noise(17)
    capped = softplus(rho) > 1.0
    assert 0 < capped.sum() < 17
    below = np.where(capped, np.log(np.expm1(1.0)), rho)
    expected = by_chain_rule(model, loc, below, noise, evaluate)
    expected[2][capped] = 0
    data = {"x": X, "target": Y}
    found = compiled(model, data, loc, rho, noise, improper_scale_cap=1.0)
    check(found, expected)


@pytest.mark.parametrize("kl", slow_but(["auto"], ["auto", "monte_carlo"]))
def test_weight_of_a_minibatch(kl):
    """The mean over the minibatches of one pass is the full batch: the prior counts once."""
    model, constants = dense_classifier(X, Y, hidden=(3,)), {"prior_scale": 1.0}
    at = parameters_and_noise(17)
    rows = np.random.default_rng(0).permutation(ROWS).reshape(2, 35)
    mini, full = build(model, batch=35, kl=kl), build(model, kl=kl)
    parts = [evaluated(mini, constants | {"x": X[r], "target": Y[r]}, *at) for r in rows]
    expected = evaluated(full, constants | {"x": X, "target": Y}, *at)
    check([np.mean(part, axis=0) for part in zip(*parts, strict=True)], expected)
    assert abs(parts[0][3] - parts[1][3]) > 1
    assert parts[0][4] == parts[1][4] == expected[4]


@pytest.mark.slow
def test_data_values_decide(evaluate):
    """Constants are inputs of the program: any replica's model serves for all."""
    wide, narrow = (
        dense_classifier(X, Y, hidden=(3,), hyperprior=HalfNormal(sigma=s)) for s in (1.0, 0.3)
    )
    at = parameters_and_noise(19)
    found = compiled(wide, {"x": X, "target": Y, "hyperprior_sigma": 0.3}, *at)
    check(found, by_chain_rule(narrow, *at, evaluate))


# --- the divergence's share ---------------------------------------------------------------


def test_kl_weight():
    """The factor is that of the divergence, in the loss and in its gradients."""
    model, data = dense_classifier(X, Y, hidden=(3,)), {"x": X, "target": Y, "prior_scale": 1.0}
    program, at = build(model), parameters_and_noise(17)
    slope = slope_of(program)
    none, one, *others = (evaluated(program, data, *at, w, slope) for w in (0.0, 1.0, 0.3, 2.0))
    for weight, found in zip((0.3, 2.0), others, strict=True):
        for i in range(3):
            expected = none[i] + weight * (one[i] - none[i])
            np.testing.assert_allclose(found[i], expected, rtol=1e-10, atol=1e-9)
        assert found[0] == pytest.approx(weight * found[4] - found[3], rel=1e-12)
        assert found[3:] == one[3:]


def many_parts(program, data, loc, rho, noise):
    """Log-likelihoods and divergences at one noise after the other."""
    with precision("float64"):
        at = {"loc": jnp.asarray(loc), "rho": jnp.asarray(rho)}
        prepared = program.prepare(arrays_of(program, data))
        parts = jax.jit(jax.vmap(lambda n: program.parts(at, {"noise": n}, prepared)))
        return [np.asarray(p) for p in parts(jnp.asarray(noise))]


@pytest.mark.slow
@pytest.mark.parametrize("centred", [False, True])
def test_exact_expectations_are_those_of_draws(centred):
    """Over many draws the two forms of a hierarchical model's divergence have one mean.

    The exact one varies less; nothing else differs.
    """
    hyperprior = HalfNormal(centred=centred)
    model = dense_classifier(X, Y, hidden=(3,), hyperprior=hyperprior)
    data = {"x": X, "target": Y, "hyperprior_sigma": 1.0}
    loc, rho, _ = parameters_and_noise(19)
    rho = rho - 1.5  # Scales of scales at which exp(-2u) has a variance that tells something.
    noise = np.random.default_rng(0).normal(size=(20_000, 19))
    exact, drawn = (many_parts(build(model, kl=kl), data, loc, rho, noise) for kl in FORMS)
    np.testing.assert_array_equal(exact[0], drawn[0])
    difference = exact[1] - drawn[1]
    error = difference.std(ddof=1) / np.sqrt(len(noise))
    assert abs(difference.mean()) < 4 * error
    assert error < 0.01 * abs(exact[1].mean())
    assert exact[1].var() < 0.9 * drawn[1].var()
