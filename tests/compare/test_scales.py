"""Best fixed scales, and learned ones."""

import numpy as np
import pytest

from pmbnn.compare.claims import scale_rows
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
