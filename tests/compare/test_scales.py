"""Best fixed scales, and learned ones."""

import numpy as np
import pandas as pd
import pytest

from pmbnn.cli.tables import claims_tables
from pmbnn.compare.claims import KEYS, SCALES, scale_rows
from pmbnn.results.tables import combine


def found(records, learned=None):
    rows = scale_rows(combine(records), learned or {})
    return {(row["prior"], row["hyperprior"], row["measure"]): row for row in rows}


def cells(made, scale, nll, held_out=(0.5, 0.5), prior="laplace"):
    hyperprior = {"kind": "fixed", "scale": scale}
    return [
        made.record(prior, hyperprior, made.MOONS | {"seed": s}, excess_nll=n, validation_nll=v)
        for s, (n, v) in enumerate(zip(nll, held_out, strict=True))
    ]


def test_the_best_scale_and_what_held_out_rows_choose(made):
    records = cells(made, 0.1, (0.3, 0.3), (0.2, 0.9)) + cells(made, 10.0, (0.1, 0.2), (0.3, 0.8))
    rows = found(records)
    assert rows["Laplace", "fixed", "best by excess NLL"]["mean"] == 10.0
    there = rows["Laplace", "fixed", "excess NLL there"]
    assert (there["mean"], there["se"]) == (pytest.approx(0.15), pytest.approx(0.05))
    chosen = rows["Laplace", "fixed", "chosen on held-out rows"]
    assert chosen["mean"] == pytest.approx(1.0)  # geometric mean of 0.1 and 10
    assert chosen["se"] == pytest.approx(np.log(10))


def test_tuned_scales_are_those_chosen(made):
    records = [
        made.record(hyperprior=made.TUNED, dataset=made.MOONS | {"seed": seed}, scale=scale)
        for seed, scale in enumerate((1.0, 4.0))
    ]
    row = found(records)["normal", "fixed", "chosen on held-out rows"]
    assert row["mean"] == pytest.approx(2.0)


def test_learned_scales(made):
    records = [made.record(dataset=made.MOONS | {"seed": seed}) for seed in (0, 1)]
    names = [record.name for record in records]
    learned = {names[0]: {"layer_1_scale": 0.5}, names[1]: {"layer_1_scale": 2.0}}
    row = found(records, learned)["normal", "half-normal", "learned, layer 1"]
    assert row["mean"] == pytest.approx(1.0) and row["seeds"] == 2


def test_a_flat_prior_has_no_scale(made):
    assert found([made.record("flat", made.NO_SCALE)]) == {}


def test_failing_on_a_data_seed_is_no_advantage(made):
    """The scale 10 has no score where the others have their worst."""
    records = cells(made, 0.1, (0.1, 0.5)) + cells(made, 1.0, (0.2, 0.6))
    rows = found(records + cells(made, 10.0, (0.15,), (0.5,)))
    assert rows["Laplace", "fixed", "best by excess NLL"]["mean"] == 0.1
    assert rows["Laplace", "fixed", "excess NLL there"]["mean"] == pytest.approx(0.3)


def test_fits_of_one_data_seed_are_no_data_seeds(made):
    records = [made.record(inference={"steps": 10000, "seed": seed}) for seed in range(3)]
    learned = {r.name: {"layer_1_scale": s} for r, s in zip(records, (1, 2, 4), strict=True)}
    row = found(records, learned)["normal", "half-normal", "learned, layer 1"]
    assert (row["mean"], row["seeds"], row["cells"]) == (pytest.approx(2), 1, 3)
    assert row["se"] == pytest.approx(2 * np.log(2) / np.sqrt(3))
    head = dict.fromkeys(KEYS, "") | {"claim": SCALES, "overlap": 0.0}
    (table,) = claims_tables(pd.DataFrame([head | row]))
    assert str(table.caption) == "mean ± standard error over fits"
