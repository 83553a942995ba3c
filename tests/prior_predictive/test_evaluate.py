"""What a prior says of a data set: closed forms, limits of scales, what is kept."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from pmbnn.data import Moons, Sine
from pmbnn.data.arrays import Standardisation
from pmbnn.experiment.cells import Cell
from pmbnn.fitting.evaluation import map_points
from pmbnn.inference.settings import Inference
from pmbnn.models.hyperpriors import Fixed, HalfCauchy, InverseGamma
from pmbnn.models.likelihoods import Bernoulli, Categorical
from pmbnn.models.likelihoods import Normal as NormalNoise
from pmbnn.models.networks import Dense
from pmbnn.models.noise import Heteroscedastic
from pmbnn.models.priors import Cauchy, Flat, Normal
from pmbnn.prediction.settings import Map, Predict
from pmbnn.prior_predictive import evaluate
from pmbnn.prior_predictive.evaluate import PriorFunctions, boundary_length, evaluate_prior
from pmbnn.prior_predictive.figure import plot_prior_curves

MOONS, SINE = Moons(noise=0.4, train=60, test=20, seed=3), Sine(train=12)
MAP = Map(resolution=30)


def cell_of(dataset=MOONS, network=None, prior=None, hyperprior=None, likelihood=None):
    return Cell(
        "toy",
        dataset,
        network or Dense(),
        prior or Normal(),
        hyperprior or Fixed(),
        likelihood or (Categorical() if dataset.n_classes else NormalNoise(sd=0.5)),
        Inference(),
        Predict(map=MAP),
    )


def evaluated(cell, random_seed=1):
    dataset = cell.dataset.load()
    functions = PriorFunctions(cell.network, cell.likelihood, dataset.training)
    return evaluate_prior(cell, dataset, functions, random_seed)


def is_near(numbers, name, value, error=0.0):
    allowed = 4 * np.hypot(numbers[f"{name}_mcse"], error)
    assert numbers[name] == pytest.approx(value, abs=allowed), name


def test_linear_functions_over_the_plane():
    """Against the same functions drawn and looked at with NumPy."""
    found = evaluated(cell_of(network=Dense(hidden=()), hyperprior=Fixed(scale=0.8)))
    dataset, rng = MOONS.load(), np.random.default_rng(0)
    x1, x2, points = map_points(dataset, MAP)
    weight, bias = 0.8 * rng.normal(size=(2, 3_000, 2)), 0.8 * rng.normal(size=(2, 3_000, 1))

    def first(x):
        log_odds = (weight[0] - weight[1]) @ x.T + bias[0] - bias[1]
        return 1 / (1 + np.exp(-log_odds))

    at_rows, over = first(dataset.x_train), first(points).reshape(-1, 30, 30)
    constant = ((at_rows > 0.5) == (at_rows[:, :1] > 0.5)).all(axis=1)
    is_near(found.numbers, "constant", constant.mean(), constant.std() / 3_000**0.5)
    lengths = np.array([boundary_length(x1, x2, np.stack([p, 1 - p], axis=-1)) for p in over])
    is_near(found.numbers, "boundary_length", lengths.mean(), lengths.std() / 3_000**0.5)
    common = np.maximum(at_rows.mean(axis=1), 1 - at_rows.mean(axis=1))
    is_near(found.numbers, "common_class", common.mean(), common.std() / 3_000**0.5)
    assert found.numbers["common_class_sd"] == pytest.approx(common.std(), rel=0.15)
    assert "saturated" not in found.numbers
    group = found.groups["predictions"]
    np.testing.assert_allclose(group["x1"], x1)
    assert group["function"].sizes == {"function": 8, "x1": 30, "x2": 30, "output": 2}
    assert float(abs(group["probability"].sel(output="0") - 0.5).max()) < 4 * 0.3 / 1_000**0.5
    np.testing.assert_allclose(group["sd"].sel(output="0"), over.std(axis=0), atol=0.03)


@pytest.mark.slow
def test_a_narrow_prior_gives_constant_functions():
    numbers = evaluated(cell_of(hyperprior=Fixed(scale=1e-3))).numbers
    assert numbers["constant"] > 0.99
    assert numbers["saturated"] == 0
    assert numbers["expected_entropy"] == pytest.approx(np.log(2), abs=1e-4)
    assert numbers["boundary_length"] < 0.02
    assert numbers["common_class"] == pytest.approx(0.5, abs=0.01)


@pytest.mark.slow
def test_a_wide_prior_saturates_units():
    numbers = evaluated(cell_of(prior=Cauchy(), hyperprior=Fixed(scale=100.0))).numbers
    assert numbers["saturated"] > 0.98
    assert numbers["expected_entropy"] < 0.01
    assert numbers["entropy"] == pytest.approx(np.log(2), abs=4 * numbers["entropy_mcse"] + 1e-3)
    assert 0.3 < numbers["boundary_length"] < 3


def test_straight_lines_of_numbers():
    """Lines with N(0, 4) slope and intercept, seen from -0.5 to 0.5, and on both ranges."""
    found = evaluated(cell_of(SINE, Dense(hidden=()), hyperprior=Fixed(scale=2.0)))
    numbers = found.numbers
    is_near(numbers, "output_range", 2 * 0.67449)
    assert numbers["noise"] == pytest.approx(0.5)
    targets = SINE.load().y_train
    assert numbers["target_range"] == np.ptp(targets)
    x = SINE.load().x_train[:, 0]
    half = 1.96 * np.sqrt(4 * (1 + x**2) + 0.25)
    assert numbers["targets_within"] == np.mean(np.abs(targets) <= half)
    assert set(found.groups) == {"rows", "curve_1", "curve_2"}
    curve = found.groups["curve_2"]
    assert curve["function"].sizes["function"] == 30
    expected = 1.96 * np.sqrt(4 * (1 + curve["x"].values ** 2))
    low, high = curve["interval"].values
    np.testing.assert_allclose((high - low) / 2, expected, rtol=0.15)
    np.testing.assert_allclose(np.diff(curve["function"].values, n=2), 0, atol=1e-9)


@pytest.mark.slow
def test_learned_noise_is_drawn_too():
    cell = cell_of(SINE, Dense(hidden=()), likelihood=NormalNoise(sd=HalfCauchy(beta=3.0)))
    # The median of a half-Cauchy distribution is its scale.
    is_near(evaluated(cell).numbers, "noise", 3.0)


def test_noise_of_a_second_output_is_drawn_too():
    """Straight lines whose logarithm of the noise is N(0, 4) where the input is zero."""
    noise = Heteroscedastic(link="exp")
    cell = cell_of(SINE, Dense(hidden=()), hyperprior=Fixed(scale=2.0))
    found = evaluated(replace(cell, likelihood=NormalNoise(sd=noise)))
    is_near(found.numbers, "noise", 1.0)
    is_near(found.numbers, "output_range", 2 * 0.67449)
    assert found.groups["curve_1"]["function"].sizes["function"] == 30


def test_functions_beyond_the_range_of_numbers_are_refused(monkeypatch):
    """Numbers of the others alone, or of infinite intervals, would be wrong."""
    monkeypatch.setattr(evaluate, "DRAWS", 50)
    vague = InverseGamma(alpha=0.001, beta=0.001, on="variance")
    cell = cell_of(SINE, Dense(hidden=()), hyperprior=vague)
    with pytest.raises(ValueError, match=r"must be finite, but \d+ of 50 leave the range of"):
        evaluated(cell)


@pytest.mark.slow
def test_one_logit_gives_maps_of_two_classes(monkeypatch):
    monkeypatch.setattr(evaluate, "DRAWS", 100)
    found = evaluated(cell_of(likelihood=Bernoulli()))
    probability = found.groups["predictions"]["probability"]
    np.testing.assert_allclose(probability.sum("output"), 1, rtol=1e-6)
    assert probability.sizes["output"] == 2


@pytest.mark.slow
def test_the_seed_decides(monkeypatch):
    monkeypatch.setattr(evaluate, "DRAWS", 100)
    first, same, other = (evaluated(cell_of(hyperprior=HalfCauchy()), s).numbers for s in (1, 1, 2))
    assert first == same
    assert first["expected_entropy"] != other["expected_entropy"]


@pytest.mark.slow
def test_of_images_there_are_numbers_alone(monkeypatch):
    """At some of them, with fewer functions of a larger network."""
    cell, seen = cell_of(network=Dense(hidden=(50, 50))), []
    monkeypatch.setattr(type(cell.dataset), "image_shape", (1, 2))
    monkeypatch.setattr(type(cell.dataset), "is_planar", False)
    monkeypatch.setattr(evaluate, "IMAGES", 7)
    parameters = PriorFunctions.parameters

    def counted(self, values, x):
        seen.append((len(values), len(x)))
        return parameters(self, values, x)

    monkeypatch.setattr(PriorFunctions, "parameters", counted)
    found = evaluated(cell)
    assert found.groups == {}
    assert {"constant", "entropy", "saturated"} < set(found.numbers)
    assert set(seen) == {(evaluate.LARGE_AT_ONCE, 7)}
    assert len(seen) * evaluate.LARGE_AT_ONCE == evaluate.LARGE_DRAWS


def test_what_cannot_be_drawn_is_refused(monkeypatch):
    cell = cell_of(prior=Flat(), hyperprior=Fixed(scale=None))
    with pytest.raises(ValueError, match="proper"):
        evaluated(cell)
    monkeypatch.setattr(type(cell.likelihood), "predictive", "ranks")
    dataset, functions = MOONS.load(), None
    with pytest.raises(ValueError, match="got 'ranks'"):
        evaluate_prior(cell, dataset, functions, 0)


def test_standardised_targets_are_in_their_own_units(monkeypatch):
    monkeypatch.setattr(evaluate, "DRAWS", 100)
    cell, dataset = cell_of(SINE, Dense(hidden=())), SINE.load()
    units = Standardisation(np.full(1, 5.0), np.full(1, 3.0))
    functions = PriorFunctions(cell.network, cell.likelihood, dataset.training)
    plain, other = (
        evaluate_prior(cell, of, functions, 1)
        for of in (dataset, replace(dataset, target_standardisation=units))
    )
    for name in ("output_range", "output_sd", "noise", "target_range"):
        assert other.numbers[name] == pytest.approx(3 * plain.numbers[name])
    assert other.numbers["targets_within"] == plain.numbers["targets_within"]
    for name in ("function", "interval"):
        raw = units.undo(plain.groups["curve_1"][name].values)
        np.testing.assert_allclose(other.groups["curve_1"][name], raw)
    np.testing.assert_allclose(other.groups["rows"]["y"], units.undo(dataset.y_train))


def test_several_targets_are_measured_one_by_one(monkeypatch):
    monkeypatch.setattr(evaluate, "DRAWS", 100)
    one, units = SINE.load(), Standardisation(np.array([0.0, 20.0]), np.array([1.0, 4.0]))
    y = {name: np.stack([getattr(one, name)] * 2, axis=1) for name in ("y_train", "y_test")}
    two = replace(one, **y, target_names=("a", "b"), target_standardisation=units)
    cell = cell_of(SINE, Dense(hidden=()), likelihood=NormalNoise(sd=(0.5, 0.25)))
    functions = PriorFunctions(cell.network, cell.likelihood, two.training)
    found = evaluate_prior(cell, two, functions, 1)
    assert [found.numbers[f"noise_{name}"] for name in "ab"] == pytest.approx([0.5, 1.0])
    assert found.numbers["target_range_b"] == pytest.approx(4 * found.numbers["target_range_a"])
    assert {"output_range_a_mcse", "targets_within_b"} < set(found.numbers)
    curve = found.groups["curve_1"]
    assert curve["function"].sel(target_name="b").mean() == pytest.approx(20, abs=3)
    trace = xr.DataTree.from_dict({f"/{name}": group for name, group in found.groups.items()})
    above = plot_prior_curves(trace, None, "title", "none").axes[: 2 * len(SINE.lines())]
    assert {axes.get_title()[:3] for axes in above} == {"a, ", "b, "}
