"""Tables: flat rows, means over data seeds against NumPy, and a best cell chosen fairly."""

import math

import makers
import numpy as np
import pandas as pd
import pytest
from makers import changed, spec

from pmbnn.results.names import best_group, dataset_label, group_by_settings, label, settings_row
from pmbnn.results.record import CellRecord
from pmbnn.results.tables import (
    accuracy_error,
    mean_and_error,
    metrics_table,
    ood_table,
    readable,
    summary_table,
    union_of_names,
)


def record(seed=0, prior="normal", sweep="toy", hyperprior=None, seconds=1.0, **results):
    """Record of a cell; one without results has failed."""
    return CellRecord(
        sweep=sweep,
        name=f"{sweep}-{prior}-{seed}",
        status="converged" if results else "diverged",
        reason="as said",
        settings={
            "dataset": {"kind": "moons", "seed": seed, "noise": 0.4},
            "network": {"kind": "dense", "hidden": [5, 4]},
            "prior": {"kind": prior, "fan_in": False},
            "hyperprior": hyperprior or {"kind": "fixed", "scale": {"log": [0.1, 10.0, 5]}},
            "inference": {"seed": 0, "epochs": None},
        },
        results=results,
        seconds=seconds,
    )


def metrics_row(made):
    [row] = metrics_table([made]).to_dict("records")
    return row


def summarise(records):
    return summary_table(records).to_dict("records")


# Files


def test_a_file_begins_with_what_a_person_looks_for():
    made = [
        makers.record(prior, hyperprior, makers.MOONS | {"seed": seed}, nll=0.5)
        for prior in ("normal", "laplace")
        for hyperprior in (makers.FIXED, makers.HALF_NORMAL)
        for seed in range(2)
    ]
    table = readable(metrics_table(made), [one.cell for one in made])
    columns = list(table)
    assert columns[:6] == ["seed", "prior", "hyperprior", "status", "accuracy", "mean_sd"]
    assert columns[columns.index("name") :][:3] == ["name", "prior.kind", "hyperprior.kind"]
    assert not {"sweep", "dataset", "dataset.seed", "inference.steps"} & set(columns)
    assert table["hyperprior"].unique().tolist() == ["fixed 1", "half-normal"]
    assert table["name"].tolist() == [one.name for one in made]
    means = [group[0].cell for group in group_by_settings(made)]
    summary = readable(summary_table(made), means)
    assert list(summary)[:5] == ["prior", "hyperprior", "cells", "failed", "not_converged"]
    assert len(summary) == 4


def test_leading_columns_are_those_that_vary():
    wide = {"kind": "dense", "hidden": [50]}
    circles = makers.MOONS | {"kind": "circles"}
    made = [
        makers.record(),
        makers.record(dataset=circles, sweep="other"),
        makers.record(network=wide, inference={"engine": "nuts"}),
    ]
    table = readable(metrics_table(made), [one.cell for one in made])
    assert list(table)[:5] == ["sweep", "dataset", "network", "inference", "status"]
    again = [makers.record(inference={"seed": seed}) for seed in range(2)]
    columns = [*readable(metrics_table(again), [one.cell for one in again])]
    assert columns[:2] == ["inference.seed", "status"] and columns.count("inference.seed") == 1
    alone = readable(metrics_table(made[:1]), [made[0].cell])
    assert list(alone)[0] == "status" and not any("." in name for name in alone)
    assert readable(metrics_table([]), []).empty


# Rows


def test_a_row_is_flat():
    assert metrics_row(record(accuracy=0.8, scale=None)) == {
        "sweep": "toy",
        "name": "toy-normal-0",
        "status": "converged",
        "dataset.kind": "moons",
        "dataset.seed": 0,
        "dataset.noise": 0.4,
        "network.kind": "dense",
        "network.hidden": "5-4",
        "prior.kind": "normal",
        "prior.fan_in": False,
        "hyperprior.kind": "fixed",
        "hyperprior.scale.log": "0.1-10.0-5",
        "inference.seed": 0,
        "inference.epochs": None,
        "accuracy": 0.8,
        "scale": None,
        "seconds": 1.0,
        "reason": "as said",
    }


