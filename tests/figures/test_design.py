"""Design of a grid, and its densities against quadrature."""

import numpy as np
import pytest
from makers import spec
from scipy import integrate, stats

from pmbnn.figures.grids import (
    SCALES,
    WEIGHTS,
    fixed_scales,
    log_scale_density,
    plot_design,
    weight_densities,
)
from pmbnn.results.tables import combine

HALF_NORMAL = spec("hyperprior", **{"kind": "half_normal", "on": "scale", "sigma": 0.7})
INVERSE_GAMMA = spec(
    "hyperprior", **{"kind": "inverse_gamma", "on": "variance", "alpha": 2.0, "beta": 1.5}
)
HALF_CAUCHY = spec("hyperprior", **{"kind": "half_cauchy", "on": "scale", "beta": 2.0})
FIXED = spec("hyperprior", **{"kind": "fixed", "scale": 0.5})
NORMAL = spec("prior", kind="normal")
ONE = spec("hyperprior", kind="fixed", scale=1.0)
AT = np.array([-3.0, 0.4, 2.0])


def panels(made, extra=()):
    grid = [
        made.record(p, h) for p in ("normal", "laplace") for h in (made.TUNED, made.HALF_NORMAL)
    ]
    figure = plot_design(combine([*grid, *extra]), "moons")
    rows = 3 + bool(extra)
    return figure, np.array(figure.axes).reshape(rows, 2)


def test_curves_are_the_densities(made):
    _, found = panels(made)
    at = np.searchsorted(SCALES, 1.0)
    (curve,) = found[0, 1].lines
    assert (
        curve.get_ydata()[at]
        == 2 * np.exp(-0.5 * SCALES[at] ** 2) / np.sqrt(2 * np.pi) * SCALES[at]
    )
    assert len(found[1, 0].lines) == 5
    wide = found[2, 0].lines[-1].get_ydata()
    np.testing.assert_allclose(wide, np.exp(-np.abs(WEIGHTS) / 10) / 20)
    assert found[2, 0].get_yscale() == "log"


def test_words(made, words):
    figure, _ = panels(made)
    found = words(figure)
    assert {"fixed (tuned)", "half-normal", "normal", "Laplace", "scale", "1 cell"} <= set(found)


def test_a_fan_in_rule_that_is_left_out_is_named(made, words):
    plain = made.record("normal")
    settings = plain.settings | {"prior": {"kind": "normal", "fan_in": True}}
    scaled = plain.model_copy(update={"settings": settings})
    figure = plot_design(combine([scaled, made.record("laplace")]), "moons")
    assert "√fan-in" in " ".join(words(figure))
    assert "√fan-in" not in " ".join(words(panels(made)[0]))


def test_a_flat_prior_is_level_and_has_no_scale(made):
    flat = made.record("flat", made.NO_SCALE)
    _, found = panels(made, [flat])
    (curve,) = found[3, 0].lines
    assert np.ptp(curve.get_ydata()) == 0
    assert [text.get_text() for text in found[3, 0].texts] == ["1 cell, no scale"]
    assert [text.get_text() for text in found[3, 1].texts] == ["no scale"]


def test_what_has_no_formula_is_left_empty(made, words):
    odd = made.record("normal", {"kind": "of_another_time", "on": "scale"})
    figure, _ = panels(made)
    assert "no formula" not in words(figure)
    figure = plot_design(combine([made.record("normal"), odd]), "moons")
    assert words(figure).count("no formula") == 2


# Densities


def test_fixed_scales():
    assert fixed_scales(FIXED) == [0.5]
    assert fixed_scales(
        spec("hyperprior", kind="fixed", scale={"log": [0.1, 10.0, 3]})
    ) == pytest.approx([0.1, 1, 10])
    assert fixed_scales(spec("hyperprior", kind="fixed", scale=None)) == []
    assert fixed_scales(HALF_NORMAL) == []


