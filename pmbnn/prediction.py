"""Posterior draws turned into predictions, in bounded memory.

Draws are regenerated from the guide one at a time inside the compiled loop; only running
moments are kept, so memory grows with neither the number of draws nor that of the rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm

from pmbnn.inference.fit import Fit
from pmbnn.inference.flat import flatten_model
from pmbnn.inference.guides import mean_field_log_density
from pmbnn.inference.jax_edge import jax_function, precision
from pmbnn.models import ROW_DATA

BLOCK = 2_048
"""Rows predicted at once. One length for all, the last block padded, so that a group compiles
one program; short enough for a small network's layers to stay in the processor's cache."""


@dataclass(frozen=True)
class Moments:
    """Moments of predicted class probabilities over posterior draws.

    Attributes
    ----------
    draws
        How many draws they are taken over.
    mean, sd
        Mean and standard deviation of each class's probability, ``(observation, class)``.
    expected_entropy
        Mean over draws of the entropy of a draw's probabilities, ``(observation,)``, in nats.
    """

    draws: int
    mean: np.ndarray
    sd: np.ndarray
    expected_entropy: np.ndarray

    @property
    def entropy(self) -> np.ndarray:
        """Entropy of the mean probabilities, ``(observation,)``, in nats."""
        p = np.asarray(self.mean, np.float64)
        return -np.sum(p * np.log(np.maximum(p, np.finfo(np.float64).tiny)), axis=-1)

    @property
    def mutual_information(self) -> np.ndarray:
        """Information a label would bring about the weights, ``(observation,)``, in nats.

        References
        ----------
        Houlsby et al. (2011), Bayesian Active Learning by Disagreement, equation 2.
        """
        return np.maximum(self.entropy - self.expected_entropy, 0.0)

    def split(self, sizes: Sequence[int]) -> "list[Moments]":
        """The moments of consecutive runs of rows."""
        stops = np.cumsum(sizes)
        return [
            Moments(self.draws, self.mean[a:b], self.sd[a:b], self.expected_entropy[a:b])
            for a, b in zip(stops - np.asarray(sizes), stops, strict=True)
        ]


def pool(parts: Sequence[Moments]) -> Moments:
    """Moments over the draws of all parts together, as if they had been taken at once."""
    draws = sum(part.draws for part in parts)
    weights = [part.draws / draws for part in parts]
    mean = sum(w * part.mean for w, part in zip(weights, parts, strict=True))
    variance = sum(
        w * (part.sd**2 + (part.mean - mean) ** 2) for w, part in zip(weights, parts, strict=True)
    )
    entropy = sum(w * part.expected_entropy for w, part in zip(weights, parts, strict=True))
    return Moments(draws, mean, np.sqrt(variance), entropy)


class Predictor:
    """Predictions of every member of one group, from its model's graph.

    Compiled once, whatever the number of rows.

    Raises
    ------
    ValueError
        If the model's likelihood is not categorical.
    """

    def __init__(self, model: pm.Model, dtype: str = "float32") -> None:
        self.dtype = dtype
        self.flat = flat = flatten_model(model, rows=None)
        if flat.probabilities is None:
            raise ValueError("Predictions need a categorical likelihood, this model has another.")
        self.constants = [name for name in flat.data if name not in ROW_DATA]
        inputs = [flat.values, flat.data["x"], *(flat.data[n] for n in self.constants)]
        trained = [flat.values, *flat.data.values()]
        with precision(dtype):
            self._probabilities = jax_function(inputs, [flat.probabilities])
            self._log_joint = jax.jit(
                jax.vmap(
                    jax_function(trained, [flat.log_likelihood, flat.log_prior]),
                    in_axes=(0, *(None for _ in flat.data)),
                )
            )
            self._posterior = jax.jit(
                jax.vmap(
                    jax_function(
                        [flat.values, *(flat.data[n] for n in self.constants)],
                        list(flat.posterior.values()),
                    ),
                    in_axes=(0, *(None for _ in self.constants)),
                )
            )
        self._probabilities_of_draws = jax.jit(
            jax.vmap(self._probabilities, in_axes=(0, None, *(None for _ in self.constants)))
        )
        self._moments = jax.jit(self._moments_of_block)

    def moments(
        self, fit: Fit, data: Mapping[str, np.ndarray], x: np.ndarray, draws: int
    ) -> Moments:
        """Predictive moments at standardised inputs ``(observation, feature)``."""
        constants = [data[name] for name in self.constants]
        parts = []
        with precision(self.dtype):
            guide = [jnp.asarray(a, self.dtype) for a in (fit.loc, fit.scale)]
            constants = [jnp.asarray(c, self.dtype) for c in constants]
            for start in range(0, len(x), BLOCK):
                block = jnp.asarray(_padded(x[start : start + BLOCK]), self.dtype)
                moments = self._moments(*guide, _draw_key(fit), draws, block, constants)
                parts.append(jax.device_get(moments))
        mean, sd, entropy = (np.concatenate(p)[: len(x)] for p in zip(*parts, strict=True))
        return Moments(draws, mean, sd, entropy)

    def values(self, fit: Fit, draws: int) -> np.ndarray:
        """The first draws of the flat vector, ``(draw, size)``: those that `moments` uses."""
        with precision(self.dtype):
            guide = [jnp.asarray(a, self.dtype) for a in (fit.loc, fit.scale)]
            return np.asarray(_draws(*guide, _draw_key(fit), jnp.arange(draws)))

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

    def log_densities(
        self, fit: Fit, data: Mapping[str, np.ndarray], values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Log-likelihood of every row, log joint density and log guide density of draws.

        Shapes ``(draw, observation)``, ``(draw,)``, ``(draw,)``; nats, densities on the
        unconstrained vector.
        """
        with precision(self.dtype):
            arrays = [jnp.asarray(data[n]) for n in self.flat.data]
            log_likelihood, log_prior = self._log_joint(jnp.asarray(values, self.dtype), *arrays)
        log_likelihood = np.asarray(log_likelihood)
        log_p = log_likelihood.sum(axis=1, dtype=np.float64) + np.asarray(log_prior)
        return log_likelihood, log_p, mean_field_log_density(values, fit.loc, fit.scale)

    def _moments_of_block(self, loc, scale, key, draws, x, constants):
        """Running mean, standard deviation and entropy over draws (Welford 1962)."""

        def body(i, carry):
            mean, squares, entropy = carry
            p = self._probabilities(_draw(loc, scale, key, i), x, *constants)[0].T
            step = p - mean
            # Usually step · (p - new mean), which the compiler may round to below zero.
            squares = squares + step**2 * (i / (i + 1))
            entropy = entropy - jnp.sum(jax.scipy.special.xlogy(p, p), axis=0)
            return mean + step / (i + 1), squares, entropy

        classes = jax.eval_shape(lambda: self._probabilities(loc, x, *constants)[0]).shape[1]
        zero = jnp.zeros((classes, x.shape[0]), x.dtype)
        mean, squares, entropy = jax.lax.fori_loop(0, draws, body, (zero, zero, zero[0]))
        return mean.T, jnp.sqrt(squares / draws).T, entropy / draws


def _padded(x: np.ndarray) -> np.ndarray:
    """Rows filled up with zeros to the length of a block."""
    return np.pad(x, ((0, BLOCK - len(x)), (0, 0)))


def _draw(loc, scale, key, i):
    """The `i`-th draw of a fit's guide, whoever asks for it."""
    return loc + scale * jax.random.normal(jax.random.fold_in(key, i), loc.shape, loc.dtype)


_draws = jax.jit(jax.vmap(_draw, in_axes=(None, None, None, 0)))


def _draw_key(fit: Fit) -> jax.Array:
    # Faster generators give other numbers under vmap, and a draw must not depend on that.
    return jax.random.wrap_key_data(fit.streams.draws[:2], impl="threefry2x32")
