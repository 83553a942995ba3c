"""The posterior of any PyMC model from Python: fitted, or sampled."""

from collections.abc import Mapping, Sequence

import numpy as np
import pymc as pm

from pmbnn.core.errors import HABITS, check_arguments, must_be_one_of
from pmbnn.core.machine import device_here, running_on
from pmbnn.core.spec import validated
from pmbnn.inference.advi import Program
from pmbnn.inference.batches import model_values
from pmbnn.inference.engines import fit_model
from pmbnn.inference.flat import flatten_model, n_observations, value_shapes
from pmbnn.inference.guides import initial_means
from pmbnn.inference.log_density import build_log_density
from pmbnn.inference.observed import check_support
from pmbnn.inference.optimum import with_distance
from pmbnn.inference.result import Fit
from pmbnn.inference.samplers.chains import CANDIDATES
from pmbnn.inference.samplers.run import build_sampler, sample_posterior
from pmbnn.inference.samplers.settings import SAMPLING, Sampling
from pmbnn.inference.samplers.whitened import ENGINES as WHITENED
from pmbnn.inference.samplers.whitened import sample_whitened
from pmbnn.inference.settings import DEFAULT_STEPS, Inference
from pmbnn.inference.unit_free import fit_unit_free
from pmbnn.inference.unsupported import why_not_finite
from pmbnn.inference.xla.compile import sharing_programs
from pmbnn.models.build import likelihood_of, parts_of
from pmbnn.models.smooth import why_not_smooth
from pmbnn.prediction.datatree import history_of
from pmbnn.prediction.draws import GuideDraws, KeptDraws
from pmbnn.prediction.posterior import Posterior
from pmbnn.prediction.predictor import compared_functions, tempering
from pmbnn.prediction.progress import shown

START_DRAWS = 5
"""Draws of each guide at its start, at which terms that are not finite are searched for."""

DTYPES = ("float32", "float64")

LARGEST_NUTS = 50
"""Variables at most of a model whose default sampler is NUTS."""

CAREFUL = 0.95
"""Acceptance to which NUTS adapts for models that are not of this package: some have narrow parts.
In good coordinates it costs a quarter more gradients than 0.8."""

PLACES = {name: name for name in Inference.model_fields} | {"seed": "random_seed"}
"""Arguments of `fit` by the fields of the settings."""

ARGUMENTS = {*PLACES.values(), "progress", "dtype", "device"}

ELSEWHERE = {
    "draws": "it is an argument of `sample`, `predict` and `to_datatree` of what `pb.fit` returns.",
    "chains": "`restarts` are independent fits.",
    "cores": "all restarts run in one program, on all cores.",
}
"""Remedies for arguments that `fit` does not have."""


