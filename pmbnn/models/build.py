"""Network, prior, hyperprior, likelihood and rows put together: a plain PyMC model."""

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pmbnn.core.spec import named
from pmbnn.data.arrays import Dataset, Rows, identity_standardisation
from pmbnn.models.hyperpriors import HYPERPRIORS, Fixed, Hierarchical, Hyperprior
from pmbnn.models.likelihoods import (
    LIKELIHOODS,
    TARGET_NAME,
    Categorical,
    Likelihood,
    NumberLikelihood,
)
from pmbnn.models.matching import matched, why_not_scaled
from pmbnn.models.networks import NETWORKS, Dense, Network, Parameter
from pmbnn.models.prior_base import Prior
from pmbnn.models.priors import PRIORS
from pmbnn.models.weights import declare_weights

if TYPE_CHECKING:
    import numpy as np
    import pymc as pm
    from pytensor.tensor import TensorVariable

ROW_DATA = ("x", "target")
"""Data variables with one row per observation, of which a minibatch takes some rows."""

OBSERVED = "y"
"""Name of a model's observed variable."""

LAYER_PARAMETER = re.compile(r"(?:weight|bias|unit)_(\d+)")
"""Start of the names of a layer's weights and biases, and of their local scales."""

CATEGORICAL = Categorical()


def model_data(
    hyperprior: Hyperprior,
    rows: Rows,
    likelihood: Likelihood = CATEGORICAL,
    prior: Prior | None = None,
) -> dict[str, "np.ndarray"]:
    """Values of every data variable of a model, by name.

    Models that differ in these values only share one graph, hence one compiled program.

    Parameters
    ----------
    prior
        The prior, if it may have constants: that of a stored cell has.
    """
    import numpy as np

    constants = {**hyperprior.constants, **likelihood.constants}
    constants |= {} if prior is None else prior.constants(rows)
    arrays = {name: np.asarray(value) for name, value in constants.items()}
    return {"x": rows.x, "target": rows.y, **arrays}


def build_model(
    network: str | Mapping[str, object] | Network,
    prior: str | Mapping[str, object] | Prior,
    hyperprior: str | Mapping[str, object] | Hyperprior,
    likelihood: str | Mapping[str, object] | Likelihood,
    dataset: Rows | Dataset,
) -> "pm.Model":
    """PyMC model of a Bayesian network, on the given rows, or the training rows of a data set.

    Network, prior, hyperprior and likelihood may be names or mappings as in experiment files.

    Weights and biases are called ``weight_1``, ``bias_1``, ...; learned scales
    ``layer_1_scale`` (or ``network_scale``; per unit with the dims of the layer's outputs); the
    observed variable is ``y``. The docstring of a prior names the variables that it adds. Free
    variables that end in ``_z`` are standard draws, from which a deterministic variable is made.
    Inputs ``x``, targets ``target`` and every constant of the priors and of the likelihood are
    ``pm.Data``. Scales to be matched to a Gaussian process are matched at the inputs of these rows,
    and are then constants. With several targets, variables with one value per target have the dim
    ``target_name``.

    Raises
    ------
    ValueError
        If a prior without a scale is given a hyperprior, or a prior that is always non-centred a
        centred one; if there is not one scale for each layer, or scales cannot be matched; if the
        likelihood does not fit the targets; if a layer of the network does
        not fit the rows (`ShapeError`).
    """
    import pymc as pm
    import pytensor

    if isinstance(dataset, Dataset):
        dataset = dataset.training
    network = named(network, NETWORKS, "network", Network)
    prior = named(prior, PRIORS, "prior", Prior)
    hyperprior = named(hyperprior, HYPERPRIORS, "hyperprior", Hyperprior)
    likelihood = named(likelihood, LIKELIHOODS, "likelihood", Likelihood)
    _check_pair(prior, hyperprior)
    _check_likelihood(likelihood, dataset)
    if not prior.has_scale:
        hyperprior = Fixed(scale=None)
    _check_scales(hyperprior, prior, network, dataset)
    hyperprior = matched(hyperprior, prior, network, dataset)
    n_outputs = likelihood.n_outputs(dataset.n_classes, dataset.n_targets)
    parameters = network.parameters(dataset.input_shape, n_outputs)
    constants = model_data(hyperprior, dataset, likelihood, prior)
    if (rule := prior.why_not_of(network)) is not None:
        raise ValueError(f"`prior` {rule}.")
    # The model itself is double precision whatever the user's default: it is cast where JAX
    # takes over, and PyMC's own samplers need it.
    with (
        pytensor.config.change_flags(floatX="float64"),
        pm.Model(coords=_coords(parameters, dataset, likelihood)) as model,
    ):
        data = _declare_data(constants)
        values = declare_weights(parameters, prior, hyperprior, data)
        outputs = network.forward(data["x"], values, dataset.input_shape)
        likelihood.observe(OBSERVED, outputs, data)
    # One row is enough for shapes and names; the model itself holds all rows.
    _PARTS[model] = NetworkParts(network, prior, hyperprior, likelihood, dataset.take([0]))
    return model


