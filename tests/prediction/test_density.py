"""Mixtures of normals and the metrics of numbers, against SciPy and brute force."""

from dataclasses import fields

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad, simpson
from tiers import slow_but

from pmbnn.data.arrays import Standardisation
from pmbnn.models.components import NormalComponents, StudentTComponents
from pmbnn.prediction.density import Mixture, join, mixture_crps, summarise, summarise_all
from pmbnn.prediction.metrics import LEVELS, coverage, metrics_of, regression_metrics, rmse

RNG = np.random.default_rng(4)
MU = RNG.normal([0.0, 3.0, -2.0], [0.5, 2.0, 0.01], size=(7, 3))
SIGMA = RNG.uniform(0.2, 1.5, 7)
DRAWS = Mixture(NormalComponents(MU, SIGMA[:, None]), RNG.dirichlet(np.ones(7)))
TARGET = np.array([0.3, -4.0, -2.5])


def normals(mu, sigma, weight=None):
    weight = np.full(len(mu), 1 / len(mu)) if weight is None else weight
    return Mixture(NormalComponents(mu, sigma[:, None]), weight)


def cdf_of(observation, t):
    normal = stats.norm(MU[:, observation], SIGMA)
    return DRAWS.weight @ normal.cdf(np.asarray(t)[..., None]).T


