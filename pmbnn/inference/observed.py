"""Log-probability of the observations of a model; observations outside their support."""

from collections.abc import Mapping, Sequence

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.discrete import Bernoulli, Categorical
from pymc.distributions.dist_math import check_parameters
from pymc.logprob.utils import (
    CheckParameterValue,
    ParameterValueError,
    local_check_parameter_to_ninf_switch,
)
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Constant, clone_get_equiv
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import graph_inputs, io_toposort
from pytensor.scalar import Cast, Sigmoid
from pytensor.tensor import TensorVariable
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.special import Softmax, log_softmax, softmax

from pmbnn.models.likelihoods import TARGET_NAME


def elementwise_logp(
    model: pm.Model, observed: TensorVariable, inputs: Mapping[TensorVariable, TensorVariable]
) -> TensorVariable:
    """Log-probability of each observation of an observed variable, on the value variables.

    Several targets of a row, along the dim ``target_name``, are one observation: their sum.

    A categorical likelihood is written as the product of log-probabilities and one-hot labels. That
    equals the gather operation of PyMC, and is several times faster with its gradient. The
    likelihood of two classes with a logit is written without the probability, which would round to
    0 or 1, and Student's t distribution without the difference of two large log-gamma functions.

    Parameters
    ----------
    inputs
        Inputs with static shapes that later replace values and data.

    Notes
    -----
    The forms for labels do not check their support: `pmbnn.inference.observed` does.
    """
    logit = _logit(model, observed)
    if logit is not None:
        sign = 1.0 - 2.0 * model.rvs_to_values[observed].astype("float64")
        return -pt.softplus(sign * logit)
    probabilities = _class_probabilities(model, observed)
    n_classes = None if probabilities is None else _n_classes(probabilities, inputs)
    if n_classes is None:
        by_row = _student_t(model, observed)
        if by_row is None:
            by_row = model.logp(vars=[observed], sum=False)[0]
        several = model.named_vars_to_dims.get(observed.name, ())[1:] == (TARGET_NAME,)
        return by_row.sum(axis=1) if several else by_row
    classes = pt.arange(n_classes)[:, None]
    one_hot = pt.eq(model.rvs_to_values[observed][None, :], classes).astype("float64")
    outputs = _outputs_first(probabilities)
    if outputs is None:
        # The label's probability first, its logarithm then: 0 · log(0) would not be a number.
        by_row = pt.log(pt.sum(one_hot * probabilities.T, axis=0))
        is_distribution = pt.ge(probabilities, 0), pt.isclose(probabilities.sum(axis=-1), 1)
        return check_parameters(by_row, *is_distribution, msg="0 <= p, sum(p) = 1")
    return pt.sum(one_hot * log_softmax(outputs, axis=0), axis=0)


def number_of_classes(
    model: pm.Model, observed: TensorVariable, inputs: Mapping[TensorVariable, TensorVariable]
) -> int | None:
    """Number of classes of labels that `elementwise_logp` does not check; None if it does."""
    if _logit(model, observed) is not None:
        return 2
    probabilities = _class_probabilities(model, observed)
    return None if probabilities is None else _n_classes(probabilities, inputs)


def has_any_probabilities(model: pm.Model, observed: TensorVariable) -> bool:
    """Whether class probabilities are a sigmoid or a softmax, valid for all parameters."""
    probabilities = _class_probabilities(model, observed)
    is_softmax = probabilities is not None and _outputs_first(probabilities) is not None
    return is_softmax or _logit(model, observed) is not None


def observations_last(graph: TensorVariable) -> TensorVariable:
    """The same graph, a softmax over classes written with observations on the last axis.

    XLA computes a softmax over a last axis of a few classes several times slower.
    """
    outputs = _outputs_first(graph)
    return graph if outputs is None else softmax(outputs, axis=0).T


def _logit(model: pm.Model, observed: TensorVariable) -> TensorVariable | None:
    """Logit of labels of two classes, ``(observation,)``; None for other variables."""
    node = observed.owner
    if not isinstance(node.op, type(Bernoulli.rv_op)) or observed.type.ndim != 1:
        return None
    (probability,) = model.replace_rvs_by_values(node.op.dist_params(node))
    node = probability.owner
    is_sigmoid = node and isinstance(getattr(node.op, "scalar_op", None), Sigmoid)
    return node.inputs[0] if is_sigmoid and probability.type.ndim == 1 else None


MANY = 20
"""Degrees of freedom from which four terms of a series tell a log-density to 1e-11."""


