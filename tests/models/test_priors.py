"""Priors and hyperpriors against SciPy, far into both tails."""

from typing import Literal, get_args

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from makers import GENERAL_PRIORS as PRIORS
from makers import with_defaults
from scipy import stats
from scipy.special import expit, logit, logsumexp
from tiers import slow_but

from pmbnn.core.errors import ConfigError
from pmbnn.core.spec import Tune
from pmbnn.data.arrays import Rows
from pmbnn.models.build import build_model
from pmbnn.models.hyperpriors import (
    HYPERPRIORS,
    Fixed,
    HalfCauchy,
    HalfNormal,
    Hierarchical,
    InverseGamma,
)
from pmbnn.models.likelihoods import Categorical
from pmbnn.models.networks import Dense
from pmbnn.models.prior_base import Prior
from pmbnn.models.priors import (
    Horseshoe,
    MatrixNormal,
    Normal,
    ScaleMixture,
    StudentT,
    TrainableMean,
)
from pmbnn.testing import check_prior

POSITIVE = np.logspace(-8, 9, 69)
UNCONSTRAINED = np.linspace(-20, 20, 81)
REAL = np.concatenate([-POSITIVE[::-1], [0.0], POSITIVE])
SCALES = [1e-3, 0.1, 1.0, 7.0, 1e3]


def mixture_logpdf(x, scale, proportion, sigma_1, sigma_2):
    """Log-density of the scale mixture."""
    shares = np.log(proportion), np.log1p(-proportion)
    parts = [
        share + stats.norm.logpdf(x, scale=scale * sigma)
        for share, sigma in zip(shares, (sigma_1, sigma_2), strict=True)
    ]
    return logsumexp(parts, axis=0)


# SciPy's `laplace` takes the logarithm of a density that underflows beyond 745 scales; the
# generalised normal with shape 1 is the same distribution, computed as a logarithm.
PRIOR_REFERENCES = {
    "normal": lambda x, scale: stats.norm.logpdf(x, scale=scale),
    "laplace": lambda x, scale: stats.gennorm.logpdf(x, 1, scale=scale),
    "cauchy": lambda x, scale: stats.cauchy.logpdf(x, scale=scale),
    "student_t": lambda x, scale, nu=4.0: stats.t.logpdf(x, nu, scale=scale),
    "scale_mixture": lambda x, scale, proportion=0.2, sigma_1=1.0, sigma_2=0.1: mixture_logpdf(
        x, scale, proportion, sigma_1, sigma_2
    ),
    # Given the local scales, which have a test of their own.
    "horseshoe": lambda x, scale: stats.norm.logpdf(x, scale=scale),
    # Of dense layers; kernels are in ``test_correlated_normal.py``.
    "correlated_normal": lambda x, scale: stats.norm.logpdf(x, scale=scale),
    # Given the mixing variables, which are tested in ``test_multivariate_t.py``.
    "multivariate_t": lambda x, scale: stats.norm.logpdf(x, scale=scale),
    # Given the shares of units, which are tested in ``test_r2d2.py``.
    "r2d2": lambda x, scale: stats.norm.logpdf(x, scale=scale),
    # Given means of 0; others have a test of their own.
    "trainable_mean": lambda x, scale: stats.norm.logpdf(x, scale=scale),
    "flat": lambda x, scale: np.zeros_like(x),
}
PRIOR_SETTINGS = {
    "student_t": [{}, {"nu": 0.3}, {"nu": 2.7}, {"nu": 60.0}],
    "scale_mixture": [
        {},
        {"proportion": 1e-9},
        {"proportion": 1 - 1e-9, "sigma_1": 3.3},
        {"proportion": 0.7, "sigma_1": 20.0, "sigma_2": 1e-4},
        {"sigma_1": 0.3, "sigma_2": 0.3},
    ],
}
PRIOR_CASES = [
    (kind, s)
    for kind in PRIORS
    if kind not in ("matrix_normal", "pymc")
    for s in PRIOR_SETTINGS.get(kind, [{}])
]
"""The two have files of their own."""

