"""Two networks' answers to the same pictures."""

from pathlib import Path

import numpy as np
import pytest

from pmbnn.classification import Threshold, classify
from pmbnn.figures.compared import plot_compared_predictions
from pmbnn.figures.pictures import ACCEPTED, REFUSED
from pmbnn.pictures import Picture

CLASSES = ("a", "b", "c")
RNG = np.random.default_rng(0)
DRAWS = RNG.dirichlet(np.ones(3), size=(30, 2))
BAYESIAN = classify(DRAWS, np.full(30, 1 / 30))
DETERMINISTIC = classify(DRAWS[:1], np.ones(1))


def picture(name):
    original = RNG.integers(256, size=(40, 30, 3)).astype(np.uint8)
    return Picture(Path(name), original, RNG.random((40, 30)), True, RNG.random((28, 28)))


def draw(threshold=None):
    pictures = [picture("2.png"), picture("house.png")]
    return plot_compared_predictions(pictures, BAYESIAN, DETERMINISTIC, CLASSES, "T", threshold)


def heights(axes):
    return [bar.get_height() for bar in axes.patches]


def test_three_pictures_and_both_networks_in_a_row():
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
    found, sure = BAYESIAN[0], DETERMINISTIC[0]
    best, name = found.probability.max(), CLASSES[found.predicted]
    assert panels[0, 3].get_title() == (
        f"Bayesian\n{name}: {best:.2f} ± {found.uncertainty:.2f}, entropy {found.entropy:.2f} bits"
    )
    assert panels[0, 4].get_title() == (
        f"deterministic\n{CLASSES[sure.predicted]}: {sure.probability.max():.2f}, "
        f"entropy {sure.entropy:.2f} bits"
    )


@pytest.mark.parametrize(("limit", "colour"), [(0.0, REFUSED), (1.0, ACCEPTED)])
def test_only_the_bayesian_network_refuses(limit, colour):
    panels = np.array(draw(Threshold(limit, 99, "test_predictions", 9)).axes).reshape(2, 5)
    for line in panels:
        assert line[3].title.get_color() == colour
        assert line[4].title.get_color() == ACCEPTED
        assert ("refused" in line[3].get_title()) == (limit == 0)
