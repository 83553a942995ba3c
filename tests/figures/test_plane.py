"""Maps of one cell."""

import numpy as np
import pytest
import xarray as xr
from matplotlib.backends.backend_agg import FigureCanvasAgg
from tiers import slow_but

from pmbnn.figures import style
from pmbnn.figures.maps import draw_probability, plot_plane
from pmbnn.results.reading import PlaneMap, plane_map

TITLE = "moons, noise 0.4: Normal prior, half-normal hyperprior, accuracy 0.851"


def plane(probability, sd=None):
    """Map over x1 from 0 to 2 and x2 from 10 to 11."""
    probability = np.asarray(probability, dtype=float)
    x1, x2 = (
        np.linspace(a, b, n) for a, b, n in zip((0, 10), (2, 11), probability.shape, strict=True)
    )
    return PlaneMap(x1, x2, probability, np.zeros_like(probability) if sd is None else sd, "0")


def colour_at(figure, axes, x1, x2):
    """Colour drawn at a point, red, green, blue from 0 to 1."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    across, up = axes.transData.transform((x1, x2))
    pixels = np.asarray(canvas.buffer_rgba())
    return pixels[len(pixels) - 1 - round(up), round(across), :3] / 255


def test_x1_goes_across_and_x2_up():
    # The four corners differ, so that no reflection or transpose of the map looks the same.
    shown = plane([[0.0, 0.3], [0.6, 1.0]])
    figure = style.new_figure(4, 3)
    axes = figure.subplots()
    draw_probability(axes, shown)
    for i, j in np.ndindex(2, 2):
        expected = style.PROBABILITY(shown.probability[i, j])[:3]
        drawn = colour_at(figure, axes, shown.x1[i], shown.x2[j])
        np.testing.assert_allclose(drawn, expected, atol=0.01)


def test_the_drawn_maps_are_those_of_the_trace(made):
    trace = made.plane_trace(resolution=(12, 9))
    left, right, *_ = plot_plane(trace, TITLE).axes
    for axes, name in ((left, "probability"), (right, "sd")):
        expected = trace["predictions"][name].sel(output="0").transpose("x2", "x1")
        np.testing.assert_array_equal(axes.images[0].get_array(), expected)
        assert axes.images[0].origin == "lower"
        left, right, bottom, top = axes.images[0].get_extent()
        assert axes.get_box_aspect() == (top - bottom) / (right - left), "a unit across is one up"


def test_pixels_are_centred_on_the_coordinates(made):
    trace = made.plane_trace(resolution=(12, 9))
    left, right, top = (
        plot_plane(trace, TITLE).axes[0].images[0].get_extent()[i] for i in (0, 1, 3)
    )
    x1, x2 = (trace["predictions"][name].values for name in ("x1", "x2"))
    assert left == pytest.approx(x1[0] - (x1[1] - x1[0]) / 2)
    assert right == pytest.approx(x1[-1] + (x1[1] - x1[0]) / 2)
    assert top == pytest.approx(x2[-1] + (x2[1] - x2[0]) / 2)


def test_test_points_lie_where_the_trace_says(made):
    trace = made.plane_trace(resolution=(5, 5), points=40)
    test = trace["test_predictions"]
    for axes in plot_plane(trace, TITLE).axes[:2]:
        for label, drawn in enumerate(axes.collections[-2:]):
            expected = test["x"].values[test["label"].values == label]
            np.testing.assert_allclose(drawn.get_offsets(), expected)


def test_words_of_the_figure(made, words):
    found = words(plot_plane(made.plane_trace(resolution=(5, 5)), TITLE))
    for expected in (
        TITLE,
        "x1",
        "x2",
        "probability of class 0",
        "sd of that probability over posterior draws",
        "class 0, test points",
        "class 1, test points",
    ):
        assert expected in found


def test_features_of_other_units_have_their_names_and_a_square(made, words):
    trace = made.plane_trace(resolution=(12, 9))
    group = trace["predictions"].to_dataset()
    group = group.assign_coords(x2=1000 * group["x2"]).assign_attrs(features='["age", "pay_$"]')
    figure = plot_plane(xr.DataTree.from_dict({"/predictions": group}), TITLE)
    assert {"age", "pay_$"} <= set(words(figure))
    assert [axes.get_box_aspect() for axes in figure.axes[:2]] == [1, 1]


@pytest.mark.parametrize(
    ("title", "stretched", "unit"),
    [(TITLE, 1, 1), (" and ".join([TITLE] * 3), 1, 1), (TITLE, 3, 1), (TITLE, 0.2, 3e4)],
)
def test_nothing_is_written_over_anything_else(made, title, stretched, unit):
    trace = made.plane_trace(resolution=(12, 9))
    trace["test_predictions"]["x"] *= unit
    moved = trace["predictions"].to_dataset()
    moved = moved.assign_coords(x1=unit * moved["x1"], x2=unit * stretched * moved["x2"])
    trace["predictions"] = xr.DataTree(moved)
    figure = plot_plane(trace, title)
    FigureCanvasAgg(figure).draw()
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    boxes += [words.get_window_extent() for words in (*figure.texts, *figure.legends)]
    for number, box in enumerate(boxes):
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1
        assert not any(box.overlaps(other) for other in boxes[:number])


def test_colour_bars_are_as_tall_as_their_maps(made):
    figure = plot_plane(made.plane_trace(resolution=(12, 5)), TITLE)
    FigureCanvasAgg(figure).draw()
    heights = [axes.get_position().height for axes in figure.axes]
    np.testing.assert_allclose(heights, heights[0])


def test_probability_is_coloured_from_zero_to_one(made):
    left, right, *_ = plot_plane(made.plane_trace(resolution=(5, 5)), TITLE).axes
    assert left.images[0].get_clim() == (0, 1)
    assert right.images[0].get_clim()[0] == 0


def test_the_decision_boundary():
    figure = style.new_figure(4, 3)
    shown = plane(np.linspace(0, 1, 21)[:, None] * np.ones(5))
    trace = as_trace(shown)
    figure = plot_plane(trace, TITLE)
    path = figure.axes[0].collections[0].get_paths()[0]
    np.testing.assert_allclose(path.vertices[:, 0], 1.0)


def as_trace(shown):
    """Trace of a map, without test points."""
    both = {
        "probability": np.stack([shown.probability, 1 - shown.probability], axis=-1),
        "sd": np.stack([shown.sd] * 2, axis=-1),
    }
    arrays = {name: (("x1", "x2", "output"), values) for name, values in both.items()}
    coords = {"x1": shown.x1, "x2": shown.x2, "output": ["0", "1"]}
    return xr.DataTree.from_dict({"/predictions": xr.Dataset(arrays, coords)})


@pytest.mark.parametrize("value", slow_but([0.9, np.nan], [0.0, 0.9, 1.0, np.nan]))
def test_a_map_with_one_value_everywhere_can_be_drawn(value, tmp_path):
    figure = plot_plane(as_trace(plane(np.full((4, 3), value))), TITLE)
    style.save_figure(figure, tmp_path / "map.png")
    assert not figure.axes[0].collections


def test_points_are_left_out_without_test_predictions(made, words):
    trace = made.plane_trace(resolution=(5, 5))
    del trace["test_predictions"]
    assert not any("test points" in word for word in words(plot_plane(trace, TITLE)))


def test_a_trace_without_a_map_is_rejected(made):
    with pytest.raises(ValueError, match="must have a group `predictions`, got test_predictions"):
        plot_plane(made.small_image_trace(), TITLE)


def test_the_order_of_dimensions_does_not_matter(made):
    trace = made.plane_trace(resolution=(6, 4))
    turned = trace["predictions"].dataset.transpose("output", "x2", "x1")
    found = plane_map(xr.DataTree.from_dict({"/predictions": turned}))
    np.testing.assert_array_equal(found.probability, plane_map(trace).probability)
    assert found.probability.shape == (6, 4)


def test_the_same_trace_gives_the_same_bytes(made, tmp_path):
    for name in ("a.png", "b.png"):
        style.save_figure(plot_plane(made.plane_trace(), TITLE), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_many_classes_look_different_and_are_all_in_the_legend(made):
    trace = made.plane_trace(resolution=(6, 5), points=24)
    test = trace["test_predictions"].to_dataset().isel(output=[0, 1] * 6)
    names = [f"class number {i}" for i in range(12)]
    test = test.assign(label=("test_observation", np.arange(24) % 12)).assign_coords(output=names)
    trace["test_predictions"] = xr.DataTree(test)
    figure = plot_plane(trace, TITLE)
    figure.draw_without_rendering()
    (legend,), points = figure.legends, figure.axes[0].collections
    box, whole = legend.get_window_extent(), figure.bbox
    assert whole.x0 <= box.x0 and box.x1 <= whole.x1
    assert box.y1 < figure.axes[0].xaxis.label.get_window_extent().y0
    looks = {
        (tuple(found.get_facecolor()[0]), found.get_paths()[0].vertices.tobytes())
        for found in points
        if found.get_offsets().shape == (2, 2)
    }
    assert len(looks) == 12
