"""The guides against SciPy's multivariate normal distribution, and where they start."""

import numpy as np
import pytensor.tensor as pt
import pytest
from scipy.stats import multivariate_normal

from pmbnn.inference.guides import (
    GUIDES,
    LARGEST_FULL_RANK,
    build_guide,
    inverse_softplus,
    softplus,
)
from pmbnn.inference.settings import Inference

SIZE = 6
DISTRIBUTIONS = ["mean_field", "low_rank", "full_rank"]
POINTS = ["map", "maximum_likelihood"]


def build(name, cap=None, size=SIZE, rank=3):
    rate = 0.1 if name == "dropout" else None
    settings = Inference(guide=name, rank=rank, dropout_rate=rate, improper_scale_cap=cap or 10.0)
    masks = np.full(size, -1) if name == "dropout" else None
    return build_guide(settings, size, improper=cap is not None, masks=masks)


def random_parameters(guide, random_seed=0):
    """Scales between 10⁻² and 5, and correlations of any size."""
    rng = np.random.default_rng(random_seed)
    found = {name: 3 * rng.normal(size=shape) for name, shape in guide.shapes.items()}
    if "rho" in found:
        found["rho"] = np.linspace(-4.5, 5.0, guide.size)
    return found


def evaluated(guide, parameters, graphs_of, evaluate):
    """Values of the graphs that `graphs_of` makes of the guide's constrained parameters."""
    inputs = {name: pt.tensor(name, dtype="float64", shape=s) for name, s in guide.shapes.items()}
    graphs = graphs_of(guide.constrained(inputs))
    return evaluate(graphs, {inputs[name]: value for name, value in parameters.items()})


def natural_of(guide, parameters, evaluate):
    names = list(guide.constrained_shapes)
    values = evaluated(guide, parameters, lambda n: [n[name] for name in names], evaluate)
    return dict(zip(names, values, strict=True))


def mean_and_covariance(guide, constrained):
    """Of draws: they are linear in their noise, so one for each of its elements tells both."""
    zeros = {name: np.zeros(shape) for name, shape in guide.noise.items()}
    mean, centred = guide.draw(constrained, zeros), constrained | {"loc": np.zeros(guide.size)}
    columns = [
        guide.draw(centred, zeros | {name: unit.reshape(shape)})
        for name, shape in guide.noise.items()
        for unit in np.eye(int(np.prod(shape)))
    ]
    return mean, np.transpose(columns) @ np.array(columns)


# --- densities ----------------------------------------------------------------------------


@pytest.mark.parametrize("cap", [None, 1.5])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_equals_scipy(name, cap, evaluate):
    guide = build(name, cap)
    parameters = random_parameters(guide)
    mean, covariance = mean_and_covariance(guide, natural_of(guide, parameters, evaluate))
    np.testing.assert_array_equal(mean, parameters["loc"])
    expected = multivariate_normal(mean, covariance)
    values = mean + 2 * np.random.default_rng(3).normal(size=(4, SIZE))
    entropy, marginal, *densities = evaluated(
        guide,
        parameters,
        lambda n: [
            guide.entropy(n),
            guide.marginal_scale(n),
            *(guide.log_density(n, pt.constant(v)) for v in values),
        ],
        evaluate,
    )
    np.testing.assert_allclose(entropy, expected.entropy(), rtol=1e-9)
    np.testing.assert_allclose(marginal, np.sqrt(np.diag(covariance)), rtol=1e-9)
    np.testing.assert_allclose(densities, expected.logpdf(values), rtol=1e-9)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_cap(name, evaluate):
    """Wider elements are scaled to the cap; the others, and all correlations, stay."""
    cap, parameters = 1.5, random_parameters(build(name))
    free, capped = (
        mean_and_covariance(guide, natural_of(guide, parameters, evaluate))[1]
        for guide in (build(name), build(name, cap))
    )
    factor = np.minimum(1, cap / np.sqrt(np.diag(free)))
    assert 0 < (factor < 1).sum() < SIZE
    np.testing.assert_allclose(capped, factor[:, None] * free * factor, rtol=1e-12, atol=1e-15)
    assert np.sqrt(np.diag(capped)).max() <= cap * (1 + 1e-12)


def test_families_differ(evaluate):
    """Independent elements; a diagonal plus a matrix of the rank; anything."""
    covariances = {
        name: mean_and_covariance(g, natural_of(g, random_parameters(g), evaluate))[1]
        for name in DISTRIBUTIONS
        for g in [build(name, rank=2)]
    }
    diagonal = covariances["mean_field"]
    np.testing.assert_array_equal(diagonal, np.diag(np.diag(diagonal)))
    low = build("low_rank", rank=2)
    scale = natural_of(low, random_parameters(low), evaluate)["diagonal"]
    assert np.linalg.matrix_rank(covariances["low_rank"] - np.diag(scale**2), tol=1e-9) == 2
    assert (np.abs(covariances["full_rank"]) > 1e-12).all()


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_draws_of_arrays_and_of_graphs_agree(name, evaluate):
    """The ELBO draws in a graph, predictions draw arrays."""
    guide = build(name)
    parameters, rng = random_parameters(guide), np.random.default_rng(1)
    noise = {n: rng.normal(size=shape) for n, shape in guide.noise.items()}
    constants = {n: pt.constant(value) for n, value in noise.items()}
    [draw] = evaluated(guide, parameters, lambda n: [guide.draw(n, constants)], evaluate)
    expected = guide.draw(natural_of(guide, parameters, evaluate), noise)
    np.testing.assert_allclose(draw, expected, rtol=1e-12)


