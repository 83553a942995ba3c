"""Examples of unfamiliar pictures."""

import numpy as np
import pytest

from pmbnn.figures.pictures import ACCEPTED, REFUSED
from pmbnn.figures.unfamiliar_examples import examples_of, plot_unfamiliar_examples

TITLE = "MNIST: a cell"


@pytest.fixture(scope="module")
def figure(full):
    return plot_unfamiliar_examples(full, TITLE)


def test_examples_carry_what_the_trace_says_of_them(full):
    group = full["unfamiliar_letters"].dataset
    found = examples_of(full, "unfamiliar_letters")
    assert [example.label for example in found] == list("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    for row, (example, image) in enumerate(zip(found, group["example_image"].values, strict=True)):
        p, sd = group["probability"].values[row], group["sd"].values[row]
        np.testing.assert_array_equal(example.image, image)
        assert example[2:] == (str(p.argmax()), p.max(), sd[p.argmax()])


def test_digits_are_named_by_their_class(full):
    labels = full["test_predictions"]["label"].values
    found = [example.label for example in examples_of(full, "test_predictions")]
    assert found == [str(label) for label in labels[:16]]


def test_the_first_digits_and_an_even_choice_of_the_rest(full, figure):
    panels = np.array(figure.axes).reshape(5, 8)
    shown = [[axes.images[0].get_array() for axes in line] for line in panels]
    np.testing.assert_array_equal(shown[0], full["test_predictions"]["example_image"][:8])
    letters = [axes.get_title()[0] for axes in panels[4]]
    assert letters == ["A", "E", "H", "L", "O", "S", "V", "Z"]


def test_what_is_above_the_threshold_is_marked_by_word_and_colour(full, figure):
    validation = full["validation_predictions"].dataset
    p, sd = (validation[name].values for name in ("probability", "sd"))
    limit = np.percentile(sd[np.arange(len(p)), p.argmax(axis=1)], 99)
    noise = examples_of(full, "unfamiliar_normal_noise")[0]
    title = figure.axes[8].title
    verdict = "refused" if noise.sd > limit else "accepted"
    assert title.get_text() == (
        f"→ {noise.predicted}\n{noise.probability:.2f} ± {noise.sd:.2f}\n{verdict}"
    )
    verdicts = {axes.get_title().split("\n")[2]: axes.title.get_color() for axes in figure.axes}
    assert verdicts == {"refused": REFUSED, "accepted": ACCEPTED}


def test_shares_are_of_all_pictures(full, words, figure):
    noise = full["unfamiliar_normal_noise"].dataset
    validation = full["validation_predictions"].dataset
    both = []
    for group in (validation, noise):
        p, sd = group["probability"].values, group["sd"].values
        both.append(sd[np.arange(len(p)), p.argmax(axis=1)])
    share = 100 * np.mean(both[1] > np.percentile(both[0], 99))
    assert f"normal noise {share:.1f} % refused" in words(figure)


def test_fewer_examples_leave_no_frames(full):
    trace = full.copy()
    few = trace["unfamiliar_letters"].dataset.isel(example=slice(3))
    trace["unfamiliar_letters"] = type(trace)(few)
    figure = plot_unfamiliar_examples(trace, TITLE)
    assert sum(bool(axes.images) for axes in figure.axes[-8:]) == 3
    assert not any(axes.axison for axes in figure.axes)


def test_a_trace_without_examples_is_refused(full):
    trace = full.copy()
    without = trace["unfamiliar_letters"].dataset.drop_vars("example_image")
    trace["unfamiliar_letters"] = type(trace)(without)
    with pytest.raises(ValueError, match="`unfamiliar_letters` must have `example_image`"):
        plot_unfamiliar_examples(trace, TITLE)
