"""Traces: what ArviZ makes of them, and that they hold what was drawn and predicted."""

import json
from dataclasses import replace
from types import SimpleNamespace

import matplotlib
import netCDF4
import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp, softmax

from pmbnn.data import Mnist, Moons
from pmbnn.data.arrays import Standardisation
from pmbnn.experiment.cells import Cell
from pmbnn.fitting.evaluation import evaluate
from pmbnn.fitting.fit import InferredCell, fit_job
from pmbnn.fitting.programs import GroupPrograms, graph_model
from pmbnn.fitting.select import restart_weights
from pmbnn.fitting.trace import build_trace, density_arrays, kept_images
from pmbnn.inference.guides import build_guide
from pmbnn.inference.result import Fit, History, derive_keys
from pmbnn.inference.settings import Inference
from pmbnn.models.build import model_data
from pmbnn.models.hyperpriors import Fixed, HalfNormal
from pmbnn.models.likelihoods import Categorical
from pmbnn.models.networks import Dense
from pmbnn.models.priors import Horseshoe, Normal, ScaleMixture
from pmbnn.prediction.class_probabilities import mix
from pmbnn.prediction.density import Density
from pmbnn.prediction.draws import GuideDraws
from pmbnn.prediction.posterior import source_of_draws
from pmbnn.prediction.predictor import Predictor
from pmbnn.prediction.settings import Fresh, Map, Predict
from pmbnn.results.store import trace_writer

CELL = Cell(
    "toy",
    Moons(noise=0.3, train=60, test=40),
    Dense(hidden=(3,)),
    Normal(),
    HalfNormal(),
    Categorical(),
    Inference(steps=200, restarts=2),
    Predict(draws=60, trace_draws=50, map=Map(resolution=8), fresh=Fresh(size=100, draws=3)),
)


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A tiny cell fitted for real: all that went into its trace, and the file."""
    programs, dataset = GroupPrograms("group", 16), CELL.dataset.load()
    (fitted,) = fit_job([CELL], {CELL.dataset: dataset}, programs)
    predictor = programs.predictor(CELL, dataset.training)
    return traced(fitted, dataset, predictor, tmp_path_factory.mktemp("toy"))


def traced(fitted, dataset, predictor, folder):
    evaluation = evaluate(fitted, dataset, predictor)
    model = graph_model(fitted.cell, dataset.training)
    trace = build_trace(fitted, evaluation, dataset, predictor, model)
    trace_writer(trace)(folder / "trace.nc")
    return SimpleNamespace(
        fitted=fitted,
        dataset=dataset,
        predictor=predictor,
        evaluation=evaluation,
        model=model,
        trace=trace,
        path=folder / "trace.nc",
    )


RANK = 4


def made_fit(size, restart, status="improper", sd=0.5, kind="mean_field"):
    """A fit that was never fitted: for tests of shapes and sizes."""
    rng = np.random.default_rng(restart)
    constrained = {"loc": rng.normal(size=size)}
    constrained |= {
        "mean_field": lambda: {"scale": np.full(size, sd)},
        "low_rank": lambda: {
            "diagonal": np.full(size, sd),
            "factor": 0.3 * rng.normal(size=(size, RANK)),
        },
        "full_rank": lambda: {
            "root": sd * np.eye(size) + np.tril(0.1 * rng.normal(size=(size, size)), -1)
        },
        "map": dict,
    }[kind]()
    constrained = {name: array.astype("f4") for name, array in constrained.items()}
    # Covariances are for guides that have one: those of large mean-field guides are not small.
    scale = constrained.get("scale")
    if scale is None:
        scale = np.sqrt(np.diag(covariance(constrained))).astype("f4")
    log_likelihood, kl = np.linspace(-80, -40, 200), np.linspace(20, 10, 200)
    return Fit(
        constrained=constrained,
        scale=scale,
        history=History(np.arange(1, 201), log_likelihood - kl, log_likelihood, kl),
        elbo=-50.0 - restart,
        status=status,
        reason="made",
        keys=derive_keys(f"made/{restart}"),
        learning_rate=0.01 * (restart + 1),
        kl_forms={"weight_1_z": "exact", "layer_1_scale_log__": "monte_carlo"},
    )


def covariance(constrained):
    """Covariance of a guide with these constrained parameters; zero of a point."""
    constrained = {name: np.asarray(array, float) for name, array in constrained.items()}
    if "root" in constrained:
        return constrained["root"] @ constrained["root"].T
    size = len(constrained["loc"])
    diagonal = constrained.get("diagonal", constrained.get("scale", np.zeros(size)))
    factor = constrained.get("factor", np.zeros((size, 1)))
    return np.diag(diagonal**2) + factor @ factor.T


def made_cell(cell, dataset, folder, statuses=("converged", "converged"), predictor=None):
    """A cell whose restarts were not fitted but made, and its trace."""
    predictor = predictor or Predictor(graph_model(cell, dataset.training), cell.likelihood)
    size, kind = predictor.flat.size, cell.inference.guide
    fits = tuple(made_fit(size, i, s, kind=kind) for i, s in enumerate(statuses))
    best = next((i for i, made in enumerate(fits) if not made.failed), None)
    data = model_data(cell.hyperprior, dataset.training)
    weights = restart_weights(fits, best, cell.predict.mixture)
    guide = build_guide(cell.inference, size, improper=False)
    sources = {
        i: GuideDraws.from_fit(guide, made) for i, made in enumerate(fits) if not made.failed
    }
    weights = {i: weights[i] for i in sources}
    fitted = InferredCell(cell, cell.hyperprior, data, sources, weights, best, 0.0, fits)
    return traced(fitted, dataset, predictor, folder)


# ArviZ


@pytest.fixture(scope="module")
def az():
    import arviz

    before = matplotlib.get_backend()
    matplotlib.use("agg")
    yield arviz
    matplotlib.use(before)


@pytest.fixture(scope="module")
def idata(toy, az):
    return az.from_netcdf(toy.path)


@pytest.mark.slow
def test_arviz_summarises_it(az, idata):
    summary = az.summary(idata, round_to="none")
    posterior = idata["posterior"]
    scalars = sum(array.size for array in posterior.data_vars.values()) // 50
    assert len(summary) == scalars == (2 * 3 + 3) + (3 * 2 + 2) + 2
    mean = float(posterior["weight_1"].sel(feature="x2", hidden_1=1).mean())
    assert summary.loc["weight_1[x2, 1]", "mean"] == pytest.approx(mean, rel=1e-5)


# A verdict on the draws: a mean-field guide is narrower than the posterior, and few were kept.
few_draws = pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto:UserWarning")


@pytest.mark.slow
@few_draws
def test_arviz_compares_it(az, idata):
    """Leave-one-out is near the fit's own log-likelihood, and not above it."""
    log_likelihood = idata["log_likelihood"]["y"].values.astype(float)
    in_sample = np.log(np.exp(log_likelihood).mean(axis=(0, 1))).sum()
    loo = az.loo(idata)
    assert loo.n_data_points == 60
    assert in_sample - 10 < loo.elpd < in_sample