HYPERPRIOR_REFERENCES = {
    "half_normal": lambda x, sigma: stats.halfnorm.logpdf(x, scale=sigma),
    "half_cauchy": lambda x, beta: stats.halfcauchy.logpdf(x, scale=beta),
    "inverse_gamma": lambda x, alpha, beta: stats.invgamma.logpdf(x, alpha, scale=beta),
}
HYPERPRIOR_SETTINGS = {
    "half_normal": [{"sigma": s} for s in SCALES],
    "half_cauchy": [{"beta": s} for s in SCALES],
    "inverse_gamma": [{"alpha": a, "beta": b} for a in (0.5, 2.0, 30.0) for b in (1e-3, 1.0, 50.0)],
}
# PyMC 6.4 normalises with `pt.log(2)`, which is single precision: 1.9e-9 too low at every x.
HYPERPRIOR_OFFSETS = {"half_cauchy": 2e-9}
LEARNED = {
    kind: cls
    for kind, cls in HYPERPRIORS.items()
    if issubclass(cls, Hierarchical) and not cls.is_point and kind != "pymc"
}
"""Those that are distributions: a point has none, see ``tests/inference/test_points.py``. Those of
PyMC by their names are in ``test_pymc_distributions.py``."""


CHECKED = [
    *(with_defaults(cls) for cls in PRIORS.values()),
    Normal(fan_in=True, bias_scale=0.5),
    ScaleMixture(learned=True),
    Horseshoe(fan_in=True, bias_scale=0.5),
    Horseshoe(slab_scale=2.5, slab_df=3.0),
    Horseshoe(per="unit"),
    Horseshoe(per="unit", slab_scale=1.0),
    MatrixNormal(correlate="inputs"),
    MatrixNormal(correlate="units"),
]
"""Every registered prior, also with settings that change the variables or the scales of a model.
Other distributions of ``pymc`` are in ``test_pymc_distributions.py``."""


@pytest.mark.parametrize("prior", slow_but([PRIORS["flat"](), CHECKED[-1]], CHECKED), ids=repr)
def test_every_prior_keeps_what_priors_promise(prior):
    check_prior(prior)


@pytest.mark.parametrize("kind", sorted(set(PRIORS) - {"pymc"}))
def test_every_choice_of_a_prior_is_checked(kind):
    for name in PRIORS[kind].model_fields.keys() - Prior.model_fields.keys():
        annotation = PRIORS[kind].model_fields[name].annotation
        choices = (False, True) if annotation is bool else get_args(annotation)
        chosen = {getattr(prior, name) for prior in CHECKED if prior.kind == kind}
        # Others are numbers, or None in place of one.
        missing = {c for c in choices if isinstance(c, bool | str)} - chosen
        assert not missing, f"`{name}` of {kind} must be checked with {missing}, too"


def log_density(evaluate, variable, unconstrained):
    """Elementwise log-density of a free variable, as the sampler sees it: with Jacobian."""
    model = pm.modelcontext(None)
    value = model.rvs_to_values[variable]
    others = {v: np.zeros_like(unconstrained) for v in model.value_vars if v is not value}
    given = {value: unconstrained} | others
    return evaluate(model.logp(vars=[variable], sum=False), given)[0]


@pytest.mark.parametrize(("kind", "settings"), PRIOR_CASES)
def test_log_density_of_a_prior(kind, settings, evaluate):
    prior, scales = PRIORS[kind](**settings), np.array(SCALES)[:, None]
    x = np.broadcast_to(REAL, (len(SCALES), len(REAL)))
    with pm.Model(coords={"scale": SCALES, "point": range(len(REAL))}):
        dims = ("scale", "point")
        variable = prior.variable("w", pt.constant(scales), dims, prior.shared())
        found = log_density(evaluate, variable, x)
    expected = PRIOR_REFERENCES[kind](x, scales, **settings)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


