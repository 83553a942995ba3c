"""A number and a distribution on every connection."""

from itertools import combinations, pairwise

import numpy as np
import pytest

from pmbnn.figures.weights import dense_weights, plot_network
from pmbnn.results.reading import last_layer


def test_weights_are_those_of_the_best_restart(made):
    trace = made.weights_trace()
    layers = dense_weights(trace)
    assert [layer.shape for layer in layers] == [(200, 2, 3), (200, 3, 3), (200, 3, 2)]
    np.testing.assert_allclose(layers[-1].reshape(200, -1), last_layer(trace))


def test_a_number_left_and_a_curve_right_for_every_connection(made, words):
    figure = plot_network(made.weights_trace(), "a cell")
    left, right = figure.axes
    numbers = [t.get_text() for t in left.texts if t.get_text()[0] in "+−0"]
    assert len(numbers) == 6 + 9 + 6 == len(right.patches)
    assert numbers[:2] == ["+5", "−5"]
    assert not [t for t in right.texts if t.get_text()[0] in "+−"]
    found = words(figure)
    assert {"inputs", "hidden 1", "hidden 2", "outputs", "a number on each connection"} <= set(
        found
    )
    assert "a cell deterministic beside Bayesian" in found


def test_a_weight_that_is_well_known_has_a_curve_of_full_height(made):
    """Its standard deviation is a thousandth of the largest distance from zero in its layer."""
    trace = made.weights_trace()
    sharp = trace["posterior"].dataset.copy(deep=True)
    sharp["weight_3"][:, :, 2, 0] = 1.234 + 0.005 * sharp["weight_3"][:, :, 2, 0]
    trace = type(trace).from_dict({"/posterior": sharp, "/fit": trace["fit"].to_dataset()})
    _, right = plot_network(trace, "a cell").axes
    boxes = [box.get_height() for box in right.patches]
    curves = [curve.get_paths()[0].vertices for curve in right.collections if curve.get_paths()]
    heights = [np.ptp(at[:, 1]) for at in curves if len(at) > 2]
    np.testing.assert_allclose(heights, 0.9 * np.array(boxes), rtol=0.02)


def test_a_layer_of_zeros_is_drawn(made):
    """A line at zero for each of its weights."""
    trace = made.weights_trace()
    zero = trace["posterior"].dataset.copy(deep=True)
    zero["weight_3"] = 0.0 * zero["weight_3"]
    trace = type(trace).from_dict({"/posterior": zero, "/fit": trace["fit"].to_dataset()})
    _, right = plot_network(trace, "a cell").axes
    boxes = [box.get_x() + box.get_width() / 2 for box in right.patches]
    curves = [curve.get_paths()[0].vertices for curve in right.collections if curve.get_paths()]
    middles = [at[:, 0].mean() for at in curves if len(at) > 2]
    np.testing.assert_allclose(middles[-2:], boxes[-2:])


def test_nothing_covers_anything_else(made):
    """Boxes of every layer, and the numbers on the left as they are drawn."""
    figure = plot_network(made.weights_trace(), "a cell")
    left, right = figure.axes
    for layer, count in enumerate((6, 9, 6)):
        found = [box for box in right.patches if layer < box.get_x() < layer + 1]
        assert len(found) == count
        assert all(box.get_height() > 0.1 for box in found)
        boxes = sorted((box.get_y(), box.get_y() + box.get_height()) for box in found)
        assert all(low[1] <= high[0] + 1e-9 for low, high in pairwise(boxes))
    figure.draw_without_rendering()
    numbers = [t.get_window_extent() for t in left.texts if t.get_text()[0] in "+-"]
    assert not any(one.overlaps(other) for one, other in combinations(numbers, 2))


def test_of_wide_layers_the_largest_units_are_drawn(made, words):
    trace = made.weights_trace()
    wide = trace["posterior"].dataset.isel(hidden_2=[0, 0, 1, 1, 2, 2]).copy(deep=True)
    wide["weight_3"][:, :, 4] = 50.0
    trace = type(trace).from_dict({"/posterior": wide, "/fit": trace["fit"].to_dataset()})
    found = words(plot_network(trace, "a cell"))
    assert "3 more" in found
    assert found.count("+50") == 2
    assert found[-1].endswith("3 units of a layer at most are drawn")


def test_a_trace_without_posterior_is_rejected(made):
    with pytest.raises(ValueError, match="must have a group `posterior`"):
        dense_weights(type(made.weights_trace()).from_dict({"/fit": made.training_diagnostics()}))


def test_small_weights_are_not_zero(made, words):
    trace = made.weights_trace()
    small = 0.01 * trace["posterior"].dataset
    trace = type(trace).from_dict({"/posterior": small, "/fit": trace["fit"].to_dataset()})
    assert {"+0.05", "−0.05"} <= set(words(plot_network(trace, "a cell")))
