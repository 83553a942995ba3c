"""Fixed scales beside learned ones."""

import numpy as np
import pytest

from pmbnn.figures.weights import comparable_rows, plot_scales
from pmbnn.results.tables import combine

SCALES = (10.0, 0.1, 1)


def records(made, priors=("normal", "laplace"), scales=SCALES, learned=True, seeds=(0, 1)):
    found = []
    for prior in priors:
        for seed in seeds:
            data = made.MOONS | {"seed": seed}
            for scale in scales:
                fixed = {"kind": "fixed", "scale": scale}
                numbers = {"accuracy": 0.8 + 0.01 * scale + 0.02 * seed, "excess_error": 0.1}
                found.append(made.record(prior, fixed, data, **numbers))
            if learned:
                found.append(made.record(prior, made.HALF_NORMAL, data, accuracy=0.7 + 0.1 * seed))
    return found


def load(name):
    return {"layer_1_scale": 0.5, "layer_2_scale": 2.0 if "laplace" in name else 8.0}


def test_three_fixed_scales_and_a_learned_one_can_be_compared(made):
    normal, laplace = comparable_rows(combine(records(made)))
    assert list(normal.fixed) == [0.1, 1, 10.0]
    assert normal.learned == [3] == laplace.learned
    assert comparable_rows(combine(records(made, scales=(1.0, 2.0)))) == []
    assert comparable_rows(combine(records(made, learned=False))) == []
    assert comparable_rows(combine([made.record(hyperprior=made.TUNED)])) == []


def test_curve_of_fixed_scales_and_band_of_the_learned_one(made):
    figure = plot_scales(combine(records(made)), load, "moons")
    panels = np.array(figure.axes).reshape(3, 2)
    axes = panels[0, 0]
    curve = axes.containers[0][0]
    points = curve.get_xydata().astype(float)
    np.testing.assert_allclose(points, [[0.1, 0.811], [1, 0.82], [10, 0.91]])
    (band,) = axes.patches
    corners = band.get_y(), band.get_y() + band.get_height()
    assert corners == (pytest.approx(0.70), pytest.approx(0.80))
    assert axes.get_xscale() == "log" and axes.get_yscale() == "linear"
    assert panels[1, 0].get_yscale() == "log"


def test_learned_scales_stand_where_they_are(made):
    figure = plot_scales(combine(records(made)), load, "moons")
    for axes, second in zip(figure.axes[-2:], (8.0, 2.0), strict=True):
        places = {text.get_text(): text.get_position()[0] for text in axes.texts}
        assert places == {"1": pytest.approx(0.5), "2": pytest.approx(second)}


def test_scales_of_many_layers_keep_their_order_and_stay_in_the_panel(made):
    deep = {f"layer_{number}_scale": 0.3 * number for number in range(1, 12)}
    axes = plot_scales(combine(records(made)), lambda name: deep, "moons").axes[-1]
    places = [(text.get_text(), text.get_position()) for text in axes.texts]
    assert [text for text, _ in places] == [str(number) for number in range(1, 12)]
    np.testing.assert_allclose([x for _, (x, _) in places], 0.3 * np.arange(1, 12))
    bottom, top = axes.get_ylim()
    assert all(top < y < bottom for _, (_, y) in places)


def test_ticks_are_at_the_fixed_scales(made):
    figure = plot_scales(combine(records(made, scales=(0.3, 1.0, 3.0))), load, "moons")
    for axes in figure.axes:
        assert axes.get_xticks().tolist() == [0.3, 1.0, 3.0]
        assert axes.get_xticks(minor=True).tolist() == []


def test_words(made, words):
    figure = plot_scales(combine(records(made)), load, "moons")
    expected = {"normal", "Laplace", "test accuracy", "excess error", "half-normal", "fixed"}
    assert expected <= set(words(figure))
    title = " ".join(figure.get_suptitle().split())
    assert title.endswith("mean ± standard error over 2 data seeds")
    alone = plot_scales(combine(records(made, seeds=(0,))), load, "moons")
    assert alone.get_suptitle().endswith("one data seed")


def test_a_single_result_has_no_error_bar(made):
    """One of length zero would say that it is known exactly."""
    figure = plot_scales(combine(records(made, ("normal",), seeds=(0,))), load, "moons")
    _, caps, (bars,) = figure.axes[0].containers[0]
    assert not any(np.isfinite(cap.get_ydata()).any() for cap in caps)
    assert not any(len(segment) for segment in bars.get_segments())