@pytest.mark.parametrize("hyperprior", [HALF_NORMAL, INVERSE_GAMMA, HALF_CAUCHY])
def test_density_of_the_logarithm_of_a_scale_integrates_to_one(hyperprior):
    log_scale = np.linspace(-20, 20, 4001)
    density = log_scale_density(hyperprior, np.exp(log_scale))
    assert integrate.trapezoid(density, log_scale) == pytest.approx(1, abs=1e-6)


def test_an_inverse_gamma_variance_makes_a_normal_weight_student():
    found = weight_densities(NORMAL, INVERSE_GAMMA, AT)
    expected = stats.t(4.0, scale=np.sqrt(1.5 / 2.0)).pdf(AT)
    np.testing.assert_allclose(found[0], expected, rtol=2e-3)


@pytest.mark.parametrize(
    ("prior", "expected"),
    [
        ({"kind": "normal"}, stats.norm(scale=0.5)),
        ({"kind": "correlated_normal"}, stats.norm(scale=0.5)),
        ({"kind": "matrix_normal"}, stats.norm(scale=0.5)),
        ({"kind": "laplace"}, stats.laplace(scale=0.5)),
        ({"kind": "cauchy"}, stats.cauchy(scale=0.5)),
        ({"kind": "student_t", "nu": 3.0}, stats.t(3.0, scale=0.5)),
        ({"kind": "multivariate_t", "nu": 3.0}, stats.t(3.0, scale=0.5)),
        ({"kind": "pymc", "dist": "Logistic", "s": 0.7}, stats.logistic(scale=0.35)),
        ({"kind": "pymc", "dist": "Normal", "mu": 1.0, "sigma": 2.0}, stats.norm(0.5, 1.0)),
        ({"kind": "pymc", "dist": "HalfNormal", "sigma": 2.0}, stats.halfnorm(scale=1.0)),
    ],
    ids=lambda value: value.get("dist", value["kind"]) if isinstance(value, dict) else "",
)
def test_a_fixed_scale(prior, expected):
    (found,) = weight_densities(spec("prior", **prior), FIXED, AT)
    np.testing.assert_allclose(found, expected.pdf(AT))


def test_a_distribution_of_pymc_under_a_learned_scale():
    normal = spec("prior", kind="pymc", dist="Normal", mu=0.0, sigma=2.0)
    (found,) = weight_densities(normal, HALF_NORMAL, 2 * AT)
    np.testing.assert_allclose(found, weight_densities(NORMAL, HALF_NORMAL, AT)[0] / 2)
    positive = spec("prior", kind="pymc", dist="HalfNormal")
    assert weight_densities(positive, FIXED, -np.abs(AT))[0].max() == 0


def test_a_mixture():
    settings = {"proportion": 0.2, "sigma_1": 1.0, "sigma_2": 0.1}
    prior = spec("prior", kind="scale_mixture", **settings)
    expected = 0.2 * stats.norm.pdf(AT, scale=0.5) + 0.8 * stats.norm.pdf(AT, scale=0.05)
    np.testing.assert_allclose(weight_densities(prior, FIXED, AT)[0], expected)


def test_a_learned_mixture_is_averaged_over_its_hyperpriors():
    """Its tails are far above those of the mixture of the medians."""
    prior = spec("prior", kind="scale_mixture", learned=True, spread=0.8)
    at, rng = np.array([0.1, 1.0, 4.0]), np.random.default_rng(0)
    logit, log_1, log_2 = 0.8 * rng.normal(size=(3, 400_000))
    share = 1 / (1 + 4 * np.exp(-logit))
    for hyperprior, scale in ((FIXED, 0.5), (HALF_NORMAL, 0.7 * np.abs(rng.normal(size=400_000)))):
        (found,) = weight_densities(prior, hyperprior, at)
        wide, narrow = (
            stats.norm.pdf(at[:, None], scale=scale * sigma * np.exp(log))
            for sigma, log in ((1.0, log_1), (0.1, log_2))
        )
        expected = (share * wide + (1 - share) * narrow).mean(axis=1)
        np.testing.assert_allclose(found, expected, rtol=0.05)


