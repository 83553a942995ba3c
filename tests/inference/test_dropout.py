"""Monte-Carlo dropout: masks, objective and fits against closed forms; what it refuses."""

import itertools
import re
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
import yaml
from scipy import stats

import pmbnn as pb
from pmbnn.calibration.plan import why_left_out
from pmbnn.core.errors import ConfigError
from pmbnn.core.stages import on_progress
from pmbnn.data.arrays import Rows
from pmbnn.experiment.load import load_experiment
from pmbnn.fitting.fit import fit_job
from pmbnn.fitting.programs import GroupPrograms
from pmbnn.inference.advi import build_program
from pmbnn.inference.batches import model_values
from pmbnn.inference.dropout import drop_inputs, find_masks
from pmbnn.inference.elbo import build_objective
from pmbnn.inference.flat import flatten_model
from pmbnn.inference.groups import Checkpoints
from pmbnn.inference.groups import fit as fit_replicas
from pmbnn.inference.guides import Dropout
from pmbnn.inference.program import build_replicas
from pmbnn.inference.settings import Inference
from pmbnn.models.build import build_model
from pmbnn.models.hyperpriors import Fixed, HalfNormal
from pmbnn.models.likelihoods import Normal
from pmbnn.models.networks import Dense, Lenet5
from pmbnn.models.noise import PointNoise
from pmbnn.models.priors import PRIORS
from pmbnn.prediction.draws import first_draws

RATE, SCALE, NOISE = 0.3, 2.0, 0.4
RNG = np.random.default_rng(5)
X = RNG.standard_normal((60, 3)) + [0.0, 0.5, -1.0]
Y = X @ [1.5, -1.0, 0.0] + 0.7 + NOISE * RNG.standard_normal(60)
ROWS = Rows(X, Y, ("a", "b", "c"), ())


def linear(prior="normal", likelihood=None, rows=ROWS, hidden=()):
    """A network on numbers; without hidden layers, ridge regression."""
    network = Dense(hidden=hidden, activation="tanh")
    return build_model(network, prior, Fixed(scale=SCALE), likelihood or Normal(sd=NOISE), rows)


def dropout(**settings):
    return Inference(**{"guide": "dropout", "dropout_rate": RATE} | settings)


def fitted(model, **settings):
    program = build_program(model, dropout(**settings), len(Y), 1, "float64")
    return program, *fit_replicas(program, build_replicas(model))


# --- draws --------------------------------------------------------------------------------


def test_weights_of_an_input_share_a_mask():
    """Rows of weight matrices; biases and noise have none."""
    flat = flatten_model(linear(hidden=(4, 5), likelihood=Normal()), rows=len(Y))
    masks = flat.layout.unravel(find_masks(flat))
    for name, shape in {"weight_1": (3, 4), "weight_2": (4, 5), "weight_3": (5, 1)}.items():
        assert masks[name].shape == shape
        assert (masks[name] == masks[name][:, :1]).all()
        assert len(np.unique(masks[name])) == shape[0]
    assert {int(m) for n in masks if not n.startswith("weight") for m in np.ravel(masks[n])} == {-1}


@pytest.mark.parametrize("transposed", [False, True])
def test_weights_may_be_on_either_side(transposed):
    """As a user may write them: units by inputs, or inputs by units, here as many of both."""
    with pm.Model(coords={"observation": range(60)}) as model:
        x = pm.Data("x", X, dims=("observation", "feature"))
        weights = pm.Normal("w", 0, 1, shape=(3, 3))
        outputs = x @ weights.T if transposed else (weights.T @ x.T).T
        pm.Normal("y", outputs.sum(axis=1), 1.0, observed=Y)
    masks = find_masks(flatten_model(model, rows=60)).reshape(3, 3)
    np.testing.assert_array_equal(
        masks, [[0, 1, 2]] * 3 if transposed else [[0] * 3, [3] * 3, [6] * 3]
    )


