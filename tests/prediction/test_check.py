"""How far an approximation is from a reference, in numbers and in words."""

import re
from dataclasses import replace
from types import SimpleNamespace

import arviz_base
import numpy as np
import pymc as pm
import pytest

from pmbnn.data.arrays import Rows
from pmbnn.inference.guides import Point
from pmbnn.inference.settings import Inference
from pmbnn.models.build import build_model, dense_classifier
from pmbnn.models.hyperpriors import Fixed, HalfNormal
from pmbnn.models.likelihoods import Normal
from pmbnn.models.networks import Dense
from pmbnn.models.priors import Normal as NormalPrior
from pmbnn.prediction.api import fit, sample
from pmbnn.prediction.chain_errors import floor_of, moments, standard_error, total_variation
from pmbnn.prediction.check import BLOCKS, Agreement, _blocks, _Drawn, check
from pmbnn.prediction.draws import GuideDraws
from pmbnn.prediction.predictor import checked_inputs

rng = np.random.default_rng(0)
X = np.column_stack([np.ones(30), np.linspace(0, 2, 30)])
Y = X @ [0.5, -1.0] + 0.4 * rng.normal(size=30)
LABELS = np.arange(30) % 2
NOISE, PRIOR_SD = 0.4, 2.0
PRECISION = X.T @ X / NOISE**2 + np.eye(2) / PRIOR_SD**2
COVARIANCE = np.linalg.inv(PRECISION)
MEAN = COVARIANCE @ X.T @ Y / NOISE**2
QUICK = {"progress": False, "random_seed": 0}


@pytest.fixture(scope="module")
def regression():
    """With a slope and a level that go together: their correlation is −0.87."""
    with pm.Model() as model:
        weight = pm.Normal("weight", 0.0, PRIOR_SD, shape=2)
        pm.Normal("y", X @ weight, NOISE, observed=Y)
    return model


@pytest.fixture(scope="module")
def full_rank(regression):
    return fit(regression, guide="full_rank", steps=4_000, **QUICK)


@pytest.fixture(scope="module")
def mean_field(regression):
    return fit(regression, guide="mean_field", steps=4_000, **QUICK)


def exact_draws(seed=1, chains=4, draws=1000, shift=0.0):
    """The posterior of the regression in closed form, as another sampler would hand it over."""
    of = np.random.default_rng(seed)
    drawn = of.multivariate_normal(MEAN, COVARIANCE, (chains, draws))
    return arviz_base.from_dict({"posterior": {"weight": drawn + shift}})


def test_an_exact_approximation_agrees(full_rank):
    """Full-rank normals hold the posterior of a linear regression."""
    found = check(full_rank, exact_draws())
    assert found.verdict == "agrees", found
    assert found.distance < 0.1
    assert repr(found).endswith("no further than repeats of the reference are from each other.")


def test_a_wrong_approximation_differs(mean_field):
    """A mean-field guide's sd is the inverse root of the precision: 0.49 of the marginal's."""
    found = check(mean_field, exact_draws())
    off = np.abs(np.log(np.sqrt(np.diag(COVARIANCE) * np.diag(PRECISION))))
    assert found.verdict == "differs", found
    assert found.of.startswith("log sd of weight[")
    assert abs(found.distance - off.max()) < 4 * found.error
    assert "times as far as repeats are; the approximation's sd of " in repr(found)
    assert re.fullmatch(r"the approximation's sd of \S+ is 0\.5\d* times.*", found.direction)


def test_a_shift_is_in_standard_deviations(full_rank):
    shift = 3 * np.sqrt(COVARIANCE[1, 1])
    found = check(full_rank, exact_draws(shift=np.array([0.0, shift])))
    assert found.of == "mean of weight[1]"
    assert found.distance == pytest.approx(3, abs=0.2)


def test_a_reference_that_disagrees_with_itself_decides_nothing(full_rank):
    shift = np.sqrt(COVARIANCE[1, 1]) * np.array([0, 0, 0, 2])[:, None, None]
    found = check(full_rank, exact_draws(shift=shift))
    assert found.verdict == "undecided"
    assert found.reference.startswith("undecided (R-hat")
    assert "with a reference that is undecided (R-hat" in repr(found)


@pytest.mark.slow
def test_our_own_reference_is_drawn_unless_given(full_rank, monkeypatch):
    def shorter(model, progress):
        return sample(model, chains=8, draws=200, progress=progress)

    monkeypatch.setattr("pmbnn.prediction.check.sample", shorter)
    found = check(full_rank, progress=False)
    assert found.verdict == "agrees", found
    assert found.reference.startswith("converged (R-hat")


# Models of this package


@pytest.fixture(scope="module")
def network():
    """A logistic regression as a network with a learned scale, fitted and sampled."""
    x = rng.normal(size=(40, 2))
    y = (x[:, 0] + 0.3 * rng.normal(size=40) > 0).astype(np.int64)
    model = dense_classifier(x, y, hidden=(), hyperprior="half_normal")
    approx = fit(model, steps=300, **QUICK)
    return approx, sample(model, chains=8, draws=200, progress=False)


