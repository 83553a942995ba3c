"""The threshold of uncertainty above which images are rejected."""

import numpy as np
import pytest
import xarray as xr

from pmbnn.prediction.class_probabilities import rejection_threshold


def trace(**groups):
    rng = np.random.default_rng(0)
    tree = {}
    for group, scale in groups.items():
        p = rng.dirichlet(np.ones(3), size=200)
        sd = np.where(p == p.max(axis=1, keepdims=True), scale * np.arange(200)[:, None], 9.0)
        axes = ("test_observation", "output")
        tree[f"/{group}"] = xr.Dataset({"probability": (axes, p), "sd": (axes, sd)})
    return xr.DataTree.from_dict(tree)


def test_the_threshold_is_a_percentile_of_the_predicted_classes():
    limit = rejection_threshold(trace(test_predictions=0.001), 90)
    assert limit.sd == pytest.approx(0.9 * 0.199)
    assert (limit.percentile, limit.group, limit.rows) == (90, "test_predictions", 200)


def test_validation_rows_come_first():
    limit = rejection_threshold(trace(test_predictions=0.001, validation_predictions=0.002), 50)
    assert limit.sd == pytest.approx(0.5 * 0.398)
    assert limit.group == "validation_predictions"


def test_a_trace_without_predictions():
    with pytest.raises(ValueError, match="must have one of the groups test_predictions, valid"):
        rejection_threshold(trace(), 99)
