"""The most uncertain pictures."""

import numpy as np
import pytest

from pmbnn.figures.gallery import WRONG, pictures, plot_gallery

TITLE = "MNIST: Normal prior, half-normal hyperprior, accuracy 0.925"


@pytest.fixture(scope="module")
def trace(made):
    return made.small_image_trace()


def test_pictures_carry_what_the_trace_says_of_them(trace):
    test = trace["test_predictions"].dataset
    found = pictures(test)
    assert len(found) == 20
    for rank, row in enumerate(test["gallery_index"].values):
        probability = test["probability"].values[row]
        picture = found[rank]
        np.testing.assert_array_equal(picture.image, test["gallery_image"].values[rank])
        assert picture.true == str(test["label"].values[row])
        assert picture.predicted == str(probability.argmax())
        assert picture.probability == probability.max()
        assert picture.sd == test["sd"].values[row, probability.argmax()]


def test_the_predicted_class_is_the_most_probable_not_the_most_uncertain(trace):
    test = trace["test_predictions"].dataset
    reversed_sd = test.assign(sd=(test["sd"].dims, 0.5 - test["sd"].values))
    for before, after in zip(pictures(test), pictures(reversed_sd), strict=True):
        assert after.predicted == before.predicted
        assert after.sd == pytest.approx(0.5 - before.sd)


def test_a_panel_for_every_picture(trace):
    figure = plot_gallery(trace, TITLE)
    shown = [axes for axes in figure.axes if axes.images]
    assert len(shown) == 20
    for axes, picture in zip(shown, pictures(trace["test_predictions"].dataset), strict=True):
        np.testing.assert_array_equal(axes.images[0].get_array(), picture.image)
        assert axes.images[0].get_clim() == (0, 255)
        assert f"true {picture.true}, predicted {picture.predicted}" in axes.get_title()
        assert f"{picture.probability:.2f} ± {picture.sd:.2f}" in axes.get_title()


def test_wrong_predictions_are_marked_by_word_and_colour(trace):
    shown = pictures(trace["test_predictions"].dataset)
    marked = [axes.title for axes in plot_gallery(trace, TITLE).axes]
    right = [picture.true == picture.predicted for picture in shown]
    assert ["(wrong)" not in title.get_text() for title in marked] == right
    assert [title.get_color() != WRONG for title in marked] == right
    assert 0 < sum(right) < 20


def test_fewer_pictures_leave_no_frames(trace, words):
    test = trace["test_predictions"].dataset.isel(rank=slice(7))
    figure = plot_gallery(type(trace).from_dict({"/test_predictions": test}), TITLE)
    assert sum(bool(axes.images) for axes in figure.axes) == 7
    assert not any(axes.axison for axes in figure.axes)
    assert any("the 7 most uncertain test images" in word for word in words(figure))


def test_title(trace):
    assert " ".join(plot_gallery(trace, TITLE).get_suptitle().split()).startswith(TITLE)


def test_a_trace_without_pictures_is_refused(made):
    with pytest.raises(ValueError, match="must have `gallery_image`"):
        plot_gallery(made.plane_trace(resolution=(3, 3)), TITLE)
