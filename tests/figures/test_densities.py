"""Densities of weights and scales against quadrature."""

import numpy as np
import pytest
from scipy import integrate, stats

from pmbnn.figures.densities import fixed_scales, log_scale_density, weight_densities

HALF_NORMAL = {"kind": "half_normal", "on": "scale", "sigma": 0.7}
INVERSE_GAMMA = {"kind": "inverse_gamma", "on": "variance", "alpha": 2.0, "beta": 1.5}
HALF_CAUCHY = {"kind": "half_cauchy", "on": "scale", "beta": 2.0}
FIXED = {"kind": "fixed", "scale": 0.5}
AT = np.array([-3.0, 0.4, 2.0])


def test_fixed_scales():
    assert fixed_scales(FIXED) == [0.5]
    assert fixed_scales({"kind": "fixed", "scale": {"log": [0.1, 10.0, 3]}}) == pytest.approx(
        [0.1, 1, 10]
    )
    assert fixed_scales({"kind": "fixed", "scale": None}) == []
    assert fixed_scales(HALF_NORMAL) == []


@pytest.mark.parametrize("hyperprior", [HALF_NORMAL, INVERSE_GAMMA, HALF_CAUCHY])
def test_density_of_the_logarithm_of_a_scale_integrates_to_one(hyperprior):
    log_scale = np.linspace(-20, 20, 4001)
    density = log_scale_density(hyperprior, np.exp(log_scale))
    assert integrate.trapezoid(density, log_scale) == pytest.approx(1, abs=1e-6)


def test_an_inverse_gamma_variance_makes_a_normal_weight_student():
    found = weight_densities({"kind": "normal"}, INVERSE_GAMMA, AT)
    expected = stats.t(4.0, scale=np.sqrt(1.5 / 2.0)).pdf(AT)
    np.testing.assert_allclose(found[0], expected, rtol=2e-3)


@pytest.mark.parametrize(
    ("prior", "expected"),
    [
        ({"kind": "normal"}, stats.norm(scale=0.5)),
        ({"kind": "laplace"}, stats.laplace(scale=0.5)),
        ({"kind": "cauchy"}, stats.cauchy(scale=0.5)),
        ({"kind": "student_t", "nu": 3.0}, stats.t(3.0, scale=0.5)),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_a_fixed_scale(prior, expected):
    (found,) = weight_densities(prior, FIXED, AT)
    np.testing.assert_allclose(found, expected.pdf(AT))


def test_a_mixture():
    prior = {"kind": "scale_mixture", "proportion": 0.2, "sigma_1": 1.0, "sigma_2": 0.1}
    expected = 0.2 * stats.norm.pdf(AT, scale=0.5) + 0.8 * stats.norm.pdf(AT, scale=0.05)
    np.testing.assert_allclose(weight_densities(prior, FIXED, AT)[0], expected)


def test_the_horseshoe_is_its_mixture_of_normals():
    def integrand(local, x):
        return stats.norm.pdf(x, scale=local) * stats.halfcauchy.pdf(local)

    found = weight_densities({"kind": "horseshoe"}, {"kind": "fixed", "scale": 1.0}, AT)[0]
    expected = [integrate.quad(integrand, 0, np.inf, args=(x,), limit=200)[0] for x in AT]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    far = weight_densities({"kind": "horseshoe"}, {"kind": "fixed", "scale": 1.0}, AT * 1e4)[0]
    np.testing.assert_allclose(far * (AT * 1e4) ** 2, 2 / np.sqrt(2 * np.pi**3), rtol=1e-6)


def test_a_tuned_scale_has_a_density_for_every_candidate():
    tuned = {"kind": "fixed", "scale": {"log": [0.1, 10.0, 5]}}
    assert len(weight_densities({"kind": "normal"}, tuned, AT)) == 5


def test_what_has_no_formula_has_no_density():
    assert weight_densities({"kind": "other"}, FIXED, AT) == []
    assert weight_densities({"kind": "normal"}, {"kind": "other"}, AT) == []
    assert log_scale_density({"kind": "other"}, AT) is None
