"""Aleatoric and epistemic parts of uncertainty: maps, bands and bars that add up to the total."""

import numpy as np
import pytest
import xarray as xr

from pmbnn.figures.uncertainty_parts import parts_of, plot_uncertainty_parts
from pmbnn.fitting.trace import density_arrays, probability_arrays
from pmbnn.prediction.class_probabilities import ClassProbabilities
from pmbnn.prediction.density import Mixture, summarise

RNG = np.random.default_rng(0)
TEST = "test_predictions"


def trace_of(**groups):
    return xr.DataTree.from_dict({f"/{name}": group for name, group in groups.items()})


def of_numbers(axes, shape, total=5.0, epistemic=3.0, target_name=None):
    """Standard deviations, of which the epistemic ones grow along the first axis."""
    growing = np.linspace(0.1, 1.0, shape[0]).reshape(-1, *[1] * (len(shape) - 1))
    arrays = {"total_sd": total, "epistemic_sd": epistemic * growing}
    arrays = {name: (axes, np.broadcast_to(a, shape)) for name, a in arrays.items()}
    return xr.Dataset(arrays, {} if target_name is None else {"target_name": target_name})


def of_classes(axes, shape):
    entropy = RNG.uniform(0.2, 0.6, shape)
    arrays = {"entropy": entropy, "mutual_information": entropy * RNG.uniform(0, 1, shape)}
    return xr.Dataset({name: (axes, array) for name, array in arrays.items()})


def heights(axes, label):
    (bars,) = [bars for bars in axes.containers if bars.get_label() == label]
    return np.array([bar.get_height() for bar in bars])


def note(figure):
    return figure.get_suptitle().replace("\n", " ").partition("test rows: ")[2]


# Parts


def test_they_are_those_of_the_prediction():
    """Those that ``predict_uncertainty`` has, from the arrays that a trace keeps."""
    from scipy.stats import norm

    draws = RNG.dirichlet(np.ones(3), size=(50, 7))
    entropy = -np.sum(draws * np.log(draws), axis=-1).mean(axis=0)
    mean = draws.mean(axis=0)
    prediction = ClassProbabilities(50, mean, draws.std(axis=0), entropy, mean, np.log(mean))
    group = xr.Dataset(probability_arrays(prediction, ("test_observation",), (7,)))
    for name, values in prediction.uncertainty().items():
        found = parts_of(trace_of(test_predictions=group), TEST)[name]
        np.testing.assert_allclose(found, values, rtol=1e-4, atol=1e-6)
    components = norm(RNG.normal(size=(50, 7)), RNG.uniform(0.5, 1.0, size=(50, 7)))
    density = summarise(Mixture(components, np.full(50, 1 / 50)))
    group = xr.Dataset(density_arrays(density, "test_observation"))
    for name, values in density.uncertainty().items():
        found = parts_of(trace_of(test_predictions=group), TEST)[name]
        np.testing.assert_allclose(found, values, rtol=1e-5)


# Over the plane


def test_maps_of_classes_are_entropies(made):
    plane = made.plane_trace(resolution=(12, 9))["predictions"].dataset
    parts = of_classes(("x1", "x2"), (12, 9))
    trace = trace_of(
        predictions=plane.assign(parts), test_predictions=of_classes("test_observation", 20)
    )
    figure = plot_uncertainty_parts(trace, "title")
    total, bar, aleatoric, _, epistemic, _ = figure.axes
    entropy, information = (parts[name].values for name in ("entropy", "mutual_information"))
    expected = {total: entropy, aleatoric: entropy - information, epistemic: information}
    for axes, values in expected.items():
        np.testing.assert_allclose(axes.images[0].get_array(), values.T)
    # The total and the aleatoric part have one scale.
    assert total.images[0].get_clim() == aleatoric.images[0].get_clim() == bar.get_ylim()
    assert epistemic.images[0].get_clim()[1] >= information.max()
    assert [axes.get_title() for axes in expected] == [
        f"{part}: entropy in nats" for part in ("total", "aleatoric", "epistemic")
    ]
    assert total.collections, "the decision boundary is drawn"


def test_maps_of_numbers_are_variances():
    axes, names = ("x1", "x2", "target_name"), ["height", "weight"]
    coords = {"x1": np.arange(6.0), "x2": np.arange(5.0)}
    plane = of_numbers(axes, (6, 5, 2), target_name=names).assign_coords(coords)
    test = of_numbers(("test_observation", "target_name"), (20, 2), target_name=names)
    figure = plot_uncertainty_parts(trace_of(predictions=plane, test_predictions=test), "title")
    panels = {axes.get_title(): axes for axes in figure.axes if axes.images}
    assert len(panels) == 6
    assert panels["height, total: variance in squared units"].images[0].get_array().max() == 25
    epistemic = panels["weight, epistemic: variance in squared units"].images[0].get_array()
    np.testing.assert_allclose(epistemic[0], (3 * np.linspace(0.1, 1, 6)) ** 2)
    # The first target is above the second one.
    tops = [panels[f"{n}, total: variance in squared units"].get_position().y0 for n in names]
    assert tops[0] > tops[1]


