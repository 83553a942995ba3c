"""Any PyMC model sampled from Python: a reference to hold approximations against."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import xarray as xr

from pmbnn.inference.batches import model_values
from pmbnn.inference.device import Device, current_device, device_here, running_on
from pmbnn.inference.engines import n_observations
from pmbnn.inference.flat import flat_vector, flatten_model, value_shapes
from pmbnn.inference.log_density import build_log_density
from pmbnn.inference.samplers.chains import Chains, Evidence, Samples
from pmbnn.inference.samplers.convergence import Convergence
from pmbnn.inference.samplers.run import Functions, build_sampler, sample_posterior
from pmbnn.inference.samplers.settings import SAMPLING, Sampling
from pmbnn.inference.samplers.starts import CANDIDATES
from pmbnn.inference.support import check_support
from pmbnn.inference.unsupported import computed_by_pytensor, names_in_jax, why_not_finite
from pmbnn.inference.xla.compile import jax_function, precision
from pmbnn.models.build import likelihood_of
from pmbnn.prediction.approximation import chosen_dtype
from pmbnn.prediction.class_probabilities import ClassProbabilities
from pmbnn.prediction.datatree import build_datatree
from pmbnn.prediction.predictive import Predictive
from pmbnn.prediction.predictor import checked_inputs
from pmbnn.prediction.progress import shown
from pmbnn.prediction.stored_draws import StoredDraws
from pmbnn.spec import validated
from pmbnn.spec.display import Summarised
from pmbnn.spec.errors import HABITS, check_arguments, must_be_one_of

INPUTS = 400
"""Training inputs at most at which predictions of the chains are compared."""

DRAWS_AT_ONCE = 256
"""Draws in memory at once while variables are read off them."""


@dataclass(frozen=True, eq=False, repr=False)
class Reference(Summarised):
    """Draws from the posterior of a PyMC model; `sample` makes one. Its text is one sentence.

    Attributes
    ----------
    model
        The model, as it was handed over.
    settings
        How its chains moved.
    samples
        The draws of the unconstrained vector, and what is to be thought of them.
    dtype
        Precision that they were drawn in.
    device
        That they were drawn on, where what is said of them is computed too.
    """

    model: pm.Model
    settings: Sampling
    samples: Samples
    dtype: str
    device: Device = field(default_factory=current_device)

    @property
    def status(self) -> str:
        """Verdict on the draws: ``converged``, ``undecided`` or ``diverged``."""
        return self.samples.status

    @property
    def reason(self) -> str:
        """A few words on the verdict, and whether a prior is improper."""
        return self.samples.reason

    @property
    def convergence(self) -> Convergence | None:
        """R-hat of what was compared between chains; None if some chain diverged."""
        return self.samples.convergence

    @property
    def log_evidence(self) -> Evidence | None:
        """Logarithm of the evidence with its error, in nats; None of other engines than SMC."""
        return self.samples.log_evidence

    def __repr__(self) -> str:
        chains, draws, _ = self.chains.values.shape
        start = f"{chains} chains of {draws} draws by {self.settings.engine.upper()}"
        evidence = "" if self.log_evidence is None else f", log evidence {self.log_evidence}"
        return f"{start}: {self.status} ({self.reason}){evidence}"

    def _summary(self) -> dict[str, object]:
        chains, draws, _ = self.chains.values.shape
        evidence = {} if self.log_evidence is None else {"log evidence": str(self.log_evidence)}
        return {
            "engine": self.settings.engine,
            "chains": chains,
            "draws": draws,
            "status": f"{self.status} ({self.reason})",
            **evidence,
            "variables": ", ".join(variable.name for variable in self.model.free_RVs),
            "settings": self.settings,
        }

    @property
    def chains(self) -> Chains:
        """Draws of the unconstrained vector and their statistics."""
        return self.samples.chains

    def sample(self) -> dict[str, np.ndarray]:
        """Draws of every free variable and deterministic, ``(chain, draw, *shape)`` each.

        Variables are on their own scale, bounded ones within their bounds.
        """
        return self._read["posterior"]

    def to_datatree(self) -> xr.DataTree:
        """Draws as ArviZ takes them.

        Returns
        -------
        xr.DataTree
            ``posterior``; ``log_likelihood`` of each observed variable; ``sample_stats`` with
            ``lp``, the log-density of the unconstrained variables, ``diverging``, and what else the
            engine knows (MCLMC: ``energy_error``, the root mean square of a step's on the way to a
            draw, nats; ``n_steps`` and their ``step_size``; NUTS: what ``pm.sample`` has; SMC: of
            the run that a draw comes from ``log_evidence``, nats, ``n_temperatures``, and
            ``acceptance_rate`` at the last); ``observed_data``; ``constant_data``.
            Status and reason are attributes of ``posterior``, and ``log_evidence`` with
            ``log_evidence_error`` of draws by SMC.
        """
        groups = self._read | {"sample_stats": self.chains.statistics}
        attrs = {"status": self.status, "reason": self.reason}
        attrs["draws_of"] = f"the posterior by {self.settings.engine.upper()}"
        if self.log_evidence is not None:
            attrs["log_evidence"], attrs["log_evidence_error"] = self.log_evidence
        return build_datatree(self.model, groups, {"posterior": attrs})

    def predict(self, x: np.ndarray) -> Predictive:
        """Prediction at new inputs, ``(observation, feature)``: class probabilities or a density.

        Raises
        ------
        ValueError
            If the model is not one of this package's, whose inputs are known, if `x` does not fit
            it, or if some chain diverged.
        """
        if self.chains.broken.any():
            raise ValueError(f"`predict` must have draws of the posterior, but {self.reason}.")
        predictor, data = self.predictor, model_values(self.model)
        x = checked_inputs(x, data)
        with running_on(self.device):
            return predictor.predict_from(data, merged(self.chains.values), x)

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        """Class probabilities at new inputs, ``(observation, class)``: means over draws.

        Raises
        ------
        ValueError
            As `predict`, or if the model is not of classes.
        """
        found = self.predict(x)
        if not isinstance(found, ClassProbabilities):
            raise ValueError("`predict_proba` must have a model of classes: see `predict`.")
        return np.asarray(found.mean, np.float64)

    @cached_property
    def predictor(self) -> StoredDraws:
        """What predicts from draws; a ValueError for a model of someone else."""
        likelihood = likelihood_of(self.model)
        if likelihood is None:
            raise ValueError(
                "`predict` must have a model of this package, whose inputs it knows. For another, "
                "set its data and call pm.sample_posterior_predictive(reference.to_datatree())."
            )
        return StoredDraws(self.model, likelihood)

    @cached_property
    def _read(self) -> dict[str, dict[str, np.ndarray]]:
        """Variables and log-likelihoods at all draws, by group and by name."""
        flat = flatten_model(self.model, n_observations(self.model))
        flat.check_labels(model_values(self.model))
        vector = flat_vector(flat)
        in_jax = {name: flat.posterior[name] for name in names_in_jax(flat, self.dtype)}
        groups = {"posterior": in_jax, "log_likelihood": flat.log_likelihoods}
        graphs = flat.at(vector, [g for group in groups.values() for g in group.values()])
        with running_on(self.device), precision(self.dtype):
            read = jax_function([vector, *flat.data.values()], graphs)
            data = [jnp.asarray(v) for v in model_values(self.model).values()]
            values = jnp.asarray(merged(self.chains.values), self.dtype)

            def of_all(values, data):
                return jax.lax.map(lambda v: read(v, *data), values, batch_size=DRAWS_AT_ONCE)

            arrays = iter(jax.device_get(jax.jit(of_all)(values, data)))
        found = {kind: {name: next(arrays) for name in group} for kind, group in groups.items()}
        others = [name for name in flat.posterior if name not in in_jax]
        drawn = merged(self.chains.values)
        by_pytensor = computed_by_pytensor(flat, others, drawn, model_values(self.model))
        every = found["posterior"] | by_pytensor
        found["posterior"] = {name: every[name] for name in flat.posterior}
        shape = self.chains.values.shape[:2]
        return {
            kind: {name: a.reshape(*shape, *a.shape[1:]) for name, a in group.items()}
            for kind, group in found.items()
        }


def sample(
    model: pm.Model,
    *,
    engine: str = "mclmc",
    random_seed: int = 0,
    progress: bool = True,
    dtype: str | None = None,
    device: str = "auto",
    **settings: object,
) -> Reference:
    """Draws from the posterior of any PyMC model with continuous variables.

    Chains of a sampler, by default of microcanonical Langevin Monte Carlo (MCLMC), through the
    log-density that fits use, all in one program. The No-U-Turn Sampler (NUTS) has no bias and
    takes longer; tempered sequential Monte Carlo (SMC) finds separate modes in their proportions,
    and the evidence. They go on until they agree on what is
    predicted: on the model's predictions at up to 400 training inputs if it is one of this package,
    on the free variables otherwise. Where they do not, the status is ``undecided``, whatever the
    prior; MCLMC does not agree where scales of variables are far apart, as under a flat prior on
    the weights of columns in different units: standardise them, or take NUTS.

    Parameters
    ----------
    model
        As `fit` takes it; for MCLMC with two unconstrained scalars at least, for SMC with priors
        whose quantile functions are known.
    engine
        Name of a sampler: ``mclmc``, ``nuts`` or ``smc``.
    random_seed
        Decides starts and moves: the same seed gives the same bits.
    progress
        Whether to show draws and agreement.
    dtype
        ``float32`` or ``float64``; by default the first for models of this package and the
        second for others.
    device
        As `fit` takes it.
    **settings
        Further fields of the engine's settings, as of `Mclmc`, `Nuts` and `Smc` in
        `pmbnn.inference.samplers`:
        ``chains``, ``draws``, ``tuning``, ``thin``, …

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
    if engine not in SAMPLING:
        raise must_be_one_of("engine", SAMPLING, engine)
    chosen = _chosen(engine, random_seed, settings)
    dtype = chosen_dtype(model, dtype)
    place = device_here(device)
    with running_on(place), shown(progress):
        density = build_log_density(model, n_observations(model), dtype)
        check_support(model, value_shapes(model))
        sampler = build_sampler(density, chosen)
        samples = sample_posterior(
            sampler,
            model_values(model),
            compared_functions(model),
            identity=f"{engine}/{chosen.seed}",
        )
        if samples.chains.broken.all():
            reason = _why_not_finite(model, chosen, dtype)
            if reason is not None:
                raise ValueError(f"`model` cannot be sampled: {reason}.")
    return Reference(model, chosen, samples, dtype, place)


