"""Random numbers of a fit: counter-based, the same wherever and beside whatever it runs.

The generator is Threefry-2x32 with 13 rounds, the number its authors give as enough to pass
BigCrush. JAX has it with 20, in a loop of its own, and slower; its other generators give a fit
other numbers when it is mapped over a group. The counter is the place in the array and the step,
the key that of the fit.

References
----------
Salmon, Moraes, Dror and Shaw (2011), Parallel Random Numbers: As Easy as 1, 2, 3, section 3.2
and table 2. Giles (2012), Approximating the erfinv Function, table 5.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

ROUNDS = 13
ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
PARITY = np.uint32(0x1BD11BDA)

NEAR = (
    2.81022636e-08,
    3.43273939e-07,
    -3.5233877e-06,
    -4.39150654e-06,
    2.1858087e-04,
    -1.25372503e-03,
    -4.17768164e-03,
    2.46640727e-01,
    1.50140941,
)
"""Coefficients of the inverse error function over its argument, highest power first."""
FAR = (
    -2.00214257e-04,
    1.00950558e-04,
    1.34934322e-03,
    -3.67342844e-03,
    5.73950773e-03,
    -7.6224613e-03,
    9.43887047e-03,
    1.00167406,
    2.83297682,
)
"""The same beyond |x| = 0.9966."""

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


def random_bits(key: jax.Array, step: jax.Array, stream: int, size: int) -> jax.Array:
    """Random bits of one step and array, ``(size,)``, unsigned 32-bit."""
    counter = (step.astype(jnp.uint32) << np.uint32(STREAM_BITS)) | np.uint32(stream)
    # The second word would be as good, but XLA computes two arrays by doing all rounds twice.
    bits, _ = threefry(key, jax.lax.iota(jnp.uint32, size), jnp.full((size,), counter))
    return jax.lax.optimization_barrier(bits)


def normal(bits: jax.Array, dtype: str) -> jax.Array:
    """Standard normal numbers from random bits."""
    # Odd multiples of 2⁻²³ between −1 and 1, all of them exact in single precision: none is an
    # end, where the number would be infinite.
    odd = ((bits >> np.uint32(8)) | np.uint32(1)).astype(jnp.int32)
    centred = odd.astype("float32") * np.float32(2.0**-23) - np.float32(1)
    single = dtype == "float32"
    found = _inverse_erf(centred) if single else jax.lax.erf_inv(centred.astype(dtype))
    return np.sqrt(2).astype(dtype) * found


def _inverse_erf(x: jax.Array) -> jax.Array:
    """Inverse of the error function in single precision, between −1 and 1 without the ends.

    JAX's takes log(1 − x²) in a form that is both slower and less exact near the ends.
    """
    w = -jnp.log((1 - x) * (1 + x))
    near, far = _polynomial(NEAR, w - 2.5), _polynomial(FAR, jnp.sqrt(w) - 3)
    return x * jnp.where(w < 5, near, far)


def _polynomial(coefficients: tuple[float, ...], x: jax.Array) -> jax.Array:
    return functools.reduce(lambda total, c: total * x + np.float32(c), coefficients)


def sign(bits: jax.Array, dtype: str) -> jax.Array:
    """Random signs, −1 or 1, from random bits."""
    return 1 - 2 * (bits >> np.uint32(31)).astype(dtype)


DRAWS = {"normal": normal, "sign": sign}
"""By the kind of noise that an objective asks for."""
