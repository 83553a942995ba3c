"""Usual methods on the same rows: what a Bayesian network is to be held against.

Logistic or ridge regression with a penalty chosen by cross-validation, a random forest, and a
Gaussian process, all of scikit-learn, each fitted on the training rows of a data set as the cells
saw them and judged on its test rows by the same metrics.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from pmbnn.data import DataError
from pmbnn.data.arrays import Dataset
from pmbnn.models.likelihoods import NormalComponents
from pmbnn.prediction.density import Mixture, summarise
from pmbnn.prediction.metrics import classification_metrics, metrics_of
from pmbnn.results.record import CellRecord
from pmbnn.results.specifications import stored_specifications
from pmbnn.results.store import Results
from pmbnn.results.tables import (
    best_group,
    data_label,
    group_by_settings,
    mean_and_error,
    repetitions,
)
from pmbnn.results.titles import combination_title

MOST_ROWS = 3_000
"""Training rows up to which a Gaussian process is fitted: its time grows with their cube."""

KERNEL_ROWS = 300
"""Rows by which the kernels of a Gaussian process for classes are chosen."""

TREES = 500
"""Of a random forest."""

SHOWN = {
    "classes": ("accuracy", "nll", "brier_score", "expected_calibration_error"),
    "numbers": ("rmse", "nll", "crps", "coverage_90"),
}
"""Metrics of the table, by what the targets are."""

CHOSEN = "network chosen by held-out rows"
"""Method of the combination that stands for the cells: none is chosen by test rows."""


class Baseline(NamedTuple):
    """A usual method.

    Attributes
    ----------
    name
        In words.
    predict
        Metrics of its predictions for the test rows of a data set, by name.
    most
        Training rows that it is fitted on at most; None where there is no limit.
    """

    name: str
    predict: Callable[[Dataset, int], dict[str, float]]
    most: int | None = None


def baselines_table(
    results: Results, records: Sequence[CellRecord], went_on: Callable[[str], None] | None = None
) -> pd.DataFrame:
    """Baselines and cells of every data set, a row a method: means over data seeds.

    Parameters
    ----------
    records
        Of the cells.
    went_on
        Called with what is fitted next.

    Raises
    ------
    DataError
        If a data set is no longer available, or has several targets.
    """
    finished = [record for record in records if record.results]
    by_data: dict[str, list[CellRecord]] = {}
    for record in finished:
        by_data.setdefault(data_label(record), []).append(record)
    rows = []
    for label, own in by_data.items():
        rows += _rows(results, label, own, went_on or (lambda words: None))
    return pd.DataFrame(rows)


def _rows(results, label: str, records: Sequence[CellRecord], went_on) -> Iterator[dict]:
    datasets = _datasets(results, records)
    first = next(iter(datasets.values()))
    if first.target_names:
        raise DataError(
            f"{label}: baselines are of one target, got {', '.join(first.target_names)}."
        )
    names = SHOWN[first.training.targets]
    best = best_group(records)
    groups = [(CHOSEN, best)] if best else []
    groups += [(combination_title(group[0]), group) for group in group_by_settings(records)]
    for method, group in groups:
        means = {name: mean_and_error(repetitions(group, name), group[0].overlap) for name in names}
        yield _row(label, method, len(group), means) | {"combination": combination_title(group[0])}
    for baseline in BASELINES[first.training.targets]:
        if baseline.most is not None and len(first.x_train) > baseline.most:
            continue
        found = []
        for seed, dataset in datasets.items():
            went_on(f"{baseline.name}, {label}, data seed {seed}")
            found.append(baseline.predict(dataset, seed))
        means = {
            name: mean_and_error([one.get(name) for one in found], records[0].overlap)
            for name in names
        }
        yield _row(label, baseline.name, len(datasets), means)


def _row(label: str, method: str, seeds: int, means: Mapping[str, tuple[float, float]]) -> dict:
    row = {"data": label, "method": method, "seeds": seeds}
    for name, (mean, error) in means.items():
        row |= {name: mean, f"{name}_se": error}
    return row


def _datasets(results: Results, records: Sequence[CellRecord]) -> dict[int, Dataset]:
    """Data sets of the records by data seed, each loaded once."""
    found: dict[int, Dataset] = {}
    for record in records:
        seed = int(record.settings["dataset"].get("seed", 0))
        if seed not in found:
            specs = stored_specifications(results.cells / record.name, record)
            found[seed] = specs["dataset"].load()
    return found


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

    return RandomForestClassifier(TREES, random_state=seed)


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

    forest = RandomForestRegressor(TREES, oob_score=True, random_state=seed)
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
    "classes": (
        Baseline("logistic regression", _classifier(_logistic)),
        Baseline("random forest", _classifier(_forest_of_classes)),
        Baseline("Gaussian process", _process_of_classes, MOST_ROWS),
    ),
    "numbers": (
        Baseline("ridge regression", _ridge),
        Baseline("random forest", _forest_of_numbers),
        Baseline("Gaussian process", _process_of_numbers, MOST_ROWS),
    ),
}
"""Methods by what the targets are."""
