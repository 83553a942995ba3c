"""Fitted cells held against sampled ones of the same posterior."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from pmbnn.compare.agreement import FILE, agreement_table, write_agreement
from pmbnn.prediction.chain_errors import MARGIN, distance_verdict
from pmbnn.results.names import pairs, sampler_pairs
from pmbnn.results.store import Results, trace_writer

GUIDED = {"engine": "compiled", "guide": "mean_field", "kl_weight": 1.0, "kl_scaling": "sum"}
SAMPLED = {"engine": "mclmc", "chains": 4}


def record(made, name, inference, status="converged", **changes):
    one = made.record(**changes)
    settings = one.settings | {"inference": inference}
    return made.changed(
        one, name=name, settings=settings, status=status, predictive="class_probabilities"
    )


def numbers(made, name, inference, status="converged", draws=1000, **results):
    """Record of a cell that predicts numbers."""
    one = made.record(predictive="density", rmse=0.3, nll=0.2)
    settings = one.settings | {"inference": inference, "predict": {"draws": draws}}
    changes = {"settings": settings, "status": status, "results": one.results | results}
    return made.changed(one, name=name, **changes)


def moments_trace(mean, sd, chains=None, lines=1):
    """A trace whose output's moments at test rows and on a line are given."""
    arrays = {"mean": ("row", np.asarray(mean, "f4")), "epistemic_sd": ("row", np.asarray(sd))}
    if chains is not None:
        for name, values in zip(("chain_mean", "chain_sd"), chains, strict=True):
            arrays[name] = ("chain", "row"), np.asarray(values, "f4")
    group = xr.Dataset(arrays)
    groups = {f"/curve_{i}": group for i in range(1, lines + 1)}
    return xr.DataTree.from_dict({"/test_predictions": group} | groups)


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


def test_mixtures_of_restarts_are_of_one_posterior(made):
    fit = record(made, "fit", GUIDED)
    predict = fit.settings["predict"] | {"mixture": "stacked"}
    stacked = made.changed(fit, name="stacked", settings=fit.settings | {"predict": predict})
    reference = record(made, "reference", SAMPLED)
    found = [(a.name, b.name) for a, b in pairs([fit, stacked, reference])]
    assert found == [("fit", "reference"), ("stacked", "reference")]


def test_later_samplers_are_held_against_the_first(made):
    nuts, smc = ({"engine": engine, "chains": 4} for engine in ("nuts", "smc"))
    every = [
        record(made, "fit", GUIDED), record(made, "first", SAMPLED), record(made, "nuts", nuts),
        record(made, "again", SAMPLED | {"seed": 1}), record(made, "smc", smc),
        record(made, "elsewhere", smc, prior="laplace"),
    ]  # fmt: skip
    found = [(a.name, b.name) for a, b in sampler_pairs(every)]
    assert found == [("nuts", "first"), ("again", "first"), ("smc", "first")]


def test_a_sampler_is_named_by_what_sets_it_apart(made, folder):
    chains = [[0.5, 0.9], [0.7, 0.9], [0.5, 0.7], [0.7, 0.7]]
    first = stored(folder, record(made, "first", SAMPLED), trace_of([0.6, 0.8], 0.1, chains))
    smaller = record(made, "smaller", SAMPLED | {"energy_variance": 1e-5})
    smaller = stored(folder, smaller, trace_of([0.6, 0.8], 0.1, chains))
    (row,) = agreement_table(folder, [first, smaller]).to_dict("records")
    assert (row["guide"], row["mixture"]) == ("mclmc, energy_variance 1e-05", "chains")
    assert row["total_variation"] == pytest.approx(0, abs=1e-12)
    assert row["verdict"] == "agrees"
    assert "units_off" not in row


def test_what_is_known_of_the_guide(made, folder):
    """Units off, k-hat, and the gap to the evidence of a tempered sampler."""
    draws = np.random.default_rng(0).normal([2.0, 0.0], 0.1, size=(1, 100, 2))
    trace = trace_of([0.4, 0.9], 0.2)
    trace["posterior"] = xr.Dataset(
        {
            "weight_1": (("chain", "draw", "feature", "hidden_1"), draws[:, :, None]),
            "weight_2": (("chain", "draw", "hidden_1", "output"), draws[..., None]),
        }
    )
    fit = record(made, "fit", GUIDED, pareto_k=5.0, elbo=-262.0)
    fit = stored(folder, fit, trace)
    numbers = {"log_evidence": -250.0, "log_evidence_mcse": 0.1}
    smc = record(made, "smc", {"engine": "smc", "chains": 2}, **numbers)
    smc = stored(folder, smc, trace_of([0.6, 0.8], 0.1, [[0.5, 0.9], [0.7, 0.7]]))
    (row,) = agreement_table(folder, [fit, smc]).to_dict("records")
    assert (row["units_off"], row["units"], row["pareto_k"]) == (1, 2, 5.0)
    assert (row["kl_gap"], row["kl_gap_mcse"]) == (12.0, 0.1)
    for other in ({"guide": "map"}, {"guide": "dropout", "dropout_rate": 0.1}):
        fit = stored(folder, record(made, "other", GUIDED | other, elbo=-262.0), trace)
        (row,) = agreement_table(folder, [fit, smc]).to_dict("records")
        assert "kl_gap" not in row, "its objective is no ELBO"