@pytest.mark.parametrize("name", POINTS)
def test_points(name, evaluate):
    """No noise, no spread, whether the model is improper or not."""
    guide = build(name, cap=0.5)
    parameters = random_parameters(guide)
    assert guide.is_point
    assert guide.noise == {}
    assert list(guide.shapes) == list(guide.constrained_shapes) == ["loc"]
    draw, scale = evaluated(
        guide, parameters, lambda n: [guide.draw(n, {}), guide.marginal_scale(n)], evaluate
    )
    np.testing.assert_array_equal(draw, parameters["loc"])
    np.testing.assert_array_equal(scale, np.zeros(SIZE))


# --- shapes and limits --------------------------------------------------------------------


@pytest.mark.parametrize("name", GUIDES)
def test_shapes(name, evaluate):
    """Of what an optimiser moves, and of what a fit keeps, are as announced."""
    guide = build(name)
    start = guide.initial(np.zeros(SIZE), 0.05, np.random.default_rng(0))
    assert {n: value.shape for n, value in start.items()} == guide.shapes
    constrained = natural_of(guide, start, evaluate)
    assert {n: value.shape for n, value in constrained.items()} == guide.constrained_shapes


@pytest.mark.parametrize(("rank", "kept"), [(3, 3), (6, 6), (10, 6)])
def test_rank_is_at_most_the_size(rank, kept):
    guide = build("low_rank", rank=rank)
    assert guide.rank == kept
    assert guide.shapes["factor"] == (SIZE, kept)


def test_full_rank_has_a_largest_size():
    message = (
        r"`guide` must not be full_rank for a model of 5,001 parameters: it takes at most "
        r"5,000\. `low_rank` has no such limit\."
    )
    with pytest.raises(ValueError, match=message):
        build("full_rank", size=LARGEST_FULL_RANK + 1)
    assert build("full_rank", size=LARGEST_FULL_RANK).size == LARGEST_FULL_RANK
    assert build("low_rank", size=LARGEST_FULL_RANK + 1).size == LARGEST_FULL_RANK + 1


@pytest.mark.parametrize("name", GUIDES)
def test_cap_is_for_improper_models(name):
    assert build(name).scale_cap is None
    assert build(name, cap=0.5).scale_cap == (None if name == "dropout" else 0.5)


# --- starts -------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-8, 1e-4, 0.05, np.log(2), 1.0, 10.0])
@pytest.mark.parametrize("name", ["mean_field", "full_rank"])
def test_start(name, scale, evaluate):
    """Independent elements of one scale around the means."""
    guide, loc = build(name), np.linspace(-2, 2, SIZE)
    start = guide.initial(loc, scale, np.random.default_rng(0))
    mean, covariance = mean_and_covariance(guide, natural_of(guide, start, evaluate))
    np.testing.assert_array_equal(mean, loc)
    np.testing.assert_allclose(covariance, scale**2 * np.eye(SIZE), rtol=1e-12)


@pytest.mark.parametrize("scale", [1e-8, 0.05, 10.0])
def test_start_of_a_low_rank(scale, evaluate):
    """A hundredth of the variance in the factor, or it would have no gradient."""
    guide, loc = build("low_rank", size=2000), np.linspace(-2, 2, 2000)
    start = guide.initial(loc, scale, np.random.default_rng(0))
    constrained = natural_of(guide, start, evaluate)
    np.testing.assert_array_equal(constrained["loc"], loc)
    np.testing.assert_allclose(constrained["diagonal"], scale, rtol=1e-12)
    share = (constrained["factor"] ** 2).sum(axis=1) / scale**2
    # Chi-squared over its degrees of freedom, 3, times a hundredth.
    assert abs(share.mean() - 0.01) < 4 * 0.01 * np.sqrt(2 / 3 / 2000)


def test_the_prng_key_decides_the_start_of_a_low_rank():
    guide = build("low_rank")
    first, same, other = (
        guide.initial(np.zeros(SIZE), 1.0, np.random.default_rng(i))["factor"] for i in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, same)
    assert (first != other).all()


@pytest.mark.parametrize("name", POINTS)
def test_start_of_a_point(name):
    loc = np.linspace(-2, 2, SIZE)
    start = build(name).initial(loc, 0.05, np.random.default_rng(0))
    np.testing.assert_array_equal(start["loc"], loc)


@pytest.mark.parametrize("scale", [1e-300, 1e-8, 1e-4, np.log(2), 1.0, 800.0])
def test_inverse_softplus(scale):
    np.testing.assert_allclose(softplus(inverse_softplus(scale)), scale, rtol=1e-12)


def test_softplus_does_not_overflow():
    np.testing.assert_array_equal(softplus(np.array([-800.0, 800.0])), [0.0, 800.0])


def test_guides_are_equal_where_they_draw_alike():
    some, others = (tuple(i < n for i in range(SIZE)) for n in (2, 3))
    made = [build(name, cap) for name in [*DISTRIBUTIONS, *POINTS[:1]] for cap in (None, 5.0)]
    settings = Inference()
    made += [build_guide(settings, SIZE, False, spread) for spread in (some, others)]
    made += [build("mean_field", size=SIZE + 1), build("low_rank", rank=2)]
    assert len(set(made)) == len(made)
    assert build("mean_field", 5.0) == made[1]
    assert build_guide(settings, SIZE, False, tuple(some)) == made[8]
    assert hash(build_guide(settings, SIZE, False, tuple(some))) == hash(made[8])
