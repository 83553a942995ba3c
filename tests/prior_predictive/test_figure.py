"""What a prior says, drawn: maps beside the posterior's, and curves."""

import numpy as np
import pytest
import xarray as xr

from pmbnn.prior_predictive.figure import _how, plot_prior_curves, plot_prior_maps
from pmbnn.results.reading import plane_map


@pytest.fixture(scope="module")
def maps():
    """Four functions whose first class lies beyond different places of x1; their mean and sd."""
    x1, x2 = np.linspace(-1, 3, 12), np.linspace(0, 2, 9)
    places = np.array([-0.5, 0.5, 1.5, 2.5])
    first = 1 / (1 + np.exp(-5 * (x1[:, None] - places[:, None, None] + 0 * x2)))
    function = np.stack([first, 1 - first], axis=-1)
    axes = ("x1", "x2", "output")
    arrays = {
        "probability": (axes, function.mean(axis=0)),
        "sd": (axes, function.std(axis=0)),
        "function": (("function", *axes), function),
    }
    group = xr.Dataset(arrays, {"x1": x1, "x2": x2, "output": ["0", "1"]})
    return xr.DataTree.from_dict({"/predictions": group})


def images(figure):
    """Values shown in each panel, ``(x1, x2)``."""
    return [axes.images[0].get_array().T for axes in figure.axes if axes.images]


def test_functions_mean_and_deviation(maps, made, words):
    posterior = plane_map(made.plane_trace(resolution=(12, 9)))
    figure = plot_prior_maps(maps, posterior, "a title")
    shown, group = images(figure), maps["predictions"].isel(output=0)
    for found, function in zip(shown[:4], group["function"].values, strict=True):
        np.testing.assert_allclose(found, function)
    expected = (group["probability"], group["sd"], posterior.probability, posterior.sd)
    for found, values in zip(shown[4:8], expected, strict=True):
        np.testing.assert_allclose(found, values)
    # Deviations share one scale, and of the mean over the prior no boundary is drawn.
    limits = {tuple(axes.images[0].get_clim()) for axes in figure.axes[5:8:2]}
    assert len(limits) == 1
    assert [len(axes.collections) for axes in figure.axes[:8]] == [1, 1, 1, 1, 0, 0, 1, 1]
    text = words(figure)
    for said in ("functions drawn from the prior", "prior mean", "posterior sd", "a title"):
        assert said in text


@pytest.mark.parametrize(
    ("guide", "words"),
    [("laplace", "Laplace's approximation"), ("full_rank", "ADVI, full rank")],
)
def test_a_fit_beside_a_prior_is_named(guide, words, made):
    assert _how(made.record(inference={"guide": guide})) == words


def test_without_a_posterior_it_says_why(maps, words):
    assert words(plot_prior_maps(maps, None, "a title", "for a reason")).count("for a reason") == 2


def test_functions_that_have_no_boundary(maps):
    group = maps["predictions"].dataset
    level = xr.DataTree.from_dict({"/predictions": group.assign(function=0 * group["function"])})
    figure = plot_prior_maps(level, None, "a title")
    assert all(not axes.collections for axes in figure.axes[:4])


def curves(factor):
    """Five lines with slopes up to a factor on two ranges."""
    groups = {
        "rows": xr.Dataset(
            {"x": (("observation", "feature"), [[-1.0], [1.0]]), "y": ("observation", [-2.0, 2.0])}
        )
    }
    for number, reach in enumerate((1, 3), 1):
        x = np.linspace(-reach, reach, 11)
        functions = factor * np.linspace(-1, 1, 5)[:, None] * x
        arrays = {
            "x": ("point", x),
            "truth": ("point", x**2),
            "function": (("function", "point"), functions),
            "interval": (("bound", "point"), np.sort(functions[[0, -1]], axis=0)),
        }
        groups[f"curve_{number}"] = xr.Dataset(arrays, attrs={"level": 0.95})
    return xr.DataTree.from_dict({f"/{name}": group for name, group in groups.items()})


@pytest.mark.parametrize(("factor", "scale"), [(2.0, "linear"), (1e4, "symlog")])
def test_functions_over_ranges_with_the_targets_among_them(factor, scale, made, words):
    figure = plot_prior_curves(curves(factor), made.curves_trace(), "a title")
    above = figure.axes[:2]
    for axes, reach in zip(above, (1, 3), strict=True):
        lines = [line for line in axes.get_lines() if line.get_alpha() == 0.7]
        assert len(lines) == 5
        np.testing.assert_allclose(lines[0].get_ydata()[[0, -1]], [factor * reach, -factor * reach])
        low, high = axes.get_ylim()
        assert low < -2 < 2 < high
        assert high > 0.5 * factor * reach
        assert axes.get_yscale() == scale
    text = words(figure)
    for said in ("y, prior", "y, posterior", "functions", "95 % of them", "95 %, epistemic"):
        assert said in text


def test_curves_without_a_posterior(words):
    figure = plot_prior_curves(curves(1.0), None, "a title", "for a reason")
    assert words(figure).count("for a reason") == 2


def test_the_legend_of_one_range_stays_on_its_figure(made):
    one = curves(1.0).drop_nodes("curve_2")
    figure = plot_prior_curves(one, made.curves_trace(ranges=((-1, 1),)), "a title")
    figure.draw_without_rendering()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