def test_moments_of_a_linear_layer():
    """Over all masks, weighted: mean ``W x``, covariance ``p / (1 - p) Σ x_j² w_j w_jᵀ``."""
    weights, x = RNG.standard_normal((3, 2)), np.array([0.5, -2.0, 1.0])
    masks = np.append(np.repeat([0, 2, 4], 2), -1)
    guide = Dropout(7, rate=RATE)
    constrained = {"loc": np.append(weights.ravel(), 9.0), "masks": masks}
    outputs, probabilities = [], []
    for kept in itertools.product([False, True], repeat=3):
        noise = np.full(7, np.nan)
        noise[[0, 2, 4]] = np.where(kept, 5.0, -5.0)
        draw = guide.draw(constrained, {"noise": noise})
        assert draw[-1] == 9.0
        outputs.append(x @ draw[:6].reshape(3, 2))
        probabilities.append(np.prod(np.where(kept, 1 - RATE, RATE)))
    mean = np.average(outputs, axis=0, weights=probabilities)
    np.testing.assert_allclose(mean, x @ weights)
    scaled = x[:, None] * weights
    expected = RATE / (1 - RATE) * scaled.T @ scaled
    np.testing.assert_allclose(
        np.cov(np.transpose(outputs), aweights=probabilities, ddof=0), expected
    )


def test_draws_have_the_moments_of_the_guide(evaluate):
    program, fit = fitted(linear(), steps=50)
    source = pb.fit(linear(), guide="dropout", dropout_rate=RATE, steps=50, progress=False).sources[
        0
    ]
    n = 40_000
    draws = first_draws(source, n, "float64")
    masked = source.parameters["masks"] >= 0
    loc = source.parameters["loc"].astype("float64")
    sd = np.abs(loc) * np.sqrt(RATE / (1 - RATE)) * masked
    assert abs((draws[:, masked] == 0).mean() - RATE) < 4 * np.sqrt(RATE * (1 - RATE) / n / 3)
    assert (np.abs(draws.mean(axis=0) - loc) <= 4 * sd / np.sqrt(n) + 1e-6).all()
    np.testing.assert_allclose(draws.std(axis=0), sd, rtol=0.03, atol=1e-6)
    np.testing.assert_allclose(fit.scale, np.abs(fit.loc) * np.sqrt(RATE / (1 - RATE)) * masked)


# --- the objective ------------------------------------------------------------------------


def test_each_row_drops_its_own_inputs(evaluate):
    """The likelihood at given masks, by hand."""
    model = linear(hidden=(4,))
    flat = flatten_model(model, rows=len(Y))
    (log_likelihood,), _, noise = drop_inputs(flat, RATE)
    point = {n: RNG.standard_normal(v.type.shape) for n, v in flat.free.items()}
    uniform = {n: RNG.uniform(size=v.variable.type.shape) for n, v in noise.items()}
    assert {n: u.shape for n, u in uniform.items()} == {"uniform_1": (3, 60), "uniform_2": (4, 60)}
    assert {v.kind for v in noise.values()} == {"uniform"}
    values = {flat.free[n]: v for n, v in point.items()} | {
        noise[n].variable: u for n, u in uniform.items()
    }
    values |= {flat.data[name]: value for name, value in model_values(model).items()}
    (found,) = evaluate([log_likelihood], values)
    kept = {n: (u.T >= RATE) / (1 - RATE) for n, u in uniform.items()}
    hidden = np.tanh(X * kept["uniform_1"] @ point["weight_1"] + point["bias_1"])
    mean = hidden * kept["uniform_2"] @ point["weight_2"] + point["bias_2"]
    np.testing.assert_allclose(found, stats.norm(mean[:, 0], NOISE).logpdf(Y))


@pytest.mark.parametrize(
    ("prior", "reference"),
    [
        ("normal", stats.norm(scale=SCALE)),
        ("laplace", stats.laplace(scale=SCALE)),
        ({"kind": "student_t", "nu": 3}, stats.t(3, scale=SCALE)),
    ],
)
def test_expected_log_prior(prior, reference, evaluate):
    """Over every mask of each weight, by SciPy."""
    settings = dropout()
    flat = flatten_model(linear(prior, hidden=(2,)), rows=len(Y), jacobian=False)
    guide = Dropout(flat.size, rate=RATE, masks=find_masks(flat))
    objective = build_objective(flat, guide, settings, len(Y), len(Y))
    loc = RNG.standard_normal(flat.size)
    inputs = {objective.parameters["loc"]: loc}
    inputs |= {v: np.float64(SCALE) for n, v in objective.data.items() if n not in ("x", "target")}
    (kl,) = evaluate([objective.kl], inputs)
    masked = guide.masks >= 0
    expected = reference.logpdf(loc[~masked]).sum()
    expected += (1 - RATE) * reference.logpdf(loc[masked] / (1 - RATE)).sum()
    expected += RATE * reference.logpdf(0.0) * masked.sum()
    assert kl == pytest.approx(-expected)
    assert set(objective.kl_forms.values()) == {"exact"}
    assert not objective.has_noisy_kl


