"""Laplace's approximation: closed forms, predictions by the linear network, and what is refused."""

import numpy as np
import pytest
import yaml
from scipy import stats
from scipy.special import expit, log_softmax, logsumexp, softmax

import pmbnn as pb
from pmbnn.calibration.plan import why_left_out
from pmbnn.core.errors import ConfigError
from pmbnn.data.arrays import Rows
from pmbnn.experiment.load import load_experiment
from pmbnn.inference import laplace
from pmbnn.inference.batches import model_values
from pmbnn.inference.engines import fit_model
from pmbnn.inference.gauss_newton import gauss_newton
from pmbnn.inference.guides import build_guide
from pmbnn.inference.laplace import root_of_inverse
from pmbnn.inference.log_density import build_log_density
from pmbnn.inference.settings import Inference
from pmbnn.inference.xla.compile import precision
from pmbnn.models.build import build_model
from pmbnn.models.hyperpriors import Fixed, HalfNormal
from pmbnn.models.likelihoods import Normal as Numbers
from pmbnn.models.networks import Dense
from pmbnn.models.priors import Normal, StudentT

RNG = np.random.default_rng(1)
X = RNG.standard_normal((40, 2))
DESIGN = np.column_stack([X, np.ones(len(X))])
NOISE, SCALE = 0.3, 2.0
NUMBERS = X @ [2.0, -1.0] + 0.4 + NOISE * RNG.standard_normal(len(X))
LABELS = (RNG.random(len(X)) < expit(X @ [1.0, -1.0])).astype(np.int64)
NEW = np.array([[0.0, 0.0], [1.0, -2.0], [4.0, 3.0]])

CLASSES = ("no", "yes")


def model_of(target, likelihood, hidden=(), prior=None):
    classes = CLASSES if target is LABELS else ()
    rows = Rows(X, target, ("x1", "x2"), classes)
    return build_model(
        Dense(hidden=hidden), prior or Normal(), Fixed(scale=SCALE), likelihood, rows
    )


def fitted(model, **settings):
    settings = {"steps": 500, "learning_rate": 0.05, "dtype": "float64"} | settings
    return pb.fit(model, guide="laplace", progress=False, **settings)


def grid_of(centre, width=1.5, points=31):
    """Points about a place along three axes, ``(point, 3)``, and the volume of each.

    They are at most a standard deviation apart: sums over a normal density are exact to 1e-8.
    """
    axes = np.linspace(centre - width, centre + width, points, axis=1)
    return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3), (
        2 * width / (points - 1)
    ) ** 3


def test_linear_regression_is_exact():
    approx = fitted(model_of(NUMBERS, Numbers(sd=NOISE)))
    covariance = np.linalg.inv(DESIGN.T @ DESIGN / NOISE**2 + np.eye(3) / SCALE**2)
    mean = covariance @ DESIGN.T @ NUMBERS / NOISE**2
    parameters = approx.sources[0].parameters
    np.testing.assert_allclose(parameters["loc"], mean, atol=laplace.NEAR * 0.05)
    root = parameters["root"]
    assert (np.triu(root, 1) == 0).all()
    np.testing.assert_allclose(root @ root.T, covariance, rtol=1e-6, atol=1e-10)
    evidence = stats.multivariate_normal(
        cov=NOISE**2 * np.eye(len(X)) + SCALE**2 * DESIGN @ DESIGN.T
    ).logpdf(NUMBERS)
    assert approx.elbo == pytest.approx(evidence, abs=1e-3)
    assert approx.status == "converged"
    predicted = approx.predict(NEW, draws=4000)
    design = np.column_stack([NEW, np.ones(len(NEW))])
    sd = np.sqrt(np.einsum("ij,jk,ik->i", design, covariance, design))
    # Standard errors of 4,000 draws: sd / √4000 of a mean, sd / √8000 of a standard deviation.
    assert (np.abs(predicted.mean - design @ mean) < 4 * sd / np.sqrt(4000)).all()
    np.testing.assert_allclose(predicted.epistemic_sd, sd, rtol=4 / np.sqrt(8000))