def test_specifications_in_a_list_have_short_names():
    layers = [{"kind": "convolution", "filters": 32, "size": 5}, {"kind": "flatten"}]
    network = {"kind": "layers", "layers": layers}
    row = settings_row({"network": network})
    assert row == {"network.kind": "layers", "network.layers": "conv32x5-flatten"}


def test_a_failed_row_has_its_settings_and_reason():
    row = metrics_row(record())
    assert (row["status"], row["reason"]) == ("diverged", "as said")
    assert "accuracy" not in row
    assert settings_row(record().settings).items() <= row.items()


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"kind": "half_normal", "sigma": 1.0}, "half_normal"),
        ({"kind": "fixed", "scale": 0.1}, "fixed 0.1"),
        ({"kind": "fixed", "scale": 10.0}, "fixed 10"),
        ({"kind": "fixed", "scale": None}, "fixed"),
        ({"kind": "fixed", "scale": {"log": [0.1, 1, 2]}}, "fixed (tuned)"),
    ],
)
def test_labels(section, words):
    assert label(spec("hyperprior", **section)) == words


def test_data_label_leaves_out_the_seed():
    assert dataset_label(record(seed=3).cell.dataset) == "moons, noise 0.4"
    circles = spec("dataset", kind="circles", noise=0.1, factor=0.5)
    assert dataset_label(circles) == "circles, noise 0.1, factor 0.5"


# Classifiers of images

UNCERTAINTY = {"size": 60, "entropy": 0.5, "rejected_by_sd": 0.01}
IMAGES = {
    "rejection": {
        "held_out": "validation",
        "sd": 0.3,
        "accepted": 0.98,
        "area_under_risk_coverage": {"sd": 0.01, "entropy": 0.02},
    },
    "test": UNCERTAINTY,
    "ood": {
        "letters": {
            "source": "fonts",
            **UNCERTAINTY,
            "auroc_sd": 0.9,
            "rejected_by_label": {"A": 0.5},
        }
    },
    "unavailable": {"fashion": "no network"},
}


def test_what_thresholds_accept_is_in_the_row():
    row = metrics_row(changed(record(accuracy=0.8), images=IMAGES))
    rejection = {key: value for key, value in row.items() if key.startswith("rejection")}
    assert rejection == {
        "rejection.held_out": "validation",
        "rejection.sd": 0.3,
        "rejection.accepted": 0.98,
        "rejection.area_under_risk_coverage.sd": 0.01,
        "rejection.area_under_risk_coverage.entropy": 0.02,
    }
    assert {k: v for k, v in row.items() if k not in rejection} == metrics_row(record(accuracy=0.8))
    assert list(row)[-2:] == ["seconds", "reason"]


def test_a_row_for_every_set_of_images():
    made = changed(record(accuracy=0.8), images=IMAGES)
    head = {"sweep": "toy", "name": "toy-normal-0"} | settings_row(made.settings)
    found = [
        {name: value for name, value in row.items() if not pd.isna(value)}
        for row in ood_table([made]).drop(columns="inference.epochs").to_dict("records")
    ]
    del head["inference.epochs"]
    assert found == [
        head | {"set": "test"} | UNCERTAINTY,
        head | {"set": "letters", "source": "fonts"} | UNCERTAINTY | {"auroc_sd": 0.9},
        head | {"set": "fashion", "reason": "no network"},
    ]


def test_points_and_failed_cells_have_no_sets():
    assert ood_table([record(accuracy=0.8), record()]).empty


# Means


@pytest.mark.parametrize("size", [2, 3, 5, 40])
def test_mean_and_standard_error_equal_numpy(size):
    values = np.random.default_rng(size).normal(3, 2, size)
    mean, error = mean_and_error(list(values))
    assert mean == pytest.approx(np.mean(values), rel=1e-14)
    assert error == pytest.approx(np.std(values, ddof=1) / np.sqrt(size), rel=1e-12)


def test_standard_error_of_overlapping_splits():
    """s² (1/n + test rows / training rows), after Nadeau and Bengio (2003)."""
    _, error = mean_and_error([1.0, 2.0, 4.0, 5.0], overlap=0.25)
    assert error == pytest.approx(math.sqrt(10 / 3 * (1 / 4 + 1 / 4)), rel=1e-12)