def learned_mixture(evaluate, prior, z, x):
    """Learned values and log-densities of a mixture, at the standard draws `z` by name."""
    with pm.Model(coords={"point": range(len(x))}) as model:
        scale = pm.Data("scale", 0.7)
        weight = prior.variable("w", scale, ("point",), prior.shared())
    names = ("proportion", "sigma_1", "sigma_2")
    assert {v.name for v in model.free_RVs} == {"w", *(f"mixture_{n}_z" for n in names)}
    assert {v.name for v in model.deterministics} == {f"mixture_{n}" for n in names}
    given = {
        value: x if value.name == "w" else np.asarray(z[value.name.split("_", 1)[1][:-2]])
        for value in model.value_vars
    }
    learned = [model[f"mixture_{name}"] for name in names]
    standard = [model[f"mixture_{name}_z"] for name in names]
    graphs = [*learned, *model.logp(vars=[weight, *standard], sum=False)]
    found = evaluate(model.replace_rvs_by_values(graphs), given)
    return dict(zip(names, found[:3], strict=True)), found[3], np.array(found[4:])


MOVES = [
    {"proportion": 0.0, "sigma_1": 0.0, "sigma_2": 0.0},
    {"proportion": -20.0, "sigma_1": 20.0, "sigma_2": -20.0},
    {"proportion": 20.0, "sigma_1": 3.0, "sigma_2": 9.0},
    {"proportion": 1.5, "sigma_1": -20.0, "sigma_2": 20.0},
]


@pytest.mark.parametrize("z", MOVES)
def test_a_learned_mixture(z, evaluate):
    prior = ScaleMixture(proportion=0.3, sigma_1=2.0, sigma_2=0.05, learned=True, spread=0.7)
    learned, density, standard = learned_mixture(evaluate, prior, z, REAL)
    moved = {
        "proportion": expit(logit(0.3) + 0.7 * z["proportion"]),
        "sigma_1": 2.0 * np.exp(0.7 * z["sigma_1"]),
        "sigma_2": 0.05 * np.exp(0.7 * z["sigma_2"]),
    }
    for name, expected in moved.items():
        np.testing.assert_allclose(learned[name], expected, rtol=1e-13)
    expected = stats.norm.logpdf([z[name] for name in ("proportion", "sigma_1", "sigma_2")])
    np.testing.assert_allclose(standard, expected, rtol=1e-14)
    expected = mixture_logpdf(REAL, 0.7, **moved)
    # SciPy's side rounds a proportion within 1e-6 of 1, whose complement then has ten digits.
    np.testing.assert_allclose(density, expected, rtol=1e-10, atol=1e-13)


def test_a_learned_mixture_starts_where_a_fixed_one_is(evaluate):
    learned, density, _ = learned_mixture(evaluate, ScaleMixture(learned=True), MOVES[0], REAL)
    assert learned == pytest.approx({"proportion": 0.2, "sigma_1": 1.0, "sigma_2": 0.1})
    np.testing.assert_allclose(density, mixture_logpdf(REAL, 0.7, 0.2, 1.0, 0.1), rtol=1e-12)


@pytest.mark.parametrize("spread", [1.0, 0.2])
def test_hyperpriors_of_a_learned_mixture_are_log_normal_and_logit_normal(spread):
    """Ranks of draws in SciPy's distributions are uniform."""
    prior = ScaleMixture(learned=True, spread=spread)
    with pm.Model():
        prior.shared()
        draws = pm.draw(
            [pm.modelcontext(None)[f"mixture_{n}"] for n in ("sigma_1", "sigma_2", "proportion")],
            500,
            random_seed=1,
            mode="FAST_COMPILE",
        )
    ranks = [
        stats.lognorm.cdf(draws[0], spread, scale=1.0),
        stats.lognorm.cdf(draws[1], spread, scale=0.1),
        stats.norm.cdf(logit(draws[2]), logit(0.2), spread),
    ]
    for rank in ranks:
        assert stats.kstest(rank, "uniform").pvalue > 0.001


@pytest.mark.parametrize("scale", [1e-3, 7.0])
def test_log_density_given_its_trainable_means(scale, evaluate):
    means = np.linspace(-30, 30, len(REAL))
    with pm.Model(coords={"point": range(len(REAL))}) as model:
        prior = TrainableMean(spread=7.0)
        weight = prior.variable("w", pm.Data("scale", scale), ("point",), prior.shared())
    values = {model.rvs_to_values[weight]: REAL, model.rvs_to_values[model["w_mean"]]: means}
    found, hyper = evaluate(model.logp(vars=[weight, model["w_mean"]], sum=False), values)
    expected = stats.norm.logpdf(REAL, scale * means, scale)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(hyper, stats.norm.logpdf(means, scale=7.0), rtol=1e-12)


