"""Distributions of PyMC by their names, as priors and hyperpriors: densities, errors and fits."""

import inspect
from typing import get_args

import numpy as np
import pymc as pm
import pytest
from posteriors import has_quantiles
from pymc.distributions import continuous
from scipy import stats
from tiers import slow_but

import pmbnn as pb
from pmbnn.core.errors import ConfigError
from pmbnn.models.hyperpriors import PyMCHyperprior
from pmbnn.models.priors import PyMCPrior
from pmbnn.models.pymc_distributions import (
    PARAMETERS,
    WITH_QUANTILES,
    OfPositive,
    OfReal,
    as_constants,
)
from pmbnn.testing import check_hyperprior, check_prior, random_point

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2))
Y = (X[:, 0] * X[:, 1] > 0).astype(int)

LAWS = {
    "AsymmetricLaplace": (
        {"kappa": 2, "mu": 0.3, "b": 1.5},
        stats.laplace_asymmetric(2, loc=0.3, scale=1 / 1.5),
    ),
    "Cauchy": ({"alpha": 0, "beta": 0.4}, stats.cauchy(scale=0.4)),
    "Gumbel": ({"mu": -0.2, "beta": 0.7}, stats.gumbel_r(-0.2, 0.7)),
    "Logistic": ({"s": 0.7}, stats.logistic(scale=0.7)),
    "Moyal": ({"sigma": 0.7}, stats.moyal(scale=0.7)),
    "SkewStudentT": ({"a": 3, "b": 5}, stats.jf_skew_t(3, 5)),
    "StudentT": ({"nu": 5, "sigma": 2}, stats.t(5, scale=2)),
    "Gamma": ({"alpha": 2, "beta": 1}, stats.gamma(2)),
    "LogNormal": ({"mu": 0.3, "sigma": 0.5}, stats.lognorm(0.5, scale=np.exp(0.3))),
    "Exponential": ({"lam": 3}, stats.expon(scale=1 / 3)),
    "Uniform": ({"lower": 0.5, "upper": 4}, stats.uniform(0.5, 3.5)),
    "TruncatedNormal": ({"lower": 0}, stats.halfnorm()),
}
# PyMC 6.4 normalises with (a + b - 1) · `pt.log(2)`, which is single precision: 1.9e-9 off.
OFFSETS = {"SkewStudentT": 7 * 2e-9}
ENOUGH = {
    "Beta": {"alpha": 2, "beta": 3},
    "ChiSquared": {"nu": 3},
    "HalfCauchy": {"beta": 1},
    "HalfStudentT": {"nu": 3},
    "InverseGamma": {"alpha": 2, "beta": 1},
    "Kumaraswamy": {"a": 2, "b": 2},
    "Laplace": {"mu": 0, "b": 1},
    "Pareto": {"alpha": 3, "m": 1},
    "Wald": {"mu": 1, "lam": 1},
    "Weibull": {"alpha": 2, "beta": 1},
} | {name: settings for name, (settings, _) in LAWS.items()}
"""Parameters of distributions that need some."""


def classifier(prior="normal", hyperprior="fixed"):
    return pb.dense_classifier(X, Y, hidden=3, prior=prior, hyperprior=hyperprior)


def values_at(model, evaluate, names, free):
    """Values of variables, and log-density of a free variable with its Jacobian, at a point."""
    point = random_point(model)
    given = {value: point[value.name] for value in model.value_vars}
    graphs = model.replace_rvs_by_values([model[name] for name in names])
    (density,) = model.logp(vars=[model[free]], sum=False)
    *values, density = evaluate([*graphs, density], given)
    return *values, density, model.rvs_to_transforms[model[free]], point


def test_the_choices_are_the_continuous_distributions_of_pymc_but_nine():
    left_out = {"ExGaussian", "Flat", "HalfFlat", "Interpolated", "LogitNormal"}
    left_out |= {"PolyaGamma", "Rice", "SkewNormal", "VonMises"}
    assert {*get_args(OfReal)} == {*continuous.__all__} - left_out
    assert {*get_args(OfPositive)} < {*get_args(OfReal)}


def test_every_parameter_is_a_setting_but_the_scale_of_the_exponential():
    """The scale of a hyperprior is a fixed one."""
    named = {
        name
        for dist in get_args(OfReal)
        for name in inspect.signature(getattr(pm, dist).dist).parameters
    }
    assert named - {"args", "kwargs"} == {*PARAMETERS, "scale"}