def test_moments_are_those_of_the_mixture():
    mean = DRAWS.weight @ MU
    square = DRAWS.weight @ (MU**2 + SIGMA[:, None] ** 2)
    np.testing.assert_allclose(DRAWS.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(DRAWS.total_sd, np.sqrt(square - mean**2), rtol=1e-9)
    epistemic = np.sqrt(DRAWS.weight @ MU**2 - mean**2)
    np.testing.assert_allclose(DRAWS.epistemic_sd, epistemic, rtol=1e-6)


def test_parts_of_the_uncertainty_of_two_draws():
    """By hand: means of 0 and 4 with noises of 1 and 3, then equal means; of two targets alike."""
    draws = normals(np.array([[0.0, 2.0], [4.0, 2.0]]), np.array([1.0, 3.0]))
    uneven = normals(np.array([[0.0], [4.0]]), np.array([1.0, 3.0]), np.array([0.75, 0.25]))
    by_hand = {"total": [9, 5], "aleatoric": [5, 5], "epistemic": [4, 0]}
    for name, expected in by_hand.items():
        np.testing.assert_allclose(summarise(draws).uncertainty()[name], expected, atol=1e-12)
        both = summarise_all([draws, draws]).uncertainty()[name]
        np.testing.assert_allclose(both.T, [expected, expected], atol=1e-12)
    in_cm = summarise(uneven).in_units_of(Standardisation(np.ones(1), np.full(1, 100.0)))
    parts = {name: part.item() for name, part in in_cm.uncertainty().items()}
    assert parts == pytest.approx({"total": 6e4, "aleatoric": 3e4, "epistemic": 3e4})


def test_density_and_probability_of_less():
    for i, target in enumerate(TARGET):
        density = DRAWS.weight @ stats.norm(MU[:, i], SIGMA).pdf(target)
        assert DRAWS.log_density(TARGET)[i] == pytest.approx(np.log(density))
        assert DRAWS.cdf(TARGET)[i] == pytest.approx(cdf_of(i, target))


def test_density_far_in_the_tails_is_finite():
    far = DRAWS.log_density(np.full(3, 1e4))
    assert np.isfinite(far).all() and (far < -1e6).all()


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_total_interval_leaves_out_equal_tails(level):
    low, high = DRAWS.total_interval(level)
    np.testing.assert_allclose(DRAWS.cdf(low), (1 - level) / 2, atol=1e-9)
    np.testing.assert_allclose(DRAWS.cdf(high), (1 + level) / 2, atol=1e-9)


@pytest.mark.parametrize("widest", [1e6, 1e12, 1e30])
def test_one_very_wide_component_moves_no_quantile(widest):
    """As of heteroscedastic noise far from the rows: against the quantiles with its tails cut."""
    mixture = normals(np.zeros((100, 1)), np.append(np.ones(99), widest))
    for level in (0.5, 0.95):
        # Half of the widest component is below either bound, and half above.
        outside = ((1 - level) / 2 - 0.005) / 0.99
        expected = stats.norm.isf(outside) * np.array([[-1], [1]])
        np.testing.assert_allclose(mixture.total_interval(level), expected, rtol=1e-4)


def test_output_interval_is_of_the_weighted_draws():
    low, high = DRAWS.output_interval(0.9)
    for i in range(3):
        order = np.argsort(MU[:, i])
        reached = np.cumsum(DRAWS.weight[order])
        expected = [MU[order[np.searchsorted(reached, p)], i] for p in (0.05, 0.95)]
        assert [low[i], high[i]] == expected


def test_ranked_probability_score_is_its_integral():
    for i, (target, score) in enumerate(zip(TARGET, DRAWS.crps(TARGET), strict=True)):
        left, right = np.linspace(-40, target, 20_001), np.linspace(target, 40, 20_001)
        below, above = (
            simpson(cdf_of(i, left) ** 2, left),
            simpson((1 - cdf_of(i, right)) ** 2, right),
        )
        assert score == pytest.approx(below + above, rel=1e-6)


def test_ranked_probability_score_of_one_normal():
    one = normals(np.zeros((1, 1)), np.ones(1))
    # 2 φ(0) − 1/√π, of a standard normal at its mean
    assert one.crps(np.zeros(1))[0] == pytest.approx(2 * stats.norm.pdf(0) - 1 / np.sqrt(np.pi))


def test_score_without_a_closed_form():
    """By quadrature, for the same mixture in SciPy's own words; broad ones, far targets."""
    components = stats.norm(MU, SIGMA[:, None])
    for target in (TARGET, np.array([25.0, 3.0, -30.0])):
        found = Mixture(components, DRAWS.weight).crps(target)
        np.testing.assert_allclose(found, DRAWS.crps(target), rtol=1e-5)
    # One Laplace distribution at its centre: a quarter of its scale.
    laplace = Mixture(stats.laplace(np.zeros((1, 1)), 2.0), np.ones(1))
    assert laplace.crps(np.zeros(1))[0] == pytest.approx(2 / 4, rel=1e-5)


@pytest.mark.parametrize("nu", slow_but([2.1], [2.1, 5.0, 80.0]))
def test_score_of_heavy_tails(nu):
    """Against the integral of its definition, which has a step at the target."""
    degrees, sigma = nu + RNG.random((7, 1)), SIGMA[:, None]
    draws = Mixture(StudentTComponents(degrees, MU, sigma), DRAWS.weight)
    far = np.geomspace(8, 1e6, 40)
    for i, (target, found) in enumerate(zip(TARGET, draws.crps(TARGET), strict=True)):
        t = stats.t(degrees[:, 0], MU[:, i], SIGMA)

        def square(x, t=t, target=target):
            return (draws.weight @ t.cdf(x) - (x >= target)) ** 2

        pieces = np.sort(np.concatenate([-far, np.linspace(-7, 7, 15), far, [target]]))
        parts = [quad(square, *ends)[0] for ends in zip(pieces, pieces[1:], strict=False)]
        assert found == pytest.approx(sum(parts), rel=2e-4)


def test_the_score_of_many_degrees_of_freedom_is_that_of_normals():
    degrees = np.full((7, 1), 1e7)
    draws = Mixture(StudentTComponents(degrees, MU, SIGMA[:, None]), DRAWS.weight)
    np.testing.assert_allclose(draws.crps(TARGET), DRAWS.crps(TARGET), rtol=1e-4)


def test_noise_that_differs_between_observations():
    sigma = SIGMA[:, None] * np.array([1.0, 2.0, 0.5])
    found = Mixture(NormalComponents(MU, sigma), DRAWS.weight)
    for i, scale in enumerate((1.0, 2.0, 0.5)):
        alone = normals(MU[:, [i]], scale * SIGMA, DRAWS.weight)
        for name in ("crps", "cdf", "log_density"):
            one = getattr(alone, name)(TARGET[[i]])
            np.testing.assert_allclose(getattr(found, name)(TARGET)[i], one[0], rtol=1e-9)
        np.testing.assert_allclose(found.total_sd[i], alone.total_sd[0], rtol=1e-12)
        interval = found.total_interval()[:, i]
        np.testing.assert_allclose(interval, alone.total_interval()[:, 0], rtol=1e-9)


def test_many_draws_are_thinned_for_the_score():
    output = np.random.default_rng(0).normal(size=(2000, 1))
    many = normals(output, np.full(2000, 0.5))
    sd = np.sqrt(1.25)
    exact = sd * (2 * stats.norm.pdf(0) - 1 / np.sqrt(np.pi))
    assert many.crps(np.zeros(1))[0] == pytest.approx(exact, rel=0.1)


def test_of_unequal_sources_those_count_that_predict():
    """One of ten with nearly all weight: a twentieth of its draws would say too little."""
    rng = np.random.default_rng(1)
    output = np.repeat(rng.normal(size=(10, 30)), 200, axis=0) + rng.normal(size=(2000, 30))
    weight = np.repeat([0.91] + 9 * [0.01], 200) / 200
    many, target = normals(output, np.full(2000, 0.2), weight), np.zeros(30)
    exact = mixture_crps.dispatch(object)(many.components, weight, target)
    np.testing.assert_allclose(many.crps(target), exact, rtol=0.12)
    assert many.crps(target).mean() == pytest.approx(exact.mean(), rel=0.02)


def test_a_single_point_has_noise_alone():
    one = normals(np.array([[1.0, 2.0]]), np.array([0.1]))
    found = summarise(one)
    np.testing.assert_array_equal(found.epistemic_sd, [0, 0])
    np.testing.assert_allclose(found.total_sd, [0.1, 0.1])
    np.testing.assert_allclose(found.total_interval, [[0.804, 1.804], [1.196, 2.196]], atol=1e-4)
    assert np.isnan(found.crps).all()


def test_parts_are_joined_in_order():
    parts = [
        summarise(normals(MU[:, rows], SIGMA, DRAWS.weight), TARGET[rows])
        for rows in (slice(0, 1), slice(1, 3))
    ]
    whole, joined = summarise(DRAWS, TARGET), join(parts)
    for name in ("mean", "total_interval", "crps"):
        np.testing.assert_allclose(getattr(joined, name), getattr(whole, name), rtol=1e-12)


def test_several_targets_are_summarised_each_and_scored_together():
    """Against SciPy; draws tie the targets together, so that densities do not multiply."""
    other = normals(2 - MU, 3 * SIGMA, DRAWS.weight)
    target = np.stack([TARGET, TARGET[::-1]], axis=1)
    found = summarise_all([DRAWS, other], target)
    for i, one in enumerate((DRAWS, other)):
        alone, own = summarise(one, target[:, i]), found.of_target(i)
        for name in ("mean", "total_sd", "total_interval", "cdf", "crps"):
            np.testing.assert_array_equal(getattr(own, name), getattr(alone, name))
    first, second = stats.norm(MU, SIGMA[:, None]), stats.norm(2 - MU, 3 * SIGMA[:, None])
    density = DRAWS.weight @ (first.pdf(target[:, 0]) * second.pdf(target[:, 1]))
    np.testing.assert_allclose(found.log_density, np.log(density), rtol=1e-9)
    parts = [
        summarise_all(
            [
                normals(m.components.mu[:, rows], m.components.sigma[:, 0], m.weight)
                for m in (DRAWS, other)
            ],
            target[rows],
        )
        for rows in (slice(0, 1), slice(1, 3))
    ]
    np.testing.assert_allclose(join(parts).total_interval, found.total_interval, rtol=1e-12)
    # One row may have more targets than there are rows.
    np.testing.assert_array_equal(parts[0].of_target(1).mean, found.mean[:1, 1])
    scores = metrics_of(found, target)
    assert list(scores) == ["nll", "coverage_50", "coverage_90", "coverage_95"]
    assert scores["coverage_90"] == np.mean(np.abs(found.cdf - 0.5) <= 0.45)


def test_several_targets_in_units_of_their_own():
    sd, mean = np.array([4.0, 0.5]), np.array([20.0, -3.0])
    units, target = Standardisation(mean, sd), np.stack([TARGET, -TARGET], axis=1)
    found = summarise_all([DRAWS, DRAWS], target).in_units_of(units)
    scaled = [normals(m + s * MU, s * SIGMA, DRAWS.weight) for m, s in zip(mean, sd, strict=True)]
    expected = summarise_all(scaled, units.undo(target))
    for field in fields(found):
        ours, theirs = (getattr(of, field.name) for of in (found, expected))
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, err_msg=field.name)