def test_the_horseshoe_is_its_mixture_of_normals():
    def integrand(local, x):
        return stats.norm.pdf(x, scale=local) * stats.halfcauchy.pdf(local)

    found = weight_densities(spec("prior", kind="horseshoe"), ONE, AT)[0]
    expected = [integrate.quad(integrand, 0, np.inf, args=(x,), limit=200)[0] for x in AT]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    far = weight_densities(spec("prior", kind="horseshoe"), ONE, AT * 1e4)[0]
    np.testing.assert_allclose(far * (AT * 1e4) ** 2, 2 / np.sqrt(2 * np.pi**3), rtol=1e-6)


SLAB = spec("prior", kind="horseshoe", slab_scale=2.0, slab_df=4.0)


def regularised(x, scale=1.0):
    """Density of a weight with a slab² ~ inverse-gamma(2, 8), on a grid of both scales."""
    middle = (np.arange(2000) + 0.5) / 2000
    local = scale * np.tan(np.pi / 2 * middle)[:, None]
    slab = stats.invgamma.ppf(middle[::4], 2.0, scale=8.0)
    sd = 1 / np.sqrt(1 / local**2 + 1 / slab)
    return np.array([stats.norm.pdf(one, scale=sd).mean() for one in x])


def test_a_horseshoe_with_a_slab_is_its_mixture_of_normals():
    at = np.array([0.2, 1.0, 3.0, 7.0])
    np.testing.assert_allclose(weight_densities(SLAB, ONE, at)[0], regularised(at), rtol=0.02)
    # The scale moves the small weights, and the slab stays where it is.
    (narrow,) = weight_densities(SLAB, FIXED, at)
    np.testing.assert_allclose(narrow, regularised(at, 0.5), rtol=0.05)
    wide = spec("prior", kind="horseshoe", slab_scale=1e6, slab_df=4.0)
    without = weight_densities(spec("prior", kind="horseshoe"), ONE, at)[0]
    np.testing.assert_allclose(weight_densities(wide, ONE, at)[0], without, rtol=0.02)


def test_a_learned_scale_of_a_horseshoe_with_a_slab_is_averaged_out():
    at = np.array([0.2, 1.0, 3.0, 7.0])
    scales = stats.halfnorm(scale=HALF_NORMAL.sigma).ppf((np.arange(40) + 0.5) / 40)
    expected = np.mean(
        [weight_densities(SLAB, spec("hyperprior", kind="fixed", scale=s), at)[0] for s in scales],
        axis=0,
    )
    np.testing.assert_allclose(weight_densities(SLAB, HALF_NORMAL, at)[0], expected, rtol=0.05)


def test_a_tuned_scale_has_a_density_for_every_candidate():
    tuned = spec("hyperprior", kind="fixed", scale={"log": [0.1, 10.0, 5]})
    assert len(weight_densities(NORMAL, tuned, AT)) == 5


def test_what_has_no_formula_has_no_density():
    assert weight_densities(spec("prior", kind="other"), FIXED, AT) == []
    assert weight_densities(NORMAL, spec("hyperprior", kind="other"), AT) == []
    assert log_scale_density(spec("hyperprior", kind="other"), AT) is None


def test_axis_of_scales_holds_scales_that_are_far_away(made):
    far = [{"kind": "fixed", "scale": scale} for scale in (0.001, 3000.0)]
    figure = plot_design(
        combine([made.record(p, h) for p in ("normal", "laplace") for h in far]), ""
    )
    for axes, scale in zip(figure.axes[:2], (0.001, 3000.0), strict=True):
        low, high = axes.get_xlim()
        assert low < scale < high
        assert [label.get_text() for label in axes.get_xticklabels()] == ["0.001", "1", "1000"]


def test_the_axis_of_scales_has_ends_where_a_hyperprior_has_none(made):
    vague = {"kind": "inverse_gamma", "on": "variance", "alpha": 0.001, "beta": 0.001}
    records = [made.record(p, vague) for p in ("normal", "laplace")]
    low, high = plot_design(combine(records), "").axes[0].get_xlim()
    assert 0 < low < 0.01 < 100 < high < 1e7
