"""Fits of models whose variables have units: against exact answers, and in other units."""

from dataclasses import replace

import any_models
import numpy as np
import pymc as pm
import pytest
from tiers import slow_but

import pmbnn as pb
from pmbnn.inference import newton
from pmbnn.inference.coordinates import Coordinates
from pmbnn.inference.engines import fit_model
from pmbnn.inference.flat import n_observations
from pmbnn.inference.optimum import end_of, judged
from pmbnn.inference.settings import Inference
from pmbnn.inference.unit_free import IMPROPER, Target, fit_unit_free
from pmbnn.inference.xla.compile import precision
from pmbnn.models.build import dense_classifier

SIZE, ROWS = 50, 200
RNG = np.random.default_rng(0)
X = RNG.normal(size=(ROWS, SIZE)) + 4.5 * RNG.normal(size=(ROWS, 1))
Y = X @ RNG.normal(size=SIZE) + RNG.normal(size=ROWS)
PRECISION = X.T @ X + np.eye(SIZE) / 100
MEAN = np.linalg.solve(PRECISION, X.T @ Y)
SCALE = 1 / np.sqrt(np.diag(PRECISION))
"""Of the best mean-field guide."""


def correlated():
    """Regression whose posterior is normal, and as narrow in some directions as others are wide."""
    with pm.Model() as model:
        weight = pm.Normal("weight", 0.0, 10.0, shape=SIZE)
        pm.Normal("y", X @ weight, 1.0, observed=Y)
    return model


@pytest.fixture(scope="module")
def model():
    return correlated()


def errors(loc):
    """Distances of means from those of the posterior, in the guide's standard deviations."""
    return np.abs(loc - MEAN) / SCALE


def test_the_posterior_is_badly_conditioned():
    assert 3_500 < np.linalg.cond(PRECISION * SCALE * SCALE[:, None]) < 4_500


@pytest.mark.parametrize("learning_rate", slow_but([0.02], [0.005, 0.02, 0.1]))
def test_correlated_coefficients(model, learning_rate):
    """With the default steps, whatever the learning rate."""
    found = pb.fit(model, learning_rate=learning_rate, progress=False)
    assert found.status == "converged", found.reason
    assert found.reason.startswith("means are within ")
    parameters = found.sources[0].parameters
    assert errors(parameters["loc"]).max() < newton.NEAR
    # The noise of Adam at the end of a fit, whose rate falls to zero.
    np.testing.assert_allclose(parameters["scale"], SCALE, rtol=0.3)


@pytest.mark.parametrize("steps", slow_but([50], [1, 50, 300]))
def test_an_unfinished_fit_tells_its_distance(model, steps):
    """The decrement against the exact distance; Newton steps cover it."""
    settings = Inference(steps=steps)
    target = Target.of(model, settings)
    mode = target.coordinates(0)
    away = mode._replace(centre=mode.centre + 30 * SCALE * RNG.normal(size=SIZE))
    program, (fit,) = fit_model(model, settings, coordinates=away)
    exact = errors(fit.loc).max()
    ended = target.expectations, program.guide, fit, fit.scale, mode.root
    told = end_of(*ended, most=0).polished.distance
    assert exact > 1 and told.largest == pytest.approx(exact, rel=0.15)
    end = end_of(*ended).polished
    assert end.steps == 1 and end.is_quadratic and end.distance.is_near
    assert errors(end.loc).max() < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("guide", ["low_rank", "full_rank"])
def test_other_normal_guides(model, guide):
    found = pb.fit(model, guide=guide, progress=False)
    assert found.status == "converged", found.reason
    parameters = found.sources[0].parameters
    assert errors(parameters["loc"]).max() < 0.25 * (np.sqrt(np.diag(COVARIANCE)) / SCALE).max()
    if guide == "full_rank":
        root = parameters["root"]
        np.testing.assert_allclose(root @ root.T / VARIANCES, COVARIANCE / VARIANCES, atol=0.1)


COVARIANCE = np.linalg.inv(PRECISION)
VARIANCES = np.sqrt(np.outer(np.diag(COVARIANCE), np.diag(COVARIANCE)))


@pytest.mark.slow
def test_points(model):
    """The mode, in standard deviations given all other coefficients."""
    found = pb.fit(model, guide="map", steps=300, progress=False)
    assert found.status == "converged", found.reason
    assert "conditional standard deviations of the optimum" in found.reason
    assert errors(found.sources[0].parameters["loc"]).max() < 0.01
    weight = found.sample(1)["weight"][0]
    joint = -0.5 * np.sum((Y - X @ weight) ** 2) - 0.5 * ROWS * np.log(2 * np.pi)
    joint += -0.5 * np.sum(weight**2) / 100 - SIZE * np.log(10 * np.sqrt(2 * np.pi))
    assert found.elbo == pytest.approx(joint, rel=1e-7)  # PyMC takes 10.0 in single precision


