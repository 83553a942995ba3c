"""Any PyMC model fitted from Python, and what its approximation of the posterior says."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr

from pmbnn.inference.advi import Program
from pmbnn.inference.batches import model_values
from pmbnn.inference.device import Device, current_device, device_here, running_on
from pmbnn.inference.engines import fit_model, n_observations
from pmbnn.inference.flat import FlatModel, flat_vector, flatten_model
from pmbnn.inference.initial import initial_means
from pmbnn.inference.result import Fit
from pmbnn.inference.settings import DEFAULT_STEPS, Inference
from pmbnn.inference.unsupported import computed_by_pytensor, names_in_jax, why_not_finite
from pmbnn.inference.xla.compile import jax_function, precision
from pmbnn.models.build import likelihood_of
from pmbnn.prediction.class_probabilities import ClassProbabilities
from pmbnn.prediction.datatree import build_datatree
from pmbnn.prediction.draws import draw_from, draw_key
from pmbnn.prediction.predictive import Predictive
from pmbnn.prediction.predictor import Predictor, checked_inputs
from pmbnn.prediction.progress import shown
from pmbnn.spec import validated
from pmbnn.spec.display import Summarised
from pmbnn.spec.errors import check_arguments, check_whole, must_be_one_of

START_DRAWS = 5
"""Draws of each guide, as it starts, at which a log-density that is not finite is looked for."""


@dataclass(frozen=True, eq=False, repr=False)
class Approximation(Summarised):
    """A fitted guide of a PyMC model; `fit` makes one.

    Its draws are those of the restart of highest ELBO. They are an approximation of the
    posterior, not draws from it.

    Attributes
    ----------
    model
        The model, as it was handed over.
    settings
        How it was fitted.
    program
        What was compiled; ``program.flat`` holds the model's graphs.
    fits
        One for each restart, with its history, status and parameters.
    device
        That it was fitted on, where its draws and predictions are computed too.
    """

    model: pm.Model
    settings: Inference
    program: Program
    fits: tuple[Fit, ...]
    device: Device = field(default_factory=current_device)

    @property
    def best(self) -> Fit:
        """The fit of highest ELBO."""
        return max((fit for fit in self.fits if not fit.failed), key=lambda fit: fit.elbo)

    @property
    def elbo(self) -> float:
        """Mean ELBO of the best restart over the last tenth of its steps, in nats."""
        return self.best.elbo

    @property
    def status(self) -> str:
        """Verdict on the best restart: ``converged``, ``not_converged`` or ``improper``."""
        return self.best.status

    @property
    def reason(self) -> str:
        """A few words on the verdict."""
        return self.best.reason

    def __repr__(self) -> str:
        guide = self.settings.guide.replace("_", "-")
        return (
            f"{guide} guide, ELBO {self.elbo:.2f} (highest of {len(self.fits)}): "
            f"{self.status} ({self.reason})"
        )

    def _summary(self) -> dict[str, object]:
        return {
            "guide": self.settings.guide,
            "status": f"{self.status} ({self.reason})",
            "ELBO": f"{self.elbo:.2f} nats",
            "restarts": len(self.fits),
            "variables": ", ".join(variable.name for variable in self.model.free_RVs),
            "settings": self.settings,
        }

    def sample(self, draws: int = 1000) -> dict[str, np.ndarray]:
        """Draws of every free variable and deterministic, ``(draw, *shape)`` each.

        Variables are on their own scale, bounded ones within their bounds. The same draws come
        back whoever asks for them; the first of many are those of few.
        """
        return self._draws(draws)[0]

    def to_datatree(self, draws: int = 1000) -> xr.DataTree:
        """Draws as ArviZ takes them.

        Parameters
        ----------
        draws
            How many, in one chain.

        Returns
        -------
        xr.DataTree
            ``posterior``; ``log_likelihood`` of each observed variable; ``sample_stats`` with the
            log-densities of model and guide, ``log_p`` and ``log_q``, for importance weights;
            ``observed_data``; ``constant_data``; and ``fit``, the ELBO on the way, nats.
        """
        posterior, log_likelihood, log_p, log_q = self._draws(draws)
        groups = {
            "posterior": {name: array[None] for name, array in posterior.items()},
            "log_likelihood": {name: array[None] for name, array in log_likelihood.items()},
            "sample_stats": {"log_p": log_p[None], "log_q": log_q[None]},
        }
        attrs = {"posterior": {"draws_of": self._draws_of()}}
        tree = build_datatree(self.model, groups, attrs)
        tree["fit"] = xr.DataTree(self._history())
        return tree

    def predict(self, x: np.ndarray, draws: int = 1000) -> Predictive:
        """Prediction at new inputs, ``(observation, feature)``: class probabilities or a density.

        Parameters
        ----------
        draws
            Draws of the weights that it is a mean over.

        Raises
        ------
        ValueError
            If the model is not one of this package's, whose inputs are known, or `x` does not
            fit it.
        """
        predictor, data = self.predictor, model_values(self.model)
        draws = check_whole(draws, "draws")
        x = checked_inputs(x, data)
        with running_on(self.device):
            return predictor.predict([self.best], [1.0], data, x, draws)

    def predict_proba(self, x: np.ndarray, draws: int = 1000) -> np.ndarray:
        """Class probabilities at new inputs, ``(observation, class)``: means over draws.

        Raises
        ------
        ValueError
            As `predict`, or if the model is not of classes.
        """
        found = self.predict(x, draws)
        if not isinstance(found, ClassProbabilities):
            raise ValueError("`predict_proba` must have a model of classes: see `predict`.")
        return np.asarray(found.mean, np.float64)

    @cached_property
    def predictor(self) -> Predictor:
        """What predicts from draws of the guide; a ValueError for a model of someone else."""
        likelihood = likelihood_of(self.model)
        if likelihood is None:
            raise ValueError(
                "`predict` must have a model of this package, whose inputs it knows. For another, "
                "set its data and call pm.sample_posterior_predictive(approx.to_datatree())."
            )
        return Predictor(self.model, likelihood, self.settings)

    def _draws(self, draws: int):
        """Named variables, log-likelihoods by variable, and both log-densities of draws."""
        draws = check_whole(draws, "draws")
        program, fit = self.program, self.best
        program.flat.check_labels(model_values(self.model))
        names = program.guide.constrained_shapes
        with running_on(self.device), precision(program.dtype):
            constrained = {n: jnp.asarray(fit.constrained[n], program.dtype) for n in names}
            data = [jnp.asarray(v) for v in model_values(self.model).values()]
            flat, read = self._compiled
            found = jax.device_get(read(constrained, draw_key(fit), jnp.arange(draws), data))
        drawn, posterior, *others = found
        names = [name for name in flat.posterior if name not in posterior]
        posterior |= computed_by_pytensor(flat, names, drawn, model_values(self.model))
        return {name: posterior[name] for name in flat.posterior}, *others

    @cached_property
    def _compiled(self) -> tuple[FlatModel, Callable]:
        """Everything that JAX reads off draws, as one compiled function of their numbers."""
        guide, dtype = self.program.guide, self.program.dtype
        # Not the program's own, which may have rows that do not count.
        flat = flatten_model(self.model, n_observations(self.model))
        vector, data = flat_vector(flat), list(flat.data.values())
        shapes = guide.constrained_shapes.items()
        constrained = {n: pt.tensor(n, dtype="float64", shape=shape) for n, shape in shapes}
        posterior = {name: flat.posterior[name] for name in names_in_jax(flat, dtype)}
        groups = [posterior, flat.log_likelihoods]
        terms = [flat.log_prior, *(g.sum() for g in flat.log_likelihoods.values())]
        log_p = sum([*terms, *flat.potentials.values()])
        # A point has no density.
        log_q = pt.constant(np.nan) if guide.is_point else guide.log_density(constrained, vector)
        graphs = [graph for group in groups for graph in group.values()]
        with precision(dtype):
            inputs = [vector, *constrained.values(), *data]
            read = jax_function(inputs, [*flat.at(vector, [*graphs, log_p]), log_q])

        def of_one(parameters, key, i, values):
            drawn = draw_from(guide, parameters, key, i, dtype)
            *arrays, log_p, log_q = read(drawn, *parameters.values(), *values)
            found = iter(arrays)
            named = [{name: next(found) for name in group} for group in groups]
            return drawn, *named, log_p, log_q

        return flat, jax.jit(jax.vmap(of_one, in_axes=(None, None, 0, None)))

    def _history(self) -> xr.Dataset:
        """ELBO histories; a restart that stopped early ends in not-a-number."""
        longest = max((fit.history.step for fit in self.fits), key=len)
        elbo = np.full((len(self.fits), len(longest)), np.nan)
        for row, fit in zip(elbo, self.fits, strict=True):
            row[: len(fit.history.elbo)] = fit.history.elbo
        return xr.Dataset(
            {"elbo": (("restart", "window"), elbo), "step": ("window", longest)},
            {"restart": range(len(self.fits))},
            {"status": [fit.status for fit in self.fits]},
        )

    def _draws_of(self) -> str:
        guide = self.settings.guide.replace("_", "-")
        return f"the {guide} guide of restart {self.best.replica}, highest ELBO of {len(self.fits)}"


DTYPES = ("float32", "float64")

PLACES = {name: name for name in Inference.model_fields} | {"seed": "random_seed"}
"""Arguments of `fit` by the fields of the settings that they are."""

ARGUMENTS = {*PLACES.values(), "progress", "dtype", "device"}

ELSEWHERE = {
    "draws": "it is an argument of `sample`, `predict` and `to_datatree` of what `pb.fit` returns.",
    "chains": "`restarts` are independent fits.",
    "cores": "all restarts run in one program, on all cores.",
}
"""What stands in the place of arguments that `fit` does not have."""


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
) -> Approximation:
    """Variational approximation of the posterior of any PyMC model with continuous variables.

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
        Decides initial values, noise, minibatches and draws.
    guide
        ``mean_field``, ``low_rank`` or ``full_rank`` normals on the unconstrained variables, or a
        point: ``map``, ``maximum_likelihood``.
    learning_rate
        Adam's, at its highest.
    progress
        Whether to show steps, time left and the ELBO.
    dtype
        ``float32`` or ``float64``; by default the first for models of this package and the
        second for others, whose matrices may be nearly singular.
    device
        What it runs on, and what is computed of it later: ``cpu``, ``gpu`` (the first that JAX
        finds), or a GPU where there is one.
    **settings
        Further fields of `pmbnn.Inference`: ``estimator``, ``batch``, ``kl_weight``, …

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
    Kucukelbir et al. (2017), Automatic Differentiation Variational Inference.

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
    given = {"steps": steps, "restarts": restarts, "seed": random_seed, "guide": guide}
    given |= {"learning_rate": learning_rate, **settings}
    chosen = validated(Inference, given, PLACES, "pb.fit")
    dtype = chosen_dtype(model, dtype)
    place = device_here(device)
    with running_on(place), shown(progress):
        program, fits = fit_model(model, chosen, dtype=dtype)
    if all(found.failed for found in fits):
        reason = _why_not_finite(program, model, fits)
        if reason is not None:
            raise ValueError(f"`model` cannot be fitted: {reason}.")
        raise ValueError(f"every restart diverged: {fits[0].reason}. Lower `learning_rate`.")
    return Approximation(model, chosen, program, tuple(fits), place)


def chosen_dtype(model: pm.Model, dtype: str | None) -> str:
    """Precision that a model is fitted or sampled in; that of its kind unless given."""
    if dtype is None:
        return "float64" if likelihood_of(model) is None else "float32"
    if dtype not in DTYPES:
        raise must_be_one_of("dtype", DTYPES, dtype)
    return dtype


def _why_not_finite(program: Program, model: pm.Model, fits: Sequence[Fit]) -> str | None:
    """What of the log-density is not finite at draws of the guides as they start."""
    flat, settings, points = flatten_model(model, n_observations(model)), program.settings, []
    for found in fits:
        rng = np.random.default_rng(found.keys.initial)
        means = initial_means(flat.layout, settings, rng)
        spread = settings.initial_scale * rng.standard_normal((START_DRAWS, means.size))
        points += list(means + spread)
    # The engine of PyMC has one precision only.
    dtype = getattr(program, "dtype", "float64")
    return why_not_finite(flat, model_values(model), points, dtype)
