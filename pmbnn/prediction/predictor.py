"""Draws of a model's flat vector turned into its variables, densities and predictions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm

from pmbnn.core.stages import stage
from pmbnn.data.arrays import Rows, Standardisation
from pmbnn.inference.batches import cast, model_values
from pmbnn.inference.flat import (
    ModelGraphs,
    at_flat_inputs,
    flat_vector,
    flatten_model,
    model_graphs,
)
from pmbnn.inference.guides import build_guide
from pmbnn.inference.observed import observations_last
from pmbnn.inference.products import depends_on
from pmbnn.inference.result import Fit
from pmbnn.inference.samplers.run import Functions
from pmbnn.inference.samplers.settings import Sampling
from pmbnn.inference.settings import Inference
from pmbnn.inference.unsupported import computed_by_pytensor, names_in_jax
from pmbnn.inference.xla.compile import compiler_options, jax_function, precision, shared
from pmbnn.inference.xla.rewrites import computed_once
from pmbnn.models.build import OBSERVED, ROW_DATA, NetworkParts, likelihood_of
from pmbnn.models.likelihoods import Likelihood
from pmbnn.models.priors import STANDARD
from pmbnn.prediction.class_probabilities import ClassProbabilities
from pmbnn.prediction.density import Density
from pmbnn.prediction.draws import (
    DrawSource,
    GuideDraws,
    draw_all,
    draws_at_once,
    draws_in_memory,
    filled,
    log_density_of_mixture,
    over_draws,
)
from pmbnn.prediction.predictive import Predictive, Weights

PREDICTIVES: dict[str, type[Predictive]] = {cls.key: cls for cls in (ClassProbabilities, Density)}
"""Kinds of predictions by the key that likelihoods name them by."""


class Predictor:
    """What a model says at draws of its flat vector: variables, densities and predictions.

    Compiled once for all models of one graph, whatever the values of their data and the number
    of rows. Draws come from sources (`DrawSource`): guides of fits, or draws that are kept.

    Parameters
    ----------
    likelihood
        Of the model: it says which graphs are read off, and what is made of their draws.
    settings
        Of fits: they tell the guide of a `Fit` that is handed over in the place of a source.

    Raises
    ------
    ValueError
        If the model has another likelihood.
    """

    def __init__(
        self,
        model: pm.Model | ModelGraphs,
        likelihood: Likelihood,
        settings: Inference | Sampling | None = None,
        dtype: str = "float32",
    ) -> None:
        graphs = model_graphs(model)
        model = graphs.model
        parameters = likelihood.parameters(model[OBSERVED])
        self.likelihood, self.dtype = likelihood, dtype
        self.predictive = PREDICTIVES[likelihood.predictive]
        self.flat = flat = flatten_model(graphs, rows=None)
        self.guide = None
        if isinstance(settings, Inference):
            self.guide = build_guide(settings, flat.size, flat.improper, flat.spread)
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
        # Those of a hyperprior are none of theirs: predictions are the same under every one.
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
            self._of_draws, self._reduced = shared(function, lambda: _programs(function))
        options = compiler_options(brief=True)
        self._draws = shared("draws", lambda: jax.jit(draw_all, compiler_options=options))

    # Draws, and the model's variables and densities at them

    def source(self, fit: Fit | DrawSource) -> DrawSource:
        """What draws come from: a fit's guide, or the source itself."""
        return GuideDraws.of(self.guide, fit) if isinstance(fit, Fit) else fit

    def values(self, fit: Fit | DrawSource, draws: int) -> np.ndarray:
        """The first draws of the flat vector, ``(draw, size)``: those that predictions use."""
        return np.concatenate([*self.blocks(fit, draws)])

    def blocks(self, fit: Fit | DrawSource, draws: int) -> Iterator[np.ndarray]:
        """The same a few at a time, ``(draw, size)`` each: of large networks all are too many."""
        size = min(draws, self.at_once)
        for first in range(0, draws, size):
            numbers = np.arange(first, first + size, dtype=np.int32)
            with precision(self.dtype):
                source = self.source(fit).on_device(self.dtype)
                values = np.asarray(self._draws(source, numbers))
            yield values[: draws - first]

    def posterior(
        self, data: Mapping[str, np.ndarray], values: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Named variables at draws of the flat vector, ``(draw, *shape)`` each."""
        with precision(self.dtype):
            constants = self._constants(data)
            parts = [
                jax.device_get(self._posterior(block, *constants))
                for block in filled(np.asarray(values, self.dtype), self.at_once)
            ]
        arrays = (np.concatenate(part)[: len(values)] for part in zip(*parts, strict=True))
        others = computed_by_pytensor(self.flat, self.in_pytensor, values, data)
        return dict(zip(self.named, arrays, strict=True)) | others

    def log_joint(
        self, data: Mapping[str, np.ndarray], values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Log-likelihood of every row, and log joint density, of draws of the flat vector.

        Shapes ``(draw, observation)`` and ``(draw,)``; nats, densities on the unconstrained
        vector.
        """
        with precision(self.dtype):
            typed = cast({name: data[name] for name in self.flat.data}, self.dtype)
            of_rows = [typed[name] for name in (*ROW_DATA, *self.constants)]
            values, every = np.asarray(values, self.dtype), typed.values()
            parts = [
                jax.device_get(
                    (*self._log_likelihood(block, *of_rows), *self._log_prior(block, *every))
                )
                for block in filled(values, min(self.at_once, draws_at_once(values, typed["x"])))
            ]
        of_blocks = zip(*parts, strict=True)
        log_likelihood, log_prior = (np.concatenate(part)[: len(values)] for part in of_blocks)
        return log_likelihood, log_likelihood.sum(axis=1, dtype=np.float64) + log_prior

    def log_guide(
        self, fits: Sequence[Fit | DrawSource], weights: Sequence[float], values: np.ndarray
    ) -> np.ndarray:
        """Log-density of a mixture of guides at draws of the flat vector, ``(draw,)``.

        Nats, on the unconstrained vector; that of a point guide, and of kept draws, is not a
        number.
        """
        sources = map(self.source, fits)
        return log_density_of_mixture(sources, weights, values, self.at_once)

    # Predictions

    def predict(
        self,
        fits: Sequence[Fit | DrawSource],
        weights: Weights,
        data: Mapping[str, np.ndarray],
        x: np.ndarray,
        draws: int,
        target: np.ndarray | None = None,
    ) -> Predictive:
        """Prediction of a mixture of fits at standardised inputs ``(observation, feature)``.

        Parameters
        ----------
        weights
            Of the fits, with sum 1; a fit's draws share its weight.
        draws
            Of each fit; all draws of a point are the same, and one is taken.
        target
            What was observed, where the prediction is to be scored by it.
        """
        return self.predict_mixtures(fits, [weights], data, x, draws, target)[0]

    def predict_mixtures(
        self,
        fits: Sequence[Fit | DrawSource],
        mixtures: Sequence[Weights],
        data: Mapping[str, np.ndarray],
        x: np.ndarray,
        draws: int,
        target: np.ndarray | None = None,
    ) -> list[Predictive]:
        """Predictions of several mixtures of the same fits, each of which is drawn from once."""
        used = [i for i in range(len(fits)) if any(w is None or w[i] > 0 for w in mixtures)]
        shares = [w if w is None else [w[i] for i in used] for w in mixtures]
        drawn = [fits[i] for i in used]
        return self.predictive.of_mixtures(self, drawn, shares, data, x, draws, target)

    def nll(
        self, fit: Fit | DrawSource, data: Mapping[str, np.ndarray], rows: Rows, draws: int
    ) -> float:
        """Negative log-density of the rows' targets under one fit, in nats an observation."""
        return self.predictive.nll(self, fit, data, rows, draws)

    def observations(
        self, data: Mapping[str, np.ndarray], values: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Targets drawn at the rows of `data`, one for each draw, ``(draw, observation)``."""
        return self.likelihood.sample(self.parameters(data, values, data["x"]), rng)

    def parameters(
        self, data: Mapping[str, np.ndarray], values: np.ndarray, x: np.ndarray
    ) -> dict[str, np.ndarray]:
        """What the likelihood names, at draws of the flat vector: all in memory.

        ``(draw, observation, ...)`` each; ``(draw, 1)`` of what all observations share.
        """
        with precision(self.dtype):
            constants = self._constants(data)
            x, values = (np.asarray(v, self.dtype) for v in (x, values))
            parts = [
                jax.device_get(self._of_values(block, x, *constants))
                for block in filled(values, draws_at_once(values, x))
            ]
        found = (np.concatenate(part)[: len(values)] for part in zip(*parts, strict=True))
        return dict(zip(self._has_rows, map(_with_rows, found), strict=True))

    def single_draws(
        self, fit: Fit | DrawSource, data: Mapping[str, np.ndarray], x: np.ndarray, draws: int
    ) -> dict[str, np.ndarray]:
        """What the likelihood names, at the first draws of a fit: shaped as `parameters` are.

        One draw of the weights is in memory at a time, those of a point once.
        """
        draws = self.n_distinct(fit, draws)
        with precision(self.dtype), stage("predict", len(x), "row") as report_progress:
            constants, source = self._constants(data), self.source(fit).on_device(self.dtype)
            size, parts = self.predictive.block, []
            for number, rows in enumerate(self._blocks(x, size), 1):
                found = self._of_draws(source, draws, rows, constants)
                parts.append(jax.device_get(found))
                report_progress(min(number * size, len(x)))
        columns = zip(*parts, strict=True)
        return {
            name: np.concatenate(column, axis=1)[:, : len(x)] if rows else _with_rows(column[0])
            for (name, rows), column in zip(self._has_rows.items(), columns, strict=True)
        }

    def reduced(
        self,
        reduce: Callable,
        fit: Fit | DrawSource,
        data: Mapping[str, np.ndarray],
        x: np.ndarray,
        draws: int,
        block: int,
    ) -> list[np.ndarray]:
        """What a compiled loop over draws makes of them, without keeping any.

        Parameters
        ----------
        reduce
            JAX function of the parameters of the likelihood, by the number of the draw, and of
            how many draws there are; it returns arrays with observations first.
        block
            Rows in memory at once.
        """
        with precision(self.dtype), stage("predict", len(x), "row") as report_progress:
            source, constants = self.source(fit).on_device(self.dtype), self._constants(data)
            parts = []
            for number, rows in enumerate(self._blocks(x, block), 1):
                found = self._reduced(reduce, source, draws, rows, constants)
                parts.append(jax.device_get(found))
                report_progress(min(number * block, len(x)))
        return [np.concatenate(part)[: len(x)] for part in zip(*parts, strict=True)]

    def n_distinct(self, fit: Fit | DrawSource, draws: int) -> int:
        """How many of so many draws of a fit differ: all draws of a point are the same."""
        return self.source(fit).n_distinct(draws)

    def _constants(self, data: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return [np.asarray(data[name], self.dtype) for name in self.constants]

    def _blocks(self, x: np.ndarray, size: int):
        """Consecutive blocks of rows, the last one filled up with zeros."""
        for start in range(0, len(x), size):
            rows = np.asarray(x[start : start + size], self.dtype)
            yield np.pad(rows, ((0, size - len(rows)), (0, 0)))


def _programs(parameters: Callable) -> tuple[Callable, Callable]:
    """Programs of all draws of a block of rows, and of what a function makes of them.

    Parameters
    ----------
    parameters
        What the likelihood names, at a flat vector, rows and constants.
    """

    def of_one(source, x, constants, i):
        # Once: XLA would draw anew within each operation that takes a part of the vector, for every
        # row (1,024 rows of the 2-5-5-2 network: 25 instead of 8 us a draw).
        vector = computed_once(source.draw(i))
        return tuple(parameters(vector, x, *constants))

    def draws_of_block(source, draws, x, constants):
        return jax.lax.map(partial(of_one, source, x, constants), jnp.arange(draws))

    def reduced_of_block(reduce, source, draws, x, constants):
        return reduce(partial(of_one, source, x, constants), draws)

    return (
        jax.jit(draws_of_block, static_argnums=1),
        jax.jit(reduced_of_block, static_argnums=0, compiler_options=compiler_options()),
    )


def _with_rows(draws: np.ndarray) -> np.ndarray:
    """Draws with an axis of observations, of length 1 where there is none."""
    return draws if draws.ndim > 1 else draws[:, None]


def checked_inputs(x: np.ndarray, data: Mapping[str, np.ndarray]) -> np.ndarray:
    """Inputs ``(observation, feature)`` as numbers; raise ValueError unless shaped as a model's."""
    x, features = np.asarray(x, np.float64), data["x"].shape[1]
    if x.ndim != 2 or x.shape[1] != features:
        raise ValueError(f"`x` must have shape (observation, {features}), got {x.shape}.")
    return x


# A model of this package, built when it is needed


@dataclass(frozen=True, eq=False, repr=False)
class NetworkModel:
    """A model of this package that is built when it is needed.

    Attributes
    ----------
    parts
        What the model is made of, on at least one of the rows.
    training
        All training rows, or a function that loads them.
    standardisation, target_standardisation
        The maps from inputs and targets in their own units to those of the model.
    """

    parts: NetworkParts
    training: Rows | Callable[[], Rows]
    standardisation: Standardisation
    target_standardisation: Standardisation

    @cached_property
    def graph_model(self) -> pm.Model:
        """The model with the rows of `parts` alone: its variables are the same."""
        return self.parts.build()

    @cached_property
    def model(self) -> pm.Model:
        """The model with all training rows."""
        training = self.training
        return self.parts.build(training() if callable(training) else training)

    def __getstate__(self) -> dict[str, object]:
        """What another process needs, which builds models itself."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


# Functions of a model's draws that chains of a sampler must agree on


INPUTS = 400
"""Training inputs at most at which predictions of the chains are compared."""


def compared_functions(model: pm.Model) -> Functions:
    """What chains of a model must agree on, as a function of draws of its flat vector.

    What its likelihood says at up to `INPUTS` training inputs; the unconstrained variables of a
    model that is not one of this package.
    """
    likelihood = likelihood_of(model)
    if likelihood is None:
        return lambda values: values
    return functions_of(Predictor(model, likelihood), model_values(model))


def functions_of(
    predictor: Predictor, data: Mapping[str, np.ndarray], *further: np.ndarray
) -> Functions:
    """What a model's likelihood says at up to `INPUTS` of its inputs, of draws of the vector.

    And at as many of each of `further` arrays of inputs, ``(observation, feature)``.
    """
    x = np.concatenate([spread_rows(of) for of in (data["x"], *further)])

    def of(values: np.ndarray) -> np.ndarray:
        # A chain at a time: a large network's layers at all draws would fill the memory.
        return np.stack([_predicted(predictor, data, chain, x) for chain in values])

    return of


def _predicted(predictor: Predictor, data, values: np.ndarray, x: np.ndarray) -> np.ndarray:
    """What the likelihood names at draws, ``(draw, function)``; without the last of the classes."""
    found = predictor.parameters(data, values, x).values()
    # The last class has what the others leave.
    of_classes = predictor.likelihood.task == "classification"
    arrays = [a[..., :-1] if a.ndim > 2 and of_classes else a for a in found]
    return np.concatenate([a.reshape(len(values), -1) for a in arrays], axis=1)


def spread_rows(x: np.ndarray, most: int = INPUTS) -> np.ndarray:
    """At most so many rows, evenly spread over all."""
    return x[np.unique(np.linspace(0, len(x) - 1, min(most, len(x))).round().astype(int))]