def test_log_density_of_the_local_scales_of_a_horseshoe(evaluate):
    u = UNCONSTRAINED
    with pm.Model(coords={"point": range(len(u))}) as model:
        Horseshoe().own_scales("w", ("point",), 1.0, {})
        local = model["w_local"]
        found = log_density(evaluate, local, u)
    expected = stats.halfcauchy.logpdf(np.exp(u)) + u
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=HYPERPRIOR_OFFSETS["half_cauchy"])


@pytest.mark.parametrize("kind", PRIORS)
def test_scales_of_single_weights_and_units(kind):
    prior = with_defaults(PRIORS[kind])
    with pm.Model(coords={"point": range(2)}) as model:
        own = prior.own_scales("w", ("point",), 1.0, prior.of_layer(1, ("point",)))
    names = {
        "horseshoe": ["w_local"], "multivariate_t": ["unit_1_mixing"], "r2d2": ["unit_1_part"]
    }.get(kind, [])  # fmt: skip
    assert [v.name for v in model.free_RVs] == names
    assert (own is None) == (not names)
    never = "correlated_normal", "matrix_normal", "pymc"
    assert PRIORS[kind].centrable == (kind not in never and not names)


@pytest.mark.parametrize(
    ("kind", "settings"), [(kind, s) for kind in LEARNED for s in HYPERPRIOR_SETTINGS[kind]]
)
def test_log_density_of_a_hyperprior_on_the_unconstrained_axis(kind, settings, evaluate):
    hyperprior, u = LEARNED[kind](**settings), UNCONSTRAINED
    with pm.Model(coords={"point": range(len(u))}):
        constants = {name: pm.Data(name, value) for name, value in hyperprior.constants.items()}
        variable = hyperprior.variable("s", constants, ("point",))
        found = log_density(evaluate, variable, u)
    expected = HYPERPRIOR_REFERENCES[kind](np.exp(u), **settings) + u
    offset = HYPERPRIOR_OFFSETS.get(kind, 1e-12)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=offset)


