"""Point parameters: maximised beside a guide of everything else, and no part of its density."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import yaml
from scipy import stats
from scipy.optimize import minimize

from pmbnn.calibration.plan import why_left_out
from pmbnn.core.errors import ConfigError
from pmbnn.data.arrays import Rows
from pmbnn.experiment.load import load_experiment
from pmbnn.inference.advi import build_program
from pmbnn.inference.flat import flatten_model
from pmbnn.inference.groups import fit as fit_replicas
from pmbnn.inference.guides import MeanField, build_guide
from pmbnn.inference.log_density import build_log_density
from pmbnn.inference.result import Replica, derive_keys
from pmbnn.inference.samplers.settings import Mclmc
from pmbnn.inference.settings import Inference
from pmbnn.inference.xla.rewrites import divided_graph
from pmbnn.models.build import build_model, model_data
from pmbnn.models.hyperpriors import Fixed, HalfNormal, PointScale
from pmbnn.models.likelihoods import Normal, StudentT
from pmbnn.models.networks import Dense
from pmbnn.models.noise import PointNoise
from pmbnn.models.priors import Normal as NormalPrior
from pmbnn.prior_predictive.evaluate import prior_draws
from pmbnn.sweep.check import with_sampler

STEPS = np.linspace(-1, 1, 40)
X = np.column_stack([STEPS, STEPS**2 - np.mean(STEPS**2)])
X /= np.sqrt(np.mean(X**2, axis=0))
Y = X @ [2.0, -1.0] + 0.4 + 0.3 * np.random.default_rng(1).standard_normal(40)
ROWS = Rows(X, Y, ("x1", "x2"), ())
DESIGN = np.column_stack([X, np.ones(len(X))])
NOISE = Normal(sd=PointNoise())


def model_of(hyperprior=None, likelihood=NOISE):
    network = Dense(hidden=())
    return build_model(network, NormalPrior(), hyperprior or Fixed(scale=3.0), likelihood, ROWS)


def evidence(scale, noise):
    """Logarithm of the evidence, with the weights integrated out."""
    covariance = noise**2 * np.eye(len(Y)) + scale**2 * DESIGN @ DESIGN.T
    return stats.multivariate_normal(cov=covariance).logpdf(Y)


def highest_evidence(scale=None, noise=None):
    """Scale and noise of highest evidence, those of them that are not given."""

    def loss(values):
        rest = iter(np.exp(values))
        return -evidence(*(next(rest) if given is None else given for given in (scale, noise)))

    found = minimize(loss, np.zeros((scale is None) + (noise is None)), tol=1e-10)
    return np.exp(found.x), -found.fun


def fitted(model, hyperprior, likelihood=NOISE, **settings):
    settings = Inference(**{"steps": 4000, "learning_rate": 0.05} | settings)
    data = model_data(hyperprior, ROWS, likelihood)
    program = build_program(model, settings, len(Y), 1)
    (fit,) = fit_replicas(program, [Replica(data, derive_keys("fit"))])
    found = program.flat.layout.unravel(fit.loc)
    return fit, {name: float(np.exp(found[name])) for name in program.flat.points}


def test_noise_of_highest_evidence():
    """The design is orthogonal: a mean-field guide is the posterior, its ELBO the evidence."""
    assert np.abs(np.triu(DESIGN.T @ DESIGN, 1)).max() < 1e-9
    settings = {"iterate_averaging": 0.2}
    fit, found = fitted(model_of(), Fixed(scale=3.0), **settings)
    (noise,), highest = highest_evidence(scale=3.0)
    assert found == {"noise_log": pytest.approx(noise, rel=0.02)}
    assert fit.elbo == pytest.approx(highest, abs=0.2)
    assert fit.status in ("converged", "not_converged")
    assert fit.kl_forms["noise_log"] == "exact"


@pytest.mark.slow
@pytest.mark.parametrize("centred", [False, True])
def test_scale_of_highest_evidence(centred):
    hyperprior, likelihood = PointScale(centred=centred), Normal(sd=0.3)
    model = model_of(hyperprior, likelihood)
    fit, found = fitted(model, hyperprior, likelihood, iterate_averaging=0.2)
    _, highest = highest_evidence(noise=0.3)
    # Three weights hardly tell their scale: to a few hundredths of a nat, as steps have noise.
    assert evidence(found["layer_1_scale_log"], 0.3) > highest - 0.05
    assert fit.elbo == pytest.approx(highest, abs=0.2)


@pytest.mark.slow
def test_both_at_once_by_every_way():
    _, highest = highest_evidence()
    hyperprior = PointScale()
    for settings in (
        {"estimator": "local_reparameterisation"},
        {"estimator": "flipout"},
        {"estimator": "path_derivative"},
        {"kl": "monte_carlo"},
    ):
        _, found = fitted(model_of(hyperprior), hyperprior, iterate_averaging=0.3, **settings)
        assert evidence(found["layer_1_scale_log"], found["noise_log"]) > highest - 0.1


def test_a_point_of_everything_has_the_mode():
    """With weights at their mode, the noise is that of the residuals."""
    fit, found = fitted(model_of(), Fixed(scale=3.0), guide="map", steps=1500)
    layout = flatten_model(model_of(), rows=len(Y)).layout
    at = layout.unravel(fit.loc)
    residuals = Y - X @ at["weight_1"][:, 0] - at["bias_1"]
    assert found["noise_log"] == pytest.approx(np.sqrt(np.mean(residuals**2)), rel=1e-2)


def test_entropy_and_density_leave_points_out(evaluate):
    spread = np.array([True, False, True])
    guide = MeanField(3, None, spread)
    loc, rho = np.array([0.1, 2.0, -0.4]), np.array([-1.0, 0.3, 0.5])
    found = guide.constrained({"loc": pt.constant(loc), "rho": pt.constant(rho)})
    scale = np.where(spread, np.log1p(np.exp(rho)), 0.0)
    value = np.array([0.5, 2.0, 1.0])
    graphs = [found["scale"], guide.entropy(found), guide.log_density(found, pt.constant(value))]
    graphs.append(guide.draw(found, {"noise": pt.constant(np.ones(3))}))
    sd, entropy, density, drawn = evaluate(graphs, {})
    rest = stats.norm(loc[spread], scale[spread])
    np.testing.assert_allclose(sd, scale)
    np.testing.assert_allclose(entropy, rest.entropy().sum())
    np.testing.assert_allclose(density, rest.logpdf(value[spread]).sum())
    np.testing.assert_allclose(drawn, loc + scale)


def test_a_constant_is_cut_as_vectors_are(evaluate):
    """Large guides are kept in leaves, which the places of points are not to join."""
    vector, lengths = pt.vector("v", shape=(5,)), (2, 3)
    (outputs,) = [[(vector * pt.constant(np.arange(5.0))).sum()]]
    inputs, found = divided_graph([vector], outputs, lengths)
    given = dict(zip(inputs, (np.array([1.0, 2.0]), np.array([3.0, 4.0, 5.0])), strict=True))
    assert evaluate(found, given)[0] == pytest.approx(np.arange(5.0) @ np.arange(1.0, 6.0))


def test_what_does_not_maximise_is_refused():
    model = model_of()
    flat = flatten_model(model, rows=len(Y))
    assert flat.points == ("noise_log",) and not flat.improper
    with pytest.raises(ValueError, match="must be map or maximum_likelihood or mean_field for a"):
        build_guide(Inference(guide="full_rank"), flat.size, False, flat.spread)
    with pytest.raises(ValueError, match="must not have point parameters to be sampled, got"):
        build_log_density(model, len(Y))
    with pytest.raises(ValueError, match="`noise_log` is not"):
        prior_draws(model, ["weight_1"], 0)


@pytest.mark.parametrize(
    ("hyperprior", "likelihood"),
    [(HalfNormal(), StudentT(nu=4.0, scale=PointNoise())), (PointScale(), NOISE)],
)
def test_log_density_counts_no_prior(hyperprior, likelihood, evaluate):
    model = model_of(hyperprior, likelihood)
    names = [v.name for v in model.free_RVs if v.name.endswith("_log")]
    assert names == [*(["layer_1_scale_log"] if hyperprior.is_point else []), "noise_log"]
    for name in names:
        (logp,) = model.logp(vars=model[name], sum=False)
        value = model.rvs_to_values[model[name]]
        assert value.name == name  # no transformation
        assert evaluate([logp], {value: np.float64(0.7)})[0] == 0
    assert isinstance(model, pm.Model)


PLACE = "sweeps[0]"
MISTAKES = {
    "covariance": (
        {"inference": {"guide": "low_rank"}},
        f"`{PLACE}.inference.guide` must be dropout, map, maximum_likelihood or mean_field with "
        f"point parameters (`{PLACE}.likelihood`), got 'low_rank'.",
    ),
    "sampler": (
        {"inference": "mclmc"},
        f"`{PLACE}.inference` must be compiled with point parameters (`{PLACE}.likelihood`), which "
        "are maximised, got 'mclmc'.",
    ),
    "scale of a covariance": (
        {"likelihood": "normal", "hyperprior": "point", "inference": {"guide": "full_rank"}},
        f"`{PLACE}.inference.guide` must be dropout, map, maximum_likelihood or mean_field with "
        f"point parameters (`{PLACE}.hyperprior`), got 'full_rank'.",
    ),
    "on the variance": (
        {"hyperprior": {"kind": "point", "on": "variance"}},
        f"`{PLACE}.hyperprior.on` must be one of scale, got 'variance'",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake(name, tmp_path):
    sections, message = MISTAKES[name]
    sweep = {"name": "one", "dataset": "sine", "network": "dense", "prior": "normal"}
    sweep |= {"likelihood": {"kind": "normal", "sd": "point"}} | sections
    file = tmp_path / "experiment.yaml"
    file.write_text(yaml.safe_dump({"name": "test", "sweeps": [sweep]}))
    with pytest.raises(ConfigError) as error:
        load_experiment(file)
    assert str(error.value).startswith(message)


def test_what_needs_a_posterior_leaves_points_out(tmp_path):
    """A sampler beside the fits of a folder, and truths to calibrate by."""
    given = {"dataset": "sine", "network": "dense", "prior": "normal"}
    sweeps = [
        {"name": "points", **given, "hyperprior": ["point", "half_normal"]},
        {"name": "others", **given, "hyperprior": "half_cauchy"},
    ]
    file = tmp_path / "experiment.yaml"
    file.write_text(yaml.safe_dump({"name": "test", "sweeps": sweeps}))
    experiment = load_experiment(file)
    beside = with_sampler(experiment, Mclmc(), tmp_path)
    assert {cell.sweep for cell in beside.cells if cell.is_sampled} == {"others"}
    reasons = [why_left_out(cell, 10) for cell in experiment.cells]
    assert reasons[1:] == [None, None] and reasons[0].startswith("point parameters")