@pytest.mark.slow
@few_draws
def test_arviz_corrects_for_the_guide(az, idata):
    """The draws come from the guide, so loo wants the densities of both."""
    densities = idata["sample_stats"]
    loo = az.loo_approximate_posterior(
        idata, log_p=densities["log_p"].values, log_q=densities["log_q"].values
    )
    assert loo.n_data_points == 60
    uncorrected = az.loo(idata).elpd
    assert loo.elpd != uncorrected
    assert loo.elpd == pytest.approx(uncorrected, abs=5)


@pytest.mark.slow
@pytest.mark.parametrize("plot", ["plot_forest", "plot_dist", "plot_trace"])
def test_arviz_draws_it(az, idata, plot):
    names = ["layer_1_scale", "layer_2_scale"]
    drawn = getattr(az, plot)(idata, var_names=names, backend="matplotlib")
    figure = drawn.viz["figure"].item()
    assert figure.axes
    matplotlib.pyplot.close("all")


# Groups, dims, coordinates


def test_groups(toy):
    assert set(toy.trace.children) == {
        "posterior",
        "restarts",
        "posterior_predictive",
        "log_likelihood",
        "sample_stats",
        "observed_data",
        "constant_data",
        "predictions",
        "test_predictions",
        "fit",
        "guide",
    }


def test_dims_and_coordinates(toy):
    posterior = toy.trace["posterior"]
    assert {name: array.dims[2:] for name, array in posterior.data_vars.items()} == {
        "layer_1_scale": (),
        "layer_2_scale": (),
        "weight_1": ("feature", "hidden_1"),
        "bias_1": ("hidden_1",),
        "weight_2": ("hidden_1", "output"),
        "bias_2": ("output",),
    }
    assert all(array.dims[:2] == ("chain", "draw") for array in posterior.data_vars.values())
    assert list(posterior["chain"].values) == [0]
    restarts = toy.trace["restarts"]
    assert list(restarts["restart"].values) == [0, 1]
    for name, array in posterior.data_vars.items():
        assert restarts[name].dims == ("restart", "draw", *array.dims[2:])
    assert list(posterior["draw"].values) == list(range(50))
    assert list(posterior["feature"].values) == ["x1", "x2"]
    assert list(posterior["hidden_1"].values) == [0, 1, 2]
    assert list(posterior["output"].values) == ["0", "1"]
    for group in ("log_likelihood", "posterior_predictive"):
        assert toy.trace[group]["y"].dims == ("chain", "draw", "observation")
        assert toy.trace[group]["y"].shape == (1, 50, 60)
    for name in ("log_p", "log_q"):
        assert toy.trace["sample_stats"][name].dims == ("chain", "draw")


