"""Draws from a fitted guide and their densities, whatever is predicted with them.

Draws are regenerated from the guide's random stream, so that the same ones come back whoever
asks for them.
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
from pmbnn.inference.jax_edge import jax_function, precision
from pmbnn.inference.settings import Inference
from pmbnn.models import ROW_DATA


class GuideDraws:
    """Draws of every member of one group, from its model's graph.

    Compiled once, whatever the number of rows; the settings tell which guide to draw from.
    """

    def __init__(self, model: pm.Model, settings: Inference, dtype: str = "float32") -> None:
        self.dtype = dtype
        self.flat = flat = flatten_model(model, rows=None)
        self.check()
        self.guide = build_guide(settings, flat.size, flat.improper)
        self.constants = [name for name in flat.data if name not in ROW_DATA]
        self.vector = values = flat_vector(flat)
        graphs = [flat.log_likelihood, flat.log_prior, *flat.posterior.values()]
        log_likelihood, log_prior, *posterior = flat.at(values, graphs)
        constants = [flat.data[name] for name in self.constants]
        rows = [flat.data[name] for name in ROW_DATA]
        with precision(dtype):
            log_joint = jax_function([values, *rows, *constants], [log_likelihood, log_prior])
            named = jax_function([values, *constants], posterior)
        self._log_joint = self.over_draws(log_joint, len(rows))
        self._posterior = self.over_draws(named, 0)
        self._log_guide = self._build_log_guide(values)
        self._draws = jax.jit(jax.vmap(self.draw, in_axes=(None, None, 0)))

    def check(self) -> None:
        """Raise ValueError if the model's likelihood is not the one predicted with."""
        raise NotImplementedError

    def over_draws(self, function, n_rows: int):
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

    def values(self, fit: Fit, draws: int) -> np.ndarray:
        """The first draws of the flat vector, ``(draw, size)``: those that predictions use."""
        with precision(self.dtype):
            return np.asarray(self._draws(self.natural(fit), draw_key(fit), jnp.arange(draws)))

    def posterior(
        self, data: Mapping[str, np.ndarray], values: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Named variables at draws of the flat vector, ``(draw, *shape)`` each."""
        with precision(self.dtype):
            constants = [jnp.asarray(data[n], self.dtype) for n in self.constants]
            arrays = self._posterior(jnp.asarray(values, self.dtype), *constants)
        return dict(zip(self.flat.posterior, map(np.asarray, arrays), strict=True))

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

    def natural(self, fit: Fit) -> dict[str, jax.Array]:
        """Natural parameters of a fit; call it within `precision`."""
        names = self.guide.natural_shapes
        return {name: jnp.asarray(fit.natural[name], self.dtype) for name in names}

    def draw(self, natural, key, i):
        """The `i`-th draw of a fit's guide, whoever asks for it."""
        key = jax.random.fold_in(key, i)
        shapes = self.guide.noise
        keys = [key] if len(shapes) == 1 else jax.random.split(key, max(1, len(shapes)))
        noise = {
            name: jax.random.normal(k, shape, self.dtype)
            for (name, shape), k in zip(shapes.items(), keys, strict=False)
        }
        return self.guide.draw(natural, noise)


def padded(x: np.ndarray, size: int) -> np.ndarray:
    """Rows filled up with zeros to the length of a block."""
    return np.pad(x, ((0, size - len(x)), (0, 0)))


def draw_key(fit: Fit) -> jax.Array:
    """The random stream that draws of a fit come from."""
    # Faster generators give other numbers under vmap, and a draw must not depend on that.
    return jax.random.wrap_key_data(fit.streams.draws[:2], impl="threefry2x32")
