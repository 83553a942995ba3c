"""The base of both estimators: their parameters as a cell, and its fit."""

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from pmbnn.core.errors import must, must_be_one_of
from pmbnn.core.machine import Device, current_device, device_here, running_on
from pmbnn.core.spec import Specification, Tune, named, plain, validated
from pmbnn.data.arrays import (
    Dataset,
    Rows,
    Standardisation,
    identity_standardisation,
    standardised_dataset,
)
from pmbnn.data.base import DEFAULT_LIKELIHOODS, DatasetSpec
from pmbnn.experiment.cells import ENGINES, Cell
from pmbnn.experiment.cost import is_large
from pmbnn.experiment.plan import group_key
from pmbnn.fitting.fit import fit_job
from pmbnn.fitting.programs import GroupPrograms
from pmbnn.fitting.sampling import sample_job
from pmbnn.inference.samplers.settings import Sampling
from pmbnn.inference.settings import Inference
from pmbnn.models.build import NetworkParts
from pmbnn.models.hyperpriors import HYPERPRIORS, Hyperprior
from pmbnn.models.likelihoods import LIKELIHOODS, Likelihood
from pmbnn.models.networks import NETWORKS, Dense, Network
from pmbnn.models.prior_base import Prior
from pmbnn.models.priors import PRIORS
from pmbnn.prediction.class_probabilities import Predictive
from pmbnn.prediction.conformal import conformal_quantile
from pmbnn.prediction.datatree import history_of
from pmbnn.prediction.draws import KeptDraws
from pmbnn.prediction.posterior import Posterior, read
from pmbnn.prediction.posterior_file import dataset_of, read_part, save, section_of
from pmbnn.prediction.predictor import NetworkModel
from pmbnn.prediction.progress import shown
from pmbnn.prediction.settings import Predict

# The posterior of an estimator: its cell fitted or sampled, by programs that fits share


SHAPES = 8
"""Models of different shape whose programs a process keeps."""

STEPS_OF_ROWS = 16
"""Numbers of rows between two powers of two that programs are compiled for: rows that a fit leaves
empty are a sixteenth at most, and the folds of a cross-validation share one program."""


class InMemoryData(DatasetSpec):
    """Shape of arrays in memory, which decides the compiled programs.

    ``observations`` is the number of rows, rounded up as `rounded_up` does.
    """

    kind: Literal["given"] = "given"
    observations: int
    features: int
    classes: int | None = None

    @property
    def rows(self) -> tuple[int, int]:
        """Numbers of training and test rows."""
        return self.observations, 0

    @property
    def n_features(self) -> int:
        """Number of input features."""
        return self.features

    @property
    def n_classes(self) -> int | None:
        """Number of classes; None where the targets are numbers."""
        return self.classes


