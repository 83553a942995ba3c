"""Posterior draws turned into what a model's likelihood predicts."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm

from pmbnn.data.arrays import Rows
from pmbnn.inference.flat import ModelGraphs, at_flat_inputs, model_graphs
from pmbnn.inference.observed import observations_last
from pmbnn.inference.result import Fit, StoredGuide
from pmbnn.inference.settings import Inference
from pmbnn.inference.stages import stage
from pmbnn.inference.xla.compile import compiler_options, jax_function, precision
from pmbnn.inference.xla.rewrites import computed_once
from pmbnn.inference.xla.sharing import shared
from pmbnn.models.build import OBSERVED
from pmbnn.models.likelihoods import Likelihood
from pmbnn.prediction.class_probabilities import ClassProbabilities
from pmbnn.prediction.density import Density
from pmbnn.prediction.draws import GuideDraws, draw_key, draws_at_once, filled, over_draws
from pmbnn.prediction.predictive import Predictive, Weights

PREDICTIVES: dict[str, type[Predictive]] = {cls.key: cls for cls in (ClassProbabilities, Density)}
"""Kinds of predictions by the key that likelihoods name them by."""


class Predictor(GuideDraws):
    """Predictions of every replica of one group, from its model's graph.

    Parameters
    ----------
    likelihood
        Of the model: it says which graphs are read off, and what is made of their draws.
    settings
        Tell which guide to draw from.

    Raises
    ------
    ValueError
        If the model has another likelihood.
    """

    def __init__(
        self,
        model: pm.Model | ModelGraphs,
        likelihood: Likelihood,
        settings: Inference,
        dtype: str = "float32",
    ) -> None:
        graphs = model_graphs(model)
        model = graphs.model
        parameters = likelihood.parameters(model[OBSERVED])
        super().__init__(graphs, settings, dtype)
        self.likelihood = likelihood
        self.predictive = PREDICTIVES[likelihood.predictive]
        graphs = at_flat_inputs(model, self.flat, parameters).values()
        graphs = [observations_last(graph) for graph in graphs]
        # Whether each has rows, or one value is shared by all of them.
        self._has_rows = {
            name: g.ndim > 0 and not g.type.broadcastable[0]
            for name, g in zip(parameters, graphs, strict=True)
        }
        inputs = [self.vector, self.flat.data["x"], *(self.flat.data[n] for n in self.constants)]
        graphs = self.flat.at(self.vector, graphs)
        with precision(dtype):
            self._of_values = over_draws(inputs, graphs)
            made_of = jax_function(inputs, graphs), self.way_to_draw
            self._of_draws, self._reduced = shared(made_of, lambda: _programs(*made_of))

    def predict(
        self,
        fits: Sequence[Fit],
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
        fits: Sequence[Fit],
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

    def nll(self, fit: Fit, data: Mapping[str, np.ndarray], rows: Rows, draws: int) -> float:
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
        self, fit: Fit, data: Mapping[str, np.ndarray], x: np.ndarray, draws: int
    ) -> dict[str, np.ndarray]:
        """What the likelihood names, at the first draws of a fit: shaped as `parameters` are.

        One draw of the weights is in memory at a time, those of a point once.
        """
        draws = self.n_distinct(fit, draws)
        with precision(self.dtype), stage("predict", len(x), "row") as went_on:
            constants, constrained = self._constants(data), self.constrained(fit)
            size, parts = self.predictive.block, []
            for number, rows in enumerate(self._blocks(x, size), 1):
                found = self._of_draws(constrained, draw_key(fit), draws, rows, constants)
                parts.append(jax.device_get(found))
                went_on(min(number * size, len(x)))
        columns = zip(*parts, strict=True)
        return {
            name: np.concatenate(column, axis=1)[:, : len(x)] if rows else _with_rows(column[0])
            for (name, rows), column in zip(self._has_rows.items(), columns, strict=True)
        }

    def reduced(
        self,
        reduce: Callable,
        fit: Fit,
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
        with precision(self.dtype), stage("predict", len(x), "row") as went_on:
            constrained, constants = self.constrained(fit), self._constants(data)
            parts = []
            for number, rows in enumerate(self._blocks(x, block), 1):
                found = self._reduced(reduce, constrained, draw_key(fit), draws, rows, constants)
                parts.append(jax.device_get(found))
                went_on(min(number * block, len(x)))
        return [np.concatenate(part)[: len(x)] for part in zip(*parts, strict=True)]

    def n_distinct(self, fit: Fit | StoredGuide, draws: int) -> int:
        """How many of so many draws of a fit differ: all draws of a point are the same."""
        return 1 if self.guide.is_point else draws

    def _constants(self, data: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return [np.asarray(data[name], self.dtype) for name in self.constants]

    def _blocks(self, x: np.ndarray, size: int):
        """Consecutive blocks of rows, the last one filled up with zeros."""
        for start in range(0, len(x), size):
            rows = np.asarray(x[start : start + size], self.dtype)
            yield np.pad(rows, ((0, size - len(rows)), (0, 0)))


def _programs(parameters: Callable, draw: Callable) -> tuple[Callable, Callable]:
    """Programs of all draws of a block of rows, and of what a function makes of them.

    Parameters
    ----------
    parameters
        What the likelihood names, at a flat vector, rows and constants.
    draw
        As `GuideDraws.way_to_draw`.
    """

    def of_one(constrained, key, x, constants, i):
        # Once: XLA would draw anew within each operation that takes a part of the vector, for every
        # row (1,024 rows of the 2-5-5-2 network: 25 instead of 8 us a draw).
        vector = computed_once(draw(constrained, key, i))
        return tuple(parameters(vector, x, *constants))

    def draws_of_block(constrained, key, draws, x, constants):
        return jax.lax.map(partial(of_one, constrained, key, x, constants), jnp.arange(draws))

    def reduced_of_block(reduce, constrained, key, draws, x, constants):
        return reduce(partial(of_one, constrained, key, x, constants), draws)

    return (
        jax.jit(draws_of_block, static_argnums=2),
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
