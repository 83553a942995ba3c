"""Traces: what ArviZ makes of them, and that they hold what was drawn and predicted."""

import json
from dataclasses import replace
from types import SimpleNamespace

import h5py
import matplotlib
import numpy as np
import pytest
from scipy import stats
from scipy.special import softmax

from pmbnn.datasets import Mnist, Moons
from pmbnn.datasets.rows import Standardisation
from pmbnn.evaluation import evaluate
from pmbnn.experiment import Cell
from pmbnn.fitting import FittedCell, GroupFitter, graph_model, restart_weights
from pmbnn.inference.fit import Fit, History, random_streams
from pmbnn.inference.settings import Inference
from pmbnn.likelihoods import Categorical
from pmbnn.models import model_data
from pmbnn.moments import pool
from pmbnn.networks import Dense
from pmbnn.prediction import Predictor
from pmbnn.prediction_groups import shown_pictures
from pmbnn.prediction_settings import Fresh, Map, Predict
from pmbnn.priors import Fixed, HalfNormal, Horseshoe, Normal, ScaleMixture
from pmbnn.storage import trace_writer
from pmbnn.trace import build_trace

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
    fitter, dataset = GroupFitter(16), CELL.dataset.load()
    (fitted,) = fitter.fit_job([CELL], {CELL.dataset: dataset}, lambda *_: None)
    predictor = fitter.predictor(CELL, dataset.training)
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
    natural = {"loc": rng.normal(size=size)}
    natural |= {
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
    natural = {name: array.astype("f4") for name, array in natural.items()}
    # Covariances are for guides that have one: those of large mean-field guides are not small.
    scale = natural.get("scale")
    if scale is None:
        scale = np.sqrt(np.diag(covariance(natural))).astype("f4")
    log_likelihood, kl = np.linspace(-80, -40, 200), np.linspace(20, 10, 200)
    return Fit(
        natural=natural,
        scale=scale,
        history=History(np.arange(1, 201), log_likelihood - kl, log_likelihood, kl),
        elbo=-50.0 - restart,
        status=status,
        reason="made",
        streams=random_streams(f"made/{restart}"),
        learning_rate=0.01 * (restart + 1),
        kl_forms={"weight_1_z": "exact", "layer_1_scale_log__": "monte_carlo"},
    )


def covariance(natural):
    """Covariance of a guide with these natural parameters; zero of a point."""
    natural = {name: np.asarray(array, float) for name, array in natural.items()}
    if "root" in natural:
        return natural["root"] @ natural["root"].T
    size = len(natural["loc"])
    diagonal = natural.get("diagonal", natural.get("scale", np.zeros(size)))
    factor = natural.get("factor", np.zeros((size, 1)))
    return np.diag(diagonal**2) + factor @ factor.T


def made_cell(cell, dataset, folder, statuses=("converged", "converged"), predictor=None):
    """A cell whose restarts were not fitted but made, and its trace."""
    predictor = predictor or Predictor(graph_model(cell, dataset.training), cell.inference)
    size, kind = predictor.flat.size, cell.inference.guide
    fits = tuple(made_fit(size, i, s, kind=kind) for i, s in enumerate(statuses))
    best = next((i for i, made in enumerate(fits) if not made.failed), None)
    data = model_data(cell.hyperprior, dataset.training)
    weights = restart_weights(fits, best, cell.predict.mixture)
    fitted = FittedCell(cell, cell.hyperprior, data, fits, best, weights, None, None, 0.0)
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


def test_arviz_summarises_it(az, idata):
    summary = az.summary(idata, round_to="none")
    posterior = idata["posterior"]
    scalars = sum(array.size for array in posterior.data_vars.values()) // (2 * 50)
    assert len(summary) == scalars == (2 * 3 + 3) + (3 * 2 + 2) + 2
    mean = float(posterior["weight_1"].sel(feature="x2", hidden_1=1).mean())
    assert summary.loc["weight_1[x2, 1]", "mean"] == pytest.approx(mean, rel=1e-5)


# A verdict on the draws: a mean-field guide is narrower than the posterior, and few were kept.
few_draws = pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto:UserWarning")


@few_draws
def test_arviz_compares_it(az, idata):
    """Leave-one-out is near the fit's own log-likelihood, and not above it."""
    log_likelihood = idata["log_likelihood"]["y"].values.astype(float)
    in_sample = np.log(np.exp(log_likelihood).mean(axis=(0, 1))).sum()
    loo = az.loo(idata)
    assert loo.n_data_points == 60
    assert in_sample - 10 < loo.elpd < in_sample


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
    assert list(posterior["chain"].values) == [0, 1]
    assert list(posterior["draw"].values) == list(range(50))
    assert list(posterior["feature"].values) == ["x1", "x2"]
    assert list(posterior["hidden_1"].values) == [0, 1, 2]
    assert list(posterior["output"].values) == ["0", "1"]
    for group in ("log_likelihood", "posterior_predictive"):
        assert toy.trace[group]["y"].dims == ("chain", "draw", "observation")
        assert toy.trace[group]["y"].shape == (2, 50, 60)
    for name in ("log_p", "log_q"):
        assert toy.trace["sample_stats"][name].dims == ("chain", "draw")


def test_data_of_the_model_are_kept(toy):
    constant = toy.trace["constant_data"].to_dataset()
    np.testing.assert_array_equal(constant["x"], toy.dataset.x_train.astype("f4"))
    np.testing.assert_array_equal(toy.trace["observed_data"]["y"], toy.dataset.y_train)
    assert constant.attrs == {"fingerprint": toy.dataset.fingerprint, "source": "scikit-learn"}
    undo = Standardisation(
        constant["standardisation_mean"].values, constant["standardisation_sd"].values
    ).undo
    raw = toy.dataset.standardisation.undo(toy.dataset.x_train)
    np.testing.assert_allclose(undo(constant["x"].values), raw, atol=1e-6)


# Draws


def unpacked(toy, chain, draws=50):
    """Free variables by name, from the guide's group and the predictor's draws alone."""
    slots = json.loads(toy.trace["guide"].attrs["slots"])
    values = toy.predictor.values(toy.fitted.fits[chain], draws)
    return {
        name: values[:, start : start + int(np.prod(shape, dtype=int))].reshape(draws, *shape)
        for name, start, shape in slots
    }


def test_draws_are_those_of_the_predictor(toy):
    """Hierarchical weights are scale × standard draws."""
    for chain in (0, 1):
        free = unpacked(toy, chain)
        posterior = toy.trace["posterior"].sel(chain=chain)
        for layer in (1, 2):
            scale = np.exp(free[f"layer_{layer}_scale_log__"])
            np.testing.assert_allclose(posterior[f"layer_{layer}_scale"], scale, rtol=1e-5)
            weight = scale[:, None, None] * free[f"weight_{layer}_z"]
            np.testing.assert_allclose(posterior[f"weight_{layer}"], weight, rtol=1e-5)
            bias = scale[:, None] * free[f"bias_{layer}_z"]
            np.testing.assert_allclose(posterior[f"bias_{layer}"], bias, rtol=1e-5)


def test_the_guide_is_kept(toy):
    guide = toy.trace["guide"]
    for chain, made in enumerate(toy.fitted.fits):
        np.testing.assert_array_equal(guide["loc"][chain], made.loc)
        np.testing.assert_array_equal(guide["scale"][chain], made.scale)
        np.testing.assert_array_equal(guide["draw_stream"][chain], made.streams.draws)
    assert guide["draw_stream"].dtype == np.uint32


def test_densities_of_the_draws(toy):
    """On the unconstrained vector: Jacobians of the scales included."""
    for chain, made in enumerate(toy.fitted.fits):
        free = unpacked(toy, chain)
        log_prior = 0.0
        for name, values in free.items():
            density = stats.norm.logpdf(values)
            if name.endswith("_log__"):
                density = stats.halfnorm.logpdf(np.exp(values)) + values
            log_prior = log_prior + density.reshape(50, -1).sum(axis=1)
        densities = toy.trace["sample_stats"].sel(chain=chain)
        log_likelihood = toy.trace["log_likelihood"]["y"].sel(chain=chain).sum("observation")
        np.testing.assert_allclose(
            densities["log_p"], log_likelihood + log_prior, rtol=1e-4, atol=1e-3
        )
        values = toy.predictor.values(made, 50)
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
    assert (labels[0] != labels[1]).any()


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
    values = toy.predictor.values(toy.fitted.fits[best], CELL.predict.draws)
    predictions = toy.trace["predictions"]
    for i, j in [(0, 0), (0, 7), (7, 0), (3, 5)]:
        point = np.array([[predictions["x1"][i], predictions["x2"][j]]], dtype=float)
        x = toy.dataset.standardisation(point)
        p = toy.predictor.probabilities(toy.fitted.data, values, x)[:, 0]
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
    assert fit["elbo"].dims == ("chain", "window")
    for chain, made in enumerate(toy.fitted.fits):
        for name in ("elbo", "log_likelihood", "kl"):
            assert fit[name].dims == ("chain", "window")
            np.testing.assert_array_equal(fit[name][chain], getattr(made.history, name))
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
        parts = [toy.predictor.moments(f, made.fitted.data, x, 60) for f in made.fitted.fits]
        mixture, stored = pool(parts, weights), made.trace[group]
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


def test_a_restart_that_diverged_is_no_chain(toy, tmp_path):
    made = made_cell(
        CELL, toy.dataset, tmp_path, ("diverged", "converged", "converged"), toy.predictor
    )
    for group in ("posterior", "log_likelihood", "posterior_predictive", "sample_stats"):
        assert list(made.trace[group]["chain"].values) == [1, 2]
    assert list(made.trace["guide"]["chain"].values) == [0, 1, 2]
    assert made.trace["fit"].attrs["best"] == 1
    one = toy.predictor.values(made.fitted.fits[1], 50)
    expected = toy.predictor.posterior(made.fitted.data, one)["weight_1"]
    np.testing.assert_array_equal(made.trace["posterior"]["weight_1"].sel(chain=1), expected)


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
    fitted = replace(toy.fitted, fits=tuple(fits), best=0, weights=(1.0, 0.0))
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
    """Natural parameters of every restart, from the guide's group alone."""
    return {name: group[name].values for name in ("loc", *NATURAL[kind])}


def test_another_guide_is_kept(other):
    """Its natural parameters, and every element's standard deviation."""
    kind, guide = other.fitted.cell.inference.guide, other.trace["guide"]
    dims = {"loc": (), "scale": ()} | NATURAL[kind]
    assert set(guide.data_vars) == {*dims, "draw_stream"}
    for name, more in dims.items():
        assert guide[name].dims == ("chain", "parameter", *more)
        assert guide[name].dtype == np.float32
    for chain, made in enumerate(other.fitted.fits):
        natural = {n: array[chain] for n, array in natural_of(guide, kind).items()}
        for name, array in natural.items():
            np.testing.assert_array_equal(array, made.natural[name])
        spread = np.sqrt(np.diag(covariance(natural)))
        np.testing.assert_allclose(guide["scale"][chain], spread, rtol=1e-6)


def test_draws_and_densities_of_another_guide(other):
    """The draws are the predictor's; SciPy's density of the guide in the trace, or none."""
    kind, guide = other.fitted.cell.inference.guide, other.trace["guide"]
    for chain, made in enumerate(other.fitted.fits):
        values = other.predictor.values(made, 50)
        expected = other.predictor.posterior(other.fitted.data, values)
        for name, array in other.trace["posterior"].sel(chain=chain).data_vars.items():
            np.testing.assert_array_equal(array, expected[name])
        densities = other.trace["sample_stats"].sel(chain=chain)
        assert np.isfinite(densities["log_p"]).all()
        if kind == "map":
            assert np.isnan(densities["log_q"]).all()
            continue
        natural = {n: array[chain] for n, array in natural_of(guide, kind).items()}
        normal = stats.multivariate_normal(natural["loc"], covariance(natural))
        np.testing.assert_allclose(densities["log_q"], normal.logpdf(values), rtol=1e-9)


def test_predictions_of_another_guide(other):
    """From nothing but the posterior's draws: those of the best restart, the first."""
    cell, group = other.fitted.cell, other.trace["test_predictions"]
    values = other.predictor.values(other.fitted.fits[0], cell.predict.draws)
    p = other.predictor.probabilities(other.fitted.data, values, other.dataset.x_test)
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
    kinds = set()

    def visit(_, item):
        if isinstance(item, h5py.Dataset):
            text = h5py.check_string_dtype(item.dtype)
            kinds.add("text" if text else item.dtype.kind)

    with h5py.File(toy.path) as file:
        file.visititems(visit)
    assert kinds == {"f", "i", "u", "text"}


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
    assert made.trace["log_likelihood"]["y"].shape == (3, 100, 700)
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
    values = large.predictor.values(large.fitted.fits[1], 100)
    expected = large.predictor.posterior(large.fitted.data, values)
    for name in posterior.data_vars:
        np.testing.assert_array_equal(posterior[name].sel(chain=1), expected[name])


@pytest.mark.parametrize(
    ("prior", "names"),
    [
        (Horseshoe(), {"weight_3_local", "bias_3_local"}),
        (
            ScaleMixture(learned=True),
            {"mixture_sigma_1", "mixture_sigma_2", "mixture_proportion"},
        ),
    ],
    ids=["horseshoe", "scale_mixture"],
)
def test_a_large_network_keeps_what_else_its_prior_learns(prior, names, toy, tmp_path):
    cell = replace(LARGE, prior=prior, hyperprior=Fixed(scale=0.5))
    posterior = made_cell(cell, toy.dataset, tmp_path).trace["posterior"]
    assert set(posterior.data_vars) == {"weight_3", "bias_3"} | names
    if prior.kind == "horseshoe":
        assert posterior["weight_3_local"].dims == ("chain", "draw", "hidden_2", "output")
        assert (posterior["weight_3_local"] > 0).all()


def test_a_large_network_keeps_no_rows(large):
    constant = large.trace["constant_data"].to_dataset()
    assert set(constant.variables) == {"standardisation_mean", "standardisation_sd"}
    assert constant.attrs["fingerprint"] == large.dataset.fingerprint
    left_out = {"log_likelihood", "sample_stats", "posterior_predictive", "observed_data"}
    assert not left_out & set(large.trace.children)
    assert {"guide", "fit", "predictions", "test_predictions"} <= set(large.trace.children)


def test_a_large_network_keeps_its_log_likelihood_on_request(large, tmp_path):
    predict = LARGE.predict.model_copy(update={"log_likelihood": True})
    cell = replace(LARGE, predict=predict)
    trace = made_cell(cell, large.dataset, tmp_path, predictor=large.predictor).trace
    assert trace["log_likelihood"]["y"].shape == (2, 100, 60)
    assert trace["sample_stats"]["log_q"].shape == (2, 100)
    assert "x" not in trace["constant_data"]


def test_some_pictures_are_kept(tmp_path):
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
    np.testing.assert_array_equal(kept, shown_pictures(test, label))
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
