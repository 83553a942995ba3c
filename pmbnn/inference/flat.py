"""A PyMC model as graphs of its unconstrained free variables, laid out in one flat vector.

All other modules of this package use these: a guide draws the vector, the ELBO evaluates it, and
predictions are functions of it. The model may be any one with continuous free variables.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.distribution import PartialObservedRV
from pymc.logprob.transforms import Transform
from pymc.util import get_untransformed_name, is_transformed_name
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import equal_computations
from pytensor.graph.op import Op
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor import TensorVariable
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.type import RandomType

from pmbnn.core.display import Summarised
from pmbnn.core.spec import digests_of
from pmbnn.inference.observed import (
    check_labels,
    elementwise_logp,
    number_of_classes,
    uncast,
    with_bounds,
)
from pmbnn.models.build import parts_of
from pmbnn.models.point import PointRV
from pmbnn.models.prior_draws import IMPROPER

# Places of the free variables in the flat vector


@dataclass(frozen=True)
class Slot:
    """Place of one free variable in the flat vector; ``name`` is its value variable's."""

    name: str
    start: int
    shape: tuple[int, ...]

    @property
    def length(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape))

    @property
    def stop(self) -> int:
        """Index after the last element."""
        return self.start + self.length

    def of(self, vector):
        """The variable's part of a flat vector, in its own shape."""
        return vector[self.start : self.stop].reshape(self.shape)


@dataclass(frozen=True)
class Layout:
    """Places of all free variables, one after the other without gaps."""

    slots: tuple[Slot, ...]

    @classmethod
    def of(cls, shapes: Mapping[str, tuple[int, ...]]) -> "Layout":
        """The layout of variables with these names and shapes, in their order."""
        starts = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes.values())])
        places = zip(shapes.items(), starts[:-1], strict=True)
        return cls(tuple(Slot(name, int(start), shape) for (name, shape), start in places))

    @property
    def size(self) -> int:
        """Number of elements of the vector."""
        return self.slots[-1].stop

    def unravel(self, vector) -> dict[str, TensorVariable | np.ndarray]:
        """Parts of a flat vector, ``(size,)``, by name and in their shapes."""
        if not isinstance(vector, TensorVariable):
            return {slot.name: slot.of(vector) for slot in self.slots}
        parts = split_vector(vector, [slot.length for slot in self.slots])
        return {
            slot.name: part.reshape(slot.shape)
            for slot, part in zip(self.slots, parts, strict=True)
        }

    def ravel(self, parts: Mapping[str, np.ndarray]) -> np.ndarray:
        """The flat vector of parts by name, ``(size,)``."""
        return np.concatenate([np.ravel(parts[slot.name]) for slot in self.slots])


def split_vector(vector: TensorVariable, lengths: Sequence[int]) -> list[TensorVariable]:
    """Consecutive parts of a vector.

    The gradient of a split is one concatenation; the gradient of every slice is a vector of full
    length that is mostly zero.
    """
    if len(lengths) == 1:
        return [vector]
    return pt.split(vector, splits_size=list(lengths))


OBSERVATION = "observation"
"""Name of the dim along which minibatches are taken."""

FOR_MINIBATCHES = (
    f"For minibatches, hand over all rows as pm.Data with the dim `{OBSERVATION}` and set `batch`."
)
"""Remedy for models with minibatches of PyMC."""

TERMS = ("log_priors", "potentials", "log_likelihoods")
"""Terms of a log-density, in the order in which they may depend on one another."""

INTEGERS = ("int", "uint", "bool")
"""Starts of the dtype names of discrete variables."""


@dataclass(frozen=True)
class Distribution:
    """Prior distribution of a free variable.

    Attributes
    ----------
    op
        PyMC's random variable.
    parameters
        Its parameters in PyMC's order, graphs of the other free variables and the data.
    transform
        The transformation to unconstrained values; None if they are unconstrained.
    """

    op: Op
    parameters: tuple[TensorVariable, ...]
    transform: Transform | None

    @property
    def kind(self) -> type:
        """Type of the random variable."""
        return type(self.op)


