"""Predictions of a stored cell for rows of a table that it was not fitted on."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

from pmbnn.core.errors import check_whole
from pmbnn.data.frames import inputs_of_frame
from pmbnn.data.raw import Encoder
from pmbnn.experiment.plugins import trusting
from pmbnn.experiment.selection import select_cells
from pmbnn.models.likelihoods import TARGET_NAME
from pmbnn.prediction.class_probabilities import ClassProbabilities, Predictive
from pmbnn.prediction.density import Density
from pmbnn.results.loading import ExperimentResults, StoredCell, open_cell
from pmbnn.results.names import (
    best_group,
    dataset_label,
    distinct_names,
    group_by_settings,
    settings_row,
)
from pmbnn.results.present import ResultsError, counted
from pmbnn.results.record import finite
from pmbnn.results.specifications import stored_specifications
from pmbnn.results.tables import union_of_names

DRAWS = 200
"""Posterior draws of each restart, unless another number is asked for."""


def choose_cell(
    results: ExperimentResults, best: bool = False, only: Sequence[str] = ()
) -> StoredCell:
    """One cell of a results folder to predict with, that of the first data seed.

    Parameters
    ----------
    best
        Whether to take the combination with the lowest mean held-out score.
    only
        Conditions on the cells, as ``["prior=laplace"]``.

    Raises
    ------
    ConfigError
        If no cell meets the conditions.
    ResultsError
        If there are several combinations, or none has a held-out score; or if the best is asked for
        of several data sets.
    """
    chosen = set(select_cells([record.cell for record in results.records], only))
    records = [record for record in results.records if record.cell in chosen and record.results]
    groups, folder = group_by_settings(records), results.results.folder
    if best and len(groups) > 1:
        datasets = [record.cell.without_seeds.dataset for record in records]
        if len(names := distinct_names(datasets, dataset_label)) > 1:
            raise ResultsError(
                f"`{folder}` has cells of several data sets ({', '.join(names.values())}), whose "
                "scores do not compare: choose one with `--only dataset.KEY=VALUE`."
            )
        groups = [group for group in [best_group(records)] if group]
        if not groups:
            raise ResultsError(
                f"`{folder}` has no best combination: no score of held-out training rows "
                "(inference.validation) is known of all its cells. Choose one with `--only`."
            )
    if len(groups) != 1:
        rows = [settings_row(group[0].cell.without_seeds) for group in groups]
        varying = [key for key in union_of_names(rows) if len({row.get(key) for row in rows}) > 1]
        differ = f", which differ in {', '.join(varying)}" if varying else ""
        raise ResultsError(
            f"`{folder}` has {counted(len(groups), 'combination')} to predict with{differ}: choose "
            "one with `--best`, or with `--only KEY=VALUE`."
        )
    (record, *_) = groups[0]
    return StoredCell(record, results.results.cells / record.name)


def predict_rows(
    cell: Path | str | StoredCell,
    rows: pd.DataFrame,
    draws: int = DRAWS,
    title: str = "rows",
    trust_plugins: bool = False,
    uncertainty: bool = False,
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
    uncertainty
        Whether to add the uncertainty of each observation and its parts.

    Returns
    -------
    pd.DataFrame
        A row for each of `rows`, with its index. Of classes: the ``predicted`` one, its mean
        ``probability``, the standard deviation of that over draws (``sd``), and a column
        ``probability_<class>`` for each. Of numbers, in the targets' units: ``mean``; ``sd`` and
        the central 95 % interval, ``low_95`` to ``high_95``, of what will be observed; and
        ``epistemic_sd``, of the function alone; where there are several targets, with the name of
        one before each. With `uncertainty` of both: ``uncertainty_total``, and its parts
        ``uncertainty_aleatoric`` and ``uncertainty_epistemic``, entropies in nats of classes, and
        variances in squared units of the target of numbers.

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
        posterior, encoder = cell.posterior, stored_encoder(cell)
    if not encoder.features:
        raise ResultsError(
            f"The cell `{cell.record.name}` was fitted on images: rows of a table are not for it."
        )
    x = inputs_of_frame(rows, encoder, title)
    test = cell.trace["test_predictions"].dataset
    return _table(posterior.predict(x, draws), test, rows.index, uncertainty)


PARTS = ("mean", "sd", "epistemic_sd", "low_95", "high_95")
"""Columns of the predictions of a number."""

UNCERTAINTY = "uncertainty_"
"""Prefix of the columns of its parts."""


def rounded(predictions: pd.DataFrame) -> pd.DataFrame:
    """Predictions of `predict_rows` to four digits.

    Probabilities have four decimals. Numbers have the decimals that four significant digits of the
    smallest standard deviation of their target need, and variances those that its square needs.
    """
    if "predicted" in predictions:
        return predictions.round(4)
    decimals = {}
    for name in predictions:
        if name.endswith("epistemic_sd"):
            prefix = name.removesuffix("epistemic_sd")
            sd = predictions[f"{prefix}sd"]
            smallest = sd[sd > 0].min()
            decimals |= {f"{prefix}{part}": _decimals(smallest) for part in PARTS}
            of_variance = _decimals(smallest**2)
            variances = [name for name in predictions if name.startswith(prefix + UNCERTAINTY)]
            decimals |= dict.fromkeys(variances, of_variance)
    return predictions.round(decimals)


def records_text(table: pd.DataFrame) -> str:
    """A table as a JSON list of its rows, with all digits; missing entries are null.

    That of pandas has ten decimals: of predictions in small units that is none.
    """
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    return json.dumps(finite(rows), indent=2, allow_nan=False, default=str) + "\n"


def _decimals(smallest: float) -> int:
    """Decimals of four significant digits."""
    return 4 if pd.isna(smallest) else max(0, 3 - math.floor(math.log10(smallest)))


def stored_encoder(cell: StoredCell) -> Encoder:
    """How columns of the table that a cell was fitted on became its inputs.

    Raises
    ------
    ResultsError, DataError
        As `restore_cell` does.
    """
    from pmbnn.results.restore import fitted_dataset

    kept, spec = cell.trace["constant_data"].dataset, cell.record.cell.dataset
    features, categories = tuple(map(str, cell.posterior.coords.get("feature", ()))), ()
    if "categories" in kept:
        categories = tuple(map(tuple, kept["categories"].values.astype(str).tolist()))
    elif any("=" in name for name in features):
        # Perhaps a category of a cell that was stored without them: its data have them.
        spec = stored_specifications(cell.folder, cell.record)["dataset"]
        categories = fitted_dataset(cell.record, spec).categories
    fill = kept["fill"].values if "fill" in kept else None
    if fill is None and getattr(spec, "missing", None) == "mean" and spec.standardise == "feature":
        fill = cell.posterior.origin.standardisation.mean  # stored without it
    return Encoder(features, categories, fill)


def _table(
    predictive: Predictive, test: xr.Dataset, index: pd.Index, uncertainty: bool
) -> pd.DataFrame:
    if isinstance(predictive, Density) and predictive.mean.ndim > 1:
        names = [str(name) for name in test[TARGET_NAME].values]
        targets = [predictive.of_target(i) for i in range(len(names))]
        parts = [_table(target, test, index, uncertainty) for target in targets]
        named = [part.add_prefix(f"{name}_") for name, part in zip(names, parts, strict=True)]
        return pd.concat(named, axis=1)
    if isinstance(predictive, ClassProbabilities):
        names = [str(name) for name in test["output"].values]
        columns = _class_columns(predictive, names, index)
    else:
        assert isinstance(predictive, Density)
        columns = _number_columns(predictive, index)
    further = predictive.uncertainty() if uncertainty else {}
    return columns.assign(**{f"{UNCERTAINTY}{name}": part for name, part in further.items()})


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