@pytest.mark.parametrize("dist", LAWS)
@pytest.mark.parametrize("hyperprior", [pb.Fixed(scale=0.3), pb.HalfNormal()])
def test_a_weight_is_the_scale_times_a_draw(dist, hyperprior, evaluate):
    """The density of the draw, by SciPy; hence that of the weight over the scale, at any scale."""
    settings, law = LAWS[dist]
    model = classifier(PyMCPrior(dist=dist, **settings), hyperprior)
    scale = "prior_scale" if isinstance(hyperprior, pb.Fixed) else "layer_1_scale"
    names = ["weight_1", "weight_1_z", scale]
    weight, z, scale, density, transform, point = values_at(model, evaluate, names, "weight_1_z")
    np.testing.assert_allclose(weight, scale * z, rtol=1e-14)
    jacobian = 0.0
    if transform is not None:
        u = point[f"weight_1_z_{transform.name}__"]
        inputs = model["weight_1_z"].owner.inputs
        jacobian = evaluate([transform.log_jac_det(pm.math.constant(u), *inputs)], {})[0]
    offset = OFFSETS.get(dist, 1e-12)
    np.testing.assert_allclose(density, law.logpdf(z) + jacobian, rtol=1e-10, atol=offset)


@pytest.mark.parametrize("on", ["scale", "variance"])
@pytest.mark.parametrize("dist", ["Gamma", "LogNormal", "Exponential"])
def test_log_density_of_a_hyperprior(dist, on, evaluate):
    settings, law = LAWS[dist]
    model = classifier("normal", PyMCHyperprior(dist=dist, on=on, **settings))
    names = ["layer_1_scale", f"layer_1_{on}"]
    scale, value, density, _, point = values_at(model, evaluate, names, f"layer_1_{on}")
    u = point[f"layer_1_{on}_log__"]
    np.testing.assert_allclose(value, np.exp(u), rtol=1e-14)
    np.testing.assert_allclose(scale, value if on == "scale" else np.sqrt(value), rtol=1e-14)
    np.testing.assert_allclose(density, law.logpdf(value) + u, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("prior", "hyperprior", "other_prior", "other_hyperprior"),
    [
        (pb.StudentT(nu=4), pb.Fixed(), PyMCPrior(dist="StudentT", nu=4), pb.Fixed()),
        (pb.StudentT(nu=4), pb.HalfCauchy(), PyMCPrior(dist="StudentT", nu=4), pb.HalfCauchy()),
        (
            pb.Normal(),
            pb.InverseGamma(),
            pb.Normal(),
            PyMCHyperprior(dist="InverseGamma", alpha=2, beta=1),
        ),
    ],
)
def test_the_density_is_that_of_a_built_in_kind_to_the_last_digit(
    prior, hyperprior, other_prior, other_hyperprior, evaluate
):
    """At scale 1, and with a learned scale, where both are standard draws times the scale."""
    model, other = classifier(prior, hyperprior), classifier(other_prior, other_hyperprior)
    point = random_point(other)
    point |= {name.removesuffix("_z"): value for name, value in point.items()}
    found = [evaluate([m.logp()], {v: point[v.name] for v in m.value_vars}) for m in (model, other)]
    assert found[0] == found[1]


def test_parameters_of_a_hyperprior_are_data_and_those_given_its_structure():
    by_shape = PyMCHyperprior(dist="Gamma", alpha=2, beta=1)
    assert by_shape.constants == {"hyperprior_alpha": 2, "hyperprior_beta": 1}
    assert by_shape.structure == PyMCHyperprior(dist="Gamma", alpha=3, beta=7).structure
    assert by_shape.structure != PyMCHyperprior(dist="Gamma", mu=2, sigma=1).structure
    assert by_shape.structure != PyMCHyperprior(dist="Weibull", alpha=2, beta=1).structure


MISTAKES = [
    ({"dist": "Logistc"}, "`prior.dist` must be one of AsymmetricLaplace, Beta, "),
    ({"dist": "Logistc"}, "Weibull, got 'Logistc'; did you mean `Logistic`?"),
    ({"dist": "SkewNormal"}, "`prior.dist` must be one of"),
    ({}, "`prior.dist` is missing."),
    ({"dist": "Logistic", "s": -1}, "`prior.s` must have s > 0 in pm.Logistic, got s -1."),
    ({"dist": "Logistic", "s": "wide"}, "`prior.s` must be a number, got 'wide'."),
    ({"dist": "Logistic", "s": np.inf}, "`prior.s` must be a finite number, got inf."),
    (
        {"dist": "Logistic", "sigma": 1},
        "`prior.sigma` must be left out: pm.Logistic has mu, s, got 1.",
    ),
    ({"dist": "Logistic", "sgima": 1}, "`prior` has no key `sgima`; did you mean `sigma`?"),
    (
        {"dist": "Gumbel", "mu": 0},
        "`prior.beta` is missing: pm.Gumbel has no default of it.",
    ),
    (
        {"dist": "Gamma", "alpha": 1},
        "`prior` must have parameters of pm.Gamma, among alpha, beta, mu, sigma, that make one: ",
    ),
    (
        {"dist": "AsymmetricLaplace", "kappa": 2},
        "`prior` must have parameters of pm.AsymmetricLaplace, among b, kappa, mu, q, that make "
        "one: it needs more of them, got kappa 2.",
    ),
    (
        {"dist": "Gamma", "alpha": 2, "beta": -0.5},
        "`prior.beta` must have alpha > 0, beta > 0 in pm.Gamma, got alpha 2, beta -0.5.",
    ),
    (
        {"dist": "Uniform", "lower": 2, "upper": 1},
        "`prior` must have lower <= upper in pm.Uniform, got lower 2, upper 1.",
    ),
    (
        {"dist": "Uniform", "lower": 1, "upper": 1},
        "`prior` must give pm.Uniform a finite density, got lower 1, upper 1.",
    ),
]