@dataclass(frozen=True, repr=False)
class FlatModel(Summarised):
    """Graphs of a model on its free variables, and their places in one flat vector.

    Attributes
    ----------
    layout
        Places of the free variables in the flat vector.
    free
        Inputs for the unconstrained values of the free variables, by the slots' names.
    data
        Inputs for the model's data variables, by name, with static shapes.
    row_data
        Names of the data variables whose first dim is ``observation``: one row per observation.
    distributions
        Prior distributions of the free variables, by the slots' names.
    log_priors
        Log-density of each free variable, summed over its elements; a scalar, in nats.
    log_likelihoods
        Log-probability of every observation of each observed variable, by its name, in nats:
        ``(observation,)`` for a vector of independent ones, a scalar for a multivariate one.
    potentials
        Further terms of the model's log-density, by name, summed; scalars, in nats.
    posterior
        Untransformed free variables and deterministics by name.
    improper
        Whether some free variable has an improper prior.
    points
        Names of the slots of point parameters.
    labels
        Values of the discrete observed variables by name, before PyMC casts them.
    n_classes
        Number of classes of the variables whose labels the log-likelihood does not check.
    has_bounds
        Whether densities are zero where a parameter is outside its domain.
    """

    layout: Layout
    free: dict[str, TensorVariable]
    data: dict[str, TensorVariable]
    row_data: tuple[str, ...]
    distributions: dict[str, Distribution]
    log_priors: dict[str, TensorVariable]
    log_likelihoods: dict[str, TensorVariable]
    potentials: dict[str, TensorVariable]
    posterior: dict[str, TensorVariable]
    improper: bool
    points: tuple[str, ...] = ()
    labels: Mapping[str, TensorVariable] = field(default_factory=dict)
    n_classes: Mapping[str, int] = field(default_factory=dict)
    has_bounds: bool = False

    @property
    def size(self) -> int:
        """Number of unconstrained scalars."""
        return self.layout.size

    @property
    def spread(self) -> tuple[bool, ...] | None:
        """Whether a guide has a distribution for each scalar, ``(size,)``; None if for all."""
        if not self.points:
            return None
        slots = self.layout.slots
        return tuple(s.name not in self.points for s in slots for _ in range(s.length))

    @property
    def log_prior(self) -> TensorVariable:
        """Joint log-density of all free variables; a scalar, in nats."""
        return sum(self.log_priors.values())

    @property
    def rows(self) -> list[TensorVariable]:
        """Inputs with one row per observation."""
        return [self.data[name] for name in self.row_data]

    def check_labels(self, data: Mapping[str, np.ndarray]) -> None:
        """Raise ValueError if observed labels or counts are outside their support."""
        check_labels(self.labels, self.n_classes, self.data, data)

    def at(self, vector: TensorVariable, graphs: Sequence[TensorVariable]) -> list[TensorVariable]:
        """The same graphs as functions of a flat vector, ``(size,)``."""
        parts = self.layout.unravel(vector)
        values = {self.free[name]: part for name, part in parts.items()}
        return graph_replace(list(graphs), values, strict=False)


def flat_vector(flat: FlatModel) -> TensorVariable:
    """An input for the flat vector, ``(size,)``."""
    return pt.tensor("values", dtype="float64", shape=(flat.size,))