def ridge(sd):
    """Weights and bias of the highest expected log-density: those of ridge regression."""
    design, precision = np.column_stack([X, np.ones(60)]), 1 / SCALE**2
    penalty = RATE / (1 - RATE) * (X**2).sum(axis=0) / sd**2 + precision / (1 - RATE)
    curvature = design.T @ design / sd**2 + np.diag([*penalty, precision])
    return np.linalg.solve(curvature, design.T @ Y / sd**2)


def expected_squares(coefficients):
    """Expected sum of squared residuals over the masks."""
    residual = Y - X @ coefficients[:3] - coefficients[3]
    return (residual**2).sum() + RATE / (1 - RATE) * (X**2).sum(axis=0) @ coefficients[:3] ** 2


def test_a_linear_model_is_ridge_regression():
    """Wager, Wang and Liang (2013), Dropout Training as Adaptive Regularization, section 2."""
    program, fit = fitted(linear(), steps=6000, iterate_averaging=0.3)
    at, expected = program.flat.layout.unravel(fit.loc), ridge(NOISE)
    found = np.append(at["weight_1"][:, 0], at["bias_1"])
    np.testing.assert_allclose(found, expected, atol=0.03)
    log_likelihood = -0.5 * expected_squares(expected) / NOISE**2
    log_likelihood -= 60 * np.log(NOISE * np.sqrt(2 * np.pi))
    density, weights = stats.norm(scale=SCALE).logpdf, expected[:3]
    log_prior = (1 - RATE) * density(weights / (1 - RATE)).sum() + 3 * RATE * density(0.0)
    objective = log_likelihood + log_prior + density(expected[3])
    kept = RNG.binomial(1, 1 - RATE, (2000, 60, 3)) / (1 - RATE)
    squares = ((Y - (X * kept) @ weights - expected[3]) ** 2).sum(axis=1)
    spread = squares.std() / (2 * NOISE**2)
    # Its mean over the last tenth of the steps, each with masks of its own.
    assert fit.elbo == pytest.approx(objective, abs=4 * spread / np.sqrt(600))


def test_noise_is_that_of_predictions_with_masks():
    """Maximised beside the weights, it explains what dropped inputs do not."""
    model = linear(likelihood=Normal(sd=PointNoise()))
    program, fit = fitted(model, steps=6000, iterate_averaging=0.3)
    at = program.flat.layout.unravel(fit.loc)
    found = np.append(at["weight_1"][:, 0], at["bias_1"])
    sd = np.exp(at["noise_log"])
    assert sd == pytest.approx(np.sqrt(expected_squares(found) / 60), rel=0.02)
    np.testing.assert_allclose(found, ridge(sd), atol=0.05)
    assert fit.scale[-1] == 0


def test_without_a_rate_it_is_the_mode():
    model = linear(hidden=(4,), likelihood=Normal())
    common = {"steps": 300, "progress": False, "random_seed": 3}
    none = pb.fit(model, guide="dropout", dropout_rate=0.0, **common)
    mode = pb.fit(model, guide="map", **common)
    np.testing.assert_allclose(
        none.sources[0].parameters["loc"], mode.sources[0].parameters["loc"], rtol=1e-3, atol=1e-5
    )
    assert none.elbo == pytest.approx(mode.elbo, rel=1e-4)
    assert not none.sample(20)["weight_1"].std(axis=0).max() > 1e-6


# --- fits ---------------------------------------------------------------------------------


def test_a_fit_does_not_depend_on_others_nor_on_a_stop(tmp_path, monkeypatch):
    """Its bits are the same alone, in a group, and after an interruption."""
    model, settings = linear(hidden=(4,)), dropout(steps=400)
    replicas = build_replicas(model, restarts=3)
    program = build_program(model, settings, len(Y), 3)
    whole = fit_replicas(program, replicas)
    alone = fit_replicas(program, replicas[1:2])
    np.testing.assert_array_equal(alone[0].loc, whole[1].loc)

    class StoppedError(Exception):
        pass

    def stop(done, *_):
        if done >= 200:
            raise StoppedError

    checkpoints = Checkpoints(tmp_path, interval=0.0)
    with pytest.raises(StoppedError):
        fit_replicas(program, replicas, stop, checkpoints)
    assert list(tmp_path.iterdir())
    for fit, first in zip(fit_replicas(program, replicas, None, checkpoints), whole, strict=True):
        np.testing.assert_array_equal(fit.loc, first.loc)
        np.testing.assert_array_equal(fit.history.elbo, first.history.elbo)


