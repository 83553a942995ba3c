"""A Bayesian network that classifies, as scikit-learn's estimators do."""

from typing import Self

import numpy as np
import pandas as pd
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from pmbnn.estimators.base import BayesianNetwork
from pmbnn.prediction.conformal import checked_level, normalised, probability_above
from pmbnn.prediction.density import LEVEL


class BNNClassifier(ClassifierMixin, BayesianNetwork):
    """Bayesian neural network for classification, with the interface of scikit-learn.

    A fit is a variational approximation of the posterior of the weights, or draws by a sampler;
    what is predicted is a mean over draws of the weights. Programs are compiled once a process for
    all fits of a shape: networks, features and classes alike, and about as many rows.

    Parameters
    ----------
    hidden
        Units of each hidden layer; a number is one layer.
    activation
        Of the hidden layers: ``tanh``, ``relu``, …
    network
        Another network than a dense one: its specification, such as `pmbnn.Layered`.
    prior, hyperprior
        Of the weights, and of the scales of their prior: a name of an experiment file, with its
        defaults; a mapping as there, such as ``{"kind": "student_t", "nu": 3}``; or a specification
        such as ``pb.priors.StudentT(nu=3)`` or ``pb.Fixed(scale=0.5)``. A scale
        to choose, ``pb.Fixed(scale=pb.Tune(log=(0.1, 10, 5)))``, is chosen on a fifth of the rows.
    likelihood
        Name, mapping or specification; ``categorical`` unless given.
    engine
        ``compiled`` or ``pymc`` fit a guide; ``mclmc``, ``mams``, ``nuts`` and ``smc`` sample the
        posterior.
    guide
        Family of the approximation: ``mean_field``, ``low_rank``, ``full_rank``; ``laplace``, which
        is for small networks with fixed scales; ``map`` and ``maximum_likelihood`` are points;
        ``dropout`` needs ``settings={"dropout_rate": 0.05}``.
        Samplers ignore it and the following four parameters.
    steps, learning_rate
        Gradient steps, and Adam's step size at its highest.
    batch
        Rows a step; all of them unless given.
    restarts
        Independent fits, of which the one of highest ELBO predicts.
    settings
        Further fields of `pmbnn.Inference` or of the sampler, by name.
    draws
        Draws of the weights that predictions are means over; of each chain of a sampler.
    standardise
        Whether each feature is brought to mean 0 and standard deviation 1 over the training rows.
    random_state
        Seed of everything random; on one machine, the same number gives the same bits.
    progress
        Whether to show stages and steps.
    device
        Device of fit and predictions: ``cpu``, ``gpu`` (the first that JAX finds), or ``auto``, a
        GPU where there is one.

    Attributes
    ----------
    classes_
        Labels, sorted, ``(class,)``.
    n_features_in_, feature_names_in_
        Number of features, and their names where a DataFrame had some.
    posterior_
        The posterior of the network, a `pmbnn.Posterior`.
    calibration_scores_
        Of the rows of `calibrate`, ``(observation,)``: probabilities of all classes that are more
        probable than the label.
    model_, trace_
        The PyMC model, and draws as ArviZ takes them.
    status_, reason_
        Verdict on the fit, as of `Posterior`. A fit that has ``not_converged`` predicts, but its
        ELBO still rose; chains that ``diverged`` predict nothing.

    Examples
    --------
    >>> import pmbnn as pb
    >>> from sklearn.model_selection import GridSearchCV
    >>> search = GridSearchCV(pb.BNNClassifier(), {"prior": ["normal", "laplace", "cauchy"]},
    ...                       scoring="neg_log_loss")
    >>> search.fit(x, y)  # doctest: +SKIP
    """

    def fit(self, X, y, calibrate_on: float = 0.0) -> Self:  # noqa: N803
        """Fit the network.

        Parameters
        ----------
        X
            Inputs, ``(observation, feature)``: an array or a DataFrame of numbers.
        y
            Labels of any kind, ``(observation,)``.
        calibrate_on
            Share of the rows to set aside for `calibrate`, drawn by ``random_state``, the same of
            each class; the fit is on the others. None by default.

        Raises
        ------
        ValueError
            If inputs, labels or parameters cannot be used, or every restart diverged.
        """
        if calibrate_on:
            x, x_aside, y, y_aside = self._set_aside(X, y, calibrate_on, stratify=y)
            return self.fit(x, y).calibrate(x_aside, y_aside)
        with self._unless_it_fails():
            _check_labels(y)
            x, y = self._validated(X, y)
            check_classification_targets(y)
            self.classes_, labels = np.unique(y, return_inverse=True)
            if len(self.classes_) < 2:
                raise ValueError(f"`y` must have two classes or more, got one class: {y[0]!r}.")
            return self._fit(x, labels.astype(np.int64), tuple(map(str, self.classes_)))

    def predict_proba(self, X) -> np.ndarray:  # noqa: N803
        """Class probabilities, ``(observation, class)``: means over draws of the weights."""
        return normalised(self._predict(X).mean)

    def predict(self, X) -> np.ndarray:  # noqa: N803
        """Class of highest mean probability, ``(observation,)``."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def calibrate(self, X, y) -> Self:  # noqa: N803
        """Keep how probable the labels of rows set aside are among the classes.

        Afterwards `predict_set` has sets with guaranteed coverage, ``conformal=True``. Another fit
        forgets the calibration.

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
            If inputs or labels cannot be used, or a label is not one of `classes_`.
        """
        check_is_fitted(self, "posterior_")
        _check_labels(y)
        x, y = self._validated(X, y, reset=False)
        check_classification_targets(y)
        if unknown := sorted({*y.tolist()} - {*self.classes_.tolist()}, key=str):
            raise ValueError(f"`y` must have labels of the fit, got {unknown[0]!r}.")
        labels = np.searchsorted(self.classes_, y)
        scores = probability_above(self.predict_proba(X))[np.arange(len(y)), labels]
        return self._calibrated(x, labels, scores)

    def predict_set(self, X, level: float = LEVEL, conformal: bool = False) -> np.ndarray:  # noqa: N803
        """Set of the most probable classes, booleans ``(observation, class)``.

        A class is in it if the more probable classes together have less than a threshold. Each set
        has one class or more.

        Parameters
        ----------
        level
            Probability that the set contains the label.
        conformal
            Whether rows set aside decide the threshold, in place of the model. Then the label of a
            new row is in its set with probability `level` or more, also if the model is wrong, as
            long as new rows and rows of `calibrate` come from the same source. This is the share
            over all rows, not at each input or of each class. Otherwise the threshold is `level`:
            the sets are the smallest ones of which the posterior has that probability.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted, or not calibrated for `conformal`.
        ValueError
            If `level` is not between 0 and 1, or needs more calibration rows.

        References
        ----------
        Romano, Sesia and Candès (2020), Classification with Valid and Adaptive Coverage.
        """
        checked_level(level)
        if not conformal:
            return probability_above(self.predict_proba(X)) < level
        quantile = self._quantile(level)
        return probability_above(self.predict_proba(X)) <= quantile


def _check_labels(y) -> None:
    """Raise ValueError if a label is missing, whatever its kind: these cannot be sorted."""
    missing = pd.isna(np.asarray(y, dtype=object)) if y is not None else np.zeros(0, bool)
    if missing.any():
        row = np.argwhere(missing)[0][0] + 1
        raise ValueError(f"`y` must have a label for each row, but that of row {row} is missing.")
