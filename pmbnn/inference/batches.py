"""Replicas as the arrays that a program takes, and the rows that each step of a fit sees."""

from collections.abc import Mapping, Sequence

import jax
import numpy as np
import pymc as pm

from pmbnn.inference.flat import FlatModel, ModelGraphs, model_graphs
from pmbnn.inference.products import depends_on
from pmbnn.inference.support import interpreted

FEW, MORE = 3, 5
"""Rows that a model is tried with, and rows that hold the same ones and others."""

KINDS = {"i": "int32", "u": "int32", "b": "bool"}
"""Types of data that are not numbers of the program's own precision, by NumPy's letter."""


def model_values(model: pm.Model) -> dict[str, np.ndarray]:
    """The model's own values of its data variables, by name."""
    return {v.name: v.get_value() for v in model.data_vars}


def flatten_for_steps(
    model: pm.Model | ModelGraphs,
    rows: int,
    batch: int | None = None,
    jacobian: bool = True,
    fewer: bool = False,
) -> tuple[FlatModel, int, int, bool]:
    """The model for the rows that a step sees, how many they are, and those that do not count.

    Last, whether fits of fewer rows can be run by a program of so many.

    Parameters
    ----------
    rows
        Of the data set.
    batch
        Rows a step; all unless given.
    jacobian
        As `flatten_model` has it.
    fewer
        Whether fits of fewer rows are to be run as well, if some rows can be left out.

    Raises
    ------
    ValueError
        If a batch is asked for whose rows do not stand for all.
    """
    size = min(batch or rows, rows)
    padding = padding_of(rows, size)
    graphs = model_graphs(model, jacobian)
    if padding or fewer or batch is not None:
        reason = why_not_in_rows(graphs.flatten(None), model_values(graphs.model))
        if reason is not None and batch is not None:
            raise ValueError(f"`batch` must be left out for this model, got {batch}: {reason}.")
        padding = 0 if reason is not None else padding
        fewer = fewer and reason is None
    return graphs.flatten(size + padding), size, padding, fewer


def cast(
    data: Mapping[str, np.ndarray], dtype: str, row_data: Sequence[str] = (), padding: int = 0
) -> dict[str, np.ndarray]:
    """Data of one replica, in the types that a program takes.

    Parameters
    ----------
    row_data, padding
        Variables to add that many rows to: copies of the first, which do not count.
    """
    arrays = {name: np.asarray(value) for name, value in data.items()}
    for name in row_data if padding else ():
        more = np.repeat(arrays[name][:1], padding, axis=0)
        arrays[name] = np.concatenate([arrays[name], more])
    # NumPy narrows numbers many times faster than JAX takes them in and narrows them.
    return {k: v.astype(KINDS.get(v.dtype.kind, dtype), copy=False) for k, v in arrays.items()}


def stack(items: list, width: int):
    """Arrays of replicas on a first axis; the only one as it is when they run one by one."""
    stacked = items[0] if width == 1 else jax.tree.map(lambda *of: np.stack(of), *items)
    return jax.device_put(stacked)


def batch_indices(
    key: np.ndarray, rows: int, batch: int, first_step: int, steps: int
) -> np.ndarray:
    """Row indices ``(step, batch)`` of `steps` steps from `first_step`, reproducible anywhere.

    The rows are shuffled anew for each pass over them, and the passes laid end to end: every
    row is seen equally often, and a step may reach across two passes.
    """
    start, stop = first_step * batch, (first_step + steps) * batch
    first_pass, last_pass = start // rows, (stop - 1) // rows
    shuffled = [
        np.random.default_rng([*key, i]).permutation(rows) for i in range(first_pass, last_pass + 1)
    ]
    laid_out = np.concatenate(shuffled)
    offset = first_pass * rows
    return laid_out[start - offset : stop - offset].reshape(steps, batch)


def why_not_in_rows(flat: FlatModel, values: Mapping[str, np.ndarray]) -> str | None:
    """Why some rows of a model do not stand for all of them; None if they do.

    They do if every log-probability that depends on them depends on its own row only, whatever
    the number of rows. Tried out, with a few rows and with those and others.

    Parameters
    ----------
    flat
        The model with its number of observations left open.
    values
        Of its data variables, with one row at least.
    """
    if not flat.row_data:
        return "none of its data variables has `observation` as its first dim"
    for name, potential in flat.potentials.items():
        if depends_on([potential], flat.rows):
            return f"its potential `{name}` depends on rows of which a step would see a part"
    graphs = {n: g for n, g in flat.log_likelihoods.items() if depends_on([g], flat.rows)}
    if not graphs:
        return "nothing that it observes depends on those rows"
    mixed = _mixed(flat, values, graphs)
    return None if mixed is None else f"log-probabilities of `{mixed}` are not one a row"


def _mixed(flat: FlatModel, values: Mapping[str, np.ndarray], graphs: Mapping) -> str | None:
    """The first observed variable whose log-probabilities do not belong to single rows."""
    rng = np.random.default_rng(0)
    point = {v: 0.1 * rng.standard_normal(v.type.shape) for v in flat.free.values()}
    point |= {flat.data[name]: value for name, value in values.items()}
    varied = {name: _varied(values[name], rng) for name in flat.row_data}
    for name, graph in graphs.items():
        function = interpreted(list(point), graph)
        try:
            with np.errstate(all="ignore"):
                few, more = (
                    function(*(point | {flat.data[k]: v[:n] for k, v in varied.items()}).values())
                    for n in (FEW, MORE)
                )
        except Exception:  # lengths that do not fit together, in the words of whichever operation
            return name
        if np.shape(few)[:1] != (FEW,) or np.shape(more)[:1] != (MORE,):
            return name
        if not np.allclose(few, more[:FEW], rtol=1e-9, atol=0, equal_nan=True):
            return name
    return None


def _varied(rows: np.ndarray, rng) -> np.ndarray:
    """A few rows like these, all of them different where they are no classes or counts."""
    found = np.resize(rows, (MORE, *rows.shape[1:]))
    if found.dtype.kind != "f":
        return found
    # Towards zero: what was positive, or a probability, stays so.
    return found * rng.uniform(0.5, 1, found.shape)


# Rows filled up to whole vectors of the machine
#
# A loop over a whole number of vectors has no remainder, which takes as long as many of them.
# A step of sixteen 2-5-5-2 networks takes 0.92 of its time with 704 rows for 700, and 1.06 with 576
# for 560: what is held out for a choice gains nothing, the fits that follow do.


LANES = 64
"""Rows of a step are filled up to a multiple of this: four vectors of AVX-512."""


def padding_of(rows: int, batch: int) -> int:
    """Rows to add to those of a step, if it sees all of a model that takes any number."""
    return 0 if batch < rows or rows < LANES else -rows % LANES
