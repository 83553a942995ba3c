"""Convolution and pooling against SciPy and plain loops."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.signal import correlate

from pmbnn.models.layers import average_pool, convolve, max_pool

ROWS = 4
SHAPES = [(1, 5, 5), (2, 6, 4), (3, 7, 9)]
SIZES = [1, 3]


def images_of(shape, rows=ROWS):
    return np.random.default_rng(0).normal(size=(*shape, rows))


def kernels_of(channels, size, units=2):
    return np.random.default_rng(1).normal(size=(channels, size, size, units))


def symbols(*arrays):
    return [pt.tensor(name, shape=a.shape) for name, a in zip("ab", arrays, strict=False)]


def by_scipy(images, kernels, padding):
    """Every output channel of every image is the sum of its input channels' correlations."""
    return np.stack(
        [
            np.stack(
                [
                    sum(
                        correlate(image, kernel, mode=padding, method="direct")
                        for image, kernel in zip(one, kernels[..., unit], strict=True)
                    )
                    for one in np.moveaxis(images, -1, 0)
                ],
                axis=-1,
            )
            for unit in range(kernels.shape[-1])
        ]
    )


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shape", SHAPES)
def test_convolve(shape, size, padding, evaluate):
    images, kernels = images_of(shape), kernels_of(shape[0], size)
    a, b = symbols(images, kernels)
    [found] = evaluate([convolve(a, b, shape, size, padding)], {a: images, b: kernels})
    expected = by_scipy(images, kernels, padding)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("stride", [2, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_stride(shape, stride, padding, evaluate):
    """Every so many positions of the convolution without a stride."""
    images, kernels = images_of(shape), kernels_of(shape[0], 3)
    a, b = symbols(images, kernels)
    maps = convolve(a, b, shape, 3, padding, stride=stride)
    [found] = evaluate([maps], {a: images, b: kernels})
    expected = by_scipy(images, kernels, padding)[:, ::stride, ::stride]
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_large_kernel(evaluate):
    """A valid kernel of the size of the image leaves one position: a plain product."""
    images, kernels = images_of((2, 5, 5)), kernels_of(2, 5)
    a, b = symbols(images, kernels)
    [found] = evaluate([convolve(a, b, (2, 5, 5), 5)], {a: images, b: kernels})
    assert found.shape == (2, 1, 1, ROWS)
    np.testing.assert_allclose(found[:, 0, 0], np.einsum("cijr,cijk->kr", images, kernels))


def test_even_kernel(evaluate):
    images, kernels = images_of((1, 5, 6)), kernels_of(1, 2)
    a, b = symbols(images, kernels)
    [found] = evaluate([convolve(a, b, (1, 5, 6), 2)], {a: images, b: kernels})
    np.testing.assert_allclose(found, by_scipy(images, kernels, "valid"), rtol=1e-12, atol=1e-12)


def test_correlation_not_convolution(evaluate):
    """Kernels are not turned: a one in the first corner reads the pixel above on the left."""
    images, kernels = images_of((1, 4, 4)), np.zeros((1, 3, 3, 1))
    kernels[0, 0, 0, 0] = 1.0
    a, b = symbols(images, kernels)
    [found] = evaluate([convolve(a, b, (1, 4, 4), 3)], {a: images, b: kernels})
    np.testing.assert_array_equal(found, images[:, :2, :2])


def pooled_by_loops(images, size, of=np.max):
    channels, rows, columns, n = images.shape
    out = np.empty((channels, rows // size, columns // size, n))
    for i in range(out.shape[1]):
        for j in range(out.shape[2]):
            square = images[:, i * size : (i + 1) * size, j * size : (j + 1) * size]
            out[:, i, j] = of(square, axis=(1, 2))
    return out


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("shape", [(1, 4, 4), (2, 5, 6), (3, 7, 9)])
def test_max_pool(shape, size, evaluate):
    """Rows and columns that do not fill a square are dropped, even if largest."""
    images = images_of(shape)
    images[:, -1, -1] += 100.0
    (a,) = symbols(images)
    [found] = evaluate([max_pool(a, shape, size)], {a: images})
    np.testing.assert_array_equal(found, pooled_by_loops(images, size))


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("shape", [(1, 4, 4), (2, 5, 6), (3, 7, 9)])
def test_average_pool(shape, size, evaluate):
    images = images_of(shape)
    (a,) = symbols(images)
    [found] = evaluate([average_pool(a, shape, size)], {a: images})
    np.testing.assert_allclose(found, pooled_by_loops(images, size, np.mean), rtol=1e-12)


@pytest.mark.parametrize("padding", ["valid", "same"])
def test_gradients(padding, evaluate):
    """In pixels and kernels: finite, and the slope of finite differences."""
    shape = (2, 5, 4)
    images, kernels = images_of(shape), kernels_of(2, 3)
    a, b = symbols(images, kernels)
    maps = convolve(a, b, shape, 3, padding)
    rows, columns = (3, 2) if padding == "valid" else (5, 4)
    total = (max_pool(maps, (2, rows, columns), 2) ** 2).sum()
    gradients = evaluate(pytensor.grad(total, [a, b]), {a: images, b: kernels})
    rng, h = np.random.default_rng(2), 1e-6
    steps = [rng.normal(size=g.shape) for g in gradients]
    up, down = (
        evaluate([total], {a: images + s * h * steps[0], b: kernels + s * h * steps[1]})[0]
        for s in (1, -1)
    )
    assert all(np.isfinite(g).all() for g in gradients)
    assert any(np.abs(g).max() > 1 for g in gradients)
    slope = sum((g * step).sum() for g, step in zip(gradients, steps, strict=True))
    np.testing.assert_allclose((up - down) / (2 * h), slope, rtol=1e-6)


def test_static_shapes():
    """Lengths are known without values, as JAX needs them, for rows known or open."""
    a, b = symbols(images_of((2, 7, 9)), kernels_of(2, 3, units=4))
    valid, same = (convolve(a, b, (2, 7, 9), 3, padding) for padding in ("valid", "same"))
    assert valid.type.shape[1:] == (5, 7, ROWS)
    assert same.type.shape[1:] == (7, 9, ROWS)
    assert max_pool(valid, (4, 5, 7), 2).type.shape[:3] == (4, 2, 3)


def test_open_rows(evaluate):
    """One graph predicts for any number of observations."""
    a, b = pt.tensor("a", shape=(1, 5, 5, None)), pt.tensor("b", shape=(1, 3, 3, 2))
    pooled = max_pool(convolve(a, b, (1, 5, 5), 3, "same"), (2, 5, 5), 2)
    kernels = kernels_of(1, 3)
    for rows in (1, 3):
        images = images_of((1, 5, 5), rows)
        [found] = evaluate([pooled], {a: images, b: kernels})
        expected = pooled_by_loops(by_scipy(images, kernels, "same"), 2)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
