"""Design of a grid."""

import numpy as np

from pmbnn.figures.combinations import combine
from pmbnn.figures.design import SCALES, WEIGHTS, plot_design


def panels(made, extra=()):
    grid = [
        made.record(p, h) for p in ("normal", "laplace") for h in (made.TUNED, made.HALF_NORMAL)
    ]
    figure = plot_design(combine([*grid, *extra]), "moons")
    rows = 3 + bool(extra)
    return figure, np.array(figure.axes).reshape(rows, 2)


def test_curves_are_the_densities(made):
    _, found = panels(made)
    at = np.searchsorted(SCALES, 1.0)
    (curve,) = found[0, 1].lines
    assert (
        curve.get_ydata()[at]
        == 2 * np.exp(-0.5 * SCALES[at] ** 2) / np.sqrt(2 * np.pi) * SCALES[at]
    )
    assert len(found[1, 0].lines) == 5
    wide = found[2, 0].lines[-1].get_ydata()
    np.testing.assert_allclose(wide, np.exp(-np.abs(WEIGHTS) / 10) / 20)
    assert found[2, 0].get_yscale() == "log"


def test_words(made, words):
    figure, _ = panels(made)
    found = words(figure)
    assert {"fixed (tuned)", "half-normal", "normal", "Laplace", "scale", "1 cell"} <= set(found)


def test_a_flat_prior_is_level_and_has_no_scale(made):
    flat = made.record("flat", made.NO_SCALE)
    _, found = panels(made, [flat])
    (curve,) = found[3, 0].lines
    assert np.ptp(curve.get_ydata()) == 0
    assert [text.get_text() for text in found[3, 0].texts] == ["1 cell, no scale"]
    assert [text.get_text() for text in found[3, 1].texts] == ["no scale"]


def test_what_has_no_formula_is_left_empty(made, words):
    odd = made.record("normal", {"kind": "of_another_time", "on": "scale"})
    figure, _ = panels(made)
    assert "no formula" not in words(figure)
    figure = plot_design(combine([made.record("normal"), odd]), "moons")
    assert words(figure).count("no formula") == 2
