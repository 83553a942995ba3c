"""A digit and letters."""

import numpy as np
import pytest

from pmbnn.classification import Threshold
from pmbnn.figures.letters import chosen_pictures, plot_letters, refused_letters
from pmbnn.figures.pictures import ACCEPTED, REFUSED

TITLE = "MNIST: a cell"


def uncertainty(group):
    p, sd = group["probability"].values, group["sd"].values
    return sd[np.arange(len(p)), p.argmax(axis=1)]


@pytest.fixture(scope="module")
def limit(full):
    return np.percentile(uncertainty(full["validation_predictions"]), 99)


def test_the_first_three_that_is_kept_and_the_letters(full):
    test = full["test_predictions"].dataset
    kept = test["image_index"].values
    first = kept[test["label"].values[kept] == 3].min()
    digit, *letters = chosen_pictures(full)
    assert digit.probability == test["probability"].values[first].max()
    assert [example.label for example in letters] == ["B", "A", "K", "X", "O", "S"]


def test_the_table_says_class_probability_sd_and_verdict(full, limit):
    axes = plot_letters(full, TITLE).axes[0]
    assert len(axes.images) == 7
    cells = {(round(t.get_position()[1], 1), t.get_text()): t for t in axes.texts}
    for row, example in enumerate(chosen_pictures(full)):
        np.testing.assert_array_equal(axes.images[row].get_array(), example.image)
        words = [example.predicted, f"{100 * example.probability:.0f} %", f"{example.sd:.2f}"]
        verdict = "refused" if example.sd > limit else "accepted"
        for word in (*words, verdict):
            assert (row + 0.5, word) in cells
        colour = REFUSED if verdict == "refused" else ACCEPTED
        assert cells[row + 0.5, verdict].get_color() == colour


def test_bars_are_the_shares_of_each_letter(full, limit):
    group = full["unfamiliar_letters"].dataset
    labels, refused = group["label"].values.astype(str), uncertainty(group) > limit
    axes = plot_letters(full, TITLE).axes[1]
    expected = [100 * refused[labels == name].mean() for name in np.unique(labels)]
    np.testing.assert_allclose([bar.get_width() for bar in axes.patches], expected)
    assert len(expected) == 26
    assert axes.get_title() == f"all letters: {100 * refused.mean():.1f} % refused"
    np.testing.assert_allclose(axes.lines[0].get_xdata(), 100 * refused.mean())


def test_shares_at_another_threshold(full):
    found = refused_letters(full, Threshold(-1.0, 0, "test_predictions", 1))
    assert set(found.values()) == {1.0}


def test_a_letter_that_is_not_kept_is_left_out(full):
    trace = full.copy()
    some = trace["unfamiliar_letters"].dataset.isel(example=slice(2))
    trace["unfamiliar_letters"] = type(trace)(some)
    assert [example.label for example in chosen_pictures(trace)] == ["3", "B", "A"]


def test_a_trace_without_letters_is_refused(made):
    with pytest.raises(ValueError, match="must have a group `unfamiliar_letters`"):
        plot_letters(made.small_image_trace(), TITLE)