def test_standard_error_far_from_zero():
    """Deviations are taken from the mean: sums of squares would lose every digit."""
    _, error = mean_and_error([1e9, 1e9 + 1, 1e9 + 2])
    assert error == pytest.approx(1 / math.sqrt(3), rel=1e-12)


def test_one_value_has_no_error():
    mean, error = mean_and_error([0.25])
    assert mean == 0.25
    assert math.isnan(error)


def test_unknown_values_are_left_out():
    assert mean_and_error([1.0, None, 3.0]) == mean_and_error([1.0, 3.0])
    assert all(map(math.isnan, mean_and_error([None])))
    assert all(map(math.isnan, mean_and_error([])))


def test_summary_over_seeds():
    accuracy = [0.8, 0.85, 0.7]
    rows = summarise(
        [record(seed=s, accuracy=a, scale=None) for s, a in enumerate(accuracy)]
        + [record(seed=0, prior="cauchy", accuracy=0.5, scale=2.0)]
    )
    assert [row["prior.kind"] for row in rows] == ["normal", "cauchy"]
    assert [(row["cells"], row["failed"]) for row in rows] == [(3, 0), (1, 0)]
    assert rows[0]["accuracy"] == pytest.approx(np.mean(accuracy))
    assert rows[0]["accuracy_se"] == pytest.approx(np.std(accuracy, ddof=1) / np.sqrt(3))
    assert math.isnan(rows[0]["scale"])
    assert (rows[1]["scale"], rows[1]["accuracy"]) == (2.0, 0.5)
    assert math.isnan(rows[1]["accuracy_se"])
    assert "dataset.seed" not in rows[0]
    assert rows[0]["dataset.noise"] == 0.4


def test_summary_counts_failed_cells_and_leaves_them_out():
    rows = summarise([record(seed=0), record(seed=1, accuracy=0.8), record(seed=2, accuracy=0.6)])
    (row,) = rows
    assert (row["cells"], row["failed"]) == (3, 1)
    assert row["accuracy"] == pytest.approx(0.7)
    assert row["accuracy_se"] == pytest.approx(0.1)


def test_summary_where_every_cell_failed():
    (row,) = summarise([record(seed=0), record(seed=1)])
    assert (row["cells"], row["failed"]) == (2, 2)
    assert "accuracy" not in row


def test_summary_of_nothing():
    assert summarise([]) == []


# Groups


def test_groups_ignore_seeds_only():
    tuned, half = {"kind": "fixed", "scale": 1.0}, {"kind": "half_normal", "sigma": 1.0}
    records = [
        record(seed=0, accuracy=0.1),
        record(seed=0, prior="laplace", accuracy=0.2),
        record(seed=1, accuracy=0.3),
        record(seed=0, sweep="other", accuracy=0.4),
        record(seed=0, hyperprior=tuned, accuracy=0.5),
        record(seed=0, hyperprior=half, accuracy=0.6),
        record(seed=2),
    ]
    groups = group_by_settings(records)
    numbers = [[records.index(one) for one in group] for group in groups]
    assert numbers == [[0, 2, 6], [1], [3], [4], [5]]


def fitted(data_seed, fit_seed, accuracy):
    one = record(seed=data_seed, accuracy=accuracy)
    return changed(one, settings=one.settings | {"inference": {"seed": fit_seed}})


def test_fits_to_one_data_set_are_repetitions():
    records = [fitted(0, seed, accuracy) for seed, accuracy in enumerate((0.5, 0.7, 0.9))]
    [row] = summarise(records)
    assert row["accuracy"] == pytest.approx(0.7)
    assert row["accuracy_se"] == pytest.approx(0.2 / 3**0.5)
    assert row["cells"] == 3
    assert "inference.seed" not in row


def test_fits_to_several_data_sets_are_averaged_first():
    """Two data seeds, with means 0.6 and 0.9, however many fits each has."""
    records = [fitted(0, seed, accuracy) for seed, accuracy in enumerate((0.5, 0.6, 0.7))]
    records += [fitted(1, 0, 0.9)]
    [row] = summarise(records)
    assert row["accuracy"] == pytest.approx(0.75)
    assert row["accuracy_se"] == pytest.approx(0.15)


