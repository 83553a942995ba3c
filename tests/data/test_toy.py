"""The synthetic data against scikit-learn, direct quadrature and the published bounds."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import entr
from sklearn.datasets import make_circles, make_moons
from tiers import slow_but

from pmbnn.core.errors import ConfigError
from pmbnn.data import Circles, Moons
from pmbnn.data.synthetic import _bounds, log_half_circle

MOONS = [
    # noise, best accuracy, lowest NLL
    (0.2, 0.9711, 0.0763),
    (0.25, 0.9436, 0.1434),
    (0.3, 0.9146, 0.2103),
    (0.35, 0.8873, 0.2693),
    (0.4, 0.8630, 0.3189),
    (0.5, 0.8233, 0.3936),
]
CIRCLES = [
    # factor, noise, best accuracy, lowest NLL
    (0.5, 0.15, 0.9504, None),
    (0.5, 0.2, 0.8899, 0.2609),
    (0.5, 0.25, 0.8340, 0.3705),
    (0.5, 0.3, 0.7873, 0.4515),
    (0.5, 0.35, 0.7489, 0.5106),
    (0.5, 0.4, 0.7173, 0.5539),
    (0.8, 0.15, 0.7460, None),
    (0.8, 0.2, 0.6893, None),
    (0.8, 0.25, 0.6525, None),
    (0.8, 0.3, 0.6270, None),
    (0.8, 0.35, 0.6082, None),
    (0.8, 0.4, 0.5937, None),
]
HALF = [Circles(noise=0.35, factor=0.5), Moons(noise=0.4)]
# Half a unit of the last printed digit, and the printed integration's own error.
PRINTED = 0.5e-4 + 1e-5

SPECS = [
    Moons(noise=0.1),
    Moons(noise=0.4),
    Moons(noise=2.0),
    Circles(noise=0.3),
    Circles(noise=0.2, factor=0.8),
]


@pytest.mark.parametrize(("noise", "accuracy", "nll"), MOONS)
def test_bounds_of_moons_are_the_published_ones(noise, accuracy, nll):
    assert Moons(noise=noise).bounds() == pytest.approx((accuracy, nll), abs=PRINTED)


@pytest.mark.parametrize(("factor", "noise", "accuracy", "nll"), CIRCLES)
def test_bounds_of_circles_are_the_published_ones(factor, noise, accuracy, nll):
    bounds = Circles(noise=noise, factor=factor).bounds()
    assert bounds.best_accuracy == pytest.approx(accuracy, abs=PRINTED)
    if nll is not None:
        assert bounds.lowest_nll == pytest.approx(nll, abs=PRINTED)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_bounds_agree_with_fresh_rows(spec):
    size = 20_000
    x, y = spec.sample(size, random_seed=1)
    p = spec.class_probabilities(x)
    hit = p.argmax(axis=1) == y
    surprise = -np.log(p[np.arange(size), y])
    bounds = spec.bounds()
    # Four standard errors: five specifications and two numbers each fail once in 1,600 seeds.
    assert abs(hit.mean() - bounds.best_accuracy) < 4 * hit.std() / math.sqrt(size)
    assert abs(surprise.mean() - bounds.lowest_nll) < 4 * surprise.std() / math.sqrt(size)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_bounds_agree_with_few_rows_that_are_spread_evenly(spec):
    p = spec.class_probabilities(spec.spread(8_192, random_seed=1))
    accuracy, nll = p.max(axis=1).mean(), entr(p).sum(axis=1).mean()
    # As many random rows would be within 1e-2 to 2e-2.
    assert (accuracy, nll) == pytest.approx(tuple(spec.bounds()), abs=1e-3)


@pytest.mark.parametrize("spec", slow_but(HALF[:1], HALF), ids=str)
def test_few_rows_spread_evenly_are_as_close_as_fifty_thousand_random_ones(spec):
    def off(x):
        p = spec.class_probabilities(x)
        accuracy, nll = p.max(axis=1).mean(), entr(p).sum(axis=1).mean()
        return accuracy - spec.bounds().best_accuracy, nll - spec.bounds().lowest_nll

    spread = [off(spec.spread(8_192, seed)) for seed in range(10)]
    random = [off(spec.sample(50_000, seed)[0]) for seed in range(10)]
    assert (np.square(spread).mean(axis=0) < np.square(random).mean(axis=0)).all()


@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_rows_spread_evenly_are_of_either_class_in_turn_and_come_back(size):
    tight = Circles(noise=1e-6, factor=0.5)
    x = tight.spread(size, random_seed=3)
    radius = np.where(np.arange(size) % 2 == 0, 1.0, 0.5)
    np.testing.assert_allclose(np.hypot(*x.T), radius, atol=1e-4)
    np.testing.assert_array_equal(x, tight.spread(size, random_seed=3))
    assert not np.allclose(x, tight.spread(size, random_seed=4))


@pytest.mark.parametrize("spec", [Moons(noise=0.001), Circles(noise=0.001)], ids=str)
def test_bounds_without_overlap(spec):
    assert spec.bounds() == pytest.approx((1.0, 0.0), abs=1e-12)


@pytest.mark.parametrize("spec", [Moons(noise=300.0), Circles(noise=300.0)], ids=str)
def test_bounds_under_overwhelming_noise(spec):
    assert spec.bounds() == pytest.approx((0.5, math.log(2)), abs=2e-3)


def test_bounds_are_computed_once_for_each_noise():
    _bounds.cache_clear()
    assert Moons(noise=0.37, seed=1).bounds() is Moons(noise=0.37, seed=2).bounds()
    assert _bounds.cache_info().misses == 1


def half_circle_by_quadrature(x1, x2, sigma):
    """Density of the upper half-circle by adaptive quadrature, split at the nearest place."""

    def integrand(t):
        squares = (x1 - math.cos(t)) ** 2 + (x2 - math.sin(t)) ** 2
        return math.exp(-squares / (2 * sigma**2))

    nearest = min(max(math.atan2(x2, x1), 0.0), math.pi)
    edges = sorted({0.0, max(nearest - 6 * sigma, 0.0), nearest, min(nearest + 6 * sigma, math.pi)})
    edges = [*edges, math.pi] if edges[-1] < math.pi else edges
    total = sum(
        quad(integrand, low, high, epsabs=0, epsrel=1e-11, limit=200)[0]
        for low, high in zip(edges[:-1], edges[1:], strict=True)
    )
    return total / (2 * math.pi**2 * sigma**2)


POINTS = np.vstack(
    [
        np.random.default_rng(0).uniform(-1.8, 1.8, size=(60, 2)),
        [[0, 0], [0, -1], [0, 1], [1, 0], [-1, 0], [1e-9, -0.5], [0.7, 0.7], [0.9, -0.3]],
    ]
)


@pytest.mark.parametrize("sigma", [0.15, 0.4, 1.0, 4.0])
def test_density_of_a_moon_against_quadrature(sigma):
    expected = [half_circle_by_quadrature(*point, sigma) for point in POINTS]
    density = np.exp(log_half_circle(POINTS, sigma))
    np.testing.assert_allclose(density, expected, rtol=1e-8)


@pytest.mark.parametrize("noise", [0.15, 0.4, 1.0])
def test_class_probabilities_of_moons_against_quadrature(noise):
    outer = np.array([half_circle_by_quadrature(*point, noise) for point in POINTS])
    inner = np.array([half_circle_by_quadrature(1 - a, 0.5 - b, noise) for a, b in POINTS])
    p = Moons(noise=noise).class_probabilities(POINTS)
    np.testing.assert_allclose(p[:, 0], outer / (outer + inner), atol=1e-9)


@pytest.mark.parametrize("noise", [0.2, 0.5])
def test_class_probabilities_of_circles_against_quadrature(noise):
    def density(point, radius):
        def integrand(t):
            place = radius * np.array([math.cos(t), math.sin(t)])
            return math.exp(-((point - place) ** 2).sum() / (2 * noise**2))

        peak = math.atan2(point[1], point[0])
        return quad(integrand, peak - math.pi, peak + math.pi, points=[peak], epsabs=0)[0]

    p = Circles(noise=noise, factor=0.6).class_probabilities(POINTS)
    for point, probability in zip(POINTS, p[:, 0], strict=True):
        outer, inner = density(point, 1.0), density(point, 0.6)
        assert probability == pytest.approx(outer / (outer + inner), abs=1e-9)


@pytest.mark.parametrize(
    "spec", [Moons(noise=0.01), Moons(noise=5.0), Circles(noise=0.01)], ids=str
)
def test_class_probabilities_in_the_far_field(spec):
    turn = np.linspace(0, 2 * np.pi, 25)
    circle = np.column_stack([np.cos(turn), np.sin(turn)])
    x = np.vstack([radius * circle for radius in (0.0, 1e-12, 10.0, 1e4, 1e8, 1e30, 1e100)])
    p = spec.class_probabilities(x)
    assert np.isfinite(p).all()
    assert (p >= 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-15)


def test_class_probabilities_far_away_are_decided_by_the_nearer_curve():
    p = Moons(noise=0.05).class_probabilities([[-1e6, 0.0], [1e6, 0.0], [0.0, 1e6], [1.0, -1e6]])
    np.testing.assert_allclose(p, [[1, 0], [0, 1], [1, 0], [0, 1]], atol=1e-12)


def test_class_probabilities_do_not_depend_on_the_batch():
    spec = Moons(noise=0.3)
    x, _ = spec.sample(20_000, random_seed=0)
    whole = spec.class_probabilities(x)
    np.testing.assert_allclose(spec.class_probabilities(x[-50:]), whole[-50:], rtol=1e-12)
    assert spec.class_probabilities(np.empty((0, 2))).shape == (0, 2)


def distance_to_curves(spec, x, y):
    """Distance of each point from the curve of its class."""
    if isinstance(spec, Circles):
        return np.abs(np.hypot(*x.T) - np.where(y == 0, 1.0, spec.factor))
    x = np.where(y[:, None] == 0, x, (1.0, 0.5) - x)
    assert (x[:, 1] > -1e-4).all()
    return np.abs(np.hypot(*x.T) - 1.0)


def test_rows_of_the_inner_circle_have_its_radius():
    dataset = Circles(noise=1e-6, factor=0.3).load()
    x = dataset.standardisation.undo(dataset.x_train)
    radius = np.where(dataset.y_train == 0, 1.0, 0.3)
    np.testing.assert_allclose(np.hypot(*x.T), radius, atol=1e-4)


@pytest.mark.parametrize("spec", [Moons(noise=1e-6), Circles(noise=1e-6, factor=0.3)], ids=str)
def test_geometry_is_scikit_learns(spec):
    size = 40_000
    if isinstance(spec, Moons):
        theirs = make_moons(size, noise=1e-6, random_state=0)
    else:
        theirs = make_circles(size, noise=1e-6, factor=spec.factor, random_state=0)
    ours = spec.sample(size, random_seed=0)
    for x, y in (theirs, ours):
        assert distance_to_curves(spec, x, y).max() < 1e-5
        assert (spec.class_probabilities(x).argmax(axis=1) == y).all()
    # The cosine of a uniform angle has density 1/π or more, so that a quantile of n of them has
    # a standard error of at most π / (2 √n); the limit is five of these.
    limit = 5 * math.pi / (2 * math.sqrt(size / 2))
    for label in (0, 1):
        quartiles = [
            np.quantile(x[y == label], [0, 0.25, 0.5, 0.75, 1], axis=0) for x, y in (ours, theirs)
        ]
        np.testing.assert_allclose(*quartiles, atol=limit)


@pytest.mark.parametrize("spec", [Moons(noise=0.3), Circles(noise=0.3)], ids=str)
def test_sampled_rows(spec):
    x, y = spec.sample(20_000, random_seed=3)
    assert x.shape == (20_000, 2)
    assert y.dtype == np.int64
    assert abs(y.mean() - 0.5) < 4 * 0.5 / math.sqrt(20_000)
    again, other = spec.sample(20_000, random_seed=3), spec.sample(20_000, random_seed=4)
    np.testing.assert_array_equal(x, again[0])
    assert not np.array_equal(x, other[0])


@pytest.mark.parametrize(
    "spec", [Moons(noise=0.3, train=61, test=40), Circles(noise=0.3, train=10, test=11)], ids=str
)
def test_loaded_rows(spec):
    data = spec.load()
    assert (len(data.x_train), len(data.x_test)) == spec.rows == (spec.train, spec.test)
    assert data.x_train.dtype == data.x_test.dtype == np.float64
    assert data.y_train.dtype == data.y_test.dtype == np.int64
    assert data.features == ("x1", "x2")
    assert data.classes == ("0", "1")
    assert data.source == "scikit-learn"
    assert len(data.features) == spec.n_features
    assert len(data.classes) == spec.n_classes
    assert spec.is_planar
    for y in (data.y_train, data.y_test):
        assert abs(y.sum() - len(y) / 2) <= 1


def test_standardisation_is_fitted_on_the_training_rows():
    spec = Moons(noise=0.3, train=200, test=100, seed=5)
    data = spec.load()
    np.testing.assert_allclose(data.x_train.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(data.x_train.std(axis=0), 1, rtol=1e-12)
    assert not np.allclose(data.x_test.mean(axis=0), 0, atol=1e-6)
    raw, _ = make_moons(300, noise=0.3, random_state=5)
    both = np.vstack([data.x_train, data.x_test])
    unscaled = both * data.standardisation.sd + data.standardisation.mean
    np.testing.assert_allclose(np.sort(unscaled, axis=0), np.sort(raw, axis=0), atol=1e-12)


@pytest.mark.parametrize("cls", [Moons, Circles])
def test_rows_are_seeded(cls):
    first = cls(noise=0.3, seed=1).load()
    assert cls(noise=0.3, seed=1).load().fingerprint == first.fingerprint
    assert cls(noise=0.3, seed=2).load().fingerprint != first.fingerprint
    assert cls(noise=0.31, seed=1).load().fingerprint != first.fingerprint


@pytest.mark.parametrize(
    ("cls", "settings", "message"),
    [
        (Moons, {}, "`noise` is missing"),
        (Moons, {"noise": 0.0}, "`noise` must be > 0"),
        (Moons, {"noise": "0.3"}, "`noise` must be a number"),
        (Moons, {"noise": 0.3, "train": 9}, "`train` must be >= 10"),
        (Moons, {"noise": 0.3, "test": 9}, "`test` must be >= 10"),
        (Moons, {"noise": 0.3, "seed": -1}, "`seed` must be >= 0"),
        (Moons, {"noise": 0.3, "factor": 0.5}, "no argument `factor`"),
        (Moons, {"noise": 0.3, "kind": "circles"}, "`kind` must be one of"),
        (Circles, {"noise": 0.3, "factor": 1.0}, "`factor` must be < 1"),
        (Circles, {"noise": 0.3, "factor": 0.0}, "`factor` must be > 0"),
    ],
)
def test_settings_are_checked(cls, settings, message):
    with pytest.raises(ConfigError, match=message):
        cls(**settings)
