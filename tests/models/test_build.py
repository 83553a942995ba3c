"""The model contract: every combination builds, and says what it declares."""

from itertools import product

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from makers import GENERAL_PRIORS as PRIORS
from makers import with_defaults
from scipy import stats
from scipy.special import expit, log_softmax, logit
from tiers import pairwise, slow_but

from pmbnn.data.arrays import Rows
from pmbnn.models.build import build_model, dense_classifier, model_data
from pmbnn.models.hyperpriors import HYPERPRIORS, Fixed, HalfCauchy, HalfNormal, Hierarchical
from pmbnn.models.likelihoods import Categorical
from pmbnn.models.networks import (
    NETWORKS,
    Convolution,
    Dense,
    Flatten,
    Known,
    Layered,
    MaxPool,
    ShapeError,
)
from pmbnn.models.prior_base import STANDARD
from pmbnn.models.priors import Horseshoe, Normal, ScaleMixture, StudentT
from pmbnn.testing import check_model, random_point


def rows(n=9, random_seed=0):
    """Random rows with three classes and named features."""
    rng = np.random.default_rng(random_seed)
    features, classes = ("height", "width"), ("a", "b", "c")
    return Rows(rng.normal(size=(n, 2)), rng.permutation(n) % 3, features, classes)


ROWS = rows()
SMALL = Dense(hidden=(4, 3))
IMAGES = Rows(
    np.random.default_rng(2).normal(size=(9, 32)),
    ROWS.y,
    tuple(f"pixel_{i}" for i in range(32)),
    ROWS.classes,
    input_shape=(2, 4, 4),
)
# One small network of every kind, with rows: what depth does is tested with the networks.
SMALLEST = {
    "dense": (Dense(hidden=(3,)), ROWS),
    "layers": (
        Layered(layers=(Convolution(filters=2, size=3), MaxPool(), Flatten())),
        IMAGES,
    ),
}


def build(prior="normal", hyperprior="fixed", network=SMALL, dataset=ROWS):
    """Model of named or specified priors on the rows above."""
    prior = with_defaults(PRIORS[prior]) if isinstance(prior, str) else prior
    hyperprior = (
        with_defaults(HYPERPRIORS[hyperprior]) if isinstance(hyperprior, str) else hyperprior
    )
    return build_model(network, prior, hyperprior, Categorical(), dataset)


@pytest.fixture(scope="session")
def at(evaluate):
    """Values of graphs of a model at a point, with every random variable in its place."""

    def values(model, graphs, point):
        given = {value: point[value.name] for value in model.value_vars}
        return evaluate(model.replace_rvs_by_values(graphs), given)

    return values


@pytest.fixture(scope="session")
def log_probability(evaluate):
    """Log-probability of a model at a point (whose names may cover more than the model's)."""

    def values(model, point, variables=None):
        given = {value: point[value.name] for value in model.value_vars}
        return evaluate([model.logp(vars=variables)], given)[0]

    return values


# --- contract -----------------------------------------------------------------------------


LEARNED_MIXTURE = ScaleMixture(learned=True)
EVERY_PRIOR = {kind: with_defaults(prior) for kind, prior in PRIORS.items()} | {
    "learned": LEARNED_MIXTURE
}


def can_be_built(prior, hyperprior, on, per, centred, network):
    """Whether there is such a model; a hyperprior without settings comes in one variant."""
    prior, hyperprior = EVERY_PRIOR[prior], HYPERPRIORS[hyperprior]
    if not issubclass(hyperprior, Hierarchical):
        return (on, per, centred) == ("scale", "layer", False)
    met = prior.has_scale and (prior.centrable or not centred)
    return met and (on == "scale" or not hyperprior.is_point)


AXES = (
    EVERY_PRIOR,
    HYPERPRIORS,
    ("scale", "variance"),
    ("layer", "network", "unit"),
    (False, True),
    SMALLEST,
)
COMBINATIONS = pairwise([case for case in product(*AXES) if can_be_built(*case)])


