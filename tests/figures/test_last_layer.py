"""Posterior densities of the last layer."""

import numpy as np
from matplotlib.colors import to_hex
from scipy import stats

from pmbnn.figures.weights import KINDS, MOST_WEIGHTS, density_of, plot_last_layer, shown_rows
from pmbnn.results.reading import last_layer
from pmbnn.results.tables import combine

TITLE = "moons, noise 0.4"


def records(made, priors=("normal", "cauchy", "laplace"), hyperpriors=2, **changes):
    scales = [made.TUNED, made.HALF_NORMAL][:hyperpriors]
    return [made.record(prior, scale, **changes) for prior in priors for scale in scales]


def draw(made, found, away=lambda name: 2):
    def load(name):
        return last_layer(made.weights_trace(away(name)))

    return plot_last_layer(combine(found), load, TITLE)


def test_both_priors_must_have_results(made):
    assert shown_rows(combine(records(made))) == [2, 1]
    assert shown_rows(combine(records(made, ("laplace", "normal")))) == []
    lost = [*records(made, ("laplace",)), *records(made, ("cauchy",), failed=True)]
    assert shown_rows(combine(lost)) == []


def test_a_curve_a_weight_in_the_colour_of_its_kind(made):
    figure = draw(made, records(made), lambda name: 2 if "laplace" in name else 5)
    panels = np.array(figure.axes).reshape(2, 2)
    for line, away in zip(panels, (2, 5), strict=True):
        for axes in line:
            colours = [
                to_hex(curve.get_color()) for curve in axes.lines if len(curve.get_xdata()) > 2
            ]
            expected = [KINDS[2][1].lower()] * away + [KINDS[0][1].lower()] * (6 - away)
            assert sorted(colours) == sorted(expected)


def test_words(made, words):
    found = words(draw(made, records(made)))
    assert (
        f"{TITLE} posterior densities of the last layer's weights, data seed 0; a line is a weight"
        in found
    )
    assert {"Laplace density", "Cauchy density", "away from zero", "narrow about zero"} <= set(
        found
    )
    assert "half-normal 2 of 6 away from zero, 4 narrow" in found


def test_what_is_missing_says_why(made, words):
    cells = [*records(made, ("laplace",)), *records(made, ("cauchy",), hyperpriors=1)]
    assert "not run" in words(draw(made, cells))


def test_of_many_weights_some_are_drawn(made):
    found = records(made, ("laplace", "cauchy"), hyperpriors=1)
    draws = np.arange(500.0) + np.random.default_rng(0).normal(size=(50, 500))
    figure = plot_last_layer(combine(found), lambda name: draws, TITLE)
    curves = [line for line in figure.axes[0].lines if len(line.get_xdata()) > 2]
    assert len(curves) == MOST_WEIGHTS
    assert "a line is a weight (60 of 500)" in " ".join(figure.get_suptitle().split())


def test_a_title_says_that_not_all_hyperpriors_are_drawn(made):
    scales = [{"kind": "fixed", "scale": float(scale)} for scale in range(1, 6)]
    found = [made.record(prior, scale) for prior in ("laplace", "cauchy") for scale in scales]
    assert draw(made, found).get_suptitle().endswith("the first 4 of 5 hyperpriors")


def test_curves_are_the_densities_of_normal_draws(made):
    draws = stats.norm(2, 0.3).ppf((np.arange(4000) + 0.5) / 4000)[:, None]
    found = records(made, ("laplace", "cauchy"), hyperpriors=1)
    curve = plot_last_layer(combine(found), lambda name: draws, TITLE).axes[0].lines[0]
    x, density = curve.get_data()
    np.testing.assert_allclose(density, stats.norm(2, 0.3).pdf(x), atol=0.05)


def test_the_density_is_that_of_scipy():
    draws, at = np.random.default_rng(0).normal(1, 2, 50), np.linspace(-5, 5, 30)
    expected = stats.gaussian_kde(draws, bw_method="silverman")(at)
    np.testing.assert_allclose(density_of(draws, at), expected, rtol=1e-10)


def test_a_point_fit_has_a_line_at_each_weight(made):
    found = records(made, ("laplace", "cauchy"), hyperpriors=1)
    draws = np.tile([0.5, -1.5], (10, 1))
    axes = plot_last_layer(combine(found), lambda name: draws, TITLE).axes[0]
    assert sorted(line.get_xdata()[0] for line in axes.lines) == [-1.5, 0.0, 0.5]