def _student_t(model: pm.Model, observed: TensorVariable) -> TensorVariable | None:
    """Log-density of Student's t distribution; None for other variables.

    In single precision the difference of log-gamma functions at (nu + 1) / 2 and nu / 2 is wrong by
    6e-8 of their size, for each observation: by 0.06 nats at a million degrees of freedom. The
    series of the difference less log(nu / 2) / 2 is that of Tricomi and Erdélyi (1951), The
    asymptotic expansion of a ratio of gamma functions.
    """
    node = observed.owner
    if not isinstance(node.op, type(pm.StudentT.rv_op)):
        return None
    nu, mu, sigma = model.replace_rvs_by_values(node.op.dist_params(node))
    half, value = nu / 2, model.rvs_to_values[observed]
    few = pt.gammaln(half + 0.5) - pt.gammaln(half) - 0.5 * pt.log(half)
    x = 1 / pt.maximum(half, MANY / 2)
    many = -x / 8 + x**3 / 192 - x**5 / 640 + 17 * x**7 / 14336
    lam = sigma**-2.0
    constant = pt.where(nu < MANY, few, many) + 0.5 * pt.log(lam / (2 * np.pi))
    density = constant - (half + 0.5) * pt.log1p(lam * (value - mu) ** 2 / nu)
    return check_parameters(density, lam > 0, nu > 0, msg="lam > 0, nu > 0")


def _class_probabilities(model: pm.Model, observed: TensorVariable) -> TensorVariable | None:
    """Class probabilities of a model, ``(observation, class)``; None for other variables."""
    node = observed.owner
    if not isinstance(node.op, type(Categorical.rv_op)) or observed.type.ndim != 1:
        return None
    (probabilities,) = node.op.dist_params(node)
    if probabilities.type.ndim != 2:
        return None
    return model.replace_rvs_by_values([probabilities])[0]


def _n_classes(probabilities: TensorVariable, inputs) -> int | None:
    """Number of classes, inferred from the shapes of the inputs; None if it is unknown."""
    node = probabilities.owner
    # The output of a softmax has no static shape.
    outputs = node.inputs[0] if node and isinstance(node.op, Softmax) else probabilities
    if outputs.type.shape[-1] is not None:
        return outputs.type.shape[-1]
    # PyTensor infers lengths when it makes a node, not when inputs are replaced.
    remade = dict(inputs)
    for node in io_toposort([], [outputs]):
        variables = node.op.make_node(*(remade.get(v, v) for v in node.inputs)).outputs
        remade |= dict(zip(node.outputs, variables, strict=True))
    return remade.get(outputs, outputs).type.shape[-1]


def _outputs_first(probabilities: TensorVariable) -> TensorVariable | None:
    """Argument of a softmax over classes, classes first; None for other graphs."""
    node = probabilities.owner
    if node is None or not isinstance(node.op, Softmax) or node.op.axis != (1,):
        return None
    outputs = node.inputs[0]
    # A transposition of a transposition would remain in the graph as two copies.
    op = outputs.owner and outputs.owner.op
    transposed = isinstance(op, DimShuffle) and op.new_order == (1, 0)
    return outputs.owner.inputs[0] if transposed else outputs.T


def with_bounds(graphs: Sequence[TensorVariable]) -> list[TensorVariable]:
    """The same terms of a log-density, -infinity where PyMC's checks of parameters fail.

    Under JAX, checks cannot raise errors, and without them the log-density of a gamma distribution
    is finite at a negative shape. Checks that JAX cannot compute are left out: these have their own
    operation for positive definite matrices.
    """
    from pytensor.link.jax.dispatch import jax_funcify

    def is_computed(node) -> bool:
        ops = (type(n.op) for n in io_toposort([], node.inputs[1:]))
        return all(jax_funcify.dispatch(op) is not jax_funcify.dispatch(object) for op in ops)

    inputs = list(graph_inputs(graphs))
    memo = clone_get_equiv(inputs, graphs, copy_inputs=False, copy_orphans=False)
    graph = FunctionGraph(inputs, [memo[g] for g in graphs], clone=False)
    for node in graph.toposort():
        if isinstance(node.op, CheckParameterValue) and is_computed(node):
            bounded = local_check_parameter_to_ninf_switch.transform(graph, node)
            graph.replace_all(list(zip(node.outputs, bounded or node.outputs, strict=True)))
    return graph.outputs


# Checks before a fit that observations are in the support of their distributions
#
# The log-probabilities that XLA runs fast do not check labels. They are checked here, on the data,
# as is whether parameters are in their domain at all.


POINTS, SPREAD = 100, 2.0
"""Number of points about zero, and about the initial point of the model, at which an observation
without a density is outside the support, and their standard deviation on the unconstrained
variables; both as for the starts of chains."""


