"""A PyMC model as graphs of its unconstrained free variables, laid out in one flat vector.

Every other file of this package works on these: a guide draws the vector, the ELBO scores it,
predictions read class probabilities or means off it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.continuous import Flat
from pymc.logprob.transforms import Transform
from pytensor.graph.basic import equal_computations
from pytensor.graph.replace import graph_replace
from pytensor.tensor import TensorVariable
from pytensor.tensor.elemwise import DimShuffle

from pmbnn.inference.observed import (
    elementwise_logp,
    likelihood_probabilities,
    normal_parameters,
)
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

    def of(self, vector):
        """The variable's part of a flat vector, in its own shape."""
        return vector[self.start : self.stop].reshape(self.shape)


@dataclass(frozen=True)
class Distribution:
    """What a free variable is drawn from a priori.

    Attributes
    ----------
    kind
        Type of PyMC's random variable.
    parameters
        Its parameters as PyMC orders them, graphs of the other free variables and the data.
    transform
        The transformation that makes its values unconstrained; None where they are.
    """

    kind: type
    parameters: tuple[TensorVariable, ...]
    transform: Transform | None


@dataclass(frozen=True)
class FlatModel:
    """Graphs of a model on its free variables, and their places in one flat vector.

    Attributes
    ----------
    slots
        Where each free variable lies in the flat vector.
    free
        Inputs: the unconstrained value of each free variable, by the slot's name.
    data
        Inputs that stand for the model's data variables, by name, with static shapes.
    distributions
        What each free variable is drawn from, by the slot's name.
    log_priors
        Log-density of each free variable, summed over its elements; a scalar, in nats.
    log_likelihood
        Log-probability of every observation, ``(observation,)``, in nats.
    probabilities
        Class probabilities, ``(observation, class)``; None if the likelihood has none.
    normal
        Mean of each observation, ``(observation,)``, and standard deviation of the noise; None
        if the likelihood is not normal.
    posterior
        Untransformed variables and deterministics by name, without standard draws.
    improper
        Whether some free variable has an improper prior.
    """

    slots: tuple[Slot, ...]
    free: dict[str, TensorVariable]
    data: dict[str, TensorVariable]
    distributions: dict[str, Distribution]
    log_priors: dict[str, TensorVariable]
    log_likelihood: TensorVariable
    probabilities: TensorVariable | None
    normal: tuple[TensorVariable, TensorVariable] | None
    posterior: dict[str, TensorVariable]
    improper: bool

    @property
    def size(self) -> int:
        """Number of unconstrained scalars."""
        return self.slots[-1].stop

    @property
    def log_prior(self) -> TensorVariable:
        """Log-density of all free variables together; a scalar, in nats."""
        return sum(self.log_priors.values())

    def at(self, vector: TensorVariable, graphs: Sequence[TensorVariable]) -> list[TensorVariable]:
        """The same graphs with every free variable read off a flat vector, ``(size,)``."""
        parts = self.unpacked(vector)
        values = {self.free[name]: part for name, part in parts.items()}
        return graph_replace(list(graphs), values, strict=False)

    def unpacked(self, vector: TensorVariable) -> dict[str, TensorVariable]:
        """Parts of a flat vector, ``(size,)``, by the slot's name and in its shape."""
        parts = split_vector(vector, [slot.stop - slot.start for slot in self.slots])
        return {
            slot.name: part.reshape(slot.shape)
            for slot, part in zip(self.slots, parts, strict=True)
        }


def split_vector(vector: TensorVariable, lengths: Sequence[int]) -> list[TensorVariable]:
    """Consecutive parts of a vector.

    The gradient of a split is one concatenation; that of as many slices is as many vectors of
    full length, all but a part of each zero.
    """
    if len(lengths) == 1:
        return [vector]
    return pt.split(vector, splits_size=list(lengths))


def flat_vector(flat: FlatModel) -> TensorVariable:
    """An input that stands for the flat vector, ``(size,)``."""
    return pt.tensor("values", dtype="float64", shape=(flat.size,))