def test_data_of_the_model_are_kept(toy):
    constant = toy.trace["constant_data"].to_dataset()
    np.testing.assert_array_equal(constant["x"], toy.dataset.x_train.astype("f4"))
    np.testing.assert_array_equal(toy.trace["observed_data"]["y"], toy.dataset.y_train)
    assert constant.attrs == {"fingerprint": toy.dataset.fingerprint, "source": "scikit-learn"}
    assert list(constant["feature"].values) == ["x1", "x2"]
    for name in ("constant_data", "observed_data"):
        np.testing.assert_array_equal(toy.trace[name]["observation"], range(60))
    undo = Standardisation(
        constant["standardisation_mean"].values, constant["standardisation_sd"].values
    ).undo
    raw = toy.dataset.standardisation.undo(toy.dataset.x_train)
    np.testing.assert_allclose(undo(constant["x"].values), raw, atol=1e-6)


# Draws


def unpacked(toy, restart, draws=50):
    """Free variables by name, from the guide's group and the predictor's draws alone."""
    slots = json.loads(toy.trace["guide"].attrs["slots"])
    values = toy.predictor.values(toy.fitted.sources[restart], draws)
    return {
        name: values[:, start : start + int(np.prod(shape, dtype=int))].reshape(draws, *shape)
        for name, start, shape in slots
    }


def test_draws_are_those_of_the_predictor(toy):
    """Hierarchical weights are scale × standard draws."""
    for restart in (0, 1):
        free = unpacked(toy, restart)
        found = toy.trace["restarts"].sel(restart=restart)
        for layer in (1, 2):
            scale = np.exp(free[f"layer_{layer}_scale_log__"])
            np.testing.assert_allclose(found[f"layer_{layer}_scale"], scale, rtol=1e-5)
            weight = scale[:, None, None] * free[f"weight_{layer}_z"]
            np.testing.assert_allclose(found[f"weight_{layer}"], weight, rtol=1e-5)
            bias = scale[:, None] * free[f"bias_{layer}_z"]
            np.testing.assert_allclose(found[f"bias_{layer}"], bias, rtol=1e-5)


def test_the_posterior_is_the_best_restart(toy):
    """What the tables speak of; ArviZ pools nothing else with it."""
    best = toy.trace["restarts"].sel(restart=toy.fitted.best)
    for name, array in toy.trace["posterior"].data_vars.items():
        np.testing.assert_array_equal(array[0], best[name])
        other = toy.trace["restarts"][name].sel(restart=1 - toy.fitted.best)
        assert not np.isclose(array[0], other).any()


def test_groups_say_what_their_draws_are_of(toy):
    of_best = f"the guide of restart {toy.fitted.best}, highest ELBO of 2"
    made = ("posterior", "posterior_predictive", "log_likelihood", "sample_stats")
    for group in (*made, "test_predictions", "predictions"):
        assert toy.trace[group].attrs["draws_of"] == of_best
    assert (
        toy.trace["restarts"].attrs["draws_of"] == "the guide of each restart that did not diverge"
    )
    for group in ("fit", "guide", "constant_data", "observed_data"):
        assert "draws_of" not in toy.trace[group].attrs


def test_what_draws_are_of_in_words(toy):
    improper = [replace(made, status="improper") for made in toy.fitted.fits]
    one = replace(toy.fitted, fits=tuple(improper), best=1, weights={0: 0.0, 1: 1.0})
    assert one.draws_of == "the guide of restart 1, lowest validation NLL of 2"
    unselected = replace(one, selection=None)
    assert unselected.draws_of == "the guide of restart 1, highest ELBO of 2"
    alone = replace(one, fits=one.fits[:1], best=0, weights={0: 1.0})
    assert alone.draws_of == "the guide of restart 0, the only one"
    mixed = replace(one, weights={0: 0.25, 1: 0.75})
    expected = "the mixture of the guides of restarts (with weights) 0 (0.25), 1 (0.75)"
    assert mixed.draws_of == expected


def test_the_only_restart_is_kept_once(toy, tmp_path):
    made = made_cell(CELL, toy.dataset, tmp_path, ("converged",), toy.predictor)
    assert "restarts" not in made.trace.children
    assert made.trace["posterior"]["weight_1"].shape == (1, 50, 2, 3)


@pytest.mark.slow
def test_the_posterior_is_drawn_from_the_mixture(toy, tmp_path):
    """Each draw is one of a restart's, as often as its weight says; densities are the mixture's."""
    predict = CELL.predict.model_copy(update={"mixture": "elbo", "trace_draws": 2000})
    cell = replace(CELL, predict=predict)
    made = made_cell(cell, toy.dataset, tmp_path, ("converged", "diverged", "converged"),
                     toy.predictor)  # fmt: skip
    weights, fits, data = made.fitted.weights, made.fitted.fits, made.fitted.data
    posterior, restarts = made.trace["posterior"], made.trace["restarts"]
    assert list(restarts["restart"].values) == [0, 2]
    is_of = np.array(
        [
            (posterior["weight_1"].values[0] == restarts["weight_1"].sel(restart=i).values)
            for i in (0, 2)
        ]
    ).all(axis=(2, 3))
    np.testing.assert_array_equal(is_of.sum(axis=0), 1)
    share = is_of[0].mean()
    assert abs(share - weights[0]) < 4 * np.sqrt(weights[0] * weights[2] / 2000)
    values = {i: toy.predictor.values(made.fitted.sources[i], 2000) for i in (0, 2)}
    picked = np.where(is_of[0][:, None], values[0], values[2])
    log_q = [stats.norm.logpdf(picked, fits[i].loc, fits[i].scale).sum(axis=1) for i in (0, 2)]
    expected = logsumexp(log_q, axis=0, b=[[weights[0]], [weights[2]]])
    densities = made.trace["sample_stats"]
    np.testing.assert_allclose(densities["log_q"][0], expected, rtol=1e-5, atol=1e-3)
    log_likelihood, log_p = toy.predictor.log_joint(data, picked)
    np.testing.assert_allclose(densities["log_p"][0], log_p, rtol=1e-6)
    np.testing.assert_allclose(made.trace["log_likelihood"]["y"][0], log_likelihood, rtol=1e-5)
    labels = made.trace["posterior_predictive"]["y"].values[0]
    p = forward(posterior, toy.dataset.x_train)[0, ..., 1]
    assert abs((labels - p).sum() / np.sqrt((p * (1 - p)).sum())) < 4