def is_scaled(prior, hyperprior):
    """Whether weights are standard draws times a scale."""
    return not getattr(hyperprior, "centred", True) or not prior.centrable


def expected_dims(parameters, prior, hyperprior):
    """Dims of every variable that has any, by name."""
    dims = {"x": ("observation", "feature"), "target": ("observation",), "y": ("observation",)}
    for parameter in parameters:
        dims[parameter.name] = parameter.dims
        if is_scaled(prior, hyperprior):
            dims[parameter.name + STANDARD] = parameter.dims
        if prior.kind == "horseshoe":
            dims[f"{parameter.name}_local"] = parameter.dims
        if prior.kind == "multivariate_t":
            dims[f"unit_{parameter.layer}_mixing"] = parameter.dims[-1:]
        if prior.kind == "r2d2":
            dims[f"unit_{parameter.layer}_part"] = parameter.dims[-1:]
        if prior.kind == "matrix_normal" and not parameter.is_bias:
            for side, dim in (("input", parameter.dims[0]), ("unit", parameter.dims[-1])):
                name = f"{parameter.name}_{side}"
                pair = (f"{dim}_pair",)
                dims |= {f"{name}_below_z": pair, f"{name}_correlation": pair}
                dims[f"{name}_diagonal_z"] = (dim,)
        if prior.kind == "trainable_mean":
            dims[f"{parameter.name}_mean"] = parameter.dims
        if getattr(hyperprior, "per", None) == "unit":
            dims[f"layer_{parameter.layer}_scale"] = parameter.dims[-1:]
            if hyperprior.on == "variance":
                dims[f"layer_{parameter.layer}_variance"] = parameter.dims[-1:]
            if hyperprior.is_point:
                dims[f"layer_{parameter.layer}_scale_log"] = parameter.dims[-1:]
    return dims


def expected_names(parameters, prior, hyperprior):
    """Every variable of the model but the constants and the observed one."""
    names = set(expected_dims(parameters, prior, hyperprior)) - {"y"}
    if prior == LEARNED_MIXTURE:
        learned = {f"mixture_{name}" for name in ("proportion", "sigma_1", "sigma_2")}
        names |= learned | {name + STANDARD for name in learned}
    if not isinstance(hyperprior, Hierarchical):
        return names
    layers = {f"layer_{p.layer}" for p in parameters}
    owners = {"network"} if hyperprior.per == "network" else layers
    names |= {f"{owner}_scale" for owner in owners}
    if hyperprior.is_point:
        names |= {f"{owner}_scale_log" for owner in owners}
    return names | {f"{owner}_variance" for owner in owners if hyperprior.on == "variance"}


# How weights come about does not depend on the likelihood; another one is in test_likelihoods.py.
@pytest.mark.parametrize(
    ("prior", "hyperprior", "on", "per", "centred", "network"),
    slow_but(COMBINATIONS[:6], COMBINATIONS),
)
def test_every_combination(prior, hyperprior, on, per, centred, network):
    """Any two settings of the parts meet in one of the models."""
    prior, hyperprior = EVERY_PRIOR[prior], HYPERPRIORS[hyperprior]
    settings = {"on": on, "per": per, "centred": centred}
    settings = settings if issubclass(hyperprior, Hierarchical) else {}
    hyperprior = with_defaults(hyperprior, **settings)
    network, rows = SMALLEST[network]
    parameters = network.parameters(rows.input_shape, 3)
    model = check_model(network, prior, hyperprior, Categorical(), rows)
    constants = hyperprior.constants if prior.has_scale else {}
    names = expected_names(parameters, prior, hyperprior)
    assert set(model.named_vars) == names | {"y", *constants}
    assert {v.name for v in model.data_vars} == {"x", "target", *constants}
    np.testing.assert_array_equal(model["x"].get_value(), rows.x)
    np.testing.assert_array_equal(model["target"].get_value(), rows.y)

    dims = {name: found for name, found in model.named_vars_to_dims.items() if found}
    assert dims == expected_dims(parameters, prior, hyperprior)
    assert all(v.ndim == len(dims.get(name, ())) for name, v in model.named_vars.items())
    assert [v.name for v in model.observed_RVs] == ["y"]


