"""Groups of a trace that hold what a regression predicts."""

import xarray as xr

from pmbnn.datasets.rows import Dataset
from pmbnn.predictive import LEVEL, Prediction
from pmbnn.regression_evaluation import RegressionEvaluation

BOUNDS = ["low", "high"]


def regression_groups(evaluation: RegressionEvaluation, dataset: Dataset) -> dict[str, xr.Dataset]:
    """``test_predictions``, and ``curve_1``, ... over the ranges that curves are drawn on.

    Inputs are raw; ``output_interval`` is central in the network's output, ``total_interval``
    in what is observed, noise included; their probability is the attribute ``level``.
    """
    axis = "test_observation"
    arrays = prediction_arrays(evaluation.test, axis)
    raw = dataset.standardisation.undo(dataset.x_test)
    arrays |= {"x": ((axis, "feature"), raw), "target": (axis, dataset.y_test)}
    coords, attrs = {"bound": BOUNDS}, {"level": LEVEL}
    groups = {"test_predictions": xr.Dataset(arrays, coords, attrs)}
    for number, curve in enumerate(evaluation.curves, 1):
        arrays = prediction_arrays(curve.prediction, "point")
        arrays |= {"x": ("point", curve.x), "truth": ("point", curve.truth)}
        groups[f"curve_{number}"] = xr.Dataset(arrays, coords, attrs)
    return groups


def prediction_arrays(prediction: Prediction, axis: str) -> dict:
    """A prediction as variables over `axis`, in the targets' units."""
    by_row = ("mean", "epistemic_sd", "total_sd")
    return {name: (axis, getattr(prediction, name).astype("f4")) for name in by_row} | {
        name: (("bound", axis), getattr(prediction, name).astype("f4"))
        for name in ("output_interval", "total_interval")
    }
