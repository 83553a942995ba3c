"""The engines that settings can name, and fits of any model with them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pymc as pm

from pmbnn.core.spec import Tune
from pmbnn.inference import advi, groups, laplace, pymc_engine
from pmbnn.inference.coordinates import Coordinates
from pmbnn.inference.flat import n_observations, value_shapes
from pmbnn.inference.result import Fit, Progress
from pmbnn.inference.settings import Inference

SMALL = 2**14
"""Largest number of unconstrained scalars of a model whose restarts run at once."""


class Engine(NamedTuple):
    """Two functions, whose arguments are those of `advi.build_program` and `groups.fit`.

    Attributes
    ----------
    build_program
        Function that returns the program of a model, with ``flat``, ``guide``, ``settings``,
        ``steps``, ``width`` and ``supports(n_rows)``.
    fit
        Function that returns fits of replicas by such a program.
    """

    build_program: Callable
    fit: Callable[..., list[Fit]]


ENGINES = {
    "compiled": Engine(advi.build_program, groups.fit),
    "pymc": Engine(pymc_engine.build_program, pymc_engine.fit),
}

LAPLACE = Engine(laplace.build_program, laplace.fit)


def engine_of(settings: Inference) -> Engine:
    """The engine of settings; a Laplace approximation has one of its own."""
    return LAPLACE if settings.guide == "laplace" else ENGINES[settings.engine]


def fit_model(
    model: pm.Model,
    settings: Inference | None = None,
    *,
    restarts: int | None = None,
    random_seed: int | None = None,
    identity: str = "fit_model",
    dtype: str = "float64",
    progress: Progress | None = None,
    coordinates: Coordinates | None = None,
    means: Sequence[np.ndarray] | None = None,
):
    """Fits of a PyMC model with the current values of its data variables.

    Parameters
    ----------
    model
        Any model with continuous free variables: several observed variables, potentials,
        bounded variables, data variables or none. A ``batch`` needs data variables whose first
        dim is ``observation``.
    settings
        Settings of the fits; by default those of `Inference`.
    restarts, random_seed
        Number of independent fits, and seed of their initial values, noise and minibatches; by
        default those of the settings.
    identity
        Fits with another identity have other PRNG keys at the same seed.
    dtype
        ``float64``, or ``float32``, which is faster and enough for networks, but not for
        matrices that are nearly singular.
    progress
        Called during the fits; see `Progress`.
    coordinates, means
        Coordinates in which guides of the engine ``compiled`` move, and their initial means there,
        ``(size,)`` for each restart; see `build_program` and `groups.init`.

    Returns
    -------
    program
        The compiled program: ``program.flat`` has the graphs of the model, ``program.guide`` the
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
    engine = engine_of(settings)
    moving = {} if coordinates is None else {"coordinates": coordinates}
    program = engine.build_program(model, settings, n_observations(model), width, dtype, **moving)
    replicas = advi.build_replicas(model, restarts, seed, identity)
    begun = {} if means is None else {"means": means}
    return program, engine.fit(program, replicas, progress, **begun)
