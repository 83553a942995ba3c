"""Rows set aside by a sweep: the conformal intervals of its tables, and who may see the rows."""

import numpy as np
import pytest

import pmbnn as pb
from pmbnn.prediction.conformal import conformal_quantile
from pmbnn.results.loading import restore_cell

pytestmark = pytest.mark.slow


def test_intervals_of_a_table_are_those_of_the_stored_posterior(tmp_path):
    """In the units of the target; the multiple is from rows that no fit and no choice has seen."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(240, 2))
    y = 50 + 20 * x[:, 0] + rng.standard_t(3, size=240) * 10
    data = pb.Dataset.from_arrays(x, y, calibration=0.25)
    sweep = {
        "name": "numbers",
        "dataset": data,
        "network": {"kind": "dense", "hidden": [[3]]},
        "prior": "normal",
        "hyperprior": {"kind": "fixed", "scale": {"tune": {"log": [0.3, 3, 2]}}},
        "inference": {"steps": 300, "restarts": 1},
        "predict": {"draws": 20, "trace_draws": 4, "map": {"resolution": 4, "draws": 2}},
    }
    results = pb.run({"name": "toy", "sweeps": [sweep]}, out=tmp_path, workers=1, quiet=True)
    cell = results.cell()
    found = cell.record.results
    assert len(data.y_train) == 144 and len(data.y_validation) == 48
    assert cell.trace["constant_data"].sizes["observation"] == 144
    posterior, undo = restore_cell(cell), data.standardisation.undo
    aside, test = (posterior.predict(undo(part)) for part in (data.x_validation, data.x_test))
    scores = np.abs(data.raw_targets(data.y_validation) - aside.mean) / aside.total_sd
    reach = conformal_quantile(scores, 0.95) * test.total_sd
    covered = np.abs(data.raw_targets(data.y_test) - test.mean) <= reach
    assert found["conformal_coverage_95"] == pytest.approx(covered.mean())
    assert found["conformal_width_95"] == pytest.approx(2 * reach.mean(), rel=1e-4)
    low, high = test.total_interval
    assert found["width_95"] == pytest.approx((high - low).mean(), rel=1e-4)
    assert 20 < found["width_95"] < 200
