"""Counter-based random numbers of a fit, which do not depend on the device or on other fits.

The generator is Threefry-2x32 with 13 rounds, which pass BigCrush according to its authors. JAX has
it with 20 rounds in a separate loop, which is slower; the numbers of its other generators change if
a fit is mapped over a group. The counter is the place in the array and the step, the key is that of
the fit.

Gain: 480,000 normal numbers in 0.91 ms, where JAX's own Threefry takes 2.15 ms and its
``unsafe_rbg`` 31 ms; Box and Muller's method is 0.07 of a large step faster than an inverse error
function (``uv run python benchmarks/large_networks.py``).

References
----------
Salmon, Moraes, Dror and Shaw (2011), Parallel Random Numbers: As Easy as 1, 2, 3, section 3.2
and table 2.
Box and Muller (1958), A Note on the Generation of Random Normal Deviates.
"""

import itertools
import math
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from pmbnn.inference.xla.rewrites import Leaves, cos_and_sin, is_divided, log

ROUNDS = 13
ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
PARITY = np.uint32(0x1BD11BDA)

LANES = 16
"""Number of single-precision numbers in a vector of the processor."""

STREAM_BITS = 8
"""Bits of the second counter for the number of the array within a step; the others are the step."""


def threefry(key: jax.Array, first: jax.Array, second: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Two arrays of random bits from two of counters; the key is ``(2,)``; all unsigned 32-bit."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ PARITY)
    first, second = first + keys[0], second + keys[1]
    for i in range(ROUNDS):
        first = first + second
        rotation = np.uint32(ROTATIONS[i % 8])
        second = ((second << rotation) | (second >> (np.uint32(32) - rotation))) ^ first
        if i % 4 == 3:
            n = i // 4 + 1
            first = first + keys[n % 3]
            second = second + keys[(n + 1) % 3] + np.uint32(n)
    return first, second


def normal(
    key: jax.Array, step: jax.Array, stream: int, start: int, size: int, dtype: str
) -> jax.Array:
    """Standard normal numbers of one step and array from place `start` on, ``(size,)``.

    One half are cosines and the other sines of the same turns (Box and Muller 1958).
    """
    # Whole vectors in both halves: XLA is ten times slower if two threads share an odd number.
    half = -(-size // (2 * LANES)) * LANES
    first, second = _words(key, step, stream, start, half)
    # Odd multiples, exact in single precision, none of which is 0 or 1.
    share = ((first >> np.uint32(8)) | np.uint32(1)).astype(jnp.int32).astype(dtype)
    turn = jax.lax.bitcast_convert_type(second, jnp.int32).astype(dtype)
    # One array of pairs: for two arrays XLA would do all rounds twice.
    pair = jax.lax.optimization_barrier(jax.lax.complex(share * 2.0**-24, turn * 2.0**-31))
    # Without the barrier XLA would compute the radius twice, once for each half.
    radius = jax.lax.optimization_barrier(jnp.sqrt(-2 * log(jnp.real(pair))))
    cos, sin = cos_and_sin(jnp.imag(pair))
    return jnp.concatenate([radius * cos, radius * sin])[:size]


def sign(
    key: jax.Array, step: jax.Array, stream: int, start: int, size: int, dtype: str
) -> jax.Array:
    """Random signs of one step and array from place `start` on, −1 or 1, ``(size,)``."""
    bits, _ = _words(key, step, stream, start, size)
    return 1 - 2 * (bits >> np.uint32(31)).astype(dtype)


def uniform(
    key: jax.Array, step: jax.Array, stream: int, start: int, size: int, dtype: str
) -> jax.Array:
    """Uniform numbers of one step and array from place `start` on, 0 or above and below 1."""
    bits, _ = _words(key, step, stream, start, size)
    return (bits >> np.uint32(8)).astype(jnp.int32).astype(dtype) * 2.0**-24


def _words(key, step, stream: int, start: int, size: int) -> tuple[jax.Array, jax.Array]:
    """Two words of random bits for each place from `start` on, ``(size,)``, unsigned 32-bit."""
    counter = (step.astype(jnp.uint32) << np.uint32(STREAM_BITS)) | np.uint32(stream)
    places = jax.lax.iota(jnp.uint32, size) + np.uint32(start)
    return threefry(key, places, jnp.full((size,), counter))


DRAWS = {"normal": normal, "sign": sign, "uniform": uniform}
"""Generators by kind of noise."""


def draw_noise(
    key: jax.Array,
    step: jax.Array,
    arrays: Mapping[str, tuple[str, tuple[int, ...]]],
    lengths: Sequence[int],
    dtype: str,
) -> dict[str, jax.Array | Leaves]:
    """Noise of one step of a fit, by name; a fit draws no other random numbers in its steps.

    Parameters
    ----------
    key
        Key of the noise of the fit, ``(2,)`` unsigned 32-bit words.
    arrays
        Kind and shape of every array by name; the position is the number of its stream.
    lengths
        Lengths of the leaves into which vectors of their total length are divided.
    """

    def draw(kind, stream, start, shape):
        size = math.prod(shape)
        return DRAWS[kind](key, step, stream, start, size, dtype).reshape(shape)

    starts, noise = list(itertools.accumulate(lengths[:-1], initial=0)), {}
    for stream, (name, (kind, shape)) in enumerate(arrays.items()):
        if is_divided(shape, lengths):
            leaves = zip(starts, lengths, strict=True)
            noise[name] = Leaves(tuple(draw(kind, stream, at, (n,)) for at, n in leaves))
        else:
            noise[name] = draw(kind, stream, 0, shape)
    # Without the barrier XLA draws a number again wherever it is used.
    return jax.lax.optimization_barrier(noise)
