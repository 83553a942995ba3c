"""Functions drawn from a prior: what a network says before it has seen any data.

Draws of weights come from PyMC's own generators, which are exact for every prior that can be drawn
from. They are interpreted: a compiler would take longer than thousands of draws. What a network
says with given weights does not depend on their prior, so that one compiled program serves every
prior and hyperprior.
"""

from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.pytensorf import collect_default_updates, reseed_rngs
from pytensor.compile.mode import Mode

from pmbnn.data.arrays import Rows
from pmbnn.inference.flat import IMPROPER
from pmbnn.inference.xla.compile import jax_function, precision
from pmbnn.models.build import build_model, model_data
from pmbnn.models.layers import relative_slopes
from pmbnn.models.likelihoods import Likelihood
from pmbnn.models.networks import Network
from pmbnn.models.point import PointRV
from pmbnn.models.priors import Fixed, Normal
from pmbnn.prediction.draws import unconstrained_draws
from pmbnn.prediction.predictor import Predictor

FLAT = 0.05
"""Share of the steepest slope below which a hidden unit is saturated: tanh beyond ±0.975."""


def prior_draws(
    model: pm.Model, names: Sequence[str], random_seed: int
) -> Callable[[int], dict[str, np.ndarray]]:
    """Function that takes further draws of some variables from the prior of a model.

    Parameters
    ----------
    names
        Names of free variables and deterministics.

    Returns
    -------
    Callable
        Function of a number of draws, which gives arrays ``(draw, *shape)`` by name.

    Raises
    ------
    ValueError
        If a free variable has an improper prior, or the model has a potential.
    """
    improper = [v.name for v in model.free_RVs if isinstance(v.owner.op, (*IMPROPER, PointRV))]
    if improper:
        raise ValueError(f"`model` must have proper priors, but that of `{improper[0]}` is not.")
    if model.potentials:
        name = model.potentials[0].name
        raise ValueError(f"`model` must have no potential to be drawn from, but it has `{name}`.")
    draw = _interpreted([model[name] for name in names], random_seed)
    return lambda draws: _stacked(names, [draw() for _ in range(draws)])


def seeded_prior_draws(model: pm.Model, seeds: Sequence[Sequence[int]]) -> np.ndarray:
    """One draw of a model's flat vector for each seed, ``(draw, size)``, double precision.

    Parameters
    ----------
    model
        A model with proper priors; its data variables have their values.
    seeds
        Unsigned 32-bit words of each draw, which decide it whatever others are drawn.
    """
    variables = model.free_RVs
    generators = list(collect_default_updates(variables))
    draw, drawn = _interpreted(variables), []
    for seed in seeds:
        reseed_rngs(generators, list(seed))
        drawn.append(draw())
    named = _stacked([v.name for v in variables], drawn)
    return unconstrained_draws(model, {name: values[None] for name, values in named.items()})[0]


def _interpreted(variables: Sequence, random_seed: int | None = None) -> Callable:
    with pytensor.config.change_flags(cxx=""):
        return pm.compile([], variables, random_seed=random_seed, mode=Mode("py", None))


def _stacked(names: Sequence[str], draws: Sequence[Sequence]) -> dict[str, np.ndarray]:
    return {name: np.stack(v) for name, v in zip(names, zip(*draws, strict=True), strict=True)}


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
        self.predictor = Predictor(self.model, likelihood, dtype=dtype)
        self._saturated = self._build_saturated(network, rows.input_shape)

    def draws(
        self, model: pm.Model, draws: int, random_seed: int, at_once: int
    ) -> Iterator[np.ndarray]:
        """Flat vectors drawn from another model's prior, ``(draw, size)``, some at a time.

        Raises
        ------
        ValueError
            As `prior_draws` does.
        """
        draw = prior_draws(model, self.names, random_seed)
        for start in range(0, draws, at_once):
            named = draw(min(at_once, draws - start))
            one_chain = {name: values[None] for name, values in named.items()}
            yield unconstrained_draws(self.model, one_chain)[0]

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
            share = jax_function([vector, flat.data["x"]], graphs)
        return jax.jit(jax.vmap(lambda values, x: share(values, x)[0], (0, None)))
