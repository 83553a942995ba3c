"""Flat vectors in pieces: the same numbers, without a copy of the weights at every step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Join, Split

from pmbnn.inference.advi import build_program
from pmbnn.inference.flat import Layout, split_vector
from pmbnn.inference.groups import fit as fit_replicas
from pmbnn.inference.result import Replica, derive_keys
from pmbnn.inference.settings import Inference
from pmbnn.inference.xla import random, rewrites
from pmbnn.inference.xla.rewrites import (
    Leaves,
    divided,
    divided_graph,
    joined,
    leaf_lengths,
    materialised,
)
from pmbnn.models.build import dense_classifier

ROWS = 40
X = np.random.default_rng(0).normal(size=(ROWS, 2))
Y = (X[:, 0] * X[:, 1] > 0).astype(int)


def layout_of(*lengths):
    return Layout.of({str(i): (length,) for i, length in enumerate(lengths)})


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ((3, 4, 5), (12,)),
        ((3, 90, 5, 6, 100, 80, 7), (3, 90, 11, 100, 80, 7)),
        ((90,), (90,)),
        ((90, 3, 2), (90, 5)),
    ],
)
def test_lengths(lengths, expected, monkeypatch):
    """Large variables alone, the small ones between them together."""
    monkeypatch.setattr(rewrites, "LARGE", 80)
    assert leaf_lengths(layout_of(*lengths)) == expected


def test_trees():
    """Vectors of that length are cut, and nothing else; they join again."""
    tree = {"loc": jnp.arange(10.0), "factor": jnp.ones((10, 2)), "step": jnp.zeros(())}
    cut = divided(tree, (3, 5, 2))
    assert isinstance(cut["loc"], Leaves)
    assert [a.tolist() for a in cut["loc"].arrays] == [[0, 1, 2], [3, 4, 5, 6, 7], [8, 9]]
    assert cut["factor"] is tree["factor"]
    assert cut["step"] is tree["step"]
    jax.tree.map(np.testing.assert_array_equal, joined(cut), tree)
    assert divided(tree, (10,)) is not tree
    jax.tree.map(np.testing.assert_array_equal, divided(tree, (10,)), tree)
    np.testing.assert_array_equal(divided(cut, (3, 5, 2))["loc"].arrays[1], tree["loc"][3:8])


VALUES = np.random.default_rng(1).normal(size=10)
OTHER = np.random.default_rng(2).normal(size=10)
QUICK = Mode(linker="py", optimizer=None)


def check(build, joins):
    """A graph on pieces has the same value; and whether it joins any."""
    x, y, c = pt.vector("x", shape=(10,)), pt.vector("y", shape=(10,)), pt.scalar("c")
    output = build(x, y, c)
    inputs, (found,) = divided_graph([x, y, c], [output], (3, 5, 2))
    assert [v.type.shape for v in inputs] == [(3,), (5,), (2,)] * 2 + [()]
    parts = [*np.split(VALUES, [3, 8]), *np.split(OTHER, [3, 8])]
    at = dict(zip(inputs, [*parts, 0.7], strict=True))
    expected = output.eval({x: VALUES, y: OTHER, c: 0.7}, mode=QUICK, on_unused_input="ignore")
    value = found.eval(at, mode=QUICK, on_unused_input="ignore")
    np.testing.assert_allclose(value, expected, rtol=1e-13)
    ops = {type(v.owner.op) for v in ancestors([found]) if v.owner}
    assert (Join in ops) == joins
    return ops


def test_element_by_element():
    check(lambda x, y, c: (materialised(x) + c * pt.exp(y)).sum() + (x**2).sum(), joins=False)


def test_splits():
    """Where pieces are cut, within one, and over several."""
    assert Split not in check(lambda x, y, c: split_vector(c * x + y, [3, 5, 2])[1], joins=False)
    assert Split in check(lambda x, y, c: split_vector(x * y, [3, 1, 4, 2])[2], joins=False)
    check(lambda x, y, c: pt.log(split_vector(x * x, [8, 2])[0]).sum(), joins=False)
    check(lambda x, y, c: split_vector(x - y, [1, 4, 5])[1], joins=True)


def test_whole_vectors():
    """Before an operation that wants them, the pieces are joined; once for all that do."""
    check(lambda x, y, c: pt.cumsum(c * x) + y, joins=True)
    check(lambda x, y, c: x + y, joins=True)
    check(lambda x, y, c: x[::2] * y[1::2], joins=True)
    check(lambda x, y, c: (x[:, None] * y).sum(axis=0), joins=True)


def test_no_pieces():
    x = pt.vector("x", shape=(10,))
    inputs, outputs = divided_graph([x], [y := x.sum()], (10,))
    assert inputs == [x]
    assert outputs == [y]


VARIANTS = {
    "normal": {},
    "flat": {"prior": "flat"},
    "path_derivative": {"estimator": "path_derivative"},
    "local": {"estimator": "local_reparameterisation", "hyperprior": "half_normal"},
    "flipout": {"estimator": "flipout", "batch": 20},
    "low_rank": {"guide": "low_rank", "rank": 2},
    "full_rank": {"guide": "full_rank"},
    "point": {"guide": "map", "clip": 1.0},
    "adamax": {"optimiser": "adamax", "iterate_averaging": 0.5},
}


def normal_by_place(key, step, stream, start, size, dtype):
    """Normal numbers of which each depends on its own place, wherever an array begins."""
    bits, _ = random._words(key, step, stream, start, size)
    return jax.scipy.special.ndtri((bits + 0.5) / 2.0**32).astype(dtype)


@pytest.mark.slow  # each compiles two programs
@pytest.mark.parametrize(("way", "width"), [*((way, 1) for way in VARIANTS), ("normal", 2)])
def test_fits_are_the_same(way, width, monkeypatch):
    """Of any guide, prior and estimator, alone and in a group, up to rounding, at equal noise."""
    monkeypatch.setitem(random.DRAWS, "normal", normal_by_place)
    settings = dict(VARIANTS[way])
    of_model = {k: settings.pop(k) for k in ("prior", "hyperprior") if k in settings}
    model = dense_classifier(X, Y, hidden=(4, 3), **of_model)
    data = {v.name: v.get_value() for v in model.data_vars}
    replicas = [Replica(data, derive_keys(f"{i}")) for i in range(width)]
    found = []
    for large in (2**14, 8):
        monkeypatch.setattr(rewrites, "LARGE", large)
        program = build_program(model, Inference(steps=30, **settings), ROWS, width, "float64")
        assert (len(program.objective.leaves) > 1) == (large == 8)
        found.append(fit_replicas(program, replicas, snapshots=[10]))
    for whole, cut in zip(*found, strict=True):
        for name in whole.constrained:
            np.testing.assert_allclose(
                cut.constrained[name], whole.constrained[name], rtol=1e-6, atol=1e-8
            )
        np.testing.assert_allclose(cut.scale, whole.scale, rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(cut.history.elbo, whole.history.elbo, rtol=1e-7)
        np.testing.assert_allclose(cut.snapshots[0].kl, whole.snapshots[0].kl, rtol=1e-7)
