"""The generator of a fit's noise: known answers, JAX's own Threefry, and distributions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry_2x32
from scipy import stats
from tiers import slow_but

from pmbnn.inference.xla import random
from pmbnn.inference.xla.compile import precision

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
    found = random.threefry(*arrays)
    assert [int(word[0]) for word in found] == bits


def test_more_rounds_are_jax_own(monkeypatch):
    """With 20 instead of 13, for which JAX has the same generator."""
    monkeypatch.setattr(random, "ROUNDS", 20)
    first, second = jnp.arange(50, dtype=jnp.uint32), jnp.full(50, 7, jnp.uint32)
    found = jnp.concatenate(random.threefry(jnp.asarray(KEY), first, second))
    expected = threefry_2x32(jnp.asarray(KEY), jnp.concatenate([first, second]))
    np.testing.assert_array_equal(found, expected)


def drawn(kind, step=0, stream=0, size=1000, key=KEY, start=0, dtype="float32"):
    with precision(dtype):
        draw = jax.jit(random.DRAWS[kind], static_argnums=(2, 3, 4, 5))
        found = draw(jnp.asarray(key), jnp.asarray(step), stream, start, size, dtype)
    assert found.dtype == dtype
    return np.asarray(found, np.float64)


def words(step=0, stream=0, size=1000, key=KEY, start=0):
    pair = random._words(jnp.asarray(key), jnp.asarray(step), stream, start, size)
    return np.asarray(pair[0]), np.asarray(pair[1])


def test_every_step_array_and_key_has_its_own():
    """No array of bits is another's, nor another's moved by a few places."""
    ways = [{}, {"step": 1}, {"stream": 1}, {"step": 256}, {"step": 2**23}, {"key": KEY[::-1]}]
    found = np.concatenate([word for way in ways for word in words(**way)])
    # Among 12,000 words of 32 bits, the birthday of two is the same in 2 of 100 cases.
    assert len(np.unique(found)) == 12_000


@pytest.mark.parametrize("kind", random.DRAWS)
@pytest.mark.parametrize("size", slow_but([65], [1, 10, 63, 64, 65, 1000]))
def test_company_does_not_matter(kind, size):
    """A fit's own numbers are the same when it is mapped over a group."""
    keys, draw = jnp.asarray([KEY, KEY[::-1]]), random.DRAWS[kind]
    mapped = jax.jit(jax.vmap(lambda k: draw(k, jnp.asarray(3), 1, 0, size, "float32")))(keys)
    assert mapped.shape == (2, size)
    own = drawn(kind, step=3, stream=1, size=size, key=KEY[::-1])
    np.testing.assert_array_equal(mapped[1], own)


def test_pieces_share_no_number():
    """Arrays of one stream that lie behind one another."""
    pieces = [drawn("normal", start=start, size=size) for start, size in [(0, 65), (65, 65)]]
    together = np.concatenate(pieces)
    assert len(np.unique(together)) == len(together)


@pytest.mark.parametrize("dtype", slow_but(["float32"], ["float32", "float64"]))
def test_distributions(dtype):
    kinds = ("normal", "sign", "uniform")
    normal, sign, uniform = (drawn(kind, size=100_001, dtype=dtype) for kind in kinds)
    assert stats.kstest(normal, stats.norm.cdf).pvalue > 1e-4
    moments = {2: 1, 4: 3, 6: 15}
    variance = {2: 2, 4: 96, 6: 10170}
    for power, moment in moments.items():
        error = np.mean(normal**power) - moment
        assert abs(error) < 4.5 * np.sqrt(variance[power] / normal.size)
    assert set(np.unique(sign)) == {-1, 1}
    assert abs(sign.mean()) < 4.5 / np.sqrt(sign.size)
    assert stats.kstest(uniform, "uniform").pvalue > 1e-4
    assert 0 <= uniform.min() < uniform.max() < 1


def test_halves_are_independent():
    """Both numbers of a pair are independent, not only uncorrelated; and so are neighbours."""
    normal = drawn("normal", size=200_000)
    first, second = np.split(normal, 2)
    for a, b in [(first, second), (normal[1:], normal[:-1])]:
        for of in (np.abs, np.sign, np.square, lambda x: x):
            assert abs(np.corrcoef(of(a), of(b))[0, 1]) < 4.5 / np.sqrt(a.size)
    turn = np.arctan2(second, first) / (2 * np.pi) + 0.5
    assert stats.kstest(turn, "uniform").pvalue > 1e-4
    assert stats.kstest((first**2 + second**2) / 2, "expon").pvalue > 1e-4


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 5e-7), ("float64", 1e-15)])
@pytest.mark.parametrize("size", slow_but([33], [200_000, 33]))
def test_normals_are_those_of_their_words(dtype, tolerance, size):
    """Box and Muller's numbers of the same bits, in double precision."""
    half = -(-size // 32) * 16
    first, second = words(size=half)
    radius = np.sqrt(-2 * np.log(((first >> 8) | 1) * 2.0**-24))
    turn = np.pi * second.view(np.int32) * 2.0**-31
    expected = np.concatenate([radius * np.cos(turn), radius * np.sin(turn)])[:size]
    found = drawn("normal", size=size, dtype=dtype)
    np.testing.assert_allclose(found, expected, atol=tolerance * radius.max())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ends_are_finite(dtype, monkeypatch):
    """The lowest and the highest bits are draws too."""
    ends = jnp.asarray(np.array([0, 2**32 - 1, 0, 2**32 - 1] * 4, np.uint32))
    turns = jnp.asarray(np.array([0, 2**32 - 1, 2**31, 2**31 - 1] * 4, np.uint32))
    monkeypatch.setattr(random, "_words", lambda *_: (ends, turns))
    found = drawn("normal", size=32, dtype=dtype)
    assert np.isfinite(found).all()
    assert found.max() == pytest.approx(np.sqrt(-2 * np.log(2.0**-24)), rel=1e-6)
