"""Newton steps at the end of fits of networks."""

import numpy as np
import pytest
from sklearn.datasets import make_moons
from tiers import slow_but

import pmbnn as pb
from pmbnn.data.arrays import Rows
from pmbnn.inference.newton import NEAR

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


def distances(posterior):
    mean, scale = exact()
    return np.abs(means_of(posterior) - mean) / scale


@pytest.mark.parametrize("guide", ["mean_field", "full_rank"])
def test_a_short_fit_reaches_the_optimum(guide):
    """A regression as a network: its distance is told, and covered by Newton steps."""
    given = {"steps": 150, "learning_rate": 0.01, "guide": guide, "restarts": 2, "progress": False}
    without, found = pb.fit(linear(), **given), pb.fit(linear(), newton=True, **given)
    assert distances(without).max() > 4 * NEAR
    assert distances(found).max() < 0.02
    assert "means are within" in found.reason and found.best == without.best
    assert found.elbo > without.elbo
    # The other restart is as it was.
    other = 1 - found.best
    for name, array in found.sources[other].parameters.items():
        np.testing.assert_array_equal(array, without.sources[other].parameters[name])


def test_an_estimator_does_the_same():
    given = {"hidden": (), "prior": "normal", "likelihood": {"kind": "normal", "sd": SD}}
    given |= {"hyperprior": "fixed", "steps": 150, "learning_rate": 0.01}
    found = [
        pb.BNNRegressor(**given, settings={"newton": newton}).fit(X, Y).posterior_
        for newton in (False, True)
    ]
    assert "means are within" in found[1].reason and "means" not in found[0].reason
    assert found[1].elbo > found[0].elbo


@pytest.mark.parametrize("prior", slow_but(["laplace"], ["laplace", "cauchy", "horseshoe"]))
def test_other_priors_keep_the_rule_of_the_elbo(prior):
    """And the reason says so."""
    x, y = make_moons(40, noise=0.3, random_state=0)
    model = pb.dense_classifier(x, y, hidden=(2,), prior=prior)
    without, found = (
        pb.fit(model, steps=20, newton=newton, progress=False) for newton in (False, True)
    )
    words = f"no distance to the optimum is computed with prior {prior}, and the ELBO alone decides"
    assert found.reason == f"{words}; {without.reason}"
    np.testing.assert_array_equal(means_of(found), means_of(without))


def test_rectified_units_have_kinks():
    x, y = make_moons(40, noise=0.3, random_state=0)
    model = pb.dense_classifier(x, y, hidden=(2,), activation="relu")
    found = pb.fit(model, steps=20, newton=True, progress=False)
    assert found.reason.startswith("no distance to the optimum is computed with rectified units")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"guide": "map"}, "must have `guide` mean_field, low_rank or full_rank with `newton`"),
        ({"guide": "laplace"}, "must have `guide` mean_field"),
        ({"batch": 10}, "must leave out `batch` with `newton`"),
        ({"kl_weight": 0.5}, "must leave out `kl_weight` with `newton`"),
        ({"engine": "pymc"}, "must leave out `engine` with `newton`"),
    ],
)
def test_settings_that_have_another_optimum(given, words):
    with pytest.raises(ValueError, match=words):
        pb.Inference(newton=True, **given)


def test_cells_of_a_sweep_record_the_distance(tmp_path):
    """Of a logistic regression, whose curvature is positive definite everywhere."""
    sweep = {
        "name": "s",
        "dataset": {"kind": "moons", "noise": 0.3, "train": 60, "test": 30},
        "network": {"kind": "dense", "hidden": [[]]},
        "prior": ["normal", "laplace"],
        "hyperprior": "half_normal",
        "inference": {"steps": 300, "restarts": 2, "newton": True, "validation": 0},
    }
    result = pb.run({"name": "newton", "sweeps": [sweep]}, out=tmp_path / "out", workers=1)
    normal, laplace = sorted(result.records, key=lambda record: record.fingerprint, reverse=True)
    assert normal.results["distance_to_optimum"] <= NEAR
    assert normal.reason.startswith("means are within")
    assert "distance_to_optimum" not in laplace.results
    assert "with prior laplace, and the ELBO alone decides" in laplace.reason
    best = max(normal.restarts, key=lambda restart: restart.elbo)
    assert (best.elbo, best.reason) == (normal.results["elbo"], normal.reason)
