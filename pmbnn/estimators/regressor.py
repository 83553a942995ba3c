"""A Bayesian network that predicts numbers, as scikit-learn's estimators do."""

from typing import Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from pmbnn.data.arrays import Standardisation, fit_standardisation
from pmbnn.estimators.base import BayesianNetwork
from pmbnn.prediction.density import LEVEL, mixture


class BNNRegressor(RegressorMixin, BayesianNetwork):
    """Bayesian neural network for regression, with the interface of scikit-learn.

    Parameters are those of `pmbnn.BNNClassifier`, and:

    Parameters
    ----------
    likelihood
        Name, mapping or specification; ``normal`` unless given, whose noise is learned. Targets
        are standardised on the training rows, and noise is in these units.

    Attributes
    ----------
    n_features_in_, feature_names_in_
        Number of features, and their names where a DataFrame had some.
    target_mean_, target_sd_
        Of the training targets, which the network sees standardised.
    posterior_
        The posterior of the network, a `pmbnn.Posterior`.
    model_, trace_
        The PyMC model, and draws as ArviZ takes them, both of standardised targets.
    status_, reason_
        Verdict on the fit, as of `Posterior`; chains that ``diverged`` predict nothing.

    Examples
    --------
    >>> import pmbnn as pb
    >>> mean, sd = pb.BNNRegressor().fit(x, y).predict(x, return_std=True)  # doctest: +SKIP
    """

    def fit(self, X, y) -> Self:  # noqa: N803
        """Fit the network.

        Parameters
        ----------
        X
            Inputs, ``(observation, feature)``: an array or a DataFrame of numbers.
        y
            Numbers, ``(observation,)``.

        Raises
        ------
        ValueError
            If inputs, targets or parameters cannot be used, or every restart diverged.
        """
        x, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        standardisation = fit_standardisation(y[:, None], "feature")
        return self._fit(x, standardisation(y), target_standardisation=standardisation)

    def predict(self, X, return_std: bool = False):  # noqa: N803
        """Predicted mean, ``(observation,)``, and the standard deviation if `return_std`.

        The standard deviation is that of a new observation: of the weights and of the noise.
        """
        density = self._predict(X)
        return (density.mean, density.total_sd) if return_std else density.mean

    def predict_interval(self, X, level: float = LEVEL, noise: bool = True) -> np.ndarray:  # noqa: N803
        """Central interval, ``(observation, 2)``, of a new observation.

        Parameters
        ----------
        level
            Its probability.
        noise
            Whether the interval includes the noise; without, it is that of the function.

        Raises
        ------
        ValueError
            If `level` is not between 0 and 1.
        """
        if not 0 < level < 1:
            raise ValueError(f"`level` must be between 0 and 1, got {level}.")
        draws = self._posterior().single_draws(self._checked(X))
        weights, parameters = zip(*draws, strict=True)
        density = mixture(self.posterior_.origin.parts.likelihood, parameters, weights)
        bounds = density.total_interval(level) if noise else density.output_interval(level)
        return self._target_standardisation.undo(bounds.T)

    @property
    def target_mean_(self) -> float:
        """Mean of the training targets."""
        return self._target_standardisation.mean.item()

    @property
    def target_sd_(self) -> float:
        """Standard deviation of the training targets."""
        return self._target_standardisation.sd.item()

    @property
    def _target_standardisation(self) -> Standardisation:
        return self._posterior().origin.target_standardisation
