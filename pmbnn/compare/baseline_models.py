"""Baseline models of scikit-learn, fitted to the training rows of a data set as the cells saw them.

Logistic or ridge regression with a penalty chosen by cross-validation, a random forest, gradient
boosting, and a Gaussian process. Each is evaluated on the test rows by the same metrics as cells.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from pmbnn.data.arrays import Dataset
from pmbnn.models.components import NormalComponents
from pmbnn.prediction.density import Mixture, summarise
from pmbnn.prediction.metrics import classification_metrics, metrics_of

KEYS = ("linear", "forest", "boosting", "process")
"""Names by which baseline models are selected."""

MAX_ROWS = 3_000
"""Training rows up to which a Gaussian process is fitted: its time grows with their cube."""

KERNEL_ROWS = 300
"""Rows by which the kernels of a Gaussian process for classes are chosen."""

TREES = 500
"""Of a random forest."""

ROUNDS, PATIENCE = 2_000, 20
"""Rounds of gradient boosting at most, and those without a better score after which it stops. On
two splits each of seven UCI sets no fit takes all of them."""

FOLDS = 5
"""Folds by which the rounds of gradient boosting are chosen: as many as scikit-learn's default."""

ALL_CORES = -1
"""Threads of scikit-learn: the trees of a forest are grown beside each other."""


class Baseline(NamedTuple):
    """A baseline model.

    Attributes
    ----------
    key, name
        Name by which it is selected, of `KEYS`, and its title.
    predict
        Metrics of its predictions for the test rows of a data set, by name.
    max_rows
        Training rows that it is fitted on at most; None where there is no limit.
    """

    key: str
    name: str
    predict: Callable[[Dataset, int], dict[str, float]]
    max_rows: int | None = None

    def scores(self, dataset: Dataset, seed: int) -> dict[str, float]:
        """What `predict` gives, with linear algebra and boosting by one thread."""
        from threadpoolctl import threadpool_limits

        # Threads wait for each other at every small product: beside other work, 20 times as long.
        with threadpool_limits(1):
            return self.predict(dataset, seed)


# Gradient boosting


class _Boosting(NamedTuple):
    """Fits without one fold each, the rows that each left out, and the rounds that they chose."""

    fits: Sequence[Any]
    left_out: Sequence[np.ndarray]
    rounds: int


def _cross_validated(model: Any, dataset: Dataset, seed: int) -> _Boosting:
    """Gradient boosting by folds of the training rows, each until the loss of its rows grows.

    The number of rounds is the mean over folds of the one with the least loss.
    """
    from sklearn.base import clone
    from sklearn.model_selection import KFold

    x, y = dataset.x_train, dataset.y_train
    model = clone(model).set_params(
        max_iter=ROUNDS, early_stopping=True, n_iter_no_change=PATIENCE, random_state=seed
    )
    fits, left_out = [], []
    for kept, left in KFold(min(FOLDS, len(x)), shuffle=True, random_state=seed).split(x):
        # Of classes that the rows of a fit lack, it has no loss.
        judged = left[np.isin(y[left], y[kept])] if dataset.classes else left
        fit = clone(model).fit(x[kept], y[kept], X_val=x[judged], y_val=y[judged])
        fits.append(fit)
        left_out.append(left)
    # The first score is that of no round.
    best = [int(np.argmax(fit.validation_score_)) for fit in fits]
    return _Boosting(fits, left_out, max(1, round(np.mean(best))))


def _without_own_fold(boosting: _Boosting, x: np.ndarray) -> np.ndarray:
    """Prediction for each row by the fit that did not see it, after the chosen rounds.

    A fit that stopped before predicts by its last round.
    """
    predicted = np.empty(len(x))
    for fit, rows in zip(boosting.fits, boosting.left_out, strict=True):
        *_, predicted[rows] = islice(fit.staged_predict(x[rows]), boosting.rounds)
    return predicted


# Classes


def _class_metrics(model: Any, dataset: Dataset) -> dict[str, float]:
    """Metrics of a classifier of scikit-learn, fitted here."""
    fitted = model.fit(dataset.x_train, dataset.y_train)
    # Of classes that the training rows lack, a method says nothing.
    probability = np.zeros((len(dataset.x_test), len(dataset.classes)))
    probability[:, fitted.classes_] = fitted.predict_proba(dataset.x_test)
    return classification_metrics(probability, dataset.y_test)


def _logistic(dataset: Dataset, seed: int) -> dict[str, float]:
    from sklearn.linear_model import LogisticRegressionCV

    model = LogisticRegressionCV(
        Cs=10, max_iter=2_000, scoring="neg_log_loss", l1_ratios=(0.0,), use_legacy_attributes=False
    )
    return _class_metrics(model, dataset)


