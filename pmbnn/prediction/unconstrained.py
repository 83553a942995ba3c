"""Draws of a model's variables, whoever made them, as draws of its flat vector."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import graph_inputs

from pmbnn.inference.flat import flatten_model
from pmbnn.inference.xla.compile import jax_function, precision


def unconstrained_draws(model: pm.Model, posterior: Mapping[str, np.ndarray]) -> np.ndarray:
    """Flat vectors of draws, ``(chain, draw, size)``, double precision.

    Parameters
    ----------
    posterior
        Free variables on their own scale by name, ``(chain, draw, *shape)`` each; others may be
        among them.
    """
    given = {v: pt.tensor(v.name, dtype=v.dtype, shape=v.type.shape) for v in model.free_RVs}
    graphs = _replaced([_forward(model, v, given[v]) for v in given], given)
    arrays = [np.asarray(posterior[v.name], np.float64) for v in given]
    with precision("float64"):
        of_one = jax_function(list(given.values()), [graph.ravel() for graph in graphs])
        of_all = jax.jit(jax.vmap(jax.vmap(of_one)))
        found = map(np.asarray, of_all(*map(jnp.asarray, arrays)))
    parts = {model.rvs_to_values[v].name: part for v, part in zip(given, found, strict=True)}
    slots = flatten_model(model, rows=None).layout.slots
    return np.concatenate([parts[slot.name] for slot in slots], axis=-1)


def _forward(model: pm.Model, variable, value):
    """The unconstrained value of a variable's value."""
    transform = model.rvs_to_transforms[variable]
    return value if transform is None else transform.forward(value, *variable.owner.inputs)


def _replaced(graphs, given):
    """Graphs of given values, whose bounds may hang on other variables and on data."""
    graphs = graph_replace(graphs, given, strict=False)
    constants = {
        v: pt.constant(v.get_value(), dtype=v.dtype)
        for v in graph_inputs(graphs)
        if isinstance(v, SharedVariable) and hasattr(v, "dtype")
    }
    return graph_replace(graphs, constants, strict=False)
