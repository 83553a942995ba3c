"""Differences of ranks' distribution functions, with their bands."""

import numpy as np
import pytest

from pmbnn.calibration.figure import plot_calibration
from pmbnn.calibration.ranks import FAILED, rank_ecdfs


def test_a_panel_has_its_curve_and_band(made):
    stored = made.ranks("narrow")
    figure = plot_calibration(stored, "moons")
    uniform, narrow = rank_ecdfs(stored.ranks, stored.draws)
    for axes, curve in zip(figure.axes, (uniform, narrow), strict=True):
        (line,) = (one for one in axes.lines if len(one.get_xdata()) > 50)
        assert line.get_xdata()[1:-1] == pytest.approx(curve.rank)
        assert line.get_ydata()[1:-1] == pytest.approx(curve.difference)
        (band,) = axes.collections
        edges = band.get_paths()[0].vertices[:, 1]
        assert (edges.min(), edges.max()) == pytest.approx((curve.low.min(), curve.high.max()))


def test_verdicts_are_written(made, words):
    found = words(plot_calibration(made.ranks("narrow"), "moons, mean-field"))
    assert "probability of 0 at input 1 calibrated" in found
    assert "log-likelihood under-dispersed" in found
    assert "rank of the truth among 99 draws, as a fraction" in found
    (title,) = (text for text in found if text.startswith("moons, mean-field"))
    assert "truths from the prior: 300 simulations; band left by exact draws in 5%" in title


def test_what_diverged_is_counted(made, words):
    stored = made.ranks()
    lost = stored.followed_by(made.ranks(numbers=np.array([300]), ranks=np.full((1, 2), FAILED)))
    assert any("300 simulations, 1 more diverged" in text for text in words(
        plot_calibration(lost, "moons")
    ))  # fmt: skip
    with pytest.raises(ValueError, match="`ranks` must have one simulation"):
        plot_calibration(made.ranks(ranks=np.full((300, 2), FAILED)), "moons")


def test_empty_panels_are_off(made):
    stored = made.ranks()
    five = [stored.ranks[:, [0]]] * 5
    more = made.ranks(
        quantities=tuple(f"quantity {i}" for i in range(5)), ranks=np.concatenate(five, axis=1)
    )
    figure = plot_calibration(more, "moons")
    assert [axes.axison for axes in figure.axes] == [True] * 5 + [False] * 3
