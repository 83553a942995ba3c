"""Two networks' answers to noise."""

import numpy as np
import pytest
import xarray as xr
from study.compared_noise import NOISE, noise_figures, plot_compared_noise

TITLE = "a Bayesian and a deterministic network"
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(256, size=(40, 6, 6))
DRAWS = RNG.dirichlet(np.ones(4), size=(20, 40))


@pytest.fixture(scope="module")
def trace_of(made):
    def of(draws, rows=range(5, 15), images=IMAGES, **groups):
        group = made.predictions(draws, "ood_observation", [""] * 40)
        group = made.with_examples(group, draws, images, rows)
        return xr.DataTree.from_dict({f"/{NOISE}": group} | groups)

    return of


@pytest.fixture(scope="module")
def figure(trace_of):
    return plot_compared_noise(trace_of(DRAWS), trace_of(DRAWS[:1]), TITLE)


def test_eight_images_with_both_networks_probabilities(figure):
    panels = np.array(figure.axes).reshape(8, 3)
    for row, (shown, bayesian, deterministic) in enumerate(panels, start=5):
        np.testing.assert_array_equal(shown.images[0].get_array(), 255 - IMAGES[row])
        for axes, p in ((bayesian, DRAWS[:, row].mean(axis=0)), (deterministic, DRAWS[0, row])):
            heights = [bar.get_height() for bar in axes.patches]
            np.testing.assert_allclose(heights, p, rtol=1e-6)


def test_the_title_compares_the_entropy_of_the_whole_set(figure, words):
    entropies = [-np.sum(p * np.log2(p), axis=1).mean() for p in (DRAWS.mean(axis=0), DRAWS[0])]
    expected = "mean entropy over 40 images of normal noise: {:.3f} bits against {:.3f}"
    assert any(expected.format(*entropies) in word for word in words(figure))


def test_the_threshold_is_that_of_the_bayesian_cell(made, trace_of):
    held_out = made.predictions(np.tile(DRAWS[:1], (3, 1, 1)), "test_observation", [0] * 40)
    bayesian = trace_of(DRAWS, **{"/test_predictions": held_out})
    panels = np.array(plot_compared_noise(bayesian, bayesian, TITLE).axes).reshape(8, 3)
    assert all("rejected" in line[1].get_title() for line in panels)
    assert not any("rejected" in line[2].get_title() for line in panels)


def test_an_odd_number_of_images_leaves_no_frame(trace_of):
    traces = [trace_of(draws, rows=range(3)) for draws in (DRAWS, DRAWS[:1])]
    figure = plot_compared_noise(*traces, TITLE)
    assert sum(axes.axison for axes in figure.axes) == 6


def test_other_images_are_rejected(trace_of):
    other = trace_of(DRAWS, images=255 - IMAGES)
    with pytest.raises(ValueError, match=f"Both traces must keep the same images of `{NOISE}`"):
        plot_compared_noise(trace_of(DRAWS), other, TITLE)


def test_a_trace_without_noise_is_rejected(made, trace_of):
    with pytest.raises(ValueError, match=f"must have a group `{NOISE}`, got test_predictions"):
        plot_compared_noise(made.small_image_trace(), trace_of(DRAWS), TITLE)


def test_noise_is_drawn_beside_a_point_fit(made, trace_of, tmp_path, words, results_of):
    """Of the same data, wherever in the experiment it is; and of no other."""

    def cell(guide, draws, **changes):
        inference = {"guide": guide, "kl_weight": 1.0}
        return made.record(dataset=made.MNIST, inference=inference, **changes), trace_of(draws)

    cells = [
        cell("mean_field", DRAWS, sweep="first"),
        cell("maximum_likelihood", DRAWS[:1], sweep="second"),
    ]
    store = made.store(tmp_path, cells)
    records = [record for record, _ in cells]
    ((name, figure),) = noise_figures(results_of(store, records)).items()
    assert name == "first-mnist"
    title = " ".join(words(figure))
    assert title.count("MNIST") == 2 and "maximum likelihood" in title
    point = records[1]
    settings = point.settings | {"dataset": made.MNIST | {"seed": 7}}
    records[1] = made.changed(point, settings=settings)
    assert noise_figures(results_of(store, records)) == {}
