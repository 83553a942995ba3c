"""Chains of models that are not of this package: units, modes, and coordinates."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pmbnn as pb
from pmbnn.inference.coordinates import Coordinates, Landscape, find_mode
from pmbnn.inference.log_density import build_log_density
from pmbnn.inference.samplers.whitened import find_modes
from pmbnn.inference.xla.compile import precision

RNG = np.random.default_rng(0)
ENGINES = ["nuts", pytest.param("mclmc", marks=pytest.mark.slow)]


def covariance(size, condition):
    """A covariance matrix with scales of the variables far apart, and directions too."""
    directions, _ = np.linalg.qr(RNG.normal(size=(size, size)))
    matrix = directions * np.geomspace(1, condition, size) @ directions.T
    scale = np.geomspace(1e-3, 1e3, size)
    return scale[:, None] * matrix * scale


@pytest.mark.parametrize("size", [5, 250])
def test_draws_have_unit_covariance_in_their_coordinates(size):
    """All directions of few variables; of many, those that are farthest from it."""
    root = np.linalg.cholesky(covariance(size, 100.0))
    draws = 7 + RNG.normal(size=(4_000, size)) @ root.T
    coordinates = Coordinates.of_draws(draws)
    z = coordinates.of_vector(draws)
    np.testing.assert_allclose(coordinates.vector(z), draws, rtol=1e-8)
    spread = np.linalg.eigvalsh(np.cov(z.T))
    if size == 5:
        np.testing.assert_allclose(spread, 1, rtol=1e-3)
        expected = np.linalg.slogdet(np.cov(draws.T))[1] / 2
        assert coordinates.log_volume == pytest.approx(expected, abs=1e-3)
        np.testing.assert_allclose(coordinates.root @ z[0], draws[0] - coordinates.centre)
    else:
        before = np.linalg.eigvalsh(np.corrcoef(draws.T))
        assert spread.max() / spread.min() < 0.2 * before.max() / before.min()


@pytest.mark.parametrize("definite", [True, False])
def test_curvature_gives_coordinates_that_follow_units(definite):
    precision_matrix = np.linalg.inv(covariance(4, 50.0))
    if not definite:
        precision_matrix[0, 0] *= -1
    units = np.array([1.0, 1e6, 1e-4, 3.0])
    first = Coordinates.of_curvature(np.zeros(4), precision_matrix)
    second = Coordinates.of_curvature(np.zeros(4), precision_matrix / units / units[:, None])
    z = RNG.normal(size=4)
    ours = first.root @ first.root.T, second.root @ second.root.T / units / units[:, None]
    np.testing.assert_allclose(*ours, rtol=1e-6)
    if definite:
        expected = z @ z
        x = first.vector(z)
        assert x @ precision_matrix @ x == pytest.approx(expected, rel=1e-6)


def regression():
    """A regression far from zero with two correlated predictors, one of them in other units."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 2))
    x[:, 1] = 0.98 * x[:, 0] + 0.2 * x[:, 1]
    y = 87 + x @ [30.0, -12.0] + 20 * rng.normal(size=200)
    with pm.Model() as model:
        unit = pm.Data("unit", 1.0)
        slopes = pm.Flat("slopes", shape=2)
        mean = pm.Flat("intercept") + x[:, 0] * slopes[0] + unit * x[:, 1] * slopes[1]
        pm.Normal("y", mean, pm.HalfFlat("sigma"), observed=y)
    return model


@pytest.mark.parametrize("engine", [*ENGINES, pytest.param("mams", marks=pytest.mark.slow)])
def test_units_change_no_answer(engine):
    answers, model = [], regression()
    for unit in (1.0, 1e6):
        with model:
            pm.set_data({"unit": unit})
        drawn = pb.sample(model, engine=engine, progress=False)
        assert drawn.status == "converged"
        values = drawn.sample()
        slopes = values["slopes"].reshape(-1, 2) * [1, unit]
        answers.append(np.column_stack([values["intercept"].ravel(), slopes]))
    scale = answers[0].std(axis=0)
    difference = np.mean(answers[0], axis=0) - np.mean(answers[1], axis=0)
    assert np.abs(difference / scale).max() < 0.1
    np.testing.assert_allclose(answers[1].std(axis=0), scale, rtol=0.06)
    # Under these priors the slopes have the t distribution of least squares.
    assert answers[0][:, 0].mean() == pytest.approx(87, abs=6)


@pytest.mark.parametrize("engine", ENGINES)
def test_modes_that_chains_cannot_leave_are_not_said_to_agree(engine):
    with pm.Model() as model:
        x = pm.Flat("x", shape=2)
        apart = pt.logaddexp(-((x - 3) ** 2).sum() / 0.02, -((x + 3) ** 2).sum() / 0.02)
        pm.Potential("modes", apart)
    drawn = pb.sample(model, engine=engine, draws=100, doublings=0, progress=False)
    assert drawn.status == "undecided"


