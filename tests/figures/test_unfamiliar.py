"""Uncertainty of pictures of a kind that was never shown."""

import math

import numpy as np
import pytest

from pmbnn.figures.unfamiliar import plot_unfamiliar, scores_of

TITLE = "MNIST: a cell"
SETS = ["test digits", "normal noise", "uniform noise", "rotated 90", "letters"]


@pytest.fixture(scope="module")
def panels(full):
    return plot_unfamiliar(full, TITLE).axes


def scores(group):
    p, sd = group["probability"].values, group["sd"].values
    return group["entropy"].values / math.log(2), sd[np.arange(len(p)), p.argmax(axis=1)]


def groups(full):
    names = ["test_predictions", *(f"unfamiliar_{n.replace(' ', '_')}" for n in SETS[1:])]
    return [full[name].dataset for name in names]


def test_scores_in_bits_and_of_the_predicted_class(full):
    found = scores_of(full, "unfamiliar_letters")
    for one, other in zip(found.values(), scores(full["unfamiliar_letters"]), strict=True):
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
            f"{name} ({group.sizes['test_observation' if i == 0 else 'picture']}): "
            f"{100 * np.mean(scores(group)[at] > limit):.1f} % above"
            for i, (name, group) in enumerate(zip(SETS, groups(full), strict=True))
        ]
        assert [text.get_text() for text in axes.get_legend().get_texts()] == expected


def test_without_validation_rows_the_threshold_is_of_the_test_digits(full, words):
    trace = full.copy()
    del trace["validation_predictions"]
    figure = plot_unfamiliar(trace, TITLE)
    assert any("99th percentile of the test digits" in word for word in words(figure))


def test_one_network_has_no_spread(full, words):
    groups = {f"/{name}": group.dataset for name, group in full.children.items()}
    for name, group in groups.items():
        if "sd" in group:
            groups[name] = group.assign(sd=0 * group["sd"])
    figure = plot_unfamiliar(type(full).from_dict(groups), TITLE)
    assert "zero for every picture: all draws are the same network" in words(figure)
    assert len(figure.axes[0].lines) == 6
    assert not figure.axes[1].lines


def test_a_trace_without_unfamiliar_pictures_is_refused(made):
    with pytest.raises(ValueError, match="a group whose name starts with `unfamiliar_`"):
        plot_unfamiliar(made.small_image_trace(), TITLE)