@dataclass(frozen=True)
class NetworkParts:
    """The parts that `build_model` makes a model of."""

    network: Network
    prior: Prior
    hyperprior: Hyperprior
    likelihood: Likelihood
    rows: Rows

    def build(self, rows: Rows | None = None) -> "pm.Model":
        """PyMC model of these parts: on their rows, to predict with draws, or on others to fit."""
        prior = self.prior.for_predictions if rows is None else self.prior
        rows = self.rows if rows is None else rows
        return build_model(self.network, prior, self.hyperprior, self.likelihood, rows)

    @property
    def data(self) -> dict[str, "np.ndarray"]:
        """Values of the model's data variables, by name."""
        prior = self.prior.for_predictions
        return model_data(self.hyperprior, self.rows, self.likelihood, prior)

    @property
    def structure(self) -> Hashable:
        """A key that is equal for parts whose models have one graph, whatever their values."""
        rows, specs = self.rows, (self.hyperprior, self.likelihood)
        structures = [(type(spec), repr(dict(spec.structure))) for spec in specs]
        names = (rows.input_shape, rows.features, rows.classes, rows.target_names)
        return (self.network, self.prior, *structures, *names)


def parts_of(model: "pm.Model") -> NetworkParts | None:
    """Parts of a model that `build_model` made, with one of its rows; None for other models."""
    return _PARTS.get(model)


def likelihood_of(model: "pm.Model") -> Likelihood | None:
    """Likelihood of a model that `build_model` made; None for other models."""
    parts = parts_of(model)
    return None if parts is None else parts.likelihood


_PARTS: "WeakKeyDictionary[pm.Model, NetworkParts]" = WeakKeyDictionary()
"""Parts of the models of `build_model` that are still in memory."""


