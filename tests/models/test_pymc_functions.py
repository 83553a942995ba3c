"""PyMC's and ArviZ's own functions take a model as it is."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytest
from scipy.special import log_softmax
from sklearn.datasets import make_moons

from pmbnn.models.build import dense_classifier

X, Y = make_moons(60, noise=0.3, random_state=0)
WEIGHTS = ("weight_1", "bias_1", "weight_2", "bias_2")


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    """Interpret what PyMC compiles: its default backend takes minutes for this file."""
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        yield


def build():
    return dense_classifier(X, Y, hidden=(3,), prior="laplace", hyperprior="half_cauchy")


@pytest.fixture(scope="module")
def model():
    return build()


@pytest.fixture(scope="module")
def trace(model):
    """Draws of a sampler that has hardly begun: enough to hand on to other functions."""
    with model:
        trace = pm.sample(
            draws=40,
            tune=40,
            chains=1,
            cores=1,
            progressbar=False,
            compute_convergence_checks=False,
            random_seed=1,
            # Trees of up to 1,023 steps would be most of the time, for no better test.
            nuts={"max_treedepth": 5},
        )
        pm.compute_log_likelihood(trace, progressbar=False)
    return trace


def check_scaled(draws):
    """Weights are their layer's scale times the standard draws, with the same dims."""
    for name in WEIGHTS:
        scaled = draws[f"layer_{name[-1]}_scale"] * draws[f"{name}_z"]
        assert draws[name].dims == draws[f"{name}_z"].dims
        np.testing.assert_allclose(draws[name], scaled.transpose(*draws[name].dims), rtol=1e-12)


def log_probabilities(draws, x):
    """Log class probabilities ``(draw, observation, class)``, in NumPy."""
    w1, b1, w2, b2 = (draws[name].to_numpy()[0] for name in WEIGHTS)
    hidden = np.tanh(x @ w1 + b1[:, None])
    return log_softmax(hidden @ w2 + b2[:, None], axis=-1)


def check_labels(labels, log_p):
    """The number of ones is what the probabilities say, within four standard errors."""
    p = np.exp(log_p[..., 1])
    assert set(np.unique(labels)) == {0, 1}
    assert labels.shape == p.shape
    assert abs((labels - p).sum()) < 4 * np.sqrt((p * (1 - p)).sum())


def test_prior_predictive(model):
    with model:
        found = pm.sample_prior_predictive(draws=200, random_seed=1)
    assert dict(found["prior"].sizes) == {
        "chain": 1,
        "draw": 200,
        "feature": 2,
        "hidden_1": 3,
        "output": 2,
    }
    check_scaled(found["prior"])
    labels = found["prior_predictive"]["y"]
    assert labels.dims == ("chain", "draw", "observation")
    check_labels(labels.to_numpy()[0], log_probabilities(found["prior"], X))
    # Both a half-Cauchy and the absolute value of a Laplace draw have a known median; the
    # rank of the sample's is binomial, so four standard errors are 4 · √n / 2 ranks.
    scales = np.stack([found["prior"][f"layer_{i}_scale"] for i in (1, 2)])
    sizes = np.abs(np.concatenate([found["prior"][f"{n}_z"].to_numpy().ravel() for n in WEIGHTS]))
    for sample, median in ((scales, 1.0), (sizes, np.log(2))):
        assert abs((sample > median).sum() - sample.size / 2) < 2 * np.sqrt(sample.size)


def test_sample(model, trace, evaluate):
    posterior = trace["posterior"]
    assert posterior["weight_1"].dims == ("chain", "draw", "feature", "hidden_1")
    assert posterior["bias_2"].dims == ("chain", "draw", "output")
    assert list(posterior["feature"].to_numpy()) == ["x1", "x2"]
    assert (posterior["layer_1_scale"] > 0).all()
    check_scaled(posterior)
    np.testing.assert_array_equal(trace["observed_data"]["y"], Y)
    np.testing.assert_array_equal(trace["constant_data"]["x"], X)
    # The sampler's target is the model's log-probability, Jacobian included.
    last = {name: v.to_numpy()[0, -1] for name, v in posterior.data_vars.items()}
    last |= {f"{n}_log__": np.log(last[n]) for n in ("layer_1_scale", "layer_2_scale")}
    [expected] = evaluate([model.logp()], {v: last[v.name] for v in model.value_vars})
    np.testing.assert_allclose(trace["sample_stats"]["lp"][0, -1], expected, rtol=1e-10)


def test_fit(model):
    with model:
        approximation = pm.fit(30, method="advi", progressbar=False, random_seed=1)
        draws = approximation.sample(20, random_seed=1)
    assert approximation.hist.shape == (30,)
    assert np.isfinite(approximation.hist).all()
    n_free = 2 + (2 * 3 + 3) + (3 * 2 + 2)
    assert approximation.mean.eval().shape == approximation.std.eval().shape == (n_free,)
    check_scaled(draws["posterior"])


def test_log_likelihood(trace):
    found = trace["log_likelihood"]["y"]
    assert found.dims == ("chain", "draw", "observation")
    expected = log_probabilities(trace["posterior"], X)[:, np.arange(60), Y]
    np.testing.assert_allclose(found[0], expected, rtol=1e-9, atol=1e-12)


def test_posterior_predictive(model, trace):
    with model:
        found = pm.sample_posterior_predictive(trace, progressbar=False, random_seed=1)
    labels = found["posterior_predictive"]["y"].to_numpy()[0]
    check_labels(labels, log_probabilities(trace["posterior"], X))


def test_new_data(trace):
    new = np.array([[0.0, 1.0], [1.0, -0.5], [3.0, 3.0]])
    with build():
        pm.set_data({"x": new, "target": np.zeros(3, int)})
        found = pm.sample_posterior_predictive(
            trace, predictions=True, progressbar=False, random_seed=1
        )
    labels = found["predictions"]["y"].to_numpy()[0]
    check_labels(labels, log_probabilities(trace["posterior"], new))
    np.testing.assert_array_equal(found["predictions_constant_data"]["x"], new)


# Forty draws are too few for Pareto smoothing to be sure of every point, whatever the model.
@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto distribution:UserWarning")
def test_loo(trace):
    found = az.loo(trace)
    log_p = trace["log_likelihood"]["y"].to_numpy()[0]
    in_sample = (np.logaddexp.reduce(log_p, axis=0) - np.log(len(log_p))).sum()
    assert found.n_data_points == 60
    assert in_sample - found.p == pytest.approx(found.elpd)
    assert log_p.min(axis=0).sum() < found.elpd < in_sample


def test_summary(trace):
    found = az.summary(trace, var_names=["weight_2"])
    assert list(found.index) == [f"weight_2[{i}, {c}]" for i in range(3) for c in range(2)]


def test_graph(model):
    source = pm.model_to_graphviz(model).source
    for name in (*model.named_vars, "hidden_1", "observation"):
        assert name in source
    assert "layer_1_scale -> weight_1" in source
    assert "weight_1_z -> weight_1" in source


def test_flat_has_no_prior_predictive():
    model = dense_classifier(X, Y, hidden=(3,), prior="flat")
    with model, pytest.raises(NotImplementedError, match="Cannot sample from flat variable"):
        pm.sample_prior_predictive(draws=2, random_seed=1)


def test_flat_has_no_graph_yet():
    """Upstream fault (pymc issue 8024): when this fails, it is mended."""
    model = dense_classifier(X, Y, hidden=(3,), prior="flat")
    with pytest.raises(NotImplementedError, match="Cannot sample from flat variable"):
        pm.model_to_graphviz(model)
