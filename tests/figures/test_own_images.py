"""A user's images beside what one network or two say of them."""

from pathlib import Path

import numpy as np
import pytest

from pmbnn.data.digits import UserImage
from pmbnn.figures import style
from pmbnn.figures.classification import Predictions
from pmbnn.figures.image_sheets import plot_own_images
from pmbnn.prediction.class_probabilities import Threshold

CLASSES = ("0", "1", "2")
LETTERS = ("a", "b", "c")
RNG = np.random.default_rng(0)


def image(name, shape, inverted):
    original = RNG.integers(256, size=shape).astype(np.uint8)
    return UserImage(
        Path("folder") / name, original, RNG.random(shape[:2]), inverted, RNG.random((28, 28))
    )


@pytest.fixture(scope="module")
def figure():
    images = [image("$colour$.png", (40, 30, 3), True), image("grey.png", (20, 30), False)]
    p, sd = np.array([[0.1, 0.1, 0.8], [0.8, 0.1, 0.1]]), np.repeat([[0.05], [0.3]], 3, axis=1)
    threshold = Threshold(0.2, 99, "test_predictions", 10)
    return plot_own_images(images, [Predictions(CLASSES, p, sd)], threshold, "T")


def test_a_row_for_each_image(figure):
    assert len(figure.axes) == 8
    shown = [axes.images[0].get_array().shape for axes in figure.axes if axes.images]
    assert shown == [(40, 30, 3), (40, 30), (28, 28), (20, 30), (20, 30), (28, 28)]
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[:3] == ["$colour$.png", "grey", "28 × 28, inverted"]
    assert titles[4:7] == ["grey.png", "grey", "28 × 28, as it is"]


def test_bars_with_errors(figure):
    bars, errors = figure.axes[3].containers[1], figure.axes[3].containers[0]
    assert [bar.get_height() for bar in bars] == [0.1, 0.1, 0.8]
    [lines] = errors.lines[2]
    np.testing.assert_allclose([np.ptp(line[:, 1]) for line in lines.get_segments()], 0.1)
    assert [label.get_text() for label in figure.axes[3].get_xticklabels()] == list(CLASSES)


def test_rejected_images_are_marked(figure):
    accepted, rejected = figure.axes[3].title, figure.axes[7].title
    assert accepted.get_text() == "2: 0.80 ± 0.05, entropy 0.92 bits"
    assert rejected.get_text() == "rejected: class 0 at 0.80 ± 0.30, entropy 0.92 bits"
    assert (accepted.get_color(), rejected.get_color()) == (style.ACCEPTED, style.REJECTED)


def test_it_becomes_a_file(figure, tmp_path):
    style.save_figure(figure, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 5_000


# Two networks


DRAWS = RNG.dirichlet(np.ones(3), size=(30, 2))
BAYESIAN = Predictions(LETTERS, DRAWS.mean(axis=0), DRAWS.std(axis=0))
DETERMINISTIC = Predictions(LETTERS, DRAWS[0], np.zeros((2, 3)))


def draw(threshold=None):
    images = [image(name, (40, 30, 3), True) for name in ("2.png", "house.png")]
    return plot_own_images(images, [BAYESIAN, DETERMINISTIC], threshold, "T")


def heights(axes):
    return [bar.get_height() for bar in axes.patches]


def test_three_images_and_both_networks_in_a_row():
    panels = np.array(draw().axes).reshape(2, 5)
    shapes = [axes.images[0].get_array().shape for axes in panels[0, :3]]
    assert shapes == [(40, 30, 3), (40, 30), (28, 28)]
    assert [line[0].get_title() for line in panels] == ["2.png", "house.png"]
    for row, line in enumerate(panels):
        np.testing.assert_allclose(heights(line[3]), DRAWS[:, row].mean(axis=0))
        np.testing.assert_allclose(heights(line[4]), DRAWS[0, row])


def test_sds_are_drawn_for_the_bayesian_network_only():
    panels = np.array(draw().axes).reshape(2, 5)
    (lines,) = panels[1, 3].containers[0].lines[2]
    lengths = [np.ptp(line[:, 1]) for line in lines.get_segments()]
    np.testing.assert_allclose(lengths, 2 * DRAWS[:, 1].std(axis=0))
    assert len(panels[1, 4].containers) == 1


def test_titles_name_the_network_and_its_answer():
    panels = np.array(draw().axes).reshape(2, 5)
    for axes, heading, p, spread in (
        (panels[0, 3], "Bayesian", DRAWS[:, 0].mean(axis=0), DRAWS[:, 0].std(axis=0)),
        (panels[0, 4], "deterministic", DRAWS[0, 0], None),
    ):
        sd = "" if spread is None else f" ± {spread[p.argmax()]:.2f}"
        entropy = -np.sum(p * np.log2(p))
        answer = f"{LETTERS[p.argmax()]}: {p.max():.2f}{sd}, entropy {entropy:.2f} bits"
        assert axes.get_title() == f"{heading}\n{answer}"


@pytest.mark.parametrize(("limit", "colour"), [(0.0, style.REJECTED), (1.0, style.ACCEPTED)])
def test_only_the_bayesian_network_rejects(limit, colour):
    panels = np.array(draw(Threshold(limit, 99, "test_predictions", 9)).axes).reshape(2, 5)
    for line in panels:
        assert line[3].title.get_color() == colour
        assert line[4].title.get_color() == style.ACCEPTED
        assert ("rejected" in line[3].get_title()) == (limit == 0)