def test_every_network_is_among_the_smallest_or_has_a_known_composition():
    known = {kind for kind, network in NETWORKS.items() if issubclass(network, Known)}
    assert set(SMALLEST) == set(NETWORKS) - known


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prior", "hyperprior"),
    [
        *((kind, "fixed") for kind, prior in PRIORS.items() if not prior.has_scale),
        ("normal", "fixed"),
        (LEARNED_MIXTURE, "fixed"),
        *((kind, "half_cauchy") for kind, prior in PRIORS.items() if prior.has_scale),
        *(("normal", kind) for kind in HYPERPRIORS if kind not in ("fixed", "half_cauchy")),
    ],
    ids=lambda value: value if isinstance(value, str) else "learned",
)
# PyTensor says so of every check in a graph, since a traced JAX function cannot raise.
@pytest.mark.filterwarnings("ignore:(?s)Skipping .* as JAX tracing would remove it:UserWarning")
def test_jax_gives_the_same_log_probability_and_gradient(prior, hyperprior, evaluate):
    model = build(prior, hyperprior, *SMALLEST["dense"])
    point = random_point(model)
    logp = model.logp()
    graphs = [logp, *pt.grad(logp, model.value_vars)]
    compiled = pytensor.function(model.value_vars, graphs, mode="JAX")
    found = compiled(*(point[v.name] for v in model.value_vars))
    expected = evaluate(graphs, {v: point[v.name] for v in model.value_vars})
    for one, other in zip(found, expected, strict=True):
        assert np.asarray(one).dtype == np.float64
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


def test_layers_that_do_not_fit_the_rows():
    message = r"^`network.layers\[0\]` \(convolution, 3 × 3\) takes images, not its input of 2 "
    with pytest.raises(ShapeError, match=message):
        build(network=SMALLEST["layers"][0])


def test_coords_are_names_of_features_and_classes_and_numbers_of_units():
    model = build("laplace", "half_cauchy")
    assert {name: values and list(values) for name, values in model.coords.items()} == {
        "feature": ["height", "width"],
        "hidden_1": [0, 1, 2, 3],
        "hidden_2": [0, 1, 2],
        "output": ["a", "b", "c"],
        "observation": None,
    }


@pytest.mark.parametrize("kind", slow_but(["inverse_gamma"], list(HYPERPRIORS)))
def test_models_that_differ_in_data_share_one_graph(kind, log_probability):
    """A model given the data of another one is that other model."""
    settings = {"fixed": {"scale": 0.3}, "inverse_gamma": {"alpha": 3.0, "beta": 0.4}}
    settings |= {"half_normal": {"sigma": 0.3}, "half_cauchy": {"beta": 0.3}, "point": {}}
    settings["pymc"] = {"alpha": 3.0, "beta": 0.4}
    other_hyperprior = with_defaults(HYPERPRIORS[kind], **settings[kind])
    other_rows = rows(n=14, random_seed=5)
    model, other = build("laplace", kind), build("laplace", other_hyperprior, dataset=other_rows)
    point = random_point(other)
    before, expected = log_probability(model, point), log_probability(other, point)
    with model:
        pm.set_data(model_data(other_hyperprior, other_rows))
    assert not np.isclose(before, expected)
    np.testing.assert_allclose(log_probability(model, point), expected, rtol=1e-13)


def test_a_tuned_scale_starts_at_its_first_candidate():
    scale = {"log": (0.1, 10.0, 3)}
    model = build("normal", Fixed.model_validate({"scale": scale}))
    np.testing.assert_allclose(model["prior_scale"].get_value(), 0.1)


