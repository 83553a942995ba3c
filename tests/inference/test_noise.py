"""The generator of a fit's noise: known answers, JAX's own Threefry, and distributions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry_2x32
from scipy import stats

from pmbnn.inference import noise
from pmbnn.inference.jax_edge import precision

KEY = np.array([0x13198A2E, 0x03707344], np.uint32)

# Key, counters and bits of the authors' own tests (Random123, kat_vectors, threefry2x32, 13).
KNOWN = [
    ([0, 0], [0, 0], [0x9D1C5EC6, 0x8BD50731]),
    ([0xFFFFFFFF] * 2, [0xFFFFFFFF] * 2, [0xFD36D048, 0x2D17272C]),
    ([0x13198A2E, 0x03707344], [0x243F6A88, 0x85A308D3], [0xBA3E4725, 0xF27D669E]),
]


@pytest.mark.parametrize(("key", "counters", "bits"), KNOWN)
def test_known_answers(key, counters, bits):
    arrays = (jnp.asarray(np.array(a, np.uint32)) for a in (key, *np.reshape(counters, (2, 1))))
    found = noise.threefry(*arrays)
    assert [int(word[0]) for word in found] == bits


def test_more_rounds_are_jax_own(monkeypatch):
    """With 20 instead of 13, for which JAX has the same generator."""
    monkeypatch.setattr(noise, "ROUNDS", 20)
    first, second = jnp.arange(50, dtype=jnp.uint32), jnp.full(50, 7, jnp.uint32)
    found = jnp.concatenate(noise.threefry(jnp.asarray(KEY), first, second))
    expected = threefry_2x32(jnp.asarray(KEY), jnp.concatenate([first, second]))
    np.testing.assert_array_equal(found, expected)


def bits(step=0, stream=0, size=1000, key=KEY, start=0):
    return np.asarray(noise.random_bits(jnp.asarray(key), jnp.asarray(step), stream, start, size))


def test_every_step_array_and_key_has_its_own():
    """No array of bits is another's, nor another's moved by a few places."""
    ways = [{}, {"step": 1}, {"stream": 1}, {"step": 256}, {"step": 2**23}, {"key": KEY[::-1]}]
    words = np.concatenate([bits(**way) for way in ways])
    # Among 6,000 words of 32 bits, the birthday of two is the same in 4 of 1,000 cases.
    assert len(np.unique(words)) == 6000


def test_length_does_not_matter():
    """Nor that it is mapped over fits, or drawn in pieces."""
    np.testing.assert_array_equal(bits(size=10), bits(size=1000)[:10])
    np.testing.assert_array_equal(bits(start=10, size=7), bits(size=1000)[10:17])
    keys = jnp.asarray([KEY, KEY[::-1]])
    mapped = jax.vmap(lambda k: noise.random_bits(k, jnp.asarray(3), 1, 0, 10))(keys)
    np.testing.assert_array_equal(mapped[1], bits(step=3, stream=1, size=10, key=KEY[::-1]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_distributions(dtype):
    with precision(dtype):
        words = jnp.asarray(bits(size=100_000))
        normal, sign = (np.asarray(noise.DRAWS[kind](words, dtype)) for kind in ("normal", "sign"))
    assert normal.dtype == sign.dtype == dtype
    assert stats.kstest(normal, stats.norm.cdf).pvalue > 1e-4
    assert abs(np.mean(normal**2) - 1) < 4.5 * np.sqrt(2 / 1e5)
    assert set(np.unique(sign)) == {-1, 1}
    assert abs(sign.mean()) < 4.5 / np.sqrt(1e5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ends_are_finite_and_symmetric(dtype):
    """The lowest and the highest bits are draws too, as far out as one of 2²⁴ is."""
    with precision(dtype):
        ends = jnp.asarray(np.array([0, 2**32 - 1], np.uint32))
        low, high = np.asarray(noise.normal(ends, dtype), np.float64)
    assert low == pytest.approx(-high, rel=1e-6)
    assert high == pytest.approx(stats.norm.isf(2.0**-24), rel=1e-2)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 4e-7), ("float64", 1e-12)])
def test_normals_are_quantiles(dtype, tolerance):
    """Each is the quantile at the middle of the interval that its bits stand for."""
    bits = np.concatenate([np.arange(0, 2**32, 999_983), 2**32 - 2 ** np.arange(9, 32)])
    with precision(dtype):
        found = np.asarray(noise.normal(jnp.asarray(bits, jnp.uint32), dtype), np.float64)
    odd = (bits >> 8) | 1
    # By the nearer tail: in the upper one a probability has too few digits left.
    tail = np.minimum(odd, 2**24 - odd) / 2**24
    expected = np.where(odd < 2**23, 1, -1) * stats.norm.ppf(tail)
    np.testing.assert_allclose(found, expected, rtol=tolerance)
