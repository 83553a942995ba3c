"""The posterior of a model: a fitted guide, or draws of a sampler."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import xarray as xr

from pmbnn.core.display import Summarised
from pmbnn.core.errors import check_whole
from pmbnn.core.machine import Device, current_device, running_on
from pmbnn.inference.batches import model_values, shared_variables
from pmbnn.inference.convergence import final_mean
from pmbnn.inference.flat import FlatModel, flat_vector, flatten_model, n_observations
from pmbnn.inference.samplers.chains import Chains, Convergence, Evidence, Samples
from pmbnn.inference.samplers.settings import Sampling
from pmbnn.inference.settings import Inference
from pmbnn.inference.unsupported import computed_by_pytensor, names_in_jax
from pmbnn.inference.xla.compile import jax_function, precision
from pmbnn.models.build import OBSERVED, NetworkParts, likelihood_of
from pmbnn.prediction.class_probabilities import ClassProbabilities, Predictive
from pmbnn.prediction.datatree import build_datatree
from pmbnn.prediction.draws import (
    DrawSource,
    at_draws,
    draws_in_memory,
    first_draws,
    log_density_of_mixture,
    spread_numbers,
)
from pmbnn.prediction.leave_one_out import pareto_k
from pmbnn.prediction.posterior_file import read_fields, save
from pmbnn.prediction.predictor import NetworkModel, Predictor, checked_inputs

DRAWS = 1000
"""Draws of a guide unless another number is asked for."""

SHAPES = 8
"""Networks of different structure whose predictors a process keeps."""


@dataclass(frozen=True, eq=False, repr=False)
class Posterior(Summarised):
    """The posterior of a model: a variational approximation, or draws of chains.

    `fit` and `sample` return one; so do the attribute `posterior_` of estimators, the attribute
    `posterior` of a stored cell, and `load`. Draws of a guide are draws of an approximation.

    Attributes
    ----------
    origin
        The model as it was given, or the network that it is built from.
    settings
        How the guide was fitted, or how the chains moved.
    sources
        Where draws come from: the guide of each restart that did not diverge, or the draws of
        each chain, by number.
    weights
        Weight of each source in predictions, by number; their sum is 1.
    best
        Number of the source that is taken where only one can be: the restart of highest ELBO.
    status
        Verdict: ``converged``, ``not_converged`` or ``improper`` of a guide; ``converged``,
        ``undecided`` or ``diverged`` of chains.
    reason
        A few words on the verdict.
    draws_of
        Description of the distribution that the draws come from.
    n_draws
        Default number of draws of each source.
    dtype
        Precision of the fit, or of the chains, and of predictions.
    device
        Device that draws and predictions are computed on.
    history
        ELBO of each restart during the fit, ``(restart, window)``, nats: the negative losses. None
        of chains.
    samples
        The chains, with their statistics; None of a guide.
    trace
        Draws as an ArviZ tree, where they are stored.
    """

    origin: pm.Model | NetworkModel
    settings: Inference | Sampling
    sources: Mapping[int, DrawSource]
    weights: Mapping[int, float]
    best: int
    status: str
    reason: str
    draws_of: str
    n_draws: int = DRAWS
    dtype: str = "float32"
    device: Device = field(default_factory=current_device)
    history: xr.Dataset | None = None
    samples: Samples | None = None
    trace: xr.DataTree | None = None

    def __post_init__(self) -> None:
        if not self._is_network and "_fitted_data" not in self.__dict__:
            # Without a copy: ``pm.set_data`` puts other arrays in their place.
            variables = shared_variables(self.origin)
            self.__dict__["_fitted_data"] = [(v, v.get_value(borrow=True)) for v in variables]

    # Model and verdict

    @cached_property
    def model(self) -> pm.Model:
        """The model with its training rows; of a stored cell they are loaded for it.

        Raises
        ------
        DataError
            If the rows must be loaded and are not available, or have changed.
        """
        return self.origin.model if isinstance(self.origin, NetworkModel) else self.origin

    @property
    def coords(self) -> dict[str, tuple]:
        """Labels of the dims of the model's variables, by the name of the dim."""
        coords = self._graph_model.coords.items()
        return {dim: labels for dim, labels in coords if labels is not None}

    @property
    def elbo(self) -> float:
        """Mean ELBO of the best restart over the last tenth of its steps, in nats.

        Of a model that is no network, it is the ELBO at the end; of a Laplace approximation, its
        logarithm of the evidence, which is no bound. Not a number for chains.
        """
        if self.history is None:
            return float("nan")
        if "elbo_at_end" in self.history:
            return float(self.history["elbo_at_end"].sel(restart=self.best))
        elbo = self.history["elbo"].sel(restart=self.best).values
        return final_mean(elbo[~np.isnan(elbo)])

    @property
    def chains(self) -> Chains | None:
        """Draws of the unconstrained vector and their statistics; None of a guide."""
        return None if self.samples is None else self.samples.chains

    @property
    def convergence(self) -> Convergence | None:
        """R-hat of what was compared between chains; None of a guide, or if too many broke."""
        return None if self.samples is None else self.samples.convergence

    @property
    def log_evidence(self) -> Evidence | None:
        """Logarithm of the evidence with its error, in nats; None of other engines than SMC."""
        return None if self.samples is None else self.samples.log_evidence

    @cached_property
    def pareto_k(self) -> float:
        """Pareto k-hat of the importance ratios of model and guide: above 0.7 the guide is far off.

        Not a number for chains, for a guide without a density, and for a Laplace approximation,
        whose draws predict by another network.

        References
        ----------
        Yao et al. (2018), Yes, but did it work? Evaluating variational inference.
        """
        if self._is_linearised:
            return float("nan")
        self.check_data("pareto_k")
        values = self._values(None)
        log_q = self._log_guide(values)
        if np.isnan(log_q).all():
            return float("nan")
        return pareto_k((self._read(values)["log_p"] - log_q)[0])

    def __repr__(self) -> str:
        evidence = "" if self.log_evidence is None else f", log evidence {self.log_evidence}"
        return f"{self._described[0]}: {self.status} ({self.reason}){evidence}"

    def _summary(self) -> dict[str, object]:
        rows = self._described[1]
        if self.log_evidence is not None:
            rows["log evidence"] = str(self.log_evidence)
        return rows | {
            "status": f"{self.status} ({self.reason})",
            "variables": ", ".join(variable.name for variable in self._graph_model.free_RVs),
            "settings": self.settings,
        }

    @property
    def _described(self) -> tuple[str, dict[str, object]]:
        """One phrase on the guide or the chains, and the same as rows of a table."""
        if self.chains is None:
            guide, restarts, elbo = self.settings.guide, self.settings.restarts, f"{self.elbo:.2f}"
            name = "log evidence" if guide == "laplace" else self.settings.objective
            phrase = f"{guide.replace('_', '-')} guide, {name} {elbo} (highest of {restarts})"
            return phrase, {"guide": guide, name: f"{elbo} nats", "restarts": restarts}
        engine, (chains, draws, _) = self.settings.engine, self.chains.values.shape
        phrase = f"{chains} chains of {draws} draws by {engine.upper()}"
        return phrase, {"engine": engine, "chains": chains, "draws": draws}

    # Draws

    def sample(self, draws: int | None = None) -> dict[str, np.ndarray]:
        """Draws of every free variable and deterministic, ``(draw, *shape)`` each.

        Variables are on their own scale, bounded ones within their bounds. Every call returns the
        same draws, and a smaller number of draws of a guide is the start of a larger one. After
        ``pm.set_data``, deterministics are of the new data, at draws given the former.

        Parameters
        ----------
        draws
            Number of draws. The default is `n_draws` of a guide, and all draws of chains, one chain
            after the other; of chains at most this number, evenly spread, is returned.

        Raises
        ------
        ValueError
            If too many chains broke; `to_datatree` has their draws. If a shared variable that is no
            ``pm.Data`` was changed since the fit.
        """
        self._check_not_broken("sample")
        self.check_data("sample", with_data=False)
        posterior = self._read(self._values(draws, merged=True))["posterior"]
        return {name: array[0] for name, array in posterior.items()}

    def log_joint(self, draws: int | None = None) -> np.ndarray:
        """Log joint density of parameters and observations at the draws of `sample`, ``(draw,)``.

        In nats; a density of the unconstrained variables. A ValueError if too many chains broke, or
        if data of the model were changed since the fit.
        """
        self._check_not_broken("log_joint")
        self.check_data("log_joint")
        return self._read(self._values(draws, merged=True))["log_p"][0]

    def to_datatree(self, draws: int | None = None) -> xr.DataTree:
        """Draws as an ArviZ tree.

        Parameters
        ----------
        draws
            Largest number of draws of each chain; draws of a guide are one chain.

        Returns
        -------
        xr.DataTree
            ``posterior``, with status and reason among its attributes; ``log_likelihood`` of each
            observed variable; ``sample_stats``; ``observed_data``; ``constant_data``.

            Of a Laplace approximation, ``log_likelihood`` is that of the network made linear at the
            mode, by which it predicts, and there are no statistics. The statistics of another guide
            are the log-densities of model and guide, ``log_p`` and ``log_q``, for importance
            weights. The group ``fit`` of a guide has the ELBO during the fit, nats. Those of chains
            are ``lp``, the log-density of the unconstrained variables, ``diverging``, and further
            ones of the engine (MCLMC: ``energy_error``, the root mean square of a step's on the way
            to a draw, nats; ``n_steps`` and their ``step_size``; with a ``largest_error``,
            ``turned``, the share of these steps at which the chain turned round; NUTS: what
            ``pm.sample`` has; SMC: of the run that a draw comes from ``log_evidence``, nats,
            ``n_temperatures``, and ``acceptance_rate`` at the last); ``log_evidence`` with
            ``log_evidence_error`` are attributes of the posterior of SMC.

            Of a stored cell it is the trace that was stored, unless `draws` is given.

        Raises
        ------
        ValueError
            If data of the model were changed since the fit.
        """
        self.check_data("to_datatree")
        return (self._tree if draws is None else self._datatree(draws)).copy()

    @cached_property
    def _tree(self) -> xr.DataTree:
        return self._datatree(None) if self.trace is None else self.trace

    def _datatree(self, draws: int | None) -> xr.DataTree:
        values = self._values(draws)
        arrays = self._read(values)
        attrs = {"status": self.status, "reason": self.reason, "draws_of": self.draws_of}
        if self._is_linearised:
            arrays["log_likelihood"], statistics = self._log_likelihood_at_tangents(draws), {}
        elif self.chains is None:
            statistics = {"log_p": arrays["log_p"], "log_q": self._log_guide(values)}
        else:
            numbers = spread_numbers(self.chains.draws, draws)
            statistics = {n: a[:, numbers] for n, a in self.chains.statistics.items()}
        if self.log_evidence is not None:
            attrs["log_evidence"], attrs["log_evidence_error"] = self.log_evidence
        groups = {name: arrays[name] for name in ("posterior", "log_likelihood")}
        groups["sample_stats"] = statistics
        tree = build_datatree(self.model, groups, {"posterior": attrs})
        if self.history is not None:
            tree["fit"] = xr.DataTree(self.history)
        return tree

    @property
    def _is_linearised(self) -> bool:
        return any(source.tangent_at is not None for source in self.sources.values())

    def _log_likelihood_at_tangents(self, draws: int | None) -> dict[str, np.ndarray]:
        """Log-likelihood of all rows at the draws of `to_datatree`, by linear networks."""
        draws, data = self.n_draws if draws is None else draws, model_values(self.model)
        numbers = source_of_draws(self.sources, self.weights, self.best, draws)
        with running_on(self.device):
            by_source = {
                i: self.predictor.row_log_likelihood(self.sources[i], data, draws)
                for i in np.unique(numbers)
            }
        return {OBSERVED: np.stack([by_source[i][k] for k, i in enumerate(numbers)])[None]}

    def _check_not_broken(self, method: str) -> None:
        """Raise ValueError if too many chains broke: their draws are not of the posterior."""
        if self.chains is not None and self.chains.broken.any():
            raise ValueError(f"`{method}` must have draws of the posterior, but {self.reason}.")

    def check_data(self, method: str, with_data: bool = True) -> None:
        """Raise ValueError if data of a given model were changed: draws are given the former.

        Data are ``pm.Data``, unless not `with_data`, and other shared variables.
        """
        if self._is_network:
            return
        of_model = set(self.origin.data_vars)
        for number, (variable, fitted) in enumerate(self._fitted_data, 1):
            now = variable.get_value(borrow=True)
            if fitted is now or (variable in of_model and not with_data):
                continue
            if not np.array_equal(fitted, now, equal_nan=True):
                name = variable.name or f"shared variable {number}"
                raise ValueError(
                    f"`{method}` must have the data that the draws are given, but `{name}` of the "
                    "model was changed since: set it back first."
                )

    def _values(self, draws: int | None, merged: bool = False) -> np.ndarray:
        """Draws of the flat vector, ``(chain, draw, size)``: one chain of a guide, or `merged`."""
        if draws is not None:
            check_whole(draws, "draws")
        if self.chains is not None:
            values = self.chains.merged[None] if merged else self.chains.values
            return values[:, spread_numbers(values.shape[1], draws)]
        draws = self.n_draws if draws is None else draws
        numbers = source_of_draws(self.sources, self.weights, self.best, draws)
        with running_on(self.device):
            drawn = {i: first_draws(self.sources[i], draws, self.dtype) for i in np.unique(numbers)}
        return np.stack([drawn[i][k] for k, i in enumerate(numbers)])[None]

    def _log_guide(self, values: np.ndarray) -> np.ndarray:
        """Log-density of the guides at draws, ``(chain, draw)``; not a number if there is none."""
        sources, weights = self.sources.values(), self.weights.values()
        with running_on(self.device):
            return log_density_of_mixture(sources, weights, values[0])[None]

    def _read(self, values: np.ndarray) -> dict:
        """Variables and densities of the model at draws of the flat vector ``(chain, draw, size)``.

        Returns
        -------
        dict
            ``posterior`` and ``log_likelihood`` by name, and ``log_p``: ``(chain, draw, ...)``.
        """
        flat, read = self._compiled
        flat.check_labels(model_values(self.model))
        merged = values.reshape(-1, values.shape[-1])
        with running_on(self.device), precision(self.dtype):
            data = [jnp.asarray(v) for v in model_values(self.model).values()]
            typed, at_once = np.asarray(merged, self.dtype), draws_in_memory(flat.size)
            posterior, log_likelihood, log_p = at_draws(read, typed, at_once, data)
        others = [name for name in flat.posterior if name not in posterior]
        posterior |= computed_by_pytensor(flat, others, merged, model_values(self.model))

        def by_chain(array: np.ndarray) -> np.ndarray:
            return array.reshape(*values.shape[:2], *array.shape[1:])

        return {
            "posterior": {name: by_chain(posterior[name]) for name in flat.posterior},
            "log_likelihood": {n: by_chain(log_likelihood[n]) for n in flat.log_likelihoods},
            "log_p": by_chain(log_p),
        }

    @cached_property
    def _compiled(self) -> tuple[FlatModel, Callable]:
        """The graphs of the model, and all that JAX computes of draws as one compiled function."""
        # Not the fit's own, which may have rows that do not count.
        flat = flatten_model(self.model, n_observations(self.model))
        vector, data = flat_vector(flat), list(flat.data.values())
        posterior = {name: flat.posterior[name] for name in names_in_jax(flat, self.dtype)}
        groups = [posterior, flat.log_likelihoods]
        terms = [flat.log_prior, *(g.sum() for g in flat.log_likelihoods.values())]
        log_p = sum([*terms, *flat.potentials.values()])
        graphs = [graph for group in groups for graph in group.values()]
        with running_on(self.device), precision(self.dtype):
            read = jax_function([vector, *data], flat.at(vector, [*graphs, log_p]))

        def one_draw(vector, data):
            *outputs, log_p = read(vector, *data)
            arrays = iter(outputs)
            return *({name: next(arrays) for name in group} for group in groups), log_p

        return flat, jax.jit(jax.vmap(one_draw, (0, None)))

    # Predictions

    def predict(self, x: np.ndarray, draws: int | None = None) -> Predictive:
        """Prediction at new inputs, ``(observation, feature)``: class probabilities or a density.

        Inputs and predicted numbers are in their own units where a data set standardised them.

        Parameters
        ----------
        draws
            Draws of each guide, or of each chain at most, that are averaged.

        Raises
        ------
        ValueError
            If the model is not one of this package, whose inputs are known, if `x` does not fit
            it or is not finite, or if too many chains broke.
        """
        predictor = self.predictor
        self._check_not_broken("predict")
        draws = self.n_draws if draws is None else check_whole(draws, "draws")
        x, sources = self.standardised(x), list(self.sources.values())
        with running_on(self.device):
            weights = [*self.weights.values()]
            predictive = predictor.predict(sources, weights, self.data, x, draws)
        if not self._is_network:
            return predictive
        return predictive.in_units_of(self.origin.target_standardisation)

    def predict_proba(self, x: np.ndarray, draws: int | None = None) -> np.ndarray:
        """Class probabilities at new inputs, ``(observation, class)``: means over draws.

        Raises
        ------
        ValueError
            As `predict`, or if the model is not of classes.
        """
        predictive = self.predict(x, draws)
        if not isinstance(predictive, ClassProbabilities):
            raise ValueError("`predict_proba` must have a model of classes: see `predict`.")
        return np.asarray(predictive.mean, np.float64)

    def single_draws(
        self, x: np.ndarray, draws: int | None = None
    ) -> list[tuple[float, dict[str, np.ndarray]]]:
        """Parameters of the likelihood at new inputs, at single draws of each source.

        Each comes with the weight of its source, if that is not zero; ``(draw, observation, ...)``
        by name, for targets in the model's units. A ValueError if too many chains broke.
        """
        self._check_not_broken("single_draws")
        draws = self.n_draws if draws is None else check_whole(draws, "draws")
        x, predictor, data = self.standardised(x), self.predictor, self.data
        with running_on(self.device):
            return [
                (weight, predictor.single_draws(self.sources[i], data, x, draws))
                for i, weight in self.weights.items()
                if weight > 0
            ]

    def standardised(self, x: np.ndarray) -> np.ndarray:
        """Inputs ``(observation, feature)`` as the model takes them; a ValueError for others."""
        x = checked_inputs(x, self.data)
        return self.origin.standardisation(x) if self._is_network else x

    @property
    def data(self) -> dict[str, np.ndarray]:
        """Values of the data variables of the model that predicts, by name."""
        return self.origin.parts.data if self._is_network else model_values(self.origin)

    @cached_property
    def predictor(self) -> Predictor:
        """The predictor of the model; a ValueError for a model that is not of this package."""
        if self._is_network:
            return predictor_of(self.origin.parts, self.device, self.dtype)
        likelihood = likelihood_of(self.origin)
        if likelihood is None:
            raise ValueError(
                "`predict` must have a model of this package, whose inputs it knows. For another, "
                "call `tree = posterior.to_datatree()`, set its data, and call "
                "pm.sample_posterior_predictive(tree)."
            )
        with running_on(self.device):
            return Predictor(self.origin, likelihood, self.dtype)

    @property
    def _is_network(self) -> bool:
        return isinstance(self.origin, NetworkModel)

    @property
    def _graph_model(self) -> pm.Model:
        """A model with the same variables, whatever its rows."""
        return self.origin.graph_model if self._is_network else self.origin

    # Files

    def save(self, path: str | Path) -> None:
        """Write the posterior as a netCDF file, which `pmbnn.load` and ArviZ read.

        The file holds settings and arrays; nothing in it is code. It appears whole or not at all.

        Raises
        ------
        ValueError
            If the model is made of a class that is not registered: see `pmbnn.register`; or if its
            data were changed since the fit.
        """
        self.check_data("save")
        save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, model: pm.Model | None = None) -> "Posterior":
        """Read what `save` wrote; see `pmbnn.load`."""
        return load(path, model)

    def __getstate__(self) -> dict[str, object]:
        """The fields but the device: another process compiles programs on its own."""
        state = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "device"}
        # The model may have other data by now.
        return state | {n: v for n, v in self.__dict__.items() if n == "_fitted_data"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, device=current_device())
        self.__post_init__()