def _forest_of_classes(dataset: Dataset, seed: int) -> dict[str, float]:
    from sklearn.ensemble import RandomForestClassifier

    model = RandomForestClassifier(TREES, random_state=seed, n_jobs=ALL_CORES)
    return _class_metrics(model, dataset)


def _boosting_of_classes(dataset: Dataset, seed: int) -> dict[str, float]:
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(early_stopping=False, random_state=seed)
    rounds = _cross_validated(model, dataset, seed).rounds
    return _class_metrics(model.set_params(max_iter=rounds), dataset)


def _process_of_classes(dataset: Dataset, seed: int) -> dict[str, float]:
    """A process for each class against the others; kernels are those of some of the rows.

    Each step of their optimisation takes the cube of the number of rows, for every class.
    """
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    kernel = ConstantKernel(1.0) * RBF(3.0, (0.1, 1_000.0))
    rows = np.random.default_rng(seed).permutation(len(dataset.x_train))[:KERNEL_ROWS]
    some_rows = GaussianProcessClassifier(kernel, random_state=seed)
    some_rows.fit(dataset.x_train[rows], dataset.y_train[rows])
    kernels = getattr(some_rows.kernel_, "kernels", [some_rows.kernel_])
    mean = np.mean([one.theta for one in kernels], axis=0)
    model = GaussianProcessClassifier(kernel.clone_with_theta(mean), optimizer=None)
    return _class_metrics(model, dataset)


# Numbers


def _normal_metrics(dataset: Dataset, mean: np.ndarray, sd: np.ndarray) -> dict[str, float]:
    """Metrics of normal predictions of standardised targets, in their own units."""
    unit = dataset.target_standardisation.sd.item()
    mean, sd = dataset.raw_targets(mean), np.broadcast_to(sd, mean.shape) * unit
    target = dataset.raw_targets(dataset.y_test)
    mixture = Mixture(NormalComponents(mean[None], sd[None]), np.ones(1))
    return metrics_of(summarise(mixture, target), target)


def _ridge(dataset: Dataset, seed: int) -> dict[str, float]:
    from sklearn.linear_model import RidgeCV

    fitted = RidgeCV(np.logspace(-3, 3, 13)).fit(dataset.x_train, dataset.y_train)
    residual = dataset.y_train - fitted.predict(dataset.x_train)
    freedom = max(1, len(residual) - dataset.x_train.shape[1] - 1)
    sd = np.sqrt((residual**2).sum() / freedom)
    return _normal_metrics(dataset, fitted.predict(dataset.x_test), sd)


def _forest_of_numbers(dataset: Dataset, seed: int) -> dict[str, float]:
    from sklearn.ensemble import RandomForestRegressor

    forest = RandomForestRegressor(TREES, oob_score=True, random_state=seed, n_jobs=ALL_CORES)
    forest.fit(dataset.x_train, dataset.y_train)
    # Its own estimate of the error of new rows: by the trees that did not see each.
    sd = np.sqrt(np.mean((dataset.y_train - forest.oob_prediction_) ** 2))
    return _normal_metrics(dataset, forest.predict(dataset.x_test), sd)


def _boosting_of_numbers(dataset: Dataset, seed: int) -> dict[str, float]:
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(early_stopping=False, random_state=seed)
    boosting = _cross_validated(model, dataset, seed)
    residual = dataset.y_train - _without_own_fold(boosting, dataset.x_train)
    model.set_params(max_iter=boosting.rounds).fit(dataset.x_train, dataset.y_train)
    return _normal_metrics(dataset, model.predict(dataset.x_test), np.sqrt(np.mean(residual**2)))


def _process_of_numbers(dataset: Dataset, seed: int) -> dict[str, float]:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    kernel = ConstantKernel(1.0) * RBF(3.0, (0.1, 1_000.0)) + WhiteKernel(0.1, (1e-6, 10.0))
    process = GaussianProcessRegressor(kernel, random_state=seed, n_restarts_optimizer=2)
    mean, sd = process.fit(dataset.x_train, dataset.y_train).predict(
        dataset.x_test, return_std=True
    )
    return _normal_metrics(dataset, mean, sd)


BASELINES = {
    "class_probabilities": (
        Baseline("linear", "logistic regression", _logistic),
        Baseline("forest", "random forest", _forest_of_classes),
        Baseline("boosting", "gradient boosting", _boosting_of_classes),
        Baseline("process", "Gaussian process", _process_of_classes, MAX_ROWS),
    ),
    "density": (
        Baseline("linear", "ridge regression", _ridge),
        Baseline("forest", "random forest", _forest_of_numbers),
        Baseline("boosting", "gradient boosting", _boosting_of_numbers),
        Baseline("process", "Gaussian process", _process_of_numbers, MAX_ROWS),
    ),
}
"""Models by what is predicted, as records name it."""
