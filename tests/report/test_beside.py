"""Published numbers beside ours: which cells, which number, which difference."""

import math

import pytest

from pmbnn.experiment.published import PublishedTable
from pmbnn.report.published_table import compare_published, value_at
from pmbnn.report.tables import CellView, Parts


def number(**changes):
    told = {"id": "a", "quantity": "q", "value": 0.8, "path": "results/accuracy"} | changes
    shared = {
        "study": "s",
        "source": "s",
        "experiment": "priors",
        "where": {"sweep": "synthetic"},
    }
    return shared | {"numbers": [told]}


@pytest.fixture
def cells(make):
    return [
        CellView(f"cell-{at}", "priors", record, {}, Parts(), ())
        for at, record in enumerate(make.records())
    ]


def one(cells, **changes):
    return found([number(**changes)], cells)[0]


def found(groups, cells):
    return compare_published(PublishedTable.model_validate({"groups": groups}).numbers, cells)


def test_mean_and_error_over_the_cells_that_fit(cells):
    found = one(cells, where={"prior.kind": "laplace", "hyperprior.kind": "half_normal"})
    assert [cell.record.settings["dataset"]["seed"] for cell in found.cells] == [0, 1]
    assert found.ours == pytest.approx((0.83 + 0.87) / 2)
    assert found.error == pytest.approx(0.02)
    assert found.difference == pytest.approx(0.05)


def test_equal_values_have_no_error(cells):
    found = one(cells, path="results/nll", where={"prior.kind": "laplace"}, value=0.5)
    assert len(found.cells) == 4
    assert math.isnan(found.error)
    assert found.difference == pytest.approx(-0.1)


def test_units_and_errors(cells):
    where = {"prior.kind": "flat"}
    assert one(cells, where=where, unit="%", value=85).ours == pytest.approx(86)
    assert one(cells, where=where, unit="%", value=15, error=True).ours == pytest.approx(14)
    assert one(cells, where=where, path="results/elbo", factor=-0.5).ours == pytest.approx(100)
    assert one(cells, where=where, power=2).ours == pytest.approx(0.86**2)


def test_best_is_chosen_by_the_held_out_score(cells):
    found = one(cells, choose="best", where={"hyperprior.kind": "half_normal"})
    assert {cell.record.settings["prior"]["kind"] for cell in found.cells} == {"laplace"}


def test_difference_to_a_range(cells):
    where = {"prior.kind": "flat"}
    assert one(cells, where=where, value=[0.8, 0.9]).difference == 0
    assert one(cells, where=where, value=[0.7, 0.8]).difference == pytest.approx(0.06)
    assert one(cells, where=where, value="high").difference is None


def test_a_ratio_of_two_numbers(cells):
    below = number(id="b", path="results/nll", where={"prior.kind": "flat"})
    above = number(over="b", where={"prior.kind": "flat"})
    assert found([above, below], cells)[0].ours == pytest.approx(0.86 / 0.35)


def test_a_number_of_no_experiment_is_of_any(cells):
    group = number(where={"prior.kind": "flat"}) | {"experiment": None}
    assert found([group], cells)[0].ours == pytest.approx(0.86)


@pytest.mark.parametrize(
    "changes",
    [
        {"experiment": "noise"},
        {"where": {"prior.kind": "cauchy"}},
        {"where": {"prior.colour": "red"}},
        {"path": "results/rmse"},
    ],
)
def test_not_among_these_results(cells, changes):
    found = one(cells, **changes)
    assert (found.ours, found.difference, found.cells) == (None, None, ())


def test_different_words_of_several_cells_are_all_named(cells):
    every = {cell.record.status for cell in cells}
    assert len(every) > 1
    assert set(one(cells, path="status", value="converged").ours.split(", ")) == every


def test_values_at_paths():
    record = {"a": {"b_1.5": [1, {"c": 2}]}}
    assert value_at(record, "a/b_1.5/0") == 1
    assert value_at(record, "a/b_1.5/-1/c") == 2
    for path in ("a/x", "a/b_1.5/7", "a/b_1.5/x", "a/b_1.5/0/c"):
        assert value_at(record, path) is None
