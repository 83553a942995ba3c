"""Posterior draws turned into predicted numbers, a block of rows at a time."""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm

from pmbnn.datasets.rows import Rows
from pmbnn.guide_draws import GuideDraws, draw_key, padded
from pmbnn.inference.fit import Fit
from pmbnn.inference.jax_edge import jax_function, precision
from pmbnn.inference.settings import Inference
from pmbnn.predictive import Prediction, PredictiveDraws, join_predictions, summarise_draws

BLOCK = 256
"""Rows whose draws are in memory at once, the last block padded: with 1,000 draws, 2 MB."""


class RegressionPredictor(GuideDraws):
    """Predictions of every member of one group of regressions, from its model's graph.

    Raises
    ------
    ValueError
        If the model's likelihood is not normal.
    """

    def __init__(self, model: pm.Model, settings: Inference, dtype: str = "float32") -> None:
        super().__init__(model, settings, dtype)
        flat = self.flat
        inputs = [self.vector, flat.data["x"], *(flat.data[n] for n in self.constants)]
        with precision(dtype):
            self._normal = jax_function(inputs, flat.at(self.vector, flat.normal))
        self._normal_of_draws = jax.jit(self._normal_of_block, static_argnums=2)
        self._normal_of_values = self.over_draws(self._normal, 1)

    def check(self) -> None:  # noqa: D102
        if self.flat.normal is None:
            raise ValueError("Predictions need a normal likelihood, this model has another.")

    def draws(
        self,
        fits: Sequence[Fit],
        weights: Sequence[float],
        data: Mapping[str, np.ndarray],
        x: np.ndarray,
        draws: int,
    ) -> PredictiveDraws:
        """Draws of every fit at standardised inputs ``(observation, feature)``, all in memory.

        Parameters
        ----------
        weights
            Of the fits, with sum 1; a fit's draws share its weight.
        draws
            Of each fit; all draws of a point are the same, and one is taken.
        """
        draws = 1 if self.guide.is_point else draws
        found = [self._of_fit(fit, data, x, draws) for fit in fits]
        output, noise = (
            np.concatenate(parts).astype(np.float64) for parts in zip(*found, strict=True)
        )
        return PredictiveDraws(output, noise, np.repeat(np.asarray(weights) / draws, draws))

    def predict(
        self,
        fits: Sequence[Fit],
        weights: Sequence[float],
        data: Mapping[str, np.ndarray],
        x: np.ndarray,
        draws: int,
        target: np.ndarray | None = None,
    ) -> Prediction:
        """What the draws say of each row, and of its target; draws of few rows are in memory."""
        parts = []
        for start in range(0, len(x), BLOCK):
            rows = slice(start, start + BLOCK)
            found = self.draws(fits, weights, data, x[rows], draws)
            parts.append(summarise_draws(found, None if target is None else target[rows]))
        return join_predictions(parts)

    def nll(self, fit: Fit, data: Mapping[str, np.ndarray], rows: Rows, draws: int) -> float:
        """Negative log-density of the rows' targets, in nats an observation."""
        parts = [
            self.draws([fit], [1.0], data, rows.x[s : s + BLOCK], draws).log_density(
                rows.y[s : s + BLOCK]
            )
            for s in range(0, len(rows), BLOCK)
        ]
        return float(-np.mean(np.concatenate(parts)))

    def observations(
        self, data: Mapping[str, np.ndarray], values: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Numbers drawn at the rows of `data`, one for each draw, ``(draw, observation)``."""
        with precision(self.dtype):
            constants = [jnp.asarray(data[n], self.dtype) for n in self.constants]
            x, values = (jnp.asarray(v, self.dtype) for v in (data["x"], values))
            output, noise = map(np.asarray, self._normal_of_values(values, x, *constants))
        return (output + noise[:, None] * rng.standard_normal(output.shape)).astype("f4")

    def _of_fit(self, fit: Fit, data, x: np.ndarray, draws: int) -> tuple[np.ndarray, np.ndarray]:
        """Output ``(draw, observation)`` and noise ``(draw,)`` of one fit."""
        with precision(self.dtype):
            constants = [jnp.asarray(data[n], self.dtype) for n in self.constants]
            natural, parts = self.natural(fit), []
            for start in range(0, len(x), BLOCK):
                block = jnp.asarray(padded(x[start : start + BLOCK], BLOCK), self.dtype)
                found = self._normal_of_draws(natural, draw_key(fit), draws, block, constants)
                parts.append(jax.device_get(found))
        outputs, noises = zip(*parts, strict=True)
        return np.concatenate(outputs, axis=1)[:, : len(x)], noises[0]

    def _normal_of_block(self, natural, key, draws, x, constants):
        """One draw of the parameters is in memory at a time."""

        def of_one(i):
            return tuple(self._normal(self.draw(natural, key, i), x, *constants))

        return jax.lax.map(of_one, jnp.arange(draws))
