"""Diagnostics over training."""

import numpy as np
import pytest
import xarray as xr

from pmbnn.figures import overviews
from pmbnn.figures.training import first_and_last, plot_training, step_name

TITLE = "MNIST: a cell"
NAMES = ("accuracy", "elbo", "log_likelihood", "kl", "evidence")


@pytest.fixture
def fit(made):
    return made.training_diagnostics()


def draw(fit):
    return plot_training(xr.DataTree.from_dict({"/fit": fit}), TITLE)


def test_a_panel_for_each_diagnostic_and_a_line_for_each_part(fit):
    figure = draw(fit)
    for name, axes in zip(NAMES, figure.axes, strict=False):
        expected = np.atleast_2d(fit[f"snapshot_{name}"].values)
        assert len(axes.lines) == (1 if name == "kl" else 3)
        for line, values in zip(axes.lines, expected, strict=True):
            np.testing.assert_array_equal(line.get_xdata(), fit["snapshot_step"])
            np.testing.assert_array_equal(line.get_ydata(), values)


def test_words(fit, words):
    found = words(draw(fit))
    for word in ("train", "validation", "test", "accuracy", "ELBO", "KL", "step", TITLE):
        assert word in found
    assert "nats per row, logarithmic scale" in found


@pytest.mark.parametrize(
    ("inference", "objective"),
    [
        ({"guide": "map"}, "log-posterior"),
        ({"guide": "maximum_likelihood"}, "log-likelihood"),
        ({"guide": "dropout", "dropout_rate": 0.1}, "objective"),
        ({"guide": "mean_field"}, "ELBO"),
    ],
)
def test_panels_name_what_a_fit_maximised(fit, made, monkeypatch, inference, objective):
    """The divergence and the approximate evidence are those of an ELBO."""
    trace = xr.DataTree.from_dict({"/fit": fit})
    monkeypatch.setattr(overviews, "load_arrays", lambda *_: trace)
    [training] = [f for f in overviews.OF_CLASS_PROBABILITIES if f.file == "training"]
    record = made.record(inference=inference)
    figure = overviews.draw_cell(None, record, training, ["fit"])
    headings = [axes.get_title() for axes in figure.axes if axes.get_title()]
    others = ["KL", "mean approximate evidence"] if objective == "ELBO" else []
    own = [] if objective == "log-likelihood" else [objective]
    assert headings == ["accuracy", *own, "expected log-likelihood", *others]


def test_scales_are_logarithmic_where_sizes_differ_much(fit):
    scales = [axes.get_yscale() for axes in draw(fit).axes]
    assert scales[:5] == ["linear", "symlog", "symlog", "log", "linear"]
    narrow = fit.assign(snapshot_elbo=fit["snapshot_elbo"].clip(-2))
    assert draw(narrow).axes[1].get_yscale() == "linear"


def test_a_scale_without_a_unit_stands_alone(fit):
    evidence = fit["snapshot_evidence"]
    wide = evidence.copy(data=np.geomspace(1e-4, 1, evidence.size).reshape(evidence.shape))
    [axes] = [
        a
        for a in draw(fit.assign(snapshot_evidence=wide)).axes
        if a.get_title() == "mean approximate evidence"
    ]
    assert axes.get_ylabel() == "logarithmic scale"


def test_the_elbo_grows_upwards(fit):
    low, high = draw(fit).axes[1].get_ylim()
    assert low < high < 0


def test_diagnostics_that_are_not_there_are_left_out(fit):
    figure = draw(fit[["snapshot_step", "snapshot_accuracy", "snapshot_kl", "part"]])
    assert [axes.get_title() for axes in figure.axes] == ["accuracy", "KL"]


def test_values_that_are_not_finite_leave_gaps(fit, words):
    values = fit["snapshot_elbo"].copy()
    values[:, 0] = -np.inf
    figure = draw(fit.assign(snapshot_elbo=values))
    assert words(figure)
    assert figure.axes[1].get_yscale() == "symlog"


def test_a_fit_without_diagnostics_is_rejected(fit):
    with pytest.raises(ValueError, match="`fit` must have `snapshot_step`"):
        draw(fit[["elbo"]])
    with pytest.raises(ValueError, match="`fit` must have `snapshot_accuracy`"):
        draw(fit[["snapshot_step"]])


# Steps


@pytest.mark.parametrize(
    ("steps", "places"),
    [
        ([400, 6000], [0, 1]),
        ([0, 400, 6000], [1, 2]),
        ([0, 6000], [1]),
        ([0], [0]),
        ([5, 6, 7], [0, 2]),
    ],
)
def test_the_first_after_the_start_and_the_last(steps, places):
    assert first_and_last(np.array(steps)) == places


def test_names_of_steps():
    assert step_name(np.int64(6000)) == "step 6,000"