def fit(
    model: pm.Model,
    *,
    steps: int | None = None,
    restarts: int = 1,
    random_seed: int = 0,
    guide: str = "mean_field",
    learning_rate: float = 0.02,
    progress: bool = True,
    dtype: str | None = None,
    device: str = "auto",
    **settings: object,
) -> Posterior:
    """Variational approximation of the posterior of any PyMC model with continuous variables.

    Fits of models that are not of this package start at the mode near the model's initial point and
    move in coordinates of the curvature there, so that units of the data change no answer. They
    have ``converged`` if the ELBO no longer rises, the means are within a quarter of the guide's
    standard deviations of the optimum, and no variance of a mean-field or full-rank guide is off by
    more than a factor of two; ``reason`` says how far the means are. Means that are farther away
    move by Newton steps after the last gradient step, which the history does not show; ``elbo`` is
    that at the end. Where steps or variances show that the posterior is not normal, the gradient
    steps are taken once more, and the history has both runs. A posterior that has a mode is taken
    as proper, whatever the priors, and ``reason`` notes an improper prior.

    All this is left out for networks of this package; for models of more than 2,000 variables or
    without such a mode; with ``batch``, ``kl_weight`` or ``engine="pymc"``; and if
    ``initial_mean``, ``initial_spread`` or ``initial_scale`` say where to start. Then fits have
    ``converged`` if the ELBO no longer rises. With ``check_optimum``, the best fit of a network is
    judged by its distance from the optimum, too.

    Parameters
    ----------
    model
        Several observed variables, potentials, deterministics, bounded variables, ``pm.Data`` or
        none. Minibatches (``batch=``) take ``pm.Data`` with the first dim ``observation``.
    steps
        Gradient steps of each restart: 10,000 unless these or ``epochs`` are given.
    restarts
        Independent fits, of which the one of highest ELBO counts; small models fit them all at
        once in one program.
    random_seed
        Seed of initial values, noise, minibatches and draws.
    guide
        ``mean_field``, ``low_rank`` or ``full_rank`` normals on the unconstrained variables; a
        normal at the mode of a network's posterior, ``laplace``, whose predictions are those of the
        network made linear there; a point: ``map``, ``maximum_likelihood``; or ``dropout`` of the
        inputs of weights, with a ``dropout_rate``.
    learning_rate
        Adam's, at its highest.
    progress
        Whether to show steps, time left and the ELBO.
    dtype
        ``float32`` or ``float64``; by default the first for models of this package and the
        second for others, whose matrices may be nearly singular.
    device
        Device of the fit, and of later draws and predictions: ``cpu``, ``gpu`` (the first that JAX
        finds), or ``auto``, a GPU where there is one.
    **settings
        Further fields of `pmbnn.Inference`: ``estimator``, ``batch``, ``check_optimum``, …

    Raises
    ------
    ValueError
        If a free variable is discrete, an observation is outside the support of its
        distribution or an operation has no form in JAX, naming the variable; if a setting is out
        of its range or does not fit the model; if every restart diverged.
    TypeError
        If `model` is no model, or there is no such setting.
    DeviceError
        If the device is not there.

    References
    ----------
    Kucukelbir et al. (2017), Automatic Differentiation Variational Inference; Boyd and Vandenberghe
    (2004), Convex Optimization, section 9.5, for the distance of the means; Daxberger et al.
    (2021), Laplace Redux, for ``laplace``.

    Examples
    --------
    >>> model = pb.dense_classifier(x, y, prior=pb.Laplace())  # doctest: +SKIP
    >>> pb.fit(model, restarts=6).to_datatree()  # doctest: +SKIP
    """
    if not isinstance(model, pm.Model):
        raise TypeError(f"`model` must be a pm.Model, got {type(model).__name__}.")
    check_arguments(settings, ARGUMENTS, "pb.fit", **ELSEWHERE)
    if steps is None and settings.get("epochs") is None:
        steps = DEFAULT_STEPS
    named = {"steps": steps, "restarts": restarts, "seed": random_seed, "guide": guide}
    named |= {"learning_rate": learning_rate, **settings}
    inference = validated(Inference, named, PLACES, "pb.fit")
    if inference.guide == "laplace":
        _check_laplace(model)
    dtype = chosen_dtype(model, dtype)
    place = device_here(device)
    with running_on(place), shown(progress):
        # Dropout drops weights, which have no other coordinates.
        is_free = parts_of(model) is None and inference.guide != "dropout"
        fit_any = fit_unit_free if is_free else fit_model
        program, fits = fit_any(model, inference, dtype=dtype)
    finite = [fit for fit in fits if not fit.failed]
    if not finite:
        reason = _why_not_finite(program, model, fits)
        if reason is not None:
            raise ValueError(f"`model` cannot be fitted: {reason}.")
        raise ValueError(f"every restart diverged: {fits[0].reason}. Lower `learning_rate`.")
    best = max(finite, key=lambda fit: fit.elbo)
    if inference.check_optimum and parts_of(model) is not None and not program.flat.points:
        with running_on(place), shown(progress):
            rows = n_observations(model)
            density = build_log_density(model, rows, "float64")
            compared = with_distance(best, program.guide, density, model_values(model), rows)
        fits = [compared if fit is best else fit for fit in fits]
        finite, best = [fit for fit in fits if not fit.failed], compared
    return Posterior(
        origin=model,
        settings=inference,
        sources={fit.replica: GuideDraws.from_fit(program.guide, fit) for fit in finite},
        weights={fit.replica: float(fit.replica == best.replica) for fit in finite},
        best=best.replica,
        status=best.status,
        reason=best.reason,
        draws_of=(
            f"the {inference.guide.replace('_', '-')} guide of restart {best.replica}, "
            f"highest {inference.objective} of {len(fits)}"
        ),
        dtype=dtype,
        device=place,
        history=history_of(fits),
    )


