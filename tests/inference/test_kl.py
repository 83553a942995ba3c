"""The divergence from the prior: formulas against quadrature, forms, and by hand."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from numpy.polynomial.legendre import leggauss
from pymc.distributions.transforms import log as log_transform
from scipy import stats
from tiers import slow_but

from pmbnn.inference.elbo import EXPECTED, build_objective
from pmbnn.inference.flat import flatten_model
from pmbnn.inference.guides import build_guide
from pmbnn.inference.settings import Inference
from pmbnn.models.build import dense_classifier
from pmbnn.models.hyperpriors import HYPERPRIORS, HalfNormal, InverseGamma
from pmbnn.models.point import Point

ROWS = 20
X = np.random.default_rng(0).normal(size=(ROWS, 2))
Y = np.arange(ROWS) % 2


# --- formulas -----------------------------------------------------------------------------

# Kind, transformation, parameters, and SciPy's density of the unconstrained variable. The
# logarithm u of a positive variable has the density of exp(u) times exp(u).
CASES = {
    "normal": (pm.Normal, None, (0.4, 1.7), stats.norm(0.4, 1.7).logpdf),
    # SciPy's own is the logarithm of a density that underflows.
    "laplace": (pm.Laplace, None, (0.4, 1.7), lambda u: -abs(u - 0.4) / 1.7 - np.log(3.4)),
    "flat": (pm.Flat, None, (), np.zeros_like),
    "point": (Point, None, (), np.zeros_like),
    "half_normal": (
        *(pm.HalfNormal, log_transform, (0.0, 1.7)),
        lambda u: stats.halfnorm(scale=1.7).logpdf(np.exp(u)) + u,
    ),
    "inverse_gamma": (
        *(pm.InverseGamma, log_transform, (2.5, 0.6)),
        lambda u: stats.invgamma(2.5, scale=0.6).logpdf(np.exp(u)) + u,
    ),
}
LOC = {
    "normal": [-1700.0, -3.0, 0.0, 0.4, 2.0, 1700.0],
    "laplace": [-1700.0, -3.0, 0.0, 0.4, 2.0, 1700.0],
    "flat": [-1700.0, 0.0, 1700.0],
    "point": [-1700.0, 0.0, 1700.0],
    # Logarithms of scales: at ±20, that of the variable is 10⁻⁹ or 5 · 10⁸.
    "half_normal": [-20.0, -3.0, 0.0, 0.5, 3.0, 20.0],
    "inverse_gamma": [-20.0, -3.0, 0.0, 0.5, 3.0, 20.0],
}
SCALE = [1e-3, 0.03, 0.3, 1.0, 4.0, 10.0]


def expected_log_density(log_density, loc, scale, kink):
    """By Gauss-Legendre quadrature of pieces of one standard deviation, cut at a kink."""
    # The mean of exp(2u) is made of values 2 · scale standard deviations above that of u, the
    # mean of exp(-u) of values below it; 12 more of them leave out less than 10⁻³².
    lowest, highest = -scale - 12, 2 * scale + 12
    cuts = np.append(np.arange(lowest, highest), highest)
    cuts = np.unique(np.append(cuts, np.clip((kink - loc) / scale, lowest, highest)))
    nodes, weights = leggauss(40)
    half = np.diff(cuts)[:, None] / 2
    z = cuts[:-1, None] + half * (nodes + 1)
    return np.sum(half * weights * stats.norm.pdf(z) * log_density(loc + scale * z))


def by_formula(kind, transform, parameters, loc, scale, evaluate):
    formula = EXPECTED[type(kind.rv_op), type(transform)]
    parameters = tuple(pt.constant(np.float64(p)) for p in parameters)
    return evaluate([formula(parameters, pt.constant(loc), pt.constant(scale))], {})[0]


@pytest.mark.parametrize("name", CASES)
def test_formulas_equal_quadrature(name, evaluate):
    """Elementwise, over wide ranges of means and standard deviations."""
    kind, transform, parameters, log_density = CASES[name]
    loc, scale = (a.ravel() for a in np.meshgrid(LOC[name], SCALE))
    found = by_formula(kind, transform, parameters, loc, scale, evaluate)
    assert found.shape == loc.shape
    kink = parameters[0] if kind is pm.Laplace else 0.0
    exact = [expected_log_density(log_density, m, s, kink) for m, s in zip(loc, scale, strict=True)]
    np.testing.assert_allclose(found, exact, rtol=1e-8, atol=1e-9)


def test_every_formula_is_tried():
    tried = {(type(kind.rv_op), type(transform)) for kind, transform, *_ in CASES.values()}
    assert tried == set(EXPECTED)


@pytest.mark.parametrize("name", CASES)
def test_formulas_of_sure_variables(name, evaluate):
    """Without spread the expected log-density is the log-density, far into the tails."""
    kind, transform, parameters, log_density = CASES[name]
    loc = np.linspace(-7.0, 7.0, 40)
    found = by_formula(kind, transform, parameters, loc, np.full(40, 1e-9), evaluate)
    np.testing.assert_allclose(found, log_density(loc), rtol=1e-7)


@pytest.mark.parametrize("parameters", [(-1.5, 0.6), (2.5, -0.6)])
def test_formula_of_parameters_outside_their_domain(parameters, evaluate):
    """There is no value: the density is zero there, and a fit must not go on."""
    found = by_formula(pm.InverseGamma, log_transform, parameters, np.zeros(1), 0.1, evaluate)
    assert np.isnan(found).all()


# --- objectives ---------------------------------------------------------------------------


def objective(model, rows=ROWS, **settings):
    settings = Inference(**settings)
    flat = flatten_model(model, rows, jacobian=not settings.is_point)
    guide = build_guide(settings, flat.size, flat.improper and not settings.is_point)
    return flat, guide, build_objective(flat, guide, settings, rows, rows)


def random_parameters(guide, random_seed=0):
    rng = np.random.default_rng(random_seed)
    return {name: rng.normal(size=shape) for name, shape in guide.shapes.items()}


def inputs_of(built, parameters, noise, data=None):
    """Values of every input of an objective, by variable."""
    given = {built.parameters[name]: value for name, value in parameters.items()}
    given |= {n.variable: noise[name] for name, n in built.noise.items()}
    return given | {v: (data or {})[name] for name, v in built.data.items()}


def data_of(hyperprior):
    return {"x": X, "target": Y.astype(np.int32), **hyperprior.constants}


def noise_of(built, random_seed=5):
    rng = np.random.default_rng(random_seed)
    return {name: rng.normal(size=n.variable.type.shape) for name, n in built.noise.items()}


def draw_of(guide, parameters, noise):
    """A draw from a mean-field guide, and the guide itself by SciPy."""
    scale = np.logaddexp(0, parameters["rho"])
    return parameters["loc"] + scale * noise["noise"], stats.norm(parameters["loc"], scale)


def classifier(hyperprior, prior="normal"):
    return dense_classifier(X, Y, hidden=(3,), prior=prior, hyperprior=hyperprior)


# --- forms --------------------------------------------------------------------------------


def forms(hyperprior, prior="normal", **settings):
    return dict(objective(classifier(hyperprior, prior), **settings)[2].kl_forms)


WEIGHTS = ("weight_1", "bias_1", "weight_2", "bias_2")
SCALES = ("layer_1_scale_log__", "layer_2_scale_log__")
CENTRED, NON_CENTRED = (HalfNormal(centred=c) for c in (True, False))


def told(weights, scales, ending=""):
    """Forms of the weights and of the scales."""
    return {name + ending: weights for name in WEIGHTS} | dict.fromkeys(SCALES, scales)


def test_weights_around_a_drawn_scale():
    """Exact given the scale where the guide draws them independently of it, and only there."""
    assert forms(CENTRED) == told("exact", "exact")
    for guide in ("low_rank", "full_rank"):
        assert forms(CENTRED, guide=guide) == told("monte_carlo", "exact")


@pytest.mark.parametrize("guide", slow_but(["full_rank"], ["mean_field", "low_rank", "full_rank"]))
def test_standard_weights(guide):
    """Nothing depends on anything: marginal standard deviations are all it takes."""
    assert forms(NON_CENTRED, guide=guide) == told("exact", "exact", "_z")


@pytest.mark.parametrize(("guide", "prior"), [("low_rank", "normal"), ("mean_field", "laplace")])
def test_fixed_scales(guide, prior):
    expected = dict.fromkeys(WEIGHTS, "exact")
    assert forms(HYPERPRIORS["fixed"](), prior, guide=guide) == expected


@pytest.mark.parametrize("prior", slow_but(["cauchy"], ["cauchy", "student_t"]))
def test_priors_without_a_formula(prior):
    assert forms(InverseGamma(), prior) == told("monte_carlo", "exact", "_z")
    assert forms(HYPERPRIORS["half_cauchy"]()) == told("exact", "monte_carlo", "_z")


def test_forms_that_are_asked_for():
    assert forms(NON_CENTRED, kl="monte_carlo") == told("monte_carlo", "monte_carlo", "_z")
    found = forms(NON_CENTRED, estimator="path_derivative")
    assert found == told("monte_carlo", "monte_carlo", "_z")
    assert forms(NON_CENTRED, guide="map") == {}
    assert forms(NON_CENTRED, guide="maximum_likelihood") == {}


# --- values -------------------------------------------------------------------------------


def kl_of(model, hyperprior, evaluate, **settings):
    """Divergence at random parameters and noise, and what it was taken at."""
    flat, guide, built = objective(model, **settings)
    parameters, noise = random_parameters(guide), noise_of(built)
    [kl] = evaluate([built.kl], inputs_of(built, parameters, noise, data_of(hyperprior)))
    return float(kl), flat, guide, parameters, noise


def log_prior(model, flat, draw, evaluate):
    """PyMC's own log-density at a draw, with the Jacobian."""
    parts = {slot.name: slot.of(draw) for slot in flat.layout.slots}
    point = {v: parts[v.name] for v in model.value_vars}
    return float(evaluate([model.logp(vars=model.free_RVs)], point)[0])


