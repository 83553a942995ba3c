"""The members of a group as the arrays that a compiled program takes."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm

from pmbnn.models import ROW_DATA

LANES = 64
"""Rows of a step are filled up to a multiple of this: a loop over a whole number of vectors has
no remainder, which takes as long as many of them. 64 numbers are four vectors of AVX-512."""


def padding_of(model: pm.Model, rows: int, batch: int) -> int:
    """Rows to add to those of a step, where it sees all and the model takes any number."""
    given = {v.name for v in model.data_vars}
    if batch < rows or rows < LANES or not given.issuperset(ROW_DATA):
        return 0
    return -rows % LANES


def cast(data: Mapping[str, np.ndarray], dtype: str, padding: int) -> dict[str, jax.Array]:
    """Data of one member; rows beyond its own are copies of the first, and do not count."""
    arrays = {name: np.asarray(value) for name, value in data.items()}
    if padding:
        for name in ROW_DATA:
            more = np.repeat(arrays[name][:1], padding, axis=0)
            arrays[name] = np.concatenate([arrays[name], more])
    kinds = {True: "int32", False: dtype}
    # NumPy narrows numbers many times faster than JAX takes them in and narrows them.
    narrow = {k: v.astype(kinds[v.dtype.kind in "iu"], copy=False) for k, v in arrays.items()}
    return {k: jnp.asarray(v) for k, v in narrow.items()}


def stack(items: list, width: int):
    """Members on a first axis; the only member as it is when they run one by one."""
    if width == 1:
        return items[0]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *items)
