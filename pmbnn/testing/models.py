"""Checks of every model: names, dims, finite log-probability and gradient."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from pmbnn.data.arrays import Rows
from pmbnn.experiment.checks import free_scalars
from pmbnn.models.build import ROW_DATA, build_model
from pmbnn.models.hyperpriors import Fixed, Hierarchical, Hyperprior
from pmbnn.models.likelihoods import Likelihood
from pmbnn.models.networks import Network
from pmbnn.models.prior_base import Prior

if TYPE_CHECKING:
    import pymc as pm
    from pytensor.tensor import TensorVariable

N_ROWS = 9
CLASSES = ("a", "b", "c")

OFFSETS = (-0.7, 0.7)
"""Centres of the points at which a model is evaluated, on its unconstrained axes: a variable that
must be positive and is not shows at one of the two."""


@contextmanager
def assertion(what: str) -> Iterator[None]:
    """Turn an error into an AssertionError that begins with some words."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "")
        raise AssertionError(f"{what}: {type(error).__name__}: {reason}") from error


def rows_of(likelihood: Likelihood, input_shape: tuple[int, ...] = (2,)) -> Rows:
    """Nine rows of random inputs with targets that a likelihood observes."""
    rng = np.random.default_rng(0)
    n = int(np.prod(input_shape))
    x, features = rng.normal(size=(N_ROWS, n)), tuple(f"feature_{i}" for i in range(n))
    if likelihood.task == "regression":
        return Rows(x, rng.normal(size=N_ROWS), features, (), input_shape)
    classes = CLASSES if likelihood.takes(len(CLASSES)) else CLASSES[:2]
    return Rows(x, rng.permutation(N_ROWS) % len(classes), features, classes, input_shape)


def evaluate(
    graphs: "Sequence[TensorVariable]", values: "Mapping[TensorVariable, np.ndarray]"
) -> list[np.ndarray]:
    """Values of graphs, interpreted in Python: a compilation takes longer for one value."""
    return _interpreted(graphs, list(values))(*values.values())


def _interpreted(graphs, inputs) -> Callable[..., list[np.ndarray]]:
    import pytensor
    from pytensor.compile.mode import Mode

    mode = Mode(linker="py", optimizer=None)
    return pytensor.function(inputs, list(graphs), mode=mode, on_unused_input="ignore")


def random_point(model: "pm.Model", offset: float = 0.0) -> dict[str, np.ndarray]:
    """Normal draws around a number for every unconstrained value, shaped as its dims declare."""
    rng = np.random.default_rng(1)
    dims = {v: model.named_vars_to_dims.get(v.name, ()) for v in model.free_RVs}
    return {
        model.rvs_to_values[v].name: offset
        + 0.5 * rng.normal(size=[len(model.coords[dim]) for dim in dims[v]])
        for v in model.free_RVs
    }


def check_model(
    network: Network,
    prior: Prior,
    hyperprior: Hyperprior,
    likelihood: Likelihood,
    rows: Rows | None = None,
    offsets: Sequence[float] = OFFSETS,
) -> "pm.Model":
    """Build a model and check its declarations, log-probability and gradient; return the model.

    Parameters
    ----------
    rows
        Rows to build it on; random ones with two features unless given.
    offsets
        Centres of the points at which it is evaluated, on its unconstrained axes.

    Raises
    ------
    AssertionError
        If the model cannot be built, differs from what its parts declare, or has a log-probability
        or a gradient that is not finite.
    """
    rows = rows_of(likelihood) if rows is None else rows
    names = ", ".join(part.kind for part in (network, prior, hyperprior, likelihood))
    with assertion(f"a model of {names} cannot be built"):
        model = build_model(network, prior, hyperprior, likelihood, rows)

    def must(holds: object, what: str, value: object) -> None:
        assert holds, f"a model of {names} must be such that {what}, got {value}"

    n_outputs = likelihood.n_outputs(rows.n_classes, rows.n_targets)
    parameters = network.parameters(rows.input_shape, n_outputs)
    for parameter in parameters:
        dims = tuple(model.named_vars_to_dims.get(parameter.name, ()))
        must(dims == parameter.dims, f"`{parameter.name}` has dims {parameter.dims}", dims)
    hyperprior = hyperprior if prior.has_scale else Fixed(scale=None)
    data = {v.name: v.get_value().tolist() for v in model.data_vars if v.name not in ROW_DATA}
    constants = {**hyperprior.constants, **likelihood.constants, **prior.constants(rows)}
    constants = {name: np.asarray(value).tolist() for name, value in constants.items()}
    must(data == constants, f"the constants {constants} are the model's data", data)
    size = sum(value.size for value in random_point(model).values())
    declared = free_scalars(parameters, prior, hyperprior, likelihood, rows.n_targets)
    must(size == declared, f"there are as many free scalars as declared, {declared}", size)
    with assertion(f"a model of {names} cannot be evaluated"):
        weights = [p.name for p in parameters]
        _check_values(model, weights, isinstance(hyperprior, Hierarchical), offsets, must)
    return model


def _check_values(
    model: "pm.Model",
    weights: list[str],
    has_scales: bool,
    offsets: Sequence[float],
    must: Callable[[object, str, object], None],
) -> None:
    """Check log-probability, its gradient, weights and scales at some points."""
    import pytensor.tensor as pt

    scales = [v for v in model.named_vars if v.endswith("_scale") and v != "prior_scale"]
    names = [*weights, *(scales if has_scales else ())]
    values, logp = model.value_vars, model.logp()
    variables = model.replace_rvs_by_values([model[name] for name in names])
    function = _interpreted([logp, *pt.grad(logp, values), *variables], values)
    for offset in offsets:
        point = random_point(model, offset)
        log_probability, *arrays = function(*(point[v.name] for v in values))
        must(np.isfinite(log_probability), "the log-probability is finite", log_probability)
        for value, gradient in zip(values, arrays, strict=False):
            is_usable = np.isfinite(gradient).all() and np.any(gradient != 0)
            must(is_usable, f"the gradient by `{value.name}` is finite, not zero", gradient)
        for name, array in zip(names, arrays[len(values) :], strict=True):
            is_weight = name in weights
            holds = np.isfinite(array).all() and (is_weight or np.all(array > 0))
            must(holds, f"`{name}` is {'finite' if is_weight else 'positive'}", array)