@pytest.mark.parametrize("dtype", slow_but(["float32"], ["float32", "float64"]))
def test_models_are_double_precision_under_any_default(dtype, log_probability):
    reference = build("laplace", "half_cauchy")
    point = random_point(reference)
    single = Rows(ROWS.x.astype(dtype), ROWS.y.astype("uint8"), ROWS.features, ROWS.classes)
    exact = Rows(single.x.astype("float64"), ROWS.y, ROWS.features, ROWS.classes)
    with pytensor.config.change_flags(floatX="float32"):
        model = build("laplace", "half_cauchy", dataset=single)
        assert pytensor.config.floatX == "float32"
        assert model.logp().dtype == "float64"
    floats = [v for v in model.named_vars.values() if v.name not in ("y", "target")]
    assert {v.dtype for v in [*floats, *model.value_vars]} == {"float64"}
    expected = log_probability(build("laplace", "half_cauchy", dataset=exact), point)
    assert log_probability(model, point) == expected


# --- against models written by hand -------------------------------------------------------


def test_fixed_normal_is_the_model_one_would_write(log_probability):
    model = build("normal", Fixed(scale=0.8), network=Dense(hidden=(4,), activation="relu"))
    with pm.Model() as written:
        w1 = pm.Normal("weight_1", 0, 0.8, shape=(2, 4))
        b1 = pm.Normal("bias_1", 0, 0.8, shape=4)
        w2 = pm.Normal("weight_2", 0, 0.8, shape=(4, 3))
        b2 = pm.Normal("bias_2", 0, 0.8, shape=3)
        hidden = pm.math.maximum(pm.math.dot(ROWS.x, w1) + b1, 0)
        pm.Categorical("y", logit_p=pm.math.dot(hidden, w2) + b2, observed=ROWS.y)
    point = random_point(model)
    expected = log_probability(written, point)
    np.testing.assert_allclose(log_probability(model, point), expected, rtol=1e-12)


def test_log_probability_in_numpy_and_scipy(log_probability):
    """The sum of the prior, the hyperprior with its Jacobian, and the likelihood."""
    model = build("laplace", HalfNormal(sigma=0.6), network=Dense(hidden=(4,)))
    point = random_point(model)
    u = np.array([point["layer_1_scale_log__"], point["layer_2_scale_log__"]])
    (w1, w2), (b1, b2) = (
        [np.exp(u[i]) * point[f"{kind}_{i + 1}_z"] for i in range(2)] for kind in ("weight", "bias")
    )
    standard = np.concatenate([v.ravel() for k, v in point.items() if k.endswith("_z")])
    log_p = log_softmax(np.tanh(ROWS.x @ w1 + b1) @ w2 + b2, axis=1)
    expected = (
        stats.laplace.logpdf(standard).sum()
        + (stats.halfnorm.logpdf(np.exp(u), scale=0.6) + u).sum()
        + log_p[np.arange(len(ROWS)), ROWS.y].sum()
    )
    np.testing.assert_allclose(log_probability(model, point), expected, rtol=1e-12)


# --- scales -------------------------------------------------------------------------------


CENTRABLE = [kind for kind, prior in PRIORS.items() if prior.has_scale and prior.centrable]
CENTRED = pairwise([*product(CENTRABLE, ("unit", "layer", "network"), (True, False))])


