"""Accuracy with standard errors."""

import pytest

from pmbnn.figures.grids import plot_accuracy_overview
from pmbnn.results.tables import combine


def draw(records):
    return plot_accuracy_overview(combine(records), "moons, noise 0.4")


def seeds(made, prior="normal", hyperprior=None, accuracies=(0.8, 0.9), **changes):
    return [
        made.record(
            prior,
            hyperprior or made.HALF_NORMAL,
            made.MOONS | {"seed": seed},
            accuracy=accuracy,
            excess_error=0.9 - accuracy,
            **changes,
        )
        for seed, accuracy in enumerate(accuracies)
    ]


def test_points_are_means_and_bars_standard_errors(made):
    left, right = draw(seeds(made)).axes
    for axes, mean in ((left, 0.85), (right, 0.05)):
        line, _, (bar,) = axes.containers[0]
        assert line.get_xdata()[0] == pytest.approx(mean)
        (low, _), (high, _) = bar.get_segments()[0]
        assert (low, high) == (pytest.approx(mean - 0.05), pytest.approx(mean + 0.05))


def test_one_line_for_each_combination_grouped_by_prior(made):
    records = seeds(made) + seeds(made, hyperprior=made.TUNED) + seeds(made, "laplace")
    records += seeds(made, "flat", made.NO_SCALE)
    axes = draw(records).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "normal, half-normal",
        "normal, fixed (tuned)",
        "Laplace, half-normal",
        "Laplace, fixed (tuned)",
        "flat, no scale",
    ]
    heights = axes.get_yticks()
    assert heights[1] - heights[0] < heights[2] - heights[1]
    low, high = axes.get_ylim()
    assert low > high
    assert [t.get_text() for t in axes.texts] == ["not run"]


def test_the_best_possible_accuracy_is_marked(made, words):
    figure = draw(seeds(made))
    reference = [line for line in figure.axes[0].lines if line.get_linestyle() == "--"]
    assert list(reference[0].get_xdata()) == [0.863, 0.863]
    assert "best possible, 0.863" in words(figure)


def test_words_of_the_figure(made, words):
    found = words(draw(seeds(made)))
    assert "moons, noise 0.4 mean ± standard error over 2 data seeds" in found
    assert {"test accuracy", "excess error over the best possible"} <= set(found)


def test_one_seed_has_the_error_of_so_many_test_rows(made, words):
    figure = draw(seeds(made, accuracies=(0.8,)))
    low, high = figure.axes[0].containers[0].lines[2][0].get_segments()[0][:, 0]
    assert (high - low) / 2 == pytest.approx((0.8 * 0.2 / 300) ** 0.5)
    note = "one data seed: accuracy ± binomial standard error"
    assert any(note in word for word in words(figure))


def test_real_data_have_one_panel_and_no_reference(made, words):
    figure = draw([made.record(dataset=made.MNIST)])
    assert len(figure.axes) == 1
    assert not any("best possible" in word for word in words(figure))


def test_failures_are_named(made):
    records = [*seeds(made), *seeds(made, "laplace", failed=True)]
    records += [made.record(dataset=made.MOONS | {"seed": 9}, failed=True)]
    axes = draw(records).axes[0]
    assert axes.get_yticklabels()[0].get_text() == "normal, half-normal (1 failed)"
    assert [t.get_text() for t in axes.texts] == ["failed"]


def test_a_mean_over_fewer_data_seeds_is_named(made, words):
    records = [made.record(dataset=made.MOONS | {"seed": seed}) for seed in range(3)]
    records += [made.record("laplace", dataset=made.MOONS | {"seed": seed}) for seed in range(2)]
    found = words(plot_accuracy_overview(combine(records), "moons"))
    assert {"normal, half-normal", "Laplace, half-normal (2 of 3 data seeds)"} <= set(found)
