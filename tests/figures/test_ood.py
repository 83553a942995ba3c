"""Out-of-distribution images."""

import math

import numpy as np
import pytest

from pmbnn.figures import style
from pmbnn.figures.ood import (
    chosen_examples,
    examples_of,
    plot_letters,
    plot_ood,
    plot_ood_examples,
    rejected_letters,
    scores_of,
)
from pmbnn.prediction.class_probabilities import Threshold

TITLE = "MNIST: a cell"
SETS = ["test digits", "normal noise", "uniform noise", "rotated 90", "letters"]


@pytest.fixture(scope="module")
def panels(full):
    return plot_ood(full, TITLE).axes


def scores(group):
    p, sd = group["probability"].values, group["sd"].values
    return group["entropy"].values / math.log(2), sd[np.arange(len(p)), p.argmax(axis=1)]


def groups(full):
    names = ["test_predictions", *(f"ood_{n.replace(' ', '_')}" for n in SETS[1:])]
    return [full[name].dataset for name in names]


def test_scores_in_bits_and_of_the_predicted_class(full):
    found = scores_of(full, "ood_letters")
    for one, other in zip(found.values(), scores(full["ood_letters"]), strict=True):
        np.testing.assert_allclose(one, other)


def test_curves_are_the_share_above(full, panels):
    for at, axes in enumerate(panels):
        for line, group in zip(axes.lines, groups(full), strict=False):
            values = scores(group)[at]
            for x, y in list(zip(*line.get_data(), strict=True))[1::37]:
                assert y == pytest.approx(100 * np.mean(values > x), abs=1e-6)
            assert line.get_ydata()[0] == 100
            assert line.get_ydata()[-1] == 0


def test_threshold_is_of_the_validation_digits(full, panels):
    validation = scores(full["validation_predictions"])
    for axes, values in zip(panels, validation, strict=True):
        limit = np.percentile(values, 99)
        np.testing.assert_allclose(axes.lines[-1].get_xdata(), limit)
        assert axes.texts[0].get_text() == f"{limit:.3g}"


def test_the_legend_gives_sizes_and_shares_above_the_threshold(full, panels):
    for at, axes in enumerate(panels):
        limit = np.percentile(scores(full["validation_predictions"])[at], 99)
        expected = [
            f"{name} ({group.sizes['test_observation' if i == 0 else 'ood_observation']}): "
            f"{100 * np.mean(scores(group)[at] > limit):.1f} % above"
            for i, (name, group) in enumerate(zip(SETS, groups(full), strict=True))
        ]
        assert [text.get_text() for text in axes.get_legend().get_texts()] == expected


def test_without_validation_rows_the_threshold_is_of_the_test_digits(full, words):
    trace = full.copy()
    del trace["validation_predictions"]
    figure = plot_ood(trace, TITLE)
    assert any("99th percentile of the test digits" in word for word in words(figure))


def test_one_network_has_no_spread(full, words):
    groups = {f"/{name}": group.dataset for name, group in full.children.items()}
    for name, group in groups.items():
        if "sd" in group:
            groups[name] = group.assign(sd=0 * group["sd"])
    figure = plot_ood(type(full).from_dict(groups), TITLE)
    assert "zero for every image: all draws are the same network" in words(figure)
    assert len(figure.axes[0].lines) == 6
    assert not figure.axes[1].lines


def test_a_trace_without_ood_images_is_rejected(made):
    with pytest.raises(ValueError, match="a group whose name starts with `ood_`"):
        plot_ood(made.small_image_trace(), TITLE)


# Examples


@pytest.fixture(scope="module")
def examples(full):
    return plot_ood_examples(full, TITLE)


