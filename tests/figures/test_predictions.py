"""What a fit says of one group of images."""

import numpy as np
import pytest
import xarray as xr

from pmbnn.figures.classification import (
    held_out_group,
    ood_groups,
    predictions_of,
    rows_name,
)


@pytest.fixture(scope="module")
def trace():
    arrays = {"probability": [[0.2, 0.8], [0.6, 0.4]], "sd": [[0.1, 0.3], [0.05, 0.2]]}
    group = xr.Dataset({name: (("ood_observation", "output"), a) for name, a in arrays.items()})
    group = group.assign_coords(output=["a", "b"])
    return xr.DataTree.from_dict({"/test_predictions": group, "/ood_x_y": group})


def test_the_predicted_class_its_probability_and_its_sd(trace):
    found = predictions_of(trace, "test_predictions")
    assert found.classes == ("a", "b")
    assert found.predicted.tolist() == [1, 0]
    assert found.confidence.tolist() == [0.8, 0.6]
    assert found.uncertainty.tolist() == [0.3, 0.05]


def test_the_order_of_dimensions_does_not_matter(trace):
    turned = trace["test_predictions"].dataset.transpose("output", "ood_observation")
    found = predictions_of(xr.DataTree.from_dict({"/g": turned}), "g")
    np.testing.assert_array_equal(
        found.probability, predictions_of(trace, "test_predictions").probability
    )


def test_a_group_without_predictions_is_rejected(trace):
    trace = xr.DataTree.from_dict({"/g": trace["test_predictions"].dataset.drop_vars("sd")})
    with pytest.raises(ValueError, match="The group `g` must have `sd`"):
        predictions_of(trace, "g")


def test_validation_rows_come_first(trace):
    assert held_out_group(trace) == "test_predictions"
    group = trace["test_predictions"].dataset
    both = {"/test_predictions": group, "/validation_predictions": group}
    assert held_out_group(xr.DataTree.from_dict(both)) == "validation_predictions"
    with pytest.raises(ValueError, match="one of the groups test_pred.*, validation_pred"):
        held_out_group(xr.DataTree())


def test_ood_groups_and_their_names(trace):
    assert ood_groups(trace) == ["ood_x_y"]
    assert rows_name("ood_x_y") == "x y"
    assert rows_name("validation_predictions") == "validation"
    with pytest.raises(ValueError, match="a group whose name starts with `ood_`"):
        ood_groups(xr.DataTree())