@dataclass(frozen=True)
class ModelGraphs:
    """Graphs of a model on its value variables, which are the slow part of flattening it.

    Functions that take a model take these as well, so that several calls share them.

    Attributes
    ----------
    jacobian
        See `flatten_model`.
    shapes
        Shapes of the unconstrained values of the free variables, by name, in the layout's order.
    groups
        Graphs by kind and name.
    n_classes
        See `FlatModel`.
    """

    model: pm.Model
    jacobian: bool
    shapes: dict[str, tuple[int, ...]]
    groups: dict[str, dict[str, TensorVariable]]
    n_classes: dict[str, int]

    def flatten(self, rows: int | None) -> FlatModel:
        """Graphs on new inputs, for a number of observations; None leaves it open."""
        model = self.model
        free, data = _inputs(model, self.shapes, rows)
        graphs = _replaced(self.groups, _by_variable(model, free, data))
        parameters = graphs["parameters"]
        names = dict(zip(graphs["log_priors"], model.free_RVs, strict=True))
        return FlatModel(
            layout=Layout.of(self.shapes),
            free=free,
            data=data,
            row_data=tuple(v.name for v in model.data_vars if _has_rows(model, v)),
            log_likelihoods=graphs["log_likelihoods"],
            log_priors=graphs["log_priors"],
            potentials=graphs["potentials"],
            distributions={
                name: Distribution(
                    op=v.owner.op,
                    parameters=tuple(parameters[f"{name}/{i}"] for i in range(len(_parameters(v)))),
                    transform=model.rvs_to_transforms[v],
                )
                for name, v in names.items()
            },
            posterior=graphs["posterior"],
            improper=any(isinstance(v.owner.op, IMPROPER) for v in model.free_RVs),
            points=tuple(n for n, v in names.items() if isinstance(v.owner.op, PointRV)),
            labels=graphs["labels"],
            n_classes=self.n_classes,
            has_bounds=_has_bounds(model),
        )


def flatten_model(
    model: pm.Model | ModelGraphs, rows: int | None, jacobian: bool = True
) -> FlatModel:
    """Graphs of `model` on its free variables, for a given number of observations.

    Parameters
    ----------
    rows
        Length of the dim ``observation``, whatever it is in the model, if data variables have that
        dim. None leaves it open, which is enough for predictions.
    jacobian
        Without it, densities are those of the constrained variables, as usual for a mode.

    Raises
    ------
    ValueError
        If the model has no free variable or a discrete one, if an observed variable has
        `total_size`, or if the log-density or a deterministic draws random numbers.
    """
    return model_graphs(model, jacobian).flatten(rows)


def model_graphs(model: pm.Model | ModelGraphs, jacobian: bool = True) -> ModelGraphs:
    """Graphs to flatten for any number of observations; see `flatten_model`."""
    if isinstance(model, ModelGraphs):
        return model if model.jacobian == jacobian else model_graphs(model.model, jacobian)
    _check_free(model)
    _check_observed(model)
    shapes = value_shapes(model)
    inputs = _by_variable(model, *_inputs(model, shapes, rows=None))
    free, observed, unobserved = model.free_RVs, model.observed_RVs, model.unobserved_RVs
    names = [model.rvs_to_values[v].name for v in free]
    log_priors = model.logp(vars=free, jacobian=jacobian, sum=False)
    parameters = {
        f"{name}/{i}": p
        for name, v in zip(names, free, strict=True)
        for i, p in enumerate(_parameters(v))
    }
    groups = {
        "log_likelihoods": {v.name: elementwise_logp(model, v, inputs) for v in observed},
        "log_priors": {n: term.sum() for n, term in zip(names, log_priors, strict=True)},
        "parameters": _on_values(model, parameters),
        "posterior": _on_values(model, {v.name: v for v in unobserved}),
        "potentials": _on_values(model, {v.name: v.sum() for v in model.potentials}),
    }
    _check_deterministic(groups)
    if _has_bounds(model):
        bounded = iter(with_bounds([g for kind in TERMS for g in groups[kind].values()]))
        groups |= {kind: {name: next(bounded) for name in groups[kind]} for kind in TERMS}
    # Last, so that they do not change the order of the other graphs.
    groups["labels"] = {
        v.name: uncast(model.rvs_to_values[v]) for v in observed if v.dtype.startswith(INTEGERS)
    }
    n_classes = {v.name: n for v in observed if (n := number_of_classes(model, v, inputs))}
    return ModelGraphs(model, jacobian, shapes, groups, n_classes)


def _has_bounds(model: pm.Model) -> bool:
    """Whether parameters of a model are checked: those of this package are in their domains."""
    found = parts_of(model)
    if found is None:
        return model.check_bounds
    parts = (found.network, found.prior, found.hyperprior, found.likelihood)
    return model.check_bounds and any(map(digests_of, parts))