@pytest.mark.parametrize(("prior", "per", "fan_in"), slow_but(CENTRED[:2], CENTRED))
def test_centred_and_not_differ_by_a_change_of_variables(prior, per, fan_in, log_probability, at):
    prior = PRIORS[prior](fan_in=fan_in)
    loose = build(prior, HalfCauchy(per=per))
    tight = build(prior, HalfCauchy(per=per, centred=True))
    point = random_point(loose)
    log_jacobian = 0.0
    for parameter in SMALL.parameters((2,), 3):
        owner = "network" if per == "network" else f"layer_{parameter.layer}"
        scale = np.exp(point[f"{owner}_scale_log__"])
        if fan_in:
            scale = scale / np.sqrt(parameter.fan_in)
        standard = point[parameter.name + STANDARD]
        point[parameter.name] = scale * standard
        log_jacobian += np.broadcast_to(np.log(scale), standard.shape).sum()
    names = [p.name for p in SMALL.parameters((2,), 3)]
    found = at(loose, [loose[name] for name in names], point)
    for name, value in zip(names, found, strict=True):
        np.testing.assert_allclose(value, point[name], rtol=1e-13)
    expected = log_probability(tight, point) + log_jacobian
    np.testing.assert_allclose(log_probability(loose, point), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("per", "centred"),
    slow_but([("unit", False)], [*product(("layer", "network", "unit"), (False, True))]),
)
def test_hyperprior_on_the_variance(per, centred, log_probability, at):
    model = build("normal", HalfNormal(sigma=0.6, on="variance", per=per, centred=centred))
    owners = ["network"] if per == "network" else ["layer_1", "layer_2", "layer_3"]
    point = random_point(model)
    for owner in owners:
        u = point[f"{owner}_variance_log__"]
        [scale] = at(model, [model[f"{owner}_scale"]], point)
        np.testing.assert_allclose(scale, np.exp(u / 2), rtol=1e-14)
        found = log_probability(model, point, [model[f"{owner}_variance"]])
        expected = (stats.halfnorm.logpdf(np.exp(u), scale=0.6) + u).sum()
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    [weight, scale] = at(model, [model["weight_1"], model[f"{owners[0]}_scale"]], point)
    if centred:
        found = log_probability(model, point, [model["weight_1"]])
        expected = stats.norm.logpdf(weight, scale=scale).sum()
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    else:
        np.testing.assert_allclose(weight, scale * point["weight_1_z"], rtol=1e-14)


FIXED_DENSITIES = {
    Normal: lambda w, scale: stats.norm.logpdf(w, scale=scale),
    StudentT: lambda w, scale: stats.t.logpdf(w, 4.0, scale=scale),
    ScaleMixture: lambda w, scale: np.log(
        0.2 * stats.norm.pdf(w, scale=scale) + 0.8 * stats.norm.pdf(w, scale=0.1 * scale)
    ),
}


@pytest.mark.parametrize(
    ("prior", "fan_in"),
    [(Normal, False), *((prior, True) for prior in FIXED_DENSITIES)],
)
def test_fan_in_divides_a_fixed_scale(prior, fan_in, evaluate):
    model = build(prior(fan_in=fan_in), Fixed(scale=0.8))
    point, parameters = random_point(model), SMALL.parameters((2,), 3)
    densities = model.logp(vars=[model[p.name] for p in parameters], sum=False)
    found = evaluate(densities, {value: point[value.name] for value in model.value_vars})
    for parameter, density in zip(parameters, found, strict=True):
        scale = 0.8 / np.sqrt(parameter.fan_in) if fan_in else 0.8
        expected = FIXED_DENSITIES[prior](point[parameter.name], scale)
        np.testing.assert_allclose(density, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("hyperprior", "fan_in"),
    [(Fixed(scale=0.8), True), (HalfCauchy(), False), (HalfCauchy(per="unit"), True)],
)
def test_horseshoe_weights_are_products(hyperprior, fan_in, log_probability, at):
    model = build(Horseshoe(fan_in=fan_in), hyperprior)
    point, parameters = random_point(model), SMALL.parameters((2,), 3)
    weights = at(model, [model[p.name] for p in parameters], point)
    expected, size = 0.0, 0
    for parameter, weight in zip(parameters, weights, strict=True):
        learned = point.get(f"layer_{parameter.layer}_scale_log__")
        scale = 0.8 if learned is None else np.exp(learned)
        u, z = (point[parameter.name + ending] for ending in ("_local_log__", STANDARD))
        root = np.sqrt(parameter.fan_in) if fan_in else 1.0
        np.testing.assert_allclose(weight, scale / root * np.exp(u) * z, rtol=1e-13)
        expected += (stats.halfcauchy.logpdf(np.exp(u)) + u + stats.norm.logpdf(z)).sum()
        size += u.size
    names = [p.name + ending for p in parameters for ending in ("_local", STANDARD)]
    found = log_probability(model, point, [model[name] for name in names])
    # PyMC 6.4 normalises a half-Cauchy in single precision, 1.9e-9 too low.
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=2e-9 * size)


