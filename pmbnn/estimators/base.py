"""The base of both estimators: their parameters as a cell, and its fit."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Self

import numpy as np
import pymc as pm
import xarray as xr
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from pmbnn.core.machine import device_here, running_on
from pmbnn.data.arrays import (
    Dataset,
    Standardisation,
    fit_standardisation,
    identity_standardisation,
)
from pmbnn.data.base import DEFAULT_LIKELIHOODS
from pmbnn.estimators.fitted import InMemoryData, fitted, rounded_up
from pmbnn.estimators.storage import read_estimator, write_estimator
from pmbnn.experiment.cells import ENGINES, Cell
from pmbnn.inference.samplers.settings import Sampling
from pmbnn.inference.settings import Inference
from pmbnn.models.likelihoods import LIKELIHOODS, Likelihood
from pmbnn.models.networks import NETWORKS, Dense, Network
from pmbnn.models.priors import HYPERPRIORS, PRIORS, Hyperprior, Prior
from pmbnn.prediction.posterior import Posterior
from pmbnn.prediction.predictive import Predictive
from pmbnn.prediction.progress import shown
from pmbnn.prediction.settings import Predict
from pmbnn.spec import Tune, named, validated
from pmbnn.spec.errors import must_be_one_of


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
        """Verdict on the fit: ``converged``, ``not_converged``, ``improper`` or ``undecided``."""
        return self._posterior().status

    @property
    def reason_(self) -> str:
        """A few words on that verdict."""
        return self._posterior().reason

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
        standardisation = fit_standardisation(x, "feature" if self.standardise else "none")
        inputs = standardisation(x)
        dataset = Dataset(
            x_train=inputs,
            y_train=y,
            x_test=inputs[:0],
            y_test=y[:0],
            features=tuple(map(str, features)),
            classes=classes,
            standardisation=standardisation,
            source="given",
            target_standardisation=target_standardisation or identity_standardisation(),
        )
        with running_on(device_here(self.device)), shown(self.progress):
            self.posterior_ = fitted(self._cell(dataset), dataset)
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
        return validated(cls, settings | further, PLACES, "settings")

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

    def _checked(self, x) -> np.ndarray:
        """Inputs for prediction, checked against those of the fit."""
        check_is_fitted(self, "posterior_")
        return validate_data(self, x, dtype=np.float64, reset=False)


LEARNED = ("n_features_in_", "feature_names_in_", "classes_")
"""Attributes beside `posterior_` that `fit` may set."""

FIT_PARAMETERS = ("engine", "guide", "steps", "learning_rate", "batch", "restarts")
"""Parameters that are fields of `pmbnn.Inference`, but of no sampler."""

PLACES = {name: name for name in FIT_PARAMETERS} | {"seed": "random_state"}
"""Names of parameters by the fields of the settings."""


def _seed(random_state) -> int:
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))
