"""The engines that settings can name, and fits of any model by them."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pymc as pm

from pmbnn.inference import advi, groups, pymc_engine
from pmbnn.inference.flat import n_observations, value_shapes
from pmbnn.inference.result import Fit, Progress
from pmbnn.inference.settings import Inference
from pmbnn.spec import Tune

SMALL = 2**14
"""Unconstrained scalars of a model whose restarts are fitted at once, in one program."""


class Engine(NamedTuple):
    """Two functions, whose arguments are those of `advi.build_program` and `groups.fit`.

    Attributes
    ----------
    build_program
        A frozen program of a model, with ``flat``, ``guide``, ``settings``, ``steps``, ``width``,
        and ``takes(rows)``, whether it runs fits of so many rows.
    fit
        Fits of replicas by such a program.
    """

    build_program: Callable
    fit: Callable[..., list[Fit]]


ENGINES = {
    "compiled": Engine(advi.build_program, groups.fit),
    "pymc": Engine(pymc_engine.build_program, pymc_engine.fit),
}


def fit_model(
    model: pm.Model,
    settings: Inference | None = None,
    *,
    restarts: int | None = None,
    random_seed: int | None = None,
    identity: str = "fit_model",
    dtype: str = "float64",
    progress: Progress | None = None,
):
    """Fits of a PyMC model with the values that its data variables have.

    Parameters
    ----------
    model
        Any model with continuous free variables: several observed variables, potentials,
        bounded variables, data variables or none. A ``batch`` needs data variables whose first
        dim is ``observation``.
    settings
        How to fit; the defaults unless given.
    restarts, random_seed
        Independent fits, and what decides their initial values, noise and minibatches; those
        of the settings unless given.
    identity
        Fits of other identities have other PRNG keys at the same seed.
    dtype
        ``float64``, or ``float32``, which is faster and enough for networks, but not for
        matrices that are nearly singular.
    progress
        Called as fits go on.

    Returns
    -------
    program
        What was compiled: ``program.flat`` holds the model's graphs, ``program.guide`` the
        family of the approximation.
    fits
        One for each restart; one that diverged has the status ``diverged``.

    Raises
    ------
    ValueError
        If a free variable is discrete, an observation is outside the support of its
        distribution, an operation has no form in JAX, or the settings do not fit the model; the
        message names the variable.
    """
    settings, shapes = settings or Inference(), value_shapes(model)
    if isinstance(settings.learning_rate, Tune):
        raise ValueError("`learning_rate` must be a number to fit a single model, got a search.")
    restarts = settings.restarts if restarts is None else restarts
    if restarts < 1:
        raise ValueError(f"`restarts` must be >= 1, got {restarts}.")
    seed = settings.seed if random_seed is None else random_seed
    size = sum(int(np.prod(shape)) for shape in shapes.values())
    width = restarts if size <= SMALL else 1
    chosen = ENGINES[settings.engine]
    program = chosen.build_program(model, settings, n_observations(model), width, dtype)
    replicas = advi.build_replicas(model, restarts, seed, identity)
    return program, chosen.fit(program, replicas, progress)
