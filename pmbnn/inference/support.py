"""Whether what a model observes lies in the support of its distributions, checked before a fit.

Forms of a log-probability that XLA runs fast take labels without looking at them, and JAX drops the
checks of parameters that PyMC has. What they leave out is checked here, on the data.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pymc as pm
import pytensor
from pymc.distributions.continuous import PositiveContinuous, UnitContinuous
from pymc.logprob.utils import ParameterValueError
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Constant
from pytensor.scalar import Cast
from pytensor.tensor import TensorVariable

from pmbnn.inference.observed import has_any_probabilities

POINTS, SPREAD = 100, 2.0
"""Points that an observation is tried at before it counts as outside the support, and their
standard deviation on the unconstrained variables: as many, and as far apart, as chains start at."""

DISCRETE = {
    "Bernoulli": "0 and 1",
    "BetaBinomial": "integers from 0 to n",
    "Binomial": "integers from 0 to n",
    "DiscreteUniform": "integers from lower to upper",
    "Geometric": "integers from 1",
    "NegativeBinomial": "integers from 0",
    "Poisson": "integers from 0",
    "ZeroInflatedBinomial": "integers from 0 to n",
    "ZeroInflatedNegativeBinomial": "integers from 0",
    "ZeroInflatedPoisson": "integers from 0",
}
"""Supports of discrete distributions by name, for messages."""


def uncast(values: TensorVariable) -> TensorVariable:
    """Values as they were handed over: PyMC casts those of counts, which cuts off fractions."""
    while values.owner is not None and isinstance(
        getattr(values.owner.op, "scalar_op", None), Cast
    ):
        values = values.owner.inputs[0]
    return values


def interpreted(inputs: Sequence[TensorVariable], outputs):
    """A function of graphs run in Python: a compiler would take longer than all the rest."""
    with pytensor.config.change_flags(cxx=""):
        mode = Mode("py", None)
        return pytensor.function(list(inputs), outputs, mode=mode, on_unused_input="ignore")


def check_labels(
    observed: Mapping[str, TensorVariable],
    n_classes: Mapping[str, int],
    inputs: Mapping[str, TensorVariable],
    data: Mapping[str, np.ndarray],
) -> None:
    """Raise ValueError if a label or a count is no integer, or a label is of no class.

    Parameters
    ----------
    observed
        Values of the discrete observed variables by name, as graphs of `inputs`.
    n_classes
        Number of classes of those whose labels are taken without a look at them.
    data
        Values of the inputs by name.
    """
    for name, graph in observed.items():
        values = _values(graph, inputs, data)
        _check(name, values, np.isfinite(values) & (values == np.round(values)), "the integers")
        if name in n_classes:
            last = n_classes[name] - 1
            support = f"the integers from 0 to {last}"
            _check(name, values, (values >= 0) & (values <= last), support)


def _values(graph, inputs, data) -> np.ndarray:
    if isinstance(graph, Constant):
        return np.asarray(graph.data)
    names = {variable: name for name, variable in inputs.items()}
    if graph in names:
        return np.asarray(data[names[graph]])
    return interpreted(list(names), graph)(*(data[name] for name in names.values()))


def check_support(model: pm.Model, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise ValueError if PyMC gives an observation no density, wherever the free variables are.

    Labels alone are left to `check_labels`.

    Parameters
    ----------
    shapes
        Of the unconstrained values of the free variables, by name.
    """
    for variable in model.observed_RVs:
        if has_any_probabilities(model, variable):
            continue
        graph = model.logp(vars=[variable], sum=False)[0]
        function = interpreted(model.value_vars, graph)
        possible, reason = _possible(function, _points(model, shapes))
        if possible is None:
            continue
        if reason:
            raise ValueError(
                f"`{variable.name}` must have parameters that its distribution takes, {reason}, "
                f"which they are at none of {POINTS} random values of the free variables."
            )
        values = interpreted([], uncast(model.rvs_to_values[variable]))()
        if possible.shape == np.shape(values)[: possible.ndim]:
            _check(variable.name, values, possible, _support_of(variable))


def _points(model: pm.Model, shapes) -> Iterator[list[np.ndarray]]:
    rng = np.random.default_rng(0)
    for _ in range(POINTS):
        yield [SPREAD * rng.standard_normal(shapes[v.name]) for v in model.value_vars]


def _possible(function, points) -> tuple[np.ndarray | None, str]:
    """Which observations have a density at some point, and what parameters must be if at none.

    None where it cannot be told.
    """
    possible, reason = np.array(False), ""
    for point in points:
        try:
            with np.errstate(all="ignore"):
                possible, reason = possible | np.isfinite(function(*point)), ""
        except ParameterValueError as error:
            if not possible.any():
                reason = str(error).splitlines()[0]
        except Exception:  # a matrix that has no root there, or an operation without a Python form
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
    """The first place that is marked, and how many more are, in words; none of a scalar."""
    if not which.ndim:
        return ""
    first, *others = np.argwhere(which).tolist()
    more = f" (and {len(others)} more)" if others else ""
    return f" in row {first[0]}{more}" if which.ndim == 1 else f" at {first}{more}"


def _support_of(variable: TensorVariable) -> str:
    """The support of a distribution, in words."""
    of_op = {
        type(found.rv_op): found
        for found in vars(pm.distributions).values()
        if isinstance(found, type) and hasattr(found, "rv_op")
    }
    found = of_op.get(type(variable.owner.op))
    if found is None:
        return "where its density is not zero"
    if found.__name__ in DISCRETE:
        return DISCRETE[found.__name__]
    if issubclass(found, PositiveContinuous):
        return "positive numbers"
    if issubclass(found, UnitContinuous):
        return "numbers between 0 and 1"
    return f"that of {found.__name__}"