def test_a_seed_that_all_share_is_a_setting():
    [row] = summarise([fitted(0, 3, 0.5), fitted(1, 3, 0.7)])
    assert row["inference.seed"] == 3


def scored(prior, scores, accuracy=0.5):
    return [
        record(seed, prior, validation_nll=score, nll=1 - accuracy, accuracy=accuracy)
        for seed, score in enumerate(scores)
    ]


def test_the_best_group_has_the_lowest_mean_held_out_score():
    records = (
        scored("normal", [0.5, 0.6]) + scored("cauchy", [0.9, 0.1]) + scored("flat", [0.7] * 2)
    )
    assert {r.settings["prior"]["kind"] for r in best_group(records)} == {"cauchy"}
    assert len(best_group(records)) == 2


@pytest.mark.parametrize("accuracies", [(0.1, 0.9), (0.9, 0.1), (0.5, 0.5)])
def test_no_test_number_matters_to_the_choice(accuracies):
    worse, better = accuracies
    records = scored("normal", [0.5, 0.6], worse) + scored("cauchy", [0.4, 0.5], better)
    assert best_group(records) == records[2:]


def test_a_group_with_a_failed_or_unscored_cell_is_not_chosen():
    records = scored("normal", [0.5, 0.6]) + scored("cauchy", [0.1, None])
    records += [*scored("laplace", [0.1]), record(1, "laplace")]
    records += scored("flat", [0.1, math.inf])
    assert best_group(records) == records[:2]


def test_a_group_that_lacks_a_data_seed_is_not_chosen():
    """Others are not fitted yet: the first data seed is an easier one."""
    assert best_group(scored("cauchy", [0.2]) + scored("normal", [0.3, 0.7])) == scored(
        "normal", [0.3, 0.7]
    )


def test_nothing_is_best_where_nothing_is_scored():
    assert best_group(scored("normal", [None, None]) + [record(seed=3)]) == []
    assert best_group([]) == []


def test_whole_numbers_stay_whole_beside_missing_ones():
    table = metrics_table([record(draws=3), record(seed=1), record(seed=2, draws=None)])
    assert table.to_csv(columns=["draws"], index=False) == 'draws\n3\n""\n""\n'


def test_columns_do_not_depend_on_which_seed_lacks_one():
    """A seed without ``pareto_k`` neither removes the column nor moves it, whichever it is."""
    full = {"accuracy": 0.8, "pareto_k": 0.6, "nll": 0.4}
    lacking = {"accuracy": 0.7, "nll": 0.5}
    for table in (summary_table, metrics_table):
        tables = [
            table([record(seed=0, **first), record(seed=1, **second)])
            for first, second in ((full, lacking), (lacking, full))
        ]
        assert list(tables[0].columns) == list(tables[1].columns)
    [row] = summarise([record(seed=0, **lacking), record(seed=1, **full)])
    assert row["pareto_k"] == 0.6
    assert math.isnan(row["pareto_k_se"])


def test_a_name_stands_after_those_before_it_in_its_row():
    assert union_of_names(["ac", "abc", "bd"]) == ["a", "b", "d", "c"]
    assert union_of_names([]) == []


@pytest.mark.parametrize("test", [0.2, "test.csv"])
def test_the_field_test_of_a_plugin_may_be_no_number_of_rows(test):
    own = changed(record(accuracy=0.9), settings={"dataset": {"kind": "own", "test": test}})
    assert accuracy_error(own) is None
    sized = changed(own, settings={"dataset": {"kind": "own", "test": 100}})
    assert accuracy_error(sized) == pytest.approx(0.03)


def test_errors_of_single_cells_do_not_stand_for_those_of_means():
    cells = [record(seed, elpd_loo=seed, elpd_loo_se=9.0) for seed in range(3)]
    (row,) = summary_table(cells).to_dict("records")
    assert row["elpd_loo_se"] == pytest.approx(1 / math.sqrt(3))
    assert "elpd_loo_se_se" not in row
    (alone,) = summary_table(cells[:1]).to_dict("records")
    assert math.isnan(alone["elpd_loo_se"])