def _inputs(model: pm.Model, shapes, rows: int | None) -> tuple[dict, dict]:
    """Inputs for free values and for data, by name."""
    free = {name: pt.tensor(name, dtype="float64", shape=shape) for name, shape in shapes.items()}
    data = {
        v.name: pt.tensor(v.name, dtype=v.dtype, shape=_static_shape(model, v, rows))
        for v in model.data_vars
    }
    return free, data


def at_flat_inputs(
    model: pm.Model, flat: FlatModel, graphs: Mapping[str, TensorVariable]
) -> dict[str, TensorVariable]:
    """Graphs of a model's random variables, as graphs of the inputs of its flat form."""
    inputs = _by_variable(model, flat.free, flat.data)
    return _replaced({"": _on_values(model, graphs)}, inputs)[""]


def _by_variable(model: pm.Model, free, data) -> dict[TensorVariable, TensorVariable]:
    """Inputs by the variable of the model that they replace."""
    values = {v: free[v.name] for v in model.value_vars}
    values |= {v: data[v.name] for v in model.data_vars}
    length = model.dim_lengths.get(OBSERVATION)
    rows = [data[v.name] for v in model.data_vars if _has_rows(model, v)]
    # Labels of the rows among the model's coords would fix their number in the graphs.
    if rows and isinstance(length, SharedVariable):
        values[length] = rows[0].shape[0].astype(length.dtype)
    return values


def _on_values(model: pm.Model, graphs: Mapping[str, TensorVariable]) -> dict:
    """Graphs of random variables as graphs of their values."""
    return dict(zip(graphs, model.replace_rvs_by_values(list(graphs.values())), strict=True))


def _replaced(groups, inputs) -> dict[str, dict[str, TensorVariable]]:
    """The same graphs on new inputs, replaced together, so that they share subgraphs."""
    graphs = [graph for group in groups.values() for graph in group.values()]
    # Lengths of dims and other shared variables of a model are constants.
    constants = {
        v: pt.constant(v.get_value(), dtype=v.dtype)
        for v in graph_inputs(graphs)
        if isinstance(v, SharedVariable) and v not in inputs and hasattr(v, "dtype")
    }
    replaced = iter(graph_replace(graphs, inputs | constants, strict=False))
    return {kind: {name: next(replaced) for name in group} for kind, group in groups.items()}


# Checks


def _check_free(model: pm.Model) -> None:
    """Raise ValueError if there is no free variable, or a discrete one."""
    if not model.free_RVs:
        raise ValueError("`model` must have at least one free variable, got none.")
    for v in model.free_RVs:
        if not str(v.dtype).startswith("float"):
            raise ValueError(
                f"`model` must have continuous free variables only, got `{v.name}` of type "
                f"{v.dtype}. Sum it out of the model, as pm.Mixture does for the component of "
                "each observation."
            )


def _check_observed(model: pm.Model) -> None:
    """Raise ValueError if an observed variable has `total_size`."""
    for v in model.observed_RVs:
        if isinstance(v.owner.op, MinibatchRandomVariable):
            raise ValueError(
                f"`{v.name}` must not have `total_size`, which multiplies its log-likelihood, that "
                f"of each row too, so that the posterior and leave-one-out are of other data. "
                f"{FOR_MINIBATCHES}"
            )


def _check_deterministic(graphs: Mapping[str, Mapping[str, TensorVariable]]) -> None:
    """Raise ValueError if a term of the log-density or a deterministic draws random numbers."""
    for kind in (*TERMS, "posterior"):
        for name, graph in graphs[kind].items():
            if not any(isinstance(v.type, RandomType) for v in graph_inputs([graph])):
                continue
            if kind == "posterior":
                # All draws would have the same numbers.
                raise ValueError(
                    f"`model` must not draw random numbers in its deterministic `{name}`: make it "
                    "after the fit, by pm.sample_posterior_predictive."
                )
            raise ValueError(
                f"`model` must not draw random numbers in its log-density, as that of "
                f"`{name}` does. {FOR_MINIBATCHES}"
            )