@pytest.mark.parametrize("guide", slow_but(["full_rank"], ["mean_field", "low_rank", "full_rank"]))
def test_normal_prior_in_closed_form(guide, evaluate):
    """The divergence between two multivariate normal distributions."""
    hyperprior = HYPERPRIORS["fixed"](scale=0.7)
    settings = {"guide": guide, "rank": 2}
    kl, flat, guide, parameters, _ = kl_of(classifier(hyperprior), hyperprior, evaluate, **settings)
    inputs = {n: pt.constant(value) for n, value in parameters.items()}
    constrained = guide.constrained(inputs)
    marginal, entropy = evaluate(
        [guide.marginal_scale(constrained), guide.entropy(constrained)], {}
    )
    square = (marginal**2 + parameters["loc"] ** 2).sum() / 0.7**2
    expected = 0.5 * square + flat.size * np.log(0.7 * np.sqrt(2 * np.pi)) - entropy
    assert kl == pytest.approx(expected, rel=1e-10)


def test_centred_weights_given_the_drawn_scale(evaluate):
    """Scales by their own formula; weights by the one for a normal with the scale drawn."""
    kl, flat, guide, parameters, noise = kl_of(classifier(CENTRED), CENTRED, evaluate)
    draw, q = draw_of(guide, parameters, noise)
    scales = {s.name[:7]: np.exp(s.of(draw)) for s in flat.layout.slots if s.name in SCALES}
    expected = -q.entropy().sum()
    for slot in flat.layout.slots:
        loc, sd = slot.of(q.mean()), slot.of(q.std())
        if slot.name in SCALES:
            at = float(loc), float(sd)
            expected -= expected_log_density(half_normal_of_logarithm, *at, 0.0)
        else:
            scale = scales["layer_" + slot.name[-1]]
            expected -= np.sum(stats.norm(0, scale).logpdf(loc) - 0.5 * (sd / scale) ** 2)
    assert kl == pytest.approx(expected, rel=1e-9)


