"""Cells laid out as prior × hyperprior."""

import math

import pytest

from pmbnn.results.tables import combine


def test_rows_and_columns_are_in_order_of_appearance(made):
    hyperpriors = [made.TUNED, made.HALF_NORMAL]
    found = combine([made.record(p, h) for p in ("laplace", "normal") for h in hyperpriors])
    assert found.rows == ("Laplace", "normal")
    assert found.columns == ("fixed (tuned)", "half-normal")
    assert found.shape == (2, 2)


def test_every_scale_of_an_axis_is_a_column(made):
    scales = [{"kind": "fixed", "scale": s} for s in (0.1, 1.0, 10.0)]
    assert combine([made.record("normal", h) for h in scales]).columns == (
        "fixed 0.1",
        "fixed 1",
        "fixed 10",
    )


def test_a_prior_without_scale_stands_under_the_first_fixed_scale(made):
    records = [
        made.record("flat", made.NO_SCALE),
        made.record("normal", made.HALF_NORMAL),
        made.record("normal", made.FIXED),
    ]
    found = combine(records)
    assert found.columns == ("half-normal", "fixed 1")
    assert found.records[0, 1] == (records[0],)
    assert found.absence(0, 0) == "no scale"
    assert found.without_scale == {0}


def test_a_prior_without_scale_has_a_column_of_its_own_where_no_scale_is_fixed(made):
    found = combine([made.record("normal"), made.record("flat", made.NO_SCALE)])
    assert found.columns == ("half-normal", "fixed")
    assert found.finished(1, 1)


def test_hyperpriors_of_one_kind_are_not_mixed(made):
    narrow = made.HALF_NORMAL | {"sigma": 0.1}
    found = combine([made.record(), made.record("normal", narrow)])
    assert [len(group) for group in found.records.values()] == [1, 1]


def test_failed_cells_keep_their_place(made):
    found = combine([made.record(failed=True), made.record("laplace", made.FIXED)])
    assert found.finished(0, 0) == []
    assert found.absence(0, 0) == "failed"
    assert found.absence(0, 1) == "not run"


def test_scores_are_means_over_finished_seeds(made):
    def record(seed, **changes):
        return made.record(dataset=made.MOONS | {"seed": seed}, **changes)

    found = combine([record(0, accuracy=0.8), record(1, accuracy=0.9), record(2, failed=True)])
    mean, error = found.score(0, 0, "accuracy")
    assert mean == pytest.approx(0.85)
    assert error == pytest.approx(0.05)
    assert found.seeds == 2
    assert math.isnan(found.score(0, 0, "unknown")[0])


def test_what_the_means_are_over(made):
    def record(data_seed, fit_seed, accuracy=0.8):
        one = made.record(accuracy=accuracy)
        dataset = one.settings["dataset"] | {"seed": data_seed}
        changes = {"dataset": dataset, "inference": {"seed": fit_seed}}
        return made.changed(one, settings=one.settings | changes)

    assert combine([record(0, 0)]).error_note == ""
    said = combine([record(0, 0), record(1, 0)]).error_note
    assert said == "mean ± standard error over 2 data seeds"
    fits = combine([record(0, seed, accuracy) for seed, accuracy in enumerate((0.7, 0.8, 0.9))])
    assert fits.error_note == "mean ± standard error over 3 fits"
    assert fits.score(0, 0, "accuracy") == pytest.approx((0.8, 0.1 / 3**0.5))