# Along lines


def test_a_band_in_two_parts_and_variances_below(made):
    trace = made.curves_trace(spread=0.5)  # of a total standard deviation of 1, around 2
    trace[TEST] = xr.DataTree(of_numbers(("test_observation",), (20,)))
    figure = plot_uncertainty_parts(trace, "title")
    above, _, below, _ = figure.axes
    bands = {band.get_label(): band.get_datalim(above.transData) for band in above.collections}
    inner, outer = (bands[n] for n in bands if n.startswith(("± 2 sd of the noise", "up to ± 2")))
    assert (inner.y0, inner.y1) == pytest.approx((2 - 2 * 0.75**0.5, 2 + 2 * 0.75**0.5))
    assert (outer.y0, outer.y1) == pytest.approx((2 + 2 * 0.75**0.5, 4))
    tops = [stack.get_datalim(below.transData).y1 for stack in below.collections]
    assert tops == pytest.approx([0.75, 1.0])
    (rows,) = [line for line in above.lines if line.get_label() == "training rows"]
    np.testing.assert_allclose(rows.get_ydata(), np.array([-0.4, 0.0, 0.4]) ** 2)


def test_a_line_without_kept_rows_is_drawn(made):
    kept = made.curves_trace()
    groups = {name: group.dataset for name, group in kept.children.items()}
    groups = {name: group for name, group in groups.items() if name.startswith("curve_")}
    test = of_numbers(("test_observation",), (20,))
    assert plot_uncertainty_parts(trace_of(**groups, test_predictions=test), "title").axes


# Of test rows


def test_bars_are_of_rows_from_the_least_to_the_most_uncertain():
    group = of_classes("test_observation", 400)
    figure = plot_uncertainty_parts(trace_of(test_predictions=group), "title")
    (axes,) = figure.axes
    aleatoric, epistemic = heights(axes, "aleatoric"), heights(axes, "epistemic")
    total = np.sort(group["entropy"].values)
    np.testing.assert_allclose(aleatoric + epistemic, total.reshape(50, 8).mean(axis=1))
    assert epistemic.mean() == pytest.approx(group["mutual_information"].values.mean())
    share = group["mutual_information"].values.sum() / total.sum()
    assert note(figure) == f"{share:.0%}"
    assert axes.get_ylabel() == "mean entropy in nats"


def test_several_targets_have_a_panel_and_a_share_each():
    axes, names = ("test_observation", "target_name"), ["height", "weight"]
    group = of_numbers(axes, (30, 2), target_name=names)
    figure = plot_uncertainty_parts(trace_of(test_predictions=group), "title")
    assert [axes.get_title("left") for axes in figure.axes] == names
    share = np.mean((3 * np.linspace(0.1, 1, 30)) ** 2) / 25
    assert note(figure) == f"height: {share:.0%}, weight: {share:.0%}"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("total", "epistemic", "share"), [(1.0, 0.0, "0%"), (0.0, 0.0, "0%")])
def test_a_point_has_no_epistemic_part(total, epistemic, share):
    group = of_numbers(("test_observation",), (30,), total, epistemic)
    figure = plot_uncertainty_parts(trace_of(test_predictions=group), "title")
    assert (heights(figure.axes[0], "epistemic") == 0).all()
    assert note(figure) == share


@pytest.mark.filterwarnings("error")
def test_rows_without_a_finite_variance_are_left_out():
    total = np.r_[np.full(60, 2.0), np.inf]
    arrays = {"total_sd": total, "epistemic_sd": np.ones(61)}
    group = xr.Dataset({name: ("test_observation", array) for name, array in arrays.items()})
    figure = plot_uncertainty_parts(trace_of(test_predictions=group), "title")
    assert note(figure) == "25%"
    assert figure.axes[0].get_ylim()[1] < 6


def test_what_a_trace_must_have():
    with pytest.raises(ValueError, match="must have a group `test_predictions`"):
        plot_uncertainty_parts(trace_of(fit=xr.Dataset()), "title")
    with pytest.raises(ValueError, match="The group `test_predictions` must have `total_sd`"):
        plot_uncertainty_parts(trace_of(test_predictions=xr.Dataset()), "title")
