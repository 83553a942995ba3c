"""Draws of a model's flat vector from its prior."""

from collections.abc import Sequence

import numpy as np
import pymc as pm
import pytensor
from pymc.pytensorf import collect_default_updates, compile, reseed_rngs
from pytensor.compile.mode import Mode

from pmbnn.prediction.unconstrained import unconstrained_draws


def prior_draws(model: pm.Model, seeds: Sequence[Sequence[int]]) -> np.ndarray:
    """One draw for each seed, ``(draw, size)``, double precision.

    Parameters
    ----------
    model
        With the values that its data variables have, and proper priors.
    seeds
        Unsigned 32-bit words, which decide a draw whatever others are asked for.
    """
    variables = model.free_RVs
    generators = list(collect_default_updates(variables))
    # Interpreted: a compiler would take longer than thousands of draws.
    with pytensor.config.change_flags(cxx=""):
        draw = compile([], variables, mode=Mode("py", None))
    found = []
    for seed in seeds:
        reseed_rngs(generators, list(seed))
        found.append(draw())
    stacked = (np.stack(arrays)[None] for arrays in zip(*found, strict=True))
    named = dict(zip((v.name for v in variables), stacked, strict=True))
    return unconstrained_draws(model, named)[0]