def uncast(values: TensorVariable) -> TensorVariable:
    """Observed values before PyMC casts them: a cast to integers would cut off fractions."""
    while values.owner is not None and isinstance(
        getattr(values.owner.op, "scalar_op", None), Cast
    ):
        values = values.owner.inputs[0]
    return values


def interpreted(inputs: Sequence[TensorVariable], outputs):
    """Function of graphs that runs in Python: compiling would take longer than running it."""
    with pytensor.config.change_flags(cxx=""):
        mode = Mode("py", None)
        return pytensor.function(list(inputs), outputs, mode=mode, on_unused_input="ignore")


def check_labels(
    labels: Mapping[str, TensorVariable],
    n_classes: Mapping[str, int],
    inputs: Mapping[str, TensorVariable],
    data: Mapping[str, np.ndarray],
) -> None:
    """Raise ValueError if a label or a count is no integer, or a label is of no class.

    Parameters
    ----------
    labels
        Values of the discrete observed variables by name, as graphs of `inputs`.
    n_classes
        Number of classes of the variables whose log-probability does not check labels.
    data
        Values of the inputs by name.
    """
    for name, graph in labels.items():
        if isinstance(graph, Constant):
            values = np.asarray(graph.data)
        elif graph in inputs.values():
            values = np.asarray(data[graph.name])
        else:
            values = interpreted(list(inputs.values()), graph)(*(data[n] for n in inputs))
        _check(name, values, np.isfinite(values) & (values == np.round(values)), "the integers")
        if name in n_classes:
            last = n_classes[name] - 1
            support = f"the integers from 0 to {last}"
            _check(name, values, (values >= 0) & (values <= last), support)


def check_support(model: pm.Model, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise ValueError if an observation has no density in PyMC for any free variables.

    `check_labels` checks class labels.

    Parameters
    ----------
    shapes
        Shapes of the unconstrained values of the free variables, by name.
    """
    for variable in model.observed_RVs:
        if has_any_probabilities(model, variable):
            continue
        graph = model.logp(vars=[variable], sum=False)[0]
        possible, reason = _possible(model, graph, shapes)
        if possible is None:
            continue
        if reason:
            raise ValueError(
                f"`{variable.name}` must have parameters that its distribution takes, {reason}, "
                f"which they are at none of {2 * POINTS} random values of the free variables."
            )
        values = interpreted([], uncast(model.rvs_to_values[variable]))()
        if possible.shape == np.shape(values)[: possible.ndim]:
            _check(variable.name, values, possible, f"that of {variable.owner.op._print_name[0]}")


def _possible(model: pm.Model, graph, shapes) -> tuple[np.ndarray | None, str]:
    """Observations with a density at some point; or the rule that parameters break at every point.

    The first is None if it cannot be computed.
    """
    function, rng = interpreted(model.value_vars, graph), np.random.default_rng(0)
    possible, reason = np.array(False), ""
    centre: Mapping[str, np.ndarray] = {}
    for i in range(2 * POINTS):
        if i == POINTS:  # far from zero in units of the data; drawn late, as it takes a second
            with pytensor.config.change_flags(cxx=""):
                centre = model.initial_point()
        spread = 0.0 if i == POINTS else SPREAD
        point = [
            centre.get(v.name, 0.0) + spread * rng.standard_normal(shapes[v.name])
            for v in model.value_vars
        ]
        try:
            with np.errstate(all="ignore"):
                possible, reason = possible | np.isfinite(function(*point)), ""
        except ParameterValueError as error:
            if not possible.any():
                reason = str(error).splitlines()[0]
        except Exception:  # a matrix without a root, or an operation that Python does not implement
            return None, ""
        if possible.all():
            break
    return possible, reason


def _check(name: str, values: np.ndarray, is_inside: np.ndarray, support: str) -> None:
    """Raise ValueError that names the first value outside the support."""
    outside = np.argwhere(~is_inside)
    if not len(outside):
        return
    value = np.asarray(values)[tuple(outside[0])]
    raise ValueError(
        f"`{name}` must be in the support of its distribution, {support}, "
        f"got {value}{place_of(~is_inside)}."
    )


def place_of(which: np.ndarray) -> str:
    """Text on the first true place and the number of others; empty for a scalar."""
    if not which.ndim:
        return ""
    first, *others = np.argwhere(which).tolist()
    more = f" (and {len(others)} more)" if others else ""
    return f" in row {first[0]}{more}" if which.ndim == 1 else f" at {first}{more}"
