"""Random numbers of a fit: counter-based, the same wherever and beside whatever it runs.

The generator is Threefry-2x32 with 13 rounds, the number its authors give as enough to pass
BigCrush. JAX has it with 20, in a loop of its own, and slower; its other generators give a fit
other numbers when it is mapped over a group. The counter is the place in the array and the step,
the key that of the fit.

References
----------
Salmon, Moraes, Dror and Shaw (2011), Parallel Random Numbers: As Easy as 1, 2, 3, section 3.2
and table 2.
"""

import jax
import jax.numpy as jnp
import numpy as np

from pmbnn.inference.polynomials import normal_quantile

ROUNDS = 13
ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
PARITY = np.uint32(0x1BD11BDA)

STREAM_BITS = 8
"""Bits of the second counter that tell the arrays of one step apart; the rest is the step."""


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


def random_bits(key: jax.Array, step: jax.Array, stream: int, start: int, size: int) -> jax.Array:
    """Random bits of one step and array from place `start` on, ``(size,)``, unsigned 32-bit."""
    counter = (step.astype(jnp.uint32) << np.uint32(STREAM_BITS)) | np.uint32(stream)
    # The second word would be as good, but XLA computes two arrays by doing all rounds twice.
    places = jax.lax.iota(jnp.uint32, size) + np.uint32(start)
    bits, _ = threefry(key, places, jnp.full((size,), counter))
    return jax.lax.optimization_barrier(bits)


def normal(bits: jax.Array, dtype: str) -> jax.Array:
    """Standard normal numbers from random bits."""
    # Odd multiples of 2⁻²³ between −1 and 1, all of them exact in single precision: none is an
    # end, where the number would be infinite.
    odd = ((bits >> np.uint32(8)) | np.uint32(1)).astype(jnp.int32)
    centred = odd.astype("float32") * np.float32(2.0**-23) - np.float32(1)
    return normal_quantile(centred.astype(dtype))


def sign(bits: jax.Array, dtype: str) -> jax.Array:
    """Random signs, −1 or 1, from random bits."""
    return 1 - 2 * (bits >> np.uint32(31)).astype(dtype)


DRAWS = {"normal": normal, "sign": sign}
"""By the kind of noise that an objective asks for."""
