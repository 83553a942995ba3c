"""Functions drawn from a prior: what a model says before it has seen anything.

What a network says with given weights does not depend on their prior: one compiled program serves
every prior and hyperprior.
"""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pmbnn.data.arrays import Rows
from pmbnn.inference.xla.compile import jax_function, precision
from pmbnn.models.build import build_model, model_data
from pmbnn.models.likelihoods import Likelihood
from pmbnn.models.networks import Network
from pmbnn.models.networks.activations import relative_slopes
from pmbnn.models.priors import Fixed, Normal
from pmbnn.prediction.draws import unconstrained_draws
from pmbnn.prediction.predictor import Predictor
from pmbnn.prediction.prior_draws import prior_draws

FLAT = 0.05
"""Share of the steepest slope below which a hidden unit is saturated: tanh beyond ±0.975."""


class PriorFunctions:
    """What networks of one shape say with given weights, compiled once for all priors.

    Parameters
    ----------
    rows
        Data of the shape that networks take; one row will do.
    dtype
        ``float32`` or ``float64``: heavy tails leave the range of the first.

    Attributes
    ----------
    names
        Variables that decide a function: weights, biases and what the likelihood learns.
    """

    def __init__(
        self, network: Network, likelihood: Likelihood, rows: Rows, dtype: str = "float64"
    ) -> None:
        row, usual = rows.take([0]), Fixed()
        # Under a normal prior these variables are all that is free, whatever the prior to come.
        self.model = build_model(network, Normal(), usual, likelihood, row)
        self.names = [v.name for v in self.model.free_RVs]
        self.data = model_data(usual, row, likelihood)
        self.likelihood = likelihood
        self.predictor = Predictor(self.model, likelihood, dtype=dtype)
        self._saturated = self._build_saturated(network, rows.input_shape)

    def draws(
        self, model: pm.Model, draws: int, random_seed: int, at_once: int
    ) -> Iterator[np.ndarray]:
        """Flat vectors drawn from another model's prior, ``(draw, size)``, some at a time.

        Raises
        ------
        NotDrawnError
            As `prior_draws` does.
        """
        draw = prior_draws(model, self.names, random_seed)
        for start in range(0, draws, at_once):
            named = draw(min(at_once, draws - start))
            given = {name: values[None] for name, values in named.items()}
            yield unconstrained_draws(self.model, given)[0]

    def parameters(self, values: np.ndarray, x: np.ndarray) -> dict[str, np.ndarray]:
        """What the likelihood names, of draws ``(draw, size)``; see `Predictor.parameters`."""
        return self.predictor.parameters(self.data, values, x)

    def saturated(self, values: np.ndarray, x: np.ndarray) -> np.ndarray | None:
        """Share of hidden units and inputs where a unit is saturated, ``(draw,)``.

        A unit is so where its slope is less than `FLAT` of its steepest; a rectified one, where
        it is off. None if no activation is known.
        """
        if self._saturated is None:
            return None
        with precision(self.predictor.dtype):
            values, x = (jnp.asarray(v, self.predictor.dtype) for v in (values, x))
            return np.asarray(self._saturated(values, x), np.float64)

    def _build_saturated(self, network: Network, input_shape: tuple[int, ...]):
        flat, vector = self.predictor.flat, self.predictor.vector
        outputs = network.forward(flat.data["x"], flat.posterior, input_shape)
        slopes = relative_slopes(outputs)
        if not slopes:
            return None
        flattened = pt.concatenate([slope.ravel() for slope in slopes])
        graphs = flat.at(vector, [pt.mean(pt.lt(flattened, FLAT))])
        with precision(self.predictor.dtype):
            of_one = jax_function([vector, flat.data["x"]], graphs)
        return jax.jit(jax.vmap(lambda values, x: of_one(values, x)[0], (0, None)))
