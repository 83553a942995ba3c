"""Convolution and pooling in PyTensor, in the form that XLA runs fast on a CPU.

Images have the axes ``(channel, row, column, observation)``: observations last, because XLA
vectorises over the last axis. A convolution is a product of its kernels with patches: XLA's own
is many times slower inside a loop (jax issue 12868), as are its gradients.
"""

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pytensor.tensor import TensorVariable

Padding = Literal["valid", "same"]


def convolve(
    images: "TensorVariable",
    kernels: "TensorVariable",
    shape: tuple[int, int, int],
    size: int,
    padding: Padding = "valid",
    bias: "TensorVariable | None" = None,
    units: int = -1,
    stride: int = 1,
) -> "TensorVariable":
    """Cross-correlation of images with kernels, ``(output channel, row, column, observation)``.

    Parameters
    ----------
    images
        ``(input channel, row, column, observation)``.
    kernels
        ``(input channel, size, size, output channel)``.
    shape
        Channels, rows and columns of `images`: known numbers, which slices need.
    size
        Rows and columns of a kernel; odd with padding ``same``.
    padding
        ``valid``, kernels within the image only; or ``same``, zeros around it.
    bias
        Added at every position, ``(output channel,)``.
    units
        Number of output channels; JAX needs it for gradients where the type of `kernels` does
        not tell.
    stride
        Rows and columns between neighbouring positions of a kernel.
    """
    import pytensor.tensor as pt

    channels, rows, columns = shape
    observations = images.shape[-1]
    if padding == "same":
        reach, inner = size // 2, images
        rows, columns = rows + 2 * reach, columns + 2 * reach
        images = pt.zeros((channels, rows, columns, observations))
        images = images[:, reach:-reach, reach:-reach].set(inner) if reach else inner
    rows, columns = (positions(length, size, stride) for length in (rows, columns))
    steps = None if stride == 1 else stride

    def every(start: int, number: int) -> slice:
        return slice(start, start + (number - 1) * stride + 1, steps)

    windows = [
        images[:, every(i, rows), every(j, columns), :] for i in range(size) for j in range(size)
    ]
    patches = pt.stack(windows, axis=1).reshape((channels * size**2, -1))
    flat = kernels.reshape((channels * size**2, -1))
    maps = flat.T @ patches
    if bias is not None:
        # Next to the product, where estimators that rewrite products find it.
        maps = maps + bias[:, None]
    return maps.reshape((units, rows, columns, observations))


def positions(length: int, size: int, stride: int) -> int:
    """Number of positions of a kernel along an axis of `length` pixels, padding included."""
    return (length - size) // stride + 1


def max_pool(images: "TensorVariable", shape: tuple[int, int, int], size: int) -> "TensorVariable":
    """Maxima over squares that do not overlap; rows and columns left over are dropped.

    Parameters
    ----------
    images
        ``(channel, row, column, observation)``.
    shape
        Channels, rows and columns of `images`.
    size
        Rows and columns of a square.
    """
    return _squares(images, shape, size).max(axis=(2, 4))


def average_pool(
    images: "TensorVariable", shape: tuple[int, int, int], size: int
) -> "TensorVariable":
    """Means over squares that do not overlap; arguments and what is dropped as `max_pool`."""
    return _squares(images, shape, size).sum(axis=(2, 4)) / size**2


def _squares(images, shape: tuple[int, int, int], size: int) -> "TensorVariable":
    """Squares side by side, ``(channel, row, within, column, within, observation)``."""
    channels, rows, columns = (shape[0], shape[1] // size, shape[2] // size)
    whole = images[:, : rows * size, : columns * size, :]
    return whole.reshape((channels, rows, size, columns, size, images.shape[-1]))