def half_normal_of_logarithm(u):
    return stats.halfnorm.logpdf(np.exp(u)) + u


@pytest.mark.parametrize(
    "hyperprior", slow_but([InverseGamma()], [CENTRED, NON_CENTRED, InverseGamma()])
)
def test_monte_carlo(hyperprior, evaluate):
    """The log-prior at the draw, and the guide's entropy, which is known always."""
    model = classifier(hyperprior, "cauchy")
    kl, flat, guide, parameters, noise = kl_of(model, hyperprior, evaluate, kl="monte_carlo")
    draw, q = draw_of(guide, parameters, noise)
    expected = -q.entropy().sum() - log_prior(model, flat, draw, evaluate)
    assert kl == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("guide", ["map", "maximum_likelihood"])
def test_points(guide, evaluate):
    """Densities are those of the scales themselves, without the Jacobian."""
    model = classifier(NON_CENTRED)
    kl, flat, _, parameters, _ = kl_of(model, NON_CENTRED, evaluate, guide=guide)
    logarithms = sum(s.of(parameters["loc"]) for s in flat.layout.slots if s.name in SCALES)
    expected = logarithms - log_prior(model, flat, parameters["loc"], evaluate)
    assert kl == (pytest.approx(expected, rel=1e-10) if guide == "map" else 0.0)