def _check_laplace(model: pm.Model) -> None:
    """Raise ValueError if a model has no Laplace approximation."""
    parts = parts_of(model)
    if parts is None:
        raise ValueError(
            "`guide` must not be laplace for a model that is not one of this package: its "
            "predictions are by a network made linear."
        )
    fault = why_not_smooth(parts.prior, parts.hyperprior, parts.likelihood)
    if fault is not None:
        section, rule, kind = fault
        raise ValueError(f"`{section}` {rule}, got {kind}.")


def chosen_dtype(model: pm.Model, dtype: str | None) -> str:
    """The given precision, or the default of the kind of model."""
    if dtype is None:
        return "float64" if likelihood_of(model) is None else "float32"
    if dtype not in DTYPES:
        raise must_be_one_of("dtype", DTYPES, dtype)
    return dtype


def _why_not_finite(program: Program, model: pm.Model, fits: Sequence[Fit]) -> str | None:
    """Reason for a log-density that is not finite at draws of the guides at their start."""
    flat, settings, points = flatten_model(model, n_observations(model)), program.settings, []
    for fit in fits:
        rng = np.random.default_rng(fit.keys.initial)
        means = initial_means(flat.layout, settings, rng)
        spread = settings.initial_scale * rng.standard_normal((START_DRAWS, means.size))
        points += list(means + spread)
    # The engine of PyMC has one precision only.
    dtype = getattr(program, "dtype", "float64")
    return why_not_finite(flat, model_values(model), points, dtype)


def sample(
    model: pm.Model,
    *,
    engine: str | None = None,
    random_seed: int = 0,
    progress: bool = True,
    dtype: str | None = None,
    device: str = "auto",
    **settings: object,
) -> Posterior:
    """Draws from the posterior of any PyMC model with continuous variables.

    Chains of a sampler through the log-density that fits use, all in one program. Microcanonical
    Langevin Monte Carlo (MCLMC) has a small bias; the Metropolis-adjusted MAMS and the No-U-Turn
    Sampler (NUTS) have none and take longer for networks; tempered sequential Monte Carlo (SMC)
    finds separate modes in their proportions, and the evidence. Chains go on until they agree: on
    the model's predictions at up to 400 training inputs if it is one of this package, on the free
    variables otherwise. Where they do not, the status is ``undecided``, whatever the prior.

    Chains of MCLMC, MAMS and NUTS move in coordinates in which the posterior has about unit scales,
    if the model is not one of this package: up to 2,000 variables by the curvature at the mode, and
    by draws of chains before those that count. Units of the data change no answer. Chains start
    about all modes that are found; modes that no search finds may be missed.

    Parameters
    ----------
    model
        As `fit` takes it; for MCLMC with two unconstrained scalars at least, for SMC with priors
        whose quantile functions are known.
    engine
        Name of a sampler: ``mclmc``, ``mams``, ``mile``, ``nuts`` or ``smc``. By default MCLMC for
        networks of this package and for models of more than 50 variables, and NUTS for others,
        which adapts to an acceptance of 0.95 there.
    random_seed
        Seed of starts and moves: the same seed gives the same bits.
    progress
        Whether to show draws and agreement.
    dtype
        ``float32`` or ``float64``; by default the first for models of this package and the
        second for others.
    device
        As `fit` takes it.
    **settings
        Further fields of the engine's settings, as of `Mclmc` or `Nuts` in
        `pmbnn.inference.samplers`: ``chains``, ``draws``, ``tuning``, ``thin``, …

    Raises
    ------
    ValueError
        If a free variable is discrete, an observation is outside the support of its
        distribution or an operation has no form in JAX, naming the variable, or the engine or a
        setting is unknown or out of its range.
    DeviceError
        If the device is not there.
    TypeError
        If `model` is no model, or the engine has no such setting.

    References
    ----------
    Robnik and Seljak (2024), Fluctuation without dissipation: Microcanonical Langevin Monte Carlo;
    Vehtari et al. (2021), Rank-normalization, folding, and localization (of R-hat).

    Examples
    --------
    >>> reference = pb.sample(model)  # doctest: +SKIP
    >>> reference.status, reference.reason  # doctest: +SKIP
    """
    if not isinstance(model, pm.Model):
        raise TypeError(f"`model` must be a pm.Model, got {type(model).__name__}.")
    engine = _engine_for(model) if engine is None else engine
    if engine not in SAMPLING:
        raise must_be_one_of("engine", SAMPLING, engine)
    if engine == "nuts" and parts_of(model) is None:
        settings = {"target_acceptance": CAREFUL} | settings
    sampling = _sampling(engine, random_seed, settings)
    dtype = chosen_dtype(model, dtype)
    place = device_here(device)
    with running_on(place), shown(progress), sharing_programs(model):
        further = _tempering(model, sampling)
        density = build_log_density(model, n_observations(model), dtype, further)
        check_support(model, value_shapes(model))
        known = model_values(model), compared_functions(model)
        identity = f"{engine}/{sampling.seed}"
        if parts_of(model) is None and engine in WHITENED:
            start = density.flat.layout.ravel(model.initial_point(sampling.seed))
            samples = sample_whitened(density, sampling, *known, start, identity=identity)
        else:
            sampler = build_sampler(density, sampling)
            samples = sample_posterior(sampler, *known, identity=identity)
        if samples.chains.broken.all():
            reason = _why_chains_are_not_finite(model, sampling, dtype)
            if reason is not None:
                raise ValueError(f"`model` cannot be sampled: {reason}.")
    kept = KeptDraws.spread(samples.chains.merged)
    return Posterior(
        origin=model,
        settings=sampling,
        sources={0: kept},
        weights={0: 1.0},
        best=0,
        status=samples.status,
        reason=samples.reason,
        draws_of=f"the posterior by {engine.upper()}",
        n_draws=len(kept.values),
        dtype=dtype,
        device=place,
        samples=samples,
    )


