"""Error rate among accepted images."""

import numpy as np
import pytest
import xarray as xr

from pmbnn.figures.classification import plot_risk_coverage, uncertainty_scores

TITLE = "MNIST: a cell"


def by_hand(uncertainty, wrong):
    """Errors among the most certain images; distinct uncertainties only."""
    order = np.argsort(uncertainty)
    return [100 * np.mean(wrong[order[:n]]) for n in range(1, len(order) + 1)]


@pytest.fixture(scope="module")
def trace(made):
    return made.small_image_trace(size=80)


@pytest.fixture(scope="module")
def wrong(trace):
    test = trace["test_predictions"].dataset
    return test["probability"].values.argmax(axis=1) != test["label"].values


def test_uncertainty_scores(trace):
    test, ways = trace["test_predictions"].dataset, uncertainty_scores(trace)
    p, sd = test["probability"].values, test["sd"].values
    expected = {
        "sd of the predicted class": [row[i] for row, i in zip(sd, p.argmax(axis=1), strict=True)],
        "predictive entropy": test["entropy"].values,
        "mutual information": test["mutual_information"].values,
        "1 − highest probability": 1 - p.max(axis=1).astype("f8"),
    }
    assert list(ways) == list(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(ways[name], values)


def test_curves_and_areas(trace, wrong):
    axes = plot_risk_coverage(trace, TITLE).axes[0]
    for line, (name, uncertainty) in zip(
        axes.lines, uncertainty_scores(trace).items(), strict=False
    ):
        assert len(np.unique(uncertainty)) == len(uncertainty)
        risk = by_hand(uncertainty, wrong)
        np.testing.assert_allclose(line.get_xdata(), 100 * np.arange(1, 81) / 80)
        np.testing.assert_allclose(np.nan_to_num(line.get_ydata()), risk)
        assert line.get_label() == f"{name}: area {np.mean(risk):.3f} %"


def test_the_best_possible_curve_rejects_mistakes_only(trace, wrong):
    best = plot_risk_coverage(trace, TITLE).axes[0].lines[-1]
    expected = by_hand(np.arange(80), np.sort(wrong))
    np.testing.assert_allclose(np.nan_to_num(best.get_ydata()), expected)
    assert best.get_label().startswith("the mistakes themselves (best possible): area")


def test_without_uncertainty_every_image_is_like_the_others(made, wrong):
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), size=(1, 50))
    label = rng.integers(4, size=50)
    group = made.predictions(p, "test_observation", label)
    figure = plot_risk_coverage(xr.DataTree.from_dict({"/test_predictions": group}), TITLE)
    error = 100 * np.mean(p[0].argmax(axis=1) != label)
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), error)


def test_scale_and_words(trace, wrong, words):
    figure = plot_risk_coverage(trace, TITLE)
    assert figure.axes[0].get_yscale() == "log"
    assert f"{TITLE} {wrong.sum()} of 80 test images misclassified" in words(figure)


def test_without_mistakes_words_say_so(made, words):
    p = np.eye(3)[np.arange(30) % 3][None] * 0.8 + 0.05
    group = made.predictions(p, "test_observation", np.arange(30) % 3)
    figure = plot_risk_coverage(xr.DataTree.from_dict({"/test_predictions": group}), TITLE)
    assert "no test image is misclassified" in words(figure)


def test_a_trace_without_entropies_is_rejected(made):
    with pytest.raises(ValueError, match="`test_predictions` must have `entropy`"):
        plot_risk_coverage(made.plane_trace(resolution=(3, 3)), TITLE)