def _chosen(engine: str, random_seed: int, further: Mapping[str, object]) -> Sampling:
    """Settings of a sampler from the arguments of `sample`."""
    fields = SAMPLING[engine].model_fields
    places = {name: name for name in fields} | {"seed": "random_seed"}
    elsewhere = {"cores": "all chains run in one program, on all cores."}
    for name in further:
        found = HABITS.get(name, name)
        others = [other for other, cls in sorted(SAMPLING.items()) if found in cls.model_fields]
        if others:
            elsewhere[name] = f"`{found}` is one of {' and '.join(others)}, not of {engine}."
    arguments = {*places.values(), "progress", "dtype", "device"}
    check_arguments(further, arguments, "pb.sample", **elsewhere)
    return validated(SAMPLING[engine], {"seed": random_seed, **further}, places, "pb.sample")


def _why_not_finite(model: pm.Model, settings: Sampling, dtype: str) -> str | None:
    """What of the log-density is finite at none of some points, as far apart as chains start."""
    flat, spread = flatten_model(model, n_observations(model)), getattr(settings, "spread", 1.0)
    points = np.random.default_rng(settings.seed).standard_normal((CANDIDATES, flat.size))
    return why_not_finite(flat, model_values(model), spread * points, dtype, fewest=CANDIDATES)