@pytest.mark.parametrize(("settings", "message"), MISTAKES)
def test_mistakes_name_the_place_and_the_value(settings, message):
    with pytest.raises(ConfigError) as error:
        classifier({"kind": "pymc"} | settings)
    assert message in str(error.value)
    if "kind" in message or "no key" in message:
        return
    with pytest.raises(ConfigError) as error:
        PyMCPrior(**settings)
    assert message.replace("prior.", "").replace("`prior`", "`PyMCPrior`") in str(error.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dist": "Logistic"}, "`hyperprior.dist` must be one of Beta, ChiSquared"),
        (
            {"dist": "Uniform", "lower": -1},
            "`hyperprior.lower` must leave pm.Uniform no negative numbers, got lower -1.",
        ),
        (
            {"dist": "TruncatedNormal", "lower": -1e-9},
            "`hyperprior.lower` must leave pm.TruncatedNormal no negative numbers, got lower -1e-",
        ),
        ({"dist": "TruncatedNormal"}, "`hyperprior.lower` must leave pm.TruncatedNormal no neg"),
        ({"dist": "Exponential", "scale": 1}, "`hyperprior` has no key `scale`"),
    ],
)
def test_a_hyperprior_is_of_positive_numbers(settings, message):
    with pytest.raises(ConfigError) as error:
        classifier("normal", {"kind": "pymc"} | settings)
    assert message in str(error.value)


@pytest.mark.parametrize("dist", get_args(OfReal))
def test_quantile_functions_that_are_known(dist):
    settings = ENOUGH.get(dist, {})
    with pm.Model() as model:
        getattr(pm, dist)("a", shape=3, **as_constants(settings))
    assert has_quantiles(model) == (dist in WITH_QUANTILES)
    parts = [PyMCPrior(dist=dist, **settings)]
    if dist in get_args(OfPositive):
        parts.append(PyMCHyperprior(dist=dist, **settings))
    assert {part.has_quantiles for part in parts} == {dist in WITH_QUANTILES}


def test_weights_are_never_drawn_around_a_learned_scale():
    with pytest.raises(ValueError, match=r"`hyperprior.centred` must be False with prior `pymc`"):
        classifier(PyMCPrior(dist="Logistic"), pb.HalfNormal(centred=True))


def test_what_is_left_to_pymc_is_not_written():
    prior = PyMCPrior(dist="Logistic", s=np.float32(0.5))
    # Names of cells are hashes of this text.
    text = '{"kind":"pymc","dist":"Logistic","s":0.5,"fan_in":false}'
    assert prior.model_dump_json() == text
    assert repr(prior) == (
        "PyMCPrior(kind='pymc', dist='Logistic', s=0.5, fan_in=False, bias_scale=None)"
    )
    assert "kappa" not in prior._repr_html_()
    assert prior == PyMCPrior.model_validate_json(prior.model_dump_json())


@pytest.mark.parametrize(
    "prior",
    slow_but(
        [PyMCPrior(dist="Logistic", s=0.7)],
        [PyMCPrior(dist=dist, **ENOUGH.get(dist, {})) for dist in get_args(OfReal)]
        + [PyMCPrior(dist="Logistic", s=0.7)],
    ),
)
def test_a_prior_keeps_what_priors_promise(prior):
    check_prior(prior)


@pytest.mark.parametrize(
    "hyperprior",
    slow_but(
        [PyMCHyperprior(dist="Gamma", alpha=3, beta=1)],
        [PyMCHyperprior(dist=dist, **ENOUGH.get(dist, {})) for dist in get_args(OfPositive)]
        + [PyMCHyperprior(dist="Gamma", alpha=3, beta=1)],
    ),
)
def test_a_hyperprior_keeps_what_hyperpriors_promise(hyperprior):
    check_hyperprior(hyperprior)


def test_a_fit_and_a_sample():
    """Both have positive weights where the prior is of positive numbers, and the scale learned."""
    model = classifier(
        {"kind": "pymc", "dist": "Gamma", "alpha": 2, "beta": 1},
        {"kind": "pymc", "dist": "LogNormal", "sigma": 0.5},
    )
    fit = pb.fit(model, steps=300, random_seed=1, progress=False)
    sample = pb.sample(model, chains=2, draws=50, random_seed=1, progress=False, doublings=0)
    for posterior in (fit, sample):
        group = posterior.to_datatree().posterior
        assert (group["weight_1"] > 0).all() and (group["layer_1_scale"] > 0).all()
        assert np.isfinite(posterior.predict_proba(X)).all()