def rounded_up(rows: int) -> int:
    """Number of rows that a program is compiled for."""
    step = max(1, 2 ** (rows.bit_length() - 1) // STEPS_OF_ROWS)
    return -(-rows // step) * step


class SharedPrograms(GroupPrograms):
    """Programs that fits of similar numbers of rows share."""

    def program(self, cell: Cell, rows: Rows, most: int | None = None):  # noqa: D102
        return super().program(cell, rows, None if cell.is_sampled else cell.dataset.observations)


@lru_cache(maxsize=SHAPES)
def _programs(group: str, width: int, device: Device) -> SharedPrograms:
    """Programs of a group on a device."""
    return SharedPrograms(group, width)


def programs_of(cell: Cell) -> SharedPrograms:
    """Compiled programs of a cell, shared by all cells of its shape in a process."""
    one_by_one = cell.is_sampled or is_large(cell)
    width = 1 if one_by_one else cell.inference.restarts
    return _programs(group_key(cell), width, current_device())


def fitted(cell: Cell, dataset: Dataset) -> Posterior:
    """The posterior of a cell given the training rows of a data set.

    Raises
    ------
    ValueError
        If every restart diverged. Chains that diverged have a posterior that says so, and that
        predicts nothing.
    """
    programs, datasets, rows = programs_of(cell), {cell.dataset: dataset}, dataset.training
    if cell.is_sampled:
        (inferred,) = sample_job([cell], datasets, programs)
    else:
        (inferred,) = fit_job([cell], datasets, programs, search_cell=cell)
    sources, weights, best = inferred.sources, inferred.weights, inferred.best
    if best is None:
        if not cell.is_sampled:
            raise ValueError(f"every restart diverged: {inferred.reason}.")
        sources, weights, best = {0: KeptDraws.spread(inferred.samples.chains.merged)}, {0: 1.0}, 0
    parts = (cell.network, cell.prior, inferred.hyperprior, cell.likelihood, rows.take([0]))
    maps = dataset.standardisation, dataset.target_standardisation
    return Posterior(
        origin=NetworkModel(NetworkParts(*parts), rows, *maps),
        settings=cell.inference,
        sources=sources,
        weights=weights,
        best=best,
        status=inferred.status,
        reason=inferred.reason,
        draws_of=inferred.draws_of,
        n_draws=cell.predict.draws,
        history=None if cell.is_sampled else history_of(inferred.fits),
        samples=inferred.samples,
    )


# Fitted estimators as netCDF files: those of their posteriors, with their parameters


def write_estimator(
    path: Path, estimator: BaseEstimator, posterior: Posterior, learned: Mapping[str, np.ndarray]
) -> None:
    """Write an estimator, its posterior, and its learned attributes."""
    parameters = {name: _written(v) for name, v in estimator.get_params(deep=False).items()}
    attrs = {
        "class": type(estimator).__name__,
        "parameters": json.dumps(parameters),
        "learned": json.dumps({name: array.dtype.kind for name, array in learned.items()}),
    }
    arrays = {name: _storable(array) for name, array in learned.items()}
    save(posterior, path, dataset_of(arrays).assign_attrs(attrs))


def read_estimator(
    path: Path, cls: type[BaseEstimator]
) -> tuple[dict[str, Any], Posterior, dict[str, np.ndarray]]:
    """Parameters of an estimator of a class, its posterior, and its learned attributes.

    Raises
    ------
    ValueError
        If the file does not hold such an estimator.
    """
    posterior, stored = read(path)
    content = "a posterior" if stored is None else f"a {stored.attrs.get('class')}"
    if content != f"a {cls.__name__}":
        raise ValueError(f"`{path}` must hold a {cls.__name__}, got {content}.")
    parameters = {name: _read(v) for name, v in json.loads(stored.attrs["parameters"]).items()}
    kinds = json.loads(stored.attrs["learned"])
    learned = {name: _learned(stored[name].values, kind) for name, kind in kinds.items()}
    return parameters, posterior, learned


SECTION = "section"
"""Key of a written specification with the section that it belongs to."""

TUNE = "tune"
"""Section of candidate values."""


def _written(value: object) -> Any:
    """A parameter as JSON has it; specifications with their section."""
    match value:
        case Specification():
            section = TUNE if isinstance(value, Tune) else section_of(value)
            return {SECTION: section, "settings": value.model_dump(mode="json")}
        case np.random.RandomState():
            raise ValueError("`random_state` must be a number or None to be saved.")
        case Mapping():
            return {key: _written(entry) for key, entry in value.items()}
    return plain(value)


def _read(value: Any) -> Any:
    """A parameter as `_written` wrote it; JSON has no tuples."""
    if isinstance(value, list):
        return tuple(value)
    if not isinstance(value, dict):
        return value
    if SECTION not in value:
        return {name: _read(entry) for name, entry in value.items()}
    section, settings = value[SECTION], value["settings"]
    return Tune(**settings) if section == TUNE else read_part(section, settings)


def _storable(array: np.ndarray) -> np.ndarray:
    """An array of a kind that netCDF has."""
    if array.dtype.kind == "b":
        return array.astype("i1")
    return array.astype(str) if array.dtype.kind == "O" else array


def _learned(array: np.ndarray, kind: str) -> np.ndarray | int:
    """An attribute as it was before it was stored."""
    if array.ndim == 0:
        return array.item()
    if kind in "UO":
        return array.astype(object if kind == "O" else str)
    return array.astype(bool) if kind == "b" else array


class BayesianNetwork(BaseEstimator):
    """A Bayesian network with the interface of scikit-learn; see its two subclasses."""

    def __init__(
        self,
        hidden: int | Sequence[int] = (20,),
        activation: str = "tanh",
        *,
        network: str | Mapping[str, object] | Network | None = None,
        prior: str | Mapping[str, object] | Prior = "normal",
        hyperprior: str | Mapping[str, object] | Hyperprior = "half_normal",
        likelihood: str | Mapping[str, object] | Likelihood | None = None,
        engine: str = "compiled",
        guide: str = "mean_field",
        steps: int = 5_000,
        learning_rate: float | Tune = 0.02,
        batch: int | None = None,
        restarts: int = 1,
        settings: Mapping[str, object] | None = None,
        draws: int = 500,
        standardise: bool = True,
        random_state: int | np.random.RandomState | None = 0,
        progress: bool = False,
        device: str = "auto",
    ) -> None:
        self.hidden = hidden
        self.activation = activation
        self.network = network
        self.prior = prior
        self.hyperprior = hyperprior
        self.likelihood = likelihood
        self.engine = engine
        self.guide = guide
        self.steps = steps
        self.learning_rate = learning_rate
        self.batch = batch
        self.restarts = restarts
        self.settings = settings
        self.draws = draws
        self.standardise = standardise
        self.random_state = random_state
        self.progress = progress
        self.device = device

    @property
    def model_(self) -> pm.Model:
        """The PyMC model with the training rows, standardised."""
        return self._posterior().model

    @property
    def trace_(self) -> xr.DataTree:
        """Draws of every weight and scale as ArviZ takes them, with log-likelihoods."""
        return self._posterior().to_datatree()

    @property
    def status_(self) -> str:
        """Verdict on the fit: the status of `posterior_`, such as ``converged``."""
        return self._posterior().status

    @property
    def reason_(self) -> str:
        """A few words on that verdict."""
        return self._posterior().reason

    def predict_uncertainty(self, X) -> pd.DataFrame:  # noqa: N803
        """Uncertainty of new observations, and where it comes from: one line for each.

        The columns are ``total``, and ``aleatoric`` and ``epistemic``, of which it is the sum: the
        part that no further training row removes, and the part that comes from not knowing the
        weights. They are entropies in nats of a classifier, and variances in squared units of the
        target of a regressor.

        Parameters
        ----------
        X
            Inputs, ``(observation, feature)``. The table has the index of a DataFrame.

        References
        ----------
        Depeweg et al. (2018), Decomposition of Uncertainty in Bayesian Deep Learning for Efficient
        and Risk-sensitive Learning; see `Predictive.uncertainty`.
        """
        index = X.index if isinstance(X, pd.DataFrame) else None
        return pd.DataFrame(self._predict(X).uncertainty(), index)

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator as a netCDF file, which `load` and ArviZ read.

        It is the file of `posterior_`, as `Posterior.save` writes it, with the parameters and the
        labels. Nothing in it is code.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        """
        posterior = self._posterior()
        learned = {n: np.asarray(getattr(self, n)) for n in LEARNED if hasattr(self, n)}
        write_estimator(Path(path), self, posterior, learned)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read an estimator that `save` wrote.

        Raises
        ------
        ValueError
            If the file is not one of this estimator, or was written by another version, or needs
            a user-defined class that is not registered.
        FileNotFoundError
            If there is no such file.
        """
        parameters, posterior, learned = read_estimator(Path(path), cls)
        estimator = cls(**parameters)
        vars(estimator).update(learned, posterior_=posterior)
        return estimator

    @contextmanager
    def _unless_it_fails(self) -> Iterator[None]:
        """Undo what a fit that fails has learned: labels of one fit are not for another's draws."""
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    def _fit(
        self,
        x: np.ndarray,
        y: np.ndarray,
        classes: tuple[str, ...] = (),
        target_standardisation: Standardisation | None = None,
    ) -> Self:
        """Fit rows whose targets are indices of the classes, or standardised numbers."""
        names = getattr(self, "feature_names_in_", None)
        features = [f"x{i + 1}" for i in range(x.shape[1])] if names is None else names
        dataset = standardised_dataset(
            (x, y),
            (x[:0], y[:0]),
            "feature" if self.standardise else "none",
            features=tuple(map(str, features)),
            classes=classes,
            source="given",
            target_standardisation=target_standardisation or identity_standardisation(),
        )
        with running_on(device_here(self.device)), shown(self.progress):
            self.posterior_ = fitted(self._cell(dataset), dataset)
        vars(self).pop(SCORES, None)  # of another fit
        return self

    def _cell(self, dataset: Dataset) -> Cell:
        rows, features = dataset.x_train.shape
        network = self.network
        if network is None:
            network = Dense(hidden=self.hidden, activation=self.activation)
        hyperprior = named(self.hyperprior, HYPERPRIORS, "hyperprior", Hyperprior)
        likelihood = self.likelihood or DEFAULT_LIKELIHOODS[dataset.training.task]
        return Cell(
            sweep="estimator",
            dataset=InMemoryData(
                observations=rounded_up(rows),
                features=features,
                classes=len(dataset.classes) or None,
            ),
            network=named(network, NETWORKS, "network", Network),
            prior=named(self.prior, PRIORS, "prior", Prior),
            hyperprior=hyperprior,
            likelihood=named(likelihood, LIKELIHOODS, "likelihood", Likelihood),
            inference=self._inference(is_tuned=len(hyperprior.candidates) > 1),
            predict=Predict(draws=self.draws),
        )

    def _inference(self, is_tuned: bool) -> Inference | Sampling:
        if self.engine not in ENGINES:
            raise must_be_one_of("engine", ENGINES, self.engine)
        cls, further = ENGINES[self.engine], dict(self.settings or {})
        settings: dict[str, object] = {"seed": _seed(self.random_state)}
        if not issubclass(cls, Sampling):
            settings |= {name: getattr(self, name) for name in FIT_PARAMETERS}
            if "epochs" in further:
                del settings["steps"]
            if not is_tuned:  # nothing is held out where nothing is chosen by it
                settings["validation"] = 0.0
        made = validated(cls, settings | further, PLACES, "settings")
        if is_tuned and made.validation == 0 and getattr(made, "guide", None) != "laplace":
            rule = "must be > 0 to tune a scale by held-out rows (with guide laplace, 0 tunes it by"
            raise must("settings.validation", f"{rule} the evidence)", made.validation)
        return made

    def _posterior(self) -> Posterior:
        """The posterior, on the device that the parameters name in this process."""
        check_is_fitted(self, "posterior_")
        device = device_here(self.device)
        if self.posterior_.device != device:
            self.posterior_ = replace(self.posterior_, device=device)
        return self.posterior_

    def _predict(self, x) -> Predictive:
        """Prediction at inputs of any kind that scikit-learn takes."""
        return self._posterior().predict(self._checked(x))

    def _set_aside(self, x, y, share: float, stratify=None) -> list:
        """Inputs to fit, inputs set aside, and the targets of both."""
        seed = _seed(self.random_state)
        return train_test_split(x, y, test_size=share, random_state=seed, stratify=stratify)

    def _calibrated(self, x: np.ndarray, y: np.ndarray, scores: np.ndarray) -> Self:
        """Keep the scores of calibration rows, whose targets are as `_fit` takes them."""
        origin = self.posterior_.origin
        training = {*_as_bytes(origin.rows.x, origin.rows.y)}
        seen = sum(row in training for row in _as_bytes(origin.standardisation(x), y))
        if seen:
            warnings.warn(
                f"{seen} of {len(x)} calibration rows are training rows too: coverage is "
                "guaranteed only by rows that the fit has not seen.",
                stacklevel=3,
            )
        self.calibration_scores_ = scores
        return self

    def _quantile(self, level: float) -> float:
        """The quantile of the calibration scores at a level."""
        check_is_fitted(self, "posterior_")
        said = "This %(name)s is not calibrated: call `calibrate(X, y)` with rows set aside first."
        check_is_fitted(self, SCORES, msg=said)
        return conformal_quantile(self.calibration_scores_, level)

    def _checked(self, x) -> np.ndarray:
        """Inputs for prediction, checked against those of the fit."""
        check_is_fitted(self, "posterior_")
        return self._validated(x, reset=False)

    def _validated(self, x, *y, **options) -> Any:
        """Inputs, and targets if given, as `validate_data` returns them; a ValueError of dates.

        Their numbers have the unit of the array, which may be another one in new rows.
        """
        kind = np.asarray(x).dtype if hasattr(x, "dtype") or hasattr(x, "dtypes") else None
        if kind is not None and kind.kind in "mM":
            raise ValueError(f"`X` must hold numbers, got {kind}.")
        return validate_data(self, x, *y, dtype=np.float64, **options)


SCORES = "calibration_scores_"
"""Attribute that `calibrate` sets."""

LEARNED = ("n_features_in_", "feature_names_in_", "classes_", SCORES)
"""Attributes beside `posterior_` that `fit` and `calibrate` may set."""

FIT_PARAMETERS = ("engine", "guide", "steps", "learning_rate", "batch", "restarts")
"""Parameters that are fields of `pmbnn.Inference`, but of no sampler."""

PLACES = {name: name for name in FIT_PARAMETERS} | {"seed": "random_state"}
"""Names of parameters by the fields of the settings."""


def _as_bytes(x: np.ndarray, y: np.ndarray) -> list[bytes]:
    """Rows and their targets, as what can be looked up."""
    return [row.tobytes() for row in np.column_stack([x, y]).astype(np.float32)]


def _seed(random_state) -> int:
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))
