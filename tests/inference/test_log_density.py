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
from pmbnn.inference.log_density import build_log_density
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


def sum_of_some(value, x):
    return -(value**2) - pt.arange(x.astype("int64")).sum()


def test_what_has_no_form_in_jax_is_named():
    with pm.Model() as model:
        x = pm.HalfNormal("x")
        pm.CustomDist("odd", x, logp=sum_of_some)
    with pytest.raises(ValueError, match="log-density of `odd` has an operation"):
        build_log_density(model, 1)