@pytest.mark.slow
def test_total_variation_of_class_probabilities(network):
    """Against both predictions, by hand; the approximation's draws are others than `predict`'s."""
    approx, reference = network
    new = np.random.default_rng(5).normal(size=(60, 2))
    found = check(approx, reference, new)
    ours, theirs = approx.predict_proba(new, draws=4000), reference.predict_proba(new)
    by_hand = 0.5 * np.abs(ours - theirs).sum(axis=1).mean()
    assert found.of == "total variation"
    assert abs(found.distance - by_hand) < 4 * found.error
    assert found.error < 0.02
    # The very draws of the reference, read back from their own scale.
    again = check(approx, reference.to_datatree(), new)
    assert again.distance == pytest.approx(found.distance, rel=1e-4)
    assert again.floor == pytest.approx(found.floor, rel=1e-3)


@pytest.mark.slow
def test_networks_of_numbers_are_compared_by_what_they_predict():
    rows = Rows(X[:, 1:], Y, ("x1",), ())
    model = build_model(
        Dense(hidden=()), NormalPrior(), Fixed(scale=1.0), Normal(sd=HalfNormal()), rows
    )
    approx = fit(model, steps=300, **QUICK)
    reference = sample(model, chains=4, draws=100, progress=False)
    found = check(approx, reference, X[:3, 1:])
    kind, _, name = found.of.partition(" of ")
    assert kind in ("mean", "log sd")
    assert name in {"mu[0]", "mu[1]", "mu[2]", "sigma[0]"}


# Numbers


def test_distances_by_hand():
    ours, theirs = np.array([[0.2, 0.8], [0.5, 0.5]]), np.array([[0.3, 0.7], [0.5, 0.5]])
    assert total_variation(ours, theirs).value == pytest.approx(0.05)
    drawn = np.random.default_rng(0).normal(size=(2, 50, 2))
    other = drawn * [1.0, 3.0] + [0.1, 0.0]
    blocks, other_blocks, furthest = moments(["a", "b"], other, drawn)
    found = furthest(blocks.mean(axis=0), other_blocks.mean(axis=0))
    assert found.of == "log sd of b"
    assert found.value == pytest.approx(np.log(3))


def test_a_distance_has_a_direction():
    """One too high by two standard deviations, one with half the spread, and a timid classifier."""
    wide = np.array([[[-1.0], [1.0]]])
    for ours, of, direction in (
        (wide + 2, "mean of a", "the approximation's mean of a is 2 sd above the posterior's"),
        (wide - 2, "mean of a", "the approximation's mean of a is 2 sd below the posterior's"),
        (wide / 2, "log sd of a", "the approximation's sd of a is 0.5 times the posterior's"),
    ):
        *blocks, distance = moments(["a"], ours, wide)
        found = distance(*(block.mean(axis=0) for block in blocks))
        assert (found.of, found.direction) == (of, direction)
    timid, sure = np.array([[0.6, 0.4]]), np.array([[0.1, 0.9]])
    assert "is less confident, with a largest probability of 0.600 on average and not 0.900" in (
        total_variation(timid, sure).direction
    )


def test_error_and_floor_of_a_mean():
    """Of a plain difference the jackknife is the standard error, and halves differ by twice that
    of all, whose mean absolute value is the root of 2 / π of it."""
    of = np.random.default_rng(2)
    ours, theirs = np.full((8, 1, 1), 3.0), of.normal(size=(16, 1, 1))

    def distance(a, b):
        return total_variation(2 * a, 2 * b)

    error = standard_error(ours, theirs, distance)
    assert error == pytest.approx(theirs.std(ddof=1) / 4)
    floors = [floor_of(of.normal(size=(16, 1, 1)), distance) for _ in range(200)]
    assert np.mean(floors) == pytest.approx(2 * np.sqrt(2 / np.pi) / 4, rel=0.05)


# What does not fit


def test_references_of_another_model(full_rank):
    other = arviz_base.from_dict({"posterior": {"slope": np.zeros((4, 100))}})
    with pytest.raises(ValueError, match="`weight` is missing"):
        check(full_rank, other)
    longer = arviz_base.from_dict({"posterior": {"weight": np.zeros((4, 100, 3))}})
    with pytest.raises(ValueError, match=r"`weight` in the shape \(2,\), got \(3,\)"):
        check(full_rank, longer)
    with pytest.raises(ValueError, match="at least 100 draws, got 40"):
        check(full_rank, exact_draws(draws=10))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, None),
        ({"y": 1 - LABELS}, "likelihood or data of `y` differ"),
        ({"prior": "laplace"}, "prior or potentials differ"),
        ({"hidden": (4,)}, r"with the free variables `weight_1` \(2, 4\), `bias_1` \(4,\), "),
    ],
)
def test_a_posterior_of_another_model_is_no_reference(change, said):
    """The same model, built again, is one."""
    given = {"x": X, "y": LABELS, "hidden": (3,)}
    approx = fit(dense_classifier(**given), steps=10, **QUICK)
    model = dense_classifier(**given | change)
    reference = sample(model, chains=2, draws=10, tuning=20, doublings=0, **QUICK)
    if said is None:
        assert check(approx, reference).of == "total variation"
        return
    with pytest.raises(ValueError, match=f"`reference` must be of the model of `approx`.*{said}"):
        check(approx, reference)


