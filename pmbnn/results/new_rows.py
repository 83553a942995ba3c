"""Predictions of a stored cell for rows of a table that it was not fitted on."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

from pmbnn.core.errors import check_whole
from pmbnn.data.base import DatasetSpec
from pmbnn.data.frames import inputs_of_frame
from pmbnn.experiment.plugins import trusting
from pmbnn.models.likelihoods import TARGET_NAME
from pmbnn.prediction.class_probabilities import ClassProbabilities, Predictive
from pmbnn.prediction.density import Density
from pmbnn.results.loading import StoredCell, open_cell
from pmbnn.results.present import (
    ResultsError,
)

DRAWS = 200
"""Posterior draws of each restart, unless another number is asked for."""


def predict_rows(
    cell: Path | str | StoredCell,
    rows: pd.DataFrame,
    draws: int = DRAWS,
    title: str = "rows",
    trust_plugins: bool = False,
) -> pd.DataFrame:
    """Predictions of a stored cell for new rows.

    Parameters
    ----------
    cell
        A cell of `load_results`, as ``results.cell(prior="laplace")`` gives one; its folder,
        ``results/<experiment>/cells/<name>``.
    rows
        The columns that the network was fitted on, by their names and in their own units, in any
        order; columns of categories as they were before they were encoded. Others are passed over.
    draws
        Posterior draws of each restart; of each chain at most.
    title
        Name of the rows in messages.
    trust_plugins
        As that of `restore_cell`.

    Returns
    -------
    pd.DataFrame
        A row for each of `rows`, with its index. Of classes: the ``predicted`` one, its mean
        ``probability``, the standard deviation of that over draws (``sd``), and a column
        ``probability_<class>`` for each. Of numbers, in the targets' units: ``mean``; ``sd`` and
        the central 95 % interval, ``low_95`` to ``high_95``, of what will be observed; and
        ``epistemic_sd``, of the function alone; where there are several targets, with the name of
        one before each.

    Raises
    ------
    ResultsError
        If there is no such cell, it failed, or it was fitted on images.
    DataError
        If a column or a value is missing, or a value is not what it must be; the message names
        row and column.
    TypeError
        If `cell` or `rows` is something else.
    """
    if not isinstance(rows, pd.DataFrame):
        raise TypeError(f"`rows` must be a DataFrame, got {type(rows).__name__}.")
    cell, draws = open_cell(cell), check_whole(draws, "draws")
    with trusting(trust_plugins):
        posterior = cell.posterior
    features, dataset = posterior.coords.get("feature"), cell.record.cell.dataset
    if features is None:
        raise ResultsError(
            f"The cell `{cell.record.name}` was fitted on images: rows of a table are not for it."
        )
    x = inputs_of_frame(
        rows, features, _fill(dataset, posterior.origin.standardisation.mean), title
    )
    return _table(posterior.predict(x, draws), cell.trace["test_predictions"].dataset, rows.index)


def _fill(dataset: DatasetSpec, mean: np.ndarray) -> np.ndarray | None:
    """Values for missing inputs, where those of the training rows were filled in as well."""
    means_are_kept = getattr(dataset, "standardise", None) == "feature"
    return mean if means_are_kept and getattr(dataset, "missing", None) == "mean" else None


def _table(predictive: Predictive, test: xr.Dataset, index: pd.Index) -> pd.DataFrame:
    if isinstance(predictive, ClassProbabilities):
        return _class_columns(predictive, [str(name) for name in test["output"].values], index)
    assert isinstance(predictive, Density)
    if predictive.mean.ndim == 1:
        return _number_columns(predictive, index)
    names = [str(name) for name in test[TARGET_NAME].values]
    parts = [_number_columns(predictive.of_target(i), index) for i in range(len(names))]
    named = [part.add_prefix(f"{name}_") for name, part in zip(names, parts, strict=True)]
    return pd.concat(named, axis=1)


def _class_columns(
    predictive: ClassProbabilities, names: Sequence[str], index: pd.Index
) -> pd.DataFrame:
    columns = {
        "predicted": np.array(names, dtype=object)[predictive.predicted],
        "probability": predictive.mean.max(axis=1),
        "sd": predictive.predicted_sd,
    }
    each = {f"probability_{name}": predictive.mean[:, i] for i, name in enumerate(names)}
    return pd.DataFrame(columns | each, index)


def _number_columns(predictive: Density, index: pd.Index) -> pd.DataFrame:
    low, high = predictive.total_interval
    columns = {
        "mean": predictive.mean,
        "sd": predictive.total_sd,
        "epistemic_sd": predictive.epistemic_sd,
    }
    return pd.DataFrame(columns | {"low_95": low, "high_95": high}, index)