def test_the_guide_is_kept(toy):
    guide = toy.trace["guide"]
    assert list(guide["restart"].values) == [0, 1]
    for restart, made in enumerate(toy.fitted.fits):
        np.testing.assert_array_equal(guide["loc"][restart], made.loc)
        np.testing.assert_array_equal(guide["scale"][restart], made.scale)
        np.testing.assert_array_equal(guide["draw_key"][restart], made.keys.draws)
    assert guide["draw_key"].dtype == np.uint32


def test_densities_of_the_draws(toy):
    """On the unconstrained vector: Jacobians of the scales included."""
    made, log_prior = toy.fitted.fits[toy.fitted.best], 0.0
    for name, values in unpacked(toy, toy.fitted.best).items():
        density = stats.norm.logpdf(values)
        if name.endswith("_log__"):
            density = stats.halfnorm.logpdf(np.exp(values)) + values
        log_prior = log_prior + density.reshape(50, -1).sum(axis=1)
    densities = toy.trace["sample_stats"].sel(chain=0)
    log_likelihood = toy.trace["log_likelihood"]["y"].sel(chain=0).sum("observation")
    log_p = log_likelihood + log_prior
    np.testing.assert_allclose(densities["log_p"], log_p, rtol=1e-4, atol=1e-3)
    values = toy.predictor.values(toy.fitted.sources[toy.fitted.best], 50)
    log_q = stats.norm.logpdf(values, made.loc, made.scale).sum(axis=1)
    np.testing.assert_allclose(densities["log_q"], log_q, rtol=1e-4, atol=1e-3)


def forward(posterior, x):
    """Class probabilities ``(chain, draw, observation, class)`` in NumPy."""
    hidden = np.tanh(x @ posterior["weight_1"].values + posterior["bias_1"].values[..., None, :])
    outputs = hidden @ posterior["weight_2"].values + posterior["bias_2"].values[..., None, :]
    return softmax(outputs, axis=-1)


def test_log_likelihood_is_that_of_the_network(idata):
    """From nothing but the file."""
    p = forward(idata["posterior"], idata["constant_data"]["x"].values)
    labels = idata["observed_data"]["y"].values
    expected = np.log(np.take_along_axis(p, labels[None, None, :, None], axis=-1)[..., 0])
    np.testing.assert_allclose(idata["log_likelihood"]["y"], expected, rtol=2e-4, atol=1e-5)


def test_posterior_predictive_labels_have_the_predicted_frequencies(idata):
    p = forward(idata["posterior"], idata["constant_data"]["x"].values)[..., 1]
    labels = idata["posterior_predictive"]["y"].values
    assert set(np.unique(labels)) == {0, 1}
    # Every label is an independent draw given its own probability.
    by_row = (labels - p).sum(axis=(0, 1)) / np.sqrt((p * (1 - p)).sum(axis=(0, 1)))
    overall = (labels - p).sum() / np.sqrt((p * (1 - p)).sum())
    assert abs(overall) < 4
    assert np.abs(by_row).max() < 4.5
    assert stats.kstest(by_row, "norm").pvalue > 1e-3, "neither wider nor narrower"
    assert (labels[0, 0] != labels[0, 1]).any()


# Predictions


def test_the_map_lies_over_the_training_rows(toy):
    predictions = toy.trace["predictions"]
    assert predictions["probability"].dims == ("x1", "x2", "output")
    assert predictions["mutual_information"].dims == ("x1", "x2")
    raw = toy.dataset.standardisation.undo(toy.dataset.x_train)
    for name, column in zip(("x1", "x2"), raw.T, strict=True):
        axis = predictions[name].values
        reach = 0.1 * np.ptp(column)
        np.testing.assert_allclose(axis, np.linspace(column.min() - reach, column.max() + reach, 8))


