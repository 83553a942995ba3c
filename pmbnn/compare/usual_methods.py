"""Usual methods on the same rows: what a Bayesian network is to be held against.

Logistic or ridge regression with a penalty chosen by cross-validation, a random forest, and a
Gaussian process, all of scikit-learn, each fitted on the training rows of a data set as the cells
saw them and judged on its test rows by the same metrics.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pmbnn.data.arrays import Dataset
from pmbnn.models.likelihoods import NormalComponents
from pmbnn.prediction.density import Mixture, summarise
from pmbnn.prediction.metrics import classification_metrics, metrics_of

MOST_ROWS = 3_000
"""Training rows up to which a Gaussian process is fitted: its time grows with their cube."""

KERNEL_ROWS = 300
"""Rows by which the kernels of a Gaussian process for classes are chosen."""

TREES = 500
"""Of a random forest."""

ALL_CORES = -1
"""Threads of scikit-learn: the trees of a forest are grown beside each other."""


class Baseline(NamedTuple):
    """A usual method.

    Attributes
    ----------
    key, name
        What it is asked for by, and in words.
    predict
        Metrics of its predictions for the test rows of a data set, by name.
    most
        Training rows that it is fitted on at most; None where there is no limit.
    """

    key: str
    name: str
    predict: Callable[[Dataset, int], dict[str, float]]
    most: int | None = None

    def scores(self, dataset: Dataset, seed: int) -> dict[str, float]:
        """What `predict` says, with linear algebra by one thread."""
        from threadpoolctl import threadpool_limits

        # Threads wait for each other at every small product: beside other work, 20 times as long.
        with threadpool_limits(1, user_api="blas"):
            return self.predict(dataset, seed)


# Classes


def _classifier(make: Callable[[int], object]) -> Callable[[Dataset, int], dict[str, float]]:
    def predict(dataset: Dataset, seed: int) -> dict[str, float]:
        fitted = make(seed).fit(dataset.x_train, dataset.y_train)
        # Of classes that the training rows lack, a method says nothing.
        probability = np.zeros((len(dataset.x_test), len(dataset.classes)))
        probability[:, fitted.classes_] = fitted.predict_proba(dataset.x_test)
        return classification_metrics(probability, dataset.y_test)

    return predict


def _logistic(seed: int):
    from sklearn.linear_model import LogisticRegressionCV

    return LogisticRegressionCV(
        Cs=10, max_iter=2_000, scoring="neg_log_loss", l1_ratios=(0.0,), use_legacy_attributes=False
    )


def _forest_of_classes(seed: int):
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(TREES, random_state=seed, n_jobs=ALL_CORES)


def _process_of_classes(dataset: Dataset, seed: int) -> dict[str, float]:
    """A process for each class against the others; kernels are those of some of the rows.

    Each step of their optimisation takes the cube of the number of rows, for every class.
    """
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    kernel = ConstantKernel(1.0) * RBF(3.0, (0.1, 1_000.0))
    rows = np.random.default_rng(seed).permutation(len(dataset.x_train))[:KERNEL_ROWS]
    chosen = GaussianProcessClassifier(kernel, random_state=seed)
    chosen.fit(dataset.x_train[rows], dataset.y_train[rows])
    kernels = getattr(chosen.kernel_, "kernels", [chosen.kernel_])
    mean = np.mean([one.theta for one in kernels], axis=0)
    return _classifier(
        lambda _: GaussianProcessClassifier(kernel.clone_with_theta(mean), optimizer=None)
    )(dataset, seed)


# Numbers


def _of_normals(dataset: Dataset, mean: np.ndarray, sd: np.ndarray) -> dict[str, float]:
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
    return _of_normals(dataset, fitted.predict(dataset.x_test), sd)


def _forest_of_numbers(dataset: Dataset, seed: int) -> dict[str, float]:
    from sklearn.ensemble import RandomForestRegressor

    forest = RandomForestRegressor(TREES, oob_score=True, random_state=seed, n_jobs=ALL_CORES)
    forest.fit(dataset.x_train, dataset.y_train)
    # Its own estimate of the error of new rows: by the trees that did not see each.
    sd = np.sqrt(np.mean((dataset.y_train - forest.oob_prediction_) ** 2))
    return _of_normals(dataset, forest.predict(dataset.x_test), sd)


def _process_of_numbers(dataset: Dataset, seed: int) -> dict[str, float]:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    kernel = ConstantKernel(1.0) * RBF(3.0, (0.1, 1_000.0)) + WhiteKernel(0.1, (1e-6, 10.0))
    process = GaussianProcessRegressor(kernel, random_state=seed, n_restarts_optimizer=2)
    mean, sd = process.fit(dataset.x_train, dataset.y_train).predict(
        dataset.x_test, return_std=True
    )
    return _of_normals(dataset, mean, sd)


BASELINES = {
    "class_probabilities": (
        Baseline("linear", "logistic regression", _classifier(_logistic)),
        Baseline("forest", "random forest", _classifier(_forest_of_classes)),
        Baseline("process", "Gaussian process", _process_of_classes, MOST_ROWS),
    ),
    "density": (
        Baseline("linear", "ridge regression", _ridge),
        Baseline("forest", "random forest", _forest_of_numbers),
        Baseline("process", "Gaussian process", _process_of_numbers, MOST_ROWS),
    ),
}
"""Methods by what is predicted, as records name it."""

KEYS = tuple(method.key for method in BASELINES["density"])
"""What methods are asked for by."""