def _engine_for(model: pm.Model) -> str:
    """Name of the sampler of a model, if none is given.

    In good coordinates trajectories of NUTS are short, unless there are many variables, and its
    draws have no bias. A network of 57 weights takes it six times as long as MCLMC.
    """
    size = sum(int(np.prod(shape)) for shape in value_shapes(model).values())
    return "mclmc" if parts_of(model) is not None or size > LARGEST_NUTS else "nuts"


def _sampling(engine: str, random_seed: int, further: Mapping[str, object]) -> Sampling:
    """Settings of a sampler from the arguments of `sample`."""
    fields = SAMPLING[engine].model_fields
    places = {name: name for name in fields} | {"seed": "random_seed"}
    elsewhere = {"cores": "all chains run in one program, on all cores."}
    for name in further:
        field = HABITS.get(name, name)
        others = [other for other, cls in sorted(SAMPLING.items()) if field in cls.model_fields]
        if others:
            *first, last = others
            named = f"{', '.join(first)} and {last}" if first else last
            elsewhere[name] = f"`{field}` is one of {named}, not of {engine}."
    arguments = {*places.values(), "progress", "dtype", "device"}
    check_arguments(further, arguments, "pb.sample", **elsewhere)
    if further.get("pooling", "equal") != "equal":
        raise ValueError(
            f"`pooling` must be equal in `pb.sample`, got {further['pooling']!r}: estimators and "
            "experiments weight members."
        )
    return validated(SAMPLING[engine], {"seed": random_seed, **further}, places, "pb.sample")


def _tempering(model: pm.Model, settings: Sampling):
    """What a density at the temperature of the settings has beside that of the model."""
    temperature, parts = getattr(settings, "temperature", 1.0), parts_of(model)
    if parts is not None:
        return tempering(temperature, parts.prior)
    if temperature != 1:
        raise ValueError(
            f"`temperature` must be 1 for a model that is not one of this package, got "
            f"{temperature:g}: nothing says which of its variables are weights."
        )
    return None


def _why_chains_are_not_finite(model: pm.Model, settings: Sampling, dtype: str) -> str | None:
    """Reason for a log-density that is finite at none of the points where chains may start."""
    flat, spread = flatten_model(model, n_observations(model)), getattr(settings, "spread", 1.0)
    points = np.random.default_rng(settings.seed).standard_normal((CANDIDATES, flat.size))
    return why_not_finite(flat, model_values(model), spread * points, dtype, fewest=CANDIDATES)