def test_the_map_is_that_of_the_best_restart(toy):
    """Raw coordinates, x1 on the first axis: the network's own mean over the same draws."""
    best = toy.fitted.best
    values = toy.predictor.values(toy.fitted.sources[best], CELL.predict.draws)
    predictions = toy.trace["predictions"]
    for i, j in [(0, 0), (0, 7), (7, 0), (3, 5)]:
        point = np.array([[predictions["x1"][i], predictions["x2"][j]]], dtype=float)
        x = toy.dataset.standardisation(point)
        p = toy.predictor.parameters(toy.fitted.data, values, x)["probability"][:, 0]
        np.testing.assert_allclose(predictions["probability"][i, j], p.mean(axis=0), rtol=1e-4)
        np.testing.assert_allclose(predictions["sd"][i, j], p.std(axis=0), rtol=1e-2, atol=1e-5)
    corners = predictions["probability"].values[[0, -1]][:, [0, -1], 0].ravel()
    assert np.ptp(corners) > 0.1, "a mixed-up map would not show"


def test_test_rows_have_their_predictions(toy):
    group = toy.trace["test_predictions"]
    np.testing.assert_array_equal(group["label"], toy.dataset.y_test)
    raw = toy.dataset.standardisation.undo(toy.dataset.x_test)
    np.testing.assert_allclose(group["x"], raw, atol=1e-6)
    np.testing.assert_allclose(group["probability"].sum("output"), 1, atol=1e-5)
    np.testing.assert_allclose(group["probability"], toy.evaluation.test.mean, rtol=1e-6)
    p = group["probability"].values.astype(float)
    entropy = -(p * np.log(p)).sum(axis=1)
    np.testing.assert_allclose(group["entropy"], entropy, rtol=1e-4)
    correct = p.argmax(axis=1) == toy.dataset.y_test
    assert toy.evaluation.results["accuracy"] == pytest.approx(correct.mean())


# The fit


def test_the_fit_is_kept(toy):
    fit = toy.trace["fit"].to_dataset()
    assert list(fit["restart"].values) == [0, 1]
    for restart, made in enumerate(toy.fitted.fits):
        for name in ("elbo", "log_likelihood", "kl"):
            assert fit[name].dims == ("restart", "window")
            np.testing.assert_array_equal(fit[name][restart], getattr(made.history, name))
    np.testing.assert_array_equal(fit["step"], toy.fitted.fits[0].history.step)
    assert json.loads(fit.attrs["status"]) == [made.status for made in toy.fitted.fits]
    assert fit.attrs["best"] == toy.fitted.best
    np.testing.assert_array_equal(fit["learning_rate"], [0.02, 0.02])
    np.testing.assert_array_equal(fit["weight"], [float(i == toy.fitted.best) for i in (0, 1)])
    free = [name for name, *_ in json.loads(toy.trace["guide"].attrs["slots"])]
    assert json.loads(fit.attrs["kl_forms"]) == dict.fromkeys(free, "exact")


def test_the_elbo_is_the_likelihood_less_the_divergence(toy):
    fit = toy.trace["fit"].to_dataset()
    assert toy.fitted.cell.inference.kl_weight == 1
    np.testing.assert_allclose(fit["elbo"], fit["log_likelihood"] - fit["kl"], rtol=1e-12)
    assert (fit["log_likelihood"] < 0).all()
    assert (fit["kl"] > 0).all()


def test_every_restart_has_its_own_rate_and_weight(toy, tmp_path):
    cell = replace(CELL, predict=CELL.predict.model_copy(update={"mixture": "elbo"}))
    statuses = ("converged", "diverged", "converged")
    made = made_cell(cell, toy.dataset, tmp_path, statuses, toy.predictor)
    fit = made.trace["fit"]
    np.testing.assert_allclose(fit["learning_rate"], [0.01, 0.02, 0.03])
    # Two nats of evidence apart.
    odds = np.exp(-2)
    np.testing.assert_allclose(fit["weight"], [1 / (1 + odds), 0, odds / (1 + odds)], rtol=1e-12)
    kl_forms = {"weight_1_z": "exact", "layer_1_scale_log__": "monte_carlo"}
    assert json.loads(fit.attrs["kl_forms"]) == kl_forms


def test_predictions_are_those_of_the_mixture(toy, tmp_path):
    cell = replace(CELL, predict=CELL.predict.model_copy(update={"mixture": "elbo"}))
    made = made_cell(cell, toy.dataset, tmp_path, predictor=toy.predictor)
    weights = made.fitted.weights
    assert 0 < weights[1] < weights[0] < 1
    for group, x in (("test_predictions", toy.dataset.x_test), ("predictions", map_inputs(made))):
        parts = [
            toy.predictor.predict([source], [1.0], made.fitted.data, x, 60)
            for source in made.fitted.sources.values()
        ]
        mixture, stored = mix(parts, [*weights.values()]), made.trace[group]
        for name, expected in (("probability", mixture.mean), ("sd", mixture.sd)):
            found = stored[name].values.reshape(expected.shape)
            np.testing.assert_allclose(found, expected, rtol=1e-6)
        entropy = stored["entropy"].values.ravel()
        np.testing.assert_allclose(entropy, mixture.entropy, rtol=1e-6)


def map_inputs(made):
    """Standardised points of the map, x1 slowest."""
    axes = [made.trace["predictions"][name].values for name in ("x1", "x2")]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    return made.dataset.standardisation(points)