def test_all_layers_share_a_learned_mixture(log_probability):
    model = build(LEARNED_MIXTURE, Fixed(scale=1.0))
    point, names = random_point(model), [p.name for p in SMALL.parameters((2,), 3)]
    z = {name: point[f"mixture_{name}_z"] for name in ("sigma_1", "sigma_2", "proportion")}
    share = expit(logit(0.2) + z["proportion"])
    w = np.concatenate([point[name].ravel() for name in names])
    wide, narrow = (
        stats.norm.pdf(w, scale=sigma)
        for sigma in (np.exp(z["sigma_1"]), 0.1 * np.exp(z["sigma_2"]))
    )
    found = log_probability(model, point, [model[name] for name in names])
    expected = np.log(share * wide + (1 - share) * narrow).sum()
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def mixture_cdf(x):
    """Distribution function of the mixture's defaults."""
    return 0.2 * stats.norm.cdf(x) + 0.8 * stats.norm.cdf(x / 0.1)


@pytest.mark.parametrize(
    ("prior", "cdf"),
    slow_but(
        [(Horseshoe(), None)],
        [
            (StudentT(nu=3.0), stats.t(3).cdf),
            (ScaleMixture(), mixture_cdf),
            (LEARNED_MIXTURE, None),
            (Horseshoe(), None),
        ],
    ),
    ids=["student_t", "scale_mixture", "learned", "horseshoe"],
)
def test_draws_of_the_prior(prior, cdf):
    """Drawn weights have the distribution, or are made of what they should be."""
    model = build(prior, Fixed(scale=0.5))
    with pytensor.config.change_flags(mode="FAST_COMPILE"), model:
        draws = pm.sample_prior_predictive(draws=300, random_seed=1)
    found = draws["prior"]
    assert draws["prior_predictive"]["y"].shape == (1, 300, len(ROWS))
    weight = found["weight_2"].to_numpy()[0]
    assert weight.shape == (300, 4, 3)
    if cdf is not None:
        assert stats.kstest(weight.ravel() / 0.5, cdf).pvalue > 0.001
    elif prior == LEARNED_MIXTURE:
        share, *sigmas = (
            found[f"mixture_{name}"].to_numpy()[0][:, None, None]
            for name in ("proportion", "sigma_1", "sigma_2")
        )
        wide, narrow = (stats.norm.cdf(weight, scale=0.5 * sigma) for sigma in sigmas)
        assert stats.kstest((share * wide + (1 - share) * narrow).ravel(), "uniform").pvalue > 0.001
    else:
        local, standard = (found[f"weight_2{ending}"].to_numpy()[0] for ending in ("_local", "_z"))
        np.testing.assert_allclose(weight, 0.5 * local * standard, rtol=1e-12)
        assert stats.kstest(local.ravel(), stats.halfcauchy.cdf).pvalue > 0.001
        assert stats.kstest(standard.ravel(), stats.norm.cdf).pvalue > 0.001


@pytest.mark.parametrize(
    ("prior", "edges"),
    slow_but(
        [(Horseshoe(), ("weight_1_local -> weight_1", "weight_1_z -> weight_1"))],
        [
            (
                LEARNED_MIXTURE,
                ("mixture_proportion -> weight_1", "mixture_sigma_2_z -> mixture_sigma"),
            ),
            (Horseshoe(), ("weight_1_local -> weight_1", "weight_1_z -> weight_1")),
        ],
    ),
    ids=["learned", "horseshoe"],
)
def test_graph_of_a_prior(prior, edges):
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        source = pm.model_to_graphviz(build(prior, "fixed")).source
    assert all(edge in source for edge in edges)


def test_a_flat_prior_leaves_the_likelihood(log_probability):
    model = build("flat")
    point = random_point(model)
    found, likelihood = log_probability(model, point), log_probability(model, point, [model["y"]])
    assert found == likelihood < 0
    assert "prior_scale" not in model.named_vars


