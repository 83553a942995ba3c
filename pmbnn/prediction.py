"""Posterior draws turned into predictions, in bounded memory.

Draws are regenerated from the guide one at a time inside the compiled loop; only running
moments are kept, so memory grows with neither the number of draws nor that of the rows.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pmbnn.inference.fit import Fit
from pmbnn.inference.flat import flat_vector, flatten_model
from pmbnn.inference.guides import build_guide
from pmbnn.inference.jax_edge import compiler_options, jax_function, precision
from pmbnn.inference.settings import Inference
from pmbnn.models import ROW_DATA
from pmbnn.moments import Moments

BLOCK = 2_048
"""Rows predicted at once. One length for all, the last block padded, so that a group compiles
one program; short enough for a small network's layers to stay in the processor's cache."""
PICTURE_BLOCK, MOST_FEATURES = 512, 64
"""The same where a row has more features than that: a layer of pictures is larger."""
FEW = 32
"""The same where single draws are kept."""


class Predictor:
    """Predictions of every member of one group, from its model's graph.

    Compiled once, whatever the number of rows; the settings tell which guide to draw from.

    Raises
    ------
    ValueError
        If the model's likelihood is not categorical.
    """

    def __init__(self, model: pm.Model, settings: Inference, dtype: str = "float32") -> None:
        self.dtype = dtype
        self.flat = flat = flatten_model(model, rows=None)
        self.guide = build_guide(settings, flat.size, flat.improper)
        if flat.probabilities is None:
            raise ValueError("Predictions need a categorical likelihood, this model has another.")
        self.constants = [name for name in flat.data if name not in ROW_DATA]
        values = flat_vector(flat)
        log_likelihood, log_prior, probabilities, *posterior = flat.at(
            values,
            [flat.log_likelihood, flat.log_prior, flat.probabilities, *flat.posterior.values()],
        )
        constants, x = [flat.data[n] for n in self.constants], flat.data["x"]
        rows = [flat.data[name] for name in ROW_DATA]
        with precision(dtype):
            self._probabilities = jax_function([values, x, *constants], [probabilities])
            log_joint = jax_function([values, *rows, *constants], [log_likelihood, log_prior])
            named = jax_function([values, *constants], posterior)
        self._probabilities_of_draws = self._over_draws(self._probabilities, 1)
        self._log_joint = self._over_draws(log_joint, len(rows))
        self._posterior = self._over_draws(named, 0)
        self._log_guide = self._build_log_guide(values)
        self._moments = jax.jit(self._moments_of_block, compiler_options=compiler_options())
        self._single_draws = jax.jit(self._single_draws_of_block, static_argnums=2)
        self._draws = jax.jit(jax.vmap(self._draw, in_axes=(None, None, 0)))

    def _over_draws(self, function, n_rows: int):
        """A function of the flat vector, the rows and the constants, for many vectors."""
        return jax.jit(jax.vmap(function, (0, *(None,) * (n_rows + len(self.constants)))))

    def _build_log_guide(self, values):
        """Log-density of the guide at draws; None of a point."""
        if self.guide.is_point:
            return None
        natural = {
            name: pt.tensor(name, dtype="float64", shape=shape)
            for name, shape in self.guide.natural_shapes.items()
        }
        # Double precision: the sum over a large network's parameters needs it.
        with precision("float64"):
            graph = jax_function(
                [values, *natural.values()], [self.guide.log_density(natural, values)]
            )
        return jax.jit(jax.vmap(graph, (0, *(None,) * len(natural))))

    def moments(
        self, fit: Fit, data: Mapping[str, np.ndarray], x: np.ndarray, draws: int
    ) -> Moments:
        """Predictive moments at standardised inputs ``(observation, feature)``."""
        constants = [data[name] for name in self.constants]
        parts = []
        # All draws of a point are the same.
        draws = 1 if self.guide.is_point else draws
        with precision(self.dtype):
            natural = self._natural(fit)
            constants = [jnp.asarray(c, self.dtype) for c in constants]
            size = BLOCK if x.shape[1] <= MOST_FEATURES else PICTURE_BLOCK
            for start in range(0, len(x), size):
                block = jnp.asarray(_padded(x[start : start + size], size), self.dtype)
                moments = self._moments(natural, _draw_key(fit), draws, block, constants)
                parts.append(jax.device_get(moments))
        return Moments(draws, *(np.concatenate(p)[: len(x)] for p in zip(*parts, strict=True)))

    def values(self, fit: Fit, draws: int) -> np.ndarray:
        """The first draws of the flat vector, ``(draw, size)``: those that `moments` uses."""
        with precision(self.dtype):
            return np.asarray(self._draws(self._natural(fit), _draw_key(fit), jnp.arange(draws)))

    def posterior(
        self, data: Mapping[str, np.ndarray], values: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Named variables at draws of the flat vector, ``(draw, *shape)`` each."""
        with precision(self.dtype):
            constants = [jnp.asarray(data[n], self.dtype) for n in self.constants]
            arrays = self._posterior(jnp.asarray(values, self.dtype), *constants)
        return dict(zip(self.flat.posterior, map(np.asarray, arrays), strict=True))

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
            natural, parts = self._natural(fit), []
            for start in range(0, len(x), FEW):
                block = jnp.asarray(_padded(x[start : start + FEW], FEW), self.dtype)
                parts.append(self._single_draws(natural, _draw_key(fit), draws, block, constants))
            return np.concatenate(parts, axis=1)[:, : len(x)]

    def log_densities(
        self, fit: Fit, data: Mapping[str, np.ndarray], values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Log-likelihood of every row, log joint density and log guide density of draws.

        Shapes ``(draw, observation)``, ``(draw,)``, ``(draw,)``; nats, densities on the
        unconstrained vector; that of a point guide is not a number.
        """
        with precision(self.dtype):
            arrays = [jnp.asarray(data[n]) for n in (*ROW_DATA, *self.constants)]
            values = jnp.asarray(values, self.dtype)
            log_likelihood, log_prior = self._log_joint(values, *arrays)
        log_likelihood = np.asarray(log_likelihood)
        log_p = log_likelihood.sum(axis=1, dtype=np.float64) + np.asarray(log_prior)
        return log_likelihood, log_p, self._log_guide_density(fit, np.asarray(values))

    def _log_guide_density(self, fit: Fit, values: np.ndarray) -> np.ndarray:
        if self._log_guide is None:
            return np.full(len(values), np.nan)
        with precision("float64"):
            natural = [jnp.asarray(fit.natural[n], "float64") for n in self.guide.natural_shapes]
            return np.asarray(self._log_guide(jnp.asarray(values, "float64"), *natural)[0])

    def _natural(self, fit: Fit) -> dict[str, jax.Array]:
        names = self.guide.natural_shapes
        return {name: jnp.asarray(fit.natural[name], self.dtype) for name in names}

    def _draw(self, natural, key, i):
        """The `i`-th draw of a fit's guide, whoever asks for it."""
        key = jax.random.fold_in(key, i)
        shapes = self.guide.noise
        keys = [key] if len(shapes) == 1 else jax.random.split(key, max(1, len(shapes)))
        noise = {
            name: jax.random.normal(k, shape, self.dtype)
            for (name, shape), k in zip(shapes.items(), keys, strict=False)
        }
        return self.guide.draw(natural, noise)

    def _single_draws_of_block(self, natural, key, draws, x, constants):
        def of_one(i):
            return self._probabilities(self._draw(natural, key, i), x, *constants)[0]

        return jax.lax.map(of_one, jnp.arange(draws))

    def _moments_of_block(self, natural, key, draws, x, constants):
        """Running moments over draws, in the order of `Moments` (Welford 1962)."""

        def body(i, carry):
            mean, squares, entropy, votes, log = carry
            p = self._probabilities(self._draw(natural, key, i), x, *constants)[0].T
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


def _padded(x: np.ndarray, size: int) -> np.ndarray:
    """Rows filled up with zeros to the length of a block."""
    return np.pad(x, ((0, size - len(x)), (0, 0)))


def _draw_key(fit: Fit) -> jax.Array:
    # Faster generators give other numbers under vmap, and a draw must not depend on that.
    return jax.random.wrap_key_data(fit.streams.draws[:2], impl="threefry2x32")
