"""Posterior draws turned into class probabilities, in bounded memory.

Draws are regenerated from the guide one at a time inside the compiled loop; only running
moments are kept, so memory grows with neither the number of draws nor that of the rows.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm

from pmbnn import metrics
from pmbnn.datasets.rows import Rows
from pmbnn.guide_draws import GuideDraws, draw_key, padded
from pmbnn.inference.fit import Fit
from pmbnn.inference.jax_edge import compiler_options, jax_function, precision
from pmbnn.inference.settings import Inference
from pmbnn.moments import Moments

BLOCK = 2_048
"""Rows predicted at once. One length for all, the last block padded, so that a group compiles
one program; short enough for a small network's layers to stay in the processor's cache."""
PICTURE_BLOCK, MOST_FEATURES = 512, 64
"""The same where a row has more features than that: a layer of pictures is larger."""
FEW = 32
"""The same where single draws are kept."""


class Predictor(GuideDraws):
    """Predictions of every member of one group of classifiers, from its model's graph.

    Raises
    ------
    ValueError
        If the model's likelihood is not categorical.
    """

    def __init__(self, model: pm.Model, settings: Inference, dtype: str = "float32") -> None:
        super().__init__(model, settings, dtype)
        flat = self.flat
        (probabilities,) = flat.at(self.vector, [flat.probabilities])
        inputs = [self.vector, flat.data["x"], *(flat.data[n] for n in self.constants)]
        with precision(dtype):
            self._probabilities = jax_function(inputs, [probabilities])
        self._probabilities_of_draws = self.over_draws(self._probabilities, 1)
        self._moments = jax.jit(self._moments_of_block, compiler_options=compiler_options())
        self._single_draws = jax.jit(self._single_draws_of_block, static_argnums=2)

    def check(self) -> None:  # noqa: D102
        if self.flat.probabilities is None:
            raise ValueError("Predictions need a categorical likelihood, this model has another.")

    def moments(
        self, fit: Fit, data: Mapping[str, np.ndarray], x: np.ndarray, draws: int
    ) -> Moments:
        """Predictive moments at standardised inputs ``(observation, feature)``."""
        constants = [data[name] for name in self.constants]
        parts = []
        # All draws of a point are the same.
        draws = 1 if self.guide.is_point else draws
        with precision(self.dtype):
            natural = self.natural(fit)
            constants = [jnp.asarray(c, self.dtype) for c in constants]
            size = BLOCK if x.shape[1] <= MOST_FEATURES else PICTURE_BLOCK
            for start in range(0, len(x), size):
                block = jnp.asarray(padded(x[start : start + size], size), self.dtype)
                moments = self._moments(natural, draw_key(fit), draws, block, constants)
                parts.append(jax.device_get(moments))
        return Moments(draws, *(np.concatenate(p)[: len(x)] for p in zip(*parts, strict=True)))

    def nll(self, fit: Fit, data: Mapping[str, np.ndarray], rows: Rows, draws: int) -> float:
        """Negative log-probability of the rows' classes, in nats an observation."""
        moments = self.moments(fit, data, rows.x, draws)
        return metrics.nll(np.asarray(moments.mean, np.float64), rows.y)

    def observations(
        self, data: Mapping[str, np.ndarray], values: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Labels drawn at the rows of `data`, one for each draw, ``(draw, observation)``."""
        p = self.probabilities(data, values, data["x"])
        uniform = rng.random(p.shape[:-1])[..., None]
        return (np.cumsum(p, axis=-1)[..., :-1] < uniform).sum(axis=-1).astype("i1")

    def probabilities(
        self, data: Mapping[str, np.ndarray], values: np.ndarray, x: np.ndarray
    ) -> np.ndarray:
        """Class probabilities of each draw, ``(draw, observation, class)``: all in memory."""
        with precision(self.dtype):
            constants = [jnp.asarray(data[n], self.dtype) for n in self.constants]
            x = jnp.asarray(x, self.dtype)
            values = jnp.asarray(values, self.dtype)
            return np.asarray(self._probabilities_of_draws(values, x, *constants)[0])

    def single_draws(
        self, fit: Fit, data: Mapping[str, np.ndarray], x: np.ndarray, draws: int
    ) -> np.ndarray:
        """Class probabilities of the first draws, ``(draw, observation, class)``.

        One draw of the parameters is in memory at a time, those of a point once.
        """
        draws = 1 if self.guide.is_point else draws
        with precision(self.dtype):
            constants = [jnp.asarray(data[n], self.dtype) for n in self.constants]
            natural, parts = self.natural(fit), []
            for start in range(0, len(x), FEW):
                block = jnp.asarray(padded(x[start : start + FEW], FEW), self.dtype)
                parts.append(self._single_draws(natural, draw_key(fit), draws, block, constants))
            return np.concatenate(parts, axis=1)[:, : len(x)]

    def _single_draws_of_block(self, natural, key, draws, x, constants):
        def of_one(i):
            return self._probabilities(self.draw(natural, key, i), x, *constants)[0]

        return jax.lax.map(of_one, jnp.arange(draws))

    def _moments_of_block(self, natural, key, draws, x, constants):
        """Running moments over draws, in the order of `Moments` (Welford 1962)."""

        def body(i, carry):
            mean, squares, entropy, votes, log = carry
            p = self._probabilities(self.draw(natural, key, i), x, *constants)[0].T
            step = p - mean
            # Usually step · (p - new mean), which the compiler may round to below zero.
            squares = squares + step**2 * (i / (i + 1))
            entropy = entropy - jnp.sum(jax.scipy.special.xlogy(p, p), axis=0)
            votes = votes + (jnp.argmax(p, axis=0) == jnp.arange(len(p))[:, None])
            log = log + jnp.log(jnp.maximum(p, jnp.finfo(p.dtype).tiny))
            return mean + step / (i + 1), squares, entropy, votes, log

        of_one = jax.eval_shape(lambda: self._probabilities(natural["loc"], x, *constants)[0])
        zero = jnp.zeros((of_one.shape[1], x.shape[0]), x.dtype)
        start = (zero, zero, zero[0], zero, zero)
        mean, squares, entropy, votes, log = jax.lax.fori_loop(0, draws, body, start)
        sd = jnp.sqrt(squares / draws)
        return mean.T, sd.T, entropy / draws, votes.T / draws, log.T / draws
