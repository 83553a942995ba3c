"""Measures of weights, on draws that can be judged by hand."""

import numpy as np
import pytest
import xarray as xr

from pmbnn.results.reading import (
    away_from_zero,
    central_interval,
    excess_kurtosis,
    hoyer_sparsity,
    last_layer,
    learned_scales,
    narrow_about_zero,
)

EVEN = np.linspace(-1, 1, 201)
"""Draws whose central 90 % reach from -0.9 to 0.9."""


def posterior(best=1, **arrays):
    """Trace of two restarts of three draws; an array's values differ between restarts."""
    held = {
        name: (("restart", "draw", *dims), np.stack([np.full((3, *shape), v) for v in values]))
        for name, (dims, shape, values) in arrays.items()
    }
    restarts = xr.Dataset(held, {"restart": [0, 1]})
    # What a mixture predicts with: neither restart alone.
    mixture = (restarts.isel(restart=[0]) + 100).rename(restart="chain")
    groups = {"/posterior": mixture, "/restarts": restarts, "/fit": xr.Dataset()}
    groups["/fit"].attrs["best"] = best
    return xr.DataTree.from_dict(groups)


def test_intervals_leave_a_twentieth_on_either_side():
    low, high = central_interval(np.stack([EVEN, 2 * EVEN + 5], axis=1))
    np.testing.assert_allclose(low, [-0.9, 3.2])
    np.testing.assert_allclose(high, [0.9, 6.8])


@pytest.mark.parametrize("factor", [1.0, 1e-6, 1e6])
def test_what_a_weight_is_does_not_depend_on_the_unit(factor):
    """The layer's own scale is close to 10 / √5 = 4.5, so that narrow is within 2.2."""
    draws = factor * np.stack([EVEN + 10, 0.9 * EVEN, 2 * EVEN, 3 * EVEN, EVEN + 0.95], axis=1)
    np.testing.assert_array_equal(away_from_zero(draws), [True, False, False, False, True])
    np.testing.assert_array_equal(narrow_about_zero(draws), [False, True, True, False, False])


def test_one_weight_alone_is_not_narrow_by_itself():
    assert not narrow_about_zero(EVEN[:, None])[0]


def test_kurtosis():
    normal = np.random.default_rng(0).normal(size=200_000)
    assert excess_kurtosis(normal) == pytest.approx(0, abs=4 * np.sqrt(24 / 200_000))
    assert excess_kurtosis(np.array([-1.0, 1.0, -1.0, 1.0])) == -2
    one_of_ten = np.eye(10)[0]
    assert excess_kurtosis(one_of_ten) == pytest.approx(10 - 2 + 1 / 9 - 3)
    assert np.isnan(excess_kurtosis(np.ones(4)))


def test_hoyer_sparsity():
    assert hoyer_sparsity(np.array([3.0, -3.0, 3.0])) == pytest.approx(0)
    assert hoyer_sparsity(np.array([0.0, -1e-200, 0.0])) == pytest.approx(1)
    two_of_ten = np.array([1.0, -1.0, *np.zeros(8)])
    assert hoyer_sparsity(two_of_ten) == pytest.approx((10**0.5 - 2**0.5) / (10**0.5 - 1))
    assert np.isnan(hoyer_sparsity(np.zeros(3)))


def test_the_last_layer_is_that_of_the_best_restart():
    trace = posterior(
        weight_2=(("a", "b"), (2, 2), (5.0, 6.0)),
        weight_10=(("b", "output"), (2, 3), (7.0, 8.0)),
        bias_10=(("output",), (3,), (0.0, 0.0)),
    )
    found = last_layer(trace)
    assert found.shape == (3, 6)
    assert (found == 8.0).all()


def test_the_only_restart_is_the_posterior():
    trace = posterior(weight_1=(("a",), (2,), (5.0, 6.0)))
    del trace["restarts"]
    assert (last_layer(trace) == 105.0).all()


def test_a_posterior_without_weights_is_rejected():
    with pytest.raises(ValueError, match="must have weights: weight_1"):
        last_layer(posterior(noise=((), (), (1.0, 2.0))))


def test_learned_scales_are_medians_of_the_best_restart():
    trace = posterior(
        best=0,
        layer_1_scale=((), (), (0.5, 9.0)),
        layer_2_scale=(("unit",), (2,), (4.0, 9.0)),
        layer_1_variance=((), (), (0.25, 81.0)),
        weight_1_local=((), (), (1.0, 1.0)),
    )
    assert learned_scales(trace) == pytest.approx({"layer_1_scale": 0.5, "layer_2_scale": 4.0})
