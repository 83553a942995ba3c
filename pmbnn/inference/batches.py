"""Replicas as the arrays that a program takes, and the rows that each step of a fit sees."""

from collections.abc import Mapping, Sequence

import jax
import numpy as np
import pymc as pm
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import graph_inputs

from pmbnn.inference.estimators import depends_on
from pmbnn.inference.flat import FlatModel, ModelGraphs, model_graphs, untransformed_name
from pmbnn.inference.observed import interpreted

FEW, MORE = 3, 5
"""Rows that a model is tried with, and rows that hold the same ones and others."""

TRIALS = 20
"""Points at most at which it is tried, until all log-probabilities are finite."""

LOOKED_AT = 1_000
"""Rows, at most, among which different classes or counts are looked for."""

KINDS = {"i": "int32", "u": "int32", "b": "bool"}
"""Types of data that are not numbers of the program's own precision, by NumPy's letter."""


def abstract(variable, dtype: str) -> jax.ShapeDtypeStruct:
    """Shape and type that a program of this precision gives an input, to trace functions with."""
    kind = KINDS.get(variable.type.numpy_dtype.kind, dtype)
    return jax.ShapeDtypeStruct(variable.type.shape, kind)


def model_values(model: pm.Model) -> dict[str, np.ndarray]:
    """The model's own values of its data variables, by name."""
    return {v.name: v.get_value() for v in model.data_vars}


def shared_variables(model: pm.Model) -> list[SharedVariable]:
    """Variables of a model whose values may be changed: ``pm.Data``, and others in its graphs.

    Graphs that are compiled have the values of the others as constants.
    """
    graphs = [*model.basic_RVs, *model.rvs_to_values.values(), *model.deterministics]
    inputs = graph_inputs([*graphs, *model.potentials])
    # States of random generators have no dtype; lengths of dims are those of the data.
    others = [v for v in inputs if isinstance(v, SharedVariable) and hasattr(v, "dtype")]
    lengths = set(model.dim_lengths.values())
    return list(dict.fromkeys(v for v in [*model.data_vars, *others] if v not in lengths))


def flatten_for_steps(
    model: pm.Model | ModelGraphs,
    rows: int,
    batch: int | None = None,
    jacobian: bool = True,
    allow_fewer_rows: bool = False,
) -> tuple[FlatModel, int, int, bool]:
    """The flat model of a step, its numbers of rows and of padded rows, and if it takes fewer rows.

    Parameters
    ----------
    rows
        Number of rows of the data set.
    batch
        Rows per step; all by default.
    jacobian
        As `flatten_model` has it.
    allow_fewer_rows
        Whether the program is to run fits of fewer rows as well, if the model allows it.

    Raises
    ------
    ValueError
        If `batch` is given for a model whose rows are not independent terms.
    """
    size = min(batch or rows, rows)
    padding = -rows % LANES if size == rows >= LANES else 0
    graphs = model_graphs(model, jacobian)
    if padding or allow_fewer_rows or batch is not None:
        reason = why_not_in_rows(graphs.flatten(None), model_values(graphs.model))
        if reason is not None and batch is not None:
            raise ValueError(f"`batch` must be left out for this model, got {batch}: {reason}.")
        padding = 0 if reason is not None else padding
        allow_fewer_rows = allow_fewer_rows and reason is None
    return graphs.flatten(size + padding), size, padding, allow_fewer_rows


def cast(
    data: Mapping[str, np.ndarray], dtype: str, row_data: Sequence[str] = (), padding: int = 0
) -> dict[str, np.ndarray]:
    """Data of one replica, in the types that a program takes.

    Parameters
    ----------
    row_data, padding
        Variables that get this number of further rows: copies of the first, with weight 0.
    """
    arrays = {name: np.asarray(value) for name, value in data.items()}
    for name in row_data if padding else ():
        more = np.repeat(arrays[name][:1], padding, axis=0)
        arrays[name] = np.concatenate([arrays[name], more])
    # NumPy casts numbers many times faster than JAX does.
    return {k: v.astype(KINDS.get(v.dtype.kind, dtype), copy=False) for k, v in arrays.items()}


def stack(items: list, width: int):
    """Arrays of replicas, stacked on a first axis unless they run one by one."""
    stacked = items[0] if width == 1 else jax.tree.map(lambda *leaves: np.stack(leaves), *items)
    return jax.device_put(stacked)