@pytest.mark.parametrize("on", ["scale", "variance"])
@pytest.mark.parametrize("kind", LEARNED)
def test_a_model_far_into_both_tails_of_its_scales(kind, on, evaluate):
    """Scales, one a unit, with their Jacobian; standard draws; and the weights they make."""
    settings = HYPERPRIOR_SETTINGS[kind][-2]
    rows = Rows(np.ones((2, 1)), np.array([0, 1]), ("x",), ("a", "b"))
    network = Dense(hidden=(len(UNCONSTRAINED),))
    hyperprior = LEARNED[kind](on=on, per="unit", **settings)
    model = build_model(network, PRIORS["laplace"](), hyperprior, Categorical(), rows)
    u = UNCONSTRAINED
    z = np.linspace(-1, 1, len(u))[None] ** 15 * POSITIVE[-1]
    names = [f"layer_1_{on}", "weight_1_z"]
    wanted = [*model.logp(vars=[model[n] for n in names], sum=False)]
    wanted += model.replace_rvs_by_values([model["layer_1_scale"], model["weight_1"]])
    values = [model.rvs_to_values[model[n]] for n in names]
    learned, standard, scale, weight = evaluate(wanted, dict(zip(values, (u, z), strict=True)))
    expected = HYPERPRIOR_REFERENCES[kind](np.exp(u), **settings) + u
    offset = HYPERPRIOR_OFFSETS.get(kind, 1e-12)
    np.testing.assert_allclose(learned, expected, rtol=1e-12, atol=offset)
    expected = PRIOR_REFERENCES["laplace"](z, 1.0)
    np.testing.assert_allclose(standard, expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(scale, np.exp(u if on == "scale" else u / 2), rtol=1e-14)
    np.testing.assert_allclose(weight, scale * z, rtol=1e-14)


@pytest.mark.parametrize("kind", LEARNED)
def test_every_constant_of_a_hyperprior_is_named_after_its_parameter(kind):
    settings = HYPERPRIOR_SETTINGS[kind][-1]
    expected = {f"hyperprior_{name}": value for name, value in settings.items()}
    assert LEARNED[kind](**settings).constants == expected


@pytest.mark.parametrize("kind", LEARNED)
def test_structure_is_what_constants_leave_of_a_hyperprior(kind):
    first, last = (LEARNED[kind](**HYPERPRIOR_SETTINGS[kind][i]) for i in (0, -1))
    assert first.structure == last.structure
    assert first.structure == {"kind": kind, "on": "scale", "per": "layer", "centred": False}
    for change in ({"on": "variance"}, {"per": "unit"}, {"per": "network"}, {"centred": True}):
        assert LEARNED[kind](**change).structure == first.structure | change


def test_fixed_scale_is_a_constant_and_no_part_of_the_structure():
    assert Fixed(scale=0.3).constants == {"prior_scale": 0.3}
    assert Fixed(scale=0.3).structure == Fixed(scale=4.0).structure == {"kind": "fixed"}
    assert Fixed(scale=None).constants == {}


def test_candidates_are_evenly_spaced_on_a_logarithmic_axis():
    found = Tune(log=(0.1, 10.0, 5)).candidates
    np.testing.assert_allclose(found, np.logspace(-1, 1, 5), rtol=1e-14)
    assert Fixed(scale=Tune(log=(0.1, 10.0, 5))).scales == found


def test_a_given_scale_is_its_only_candidate():
    assert Fixed(scale=0.3).scales == (0.3,)
    assert Fixed(scale=None).scales == ()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Fixed(scale=0.0), "`scale` must be > 0"),
        (lambda: Fixed(scale=float("inf")), "`scale` must be a finite number"),
        (lambda: HalfCauchy(beta=-1.0), "`beta` must be > 0"),
        (lambda: InverseGamma(alpha=0.0), "`alpha` must be > 0"),
        (lambda: HalfCauchy(per="neuron"), "`per` must be one of"),
        (lambda: HalfCauchy(on="precision"), "`on` must be one of"),
        (lambda: HalfCauchy(sigma=1.0), "no argument `sigma`"),
        (lambda: StudentT(nu=0.0), "`nu` must be > 0"),
        (lambda: ScaleMixture(proportion=0.0), "`proportion` must be > 0"),
        (lambda: ScaleMixture(proportion=1.0), "`proportion` must be < 1"),
        (lambda: ScaleMixture(sigma_1=-1.0), "`sigma_1` must be > 0"),
        (lambda: ScaleMixture(sigma_2=0.0), "`sigma_2` must be > 0"),
        (
            lambda: ScaleMixture(sigma_1=0.1, sigma_2=1.0),
            "must have `sigma_1` >= `sigma_2`, which tells the components apart, got 0.1 and 1",
        ),
        (lambda: ScaleMixture(learned=True, spread=0.0), "`spread` must be > 0"),
        (
            lambda: ScaleMixture(spread=0.5),
            "must have `learned: true` to set `spread`, got 0.5",
        ),
        (lambda: Tune(log=(0.0, 1.0, 3)), r"`log\[0\]` must be > 0"),
        (lambda: Tune(log=(0.1, 1.0, 1)), r"`log\[2\]` must be >= 2"),
        (lambda: Tune(log=(0.1, 1.0, 101)), r"`log\[2\]` must be <= 100"),
    ],
)
def test_impossible_settings_are_rejected(build, message):
    with pytest.raises(ConfigError, match=message):
        build()


def test_what_a_cell_chooses_from():
    assert HalfNormal().candidates == (HalfNormal(),)
    assert Fixed(scale=None).candidates == (Fixed(scale=None),)
    assert Fixed(scale=2.0).candidates == (Fixed(scale=2.0),)
    found = Fixed(scale=Tune(log=(0.1, 10.0, 3))).candidates
    assert [one.scale for one in found] == pytest.approx([0.1, 1, 10])


def test_a_prior_can_name_a_distribution_of_pymc():
    class Logistic(Prior):
        kind: Literal["logistic"] = "logistic"
        distribution = "Logistic"

    with pm.Model(coords={"unit": [0, 1]}):
        weight = Logistic().variable("w", 2.0, ("unit",), {})
    assert weight.owner.op.name == "logistic"
    assert [p.eval() for p in weight.owner.op.dist_params(weight.owner)] == [0.0, 2.0]