def test_units_that_matter_do_not_depend_on_their_order(made, folder):
    """Two units of three in every draw; chains have them in orders of their own."""
    rng = np.random.default_rng(0)
    entering = rng.normal(size=(2, 50, 2, 3)) * [1.0, 1.0, 0.01]
    leaving = np.sign(rng.normal(size=(2, 50, 3, 1)))
    other = np.stack([entering[0], entering[1][..., [2, 0, 1]]])
    traces = trace_of([0.4, 0.9], 0.2), trace_of([0.6, 0.8], 0.1, [[0.5, 0.9], [0.7, 0.7]])
    for trace, first, chains in zip(traces, (entering, other), (1, 2), strict=True):
        dims = "chain", "draw"
        trace["posterior"] = xr.Dataset(
            {
                "weight_1": ((*dims, "feature", "hidden_1"), first[:chains]),
                "weight_2": ((*dims, "hidden_1", "output"), leaving[:chains]),
            }
        )
    pair = record(made, "fit", GUIDED), record(made, "first", SAMPLED)
    stored_pair = [stored(folder, one, trace) for one, trace in zip(pair, traces, strict=True)]
    (row,) = agreement_table(folder, stored_pair).to_dict("records")
    # A unit of nearly no weight counts once in a while, and so does one of two.
    assert 1.7 < row["active_units"] <= 2.0
    assert 1.7 < row["reference_active_units"] <= 2.0
    assert row["units"] == 3


def test_spreads_are_of_all_classes_and_of_rows_that_have_one(made, folder):
    def trace(sd):
        mean = np.full((3, 3), 1 / 3)
        arrays = {"probability": (("row", "output"), mean), "sd": (("row", "output"), sd)}
        arrays["chain_probability"] = (("chain", "row", "output"), np.stack([mean, mean]))
        return xr.DataTree.from_dict({"/test_predictions": xr.Dataset(arrays)})

    fitted = trace([[0.0, 0.6, 0.8], [0.3, 0.0, 0.4], [0.1, 0.1, 0.1]])
    fitted["test_predictions"] = fitted["test_predictions"].dataset.drop_vars("chain_probability")
    fit = stored(folder, record(made, "fit", GUIDED), fitted)
    sampled = trace([[0.5, 0.0, 0.0], [0.25, 0.0, 0.0], [0.0, 0.0, 0.0]])
    reference = stored(folder, record(made, "reference", SAMPLED), sampled)
    (row,) = agreement_table(folder, [fit, reference]).to_dict("records")
    assert row["sd_ratio"] == pytest.approx(2)


def test_distances_by_hand(made, folder):
    chains = np.array([[0.5, 0.9], [0.7, 0.9], [0.5, 0.7], [0.7, 0.7]])
    fit = stored(folder, record(made, "fit", GUIDED), trace_of([0.4, 0.9], 0.2))
    reference = record(made, "reference", SAMPLED)
    reference = stored(folder, reference, trace_of([0.6, 0.8], 0.1, chains))
    (row,) = agreement_table(folder, [fit, reference]).to_dict("records")
    assert row["total_variation"] == pytest.approx((0.2 + 0.1) / 2)
    for of in ("", "_mcse", "_floor"):
        assert row[f"total_variation_map{of}"] == row[f"total_variation{of}"]
    assert row["same_class"] == 0.5
    assert row["sd_ratio"] == pytest.approx(2)
    # Without one chain the two means move by a third of its distance from them.
    of_others = [0.15 + (a + b) / 2 for a in (1 / 30, -1 / 30) for b in (1 / 30, -1 / 30)]
    # A hundred draws of the guide with sds of 0.2 in both classes.
    of_chains, own = np.sqrt(3 * np.var(of_others)), 0.2 / np.sqrt(100)
    assert row["total_variation_mcse"] == pytest.approx(np.hypot(of_chains, own), rel=1e-5)
    assert 0 < row["total_variation_floor"] <= 0.2
    assert (row["reference"], row["engine"]) == ("reference", "mclmc")
    assert row["accuracy_difference"] == 0