def test_a_restart_that_diverged_has_no_draws(toy, tmp_path):
    made = made_cell(
        CELL, toy.dataset, tmp_path, ("diverged", "converged", "converged"), toy.predictor
    )
    assert list(made.trace["restarts"]["restart"].values) == [1, 2]
    assert list(made.trace["guide"]["restart"].values) == [0, 1, 2]
    assert made.trace["fit"].attrs["best"] == 1
    one = toy.predictor.values(made.fitted.sources[1], 50)
    expected = toy.predictor.posterior(made.fitted.data, one)["weight_1"]
    np.testing.assert_array_equal(made.trace["posterior"]["weight_1"][0], expected)
    np.testing.assert_array_equal(made.trace["restarts"]["weight_1"].sel(restart=1), expected)


def test_a_history_that_was_cut_short_is_filled_up(toy, tmp_path):
    fits = list(toy.fitted.fits)
    fits[1] = replace(
        fits[1],
        status="diverged",
        history=History(
            step=np.array([1, 2]),
            elbo=np.array([-3.0, np.nan]),
            log_likelihood=np.array([-2.0, np.nan]),
            kl=np.array([1.0, 4.0]),
        ),
    )
    fitted = replace(
        toy.fitted, fits=tuple(fits), best=0, sources={0: toy.fitted.sources[0]}, weights={0: 1.0}
    )
    fit = traced(fitted, toy.dataset, toy.predictor, tmp_path).trace["fit"]
    np.testing.assert_array_equal(fit["elbo"][0], fits[0].history.elbo)
    assert fit["elbo"][1, 0] == -3
    assert np.isnan(fit["elbo"][1, 1:]).all()
    assert fit["log_likelihood"][1, 0] == -2
    np.testing.assert_array_equal(fit["kl"][1, :2], [1, 4])
    assert np.isnan(fit["kl"][1, 2:]).all()
    np.testing.assert_array_equal(fit["step"], fits[0].history.step)


# Other guides


@pytest.fixture(scope="module", params=["low_rank", "full_rank", "map"])
def other(request, toy, tmp_path_factory):
    """A made cell with another guide."""
    cell = replace(CELL, inference=Inference(guide=request.param, rank=RANK))
    return made_cell(cell, toy.dataset, tmp_path_factory.mktemp(request.param))


NATURAL = {
    "low_rank": {"diagonal": (), "factor": ("factor_column",)},
    "full_rank": {"root": ("root_column",)},
    "map": {},
}


def natural_of(group, kind):
    """Constrained parameters of every restart, from the guide's group alone."""
    return {name: group[name].values for name in ("loc", *NATURAL[kind])}


@pytest.mark.slow
def test_another_guide_is_kept(other):
    """Its constrained parameters, and every element's standard deviation."""
    kind, guide = other.fitted.cell.inference.guide, other.trace["guide"]
    dims = {"loc": (), "scale": ()} | NATURAL[kind]
    assert set(guide.data_vars) == {*dims, "draw_key"}
    for name, more in dims.items():
        assert guide[name].dims == ("restart", "parameter", *more)
        assert guide[name].dtype == np.float32
    for restart, made in enumerate(other.fitted.fits):
        constrained = {n: array[restart] for n, array in natural_of(guide, kind).items()}
        for name, array in constrained.items():
            np.testing.assert_array_equal(array, made.constrained[name])
        spread = np.sqrt(np.diag(covariance(constrained)))
        np.testing.assert_allclose(guide["scale"][restart], spread, rtol=1e-6)


@pytest.mark.slow
def test_draws_and_densities_of_another_guide(other):
    """The draws are the predictor's; SciPy's density of the guide in the trace, or none."""
    kind, guide = other.fitted.cell.inference.guide, other.trace["guide"]
    for restart, source in other.fitted.sources.items():
        values = other.predictor.values(source, 50)
        expected = other.predictor.posterior(other.fitted.data, values)
        for name, array in other.trace["restarts"].sel(restart=restart).data_vars.items():
            np.testing.assert_array_equal(array, expected[name])
    densities = other.trace["sample_stats"].sel(chain=0)
    assert np.isfinite(densities["log_p"]).all()
    if kind == "map":
        assert np.isnan(densities["log_q"]).all()
        return
    best = other.fitted.best
    values = other.predictor.values(other.fitted.sources[best], 50)
    constrained = {n: array[best] for n, array in natural_of(guide, kind).items()}
    normal = stats.multivariate_normal(constrained["loc"], covariance(constrained))
    np.testing.assert_allclose(densities["log_q"], normal.logpdf(values), rtol=1e-9)


@pytest.mark.slow
def test_predictions_of_another_guide(other):
    """From nothing but the posterior's draws: those of the best restart, the first."""
    cell, group = other.fitted.cell, other.trace["test_predictions"]
    values = other.predictor.values(other.fitted.sources[0], cell.predict.draws)
    p = other.predictor.parameters(other.fitted.data, values, other.dataset.x_test)["probability"]
    p = p.astype(float)
    np.testing.assert_allclose(group["probability"], p.mean(axis=0), rtol=1e-4)
    if cell.inference.guide == "map":
        for name in ("test_predictions", "predictions"):
            np.testing.assert_array_equal(other.trace[name]["sd"], 0)
            assert other.trace[name]["mutual_information"].max() < 1e-6
    else:
        np.testing.assert_allclose(group["sd"], p.std(axis=0), rtol=1e-3)