def test_minibatches_find_the_same_point():
    program, fit = fitted(linear(), steps=6000, batch=20, iterate_averaging=0.3)
    at = program.flat.layout.unravel(fit.loc)
    found = np.append(at["weight_1"][:, 0], at["bias_1"])
    np.testing.assert_allclose(found, ridge(NOISE), atol=0.06)


def test_a_large_network_is_fitted_in_leaves():
    """The vector of more than some hundred thousand weights is divided; nothing else changes."""
    model = linear(hidden=(300, 300))
    program = build_program(model, dropout(steps=3), len(Y), 1)
    assert len(program.objective.leaves) > 1
    (fit,) = fit_replicas(program, build_replicas(model))
    assert np.isfinite(fit.loc).all()
    assert np.isfinite(fit.elbo)


def test_classes(tmp_path):
    """Two clusters: probabilities are means over masks, and a posterior is read back."""
    x = np.concatenate([RNG.standard_normal((40, 2)) - 2, RNG.standard_normal((40, 2)) + 2])
    y = np.repeat([0, 1], 40)
    model = pb.dense_classifier(x, y, hidden=8)
    updates = []
    with on_progress(updates.append):
        posterior = pb.fit(model, guide="dropout", dropout_rate=0.2, steps=800, progress=False)
    words = [stages[-1].words for stages in updates if stages and stages[-1].stage == "fit"]
    assert words[-1].startswith("objective ")
    probability = np.asarray(posterior.predict_proba(x))
    assert ((probability[:, 1] > 0.5) == y).mean() > 0.95
    assert "objective" in repr(posterior)
    assert "objective" in posterior.draws_of
    assert "raised the objective by" in posterior.reason
    assert np.isnan(posterior.pareto_k)
    posterior.save(tmp_path / "posterior.nc")
    kept = pb.load(tmp_path / "posterior.nc", model)
    np.testing.assert_array_equal(kept.sample(9)["weight_2"], posterior.sample(9)["weight_2"])
    assert kept.settings.dropout_rate == 0.2


def test_restarts_of_a_cell_have_equal_weights(tmp_path):
    """Where others have those of their ELBO: the objective compares no masses."""
    [cell, *_] = read(tmp_path, predict={"mixture": "elbo", "draws": 5}).cells
    (fitted_cell,) = fit_job([cell], {cell.dataset: cell.dataset.load()}, GroupPrograms("a", 16))
    assert fitted_cell.weights == {0: 0.5, 1: 0.5}
    assert fitted_cell.fits[0].elbo != fitted_cell.fits[1].elbo
    alone = replace(fitted_cell, weights={0: 1.0, 1: 0.0})
    assert "highest objective of 2" in alone.draws_of


# --- what it takes ------------------------------------------------------------------------


@pytest.mark.parametrize("hyperprior", [Fixed(), HalfNormal()], ids=["fixed", "learned"])
@pytest.mark.parametrize(
    "prior", sorted({*PRIORS} - {"cell", "correlated_normal", "matrix_normal", "pymc"})
)
def test_masks_of_every_prior(prior, hyperprior):
    """Standard draws, too, which weights are scaled from."""
    if not PRIORS[prior]().has_scale:
        hyperprior = Fixed(scale=None)
    network = Dense(hidden=(4,))
    model = build_model(network, prior, hyperprior, "normal", ROWS)
    flat = flatten_model(model, rows=len(Y), jacobian=False)
    masks = find_masks(flat)
    assert len(np.unique(masks)) == 1 + 3 + 4
    assert (masks >= 0).sum() == 3 * 4 + 4


def refused(model, reason):
    with pytest.raises(
        ValueError, match=re.escape(f"`guide` must not be dropout for this model: {reason}")
    ):
        build_program(model, dropout(), len(Y))


def test_convolutions_are_refused():
    features = tuple(map(str, range(28 * 28)))
    images = Rows(RNG.random((5, 28 * 28)), np.arange(5) % 2, features, ("a", "b"), (1, 28, 28))
    model = build_model(Lenet5(), "normal", "fixed", "categorical", images)
    with pytest.raises(ValueError, match="places of an observation, as in a convolution"):
        pb.fit(model, guide="dropout", dropout_rate=0.1, steps=2, progress=False)


def test_models_without_such_weights_are_refused():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), 1.0, observed=Y)
    refused(model, "none of its weights enters through a matrix product")


