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
        What is added at every position, ``(output channel,)``.
    units
        Number of output channels; JAX needs it for gradients where the type of `kernels` does
        not tell.
    """
    import pytensor.tensor as pt

    channels, rows, columns = shape
    observations = images.shape[-1]
    if padding == "same":
        reach, inner = size // 2, images
        rows, columns = rows + 2 * reach, columns + 2 * reach
        images = pt.zeros((channels, rows, columns, observations))
        images = images[:, reach:-reach, reach:-reach].set(inner) if reach else inner
    rows, columns = rows - size + 1, columns - size + 1
    windows = [
        images[:, i : i + rows, j : j + columns, :] for i in range(size) for j in range(size)
    ]
    patches = pt.stack(windows, axis=1).reshape((channels * size**2, -1))
    flat = kernels.reshape((channels * size**2, -1))
    maps = flat.T @ patches
    if bias is not None:
        # Next to the product, where estimators that rewrite products find it.
        maps = maps + bias[:, None]
    return maps.reshape((units, rows, columns, observations))


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
    channels, rows, columns = (shape[0], shape[1] // size, shape[2] // size)
    whole = images[:, : rows * size, : columns * size, :]
    squares = whole.reshape((channels, rows, size, columns, size, images.shape[-1]))
    return squares.max(axis=(2, 4))
