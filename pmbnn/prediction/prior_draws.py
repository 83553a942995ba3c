"""Draws from the prior of a model.

They come from PyMC's own generators, which are exact for every prior that can be drawn from at all;
interpreted, for a compiler would take longer than thousands of draws.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pymc as pm
import pytensor
from pymc.pytensorf import collect_default_updates, reseed_rngs
from pytensor.compile.mode import Mode

from pmbnn.inference.flat import IMPROPER
from pmbnn.models.point import PointRV
from pmbnn.prediction.draws import unconstrained_draws

type Draw = Callable[[int], dict[str, np.ndarray]]
"""So many further draws of some variables, ``(draw, *shape)`` each, by name."""


class NotDrawnError(ValueError):
    """A prior that nothing can be drawn from."""


def prior_draws(model: pm.Model, names: Sequence[str], random_seed: int) -> Draw:
    """What draws variables of a model from its prior, hyperpriors included.

    Parameters
    ----------
    names
        Of free variables and deterministics.

    Raises
    ------
    NotDrawnError
        If a free variable has an improper prior, or the model adds terms to its log-density that
        are of no variable.
    """
    improper = [v.name for v in model.free_RVs if isinstance(v.owner.op, (*IMPROPER, PointRV))]
    if improper:
        raise NotDrawnError(f"`model` must have proper priors, but that of `{improper[0]}` is not.")
    if model.potentials:
        name = model.potentials[0].name
        raise NotDrawnError(
            f"`model` must be drawn from by its variables alone, but it has a potential, `{name}`."
        )
    draw = _interpreted([model[name] for name in names], random_seed)
    return lambda draws: _stacked(names, [draw() for _ in range(draws)])


def seeded_prior_draws(model: pm.Model, seeds: Sequence[Sequence[int]]) -> np.ndarray:
    """One draw of a model's flat vector for each seed, ``(draw, size)``, double precision.

    Parameters
    ----------
    model
        With the values that its data variables have, and proper priors.
    seeds
        Unsigned 32-bit words, which decide a draw whatever others are asked for.
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
