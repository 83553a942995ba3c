"""What the page leads with, in words."""

import pytest

from pmbnn.report.answer import NOT_RANKED, answer_of
from pmbnn.report.details import grids
from pmbnn.report.tables import CellView, Parts


def answer(records):
    cells = [CellView(f"cell-{n}", "own", r, {}, Parts(), ()) for n, r in enumerate(records)]
    (grid,) = grids(cells)
    return answer_of(grid)


def cells(made, prior, scores, **changes):
    return [
        made.record(prior, dataset=made.MOONS | {"seed": seed}, excess_nll=value, **changes)
        for seed, value in enumerate(scores)
    ]


@pytest.fixture
def three(made):
    """A best, one that is not significantly worse, and one that is."""
    records = cells(made, "normal", [0.1, 0.2, 0.3])
    records += cells(made, "laplace", [0.3, 0.1, 0.4])
    return records + cells(made, "cauchy", [3.31, 3.42, 3.5])


def test_the_lead_names_the_best_and_who_is_not_significantly_worse(three):
    found = answer(three)
    assert found.title == "own, toy: moons, noise 0.4"
    best, not_worse, worse = found.lead
    assert best == (
        "Lowest excess NLL at fresh points: normal × half-normal, 0.2 ± 0.058 nats "
        "(mean ± standard error over 3 data seeds)."
    )
    assert not_worse == "Not significantly worse: Laplace × half-normal."
    assert worse == "Significantly worse, by 3.2 nats: Cauchy × half-normal."
    assert "equal" not in " ".join(found.lead)


def test_rows_have_the_paired_difference_and_its_interval(three):
    first, second, third = answer(three).rows
    assert (first.difference, first.interval, first.verdict.text) == ("", "", "best")
    assert second.difference == "+0.0667 ± 0.088"
    assert third.difference == "+3.21 ± 0.0058"
    low, high = map(float, third.interval.split(" to "))
    assert 0 < low < 3.21 < high and low + high == pytest.approx(2 * 3.21, abs=0.1)
    assert third.verdict.text == "significantly worse"


def test_maps_beside_it_are_of_those_that_may_be_best(three):
    found = answer(three)
    assert [words for words, _ in found.leaders] == [
        "normal × half-normal",
        "Laplace × half-normal",
    ]
    assert found.leaders_seed == "data seed 0"
    assert [shown.key for _, shown in found.leaders] == ["cell-0", "cell-3"]


def test_the_conditions_of_the_answer(three):
    words = answer(three).conditions
    for part in ("steps 10000", "data seeds 0, 1, 2", "95 % intervals", "hold at once"):
        assert part in words


@pytest.mark.parametrize("seeds", [1, 2])
def test_few_data_seeds_show_nobody_to_be_worse(made, seeds):
    scores = {"normal": [0.1, 0.2], "laplace": [0.9, 1.1]}
    found = answer([r for prior, own in scores.items() for r in cells(made, prior, own[:seeds])])
    assert ("(one data seed)" in found.lead[0]) == (seeds == 1)
    assert found.lead[1] == "No interval with fewer than 3 data seeds: Laplace × half-normal."
    assert found.rows[1].verdict.text == "fewer than 3 data seeds: no interval"
    assert "intervals" not in found.conditions


def test_test_rows_rank_nothing(made):
    found = answer([made.record(accuracy=0.99, validation_nll=None)])
    assert (found.lead, found.rows, found.leaders) == ([NOT_RANKED], [], [])


def test_failed_combinations_are_named(made):
    found = answer(cells(made, "normal", [0.1]) + [made.record("laplace", failed=True)])
    assert found.lead[-1] == "No score: Laplace × half-normal."


def test_one_combination_is_compared_with_none(made):
    assert answer(cells(made, "normal", [0.1, 0.2])).lead[1].startswith("It is the only combina")


def test_failed_cells_alone(made):
    assert answer([made.record(failed=True)]).lead == [NOT_RANKED]