# Places and shapes


def value_shapes(model: pm.Model) -> dict[str, tuple[int, ...]]:
    """Shapes of the unconstrained values by name; variables with the same prior are neighbours."""
    groups: list[list] = []
    for rv in model.free_RVs:
        for group in groups:
            if _have_same_prior(group[0], rv, model):
                group.append(rv)
                break
        else:
            groups.append([rv])
    ordered = [rv for group in groups for rv in group]
    shapes = {model.rvs_to_values[rv].name: _declared_shape(model, rv) for rv in ordered}
    if None in shapes.values():
        # Interpreted, as compiling would take longer.
        with pytensor.config.change_flags(cxx=""):
            start = model.initial_point()
        shapes = {name: start[name].shape if s is None else s for name, s in shapes.items()}
    return shapes


def untransformed_name(name: str) -> str:
    """Name of a free variable from the name of its unconstrained value."""
    return get_untransformed_name(name) if is_transformed_name(name) else name


def _declared_shape(model: pm.Model, rv: TensorVariable) -> tuple[int, ...] | None:
    """Shape of a free variable's value; None if the variable must be drawn to know it."""
    transform = model.rvs_to_transforms[rv]
    if transform is not None and getattr(transform, "ndim_supp", None) != 0:
        return None
    dims = model.named_vars_to_dims.get(rv.name, ())
    lengths = [model.coords.get(dim) for dim in dims]
    if len(dims) == rv.ndim and all(labels is not None for labels in lengths):
        return tuple(len(labels) for labels in lengths)
    return rv.type.shape if None not in rv.type.shape else None


def n_observations(model: pm.Model) -> int:
    """Length of the dim ``observation`` of a model's data variables.

    Without that dim, the largest number of rows of an observed variable, or 1.
    """
    for variable in model.data_vars:
        if _has_rows(model, variable):
            return len(variable.get_value(borrow=True))
    lengths = [v.type.shape[0] or 1 for v in model.observed_RVs if v.type.ndim]
    return max(lengths, default=1)


def _have_same_prior(rv, other, model: pm.Model) -> bool:
    """Whether two free variables have the same distribution, parameters and transformation."""
    types, others = ((type(v.owner.op), type(model.rvs_to_transforms[v])) for v in (rv, other))
    return types == others and have_equal_parameters(_parameters(rv), _parameters(other))


def _parameters(rv: TensorVariable) -> Sequence[TensorVariable]:
    """Parameters of a random variable in PyMC's order; none for missing observations."""
    if isinstance(rv.owner.op, PartialObservedRV):
        return ()
    return rv.owner.op.dist_params(rv.owner)


def have_equal_parameters(ours: Sequence, theirs: Sequence) -> bool:
    """Whether the graphs of two lists of parameters are the same scalars."""
    ours, theirs = ([as_scalar(p) for p in parameters] for parameters in (ours, theirs))
    if any(p is None for p in (*ours, *theirs)):
        return False
    return len(ours) == len(theirs) and equal_computations(ours, theirs)


def as_scalar(variable: TensorVariable) -> TensorVariable | None:
    """The scalar that was broadcast to a variable; None if the variable is something else."""
    while variable.owner is not None and isinstance(variable.owner.op, DimShuffle):
        variable = variable.owner.inputs[0]
    return variable if variable.type.ndim == 0 else None


def _has_rows(model: pm.Model, variable) -> bool:
    """Whether the first dim of a data variable is that of the observations."""
    return model.named_vars_to_dims.get(variable.name, (None,))[:1] == (OBSERVATION,)


def _static_shape(model: pm.Model, variable, rows: int | None) -> tuple[int | None, ...]:
    # Shared variables of PyTensor have any length; JAX needs known lengths.
    dims = model.named_vars_to_dims.get(variable.name, (None,) * variable.ndim)
    lengths = variable.get_value(borrow=True).shape
    return tuple(rows if d == OBSERVATION else n for d, n in zip(dims, lengths, strict=True))