def test_distances_of_numbers_by_hand(made, folder):
    """Two chains whose mixture has mean 1 and standard deviation √(1 + 3²) and √(1 + 0.75)."""
    chains = [[-2.0, 1.0], [4.0, 1.0]], [[1.0, 1.0], [1.0, np.sqrt(2.5)]]
    reference = numbers(made, "reference", SAMPLED, nll=0.15)
    reference = stored(folder, reference, moments_trace([1, 1], [1, 1], chains))
    fit = stored(folder, numbers(made, "fit", GUIDED), moments_trace([0, 1], [1.0, 2.0]))
    (row,) = agreement_table(folder, [fit, reference]).to_dict("records")
    a, b = 10**0.5, 1.75**0.5
    off = [(1 + (1 - a) ** 2) / a**2, (2 - b) ** 2 / b**2]
    assert row["wasserstein"] == pytest.approx(np.sqrt(np.mean(off)))
    for of in ("", "_mcse", "_floor"):
        assert row[f"wasserstein_curve{of}"] == row[f"wasserstein{of}"]
    assert row["mean_distance"] == pytest.approx(np.sqrt(0.5 / a**2))
    assert row["sd_ratio"] == pytest.approx((1 / a + 2 / b) / 2)
    assert row["nll_difference"] == pytest.approx(0.05)
    # Halves of two chains are the chains.
    halves = [
        [36 / 1, ((1 - np.sqrt(2.5)) ** 2) / 2.5],
        [36 / 1, (np.sqrt(2.5) - 1) ** 2 / 1],
    ]
    low, high = sorted(np.sqrt(np.mean(halves, axis=1)))
    assert low < row["wasserstein_floor"] < high
    # Without a chain the other is left; the fit's own thousand draws are added.
    alone = [(-2.0, 1.0, 1.0, 1.0), (4.0, 1.0, 1.0, np.sqrt(2.5))]
    of = [
        np.sqrt(np.mean([(m1**2 + (1 - s1) ** 2) / s1**2, ((1 - m2) ** 2 + (2 - s2) ** 2) / s2**2]))
        for m1, m2, s1, s2 in alone
    ]
    own = np.sqrt(((1 / a) ** 2 + (2 / b) ** 2) / 2)
    expected = np.hypot(np.std(of), own * np.sqrt(1.5 / 1000))
    assert row["wasserstein_mcse"] == pytest.approx(expected, rel=1e-5)
    assert {"verdict", "verdict_curve"} <= set(row)


def test_a_sampler_held_against_another_has_the_error_of_its_chains(made, folder):
    """Not that of independent draws."""
    still = moments_trace([0.0, 0.0], [1.0, 1.0], ([[0.0, 0.0]] * 2, [[1.0, 1.0]] * 2))
    moving = moments_trace([1.0, 1.0], [1.0, 1.0], ([[0.5, 0.5], [1.5, 1.5]], [[1.0, 1.0]] * 2))
    other = SAMPLED | {"seed": 1}
    reference = stored(folder, numbers(made, "reference", SAMPLED), still)
    repeat = stored(folder, numbers(made, "repeat", other), moving)
    (row,) = agreement_table(folder, [reference, repeat]).to_dict("records")
    assert row["wasserstein_mcse"] == pytest.approx(0.5)


def test_chains_that_are_not_stored_one_by_one_have_no_row(made, folder):
    """As cells of numbers were stored at first."""
    fit = stored(folder, numbers(made, "fit", GUIDED), moments_trace([0.0], [1.0]))
    reference = stored(folder, numbers(made, "ref", SAMPLED), moments_trace([0.0], [1.0]))
    assert agreement_table(folder, [fit, reference]).empty


def test_kinds_without_a_distance_have_no_row(made, folder):
    cells = [record(made, n, i) for n, i in (("fit", GUIDED), ("reference", SAMPLED))]
    cells = [made.changed(cell, predictive="counts") for cell in cells]
    assert len(list(pairs(cells))) == 1
    assert agreement_table(folder, cells).empty


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
    from pmbnn.prediction.chain_errors import (
        floor_of,
        jackknife_error,
        total_variation,
        without_each,
    )

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


@pytest.mark.slow
def test_a_fit_of_numbers_that_is_exact_is_seldom_called_different(made, folder):
    """Functions of three normals at forty rows, 16 chains of 100 independent draws."""
    rng = np.random.default_rng(1)
    basis = rng.normal(size=(3, 40))

    def draws(chains, number, scale=1.0):
        of_function = scale * rng.normal(size=(chains, number, 3)) @ basis
        return of_function.mean(axis=1), of_function.std(axis=1)

    def verdict(scale, number=500):
        mean, sd = draws(1, number, scale)
        means, sds = draws(16, 100)
        reference = numbers(made, "ref", SAMPLED, draws=number)
        reference = stored(folder, reference, moments_trace(sds[0], sds[0], (means, sds)))
        fit = numbers(made, "fit", GUIDED, draws=number)
        fit = stored(folder, fit, moments_trace(mean[0], sd[0]))
        return agreement_table(folder, [fit, reference])["verdict"].item()

    exact = [verdict(1.0) for _ in range(60)]
    assert exact.count("differs") <= 3
    assert exact.count("agrees") >= 40
    narrow = [verdict(0.7) for _ in range(20)]
    assert narrow.count("differs") >= 18
