"""Checks before a fit that observations are in the support of their distributions.

The log-probabilities that XLA runs fast do not check labels, and JAX drops PyMC's checks of
parameters. These are checked here, on the data.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pymc as pm
import pytensor
from pymc.logprob.utils import ParameterValueError
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Constant
from pytensor.scalar import Cast
from pytensor.tensor import TensorVariable

from pmbnn.inference.observed import has_any_probabilities

POINTS, SPREAD = 100, 2.0
"""Number of points at which an observation without a density is outside the support, and their
standard deviation on the unconstrained variables; both as for the starts of chains."""


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
                f"which they are at none of {POINTS} random values of the free variables."
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
    for _ in range(POINTS):
        point = [SPREAD * rng.standard_normal(shapes[v.name]) for v in model.value_vars]
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