# The file


def test_the_file_holds_numbers_and_text_only(toy):
    """Never pickled: nothing in the file can be code."""
    with netCDF4.Dataset(toy.path) as file:
        types = [v.dtype for group in file.groups.values() for v in group.variables.values()]
    kinds = {"text" if dtype is str else dtype.kind for dtype in types}
    assert kinds == {"f", "i", "u", "text"}


@pytest.mark.slow
def test_a_toy_trace_is_small(tmp_path):
    """700 rows, 3 restarts, 100 draws, a map of 100 × 100: what `priors.yaml` asks for."""
    cell = replace(
        CELL,
        dataset=Moons(noise=0.4),
        network=Dense(hidden=(5, 5)),
        inference=Inference(restarts=3),
        predict=Predict(draws=5, fresh=Fresh(size=10, draws=1)),
    )
    made = made_cell(cell, cell.dataset.load(), tmp_path, ("converged",) * 3)
    assert made.trace["log_likelihood"]["y"].shape == (1, 100, 700)
    assert made.trace["restarts"]["weight_1"].shape == (3, 100, 2, 5)
    assert made.trace["predictions"]["sd"].shape == (100, 100, 2)
    assert made.path.stat().st_size < 2_000_000


# Large networks

LARGE = replace(
    CELL,
    network=Dense(hidden=(60, 60)),
    predict=Predict(draws=4, trace_draws=7, map=Map(resolution=4), fresh=Fresh(size=50, draws=2)),
)


@pytest.fixture(scope="module")
def large(toy, tmp_path_factory):
    return made_cell(LARGE, toy.dataset, tmp_path_factory.mktemp("large"))


def test_a_large_network_keeps_its_last_layer_and_all_scales(large):
    posterior = large.trace["posterior"]
    assert set(posterior.data_vars) == {
        "weight_3",
        "bias_3",
        "layer_1_scale",
        "layer_2_scale",
        "layer_3_scale",
    }
    assert posterior.sizes["draw"] == 100
    assert set(posterior.coords) == {"chain", "draw", "hidden_2", "output"}
    restarts = large.trace["restarts"]
    assert set(restarts.data_vars) == set(posterior.data_vars)
    for restart in (0, 1):
        values = large.predictor.values(large.fitted.sources[restart], 100)
        expected = large.predictor.posterior(large.fitted.data, values)
        for name in posterior.data_vars:
            found = restarts[name].sel(restart=restart)
            np.testing.assert_array_equal(found, expected[name])


@pytest.mark.slow
def test_of_a_larger_one_a_few_draws_at_a_time_are_in_memory(large, tmp_path, monkeypatch):
    """And the numbers are the same."""
    predictor, fitted = large.predictor, large.fitted
    values = predictor.values(fitted.sources[0], 100)
    log_likelihood, log_p = predictor.log_joint(fitted.data, values[:10])
    monkeypatch.setattr(predictor, "at_once", 7)
    blocks = list(predictor.blocks(fitted.sources[0], 100))
    assert [len(block) for block in blocks] == [7] * 14 + [2]
    np.testing.assert_array_equal(np.concatenate(blocks), values)
    of_blocks, log_p_of_blocks = predictor.log_joint(fitted.data, values[:10])
    np.testing.assert_allclose(of_blocks, log_likelihood, rtol=1e-5)
    np.testing.assert_allclose(log_p_of_blocks, log_p, rtol=1e-5)
    again = traced(fitted, large.dataset, predictor, tmp_path).trace
    for group in ("posterior", "restarts"):
        assert again[group].identical(large.trace[group])


def test_the_larger_a_network_the_fewer_draws_are_in_memory(toy, large):
    assert toy.predictor.at_once == 100
    assert large.predictor.at_once == 100
    huge = replace(LARGE, network=Dense(hidden=(1_000, 1_000)))
    model = graph_model(huge, toy.dataset.training)
    assert Predictor(model, huge.likelihood).at_once == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prior", "names"),
    [
        (Horseshoe(), {"weight_3_local", "bias_3_local"}),
        (Horseshoe(per="unit"), {"unit_3_local"}),
        (
            ScaleMixture(learned=True),
            {"mixture_sigma_1", "mixture_sigma_2", "mixture_proportion"},
        ),
    ],
    ids=["horseshoe", "units", "scale_mixture"],
)
def test_a_large_network_keeps_what_else_its_prior_learns(prior, names, toy, tmp_path):
    cell = replace(LARGE, prior=prior, hyperprior=Fixed(scale=0.5))
    posterior = made_cell(cell, toy.dataset, tmp_path).trace["posterior"]
    assert set(posterior.data_vars) == {"weight_3", "bias_3"} | names
    if prior == Horseshoe():
        assert posterior["weight_3_local"].dims == ("chain", "draw", "hidden_2", "output")
        assert (posterior["weight_3_local"] > 0).all()