def test_numbers_have_the_digits_of_their_error():
    found = Agreement("total variation", 0.02412, 0.0017, 0.0039, "differs", "converged")
    assert repr(found) == (
        "total variation 0.024 ± 0.002 from the posterior (floor 0.004): "
        "6.2 times as far as repeats are."
    )


def test_what_is_no_approximation_or_reference(full_rank):
    with pytest.raises(TypeError, match="`approx` must be a Posterior, got Model"):
        check(full_rank.model)
    with pytest.raises(TypeError, match="`reference` must be a Posterior or a DataTree, got dict"):
        check(full_rank, {})
    with pytest.raises(ValueError, match="`x` must be left out"):
        check(full_rank, exact_draws(), X)


class Recorded:
    """A predictor that keeps the inputs it is asked about."""

    def __init__(self):
        self.inputs = []

    def predict(self, sources, weights, data, x, draws):
        self.inputs.append(x)
        return SimpleNamespace(mean=np.array([[0.4, 0.6]]))


def test_inputs_are_in_their_own_units():
    """They are standardised as those of `predict` are; the training inputs are already."""
    x, predictor = rng.normal(size=(6, 2)), Recorded()
    guide = GuideDraws(Point(1), {"loc": np.zeros(1)}, np.zeros(4, np.uint32))
    approx = SimpleNamespace(
        model=dense_classifier(x, np.arange(6) % 2, hidden=()),
        standardised=lambda inputs: (inputs - 1) / 2,
        predictor=predictor,
        settings=Inference(),
        sources={0: guide},
        weights={0: 1.0},
    )
    drawn = _Drawn({}, np.zeros((2, 3, 1)), "converged", "made")
    for given, expected in ((None, x), (x + 5, approx.standardised(x + 5))):
        predictor.inputs.clear()
        ours, theirs, _ = _blocks(approx, drawn, given)
        assert (ours.shape, theirs.shape) == ((BLOCKS, 1, 2), (2, 1, 2))
        assert len(predictor.inputs) == BLOCKS + 2
        assert all(np.array_equal(inputs, expected) for inputs in predictor.inputs)


@pytest.mark.parametrize("is_classifier", [True, False])
def test_a_mixture_of_restarts_is_compared_as_it_predicts(is_classifier):
    if is_classifier:
        model = dense_classifier(X, LABELS, hidden=())
    else:
        rows = Rows(X, Y, ("x1", "x2"), ())
        model = build_model(Dense(hidden=()), NormalPrior(), Fixed(), Normal(sd=0.4), rows)
    one = fit(model, steps=10, restarts=2, **QUICK)
    places = np.random.default_rng(3).normal(size=(2, one.sources[0].guide.size))
    narrow = {"scale": np.full(places.shape[1], 1e-3)}
    sources = {
        i: replace(one.sources[i], parameters={"loc": place} | narrow)
        for i, place in enumerate(places)
    }
    mixture = replace(one, sources=sources, weights={0: 0.25, 1: 0.75}, best=0)
    drawn = _Drawn({}, np.zeros((2, 3, places.shape[1])), "converged", "made")
    ours, _, _ = _blocks(mixture, drawn, None)
    # First moments about those of the reference, whose weights are all zero.
    found = ours.mean(axis=0) if is_classifier else ours.mean(axis=0)[0, : len(X)]
    alone, expected = (p.predict(X).mean for p in (replace(mixture, weights={0: 1, 1: 0}), mixture))
    # Each of 4,000 draws of numbers is of the second restart with probability 0.75.
    error = 0 if is_classifier else 4 * np.sqrt(0.25 * 0.75 / (BLOCKS * 500))
    assert np.abs(found - expected).max() < (error + 1e-3) * np.abs(alone - expected).max() / 0.75
    assert np.abs(alone - expected).max() > 0.1


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([[1.0, 2.0, 3.0]], r"`x` must have shape \(observation, 2\), got \(1, 3\)"),
        (np.zeros((0, 2)), "`x` must have at least one observation, got none"),
        ([[0.0, 1.0], [2.0, np.nan]], r"`x\[1, 1\]` must be finite, got nan"),
    ],
)
def test_inputs_that_no_model_takes(x, message):
    with pytest.raises(ValueError, match=message):
        checked_inputs(x, {"x": np.zeros((5, 2))})