@pytest.mark.slow
def test_points_have_no_jacobians():
    """The mode of a scale is that of its own density; the likelihood alone has another."""
    y = np.array([1.0, -2.0, 3.0, 0.5])
    with pm.Model() as model:
        pm.Normal("y", 0.0, pm.Exponential("sigma", 2.0), observed=y)
    for guide, rate in (("map", 2.0), ("maximum_likelihood", 0.0)):
        found = pb.fit(model, guide=guide, steps=300, progress=False)
        sigma = float(found.sample(1)["sigma"][0])
        assert (y @ y) / sigma**3 - len(y) / sigma - rate == pytest.approx(0, abs=1e-2)
        assert found.status == "converged"


# --- units ----------------------------------------------------------------------------------


def in_units(unit):
    """Regression under flat priors on two columns, one of them in another unit."""
    x = X[:, :2] * [1.0, unit]
    with pm.Model() as model:
        slope = pm.Flat("slope", shape=2)
        sigma = pm.HalfFlat("sigma")
        pm.Normal("y", x @ slope, sigma, observed=Y)
    return model


def test_units_change_no_answer():
    """Of the second column a million times larger; and the posterior is proper."""
    fits = {}
    for unit in (1.0, 1e6):
        found = pb.fit(in_units(unit), progress=False, steps=3_000)
        assert found.status == "converged", found.reason
        assert found.reason.endswith(IMPROPER)
        assert found.sources[0].guide.scale_cap is None
        fits[unit] = found
    (first, second) = (fit.sources[0].parameters for fit in fits.values())
    units = np.array([1.0, 1e6, 1.0])
    np.testing.assert_allclose(
        second["loc"] * units, first["loc"], atol=1e-2 * first["scale"].min()
    )
    np.testing.assert_allclose(second["scale"] * units, first["scale"], rtol=1e-2)
    x = X[:, :2]
    expected = np.linalg.solve(x.T @ x, x.T @ Y)
    assert (np.abs(first["loc"][:2] - expected) < 0.25 * first["scale"][:2]).all()


@pytest.mark.slow
def test_scales_above_the_cap():
    """Slopes of dollars per metre: their scales are above the cap of improper posteriors."""
    found = pb.fit(in_units(1e-6), progress=False)
    x = X[:, :2] * [1.0, 1e-6]
    sigma = np.exp(found.sources[0].parameters["loc"][2])
    expected = sigma / np.sqrt(np.sum(x**2, axis=0))
    assert expected[1] > 1_000
    np.testing.assert_allclose(found.sources[0].parameters["scale"][:2], expected, rtol=0.2)


# --- where all is as without --------------------------------------------------------------


def equal(ours, theirs):
    for fit, other in zip(ours, theirs, strict=True):
        assert fit.constrained.keys() == other.constrained.keys()
        for name, array in fit.constrained.items():
            np.testing.assert_array_equal(array, other.constrained[name])
        assert (fit.status, fit.reason, fit.elbo) == (other.status, other.reason, other.elbo)


def test_a_posterior_without_a_mode():
    """Eight schools, whose density has no maximum where the schools are equal."""
    model, settings = any_models.eight_schools(centred=True), Inference(steps=200)
    assert Target.of(model, settings).coordinates(0) is None
    equal(fit_unit_free(model, settings)[1], fit_model(model, settings)[1])


def funnel():
    """Independent variables whose scale is unknown: its mode is at scales near zero (Neal 2003)."""
    with pm.Model() as model:
        scale = pm.Normal("log_variance", 0.0, 3.0)
        pm.Normal("x", 0.0, pm.math.exp(scale / 2), shape=9)
    return model


@pytest.mark.slow
def test_a_mode_that_is_far_from_the_mass():
    """The best guide is about zero, at ELBO -1.85 by its closed form; the mode is at -40.5."""
    model, settings = funnel(), Inference(steps=3_000)
    assert Target.of(model, settings).coordinates(0) is None
    _, (fit,) = fit_unit_free(model, settings)
    variance = 1 / (1 / 9 + 9 / 2)
    expected = 0.5 * np.log(variance / 9)
    assert fit.elbo == pytest.approx(expected, abs=0.5)


@pytest.mark.parametrize(
    "given",
    [
        {"initial_mean": "zero"},
        {"initial_scale": 0.1},
        {"kl_weight": 0.5},
        {"engine": "pymc"},
        {"batch": 10},
    ],
)
def test_settings_that_ask_for_something_else(given):
    model = any_models.two_observed_and_a_potential()
    assert Target.of(model, Inference(steps=10, **given)) is None
    assert Target.of(model, Inference(steps=10)) is not None


@pytest.mark.slow
def test_networks_are_as_they_were():
    """To the last bit."""
    rows = np.random.default_rng(1).normal(size=(20, 2))
    model = dense_classifier(rows, (rows[:, 0] > 0).astype(int), hidden=(2,), prior="flat")
    found = pb.fit(model, steps=30, restarts=2, progress=False)
    settings = Inference(steps=30, restarts=2)
    program, fits = fit_model(model, settings, dtype="float32")
    assert program.guide.coordinates is None and found.status == "improper"
    for i, fit in enumerate(fits):
        for name, array in found.sources[i].parameters.items():
            np.testing.assert_array_equal(array, fit.constrained[name])
    assert "elbo_at_end" not in found.history