def test_a_large_network_keeps_no_rows(large):
    constant = large.trace["constant_data"].to_dataset()
    assert set(constant.variables) == {"standardisation_mean", "standardisation_sd"}
    assert constant.attrs["fingerprint"] == large.dataset.fingerprint
    left_out = {"log_likelihood", "sample_stats", "posterior_predictive", "observed_data"}
    assert not left_out & set(large.trace.children)
    assert {"guide", "fit", "predictions", "test_predictions"} <= set(large.trace.children)


@pytest.mark.slow
def test_a_large_network_keeps_its_log_likelihood_on_request(large, tmp_path):
    predict = LARGE.predict.model_copy(update={"log_likelihood": True})
    cell = replace(LARGE, predict=predict)
    trace = made_cell(cell, large.dataset, tmp_path, predictor=large.predictor).trace
    assert trace["log_likelihood"]["y"].shape == (1, 100, 60)
    assert trace["sample_stats"]["log_q"].shape == (1, 100)
    assert "x" not in trace["constant_data"]


@pytest.mark.slow
def test_some_images_are_kept(tmp_path):
    cell = replace(
        LARGE,
        dataset=Mnist(source="embedded", train=50, test=60),
        network=Dense(hidden=(5,), activation="relu"),
        hyperprior=Fixed(scale=0.1),
    )
    made = made_cell(cell, cell.dataset.load(), tmp_path)
    group = made.trace["test_predictions"]
    assert "predictions" not in made.trace.children
    assert "x" not in group
    test, label = made.evaluation.test, made.dataset.y_test
    kept = group["image_index"].values
    np.testing.assert_array_equal(kept, kept_images(test, label))
    uncertain = np.argsort(-test.predicted_sd)[:20]
    unsure = np.argsort(test.mean.max(axis=1))[:24]
    first = {i for digit in range(10) for i in np.flatnonzero(label == digit)[:4]}
    assert {*uncertain, *unsure} | first <= set(kept)
    pixels = group["image"]
    assert (pixels.dtype, pixels.shape) == (np.uint8, (len(kept), 28, 28))
    raw = 255 * made.dataset.standardisation.undo(made.dataset.x_test[kept])
    np.testing.assert_allclose(pixels.values.reshape(len(kept), -1), raw, atol=0.51)
    assert pixels.max() > 200
    assert made.path.stat().st_size < 1_000_000


def test_traces_of_laplace_are_of_the_linear_network(tmp_path):
    inference = Inference(guide="laplace", steps=300, restarts=2, validation=0.2)
    predict = CELL.predict.model_copy(update={"mixture": "stacked"})
    cell = replace(CELL, hyperprior=Fixed(), inference=inference, predict=predict)
    programs, dataset = GroupPrograms("group", 16), cell.dataset.load()
    (fitted,) = fit_job([cell], {cell.dataset: dataset}, programs)
    assert [fit.status for fit in fitted.fits] == ["converged"] * 2
    assert "highest evidence" in replace(fitted, weights={0: 0.0, 1: 1.0}).draws_of
    predictor = programs.predictor(cell, dataset.training)
    trace = traced(fitted, dataset, predictor, tmp_path).trace
    assert "sample_stats" not in trace.children
    found = trace["log_likelihood"]["y"].values[0]
    draws = len(found)
    numbers = source_of_draws(fitted.sources, fitted.weights, fitted.best, draws)
    singles = {
        i: predictor.single_draws(source, fitted.data, dataset.x_train, draws)["probability"]
        for i, source in fitted.sources.items()
    }
    rows = np.arange(len(dataset.y_train))
    expected = [np.log(singles[i][k][rows, dataset.y_train]) for k, i in enumerate(numbers)]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    values = {i: predictor.values(source, draws) for i, source in fitted.sources.items()}
    of_network, _ = predictor.log_joint(
        fitted.data, np.stack([values[i][k] for k, i in enumerate(numbers)])
    )
    assert np.abs(of_network - found).max() > 0.5
    # Each probability of a label, by the targets drawn at 50 draws: four standard errors.
    p = np.exp(np.array(expected)).mean(axis=0)
    drawn = (trace["posterior_predictive"]["y"].values[0] == dataset.y_train).mean(axis=0)
    assert (np.abs(drawn - p) < 4 * np.sqrt(0.25 / draws)).all()


@pytest.mark.parametrize(("offset", "dtype"), [(50.0, "f4"), (2.46e6, "f8")])
def test_predictions_far_from_zero_keep_their_digits(offset, dtype):
    """Of days of the Julian calendar, intervals in single precision missed many more targets."""
    sd = np.full(5, 0.05)
    mean = offset + np.linspace(0, 1, 5)
    interval = np.stack([mean - 0.1, mean + 0.1])
    scores = {name: np.zeros(5) for name in ("log_density", "cdf", "crps")}
    density = Density(mean, 0.1 * sd, sd, interval, interval, **scores)
    stored = density_arrays(density, "test_observation")
    for name, expected in (("mean", mean), ("total_interval", interval)):
        _, found = stored[name]
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