def test_examples_carry_what_the_trace_says_of_them(full):
    group = full["ood_letters"].dataset
    found = examples_of(full, "ood_letters")
    assert [example.true for example in found] == list("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    for row, (example, pixels) in enumerate(zip(found, group["example_image"].values, strict=True)):
        p, sd = group["probability"].values[row], group["sd"].values[row]
        np.testing.assert_array_equal(example.pixels, 255 - pixels)
        assert example[3:6] == (str(p.argmax()), p.max(), sd[p.argmax()])


def test_digits_are_named_by_their_class(full):
    labels = full["test_predictions"]["label"].values
    found = [example.true for example in examples_of(full, "test_predictions")]
    assert found == [str(label) for label in labels[:16]]


def test_the_first_digits_and_an_even_choice_of_the_rest(full, examples):
    panels = np.array(examples.axes).reshape(5, 8)
    shown = [[axes.images[0].get_array() for axes in line] for line in panels]
    kept = full["test_predictions"]["example_image"].values[:8]
    np.testing.assert_array_equal(shown[0], 255 - kept)
    letters = [axes.get_title()[0] for axes in panels[4]]
    assert letters == ["A", "E", "H", "L", "O", "S", "V", "Z"]


def test_what_is_above_the_threshold_is_marked_by_word_and_colour(full, examples):
    validation = full["validation_predictions"].dataset
    p, sd = (validation[name].values for name in ("probability", "sd"))
    limit = np.percentile(sd[np.arange(len(p)), p.argmax(axis=1)], 99)
    noise = examples_of(full, "ood_normal_noise")[0]
    title = examples.axes[8].title
    verdict = "rejected" if noise.sd > limit else "accepted"
    assert title.get_text() == (
        f"→ {noise.predicted}\n{noise.probability:.2f} ± {noise.sd:.2f}\n{verdict}"
    )
    verdicts = {axes.get_title().split("\n")[2]: axes.title.get_color() for axes in examples.axes}
    assert verdicts == {"rejected": style.REJECTED, "accepted": style.ACCEPTED}


def test_shares_are_of_all_images(full, words, examples):
    noise = full["ood_normal_noise"].dataset
    validation = full["validation_predictions"].dataset
    both = []
    for group in (validation, noise):
        p, sd = group["probability"].values, group["sd"].values
        both.append(sd[np.arange(len(p)), p.argmax(axis=1)])
    share = 100 * np.mean(both[1] > np.percentile(both[0], 99))
    assert f"normal noise {share:.1f} % rejected" in words(examples)


def test_fewer_examples_leave_no_frames(full):
    trace = full.copy()
    few = trace["ood_letters"].dataset.isel(example=slice(3))
    trace["ood_letters"] = type(trace)(few)
    figure = plot_ood_examples(trace, TITLE)
    assert sum(bool(axes.images) for axes in figure.axes[-8:]) == 3
    assert not any(axes.axison for axes in figure.axes)


def test_a_trace_without_examples_is_rejected(full):
    trace = full.copy()
    without = trace["ood_letters"].dataset.drop_vars("example_image")
    trace["ood_letters"] = type(trace)(without)
    with pytest.raises(ValueError, match="`ood_letters` must have `example_image`"):
        plot_ood_examples(trace, TITLE)


# Letters


@pytest.fixture(scope="module")
def limit(full):
    return np.percentile(scores(full["validation_predictions"])[1], 99)


def test_the_first_three_that_is_kept_and_the_letters(full):
    test = full["test_predictions"].dataset
    kept = test["image_index"].values
    first = kept[test["label"].values[kept] == 3].min()
    digit, *letters = chosen_examples(full)
    assert digit.probability == test["probability"].values[first].max()
    assert [example.true for example in letters] == ["B", "A", "K", "X", "O", "S"]


def test_the_table_says_class_probability_sd_and_verdict(full, limit):
    axes = plot_letters(full, TITLE).axes[0]
    assert len(axes.images) == 7
    cells = {(round(t.get_position()[1], 1), t.get_text()): t for t in axes.texts}
    for row, example in enumerate(chosen_examples(full)):
        np.testing.assert_array_equal(axes.images[row].get_array(), example.pixels)
        words = [example.predicted, f"{100 * example.probability:.0f} %", f"{example.sd:.2f}"]
        verdict = "rejected" if example.sd > limit else "accepted"
        for word in (*words, verdict):
            assert (row + 0.5, word) in cells
        colour = style.REJECTED if verdict == "rejected" else style.ACCEPTED
        assert cells[row + 0.5, verdict].get_color() == colour


def test_bars_are_the_shares_of_each_letter(full, limit):
    group = full["ood_letters"].dataset
    labels, rejected = group["label"].values.astype(str), scores(group)[1] > limit
    axes = plot_letters(full, TITLE).axes[1]
    expected = [100 * rejected[labels == name].mean() for name in np.unique(labels)]
    np.testing.assert_allclose([bar.get_width() for bar in axes.patches], expected)
    assert len(expected) == 26
    assert axes.get_title() == f"all letters: {100 * rejected.mean():.1f} % rejected"
    np.testing.assert_allclose(axes.lines[0].get_xdata(), 100 * rejected.mean())


def test_shares_at_another_threshold(full):
    found = rejected_letters(full, Threshold(-1.0, 0, "test_predictions", 1))
    assert set(found.values()) == {1.0}


def test_a_letter_that_is_not_kept_is_left_out(full):
    trace = full.copy()
    some = trace["ood_letters"].dataset.isel(example=slice(2))
    trace["ood_letters"] = type(trace)(some)
    assert [example.true for example in chosen_examples(trace)] == ["3", "B", "A"]


def test_a_trace_without_letters_is_rejected(made):
    with pytest.raises(ValueError, match="must have a group `ood_letters`"):
        plot_letters(made.small_image_trace(), TITLE)
