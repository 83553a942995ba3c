"""Learned scales against fixed ones on the same data."""

import numpy as np
import pandas as pd
import pytest

from pmbnn.compare.claims import ALL, BEST_FIXED, last_of_seed, paired_rows
from pmbnn.results.tables import combine

FIXED = [{"kind": "fixed", "scale": scale} for scale in (0.1, 1.0)]


def cell(made, hyperprior, seed, error, prior="normal", **changes):
    data = made.MOONS | {"seed": seed}
    return made.record(prior, hyperprior, data, excess_error=error, **changes)


def found(records):
    return {
        (row["prior"], row["hyperprior"], row["against"], row["measure"]): row
        for row in paired_rows(combine(records))
    }


def test_differences_are_taken_at_the_same_seed(made):
    records = [
        cell(made, made.TUNED, seed, error) for seed, error in ((0, 0.1), (1, 0.5), (2, 9.0))
    ]
    records += [cell(made, made.HALF_NORMAL, seed, error) for seed, error in ((0, 0.2), (1, 0.4))]
    row = found(records)["normal", "half-normal", "fixed (tuned)", "excess error"]
    assert row["mean"] == pytest.approx(0.0, abs=1e-12)
    assert row["se"] == pytest.approx(0.1)
    assert row["seeds"] == 2


def test_the_best_of_several_fixed_scales_is_chosen_on_held_out_rows(made):
    scores = {(0, 0): 0.3, (1, 0): 0.4, (0, 1): 0.6, (1, 1): 0.5}
    records = [
        cell(made, FIXED[i], seed, error=i + 1.0, validation_nll=score)
        for (i, seed), score in scores.items()
    ]
    records += [cell(made, made.HALF_NORMAL, seed, 0.0) for seed in (0, 1)]
    rows = found(records)
    assert rows["normal", "half-normal", BEST_FIXED, "excess error"]["mean"] == -1.5
    assert rows["normal", "half-normal", "fixed 0.1", "excess error"]["mean"] == -1.0
    assert rows["normal", "half-normal", "fixed 1", "excess error"]["mean"] == -2.0


def test_over_all_priors(made):
    errors = {"normal": (0.1, 0.3), "laplace": (0.5, 0.1)}
    records = [cell(made, made.TUNED, seed, 0.2, prior) for prior in errors for seed in (0, 1)]
    for prior, values in errors.items():
        records += [cell(made, made.HALF_NORMAL, s, e, prior) for s, e in enumerate(values)]
    rows = found(records)
    row = rows[ALL, ALL, "fixed (tuned)", "excess error"]
    assert (row["mean"], row["seeds"]) == (pytest.approx((0.1 + 0.0) / 2), 2)
    share = rows[ALL, ALL, "fixed (tuned)", "share of pairs with less excess error"]
    assert share["mean"] == 0.5 and share["se"] == 0.0


def test_less_is_better_where_accuracy_is_all_there_is(made):
    records = [made.record(hyperprior=made.TUNED, dataset=made.MNIST, accuracy=0.9, nll=0.4)]
    records += [made.record(dataset=made.MNIST, accuracy=0.93, nll=None)]
    rows = found(records)
    row = rows["normal", "half-normal", "fixed (tuned)", "error"]
    assert row["mean"] == pytest.approx(-0.03) and np.isnan(row["se"])
    assert {key[3] for key in rows} == {"error"}


def test_failed_cells_and_flat_priors_have_no_pairs(made):
    records = [cell(made, made.TUNED, 0, 0.1), made.record(failed=True)]
    records += [made.record("flat", made.NO_SCALE)]
    assert found(records) == {}


def test_the_last_fit_of_a_seed_is_one_row_and_not_put_together_from_several():
    cells = pd.DataFrame({"row": 0, "column": 0, "seed": [0, 0, 1], "record": ["a", "b", "c"]})
    cells["scale"] = [0.1, np.nan, 1.0]
    last = last_of_seed(cells)
    assert list(last["record"]) == ["b", "c"]
    assert np.isnan(last["scale"].iloc[0])
