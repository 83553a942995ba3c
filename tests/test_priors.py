"""Priors and hyperpriors against SciPy, far into both tails."""

import numpy as np
import pymc as pm
import pytest
from pydantic import ValidationError
from scipy import stats

from pmbnn.priors import HYPERPRIORS, PRIORS, Fixed, HalfCauchy, Hierarchical, InverseGamma, Tune

POSITIVE = np.logspace(-8, 6, 57)
REAL = np.concatenate([-POSITIVE[::-1], [0.0], POSITIVE])
SCALES = [1e-3, 0.1, 1.0, 7.0, 1e3]

# SciPy's `laplace` takes the logarithm of a density that underflows beyond 745 scales; the
# generalised normal with shape 1 is the same distribution, computed as a logarithm.
PRIOR_REFERENCES = {
    "normal": lambda x, scale: stats.norm.logpdf(x, scale=scale),
    "laplace": lambda x, scale: stats.gennorm.logpdf(x, 1, scale=scale),
    "cauchy": lambda x, scale: stats.cauchy.logpdf(x, scale=scale),
    "flat": lambda x, scale: np.zeros_like(x),
}
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
LEARNED = {kind: cls for kind, cls in HYPERPRIORS.items() if issubclass(cls, Hierarchical)}


def log_density(evaluate, variable, unconstrained):
    """Elementwise log-density of a free variable, as the sampler sees it: with Jacobian."""
    model = pm.modelcontext(None)
    value = model.rvs_to_values[variable]
    return evaluate(model.logp(vars=[variable], sum=False), {value: unconstrained})[0]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("kind", PRIORS)
def test_log_density_of_a_prior(kind, scale, evaluate):
    with pm.Model(coords={"point": range(len(REAL))}):
        variable = PRIORS[kind]().variable("w", pm.Data("scale", scale), ("point",))
        found = log_density(evaluate, variable, REAL)
    np.testing.assert_allclose(found, PRIOR_REFERENCES[kind](REAL, scale), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("kind", "settings"), [(kind, s) for kind in LEARNED for s in HYPERPRIOR_SETTINGS[kind]]
)
def test_log_density_of_a_hyperprior_on_the_unconstrained_axis(kind, settings, evaluate):
    hyperprior = LEARNED[kind](**settings)
    with pm.Model(coords={"point": range(len(POSITIVE))}):
        constants = {name: pm.Data(name, value) for name, value in hyperprior.constants.items()}
        variable = hyperprior.variable("s", constants, ("point",))
        found = log_density(evaluate, variable, np.log(POSITIVE))
    expected = HYPERPRIOR_REFERENCES[kind](POSITIVE, **settings) + np.log(POSITIVE)
    offset = HYPERPRIOR_OFFSETS.get(kind, 1e-12)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=offset)


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
    assert Fixed(scale=Tune(log=(0.1, 10.0, 5))).candidates == found


def test_a_given_scale_is_its_only_candidate():
    assert Fixed(scale=0.3).candidates == (0.3,)
    assert Fixed(scale=None).candidates == (1.0,)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Fixed(scale=0.0), "scale.*\n.*greater than 0"),
        (lambda: Fixed(scale=float("inf")), "scale.*\n.*finite number"),
        (lambda: HalfCauchy(beta=-1.0), "beta\n.*greater than 0"),
        (lambda: InverseGamma(alpha=0.0), "alpha\n.*greater than 0"),
        (lambda: HalfCauchy(per="neuron"), "per\n.*'layer', 'network' or 'unit'"),
        (lambda: HalfCauchy(on="precision"), "on\n.*'scale' or 'variance'"),
        (lambda: HalfCauchy(sigma=1.0), "sigma\n.*Extra inputs"),
        (lambda: Tune(log=(0.0, 1.0, 3)), "log.0\n.*greater than 0"),
        (lambda: Tune(log=(0.1, 1.0, 1)), "log.2\n.*greater than or equal to 2"),
        (lambda: Tune(log=(0.1, 1.0, 101)), "log.2\n.*less than or equal to 100"),
    ],
)
def test_impossible_settings_are_refused(build, message):
    with pytest.raises(ValidationError, match=message):
        build()
