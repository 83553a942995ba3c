"""The most uncertain pictures."""

import numpy as np
import pytest

from pmbnn.figures.gallery import most_uncertain, plot_gallery
from pmbnn.figures.picture_sheet import WRONG

TITLE = "MNIST: Normal prior, half-normal hyperprior, accuracy 0.925"


@pytest.fixture(scope="module")
def trace(made):
    return made.small_image_trace()


def test_the_most_uncertain_of_all_rows_in_order(trace):
    test = trace["test_predictions"].dataset
    p, sd = test["probability"].values, test["sd"].values
    uncertainty = sd[np.arange(len(p)), p.argmax(axis=1)]
    expected = np.argsort(-uncertainty, kind="stable")[:20]
    assert [picture.row for picture in most_uncertain(trace)] == expected.tolist()
    assert len(test["image_index"]) > 20, "others are kept as well"


def test_a_panel_for_every_picture(trace):
    figure = plot_gallery(trace, TITLE)
    shown = [axes for axes in figure.axes if axes.images]
    assert len(shown) == 20
    for axes, picture in zip(shown, most_uncertain(trace), strict=True):
        np.testing.assert_array_equal(axes.images[0].get_array(), picture.image)
        assert axes.images[0].get_clim() == (0, 255)
        assert f"true {picture.true}, predicted {picture.predicted}" in axes.get_title()
        assert f"{picture.probability:.2f} ± {picture.sd:.2f}" in axes.get_title()


def test_wrong_predictions_are_marked_by_word_and_colour(trace):
    right = [picture.right for picture in most_uncertain(trace)]
    marked = [axes.title for axes in plot_gallery(trace, TITLE).axes]
    assert ["(wrong)" not in title.get_text() for title in marked] == right
    assert [title.get_color() != WRONG for title in marked] == right
    assert 0 < sum(right) < 20


def test_fewer_pictures_leave_no_frames(trace, words):
    test = trace["test_predictions"].dataset.isel(image=slice(7))
    figure = plot_gallery(type(trace).from_dict({"/test_predictions": test}), TITLE)
    assert sum(bool(axes.images) for axes in figure.axes) == 7
    assert not any(axes.axison for axes in figure.axes)
    assert any("the 7 most uncertain test images" in word for word in words(figure))


def test_title(trace):
    assert " ".join(plot_gallery(trace, TITLE).get_suptitle().split()).startswith(TITLE)


def test_a_trace_without_pictures_is_refused(made):
    with pytest.raises(ValueError, match="`test_predictions` must have `image`"):
        plot_gallery(made.plane_trace(resolution=(3, 3)), TITLE)
