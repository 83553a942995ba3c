"""What holds for every model: names, dims, finite log-probability and gradient."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from pmbnn.data.arrays import Rows
from pmbnn.experiment.checks import free_scalars
from pmbnn.models.build import build_model
from pmbnn.models.likelihoods import Likelihood
from pmbnn.models.networks import Network
from pmbnn.models.priors import Fixed, Hierarchical, Hyperprior, Prior

if TYPE_CHECKING:
    import pymc as pm
    from pytensor.tensor import TensorVariable

N_ROWS = 9
CLASSES = ("a", "b", "c")

OFFSETS = (-0.7, 0.7)
"""Centres of the points that a model is looked at, on its unconstrained axes: a variable that
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
    graphs: "Sequence[TensorVariable]", given: "Mapping[TensorVariable, np.ndarray]"
) -> list[np.ndarray]:
    """Values of graphs, interpreted in Python: a compilation takes longer for one value."""
    return _interpreted(graphs, list(given))(*given.values())


def _interpreted(graphs, inputs):
    import pytensor
    from pytensor.compile.mode import Mode

    mode = Mode(linker="py", optimizer=None)
    return pytensor.function(inputs, list(graphs), mode=mode, on_unused_input="ignore")


def random_point(model: "pm.Model", offset: float = 0.0) -> dict[str, np.ndarray]:
    """Normal draws around a number for every unconstrained value, shaped as its dims declare."""
    rng = np.random.default_rng(1)
    dims = {v: model.named_vars_to_dims.get(v.name, ()) for v in model.free_RVs}
    shapes = {v: [len(model.coords[name]) for name in dims[v]] for v in model.free_RVs}
    return {
        model.rvs_to_values[v].name: offset + 0.5 * rng.normal(size=shapes[v])
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
    """Model that has what it declares, with finite log-probability and gradient.

    Parameters
    ----------
    rows
        To build it on; random ones with two features unless given.
    offsets
        Centres of the points it is looked at, on its unconstrained axes.

    Raises
    ------
    AssertionError
        It has not, or cannot be built.
    """
    rows = rows_of(likelihood) if rows is None else rows
    names = ", ".join(part.kind for part in (network, prior, hyperprior, likelihood))
    with assertion(f"a model of {names} cannot be built"):
        model = build_model(network, prior, hyperprior, likelihood, rows)
    n_outputs = likelihood.n_outputs(rows.n_classes, rows.n_targets)
    parameters = network.parameters(rows.input_shape, n_outputs)
    for parameter in parameters:
        dims = tuple(model.named_vars_to_dims.get(parameter.name, ()))
        _must(dims == parameter.dims, f"`{parameter.name}` has dims {parameter.dims}", dims, names)
    hyperprior = hyperprior if prior.has_scale else Fixed(scale=None)
    _check_data(model, {**hyperprior.constants, **likelihood.constants}, names)
    point = random_point(model)
    size = sum(value.size for value in point.values())
    declared = free_scalars(parameters, prior, hyperprior, likelihood, rows.n_targets)
    _must(size == declared, f"there are as many free scalars as declared, {declared}", size, names)
    weights = [p.name for p in parameters]
    with assertion(f"a model of {names} cannot be evaluated"):
        _check_values(model, weights, hyperprior, offsets, names)
    return model


def _check_data(model: "pm.Model", constants: Mapping[str, object], names: str) -> None:
    data = {v.name: v.get_value() for v in model.data_vars if v.name not in ("x", "target")}
    data = {name: np.asarray(value).tolist() for name, value in data.items()}
    constants = {name: np.asarray(value).tolist() for name, value in constants.items()}
    _must(data == constants, f"the constants {dict(constants)} are the model's data", data, names)


def _check_values(
    model: "pm.Model",
    weights: list[str],
    hyperprior: Hyperprior,
    offsets: Sequence[float],
    names: str,
) -> None:
    """Log-probability, its gradient, weights and scales at some points."""
    import pytensor.tensor as pt

    scales = [v for v in model.named_vars if v.endswith("_scale") and v != "prior_scale"]
    scales = scales if isinstance(hyperprior, Hierarchical) else []
    values, logp = model.value_vars, model.logp()
    wanted = model.replace_rvs_by_values([model[name] for name in (*weights, *scales)])
    function = _interpreted([logp, *pt.grad(logp, values), *wanted], values)
    for offset in offsets:
        point = random_point(model, offset)
        found, *others = function(*(point[v.name] for v in values))
        _must(np.isfinite(found), "the log-probability is finite", found, names)
        for value, gradient in zip(values, others, strict=False):
            is_there = np.isfinite(gradient).all() and np.any(gradient != 0)
            what = f"the gradient by `{value.name}` is finite, not zero"
            _must(is_there, what, gradient, names)
        for name, value in zip((*weights, *scales), others[len(values) :], strict=True):
            what = "finite" if name in weights else "positive"
            is_it = np.isfinite(value).all() and (name in weights or np.all(value > 0))
            _must(is_it, f"`{name}` is {what}", value, names)


def _must(holds: object, what: str, found: object, names: str) -> None:
    assert holds, f"a model of {names} must be such that {what}, got {found}"
