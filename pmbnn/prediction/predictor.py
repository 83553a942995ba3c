"""Draws of a model's flat vector turned into its variables, densities and predictions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor import TensorVariable

from pmbnn.core.stages import stage
from pmbnn.data.arrays import Rows, Standardisation
from pmbnn.inference.batches import cast, model_values
from pmbnn.inference.estimators import depends_on
from pmbnn.inference.flat import (
    FlatModel,
    ModelGraphs,
    at_flat_inputs,
    flat_vector,
    flatten_model,
    model_graphs,
    untransformed_name,
)
from pmbnn.inference.observed import observations_last
from pmbnn.inference.samplers.run import Functions
from pmbnn.inference.unsupported import computed_by_pytensor, names_in_jax
from pmbnn.inference.xla.compile import compiler_options, jax_function, precision, shared
from pmbnn.inference.xla.rewrites import computed_once
from pmbnn.models.build import LAYER_PARAMETER, OBSERVED, ROW_DATA, NetworkParts, likelihood_of
from pmbnn.models.likelihoods import Likelihood
from pmbnn.models.prior_base import STANDARD, Prior
from pmbnn.prediction import linearised
from pmbnn.prediction.class_probabilities import ClassProbabilities, Predictive, Weights
from pmbnn.prediction.density import Density
from pmbnn.prediction.draws import (
    DrawSource,
    at_draws,
    draw_all,
    draws_at_once,
    draws_in_memory,
    over_draws,
    spread_numbers,
)

PREDICTIVES: dict[str, type[Predictive]] = {cls.key: cls for cls in (ClassProbabilities, Density)}
"""Kinds of predictions by the key that likelihoods name them by."""


class Predictor:
    """Variables, densities and predictions of a model at draws of its flat vector.

    Compiled once for all models of one graph, whatever the values of their data and the number
    of rows. Draws come from sources (`DrawSource`): guides of fits, or draws that are kept.

    Parameters
    ----------
    likelihood
        Likelihood of the model. It names the graphs that are computed, and the kind of prediction.
    dtype
        Precision of everything that is computed.

    Raises
    ------
    ValueError
        If the model has another likelihood.
    """

    def __init__(
        self, model: pm.Model | ModelGraphs, likelihood: Likelihood, dtype: str = "float32"
    ) -> None:
        graphs = model_graphs(model)
        model = graphs.model
        parameters = likelihood.parameters(model[OBSERVED])
        self.likelihood, self.dtype = likelihood, dtype
        self.predictive = PREDICTIVES[likelihood.predictive]
        self.flat = flat = flatten_model(graphs, rows=None)
        self.vector = values = flat_vector(flat)
        self.at_once = draws_in_memory(flat.size)
        # Standard draws, which stand behind something that a trace keeps, are of no interest.
        in_jax = names_in_jax(flat, dtype)
        wanted = [name for name in flat.posterior if not name.endswith(STANDARD)]
        self.named = [name for name in wanted if name in in_jax]
        self.in_pytensor = [name for name in wanted if name not in in_jax]
        (by_row,) = flat.log_likelihoods.values()
        variables = [flat.posterior[name] for name in self.named]
        log_likelihood, log_prior, *posterior = flat.at(
            values, [by_row, flat.log_prior, *variables]
        )
        # Without the constants of a hyperprior: predictions are the same under every one.
        self.constants = [
            name
            for name, variable in flat.data.items()
            if name not in ROW_DATA and depends_on([log_likelihood, *posterior], [variable])
        ]
        constants = [flat.data[name] for name in self.constants]
        rows = [flat.data[name] for name in ROW_DATA]
        predicted = at_flat_inputs(model, flat, parameters).values()
        predicted = [observations_last(graph) for graph in predicted]
        # Whether each has rows, or one value is shared by all of them.
        self._has_rows = {
            name: g.ndim > 0 and not g.type.broadcastable[0]
            for name, g in zip(parameters, predicted, strict=True)
        }
        inputs, predicted = [values, flat.data["x"], *constants], flat.at(values, predicted)
        with precision(dtype):
            self._log_likelihood = over_draws([values, *rows, *constants], [log_likelihood])
            self._log_prior = over_draws([values, *flat.data.values()], [log_prior], brief=True)
            self._posterior = over_draws([values, *constants], posterior, brief=True)
            self._of_values = over_draws(inputs, predicted)
            function = jax_function(inputs, predicted)
            self._of_draws, self._reduced = shared(
                function, lambda: _programs(function, [*parameters])
            )
        options = compiler_options(brief=True)
        self._draws = shared("draws", lambda: jax.jit(draw_all, compiler_options=options))

    # Draws, and the model's variables and densities at them

    def values(self, source: DrawSource, draws: int) -> np.ndarray:
        """The first draws of the flat vector, ``(draw, size)``: those that predictions use."""
        return np.concatenate([*self.blocks(source, draws)])

    def blocks(self, source: DrawSource, draws: int) -> Iterator[np.ndarray]:
        """The same a few at a time, ``(draw, size)`` each: of large networks all are too many."""
        size = min(draws, self.at_once)
        for first in range(0, draws, size):
            numbers = np.arange(first, first + size, dtype=np.int32)
            with precision(self.dtype):
                values = np.asarray(self._draws(source.on_device(self.dtype), numbers))
            yield values[: draws - first]

    def posterior(
        self, data: Mapping[str, np.ndarray], values: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Named variables at draws of the flat vector, ``(draw, *shape)`` each."""
        arrays = self._at_draws(self._posterior, values, self.at_once, *self._constants(data))
        others = computed_by_pytensor(self.flat, self.in_pytensor, values, data)
        return dict(zip(self.named, arrays, strict=True)) | others

    def log_joint(
        self, data: Mapping[str, np.ndarray], values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Log-likelihood of every row, and log joint density, of draws of the flat vector.

        Shapes ``(draw, observation)`` and ``(draw,)``; nats, densities on the unconstrained
        vector.
        """
        typed = cast({name: data[name] for name in self.flat.data}, self.dtype)
        row_inputs = [typed[name] for name in (*ROW_DATA, *self.constants)]

        def densities(block):
            return (
                *self._log_likelihood(block, *row_inputs),
                *self._log_prior(block, *typed.values()),
            )

        at_once = min(self.at_once, draws_at_once(values, typed["x"]))
        log_likelihood, log_prior = self._at_draws(densities, values, at_once)
        return log_likelihood, log_likelihood.sum(axis=1, dtype=np.float64) + log_prior

    def _at_draws(self, program: Callable, values: np.ndarray, at_once: int, *inputs):
        with precision(self.dtype):
            return at_draws(program, np.asarray(values, self.dtype), at_once, *inputs)

    # Predictions

    def predict(
        self,
        sources: Sequence[DrawSource],
        weights: Weights,
        data: Mapping[str, np.ndarray],
        x: np.ndarray,
        draws: int,
        target: np.ndarray | None = None,
    ) -> Predictive:
        """Prediction of a mixture of sources at standardised inputs ``(observation, feature)``.

        Parameters
        ----------
        weights
            Weights of the sources, with sum 1; the draws of a source share its weight.
        draws
            Draws of each source; all draws of a point are the same, and one is taken.
        target
            Observed targets, where the prediction is to be scored by them.
        """
        return self.predict_mixtures(sources, [weights], data, x, draws, target)[0]

    def predict_mixtures(
        self,
        sources: Sequence[DrawSource],
        mixtures: Sequence[Weights],
        data: Mapping[str, np.ndarray],
        x: np.ndarray,
        draws: int,
        target: np.ndarray | None = None,
    ) -> list[Predictive]:
        """Predictions of several mixtures of the same sources, each of which is drawn from once."""
        used = [i for i in range(len(sources)) if any(weights[i] > 0 for weights in mixtures)]
        shares = [[weights[i] for i in used] for weights in mixtures]
        used_sources = [sources[i] for i in used]
        return self.predictive.of_mixtures(self, used_sources, shares, data, x, draws, target)

    def nll(
        self, source: DrawSource, data: Mapping[str, np.ndarray], rows: Rows, draws: int
    ) -> float:
        """Negative log-density of the rows' targets under one source, in nats an observation."""
        return self.predictive.nll(self, source, data, rows, draws)

    def observations(
        self, data: Mapping[str, np.ndarray], values: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Targets drawn at the rows of `data`, one for each draw, ``(draw, observation)``."""
        return self.likelihood.sample(self.parameters(data, values, data["x"]), rng)

    def row_log_likelihood(
        self, source: DrawSource, data: Mapping[str, np.ndarray], draws: int
    ) -> np.ndarray:
        """Log-likelihood of every row at the first draws of a source, ``(draw, observation)``.

        In nats; by the network, or by the linear one that a Laplace approximation predicts with.
        """
        if source.tangent_at is None:
            return self.log_joint(data, self.values(source, draws))[0]
        x, target = (data[name] for name in ROW_DATA)
        parameters = self.single_draws(source, data, x, draws)
        return linearised.log_likelihood(self.likelihood, parameters, target)

    def parameters(
        self, data: Mapping[str, np.ndarray], values: np.ndarray, x: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Parameters of the likelihood at draws of the flat vector: all in memory.

        ``(draw, observation, ...)`` each; ``(draw, 1)`` of those that all observations share.
        """
        x, at_once = np.asarray(x, self.dtype), draws_at_once(values, x)
        arrays = self._at_draws(self._of_values, values, at_once, x, *self._constants(data))
        return dict(zip(self._has_rows, map(_with_rows, arrays), strict=True))

    def single_draws(
        self, source: DrawSource, data: Mapping[str, np.ndarray], x: np.ndarray, draws: int
    ) -> dict[str, np.ndarray]:
        """Parameters of the likelihood at the first draws of a source, shaped as `parameters`.

        One draw of the weights is in memory at a time; a point is drawn from once.
        """
        program = partial(self._of_draws, source.n_distinct(draws))
        columns = self._at_rows(program, source, data, x, self.predictive.block)
        return {
            name: np.concatenate(column, axis=1)[:, : len(x)] if rows else _with_rows(column[0])
            for (name, rows), column in zip(self._has_rows.items(), columns, strict=True)
        }

    def reduced(
        self,
        reduce: Callable,
        source: DrawSource,
        data: Mapping[str, np.ndarray],
        x: np.ndarray,
        draws: int,
        block: int,
    ) -> list[np.ndarray]:
        """Results of a compiled loop over draws, none of which is kept.

        Parameters
        ----------
        reduce
            JAX function of the parameters of the likelihood, by the number of the draw, and of
            the number of draws; it returns arrays with observations first.
        block
            Rows in memory at once.
        """
        columns = self._at_rows(partial(self._reduced, reduce, draws), source, data, x, block)
        return [np.concatenate(column)[: len(x)] for column in columns]

    def _at_rows(
        self,
        program: Callable,
        source: DrawSource,
        data: Mapping[str, np.ndarray],
        x: np.ndarray,
        size: int,
    ) -> list[tuple[np.ndarray, ...]]:
        """Each output of a program at consecutive blocks of rows; the last is filled with zeros."""
        with precision(self.dtype), stage("predict", len(x), "row") as report_progress:
            source, constants, parts = source.on_device(self.dtype), self._constants(data), []
            for start in range(0, len(x), size):
                rows = np.asarray(x[start : start + size], self.dtype)
                rows = np.pad(rows, ((0, size - len(rows)), (0, 0)))
                parts.append(jax.device_get(program(source, rows, constants)))
                report_progress(min(start + size, len(x)))
        return list(zip(*parts, strict=True))

    def _constants(self, data: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return [np.asarray(data[name], self.dtype) for name in self.constants]


def _programs(parameters: Callable, names: Sequence[str]) -> tuple[Callable, Callable]:
    """Programs of all draws of a block of rows, and of a function of them.

    Parameters
    ----------
    parameters
        Parameters of the likelihood, as a function of a flat vector, rows and constants.
    names
        Their names.
    """

    def one_draw(source, x, constants, i):
        # Once: XLA would draw anew within each operation that takes a part of the vector, for every
        # row (1,024 rows of the 2-5-5-2 network: 25 instead of 8 us a draw).
        vector = computed_once(source.draw(i))
        if source.tangent_at is None:
            return tuple(parameters(vector, x, *constants))
        return linearised.at_tangent(
            lambda at: parameters(at, x, *constants), names, source.tangent_at, vector
        )

    def draws_of_block(draws, source, x, constants):
        return jax.lax.map(partial(one_draw, source, x, constants), jnp.arange(draws))

    def reduced_of_block(reduce, draws, source, x, constants):
        return reduce(partial(one_draw, source, x, constants), draws)

    return (
        jax.jit(draws_of_block, static_argnums=0),
        jax.jit(reduced_of_block, static_argnums=0, compiler_options=compiler_options()),
    )


def _with_rows(draws: np.ndarray) -> np.ndarray:
    """Draws with an axis of observations, of length 1 where there is none."""
    return draws if draws.ndim > 1 else draws[:, None]


def checked_inputs(x: np.ndarray, data: Mapping[str, np.ndarray]) -> np.ndarray:
    """Inputs ``(observation, feature)`` as numbers.

    Raises
    ------
    ValueError
        If they have another shape than the inputs of the model, or no rows, or are not finite.
    """
    x, features = np.asarray(x, np.float64), data["x"].shape[1]
    if x.ndim != 2 or x.shape[1] != features:
        raise ValueError(f"`x` must have shape (observation, {features}), got {x.shape}.")
    if not len(x):
        raise ValueError("`x` must have at least one observation, got none.")
    if not np.isfinite(x).all():
        row, column = np.argwhere(~np.isfinite(x))[0]
        raise ValueError(f"`x[{row}, {column}]` must be finite, got {x[row, column]}.")
    return x


# A model of this package, built when it is needed


@dataclass(frozen=True, eq=False, repr=False)
class NetworkModel:
    """A model of this package that is built when it is needed.

    Attributes
    ----------
    parts
        The parts of the model, with one of the rows or more.
    training
        All training rows, or a function that loads them.
    standardisation, target_standardisation
        The maps from inputs and targets in their own units to those of the model.
    """

    parts: NetworkParts
    training: Rows | Callable[[], Rows]
    standardisation: Standardisation
    target_standardisation: Standardisation

    @property
    def rows(self) -> Rows:
        """All training rows; of a stored cell they are loaded for it."""
        return self.training() if callable(self.training) else self.training

    @cached_property
    def graph_model(self) -> pm.Model:
        """The model with the rows of `parts` alone: its variables are the same."""
        return self.parts.build()

    @cached_property
    def model(self) -> pm.Model:
        """The model with all training rows."""
        return self.parts.build(self.rows)

    def __getstate__(self) -> dict[str, object]:
        """The fields: another process builds the models itself."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


# Functions of a model's draws that chains of a sampler must agree on


INPUTS = 400
"""Training inputs at most at which predictions of the chains are compared."""


def compared_functions(model: pm.Model) -> Functions:
    """Function of draws of a model's flat vector, on whose values chains must agree.

    The parameters of its likelihood at up to `INPUTS` training inputs; the unconstrained variables
    of a model that is not one of this package.
    """
    likelihood = likelihood_of(model)
    if likelihood is None:
        return lambda values: values
    return functions_of(Predictor(model, likelihood), model_values(model))


def functions_of(
    predictor: Predictor, data: Mapping[str, np.ndarray], *further: np.ndarray
) -> Functions:
    """Parameters of a model's likelihood at up to `INPUTS` of its inputs, as a function of draws.

    And at no more of each of `further` arrays of inputs, ``(observation, feature)``.
    """
    x = np.concatenate([spread_rows(inputs) for inputs in (data["x"], *further)])
    is_classifier = predictor.likelihood.task == "classification"

    def functions(values: np.ndarray) -> np.ndarray:
        arrays = predictor.parameters(data, values, x).values()
        # Without the last class, which has what the others leave.
        arrays = [a[..., :-1] if a.ndim > 2 and is_classifier else a for a in arrays]
        return np.concatenate([a.reshape(len(values), -1) for a in arrays], axis=1)

    # A chain at a time: a large network's layers at all draws would fill the memory.
    return lambda chains: np.stack([functions(values) for values in chains])


def spread_rows(x: np.ndarray, most: int = INPUTS) -> np.ndarray:
    """At most `most` rows, evenly spread over all."""
    return x[spread_numbers(len(x), most)]


# The log-density of a network's draws in parts: likelihood, prior of weights, prior of scales


LIKELIHOOD, WEIGHTS, SCALES = "likelihood", "weights", "scales"

AT_ONCE = 64
"""Draws side by side."""


class DensityParts:
    """Parts of a model's log-density at draws of its flat vector; compiled once, for any rows.

    Priors are densities of the variables on their own scale, without the Jacobians of their
    transformations. That of the weights is of standard draws where scales are learned, whether
    the model has these or the weights themselves: raised to a power it then is, but for a constant,
    the density of another distribution of weights at each scale, and says nothing of the scale
    itself. Prior scales of single weights, and prior means, count as weights; learned scales, what
    all weights share, and the noise of a likelihood as scales.

    Parameters
    ----------
    model
        Model of a network.
    own_bias_scale
        Whether biases are drawn around a fixed scale of their own, `Prior.bias_scale`.

    Attributes
    ----------
    names
        ``likelihood``, ``weights`` and, where any are learned, ``scales``.
    """

    def __init__(self, model: pm.Model, own_bias_scale: bool = False) -> None:
        flat = flatten_model(model, rows=None, jacobian=False)
        weights = weight_priors(flat, own_bias_scale)
        terms = {
            LIKELIHOOD: [by_row.sum() for by_row in flat.log_likelihoods.values()],
            WEIGHTS: [*weights.values()],
            SCALES: [term for name, term in flat.log_priors.items() if name not in weights],
        }
        graphs = {name: sum(parts) for name, parts in terms.items() if parts}
        self.names = list(graphs)
        self._data = list(flat.data)
        vector = flat_vector(flat)
        with precision("float64"):
            one_draw = jax_function([vector, *flat.data.values()], flat.at(vector, graphs.values()))

        def all_draws(values, *data):
            return jax.lax.map(lambda v: one_draw(v, *data), values, batch_size=AT_ONCE)

        self._all_draws = jax.jit(all_draws)

    def __call__(self, data: Mapping[str, np.ndarray], values: np.ndarray) -> dict[str, np.ndarray]:
        """Parts by name, ``(draw,)``, nats; the likelihood is summed over the rows of the data.

        Parameters
        ----------
        data
            Values of the model's data variables.
        values
            Draws of the flat vector, ``(draw, size)``.
        """
        with precision("float64"):
            arrays = [jnp.asarray(data[name]) for name in self._data]
            parts = self._all_draws(jnp.asarray(values, "float64"), *arrays)
        return dict(zip(self.names, map(np.asarray, parts), strict=True))


def weight_priors(flat: FlatModel, own_bias_scale: bool) -> dict[str, TensorVariable]:
    """Log-prior of each variable of the weights, as `DensityParts` takes them; scalars, in nats."""
    return {
        name: flat.log_priors[name]
        if own_bias_scale and name.startswith("bias")
        else _of_standard(flat, name)
        for name in flat.log_priors
        if LAYER_PARAMETER.match(name)
    }


def tempering(
    temperature: float, prior: Prior
) -> Callable[[FlatModel, TensorVariable], TensorVariable] | None:
    """What a posterior at another temperature has beside its density, for `build_log_density`.

    Likelihood and prior of the weights are raised to one over the temperature, the latter as
    `DensityParts` has it: at each scale, weights have the density of another distribution. Priors
    of scales and of noise, and the Jacobians of transformations, stay as they are.

    Returns
    -------
    callable or None
        None at temperature 1.

    References
    ----------
    Wenzel et al. (2020), How good is the Bayes posterior in deep neural networks really?
    """
    if temperature == 1:
        return None

    def further(flat: FlatModel, log_likelihood: TensorVariable) -> TensorVariable:
        weights = weight_priors(flat, prior.bias_scale is not None)
        for name in weights:
            if flat.distributions[name].transform is not None:
                raise ValueError(
                    f"`temperature` must be 1 with prior {prior.kind}, got {temperature:g}: "
                    f"`{untransformed_name(name)}` is not on the whole line, and the Jacobian of "
                    "its transformation would be raised too."
                )
        return (1 / temperature - 1) * (log_likelihood + sum(weights.values()))

    return further


def _of_standard(flat: FlatModel, name: str) -> TensorVariable:
    """Log-prior of a weight, or of it over its scale where it is drawn around a learned one."""
    term, layer = flat.log_priors[name], LAYER_PARAMETER.fullmatch(name)
    scales = (f"layer_{layer[1]}_scale", "network_scale") if layer else ()
    scale = next((flat.posterior[s] for s in scales if s in flat.posterior), None)
    if scale is None:
        return term
    # Each weight is its scale times a standard draw: the density of the draw is so much higher.
    return term + pt.sum(pt.log(scale) + pt.zeros_like(flat.free[name]))
