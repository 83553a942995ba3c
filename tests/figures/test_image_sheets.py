"""Sheets of held-out images."""

import numpy as np
import pytest
import xarray as xr
from matplotlib.backends.backend_agg import FigureCanvasAgg
from tiers import slow_but

from pmbnn.figures.image_sheets import (
    WRONG,
    confident_mistakes,
    group_with_images,
    kept_images,
    least_confident,
    most_uncertain,
    plot_confident_mistakes,
    plot_least_confident,
    plot_most_uncertain,
)

TITLE = "MNIST: Normal prior, half-normal hyperprior, accuracy 0.925"


@pytest.fixture(scope="module")
def trace(made):
    return made.small_image_trace()


def titles(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_images_carry_what_the_trace_says_of_them(trace):
    test = trace["test_predictions"].dataset
    found = kept_images(trace)
    assert [image.row for image in found] == test["image_index"].values.tolist()
    for image, pixels in zip(found, test["image"].values, strict=True):
        p, sd = (test[name].values[image.row] for name in ("probability", "sd"))
        np.testing.assert_array_equal(image.pixels, 255 - pixels, "dark on white paper")
        assert image.true == str(test["label"].values[image.row])
        assert image.predicted == str(p.argmax())
        assert (image.probability, image.sd) == (p.max(), sd[p.argmax()])
        assert image.error_rate == test["error_rate"].values[image.row]
        assert image.right == (p.argmax() == test["label"].values[image.row])


def test_the_predicted_class_is_the_most_probable_not_the_most_uncertain(trace):
    test = trace["test_predictions"].dataset
    turned = test.assign(sd=(test["sd"].dims, 0.5 - test["sd"].values))
    after = kept_images(xr.DataTree.from_dict({"/test_predictions": turned}))
    for one, other in zip(kept_images(trace), after, strict=True):
        assert other.predicted == one.predicted
        assert other.sd == pytest.approx(0.5 - one.sd)


def test_the_order_in_which_they_are_stored_does_not_matter(trace):
    test = trace["test_predictions"].dataset
    turned = test.isel(image=slice(None, None, -1)).transpose(..., "test_observation")
    after = kept_images(xr.DataTree.from_dict({"/test_predictions": turned}))
    for one, other in zip(kept_images(trace), after, strict=True):
        assert one[:1] + one[2:] == other[:1] + other[2:]
        np.testing.assert_array_equal(one.pixels, other.pixels)


def test_validation_images_are_preferred_if_they_have_pixels(trace):
    test = trace["test_predictions"].to_dataset()
    without = test.drop_vars(["image", "image_index"])
    for held_out, expected in ((test, "validation_predictions"), (without, "test_predictions")):
        groups = {"/test_predictions": test, "/validation_predictions": held_out}
        assert group_with_images(xr.DataTree.from_dict(groups)) == expected
    assert group_with_images(trace) == "test_predictions"


def test_images_of_another_group(trace):
    turned = trace["test_predictions"].to_dataset().isel(test_observation=slice(None, None, -1))
    groups = {"/validation_predictions": turned}
    (first, *_) = kept_images(xr.DataTree.from_dict(groups), "validation_predictions")
    p = turned["probability"].values[first.row]
    assert (first.predicted, first.probability) == (str(p.argmax()), p.max())


def test_a_trace_without_the_group_is_rejected():
    with pytest.raises(ValueError, match="must have a group `test_predictions`, got none"):
        kept_images(xr.DataTree())


# Most uncertain


def test_the_most_uncertain_of_all_rows_in_order(trace):
    test = trace["test_predictions"].dataset
    p, sd = test["probability"].values, test["sd"].values
    uncertainty = sd[np.arange(len(p)), p.argmax(axis=1)]
    expected = np.argsort(-uncertainty, kind="stable")[:20]
    assert [image.row for image in most_uncertain(trace)] == expected.tolist()
    assert len(test["image_index"]) > 20, "others are kept as well"


def test_a_panel_for_every_image(trace):
    figure = plot_most_uncertain(trace, TITLE)
    (paper,) = figure.axes
    assert len(paper.images) == 20
    for drawn, text, image in zip(paper.images, titles(figure), most_uncertain(trace), strict=True):
        np.testing.assert_array_equal(drawn.get_array(), image.pixels)
        assert drawn.get_clim() == (0, 255)
        assert f"true {image.true}, predicted {image.predicted}" in text
        assert f"{image.probability:.2f} ± {image.sd:.2f}" in text


def test_wrong_predictions_are_marked_by_word_and_colour(trace):
    right = [image.right for image in most_uncertain(trace)]
    marked = plot_most_uncertain(trace, TITLE).axes[0].texts
    assert ["(wrong)" not in title.get_text() for title in marked] == right
    assert [title.get_color() != WRONG for title in marked] == right
    assert 0 < sum(right) < 20


def test_fewer_images_leave_no_frames(trace, words):
    test = trace["test_predictions"].dataset.isel(image=slice(7))
    figure = plot_most_uncertain(type(trace).from_dict({"/test_predictions": test}), TITLE)
    assert len(figure.axes[0].images) == 7
    assert not figure.axes[0].axison
    assert any("the 7 most uncertain test images" in word for word in words(figure))


@pytest.mark.parametrize("plot", [plot_most_uncertain, plot_least_confident])
@pytest.mark.parametrize(
    "name", slow_but(["a long name of class {}"], ["{}", "a long name of class {}"])
)
def test_nothing_on_a_sheet_covers_anything_else(trace, plot, name):
    test = trace["test_predictions"].to_dataset()
    named = test.assign_coords(output=[name.format(one) for one in test["output"].values])
    figure = plot(xr.DataTree.from_dict({"/test_predictions": named}), TITLE)
    FigureCanvasAgg(figure).draw()
    shown = [*figure.axes[0].images, *figure.axes[0].texts, *figure.texts]
    boxes = [one.get_window_extent() for one in shown]
    for number, box in enumerate(boxes):
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1
        assert not any(box.overlaps(other) for other in boxes[:number])


def test_title_of_the_most_uncertain(trace):
    assert " ".join(plot_most_uncertain(trace, TITLE).get_suptitle().split()).startswith(TITLE)


# Least confident


def test_the_least_confident_of_all_rows_in_order(trace):
    p = trace["test_predictions"]["probability"].values
    expected = np.argsort(p.max(axis=1), kind="stable")[:24]
    assert [image.row for image in least_confident(trace)] == expected.tolist()


def test_each_is_shown_with_both_classes_and_the_probability(trace, words):
    figure = plot_least_confident(trace, TITLE)
    (paper,) = figure.axes
    shown = zip(paper.images, titles(figure), least_confident(trace), strict=True)
    for drawn, text, image in shown:
        np.testing.assert_array_equal(drawn.get_array(), image.pixels)
        wrong = "" if image.right else " (wrong)"
        expected = f"{image.true}, called {image.predicted}{wrong}\n{image.probability:.2f}"
        assert text == expected
    assert any("the 24 test images of lowest confidence" in word for word in words(figure))


def test_least_confident_validation_images_are_shown_where_they_are_kept(trace, made, words):
    held_out = made.small_image_trace(seed=1)["test_predictions"].to_dataset()
    held_out = held_out.rename(test_observation="validation_observation")
    both = made.both(trace, xr.DataTree.from_dict({"/validation_predictions": held_out}))
    expected = np.argsort(held_out["probability"].values.max(axis=1), kind="stable")[:24]
    assert [image.row for image in least_confident(both)] == expected.tolist()
    shown = words(plot_least_confident(both, TITLE))
    assert any("the 24 validation images of lowest confidence" in word for word in shown)


# Confident mistakes


@pytest.fixture
def build():
    """Trace of images of two classes from right or wrong, error rate and probability."""

    def of(right, rate, probability, kept=None, rows="test"):
        kept = np.arange(len(right)) if kept is None else np.asarray(kept)
        p = np.asarray(probability)
        axes = (f"{rows}_observation",)
        arrays = {
            "probability": ((*axes, "output"), np.stack([p, 1 - p], axis=1)),
            "sd": ((*axes, "output"), np.zeros((len(p), 2))),
            "error_rate": (axes, np.asarray(rate, "f4")),
            "label": (axes, np.where(right, 0, 1)),
            "image_index": ("image", kept),
            "image": (("image", "row", "column"), np.zeros((len(kept), 3, 3), "u1")),
        }
        group = xr.Dataset(arrays, {"output": ["a", "b"]})
        return xr.DataTree.from_dict({f"/{rows}_predictions": group})

    return of


def note(figure):
    return " ".join(figure.get_suptitle().splitlines()[1:])


def test_only_mistakes_of_rate_zero_the_most_probable_first(build):
    right = [True, False, False, False, True]
    trace = build(right, [0, 0, 0.1, 0, 0.2], [0.9, 0.7, 0.8, 0.99, 0.6])
    assert [image.row for image in confident_mistakes(trace)] == [3, 1]
    figure = plot_confident_mistakes(trace, TITLE)
    assert titles(figure) == ["b → a\nprobability 0.99", "b → a\nprobability 0.70"]
    assert note(figure).startswith("2 of 3 misclassified test images have an expected error rate")


def test_mistaken_validation_images_are_shown_where_they_are_kept(build, made):
    test = build([False] * 5, [0] * 5, [0.9] * 5)
    held_out = build([True, False, False], [0, 0, 0], [0.9, 0.7, 0.8], rows="validation")
    trace = made.both(test, held_out)
    assert [image.row for image in confident_mistakes(trace)] == [2, 1]
    figure = plot_confident_mistakes(trace, TITLE)
    assert len(figure.axes[0].images) == 2
    assert note(figure).startswith("2 of 2 misclassified validation images")


def test_of_validation_images_without_pixels_nothing_is_shown(build, made):
    test = build([False] * 5, [0] * 5, [0.9] * 5)
    held_out = build([False] * 3, [0] * 3, [0.8] * 3, rows="validation")
    bare = held_out["validation_predictions"].to_dataset().drop_vars(["image", "image_index"])
    trace = made.both(test, xr.DataTree.from_dict({"/validation_predictions": bare}))
    figure = plot_confident_mistakes(trace, TITLE)
    assert note(figure).startswith("5 of 5 misclassified test images")


def test_more_than_are_shown(build):
    trace = build([False] * 30, [0] * 30, [0.9] * 30, kept=range(26))
    figure = plot_confident_mistakes(trace, TITLE)
    assert len(figure.axes[0].images) == 24
    assert "30 of 30 misclassified" in note(figure)
    assert "(24 shown)" in note(figure)


def test_without_any_of_rate_zero_the_lowest_are_shown_and_words_say_so(build):
    trace = build([False, False, True], [0.2, 0.05, 0], [0.7, 0.9, 0.9])
    figure = plot_confident_mistakes(trace, TITLE)
    assert [image.row for image in confident_mistakes(trace)] == [1, 0]
    assert titles(figure)[0] == "b → a\nprobability 0.90, rate 0.05"
    assert note(figure) == (
        "none of 2 misclassified test images has an expected error rate of zero; "
        "shown are the 2 with the lowest"
    )


def test_without_any_mistake(build, words):
    figure = plot_confident_mistakes(build([True, True], [0, 0.1], [0.9, 0.8]), TITLE)
    assert not any(axes.images for axes in figure.axes)
    assert "no misclassified image is kept" in words(figure)
    assert note(figure).startswith("none of 0 misclassified test images")


def test_real_digits(full):
    test = full["test_predictions"].dataset
    wrong = test["probability"].values.argmax(axis=1) != test["label"].values
    lowest = test["error_rate"].values[wrong].min()
    shown = confident_mistakes(full)
    assert not any(image.right for image in shown)
    assert shown[0].error_rate == lowest


@pytest.mark.parametrize(
    "plot", [plot_most_uncertain, plot_least_confident, plot_confident_mistakes]
)
def test_a_trace_without_images_is_rejected(made, plot):
    with pytest.raises(ValueError, match="`test_predictions` must have `image`"):
        plot(made.plane_trace(resolution=(3, 3)), TITLE)
