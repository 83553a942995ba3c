"""Mistakes that no draw expects."""

import numpy as np
import pytest
import xarray as xr

from pmbnn.figures.confident_mistakes import confident_mistakes, plot_confident_mistakes

TITLE = "MNIST: a cell"


@pytest.fixture
def build():
    """Trace of pictures of two classes from right or wrong, error rate and probability."""

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
    assert [picture.row for picture in confident_mistakes(trace)] == [3, 1]
    figure = plot_confident_mistakes(trace, TITLE)
    titles = [axes.get_title() for axes in figure.axes if axes.images]
    assert titles == ["b → a\nprobability 0.99", "b → a\nprobability 0.70"]
    assert note(figure).startswith("2 of 3 misclassified test images have an expected error rate")


def test_validation_images_are_shown_where_they_are_kept(build, made):
    test = build([False] * 5, [0] * 5, [0.9] * 5)
    held_out = build([True, False, False], [0, 0, 0], [0.9, 0.7, 0.8], rows="validation")
    trace = made.both(test, held_out)
    assert [picture.row for picture in confident_mistakes(trace)] == [2, 1]
    figure = plot_confident_mistakes(trace, TITLE)
    assert sum(bool(axes.images) for axes in figure.axes) == 2
    assert note(figure).startswith("2 of 2 misclassified validation images")


def test_of_validation_images_without_pixels_nothing_is_shown(build, made):
    """As in traces of earlier versions."""
    test = build([False] * 5, [0] * 5, [0.9] * 5)
    held_out = build([False] * 3, [0] * 3, [0.8] * 3, rows="validation")
    bare = held_out["validation_predictions"].to_dataset().drop_vars(["image", "image_index"])
    trace = made.both(test, xr.DataTree.from_dict({"/validation_predictions": bare}))
    figure = plot_confident_mistakes(trace, TITLE)
    assert note(figure).startswith("5 of 5 misclassified test images")


def test_more_than_are_shown(build):
    trace = build([False] * 30, [0] * 30, [0.9] * 30, kept=range(26))
    figure = plot_confident_mistakes(trace, TITLE)
    assert sum(bool(axes.images) for axes in figure.axes) == 24
    assert "30 of 30 misclassified" in note(figure)
    assert "(24 shown)" in note(figure)


def test_without_any_of_rate_zero_the_lowest_are_shown_and_words_say_so(build):
    trace = build([False, False, True], [0.2, 0.05, 0], [0.7, 0.9, 0.9])
    figure = plot_confident_mistakes(trace, TITLE)
    assert [picture.row for picture in confident_mistakes(trace)] == [1, 0]
    titles = [axes.get_title() for axes in figure.axes if axes.images]
    assert titles[0] == "b → a\nprobability 0.90, rate 0.05"
    assert note(figure) == (
        "none of 2 misclassified test images has an expected error rate of zero; "
        "shown are the 2 with the lowest"
    )


def test_without_any_mistake(build, words):
    figure = plot_confident_mistakes(build([True, True], [0, 0.1], [0.9, 0.8]), TITLE)
    assert not any(axes.images for axes in figure.axes)
    assert "no misclassified picture is kept" in words(figure)
    assert note(figure).startswith("none of 0 misclassified test images")


def test_real_digits(full):
    test = full["test_predictions"].dataset
    wrong = test["probability"].values.argmax(axis=1) != test["label"].values
    lowest = test["error_rate"].values[wrong].min()
    shown = confident_mistakes(full)
    assert not any(picture.right for picture in shown)
    assert shown[0].error_rate == lowest


def test_a_trace_without_pictures_is_refused(made):
    with pytest.raises(ValueError, match="`test_predictions` must have `image`"):
        plot_confident_mistakes(made.plane_trace(resolution=(3, 3)), TITLE)