# --- the short factory --------------------------------------------------------------------


def test_dense_classifier_is_build_model_with_names(log_probability):
    model = dense_classifier(
        ROWS.x,
        ROWS.y,
        hidden=(4, 3),
        activation="sigmoid",
        prior="laplace",
        hyperprior="half_cauchy",
    )
    long = build("laplace", "half_cauchy", network=Dense(hidden=(4, 3), activation="sigmoid"))
    point = random_point(long)
    assert log_probability(model, point) == log_probability(long, point)
    assert list(model.coords["feature"]) == ["x1", "x2"]
    assert list(model.coords["output"]) == ["0", "1", "2"]


def test_dense_classifier_takes_specifications():
    hyperprior = HalfCauchy(beta=0.2, per="network")
    model = dense_classifier(ROWS.x, ROWS.y, prior=Normal(fan_in=True), hyperprior=hyperprior)
    assert model["hyperprior_beta"].get_value() == 0.2
    assert "network_scale" in model.named_vars


@pytest.mark.parametrize("labels", [np.zeros(9, int), np.arange(9) % 2 == 0])
def test_dense_classifier_has_two_classes_at_least(labels):
    model = dense_classifier(ROWS.x, labels, hidden=(3,))
    assert list(model.coords["output"]) == ["0", "1"]
    np.testing.assert_array_equal(model["target"].get_value(), labels.astype(int))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"prior": "gauss"},
            (
                "^`prior` must be one of cauchy, cell, correlated_normal, flat, "
                "horseshoe, laplace, matrix_normal, multivariate_t, normal, "
                "pymc, r2d2, scale_mixture, student_t, trainable_mean, got 'gauss'.$"
            ),
        ),
        (
            {"hyperprior": "gamma"},
            (
                "^`hyperprior` must be one of fixed, half_cauchy, half_normal, inverse_gamma, "
                "point, pymc, got 'gamma'.$"
            ),
        ),
        ({"activation": "swish"}, "`activation` must be one of"),
        ({"x": ROWS.x[:, 0]}, r"^`x` must have shape \(observation, feature\), got \(9,\).$"),
        ({"x": ROWS.x[:0]}, r"^`x` must have shape \(observation, feature\), got \(0, 2\).$"),
        ({"y": ROWS.y[:5]}, r"^`y` must have shape \(9,\), one label a row, got \(5,\).$"),
        ({"y": ROWS.y.astype(float)}, "^`y` must hold class indices 0, 1, …, got float64.$"),
        ({"y": ROWS.y - 1}, "^`y` must hold class indices 0, 1, …, got -1.$"),
        (
            {"prior": "flat", "hyperprior": "half_cauchy"},
            (
                "^`hyperprior` must be `fixed` with prior `flat`, which has no scale, "
                "got `half_cauchy`.$"
            ),
        ),
        (
            {"prior": "horseshoe", "hyperprior": HalfCauchy(centred=True)},
            (
                "^`hyperprior.centred` must be False with prior `horseshoe`, whose weights are "
                "always scaled from standard draws, got True.$"
            ),
        ),
    ],
)
def test_dense_classifier_says_what_is_wrong(changes, message):
    with pytest.raises(ValueError, match=message):
        dense_classifier(**({"x": ROWS.x, "y": ROWS.y} | changes))


def test_names_and_data_sets_stand_for_specifications_and_rows():
    from pmbnn.data.arrays import Dataset

    rng = np.random.default_rng(0)
    dataset = Dataset.from_arrays(rng.normal(size=(20, 2)), ["a", "b"] * 10)
    model = build_model(Dense(hidden=(3,)), "laplace", "half_normal", "categorical", dataset)
    assert model["x"].get_value().shape == (16, 2)
    assert model.coords["output"] == ("a", "b")
    with pytest.raises(ValueError, match="`likelihood` must be one of bernoulli, categorical"):
        build_model(Dense(hidden=(3,)), "laplace", "half_normal", "catgorical", dataset)