@pytest.mark.parametrize("likelihood", ["bernoulli", "categorical"])
def test_logistic_regression_is_near_the_integral(likelihood):
    """With 400 rows the posterior is normal but for terms of one in 400."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((400, 2))
    labels = (rng.random(400) < expit(x @ [1.0, -1.0] + 0.5)).astype(np.int64)
    rows = Rows(x, labels, ("x1", "x2"), CLASSES)
    approx = fitted(build_model(Dense(hidden=()), Normal(), Fixed(scale=SCALE), likelihood, rows))
    loc, scale = approx.sources[0].parameters["loc"], SCALE
    if likelihood == "categorical":
        # The weights of the difference of the logits have twice the prior's variance; their sum
        # does not matter.
        loc, scale = loc[1::2] - loc[::2], SCALE * np.sqrt(2)
    points, volume = grid_of(loc)
    design = np.column_stack([x, np.ones(len(x))])
    log_p = stats.norm(0, scale).logpdf(points).sum(axis=1)
    log_p -= np.logaddexp(0, -(points @ design.T) * (2 * labels - 1)).sum(axis=1)
    assert approx.elbo == pytest.approx(logsumexp(log_p) + np.log(volume), abs=0.02)
    weight = np.exp(log_p - logsumexp(log_p))
    exact = weight @ expit(points @ np.column_stack([NEW, np.ones(3)]).T)
    np.testing.assert_allclose(approx.predict_proba(NEW, draws=4000)[:, 1], exact, atol=0.01)


def network_logits(vector, x):
    """Logits of a 2-3-2 network, ``(observation, class)``, of its flat vector."""
    first, bias, second, last = np.split(vector, [6, 9, 15])
    return np.tanh(x @ first.reshape(2, 3) + bias) @ second.reshape(3, 2) + last


@pytest.fixture(scope="module")
def network():
    return fitted(model_of(LABELS, "categorical", (3,)), restarts=2)


def test_predictions_are_by_tangents(network):
    (source,) = (network.sources[network.best],)
    centre = np.asarray(source.parameters["loc"], np.float64)
    step = 1e-5
    columns = [
        (network_logits(centre + step * e, NEW) - network_logits(centre - step * e, NEW))
        / (2 * step)
        for e in np.eye(len(centre))
    ]
    draws = network.predictor.values(source, 20)
    jacobian = np.stack(columns, axis=-1)
    logits = network_logits(centre, NEW) + np.einsum("ocp,dp->doc", jacobian, draws - centre)
    expected = softmax(logits, axis=-1)
    ((weight, found),) = network.single_draws(NEW, 20)
    assert weight == 1
    np.testing.assert_allclose(found["probability"], expected, atol=2e-4)
    np.testing.assert_allclose(network.predict_proba(NEW, 20), expected.mean(axis=0), atol=2e-4)
    of_network = softmax(np.stack([network_logits(v, NEW) for v in draws]), axis=-1)
    assert np.abs(of_network - expected).max() > 0.1


def test_trees_have_the_log_likelihood_of_predictions(network):
    tree = network.to_datatree(30)
    ((_, found),) = network.single_draws(X, 30)
    expected = np.log(found["probability"])[:, np.arange(len(X)), LABELS]
    np.testing.assert_allclose(tree["log_likelihood"]["y"].values[0], expected, atol=1e-5)
    assert "sample_stats" not in tree.children
    assert np.isnan(network.pareto_k)


def test_a_saved_approximation_predicts_the_same(network, tmp_path):
    network.save(tmp_path / "laplace.nc")
    again = pb.load(tmp_path / "laplace.nc")
    np.testing.assert_array_equal(again.predict_proba(NEW, 10), network.predict_proba(NEW, 10))


def test_log_evidence_of_a_network_is_that_of_the_curvature(network):
    """By differences of the log-density, in double precision."""
    centre = np.asarray(network.sources[network.best].parameters["loc"], np.float64)

    def log_density(vector):
        of_rows = log_softmax(network_logits(vector, X), axis=-1)[np.arange(len(X)), LABELS]
        return of_rows.sum() + stats.norm(0, SCALE).logpdf(vector).sum()

    def gradient(vector, step=1e-5):
        pairs = ((vector + step * e, vector - step * e) for e in np.eye(len(vector)))
        return np.array([(log_density(a) - log_density(b)) / (2 * step) for a, b in pairs])

    step = 1e-4
    hessian = np.array(
        [
            (gradient(centre + step * e) - gradient(centre - step * e)) / (2 * step)
            for e in np.eye(len(centre))
        ]
    )
    _, log_determinant = np.linalg.slogdet(-hessian)
    expected = log_density(centre) + 0.5 * (len(centre) * np.log(2 * np.pi) - log_determinant)
    assert network.elbo == pytest.approx(expected, abs=0.01)


# The Gauss–Newton matrix


def of_gauss_newton(model, point):
    """The matrix of a model at a place, and the layout of the vector."""
    density = build_log_density(model, len(X), "float64")
    with precision("float64"):
        matrix = gauss_newton(density.flat, model_values(model))(point)
    return matrix, density.flat.layout


def jacobian_of(outputs, point, step=1e-6):
    """Derivatives of outputs, ``(observation, output)``, by differences: the last axis."""
    steps = step * np.eye(len(point))
    return np.stack([(outputs(point + e) - outputs(point - e)) / (2 * step) for e in steps], -1)


def test_gauss_newton_of_classes_is_that_of_the_logits():
    point = np.random.default_rng(3).standard_normal(17)
    jacobian = jacobian_of(lambda vector: network_logits(vector, X), point)
    p = softmax(network_logits(point, X), axis=-1)
    curvature = p[:, :, None] * (np.eye(2) - p[:, None, :])
    expected = np.einsum("nci,ncd,ndj->ij", jacobian, curvature, jacobian)
    found, _ = of_gauss_newton(model_of(LABELS, "categorical", (3,)), point)
    np.testing.assert_allclose(found, expected + np.eye(17) / SCALE**2, atol=1e-6)


@pytest.mark.parametrize("targets", [1, 2])
def test_gauss_newton_of_numbers_is_that_of_least_squares(targets):
    """Of rectified units too, at a place where no row is at a kink."""
    size = 9 + 4 * targets
    target = np.column_stack([NUMBERS, -NUMBERS])[:, :targets]
    names = ("y1", "y2") if targets > 1 else ()
    rows = Rows(X, target if names else NUMBERS, ("x1", "x2"), (), target_names=names)
    network, likelihood = Dense(hidden=(3,), activation="relu"), Numbers(sd=NOISE)
    model = build_model(network, Normal(), Fixed(scale=SCALE), likelihood, rows)
    point = np.random.default_rng(4).standard_normal(size)

    found, layout = of_gauss_newton(model, point)

    def outputs(vector):
        parts = {slot.name: slot.of(vector) for slot in layout.slots}
        hidden = np.maximum(X @ parts["weight_1"] + parts["bias_1"], 0)
        return hidden @ parts["weight_2"] + parts["bias_2"]

    jacobian = jacobian_of(outputs, point).reshape(-1, size) / NOISE
    expected = jacobian.T @ jacobian + np.eye(size) / SCALE**2
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("likelihood", ["bernoulli", "categorical", Numbers(sd=NOISE)])
def test_without_hidden_units_it_is_the_curvature(likelihood):
    target = NUMBERS if isinstance(likelihood, Numbers) else LABELS
    models = (model_of(target, likelihood) for _ in range(2))
    full, other = (
        fitted(model, curvature=curvature)
        for model, curvature in zip(models, ("full", "gauss_newton"), strict=True)
    )
    assert other.elbo == pytest.approx(full.elbo, abs=1e-6)
    np.testing.assert_allclose(
        other.sources[0].parameters["root"], full.sources[0].parameters["root"], atol=1e-6
    )


def rectified():
    rows = Rows(X, NUMBERS, ("x1", "x2"), ())
    network = Dense(hidden=(8,), activation="relu")
    return build_model(network, Normal(), Fixed(scale=SCALE), Numbers(sd=NOISE), rows)


def test_rectified_units_have_a_mode_at_kinks():
    model = rectified()
    with pytest.raises(ValueError, match="every restart diverged: no mode with a positive"):
        fitted(model, steps=4000)
    approx = fitted(model, steps=4000, curvature="gauss_newton")
    assert (approx.status, approx.reason) == ("converged", laplace.AT_KINKS)
    with pytest.raises(ValueError, match=f"every restart diverged: {laplace.NOT_ARRIVED}"):
        fitted(model, steps=30, curvature="gauss_newton")


def test_curvature_is_of_the_guide_laplace():
    with pytest.raises(ValueError, match="must have `guide` laplace with `curvature` gauss_newton"):
        Inference(curvature="gauss_newton")


def test_root_of_inverse():
    matrix = np.cov(np.random.default_rng(0).standard_normal((5, 30)))
    root = root_of_inverse(matrix)
    np.testing.assert_allclose(root @ root.T, np.linalg.inv(matrix), rtol=1e-10)
    assert (np.triu(root, 1) == 0).all()


def test_a_fit_without_a_mode_has_diverged(monkeypatch):
    monkeypatch.setattr(laplace, "find_mode", lambda *_: None)
    model = model_of(LABELS, "bernoulli", prior=StudentT())
    _, (fit,) = fit_model(model, Inference(guide="laplace", steps=20))
    assert fit.failed and fit.reason == laplace.NO_MODE
    assert fit.constrained["root"].shape == (3, 3)
    with pytest.raises(ValueError, match="every restart diverged: no mode"):
        fitted(model, steps=20)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch": 10}, "must leave out `batch` with `guide` laplace, which needs the curvature"),
        ({"kl_weight": 0.5}, "must leave out `kl_weight` with `guide` laplace, which is at a mode"),
        ({"estimator": "path_derivative"}, "must leave out `estimator` with `guide` laplace"),
        (
            {"learning_rate": {"tune": {"log": [0.01, 0.1, 2]}}},
            "must give a number for `learning_rate`",
        ),
        ({"engine": "pymc"}, "must leave out `guide` with engine `pymc`"),
    ],
)
def test_settings_that_do_not_lead_to_a_mode(settings, message):
    with pytest.raises(ValueError, match=message):
        Inference(guide="laplace", **settings)


def test_large_models_are_refused():
    with pytest.raises(ValueError, match="must not be laplace for a model of 2,001 parameters"):
        build_guide(Inference(guide="laplace"), 2001, False)


PLACE = "sweeps[0]"
MISTAKES = {
    "kink": (
        {"prior": "laplace"},
        f"`{PLACE}.prior` must be cell or correlated_normal or normal or student_t with guide "
        "laplace, which needs two derivatives of its density, got 'laplace'.",
    ),
    "learned scale": (
        {"hyperprior": "half_normal"},
        f"`{PLACE}.hyperprior` must be fixed with guide laplace: the mode of weights and learned "
        "scales together is far from their mass, got 'half_normal'.",
    ),
    "learned noise": (
        {"dataset": "sine"},
        f"`{PLACE}.likelihood` must be bernoulli, categorical, or normal with a known `sd` with "
        "guide laplace, got 'normal'.",
    ),
    "size": (
        {"network": {"kind": "dense", "hidden": [[50, 50]]}},
        f"`{PLACE}.inference.guide` must not be laplace with the 2,802 weights of "
        f"`{PLACE}.network`: it takes at most 2,000, got 'laplace'.",
    ),
    "snapshots": (
        {"predict": {"diagnostics": {"steps": [[10]]}}},
        f"`{PLACE}.predict.diagnostics.steps` must be empty with guide laplace "
        f"(`{PLACE}.inference.guide`), which is nothing before its mode, got [10].",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake(name, tmp_path):
    sections, message = MISTAKES[name]
    sweep = {"name": "one", "dataset": {"kind": "moons", "noise": 0.4}, "network": "dense"}
    sweep |= {"prior": "normal", "inference": {"guide": "laplace"}} | sections
    path = tmp_path / "experiment.yaml"
    path.write_text(yaml.safe_dump({"name": "test", "sweeps": [sweep]}))
    with pytest.raises(ConfigError) as caught:
        load_experiment(path)
    assert message in str(caught.value)


def test_other_models_are_refused():
    import pymc as pm

    with pm.Model() as model:
        pm.Normal("a")
    with pytest.raises(ValueError, match="must not be laplace for a model that is not one of this"):
        pb.fit(model, guide="laplace", progress=False)
    learned = pb.dense_classifier(X, LABELS, hyperprior=HalfNormal())
    with pytest.raises(ValueError, match="`hyperprior` must be fixed with guide laplace"):
        pb.fit(learned, guide="laplace", progress=False)


def test_it_is_not_calibrated(tmp_path):
    content = {"dataset": {"kind": "moons", "noise": 0.4}, "network": "dense", "prior": "normal"}
    sweep = content | {"name": "one", "inference": {"guide": "laplace"}}
    path = tmp_path / "experiment.yaml"
    path.write_text(yaml.safe_dump({"name": "test", "sweeps": [sweep]}))
    (cell,) = load_experiment(path).cells
    assert cell.is_laplace and not cell.is_point
    assert "another network" in why_left_out(cell, 100)