def dense_classifier(
    x: "np.ndarray",
    y: "np.ndarray",
    hidden: "int | Sequence[int] | np.ndarray" = (5, 5),
    activation: str = "tanh",
    prior: str | Mapping[str, object] | Prior = "normal",
    hyperprior: str | Mapping[str, object] | Hyperprior = "fixed",
) -> "pm.Model":
    """PyMC model of a dense network that classifies, with named or specified priors.

    Parameters
    ----------
    x
        Inputs, ``(observation, feature)``, which the network sees as they are: not standardised.
    y
        Class indices from 0, ``(observation,)``.
    hidden
        Units of each hidden layer; a number is one layer.
    activation
        Of the hidden layers: ``tanh``, ``relu`` or ``sigmoid``.
    prior, hyperprior
        A name (its defaults apply), a mapping as in an experiment file, or a specification.

    Raises
    ------
    ValueError
        If a name is unknown, or `x` and `y` do not fit together.
    TypeError
        If a prior or hyperprior is none of these.

    Examples
    --------
    >>> model = dense_classifier(x, y, hidden=(5, 5), prior="laplace",
    ...                          hyperprior="half_cauchy")  # doctest: +SKIP
    """
    import numpy as np

    x, y = np.asarray(x, dtype=np.float64), np.asarray(y)
    if x.ndim != 2 or not x.size:
        raise ValueError(f"`x` must have shape (observation, feature), got {x.shape}.")
    if y.shape != x.shape[:1]:
        raise ValueError(f"`y` must have shape {x.shape[:1]}, one label a row, got {y.shape}.")
    if y.dtype.kind not in "iub":
        raise ValueError(f"`y` must hold class indices 0, 1, …, got {y.dtype}.")
    if y.min() < 0:
        raise ValueError(f"`y` must hold class indices 0, 1, …, got {y.min()}.")
    features = tuple(f"x{i + 1}" for i in range(x.shape[1]))
    classes = tuple(str(i) for i in range(max(2, int(y.max()) + 1)))
    maps = (identity_standardisation(len(features)), identity_standardisation())
    rows = Rows(x, y.astype(np.int64), features, classes, (), (), *maps)
    network = Dense(hidden=hidden, activation=activation)
    return build_model(network, prior, hyperprior, CATEGORICAL, rows)


def _check_pair(prior: Prior, hyperprior: Hyperprior) -> None:
    """Raise ValueError if prior and hyperprior do not fit together."""
    if not isinstance(hyperprior, Hierarchical):
        return
    if not prior.has_scale:
        raise ValueError(
            f"`hyperprior` must be `fixed` with prior `{prior.kind}`, which has no scale, "
            f"got `{hyperprior.kind}`."
        )
    if hyperprior.centred and not prior.centrable:
        raise ValueError(
            f"`hyperprior.centred` must be False with prior `{prior.kind}`, whose weights are "
            "always scaled from standard draws, got True."
        )


def _check_scales(hyperprior: Hyperprior, prior: Prior, network: Network, rows: Rows) -> None:
    """Raise ValueError if scales of layers do not fit the network, or cannot be matched."""
    rule = why_not_scaled(hyperprior, prior, network, rows.input_shape)
    if rule is not None:
        raise ValueError(f"`hyperprior.scale` {rule}.")


def _check_likelihood(likelihood: Likelihood, rows: Rows) -> None:
    """Raise ValueError if the likelihood does not fit the targets of the rows."""
    if not likelihood.observes(rows.n_classes, rows.n_targets):
        targets = "class labels" if rows.classes else "numbers"
        several = f", {rows.n_targets} a row" if rows.n_targets > 1 else ""
        raise ValueError(
            f"`likelihood` must be for {rows.task}, as the targets are {targets}{several}, got "
            f"`{likelihood.kind}`."
        )
    if isinstance(likelihood, NumberLikelihood) and (
        rule := likelihood.rule_of_known(rows.n_targets)
    ):
        field, scales = likelihood.scale_field, [*likelihood.scale_of_noise]
        raise ValueError(f"`likelihood.{field}` {rule}, got {scales}.")


def _coords(
    parameters: tuple[Parameter, ...], rows: Rows, likelihood: Likelihood
) -> dict[str, list]:
    """Labels of every dim: names of features and outputs, numbers of hidden units."""
    coords = {
        name: list(range(length))
        for parameter in parameters
        for name, length in zip(parameter.dims, parameter.shape, strict=True)
    }
    outputs = likelihood.outputs(rows.classes or rows.target_names)
    coords |= {"feature": list(rows.features), "output": list(outputs)}
    return coords | ({TARGET_NAME: list(rows.target_names)} if rows.target_names else {})


def _declare_data(values: Mapping[str, "np.ndarray"]) -> dict[str, "TensorVariable"]:
    import pymc as pm

    target_dims = ("observation", TARGET_NAME)[: values["target"].ndim]
    dims = {"x": ("observation", "feature"), "target": target_dims}
    return {name: pm.Data(name, value, dims=dims.get(name)) for name, value in values.items()}
