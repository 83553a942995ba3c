"""Single draws, early and late."""

import numpy as np
import pytest
import xarray as xr

from pmbnn.figures import style
from pmbnn.figures.image_sheets import examples_by_kind, plot_snapshot_examples

TITLE = "MNIST: a cell"


@pytest.fixture(scope="module")
def figure(full):
    return plot_snapshot_examples(full, TITLE)


def test_examples_of_each_kind(full):
    group, found = full["snapshot_examples"].dataset, examples_by_kind(full)
    assert list(found) == ["test", "normal_noise", "uniform_noise"]
    shown = found["normal_noise"][2]
    np.testing.assert_array_equal(shown.image, 255 - group["image"].values[8])
    np.testing.assert_array_equal(shown.probability, group["probability"].values[:, :, 8])


def test_bars_are_means_and_points_single_draws(full, figure):
    p = full["snapshot_examples"]["probability"].values
    panels = np.array(figure.axes).reshape(-1, 3)
    assert len(panels) == 18
    for example, (_, *both) in enumerate(panels):
        for snapshot, axes in enumerate(both):
            drawn = p[snapshot, :, example]
            heights = [bar.get_height() for bar in axes.patches]
            np.testing.assert_allclose(heights, drawn.mean(axis=0), rtol=1e-6)
            points = axes.lines[0].get_ydata()
            np.testing.assert_array_equal(points, drawn.ravel())


def test_points_stand_above_their_class(figure):
    axes = figure.axes[1]
    places = np.rint(axes.lines[0].get_xdata()).reshape(-1, 10)
    np.testing.assert_array_equal(places, np.tile(np.arange(10), (len(places), 1)))


def test_rejected_where_no_mean_exceeds_the_confidence_threshold(full, figure):
    mean = full["snapshot_examples"]["probability"].values.mean(axis=1)
    panels = np.array(figure.axes).reshape(-1, 3)
    verdicts = set()
    for example, line in enumerate(panels):
        for snapshot, step in enumerate(("step 400", "step 6,000")):
            highest = mean[snapshot, example].max()
            words = f"class {mean[snapshot, example].argmax()}, {highest:.2f}"
            expected = "rejected" if highest <= 0.2 else words
            title = line[1 + snapshot].title
            assert title.get_text() == f"{step}: {expected}"
            assert title.get_color() == (style.REJECTED if highest <= 0.2 else style.ACCEPTED)
            verdicts.add(expected == "rejected")
    assert verdicts == {True, False}


def test_headings_give_the_share_of_the_set(figure, words):
    found = words(figure)
    assert "test digits; rejected: 0.0 % at step 400, 0.1 % at step 6,000" in found
    assert "normal noise; rejected: 3.1 % at step 400, 94.2 % at step 6,000" in found
    assert any("rejected: no bar above 0.2" in word for word in found)


def test_of_many_snapshots_the_first_and_last_are_shown(full):
    group = full["snapshot_examples"].dataset
    many = xr.concat([group, group], "snapshot", data_vars="minimal")
    many = many.assign(snapshot_step=("snapshot", np.array([0, 100, 400, 6000])))
    found = examples_by_kind(xr.DataTree.from_dict({"/snapshot_examples": many}))
    p = many["probability"].values[[1, 3], :, 0]
    np.testing.assert_array_equal(found["test"][0].probability, p)


def test_an_odd_number_of_images_and_a_set_without_shares(full, words):
    group = full["snapshot_examples"].dataset.isel(example=slice(3)).drop_vars("rejected")
    figure = plot_snapshot_examples(xr.DataTree.from_dict({"/snapshot_examples": group}), TITLE)
    assert sum(bool(axes.images) for axes in figure.axes) == 3
    assert "test digits" in words(figure)


def test_a_trace_without_examples_is_rejected():
    with pytest.raises(ValueError, match="must have a group `snapshot_examples`, got none"):
        plot_snapshot_examples(xr.DataTree(), TITLE)