def test_first_dimension(evaluate):
    """Each tensor's divergence over its first dimension, times the rows."""
    hyperprior = HYPERPRIORS["fixed"](scale=0.7)
    settings = {"kl_scaling": "first_dimension"}
    model = classifier(hyperprior)
    kl, flat, guide, parameters, noise = kl_of(model, hyperprior, evaluate, **settings)
    _, q = draw_of(guide, parameters, noise)
    single = 0.5 * (q.std() ** 2 + q.mean() ** 2) / 0.7**2 - 0.5 - np.log(q.std() / 0.7)
    first = {"weight_1": 2, "bias_1": 3, "weight_2": 3, "bias_2": 2}
    expected = sum(slot.of(single).sum() * ROWS / first[slot.name] for slot in flat.layout.slots)
    assert kl == pytest.approx(expected, rel=1e-10)


def test_first_dimension_of_a_scalar(evaluate):
    """It counts as of length 1; what has no formula is taken at the draw."""
    hyperprior = HYPERPRIORS["half_cauchy"](per="network")
    settings = {"kl_scaling": "first_dimension"}
    model = classifier(hyperprior)
    kl, flat, guide, parameters, noise = kl_of(model, hyperprior, evaluate, **settings)
    draw, q = draw_of(guide, parameters, noise)
    single = 0.5 * (q.std() ** 2 + q.mean() ** 2) - 0.5 - np.log(q.std())
    [scalar] = [slot.start for slot in flat.layout.slots if slot.shape == ()]
    u = draw[scalar]
    single[scalar] = -q.entropy()[scalar] - stats.halfcauchy.logpdf(np.exp(u)) - u
    expected = sum(s.of(single).sum() * ROWS / (s.shape or (1,))[0] for s in flat.layout.slots)
    # PyMC's half-Cauchy has a logarithm of 2 in single precision.
    assert kl == pytest.approx(expected, rel=1e-8)


