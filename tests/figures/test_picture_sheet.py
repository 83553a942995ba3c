"""Pictures that a trace keeps."""

import numpy as np
import pytest
import xarray as xr

from pmbnn.figures.picture_sheet import kept_pictures, pictured_group


@pytest.fixture(scope="module")
def trace(made):
    return made.small_image_trace()


def test_pictures_carry_what_the_trace_says_of_them(trace):
    test = trace["test_predictions"].dataset
    found = kept_pictures(trace)
    assert [picture.row for picture in found] == test["image_index"].values.tolist()
    for picture, image in zip(found, test["image"].values, strict=True):
        p, sd = (test[name].values[picture.row] for name in ("probability", "sd"))
        np.testing.assert_array_equal(picture.image, image)
        assert picture.true == str(test["label"].values[picture.row])
        assert picture.predicted == str(p.argmax())
        assert (picture.probability, picture.sd) == (p.max(), sd[p.argmax()])
        assert picture.error_rate == test["error_rate"].values[picture.row]
        assert picture.right == (p.argmax() == test["label"].values[picture.row])


def test_the_predicted_class_is_the_most_probable_not_the_most_uncertain(trace):
    test = trace["test_predictions"].dataset
    turned = test.assign(sd=(test["sd"].dims, 0.5 - test["sd"].values))
    after = kept_pictures(xr.DataTree.from_dict({"/test_predictions": turned}))
    for one, other in zip(kept_pictures(trace), after, strict=True):
        assert other.predicted == one.predicted
        assert other.sd == pytest.approx(0.5 - one.sd)


def test_the_order_in_which_they_are_stored_does_not_matter(trace):
    test = trace["test_predictions"].dataset
    turned = test.isel(image=slice(None, None, -1)).transpose(..., "test_observation")
    after = kept_pictures(xr.DataTree.from_dict({"/test_predictions": turned}))
    for one, other in zip(kept_pictures(trace), after, strict=True):
        assert one[:1] + one[2:] == other[:1] + other[2:]
        np.testing.assert_array_equal(one.image, other.image)


def test_validation_images_are_preferred_if_they_have_pixels(trace):
    test = trace["test_predictions"].to_dataset()
    without = test.drop_vars(["image", "image_index"])
    for held_out, expected in ((test, "validation_predictions"), (without, "test_predictions")):
        groups = {"/test_predictions": test, "/validation_predictions": held_out}
        assert pictured_group(xr.DataTree.from_dict(groups)) == expected
    assert pictured_group(trace) == "test_predictions"


def test_pictures_of_another_group(trace):
    turned = trace["test_predictions"].to_dataset().isel(test_observation=slice(None, None, -1))
    groups = {"/validation_predictions": turned}
    (first, *_) = kept_pictures(xr.DataTree.from_dict(groups), "validation_predictions")
    p = turned["probability"].values[first.row]
    assert (first.predicted, first.probability) == (str(p.argmax()), p.max())


def test_a_trace_without_the_group_is_refused():
    with pytest.raises(ValueError, match="must have a group `test_predictions`, got none"):
        kept_pictures(xr.DataTree())
