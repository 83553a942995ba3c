"""Draws from the prior of a PyMC model, by PyMC's own generators."""

from collections.abc import Callable, Sequence

import numpy as np
import pymc as pm
import pytensor
from pymc import Flat, HalfFlat
from pytensor.compile.mode import Mode

from pmbnn.models.point import PointRV

IMPROPER = (type(Flat.rv_op), type(HalfFlat.rv_op))
"""Operations of improper priors."""


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
    draw = interpreted([model[name] for name in names], random_seed)
    return lambda draws: stacked(names, [draw() for _ in range(draws)])


def interpreted(variables: Sequence, random_seed: int | None = None) -> Callable:
    """Function without arguments that draws the variables by PyMC's own generators.

    It is interpreted: a compiler would take longer than thousands of draws.
    """
    with pytensor.config.change_flags(cxx=""):
        return pm.compile([], variables, random_seed=random_seed, mode=Mode("py", None))


def stacked(names: Sequence[str], draws: Sequence[Sequence]) -> dict[str, np.ndarray]:
    """Draws as arrays ``(draw, *shape)`` by name."""
    return {name: np.stack(v) for name, v in zip(names, zip(*draws, strict=True), strict=True)}
