"""The log-density that samplers take: PyMC's own, with its gradient."""

import any_models
import jax
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from tiers import slow_but

from pmbnn.inference.batches import model_values
from pmbnn.inference.engines import n_observations
from pmbnn.inference.log_density import build_log_density, build_tempered_density
from pmbnn.inference.xla.compile import precision
from pmbnn.models.build import dense_classifier

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(70, 2)), rng.integers(0, 3, 70)


def classifier():
    """Of 70 rows, which are filled up to 128."""
    return dense_classifier(X, Y, hidden=(4,), prior="laplace", hyperprior="half_cauchy")


MODELS = any_models.EIGHT | any_models.OTHERS | {"classifier": classifier}
QUICK = ("classifier",)


def by_pymc(model, layout, vector, evaluate):
    """Log-density and gradient of PyMC at a vector, in the order of the layout."""
    parts = {slot.name: slot.of(vector) for slot in layout.slots}
    point = {v: parts[v.name] for v in model.value_vars}
    with pytensor.config.change_flags(cxx="", mode="FAST_COMPILE"):
        value, joined = evaluate([model.logp(), model.dlogp(vars=model.free_RVs)], point)
    gradients = np.split(joined, np.cumsum([part.size for part in point.values()])[:-1])
    return value, layout.ravel({v.name: g for v, g in zip(point, gradients, strict=True)})


@pytest.mark.parametrize("name", slow_but(QUICK, list(MODELS)))
def test_value_and_gradient_are_pymcs(name, evaluate):
    model = MODELS[name]()
    density = build_log_density(model, n_observations(model), "float64")
    vector = 0.3 * np.random.default_rng(1).normal(size=density.size)
    with precision("float64"):
        prepared = density.prepare(model_values(model))
        found = jax.device_get(jax.jit(jax.value_and_grad(density.value))(vector, prepared))
    expected = by_pymc(model, density.flat.layout, vector, evaluate)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


def test_rows_are_filled_up_and_do_not_count():
    assert build_log_density(classifier(), 70).padding == 58


def test_rows_that_fill_up_may_have_no_density():
    """As the first one, which they copy: the density is zero then, and not undefined."""
    x = np.linspace(2.0, 0.1, 100)
    with pm.Model() as model:
        upper = pm.Normal("upper")
        pm.Uniform("y", 0.0, upper, observed=pm.Data("x", x, dims="observation"))
    density = build_log_density(model, 100, "float64")
    assert density.padding > 0
    with precision("float64"):
        prepared = density.prepare({"x": x})
        assert float(density.value(np.array([1.9]), prepared)) == -np.inf
        assert float(density.value(np.array([-1.0]), prepared)) == -np.inf
        expected = -100 * np.log(2.5) - 2.5**2 / 2 - np.log(2 * np.pi) / 2
        assert float(density.value(np.array([2.5]), prepared)) == pytest.approx(expected)


def test_data_come_with_each_call():
    """Other targets have another density, and the program is the same."""
    density = build_log_density(classifier(), 70, "float64")
    values = model_values(classifier())
    with precision("float64"):
        of = jax.jit(density.value)
        here = np.random.default_rng(1).normal(size=density.size)
        first, second = (
            float(of(here, density.prepare(values | {"target": target}))) for target in (Y, 2 - Y)
        )
        assert of._cache_size() == 1
    assert first != second


def shape_of_gamma():
    pm.Gamma("y", alpha=pm.Normal("a"), beta=1.0, observed=[0.3, 0.8])


def shape_of_a_prior():
    pm.Gamma("x", alpha=pm.Normal("a"), beta=1.0, default_transform=None)


def scale_of_a_prior():
    pm.Normal("y", pm.Normal("x", 0.0, pm.Normal("a")), 1.0, observed=[0.3, 0.8])


def standard_deviation():
    pm.Normal("y", 0.0, pm.Normal("a"), observed=[0.3, 0.8])


def in_a_potential():
    pm.Potential("y", pm.logp(pm.Beta.dist(pm.Normal("a"), 1.0), 0.4))


def probabilities():
    p = pt.stack([pm.Normal("a"), 0.4, 0.4])
    pm.Categorical("y", p=pt.stack([p, p]), observed=[0, 2])


@pytest.mark.parametrize(
    "variables",
    [shape_of_gamma, shape_of_a_prior, standard_deviation, in_a_potential, probabilities],
)
def test_parameters_outside_their_domain(variables):
    """The density is zero there as in PyMC, not what its formula says."""
    with pm.Model() as model:
        variables()
    density, logp = build_log_density(model, 1, "float64"), model.compile_logp(mode="FAST_COMPILE")
    with precision("float64"):
        prepared = density.prepare({})
        for value in (0.2, -0.5, 1.7):
            at = np.full(density.size, value)
            found = float(density.value(at, prepared))
            assert found == pytest.approx(logp(density.flat.layout.unravel(at)), rel=1e-9)
            assert np.isfinite(found) or value != 0.2
        assert float(density.value(np.full(density.size, -0.5), prepared)) == -np.inf


@pytest.mark.parametrize("variables", [shape_of_gamma, standard_deviation, scale_of_a_prior])
def test_coordinates_of_parameters_outside_their_domain(variables):
    """Particles of SMC that are drawn there from the prior have no likelihood."""
    with pm.Model() as model:
        variables()
    tempered = build_tempered_density(build_log_density(model, 1, "float64"))
    with precision("float64"):
        prepared = tempered.prepare({})
        for value in (0.2, -0.5):
            coordinates = np.full(tempered.size, value)
            likelihood, at = (float(v) for v in tempered.evaluate(coordinates, *prepared)[:2])
            assert np.isfinite([likelihood, at]).all() == (value > 0)
            assert not np.isnan([likelihood, at]).any()


def test_bounds_that_a_model_leaves_out():
    with pm.Model(check_bounds=False) as model:
        shape_of_gamma()
    density = build_log_density(model, 1, "float64")
    with precision("float64"):
        assert np.isfinite(density.value(np.array([-0.5]), density.prepare({})))


def sum_of_some(value, x):
    return -(value**2) - pt.arange(x.astype("int64")).sum()


def test_what_has_no_form_in_jax_is_named():
    with pm.Model() as model:
        x = pm.HalfNormal("x")
        pm.CustomDist("odd", x, logp=sum_of_some)
    with pytest.raises(ValueError, match="log-density of `odd` has an operation"):
        build_log_density(model, 1)