# --- metrics ------------------------------------------------------------------------------


def test_root_of_the_mean_squared_error():
    assert rmse(np.array([1.0, 2.0]), np.array([1.0, 4.0])) == pytest.approx(np.sqrt(2))


def test_coverage_counts_what_lies_within_the_interval():
    for level in LEVELS:
        low, high = DRAWS.total_interval(level)
        inside = np.mean((low <= TARGET) & (high >= TARGET))
        assert coverage(DRAWS.cdf(TARGET), level) == inside


def test_a_calibrated_prediction_covers_as_it_says():
    cdf = (np.arange(1000) + 0.5) / 1000
    assert [coverage(cdf, level) for level in LEVELS] == pytest.approx(LEVELS, abs=0.001)


def test_the_nll_of_the_moments_is_that_of_a_normal_distribution():
    found = metrics_of(summarise(DRAWS, TARGET), TARGET)
    expected = -stats.norm(DRAWS.mean, DRAWS.total_sd).logpdf(TARGET).mean()
    assert found["normal_nll"] == pytest.approx(expected)
    assert found["normal_nll"] != pytest.approx(found["nll"], rel=1e-3)
    one = Mixture(NormalComponents(DRAWS.mean[None], DRAWS.total_sd[None]), np.ones(1))
    alone = metrics_of(summarise(one, TARGET), TARGET)
    assert alone["normal_nll"] == pytest.approx(alone["nll"])


def test_all_metrics_by_name():
    found = regression_metrics(
        DRAWS.mean, TARGET, DRAWS.log_density(TARGET), DRAWS.cdf(TARGET), DRAWS.crps(TARGET)
    )
    assert list(found) == ["rmse", "nll", "crps", "coverage_50", "coverage_90", "coverage_95"]
    assert found["nll"] == pytest.approx(-DRAWS.log_density(TARGET).mean())
    assert found["crps"] == pytest.approx(DRAWS.crps(TARGET).mean())