def compared_functions(model: pm.Model) -> Functions:
    """What chains of a model must agree on, as a function of draws of its flat vector.

    What its likelihood says at up to `INPUTS` training inputs; the unconstrained variables of a
    model that is not one of this package.
    """
    likelihood = likelihood_of(model)
    if likelihood is None:
        return lambda values: values
    return functions_of(StoredDraws(model, likelihood), model_values(model))


def functions_of(
    predictor: StoredDraws, data: Mapping[str, np.ndarray], *further: np.ndarray
) -> Functions:
    """What a model's likelihood says at up to `INPUTS` of its inputs, of draws of the vector.

    And at as many of each of `further` arrays of inputs, ``(observation, feature)``.
    """
    x = np.concatenate([spread_rows(of) for of in (data["x"], *further)])

    def of(values: np.ndarray) -> np.ndarray:
        # A chain at a time: a large network's layers at all draws would fill the memory.
        return np.stack([_predicted(predictor, data, chain, x) for chain in values])

    return of


def _predicted(predictor: StoredDraws, data, values: np.ndarray, x: np.ndarray) -> np.ndarray:
    """What the likelihood names at draws, ``(draw, function)``; without the last of the classes."""
    found = predictor.parameters(data, values, x).values()
    # The last class has what the others leave.
    of_classes = predictor.likelihood.targets == "classes"
    arrays = [a[..., :-1] if a.ndim > 2 and of_classes else a for a in found]
    return np.concatenate([a.reshape(len(values), -1) for a in arrays], axis=1)


def spread_rows(x: np.ndarray, most: int = INPUTS) -> np.ndarray:
    """At most so many rows, evenly spread over all."""
    return x[np.unique(np.linspace(0, len(x) - 1, min(most, len(x))).round().astype(int))]


def merged(values: np.ndarray) -> np.ndarray:
    """Draws of all chains one after the other, ``(chain · draw, ...)``."""
    return values.reshape(-1, *values.shape[2:])
