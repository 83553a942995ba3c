"""Names of settings in words."""

import pytest
from makers import spec

from pmbnn.results.names import (
    cell_title,
    combination_title,
    dataset_label,
    dataset_row_label,
    distinct,
    pretty,
    title,
)


def combination(record):
    return combination_title(record.cell, record.chosen_scale)


def titles_of(*hyperpriors):
    return distinct([spec("hyperprior", **settings) for settings in hyperpriors], title)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("normal", "normal"),
        ("half_normal", "half-normal"),
        ("half_cauchy", "half-Cauchy"),
        ("laplace", "Laplace"),
        ("mnist", "MNIST"),
        ("student_t", "Student-t"),
    ],
)
def test_pretty_names(kind, words):
    assert pretty(kind) == words


def test_data_sets_have_one_name_as_specifications_and_in_tables(made):
    assert dataset_label(made.record().cell.dataset) == "moons, noise 0.4"
    row = {"kind": "moons", "noise": 0.4, "file": float("nan"), "seed": 3}
    assert dataset_row_label(row | {"split.fold": 2.0}) == "moons, noise 0.4, fold 2"
    file = {"kind": "table", "file": "data/energy.csv.gz", "noise": float("nan")}
    assert dataset_row_label(file) == "table energy"


def test_title_of_a_learned_scale(made):
    assert (
        combination(made.record("laplace", made.HALF_NORMAL))
        == "Laplace prior, half-normal hyperprior"
    )


def test_title_of_a_given_scale(made):
    assert combination(made.record(hyperprior=made.FIXED)) == "Normal prior, fixed scale 1"


def test_title_of_a_chosen_scale(made):
    record = made.record(hyperprior=made.TUNED, scale=0.31622)
    assert combination(record) == "Normal prior, fixed scale 0.316 (tuned)"


def test_title_of_a_tuned_scale_that_is_not_known(made):
    record = made.record(hyperprior=made.TUNED, failed=True)
    assert combination(record) == "Normal prior, fixed scale (tuned)"


def test_title_of_a_prior_without_scale(made):
    assert combination(made.record("flat", made.NO_SCALE)) == "Flat prior, no scale"


def test_title_of_a_cell(made):
    words = cell_title(made.record(accuracy=0.8514))
    assert words == "moons, noise 0.4: Normal prior, half-normal hyperprior, accuracy 0.851"


@pytest.mark.parametrize(
    ("inference", "words"),
    [
        ({"guide": "mean_field", "kl_weight": 0.1}, "hyperprior, KL weight 0.1, accuracy"),
        ({"guide": "mean_field", "kl_weight": 1.0}, "hyperprior, accuracy"),
        ({"guide": "map", "kl_weight": 1.0}, "hyperprior, map, accuracy"),
        ({"guide": "dropout", "dropout_rate": 0.1}, "hyperprior, dropout 0.1, accuracy"),
        ({"guide": "maximum_likelihood"}, "hyperprior, maximum likelihood, accuracy"),
    ],
)
def test_title_of_a_cell_says_what_its_fit_is(inference, words, made):
    record = made.record(accuracy=0.85)
    changed = made.changed(record, settings=record.settings | {"inference": inference})
    assert words in cell_title(changed)


def test_title_of_a_cell_without_accuracy(made):
    assert cell_title(made.record(failed=True)).endswith("half-normal hyperprior")


def test_names_that_would_be_the_same_say_what_differs(made):
    narrow = made.HALF_NORMAL | {"sigma": 0.1}
    titles = titles_of(made.HALF_NORMAL, narrow, made.FIXED)
    assert titles == ["half-normal, sigma 1", "half-normal, sigma 0.1", "fixed 1"]


def test_tuned_scales_with_other_candidates_have_different_names(made):
    other = {"kind": "fixed", "scale": {"log": [0.01, 1.0, 3]}}
    first, second = titles_of(made.TUNED, other)
    assert first != second
    assert second.startswith("fixed (tuned)")
