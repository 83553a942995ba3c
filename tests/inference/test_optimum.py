"""How far fits of networks are from the optimum."""

import re
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import make_moons
from tiers import slow_but

import pmbnn as pb
from pmbnn.data.arrays import Rows
from pmbnn.fitting.job import TO_OPTIMUM
from pmbnn.inference.batches import model_values
from pmbnn.inference.engines import fit_model
from pmbnn.inference.flat import n_observations
from pmbnn.inference.log_density import build_log_density
from pmbnn.inference.newton import NEAR
from pmbnn.inference.optimum import with_distance

RNG = np.random.default_rng(0)
ROWS, SD = 60, 0.5
X = RNG.normal(size=(ROWS, 3)) @ np.array([[1.0, 0.9, 0.0], [0.0, 0.4, 0.0], [0.0, 0.0, 1.0]])
Y = X @ np.array([1.0, -2.0, 0.5]) + 0.3 + SD * RNG.normal(size=ROWS)


def linear():
    """A network without hidden layers: a regression whose posterior is normal."""
    rows = Rows(X, Y, ("a", "b", "c"), (), target_names=("y",))
    network = {"kind": "dense", "hidden": ()}
    return pb.build_model(network, "normal", "fixed", {"kind": "normal", "sd": SD}, rows)


def exact():
    """Means of the posterior, weights first, and the best standard deviations of a mean field."""
    design = np.column_stack([X, np.ones(ROWS)])
    curvature = design.T @ design / SD**2 + np.eye(4)
    return np.linalg.solve(curvature, design.T @ Y / SD**2), 1 / np.sqrt(np.diag(curvature))


def means_of(posterior):
    return posterior.sources[posterior.best].parameters["loc"]


@pytest.mark.parametrize("guide", ["mean_field", "full_rank"])
@pytest.mark.parametrize("steps", slow_but([150], [150, 2_000]))
def test_the_distance_is_told(guide, steps):
    """Of a regression as a network: exactly, as errors of opposite draws cancel."""
    given = {"steps": steps, "learning_rate": 0.01, "guide": guide, "progress": False}
    without, found = (
        pb.fit(linear(), restarts=2, check_optimum=check, **given) for check in (False, True)
    )
    np.testing.assert_array_equal(means_of(found), means_of(without))
    mean, _ = exact()
    shape = found.sources[found.best].parameters
    scale = np.linalg.norm(shape["root"], axis=1) if guide == "full_rank" else shape["scale"]
    distance = np.abs((means_of(found) - mean) / scale).max()
    told = float(re.search(r"means are ([0-9.e-]+) ± ", found.reason)[1])
    assert told == pytest.approx(distance, rel=0.06, abs=2e-3)
    assert (found.best, found.elbo) == (without.best, without.elbo)
    assert found.reason.endswith(without.reason)
    assert found.history.attrs["status"][found.best] == found.status
    assert found.weights == without.weights and sum(found.weights.values()) == 1
    np.testing.assert_array_equal(found.predict(X).mean, without.predict(X).mean)
    is_near = steps == 2_000
    assert (distance < NEAR) == is_near
    assert found.status == (without.status if is_near else "not_converged")


@pytest.mark.parametrize("prior", slow_but(["laplace"], ["laplace", "cauchy", "horseshoe"]))
def test_means_that_are_moved_away_are_found_to_be(prior):
    """Under priors with kinks and heavy tails, with rectified units: by about as much."""
    x, y = make_moons(60, noise=0.3, random_state=0)
    parts = {"prior": prior, "hyperprior": "half_normal"}
    model = pb.dense_classifier(x, y, hidden=(2,), activation="relu", **parts)
    program, (fit,) = fit_model(model, pb.Inference(steps=8_000), dtype="float32")
    rows = n_observations(model)
    density = build_log_density(model, rows, "float64")
    away = fit.loc + 3 * fit.scale * (np.arange(len(fit.loc)) == 1)
    moved = replace(fit, constrained=fit.constrained | {"loc": away}, status="converged")
    near, far = (
        with_distance(one, program.guide, density, model_values(model), rows)
        for one in (fit, moved)
    )
    assert near.to_optimum.distance < 1.5 and near.to_optimum.gain < 0.5
    assert far.to_optimum.distance == pytest.approx(3, abs=1.5)
    assert far.to_optimum.gain > near.to_optimum.gain + 0.5 and far.status == "not_converged"


def test_an_estimator_does_the_same():
    given = {"hidden": (), "prior": "normal", "likelihood": {"kind": "normal", "sd": SD}}
    given |= {"hyperprior": "fixed", "steps": 150, "learning_rate": 0.01}
    found = [
        pb.BNNRegressor(**given, settings={"check_optimum": check}).fit(X, Y).posterior_
        for check in (False, True)
    ]
    assert "from the optimum" in found[1].reason and "optimum" not in found[0].reason


def test_models_with_point_parameters_are_not_compared():
    """They have no density to average."""
    x, y = make_moons(40, noise=0.3, random_state=0)
    model = pb.dense_classifier(x, y, hidden=(2,), hyperprior="point")
    found = pb.fit(model, steps=20, check_optimum=True, progress=False)
    assert found.status == "not_converged" and "optimum" not in found.reason


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"guide": "map"},
            "must have `guide` mean_field, low_rank or full_rank with `check_optimum`",
        ),
        ({"guide": "laplace"}, "must have `guide` mean_field"),
        ({"batch": 10}, "must leave out `batch` with `check_optimum`"),
        ({"kl_weight": 0.5}, "must leave out `kl_weight` with `check_optimum`"),
        ({"engine": "pymc"}, "must leave out `engine` with `check_optimum`"),
    ],
)
def test_settings_that_have_another_optimum(given, words):
    with pytest.raises(ValueError, match=words):
        pb.Inference(check_optimum=True, **given)


@pytest.mark.slow
def test_cells_of_a_sweep_record_the_distance(tmp_path):
    sweep = {
        "name": "s",
        "dataset": {"kind": "moons", "noise": 0.3, "train": 60, "test": 30},
        "network": {"kind": "dense", "hidden": [[]]},
        "prior": ["normal", "laplace"],
        "hyperprior": "half_normal",
        "inference": {"steps": 300, "restarts": 2, "check_optimum": True, "validation": 0},
    }
    result = pb.run({"name": "optimum", "sweeps": [sweep]}, out=tmp_path / "out", workers=1)
    for record in result.records:
        distance, error, gain = (record.results[name] for name in TO_OPTIMUM.values())
        assert 0 <= error < distance and gain > 0
        is_far = distance - error > NEAR
        assert f"means are {distance:.2g} ± {error:.1g} guide" in record.reason
        assert not is_far or record.status == "not_converged"
