"""A Bayesian network that predicts numbers, as scikit-learn's estimators do."""

from typing import Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from pmbnn.data.arrays import Standardisation, fit_standardisation
from pmbnn.estimators.base import BayesianNetwork
from pmbnn.prediction.conformal import checked_level, standardised_error
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
    calibration_scores_
        Of the rows of `calibrate`, ``(observation,)``: distances of the targets from the predicted
        means, in predicted standard deviations.
    model_, trace_
        The PyMC model, and draws as ArviZ takes them, both of standardised targets.
    status_, reason_
        Verdict on the fit, as of `Posterior`; chains that ``diverged`` predict nothing.

    Examples
    --------
    >>> import pmbnn as pb
    >>> mean, sd = pb.BNNRegressor().fit(x, y).predict(x, return_std=True)  # doctest: +SKIP
    """

    def fit(self, X, y, calibrate_on: float = 0.0) -> Self:  # noqa: N803
        """Fit the network.

        Parameters
        ----------
        X
            Inputs, ``(observation, feature)``: an array or a DataFrame of numbers.
        y
            Numbers, ``(observation,)``.
        calibrate_on
            Share of the rows to set aside for `calibrate`, drawn by ``random_state``; the fit
            is on the others. None by default.

        Raises
        ------
        ValueError
            If inputs, targets or parameters cannot be used, or every restart diverged.
        """
        if calibrate_on:
            x, x_aside, y, y_aside = self._set_aside(X, y, calibrate_on)
            return self.fit(x, y).calibrate(x_aside, y_aside)
        with self._unless_it_fails():
            x, y = self._validated(X, y, y_numeric=True)
            y = _as_numbers(y)
            standardisation = fit_standardisation(y[:, None], "feature")
            return self._fit(x, standardisation(y), target_standardisation=standardisation)

    def predict(self, X, return_std: bool = False):  # noqa: N803
        """Predicted mean, ``(observation,)``, and the standard deviation if `return_std`.

        The standard deviation is that of a new observation: of the weights and of the noise.
        """
        density = self._predict(X)
        return (density.mean, density.total_sd) if return_std else density.mean

    def calibrate(self, X, y) -> Self:  # noqa: N803
        """Keep how far the targets of rows set aside are from their predictions.

        Afterwards `predict_interval` has intervals with guaranteed coverage, ``conformal=True``.
        Another fit forgets the calibration.

        Parameters
        ----------
        X, y
            Rows as `fit` takes them that were not in the fit; a level of 0.9 needs 9 or more, one
            of 0.99 needs 99. A warning says if some are training rows.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        ValueError
            If inputs or targets cannot be used.
        """
        check_is_fitted(self, "posterior_")
        x, y = self._validated(X, y, y_numeric=True, reset=False)
        y = _as_numbers(y)
        density = self._posterior().predict(x)
        scores = standardised_error(density, y)
        return self._calibrated(x, self._target_standardisation(y), scores)

    def predict_interval(
        self,
        X,  # noqa: N803
        level: float = LEVEL,
        noise: bool = True,
        conformal: bool = False,
    ) -> np.ndarray:
        """Interval of a new observation, ``(observation, 2)``.

        Parameters
        ----------
        level
            Its probability.
        noise
            Whether the interval includes the noise; without, it is that of the function.
        conformal
            Whether rows set aside decide how wide the interval is, in place of the model: it is the
            mean plus and minus a multiple of the standard deviation that `predict` returns. The
            multiple is such that a new observation is in its interval with probability `level` or
            more, also if the model is wrong, as long as new rows and rows of `calibrate` come from
            the same source. This is the share over all rows, not at each input. Otherwise the
            interval is the central one of the posterior.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted, or not calibrated for `conformal`.
        ValueError
            If `level` is not between 0 and 1, or needs more calibration rows.

        References
        ----------
        Lei et al. (2018), Distribution-Free Predictive Inference for Regression, section 5.2.
        """
        checked_level(level)
        if conformal:
            if not noise:
                raise ValueError("`noise` must be True for `conformal`: observations have noise.")
            quantile = self._quantile(level)
            mean, sd = self.predict(X, return_std=True)
            return np.column_stack([mean - quantile * sd, mean + quantile * sd])
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


def _as_numbers(y: np.ndarray) -> np.ndarray:
    """Targets in double precision: means of half precision round, and squares overflow."""
    if y.dtype.kind not in "biuf":
        raise ValueError(f"`y` must hold numbers, got {y.dtype}.")
    return y.astype(np.float64)