def test_all_modes_that_count_are_found_and_others_left_out():
    with pm.Model() as model:
        x = pm.Flat("x", shape=2)
        at = [(2, 2, 0.0), (-2, 2, -1.0), (2, -2, -30.0)]
        terms = [log - ((x[0] - a) ** 2 + (x[1] - b) ** 2) / 0.2 for a, b, log in at]
        pm.Potential("modes", pt.logsumexp(pt.stack(terms)))
    density = build_log_density(model, 1, "float64")
    with precision("float64"):
        prepared = density.prepare({})
        modes = find_modes(density, prepared, np.array([0.3, 1.0]))
        alone = find_mode(Landscape.of(density, prepared), np.array([1.5, -1.5]))
    places = [mode.coordinates.centre.round(3).tolist() for mode in modes]
    assert places == [[2, 2], [-2, 2]]
    np.testing.assert_allclose(alone.coordinates.centre, [2, -2], atol=1e-3)
    difference = modes[0].log_evidence - alone.log_evidence
    assert difference == pytest.approx(30, abs=1e-3)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_direction_without_data_is_not_said_to_converge(engine):
    """The posterior of a difference of two numbers is improper in their sum."""
    with pm.Model() as model:
        x = pm.Flat("x", shape=2)
        pm.Normal("y", x[0] - x[1], 1.0, observed=0.3)
    # Trajectories that nothing turns back are as long as they may be.
    short = {"tuning": 200, "max_treedepth": 6} if engine == "nuts" else {}
    drawn = pb.sample(model, engine=engine, draws=100, doublings=0, progress=False, **short)
    assert drawn.status != "converged"
    assert "improper" in drawn.reason


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_many_correlated_variables(dtype):
    """More than have directions of their own, and scales from a thousandth to a thousand."""
    size = 300
    matrix = covariance(size, 30.0)
    root = np.linalg.cholesky(matrix)
    with pm.Model() as model:
        x = pm.MvNormal("x", 5.0, chol=root, shape=size)
        assert x is not None
    drawn = pb.sample(model, dtype=dtype, progress=False)
    assert drawn.settings.engine == "mclmc"
    assert drawn.status == "converged"
    values = drawn.chains.merged
    scale = np.sqrt(np.diagonal(matrix))
    assert np.abs((values.mean(axis=0) - 5) / scale).max() < 0.15
    np.testing.assert_allclose(values.std(axis=0), scale, rtol=0.1)


@pytest.mark.slow
def test_a_funnel_has_no_mode_and_is_sampled():
    """Eight schools, centred: the density has no bound."""
    effects = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
    errors = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5)
        pm.Normal("y", pm.Normal("theta", mu, tau, shape=8), errors, observed=effects)
    drawn = pb.sample(model, engine="mclmc", progress=False)
    assert drawn.status == "converged"
    # From 24,000 draws of the reference posterior of posteriordb.
    assert drawn.sample()["mu"].mean() == pytest.approx(4.4, abs=0.35)
    assert drawn.sample()["tau"].mean() == pytest.approx(3.6, abs=0.35)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["nuts", "mclmc", "mams"])
def test_chains_that_nothing_keeps_are_not_said_to_converge(engine):
    """Two classes that a line separates: the likelihood rises up to infinity."""
    x = np.array([-2.0, -1.0, 1.0, 2.0])
    with pm.Model() as model:
        b = pm.Flat("b", shape=2)
        pm.Bernoulli("y", pm.math.sigmoid(b[0] * x + b[1]), observed=x > 0)
    drawn = pb.sample(model, engine=engine, doublings=0, progress=False)
    assert drawn.status != "converged"
    assert "improper" in drawn.reason


def test_a_single_variable():
    with pm.Model() as model:
        pm.Normal("x", 1e6, 1e3)
    drawn = pb.sample(model, progress=False)
    assert drawn.status == "converged"
    x = drawn.sample()["x"]
    assert x.mean() == pytest.approx(1e6, abs=100)
    assert x.std() == pytest.approx(1e3, rel=0.06)


@pytest.mark.slow
def test_very_many_variables_have_scales_of_their_own():
    """Too many for a covariance matrix; one variable lies far out in its units."""
    scale = np.geomspace(1e-3, 1e3, 2_100)
    with pm.Model() as model:
        pm.Normal("x", 3 * scale, scale, shape=2_100)
    drawn = pb.sample(model, chains=4, progress=False)
    z = drawn.chains.merged / scale
    assert np.abs(z.mean(axis=0) - 3).max() < 0.2
    np.testing.assert_allclose(z.std(axis=0), 1, rtol=0.15)


def test_a_funnel_whose_trajectories_diverge_is_not_said_to_converge():
    """Chains that agree, without the narrow part that they cannot enter."""
    with pm.Model() as model:
        scale = pm.Normal("scale", 0, 3)
        pm.Normal("x", 0, pt.exp(scale), shape=4)
    options = {"draws": 200, "doublings": 0, "progress": False}
    drawn = pb.sample(model, engine="nuts", target_acceptance=0.6, **options)
    assert drawn.status == "undecided"
    assert "trajectories diverged" in drawn.reason
