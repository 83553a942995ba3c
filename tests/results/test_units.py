"""Units in headings."""

import pytest

from pmbnn.cli.cell_tables import accuracy_tables
from pmbnn.compare.claims import unit_of_measure
from pmbnn.compare.scores import SCORES
from pmbnn.report.tables import CellView, Parts, result_columns
from pmbnn.results.tables import score_text, unit_of, with_unit


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("nll", "nats"),
        ("pooled_nll", "nats"),
        ("nll_mcse", "nats"),
        ("validation_nll", "nats"),
        ("elpd_loo_se", "nats"),
        ("rmse", "target's units"),
        ("train_rmse", "target's units"),
        ("rmse_height", "target's units"),
        ("mean_at_1.5", "target's units"),
        ("pooled_mean_total_sd", "target's units"),
        ("accuracy", ""),
        ("coverage_90", ""),
        ("targets_within_height", ""),
        ("elbo", "nats"),
    ],
)
def test_units(name, unit):
    assert unit_of(name) == unit


def test_results_in_units_of_the_target_are_of_any_size():
    assert score_text("rmse", 5.5e-7, decimals=4) == "5.5e−7"
    assert score_text("rmse_height", 5e-15, 3e-16) == "5.0e−15 ± 0.3e−15"
    assert score_text("rmse", 1.2345e-15, digits=3, signed=True) == "+1.23e−15"
    assert score_text("nll", 5.5e-7, decimals=4) == "0.0000"
    assert score_text("kl", 7.9e-17) == "0"


def test_headings():
    assert with_unit("NLL", "nll") == "NLL (nats)"
    assert with_unit("ELBO", "elbo") == "ELBO (nats)"
    assert with_unit("ELBO", "elbo", standardised=True) == "ELBO (nats, standardised targets)"
    assert with_unit("NLL", "nll", standardised=True) == "NLL (nats)"
    assert with_unit("accuracy", "accuracy") == "accuracy"
    assert (unit_of_measure("excess NLL"), unit_of_measure("best by NLL")) == ("nats", "")


@pytest.fixture
def numbers(made):
    results = {"rmse": 1.0, "nll": 2.0, "crps": 0.5, "elbo": -20.0, "validation_nll": 2.1}
    one = made.record(dataset={"kind": "table", "seed": 0, "path": "a.csv"}, predictive="density")
    return made.changed(one, results=results)


def test_headings_of_numbers_on_the_page(numbers):
    columns = result_columns([CellView("cell-0", "own", numbers, {}, Parts(), ())])
    assert [column.heading for column in columns.values()] == [
        "RMSE (target's units)",
        "NLL (nats)",
        "CRPS (target's units)",
        "ELBO (nats, standardised targets)",
    ]


def test_headings_of_classes_do_not_speak_of_targets(made):
    cells = [CellView("cell-0", "own", made.record(elbo=-3.0), {}, Parts(), ())]
    assert "ELBO (nats)" in [column.heading for column in result_columns(cells).values()]


def test_headings_of_classes_beside_numbers(made, numbers):
    for records in ([made.record(elbo=-3.0), numbers], [numbers, made.record(elbo=-3.0)]):
        cells = [CellView(f"cell-{n}", "own", r, {}, Parts(), ()) for n, r in enumerate(records)]
        column = result_columns(cells)["elbo"]
        assert column.heading == "ELBO (nats)"
        assert column.note.endswith("of numbers in nats, standardised targets")


def test_the_terminal_names_the_unit(numbers):
    (table,) = accuracy_tables([numbers])
    assert str(table.title).startswith("Test RMSE (target's units), toy")


def test_columns_have_the_unit_of_their_result():
    for scores in SCORES.values():
        for name, column in scores.columns.items():
            assert column.unit.startswith(unit_of(name)) and bool(column.unit) == bool(
                unit_of(name)
            )
