"""PyTensor graphs as JAX functions, in the precision asked for."""

import inspect
import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pmbnn.inference.xla.compile import (
    jax_function,
    precision,
    split_jax_function,
    use_compilation_cache,
)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_precision(dtype):
    """A double-precision graph runs in either, silently, and the flag is put back."""
    before = jax.config.jax_enable_x64
    x = pt.vector("x", dtype="float64")
    function = jax_function([x], [pt.exp(x) + pt.cast(1 / 3, "float64")])
    with precision(dtype):
        [found] = function(jnp.asarray([1.0, 2.0], dtype))
        assert found.dtype == dtype
    assert jax.config.jax_enable_x64 == before
    tolerance = 4 * np.finfo(dtype).eps
    np.testing.assert_allclose(found, np.exp([1.0, 2.0]) + 1 / 3, rtol=tolerance)


def test_flag_is_put_back_after_an_error():
    before = jax.config.jax_enable_x64
    with pytest.raises(ZeroDivisionError), precision("float32" if before else "float64"):
        raise ZeroDivisionError
    assert jax.config.jax_enable_x64 == before


def test_parameter_checks_are_left_out():
    """JAX cannot raise: a negative scale gives a number that is none, and the graph stays."""
    sigma = pt.scalar("sigma", dtype="float64")
    graph = pm.logp(pm.Normal.dist(0.0, sigma), 1.0)
    function = jax_function([sigma], [graph])
    with precision("float64"):
        found = [float(function(jnp.asarray(s))[0]) for s in (2.0, -2.0)]
    assert found[0] == pytest.approx(-np.log(2) - 0.5 * np.log(2 * np.pi) - 0.125)
    assert np.isnan(found[1])
    with pytest.raises(ValueError, match="sigma > 0"):
        graph.eval({sigma: -2.0}, mode="FAST_COMPILE")


def split(data, inputs, outputs, data_values, values):
    """What is prepared of the data, and what the rest makes of it, in double precision."""
    prepare, rest = split_jax_function(data, inputs, outputs)
    with precision("float64"):
        prepared = prepare(*map(jnp.asarray, data_values))
        return prepared, rest(*map(jnp.asarray, values), *prepared)


def test_what_depends_on_data_only_is_prepared():
    """Once: the rest of the function takes it as it is, and the whole is the same."""
    x, scale = pt.vector("x", dtype="float64"), pt.scalar("scale", dtype="float64")
    w = pt.scalar("w", dtype="float64")
    root = pt.sqrt(x**2 + pt.exp(scale))
    outputs = [w * root, w + scale]
    data, values = [np.array([1.0, 2.0]), np.array(0.5)], [np.array(3.0)]
    prepared, found = split([x, scale], [w], outputs, data, values)
    expected = np.sqrt(data[0] ** 2 + np.exp(0.5))
    assert any(p.shape == (2,) and np.allclose(p, expected, rtol=1e-12) for p in prepared)
    np.testing.assert_allclose(found[0], 3 * expected, rtol=1e-12)
    assert found[1] == 3.5
    with precision("float64"):
        whole = jax_function([x, scale, w], outputs)(*map(jnp.asarray, [*data, *values]))
    for part, of_whole in zip(found, whole, strict=True):
        np.testing.assert_allclose(part, of_whole, rtol=1e-12)
    assert len(prepared) == 2


def test_outputs_of_data_or_of_nothing():
    """An output may be prepared already; a function may have no data, or not use it."""
    x, w = pt.scalar("x", dtype="float64"), pt.scalar("w", dtype="float64")
    _, found = split([x], [w], [pt.exp(x), 2 * w], [1.0], [3.0])
    np.testing.assert_allclose(found, [np.e, 6.0], rtol=1e-12)
    prepared, found = split([], [w], [2 * w, pt.constant(4.0)], [], [3.0])
    assert prepared == ()
    np.testing.assert_allclose(found, [6.0, 4.0])
    _, found = split([x], [w], [2 * w], [1.0], [3.0])
    np.testing.assert_allclose(found, [6.0])


# The function alone: importing its module would load PyTensor, for longer than all the rest.
COMPILING = f"""
import json, os, warnings
from pathlib import Path
import jax

{inspect.getsource(use_compilation_cache)}

hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name.endswith("/cache_hits")))
use_compilation_cache()
found = float(jax.jit(lambda x: jax.numpy.sin(3 * x))(2.0))
print(json.dumps([found, sum(hits)]))
"""


@pytest.mark.slow
def test_programs_are_kept(tmp_path):
    """A second process finds what the first has compiled, in the folder that XDG names."""

    def compile_one():
        environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "JAX_PLATFORMS": "cpu"}
        done = subprocess.run(
            [sys.executable, "-c", COMPILING],
            env=environment,
            capture_output=True,
            check=True,
            timeout=60,
        )
        kept = [p for p in tmp_path.rglob("*") if p.is_file()]
        return *json.loads(done.stdout), {p.relative_to(tmp_path).as_posix() for p in kept}

    found, hits, kept = compile_one()
    assert found == pytest.approx(np.sin(6.0), rel=1e-6)
    assert hits == 0
    assert kept
    assert all(name.startswith("pmbnn/xla/") for name in kept)
    again, hits, still_kept = compile_one()
    assert again == found
    assert hits > 0
    assert still_kept == kept
