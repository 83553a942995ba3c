"""A PyMC model as graphs of one flat vector of unconstrained values.

Every other file of this package works on that vector: a guide draws it, the ELBO scores it,
predictions read class probabilities off it.
"""

from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.continuous import Flat
from pytensor.graph.replace import graph_replace
from pytensor.tensor import TensorVariable

from pmbnn.inference.observed import elementwise_logp, likelihood_probabilities
from pmbnn.models import STANDARD


@dataclass(frozen=True)
class Slot:
    """Place of one free variable in the flat vector; ``name`` is its value variable's."""

    name: str
    start: int
    shape: tuple[int, ...]

    @property
    def stop(self) -> int:
        """Index after the last element."""
        return self.start + int(np.prod(self.shape))


@dataclass(frozen=True)
class FlatModel:
    """Graphs of a model on a flat vector.

    Attributes
    ----------
    values
        Input: the flat vector, ``(size,)``.
    data
        Inputs that stand for the model's data variables, by name, with static shapes.
    log_prior
        Log-density of all free variables at `values`, Jacobians included; a scalar, in nats.
    log_likelihood
        Log-probability of every observation, ``(observation,)``, in nats.
    probabilities
        Class probabilities, ``(observation, class)``; None if the likelihood has none.
    posterior
        Untransformed variables and deterministics by name, without standard draws.
    improper
        Whether some free variable has an improper prior.
    """

    slots: tuple[Slot, ...]
    values: TensorVariable
    data: dict[str, TensorVariable]
    log_prior: TensorVariable
    log_likelihood: TensorVariable
    probabilities: TensorVariable | None
    posterior: dict[str, TensorVariable]
    improper: bool

    @property
    def size(self) -> int:
        """Number of unconstrained scalars."""
        return self.slots[-1].stop


def flatten_model(model: pm.Model, rows: int | None) -> FlatModel:
    """Graphs of `model` on one flat vector, for a given number of observations.

    ``rows=None`` leaves the number open, which is enough for predictions.
    """
    slots = _slots(model)
    values = pt.tensor("values", dtype="float64", shape=(slots[-1].stop,))
    data = {
        v.name: pt.tensor(v.name, dtype=v.dtype, shape=_static_shape(model, v, rows))
        for v in model.data_vars
    }
    named = _posterior(model)
    probabilities = likelihood_probabilities(model)
    graphs = [
        sum(term.sum() for term in model.logp(vars=model.free_RVs, sum=False)),
        elementwise_logp(model),
        *named.values(),
        *([] if probabilities is None else [probabilities]),
    ]
    replaced = graph_replace(graphs, _replacements(model, slots, values, data), strict=False)
    log_prior, log_likelihood, *rest = replaced
    improper = any(isinstance(v.owner.op, _flat_op()) for v in model.free_RVs)
    return FlatModel(
        slots=slots,
        values=values,
        data=data,
        log_prior=log_prior,
        log_likelihood=log_likelihood,
        probabilities=None if probabilities is None else rest[-1],
        posterior=dict(zip(named, rest[: len(named)], strict=True)),
        improper=improper,
    )


def _flat_op() -> type:
    return type(Flat.rv_op)


def _slots(model: pm.Model) -> tuple[Slot, ...]:
    """Free variables one after the other, in the model's order."""
    shapes = {v.name: _shape(model, v) for v in model.value_vars}
    starts = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes.values())])
    return tuple(
        Slot(name, int(start), shape)
        for (name, shape), start in zip(shapes.items(), starts[:-1], strict=True)
    )


def _shape(model: pm.Model, value: TensorVariable) -> tuple[int, ...]:
    rv = model.values_to_rvs[value]
    dims = model.named_vars_to_dims.get(rv.name, ())
    if len(dims) == value.ndim and all(dim in model.coords for dim in dims):
        return tuple(len(model.coords[dim]) for dim in dims)
    return tuple(int(length) for length in rv.shape.eval())


def _static_shape(model: pm.Model, variable, rows: int | None) -> tuple[int | None, ...]:
    # PyTensor keeps shared variables of any length; under JAX a length must be known.
    dims = model.named_vars_to_dims.get(variable.name, (None,) * variable.ndim)
    lengths = variable.get_value(borrow=True).shape
    return tuple(rows if d == "observation" else n for d, n in zip(dims, lengths, strict=True))


def _posterior(model: pm.Model) -> dict[str, TensorVariable]:
    """What a trace keeps, written in the model's value variables."""
    kept = [v for v in model.unobserved_RVs if not v.name.endswith(STANDARD)]
    return dict(zip([v.name for v in kept], model.replace_rvs_by_values(kept), strict=True))


def _replacements(model, slots, values, data) -> dict:
    by_name = {slot.name: slot for slot in slots}
    free = {
        v: values[by_name[v.name].start : by_name[v.name].stop].reshape(by_name[v.name].shape)
        for v in model.value_vars
    }
    lengths = {
        length: pt.constant(length.get_value(), dtype=length.dtype)
        for length in model.dim_lengths.values()
        if hasattr(length, "get_value")
    }
    return free | lengths | {v: data[v.name] for v in model.data_vars}