def mixed_priors():
    """Model of variables whose priors differ, some in one parameter only."""
    with pm.Model() as model:
        pm.Normal("a", 0.0, 1.0, shape=(2, 3))
        pm.Laplace("b", 0.3, 0.7, shape=2)
        pm.Normal("c", 0.5, 1.0, shape=4)
        pm.HalfNormal("d", 1.5, shape=2)
        pm.Normal("e", 0.0, 1.0)
        pm.Normal("f", [0.0, 1.0, 2.0], [0.5, 1.0, 2.0])
        pm.InverseGamma("g", 2.0, [[1.0], [0.4]], shape=(2, 3))
        pm.Laplace("h", 0.3, 0.7, shape=(1, 2))
        pm.Laplace("i", 0.3, 0.2)
        pm.HalfNormal("j", 1.5, default_transform=None)
        pm.Normal("y", 0.0, 1.0, observed=np.zeros(ROWS))
    return model


@pytest.mark.parametrize("kl_scaling", slow_but(["first_dimension"], ["sum", "first_dimension"]))
def test_every_variable_has_its_own_prior(kl_scaling, evaluate):
    """Those with equal priors are taken together, and none with another's."""
    model = mixed_priors()
    flat, guide, built = objective(model, kl_scaling=kl_scaling)
    parameters, noise = random_parameters(guide), noise_of(built)
    # Without a transformation, a half-normal variable must be positive.
    [last] = [slot for slot in flat.layout.slots if slot.name == "j"]
    parameters["loc"][last.start] = 10.0
    [kl] = evaluate([built.kl], inputs_of(built, parameters, noise))
    draw, q = draw_of(guide, parameters, noise)
    densities = {
        "a": [stats.norm(0, 1).logpdf],
        "b": [stats.laplace(0.3, 0.7).logpdf],
        "c": [stats.norm(0.5, 1).logpdf],
        "d_log__": [lambda u: half_normal_of_logarithm(u - np.log(1.5))],
        "e": [stats.norm(0, 1).logpdf],
        "f": [stats.norm(m, s).logpdf for m, s in [(0, 0.5), (1, 1), (2, 2)]],
        "g_log__": [inverse_gamma_of_logarithm(b) for b in (1.0, 1.0, 1.0, 0.4, 0.4, 0.4)],
        "h": [stats.laplace(0.3, 0.7).logpdf],
        "i": [stats.laplace(0.3, 0.2).logpdf],
    }
    expected = 0.0
    for slot in flat.layout.slots:
        term = -slot.of(q.entropy()).sum()
        if slot.name == "j":
            term -= stats.halfnorm(scale=1.5).logpdf(slot.of(draw))
        else:
            at = zip(slot.of(q.mean()).ravel(), slot.of(q.std()).ravel(), strict=True)
            cycle = densities[slot.name]
            for i, (loc, sd) in enumerate(at):
                term -= expected_log_density(cycle[i % len(cycle)], loc, sd, 0.3)
        expected += term * (1 if kl_scaling == "sum" else ROWS / (slot.shape or (1,))[0])
    assert built.kl_forms == {s.name: "exact" for s in flat.layout.slots} | {"j": "monte_carlo"}
    assert float(kl) == pytest.approx(expected, rel=1e-8)


def inverse_gamma_of_logarithm(beta):
    return lambda u: stats.invgamma(2.0, scale=beta).logpdf(np.exp(u)) + u


# --- path derivative ----------------------------------------------------------------------


def test_path_derivative(evaluate):
    """log q less log p at the draw: the numbers, with the guide's parameters frozen in q."""
    model = classifier(CENTRED)
    settings = {"estimator": "path_derivative"}
    kl, flat, guide, parameters, noise = kl_of(model, CENTRED, evaluate, **settings)
    draw, q = draw_of(guide, parameters, noise)
    expected = q.logpdf(draw).sum() - log_prior(model, flat, draw, evaluate)
    assert kl == pytest.approx(expected, rel=1e-10)
