"""Log scores of the test rows of stored cells, and which rows these are."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from pmbnn.core.machine import running_on
from pmbnn.core.stages import on_progress
from pmbnn.prediction.class_probabilities import ClassProbabilities
from pmbnn.prediction.density import Density, row_log_density
from pmbnn.prediction.metrics import log_probability
from pmbnn.results.loading import StoredCell
from pmbnn.results.present import ResultsError
from pmbnn.results.reading import LOG_SCORE, load_arrays
from pmbnn.results.restore import fitted_dataset
from pmbnn.results.specifications import stored_specifications
from pmbnn.results.store import Results

GROUP = "test_predictions"

WANTED = {
    GROUP: f"{LOG_SCORE}|x|target|label|probability",
    "constant_data": "fill|standardisation_mean",
}
"""Arrays of a trace that are read."""

ROUNDING = 1e-4
"""Difference of a mean log score from the stored NLL that rounding may make, in nats or of it.

Predictions in single precision differ by less between two machines, and the smallest difference
that a contrast tells is a hundred times as large."""

ULPS = 16
"""Relative distance, in units of the last place, within which two inputs are the same number.

Inputs are standardised by the training rows of their split, and that is undone: they come back with
an error of up to 4 units of the largest input."""


class SplitRows(NamedTuple):
    """Test rows of a split: inputs ``(observation, feature)`` in units of the data, and targets.

    Inputs that were missing are not a number. ``target`` is ``(observation,)``, or
    ``(observation, target)`` of several. Inputs were stored less the ``mean`` of training rows,
    ``(feature,)``: their rounding errors are relative to the larger of the two.
    """

    x: np.ndarray
    target: np.ndarray
    mean: np.ndarray | float = 0.0


def log_scores(cell: StoredCell) -> np.ndarray:
    """Log-probability or log-density of each test row under a stored cell, ``(observation,)``.

    In nats, of targets in their own units. Their mean is minus the cell's ``nll``. Cells that were
    stored without them predict their test rows again.

    Raises
    ------
    ResultsError
        If their mean is not minus the stored ``nll``, or the cell cannot predict again.
    """
    record, trace = cell.record, _arrays(cell)
    group = trace[GROUP].dataset
    if LOG_SCORE in group:
        scores = group[LOG_SCORE].values.astype(np.float64)
    elif record.predictive == ClassProbabilities.key:
        probability = group["probability"].values.astype(np.float64)
        scores = log_probability(probability, group["label"].values)
    elif record.predictive == Density.key:
        scores = _predicted_again(cell, SplitRows(group["x"].values, group["target"].values))
    else:
        raise ResultsError(
            f"The cell `{record.name}` has no log scores of its test rows, and predictions of the "
            f"kind `{record.predictive}` are not made again: fit the experiment again."
        )
    nll, stored = -float(scores.mean()), record.results["nll"]
    if not abs(nll - stored) <= ROUNDING * max(1.0, abs(stored)):
        raise ResultsError(
            f"The cell `{record.name}` does not predict its test rows as it did: their mean NLL is "
            f"{nll:.6g}, the stored one {stored:.6g} nats. Fit the experiment again."
        )
    return scores


def rows_of_test(cell: StoredCell) -> SplitRows:
    """Test rows of a stored cell; its data set is loaded if its trace does not keep them.

    Raises
    ------
    DataError
        If the data set is needed and is not available, or has changed.
    ResultsError
        If its specification needs a plugin that is missing or has changed.
    """
    trace = _arrays(cell)
    group, constant = trace[GROUP].dataset, trace["constant_data"].dataset
    target = group["label" if "label" in group else "target"].values
    if "x" in group:
        x, fill = group["x"].values, constant["fill"].values if "fill" in constant else None
    else:
        spec = stored_specifications(cell.folder, cell.record, ["dataset"])["dataset"]
        dataset = fitted_dataset(cell.record, spec)
        raw = dataset.standardisation.undo(dataset.x_test)
        x, fill = raw.astype(dataset.x_test.dtype), dataset.fill
    if fill is not None:
        # Each split fills in the mean of its own training rows.
        x = np.where(np.abs(x - fill) <= _resolution(x), np.nan, x)
    mean = constant["standardisation_mean"].values if "standardisation_mean" in constant else 0.0
    return SplitRows(x, target, mean)


def row_numbers(splits: Sequence[SplitRows]) -> list[np.ndarray]:
    """Number of each test row among the different rows of several splits, ``(observation,)`` each.

    Rows with the same inputs and targets have one number, also if they are in one split.

    Raises
    ------
    ValueError
        If splits have different numbers of inputs.
    """
    target = np.concatenate([split.target.reshape(len(split.target), -1) for split in splits])
    codes = np.concatenate([np.concatenate(input_codes(splits)), _codes(target)], axis=1)
    _, numbers = np.unique(codes, axis=0, return_inverse=True)
    return np.split(numbers.ravel(), _ends(splits))


def input_codes(splits: Sequence[SplitRows]) -> list[np.ndarray]:
    """Whole numbers in place of inputs, in their order, ``(observation, feature)`` each.

    They are equal where inputs are but for rounding, in all splits, and -1 of missing inputs.

    Raises
    ------
    ValueError
        If splits have different numbers of inputs.
    """
    if len(widths := {split.x.shape[1] for split in splits}) > 1:
        raise ValueError(f"splits must have the same inputs, got {sorted(widths)} of them")
    mean = np.max([np.abs(split.mean) for split in splits], axis=0)
    return np.split(_codes(np.concatenate([split.x for split in splits]), mean), _ends(splits))


def _ends(splits: Sequence[SplitRows]) -> np.ndarray:
    """Numbers of rows before the second split, the third, ..."""
    return np.cumsum([len(split.target) for split in splits])[:-1]


def _arrays(cell: StoredCell) -> xr.DataTree:
    return load_arrays(Results(cell.folder.parent.parent), cell.record.name, WANTED)


def _predicted_again(cell: StoredCell, rows: SplitRows) -> np.ndarray:
    """Log-density of the targets by the mixture that the cell was evaluated by."""
    posterior = cell.posterior
    standardise = posterior.origin.target_standardisation
    sources, weights = [*posterior.sources.values()], [*posterior.weights.values()]
    x, target = posterior.standardised(rows.x), standardise(rows.target)
    # Not a stage of its own: there are many cells.
    with running_on(posterior.device), on_progress(lambda stages: None):
        by_row = row_log_density(
            posterior.predictor, sources, weights, posterior.data, x, target, posterior.n_draws
        )
    return by_row - standardise.log_scale


def _resolution(values: np.ndarray, mean: np.ndarray | float = 0.0) -> np.ndarray:
    """Distance within which numbers of each column are the same, ``(column,)``."""
    if values.dtype.kind != "f":
        return np.zeros(values.shape[1:])
    largest = np.max(np.abs(values), axis=0, initial=0, where=np.isfinite(values))
    return ULPS * np.finfo(values.dtype).eps * np.maximum(largest, mean)


def _codes(values: np.ndarray, mean: np.ndarray | float = 0.0) -> np.ndarray:
    """Whole numbers, equal where values of a column are but for rounding; -1 of missing ones."""
    order = np.argsort(values, axis=0)
    is_new = np.diff(np.take_along_axis(values, order, axis=0), axis=0) > _resolution(values, mean)
    codes = np.zeros(values.shape, dtype=np.int64)
    np.put_along_axis(codes, order[1:], np.cumsum(is_new, axis=0), axis=0)
    return np.where(np.isnan(values), -1, codes)