def flatten_model(model: pm.Model, rows: int | None, jacobian: bool = True) -> FlatModel:
    """Graphs of `model` on its free variables, for a given number of observations.

    ``rows=None`` leaves the number open, which is enough for predictions. Without `jacobian`,
    densities are those of the constrained variables, as a mode is usually looked for.
    """
    slots = _slots(model)
    free = {s.name: pt.tensor(s.name, dtype="float64", shape=s.shape) for s in slots}
    data = {
        v.name: pt.tensor(v.name, dtype=v.dtype, shape=_static_shape(model, v, rows))
        for v in model.data_vars
    }
    named, probabilities = _posterior(model), likelihood_probabilities(model)
    normal = normal_parameters(model)
    parameters = [v.owner.op.dist_params(v.owner) for v in model.free_RVs]
    graphs = [
        elementwise_logp(model),
        *(term.sum() for term in model.logp(vars=model.free_RVs, jacobian=jacobian, sum=False)),
        *model.replace_rvs_by_values([p for found in parameters for p in found]),
        *named.values(),
        *([] if probabilities is None else [probabilities]),
        *([] if normal is None else normal),
    ]
    replaced = iter(graph_replace(graphs, _replacements(model, free, data), strict=False))
    log_likelihood, names = next(replaced), [model.rvs_to_values[v].name for v in model.free_RVs]
    return FlatModel(
        slots=slots,
        free=free,
        data=data,
        log_likelihood=log_likelihood,
        log_priors={name: next(replaced) for name in names},
        distributions={
            name: Distribution(
                kind=type(v.owner.op),
                parameters=tuple(next(replaced) for _ in found),
                transform=model.rvs_to_transforms[v],
            )
            for name, v, found in zip(names, model.free_RVs, parameters, strict=True)
        },
        posterior={name: next(replaced) for name in named},
        probabilities=None if probabilities is None else next(replaced),
        normal=None if normal is None else (next(replaced), next(replaced)),
        improper=any(isinstance(v.owner.op, _flat_op()) for v in model.free_RVs),
    )


def _flat_op() -> type:
    return type(Flat.rv_op)


def _slots(model: pm.Model) -> tuple[Slot, ...]:
    """Free variables one after the other, those with the same prior side by side."""
    kinds: list[list] = []
    for rv in model.free_RVs:
        for kind in kinds:
            if _have_same_prior(kind[0], rv, model):
                kind.append(rv)
                break
        else:
            kinds.append([rv])
    values = [model.rvs_to_values[rv] for kind in kinds for rv in kind]
    shapes = {v.name: _shape(model, v) for v in values}
    starts = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes.values())])
    return tuple(
        Slot(name, int(start), shape)
        for (name, shape), start in zip(shapes.items(), starts[:-1], strict=True)
    )


def _have_same_prior(rv, other, model: pm.Model) -> bool:
    """Whether two free variables are of one kind, with equal parameters and transformations."""
    if type(rv.owner.op) is not type(other.owner.op):
        return False
    transforms = [type(model.rvs_to_transforms[v]) for v in (rv, other)]
    return transforms[0] is transforms[1] and have_equal_parameters(
        *(v.owner.op.dist_params(v.owner) for v in (rv, other))
    )


def have_equal_parameters(ours: Sequence, theirs: Sequence) -> bool:
    """Whether two lists of parameters are the same scalars, as far as their graphs tell."""
    ours, theirs = ([as_scalar(p) for p in found] for found in (ours, theirs))
    if any(p is None for p in (*ours, *theirs)):
        return False
    return len(ours) == len(theirs) and equal_computations(ours, theirs)


def as_scalar(variable: TensorVariable) -> TensorVariable | None:
    """The scalar that a variable is a spread-out form of; None if it is something else."""
    while variable.owner is not None and isinstance(variable.owner.op, DimShuffle):
        variable = variable.owner.inputs[0]
    return variable if variable.type.ndim == 0 else None


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


def _replacements(model, free, data) -> dict:
    lengths = {
        length: pt.constant(length.get_value(), dtype=length.dtype)
        for length in model.dim_lengths.values()
        if hasattr(length, "get_value")
    }
    values = {v: free[v.name] for v in model.value_vars}
    return values | lengths | {v: data[v.name] for v in model.data_vars}