_PREDICTORS: dict[tuple, Predictor] = {}
"""Predictors of networks by the structure of their parts, device and precision, the last ones."""


def predictor_of(parts: NetworkParts, device: Device, dtype: str) -> Predictor:
    """The predictor of a network: one for all networks of its structure in a process."""
    key = parts.structure, device, dtype
    predictor = _PREDICTORS.get(key)
    if predictor is None:
        with running_on(device):
            predictor = _PREDICTORS[key] = Predictor(parts.build(), parts.likelihood, dtype)
        for oldest in [*_PREDICTORS][:-SHAPES]:
            _PREDICTORS.pop(oldest, None)
    return predictor


def source_of_draws(
    sources: Mapping[int, DrawSource], weights: Mapping[int, float], best: int, draws: int
) -> np.ndarray:
    """Number of the source that each draw of a mixture comes from, ``(draw,)``.

    Sources are drawn by their weights; draw ``k`` is the ``k``-th of its source. A smaller number
    of draws is the start of a larger one.
    """
    used = [i for i, weight in weights.items() if weight > 0]
    rng = np.random.default_rng([*sources[best].draw_key, 2])
    return rng.choice(used, size=draws, p=[weights[i] for i in used])


# Files


def load(path: str | Path, model: pm.Model | None = None) -> Posterior:
    """Read a posterior that `Posterior.save` wrote.

    Its draws are the same as before, to the last bit on one machine.

    Parameters
    ----------
    path
        The file.
    model
        The model, if it is not one of this package: files hold no code. Its log-density at a few
        draws is compared with the stored one. A model of this package is built from the file unless
        one is given, which must have the same parts and training rows.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged, of another format, or no file of a posterior; if it needs a model,
        or a user-defined class that is not registered as it was; if the model is another one: it
        has other free variables, another prior or likelihood, or other data.
    TypeError
        If `model` is no model.

    Examples
    --------
    >>> pb.fit(model).save("posterior.nc")  # doctest: +SKIP
    >>> pb.load("posterior.nc", model).sample(100)  # doctest: +SKIP
    """
    return read(Path(path), model)[0]


def read(path: Path, model: pm.Model | None = None) -> tuple[Posterior, xr.Dataset | None]:
    """Read a posterior as `load` does, and the arrays that were written beside it."""
    fields_of_posterior, further = read_fields(path, model)
    return Posterior(**fields_of_posterior), further
