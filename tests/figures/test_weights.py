"""Histograms of the weights."""

import numpy as np
import pytest
import xarray as xr

from pmbnn.figures.weights import plot_weights

TITLE = "MNIST: a cell"


@pytest.fixture
def trace(made):
    return xr.DataTree.from_dict({"/fit": made.training_diagnostics()})


def outlines(axes):
    return [patch for patch in axes.patches if not patch.get_fill()]


def test_early_and_late_histograms_of_means_and_sds(trace):
    fit, figure = trace["fit"].dataset, plot_weights(trace, TITLE)
    panels = np.array(figure.axes).reshape(2, 2)
    for row, tensor in enumerate((0, 2)):
        for column, kind in enumerate(("mean", "sd")):
            drawn = outlines(panels[row, column])
            for patch, snapshot in zip(drawn, (1, 5), strict=True):
                density = fit[f"snapshot_{kind}_density"].values[snapshot, tensor]
                values, edges, _ = patch.get_data()
                np.testing.assert_allclose(values, density / density.max())
                np.testing.assert_array_equal(edges, fit[f"{kind}_edge"].values[tensor])


def test_words(trace, words):
    found = words(plot_weights(trace, TITLE))
    for word in ("weight 1", "weight 2", "posterior means", "posterior sds"):
        assert word in found
    assert {"step 400", "step 6,000"} <= set(found)
    assert "bias 1" not in found


def test_steps_are_those_of_the_examples(made, full, words):
    other = full["snapshot_examples"].dataset.assign(
        snapshot_step=("snapshot", np.array([1000, 4000]))
    )
    groups = {"/fit": made.training_diagnostics(), "/snapshot_examples": other}
    found = words(plot_weights(xr.DataTree.from_dict(groups), TITLE))
    assert {"step 1,000", "step 4,000"} <= set(found)


def test_axes_end_where_nothing_is(trace):
    fit = trace["fit"].dataset.copy(deep=True)
    fit["snapshot_mean_density"][:] = 0.0
    fit["snapshot_mean_density"][:, 0, 10:12] = 3.0
    axes = plot_weights(xr.DataTree.from_dict({"/fit": fit}), TITLE).axes[0]
    assert axes.get_xlim() == tuple(fit["mean_edge"].values[0, [10, 12]])


def test_one_snapshot(made, words):
    trace = xr.DataTree.from_dict({"/fit": made.training_diagnostics(steps=(6000,))})
    assert "step 6,000" in words(plot_weights(trace, TITLE))


def test_a_trace_without_histograms_is_rejected(trace):
    trace = xr.DataTree.from_dict({"/fit": trace["fit"].dataset[["elbo"]]})
    with pytest.raises(ValueError, match="`fit` must have `snapshot_mean_density`"):
        plot_weights(trace, TITLE)