@pytest.mark.slow
def test_draws_that_leave_the_support():
    """Of a guide as wide as the mode is: a narrow one stays within."""
    with pm.Model() as model:
        x = pm.Flat("x", shape=20)
        inside = pm.math.switch(pm.math.abs(x) < 1, 0.0, -np.inf)
        pm.Potential("p", (inside - 0.5 * x**2 / 4).sum())
    program, (fit,) = fit_unit_free(model, Inference(steps=20, learning_rate=1e-3))
    assert program.guide.coordinates is None and not fit.failed


# --- what is far from normal --------------------------------------------------------------


def skewed():
    """A log-gamma variable with a mode at zero and a mean of -1.27, in units of its own."""
    with pm.Model() as model:
        x = pm.Flat("x", shape=2)
        pm.Potential("p", (0.3 * x - pm.math.exp(x)).sum())
    return model


def test_the_optimiser_goes_on_where_the_curvature_changes():
    """From where Newton steps ended, for as many steps again; the history has both."""
    model, settings = skewed(), Inference(steps=200, learning_rate=1e-3)
    _, (fit,) = fit_unit_free(model, settings)
    assert fit.history.step[-1] == 400 and len(fit.history.elbo) == 400
    assert (np.diff(fit.history.step) > 0).all()
    # The optimum: 0.3 = E[exp x] and 1 / scale² = E[exp x].
    scale = 1 / np.sqrt(0.3)
    loc = np.log(0.3) - fit.scale**2 / 2
    assert (np.abs(fit.loc - loc) < newton.NEAR * fit.scale).all()
    assert (np.abs(np.log(fit.scale / scale)) < np.log(newton.RATIO) / 2 + 0.1).all()


def test_variances_that_are_off(model):
    """Means at the optimum do not hide them."""
    settings = Inference(steps=1)
    target = Target.of(model, settings)
    coordinates = target.coordinates(0)
    program, (fit,) = fit_model(model, settings, coordinates=coordinates)
    for factor, is_near in ((1.0, True), (2.0, False), (0.5, False)):
        scale = SCALE * np.where(np.arange(SIZE) == 3, factor, 1.0)
        given = {"loc": MEAN, "scale": scale}
        given_fit = replace(fit, constrained=given, scale=scale, status="converged")
        end = end_of(target.expectations, program.guide, given_fit, scale, coordinates.root)
        assert end.polished.distance.is_near and end.is_settled == is_near
        assert end.ratios.value[3] == pytest.approx(factor**2, rel=1e-3)
        found = judged(program.guide, given_fit, end)
        assert found.status == ("converged" if is_near else "not_converged")
        told = f"a standard deviation is {factor:.2g} times that of the optimum"
        assert (told in found.reason) != is_near


def test_the_elbo_is_that_at_the_end(tmp_path):
    """In closed form; a stored posterior keeps it."""
    found = pb.fit(skewed(), steps=100, learning_rate=1e-3, progress=False)
    loc, scale = (found.sources[0].parameters[name] for name in ("loc", "scale"))
    expected = 0.3 * loc - np.exp(loc + scale**2 / 2) + np.log(scale)
    expected = np.sum(expected + 0.5 * np.log(2 * np.pi * np.e))
    assert found.elbo == pytest.approx(expected, abs=0.2)
    found.save(tmp_path / "found.nc")
    again = pb.load(tmp_path / "found.nc", skewed())
    assert (again.elbo, again.reason, again.status) == (found.elbo, found.reason, found.status)
    assert again.sources[0].guide.scale_cap is None
    np.testing.assert_array_equal(again.sample(3)["x"], found.sample(3)["x"])


@pytest.mark.slow
def test_restarts_are_judged_one_by_one(model):
    found = pb.fit(model, steps=30, restarts=3, progress=False)
    assert found.history["elbo_at_end"].shape == (3,)
    assert found.elbo == float(found.history["elbo_at_end"].max())
    locs = [source.parameters["loc"] for source in found.sources.values()]
    assert (locs[0] != locs[1]).all()


def test_hessians_are_those_of_the_landscape(model):
    target = Target.of(model, Inference())
    with precision("float64"):
        hessian = target.expectations.hessian(np.zeros(SIZE))
    np.testing.assert_allclose(hessian, PRECISION, rtol=1e-9)
    assert n_observations(model) == ROWS
    of = Coordinates.of_curvature(np.zeros(SIZE), hessian)
    np.testing.assert_allclose(of.lower_root @ of.lower_root.T, COVARIANCE, rtol=1e-6)
    assert (np.triu(of.lower_root, 1) == 0).all() and (np.diag(of.lower_root) > 0).all()