def batch_indices(
    key: np.ndarray, rows: int, batch: int, first_step: int, steps: int
) -> np.ndarray:
    """Row indices ``(step, batch)`` of `steps` steps from `first_step`, from the key alone.

    The rows are shuffled for each pass over them, and the passes are concatenated: every row is
    seen equally often, and a step may cover the end of one pass and the start of the next.
    """
    start, stop = first_step * batch, (first_step + steps) * batch
    first_pass, last_pass = start // rows, (stop - 1) // rows
    passes = range(first_pass, last_pass + 1)
    indices = np.concatenate([np.random.default_rng([*key, i]).permutation(rows) for i in passes])
    offset = first_pass * rows
    return indices[start - offset : stop - offset].reshape(steps, batch)


def why_not_in_rows(flat: FlatModel, values: Mapping[str, np.ndarray]) -> str | None:
    """Why a step cannot see a part of the rows of a model; None if it can.

    It can if every log-probability that depends on rows depends on one row only, whatever the
    number of rows and their order. This is tested with a few rows, and with these and others in
    another order. Priors, as those with the scale of the data, depend on none.

    Parameters
    ----------
    flat
        The model with its number of observations left open.
    values
        Values of its data variables, with at least one row.
    """
    if not flat.row_data:
        return "none of its data variables has `observation` as its first dim"
    for name, potential in flat.potentials.items():
        if depends_on([potential], flat.rows):
            return f"its potential `{name}` depends on rows of which a step would see a part"
    for name, log_prior in flat.log_priors.items():
        if depends_on([log_prior], flat.rows):
            variable = untransformed_name(name)
            return f"the prior of `{variable}` depends on rows of which a step would see a part"
    graphs = {n: g for n, g in flat.log_likelihoods.items() if depends_on([g], flat.rows)}
    if not graphs:
        return "nothing that it observes depends on those rows"
    mixed = _mixed(flat, values, graphs)
    return None if mixed is None else f"log-probabilities of `{mixed}` are not one a row"


def _mixed(flat: FlatModel, values: Mapping[str, np.ndarray], graphs: Mapping) -> str | None:
    """The first observed variable whose log-probabilities do not belong to single rows."""
    rng, free = np.random.default_rng(0), list(flat.free.values())
    varied = {name: _varied(values[name], rng) for name in flat.row_data}
    # In another order: rows may know of those before them, as in a time series.
    last = np.arange(MORE)[::-1][:FEW]
    data = [
        [varied[name][at] if name in varied else values[name] for name in flat.data]
        for at in (last, slice(None))
    ]
    for name, graph in graphs.items():
        function = interpreted([*free, *flat.data.values()], graph)
        try:
            with np.errstate(all="ignore"):
                for _ in range(TRIALS):
                    point = [0.1 * rng.standard_normal(v.type.shape) for v in free]
                    few, more = (function(*point, *arrays) for arrays in data)
                    if np.isfinite(more).all():
                        break
        except Exception:  # lengths do not fit; any operation may raise its own error
            return name
        if np.shape(few)[:1] != (FEW,) or np.shape(more)[:1] != (MORE,):
            return name
        # Two that are no numbers tell nothing.
        if not np.allclose(few, more[last], rtol=1e-9, atol=0):
            return name
    return None


def _varied(rows: np.ndarray, rng) -> np.ndarray:
    """A few similar rows, all different unless there are few classes or counts."""
    if rows.dtype.kind != "f":
        rows = np.unique(rows[:LOOKED_AT], axis=0)
    values = np.resize(rows, (MORE, *rows.shape[1:]))
    if values.dtype.kind != "f":
        return values
    # Towards zero: positive numbers and probabilities remain so.
    return values * rng.uniform(0.5, 1, values.shape)


# Padding of rows to whole vectors of the processor
#
# A loop over a whole number of vectors has no remainder, which takes as long as many vectors. A
# step of sixteen 2-5-5-2 networks takes 0.92 of its time with 704 rows for 700, and 1.06 with 576
# for 560: final fits are faster, fits of a part of the rows are not.


LANES = 64
"""The number of rows of a step is padded to a multiple of this: four vectors of AVX-512."""
