"""Tables of colours."""

from itertools import pairwise

import numpy as np

from pmbnn.figures.grids import plot_grid
from pmbnn.results.tables import combine


def draw(records):
    return plot_grid(combine(records), "MNIST")


def grid(made):
    numbers = {("normal", 0): 0.91, ("normal", 1): 0.92, ("laplace", 0): 0.93, ("laplace", 1): 0.94}
    hyperpriors = (made.TUNED, made.HALF_NORMAL)
    return [
        made.record(prior, hyperpriors[i], made.MNIST, accuracy=n, mean_sd=1 - n)
        for (prior, i), n in numbers.items()
    ]


def test_colours_are_the_results_with_priors_down(made):
    left, right, *_ = draw(grid(made)).axes
    expected = np.array([[0.91, 0.92], [0.93, 0.94]])
    np.testing.assert_allclose(left.images[0].get_array(), expected)
    np.testing.assert_allclose(right.images[0].get_array(), 1 - expected)
    assert [t.get_text() for t in left.get_yticklabels()] == ["normal", "Laplace"]
    assert [t.get_text() for t in left.get_xticklabels()] == ["fixed (tuned)", "half-normal"]


def test_numbers_stand_in_their_cells(made):
    left = draw(grid(made)).axes[0]
    found = {text.get_position(): text.get_text() for text in left.texts}
    assert found == {(0, 0): "0.910", (1, 0): "0.920", (0, 1): "0.930", (1, 1): "0.940"}


def test_words_of_the_figure(made, words):
    found = words(draw(grid(made)))
    title = "MNIST one data seed: no standard error is known"
    expected = {title, "prior", "hyperprior", "test accuracy", "mean uncertainty (sd)"}
    assert expected <= set(found)


def test_several_seeds_show_their_standard_error(made, words):
    pairs = ((0, 0.90), (1, 0.94))
    records = [made.record(dataset=made.MNIST | {"seed": s}, accuracy=a) for s, a in pairs]
    found = words(draw(records))
    assert "0.920 ± 0.020" in found
    assert "MNIST mean ± standard error over 2 data seeds" in found


def test_a_small_error_is_more_than_zero(made, words):
    pairs = ((0, 0.9741), (1, 0.9745))
    records = [made.record(dataset=made.MNIST | {"seed": s}, accuracy=a) for s, a in pairs]
    assert "0.97430 ± 0.00020" in words(draw(records))


def test_empty_cells_say_why(made):
    records = [*grid(made), made.record("flat", made.NO_SCALE, made.MNIST, accuracy=0.9)]
    records += [made.record("cauchy", made.TUNED, made.MNIST, failed=True)]
    left = draw(records).axes[0]
    found = {text.get_position(): text.get_text() for text in left.texts}
    assert found[0, 2] == "0.900\n(no scale)"
    assert found[1, 2] == "no scale"
    assert found[0, 3] == "failed"
    assert found[1, 3] == "not run"


def test_other_data_sets_work_too(made, words):
    assert "0.850" in words(draw([made.record()]))


def test_an_error_over_seeds_is_no_error_of_one_seed(made, words):
    """Of the second prior one seed is left: it has no such error, nor another in its place."""
    records = [made.record(dataset=made.MOONS | {"seed": s}, accuracy=0.9) for s in (0, 1)]
    for seed in (0, 1):
        data = made.MOONS | {"seed": seed}
        records.append(made.record("laplace", dataset=data, accuracy=0.8, failed=seed > 0))
    assert "0.800" in words(draw(records))


def test_names_of_hyperpriors_stand_apart(made):
    scales = np.geomspace(0.01, 10, 10)
    records = [made.record("normal", made.HALF_NORMAL | {"sigma": s}, made.MNIST) for s in scales]
    figure = draw(records)
    figure.draw_without_rendering()
    labels = figure.axes[0].get_xticklabels()
    ends = [label.get_window_extent().extents[[0, 2]] for label in labels]
    assert all(one[1] < other[0] for one, other in pairwise(ends))


def test_a_title_names_an_error_where_one_is_known(made, words):
    """Those of a share of the rows of a table are in no record."""
    note = "MNIST one data seed: accuracy ± binomial standard error, of so many test rows"
    assert note in words(draw([made.record()]))
