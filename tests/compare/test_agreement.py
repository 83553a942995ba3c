"""Fitted cells held against sampled ones of the same posterior."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from pmbnn.compare.agreement import FILE, agreement_table, write_agreement
from pmbnn.prediction.check import MARGIN, distance_verdict
from pmbnn.results.references import pairs
from pmbnn.results.store import Results, trace_writer

GUIDED = {"engine": "compiled", "guide": "mean_field", "kl_weight": 1.0, "kl_scaling": "sum"}
SAMPLED = {"engine": "mclmc", "chains": 4}


def record(made, name, inference, status="converged", **changes):
    one = made.record(**changes)
    settings = one.settings | {"inference": inference}
    return made.changed(
        one, name=name, settings=settings, status=status, predictive="class_probabilities"
    )


def trace_of(first_class, sd, chains=None):
    """A trace whose probabilities of the first of two classes at test rows and map are given."""
    p = np.asarray(first_class)
    arrays = {
        "probability": (("row", "output"), np.stack([p, 1 - p], -1)),
        "sd": (("row", "output"), np.full((len(p), 2), sd)),
    }
    if chains is not None:
        of_chains = np.stack([chains, 1 - np.asarray(chains)], -1)
        arrays["chain_probability"] = (("chain", "row", "output"), of_chains)
    group = xr.Dataset(arrays)
    return xr.DataTree.from_dict({"/test_predictions": group, "/predictions": group})


@pytest.fixture
def folder(tmp_path):
    results = Results(tmp_path)
    results.prepare()
    return results


def stored(results, record, trace):
    return results.save_cell(record, {"trace.nc": trace_writer(trace)})


def test_a_fit_is_paired_with_what_differs_in_inference_alone(made):
    fit = record(made, "fit", GUIDED)
    same, other = record(made, "same", SAMPLED), record(made, "other", SAMPLED, prior="laplace")
    tempered = record(made, "tempered", GUIDED | {"kl_weight": 0.1})
    failed = record(made, "failed", SAMPLED, failed=True)
    found = [(a.name, b.name) for a, b in pairs([fit, same, other, tempered, failed])]
    assert found == [("fit", "same")]


def test_distances_by_hand(made, folder):
    chains = np.array([[0.5, 0.9], [0.7, 0.9], [0.5, 0.7], [0.7, 0.7]])
    fit = stored(folder, record(made, "fit", GUIDED), trace_of([0.4, 0.9], 0.2))
    reference = record(made, "reference", SAMPLED)
    reference = stored(folder, reference, trace_of([0.6, 0.8], 0.1, chains))
    (row,) = agreement_table(folder, [fit, reference]).to_dict("records")
    assert row["total_variation"] == pytest.approx((0.2 + 0.1) / 2)
    assert row["total_variation_map"] == row["total_variation"]
    assert row["same_class"] == 0.5
    assert row["sd_ratio"] == pytest.approx(2)
    # Without one chain the two means move by a third of its distance from them.
    of_others = [0.15 + (a + b) / 2 for a in (1 / 30, -1 / 30) for b in (1 / 30, -1 / 30)]
    assert row["total_variation_mcse"] == pytest.approx(np.sqrt(3 * np.var(of_others)), rel=1e-5)
    assert 0 < row["total_variation_floor"] <= 0.2
    assert (row["reference"], row["engine"]) == ("reference", "mclmc")
    assert row["accuracy_difference"] == 0


@pytest.mark.parametrize(
    ("distance", "error", "status", "verdict"),
    [
        (0.014, 0.1, "converged", "agrees"),
        (0.02, 0.002, "converged", "differs"),
        (0.02, 0.01, "converged", "undecided"),
        (0.5, 0.001, "undecided", "undecided"),
    ],
)
def test_verdicts(distance, error, status, verdict):
    assert pytest.approx(0.015) == MARGIN * 0.01
    assert distance_verdict(distance, error, 0.01, status) == verdict


def test_the_table_is_written_and_goes_when_there_is_none(made, folder):
    fit = stored(folder, record(made, "fit", GUIDED), trace_of([0.4], 0.2))
    reference = record(made, "reference", SAMPLED)
    reference = stored(folder, reference, trace_of([0.6], 0.1, [[0.5], [0.7]]))
    write_agreement(folder, [fit, reference])
    table = pd.read_csv(folder.folder / FILE)
    assert list(table["name"]) == ["fit"]
    write_agreement(folder, [fit])
    assert not (folder.folder / FILE).exists()


def test_an_exact_fit_agrees_as_often_as_the_margin_promises():
    """Blocks of one distribution: its own means are seldom called different, half off often."""
    from pmbnn.prediction.chain_errors import jackknife_error, without_each
    from pmbnn.prediction.check import floor_of, total_variation

    rng = np.random.default_rng(0)

    def verdict(shift):
        p = rng.beta(20, 10, size=(17, 60)) * 0.02 + 0.5
        mean, chains = p[0] * 0 + p[1:].mean() + shift, np.stack([p[1:], 1 - p[1:]], -1)
        chains += rng.normal(0, 0.01, size=(16, 1, 1)) * np.array([1, -1])
        ours = np.stack([mean, 1 - mean], -1)
        of = [total_variation(ours, other).value for other in without_each(chains)]
        distance = total_variation(ours, chains.mean(axis=0)).value
        floor = floor_of(chains, total_variation)
        return distance_verdict(distance, jackknife_error(of), floor, "converged")

    exact = [verdict(0.0) for _ in range(200)]
    assert exact.count("differs") <= 10
    assert exact.count("agrees") >= 150
    off = [verdict(0.03) for _ in range(200)]
    assert off.count("differs") >= 180