def test_weights_at_two_places_are_refused():
    with pm.Model() as model:
        x = pm.Data("x", X, dims=("observation", "feature"))
        weights = pm.Normal("w", 0, 1, shape=(3, 1))
        pm.Normal("y", (x @ weights)[:, 0] + weights.sum(), 1.0, observed=Y)
    refused(model, "each matrix of weights must enter its likelihood through one product")


def test_weights_that_decide_on_others_are_refused():
    with pm.Model() as model:
        x = pm.Data("x", X, dims=("observation", "feature"))
        weights = pm.Normal("w", 0, 1, shape=(3, 1))
        mean = pm.Normal("mean", weights.sum(), 1.0)
        pm.Normal("y", (x @ weights)[:, 0] + mean, 1.0, observed=Y)
    refused(model, "the prior of another variable depends on `w`")


def test_correlated_rows_are_refused():
    with pm.Model() as model:
        x = pm.Data("x", X, dims=("observation", "feature"))
        mean = (x @ pm.Normal("w", 0, 1, shape=(3, 1)))[:, 0]
        pm.MvNormal("y", mean, 0.8 + 0.2 * np.eye(60), observed=Y)
    refused(model, "its log-likelihood is no sum over observations")


def test_multivariate_priors_are_refused():
    with pm.Model() as model:
        x = pm.Data("x", X, dims=("observation", "feature"))
        weights = pm.MvNormal("w", np.zeros(3), np.eye(3), shape=(2, 3))
        pm.Normal("y", (x @ weights.T).sum(axis=1), 1.0, observed=Y)
    refused(model, "the prior of `w` is multivariate")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dropout_rate": None}, "must have `dropout_rate` with `guide` dropout, such as 0.05"),
        ({"dropout_rate": 1.0}, "`dropout_rate` must be < 1, got 1"),
        ({"dropout_rate": -0.1}, "`dropout_rate` must be >= 0, got -0.1"),
        ({"dropout_rate": "high"}, "`dropout_rate`"),
        ({"guide": "map"}, "must have `guide` dropout with `dropout_rate`, got map"),
        ({"guide": "mean_field"}, "must have `guide` dropout with `dropout_rate`, got mean_field"),
        ({"estimator": "flipout"}, "must have `guide` mean_field with `estimator` flipout"),
        (
            {"estimator": "path_derivative"},
            "must leave out `estimator` with `guide` dropout, which drops inputs of each row, got "
            "path_derivative",
        ),
        ({"kl": "monte_carlo"}, "must leave out `kl` with `guide` dropout"),
        ({"engine": "pymc"}, "must leave out `guide` with engine `pymc`"),
        ({"check_optimum": True}, "must have `guide` mean_field, low_rank or full_rank"),
    ],
)  # fmt: skip
def test_settings(settings, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        dropout(**settings)


FILE = """
name: small
sweeps:
  - name: moons
    dataset: {kind: moons, noise: 0.4, train: 40, test: 20}
    network: {kind: dense, hidden: [[3]]}
    prior: [normal, flat]
    inference: {guide: dropout, dropout_rate: [0.1, 0.2], steps: 20, validation: 0, restarts: 2}
"""


def read(tmp_path, **changes):
    content = yaml.safe_load(FILE)
    content["sweeps"][0] |= changes
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(content))
    return load_experiment(tmp_path / "small.yaml")


def test_rates_of_a_file(tmp_path):
    cells = read(tmp_path).cells
    assert [cell.inference.dropout_rate for cell in cells if cell.prior.has_scale] == [0.1, 0.2]
    assert cells[0].inference == Inference(
        guide="dropout", dropout_rate=np.float64(0.1), steps=20, validation=0, restarts=2
    )
    for cell in cells:
        assert cell.is_dropout
        assert cell.lacks_elbo
        assert not cell.is_point
        assert "dropout" in why_left_out(cell, 100) or cell.prior.kind == "flat"


def test_settings_without_dropout_keep_their_text():
    """Names of stored cells are hashes of it."""
    assert "dropout_rate" not in Inference().model_dump(mode="json")


def test_a_file_with_convolutions_is_refused(tmp_path):
    images = {"kind": "mnist", "source": "embedded", "train": 40, "test": 20}
    with pytest.raises(
        ConfigError, match=r"`sweeps\[0\]\.inference\.guide` must not be dropout with network"
    ):
        read(tmp_path, dataset=images, network={"kind": "lenet5"})
