"""Sine and quartic: their rows, their truth, and how they are split."""

import numpy as np
import pytest

from pmbnn.data import Quartic, Sine
from pmbnn.data.arrays import Rows


def test_rows_of_the_sine():
    spec = Sine(train=32, noise=1.0, seed=3)
    data = spec.load()
    np.testing.assert_allclose(data.x_train[:, 0], np.linspace(-0.5, 0.5, 32))
    noise = data.y_train - 10 * np.sin(2 * np.pi * data.x_train[:, 0])
    assert 0.6 < noise.std() < 1.4
    assert (len(data.y_train), len(data.y_test)) == spec.rows
    assert data.y_train.dtype == np.float64
    assert data.classes == ()
    assert data.training.n_classes is None


def test_test_rows_are_dense_in_range_and_noisy():
    data = Sine(noise=1.0).load()
    x = data.x_test[:, 0]
    assert (x[0], x[-1]) == (-0.5, 0.5)
    noise = data.y_test - 10 * np.sin(2 * np.pi * x)
    # The standard error of a standard deviation of n normals is sd / √(2n).
    assert abs(noise.std() - 1) < 4 / np.sqrt(2 * len(x))


def test_noise_depends_on_the_seed_alone():
    first, again, other = (Sine(seed=seed).load() for seed in (0, 0, 1))
    assert first.fingerprint == again.fingerprint != other.fingerprint
    assert not np.isin(first.y_train, first.y_test).any()


def test_the_six_points():
    data = Quartic().load()
    np.testing.assert_array_equal(data.x_train[:, 0], [-2, -1.8, -1, 1, 1.8, 2])
    np.testing.assert_allclose(data.y_train, [-3, 0.2224, 3, 3, 0.2224, -3], rtol=1e-12)
    assert np.ptp(data.y_test - Quartic().truth(data.x_test[:, 0])) == 0


def test_noise_on_the_six_points():
    spec = Quartic(noise=0.5, seed=1)
    assert np.std(spec.load().y_train - spec.truth(spec.inputs())) > 0.1


@pytest.mark.parametrize("spec", [Sine(), Quartic()], ids=lambda s: s.kind)
def test_nothing_is_standardised(spec):
    data = spec.load()
    np.testing.assert_array_equal(data.standardisation.mean, [0.0])
    np.testing.assert_array_equal(data.standardisation.sd, [1.0])
    np.testing.assert_array_equal(data.x_train[:, 0], spec.inputs())


@pytest.mark.parametrize("spec", [Sine(), Quartic()], ids=lambda s: s.kind)
def test_ranges_start_with_that_of_the_rows_and_widen(spec):
    x, ranges = spec.inputs(), spec.ranges
    assert ranges[0] == (x.min(), x.max())
    assert all(b[0] < a[0] and a[1] < b[1] for a, b in zip(ranges, ranges[1:], strict=False))


@pytest.mark.parametrize("spec", [Sine(), Quartic()], ids=lambda s: s.kind)
def test_curves_are_drawn_on_the_ranges(spec):
    lines = spec.lines()
    assert [(line.position[0], line.position[-1]) for line in lines] == list(spec.ranges)
    for line in lines:
        np.testing.assert_array_equal(line.inputs[:, 0], line.position)
        np.testing.assert_array_equal(line.truth, spec.truth(line.position))
        assert line.gap is None
    assert spec.line_points == sum(len(line.position) for line in lines)


def test_numbers_are_split_without_classes():
    rows = Sine(seed=2).load().training
    kept, held_out = rows.split(0.2, random_seed=0)
    assert (len(kept), len(held_out)) == (25, 7)
    np.testing.assert_array_equal(np.sort(np.r_[kept.y, held_out.y]), np.sort(rows.y))


def test_outputs_are_the_classes_where_there_are_some():
    assert Rows(np.zeros((2, 1)), np.array([0, 1]), ("x",), ("a", "b")).n_classes == 2
