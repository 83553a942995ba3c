"""A user's pictures beside what a network says of them."""

from pathlib import Path

import numpy as np
import pytest

from pmbnn.classification import Classification, Threshold
from pmbnn.figures.pictures import ACCEPTED, REFUSED, plot_pictures
from pmbnn.figures.style import save_figure
from pmbnn.pictures import Picture

CLASSES = ("0", "1", "2")
RNG = np.random.default_rng(0)


def picture(name, shape, inverted):
    original = RNG.integers(256, size=shape).astype(np.uint8)
    return Picture(
        Path("folder") / name, original, RNG.random(shape[:2]), inverted, RNG.random((28, 28))
    )


def classification(predicted, sd):
    p = np.full(3, 0.1)
    p[predicted] = 0.8
    return Classification(predicted, p, np.full(3, sd), 0.92, 0.1, 0.0)


@pytest.fixture(scope="module")
def figure():
    pictures = [picture("$colour$.png", (40, 30, 3), True), picture("grey.png", (20, 30), False)]
    found = [classification(2, 0.05), classification(0, 0.3)]
    return plot_pictures(pictures, found, Threshold(0.2, 99, "test_predictions", 10), CLASSES, "T")


def test_a_row_for_each_picture(figure):
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


def test_refused_pictures_are_marked(figure):
    accepted, refused = figure.axes[3].title, figure.axes[7].title
    assert accepted.get_text() == "2: 0.80 ± 0.05, entropy 0.92 bits"
    assert refused.get_text() == "refused: class 0 at 0.80 ± 0.30, entropy 0.92 bits"
    assert (accepted.get_color(), refused.get_color()) == (ACCEPTED, REFUSED)


def test_it_becomes_a_file(figure, tmp_path):
    save_figure(figure, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 5_000
