"""Evidence of priors, and what choosing by it costs."""

import math

import pandas as pd
import pytest

from pmbnn.compare.evidence import evidence_table, regret_table

ADVI = {
    "engine": "compiled",
    "guide": "mean_field",
    "kl_weight": 1.0,
    "kl_scaling": "sum",
    "seed": 0,
}
MCLMC = {"engine": "mclmc", "seed": 0}
SMC = {"engine": "smc", "seed": 0}


def cells(made, seed=0):
    """Three priors, each fitted, sampled and with its evidence; the Laplace one predicts best."""
    numbers = {
        "normal": {"elbo": -300.0, "loo": -0.40, "evidence": -250.0, "nll": 0.030, "held": 0.35},
        "laplace": {"elbo": -310.0, "loo": -0.39, "evidence": -248.0, "nll": 0.020, "held": 0.36},
        "cauchy": {"elbo": -305.0, "loo": -0.42, "evidence": -249.0, "nll": 0.024, "held": 0.34},
    }
    data = {"kind": "moons", "noise": 0.4, "seed": seed}
    found = []
    for prior, of in numbers.items():
        head = {"prior": prior, "dataset": data}
        found += [
            made.record(
                **head, inference=ADVI, elbo=of["elbo"], excess_nll=of["nll"] + 0.01,
                validation_nll=of["held"],
            ),
            made.record(
                **head, inference=MCLMC, elpd_loo=of["loo"], excess_nll=of["nll"],
                validation_nll=None,
            ),
            made.record(
                **head, inference=SMC, log_evidence=of["evidence"], log_evidence_mcse=0.1,
                excess_nll=of["nll"], validation_nll=None,
            ),
        ]  # fmt: skip
    return found


def test_bayes_factors_are_of_the_highest_evidence(made):
    table = evidence_table(cells(made)).set_index(["source", "prior"])
    smc = table.loc["smc"]
    assert list(smc["log_bayes_factor"]) == [-2.0, 0.0, -1.0]
    assert list(smc["log_bayes_factor_mcse"]) == pytest.approx(
        [math.hypot(0.1, 0.1), 0, math.hypot(0.1, 0.1)]
    )
    assert table.loc["mclmc", "log_bayes_factor"].isna().all()
    assert table.loc[("mean_field", "normal"), "elbo"] == -300


def test_regret_by_hand(made):
    table = regret_table(evidence_table(cells(made)))
    regret = dict(
        zip(zip(table["criterion"], table["source"], strict=True), table["regret"], strict=True)
    )
    assert regret == pytest.approx(
        {
            ("log evidence", "smc"): 0.0,
            ("ELBO", "mean_field"): 0.010,
            ("LOO", "mclmc"): 0.0,
            ("held-out NLL", "mean_field"): 0.004,
        }
    )
    assert set(table["right"]) == {0.0, 1.0}
    assert table["by_chance"].to_numpy() == pytest.approx([(0.01 + 0 + 0.004) / 3] * 4)
    assert set(table["combinations"]) == {3}


def test_means_over_data_seeds(made):
    table = regret_table(evidence_table([*cells(made), *cells(made, seed=1)]))
    assert set(table["seeds"]) == {2}
    assert table["regret_se"].to_numpy() == pytest.approx([0] * 4)


def test_a_criterion_that_lacks_a_combination_is_left_out(made):
    known = [
        r
        for r in cells(made)
        if not (r.settings["inference"] == SMC and r.settings["prior"]["kind"] == "cauchy")
    ]
    table = regret_table(evidence_table(known))
    assert set(table["criterion"]) == {"ELBO", "LOO", "held-out NLL"}


def test_no_reference_no_regret(made):
    fitted = [r for r in cells(made) if r.settings["inference"] == ADVI]
    assert regret_table(evidence_table(fitted)).empty
    assert evidence_table([]).empty
    assert regret_table(pd.DataFrame()).empty


def test_fits_of_another_objective_are_passed_over(made):
    tempered = made.record(inference=ADVI | {"kl_weight": 0.1}, elbo=1.0)
    point = made.record(inference=ADVI | {"guide": "map"}, elbo=1.0)
    assert evidence_table([tempered, point]).empty


def test_samplers_of_other_seeds_are_sources_of_their_own(made):
    again = [
        r.model_copy(
            update={"settings": {**r.settings, "inference": {**r.settings["inference"], "seed": 1}}}
        )
        for r in cells(made)
        if r.settings["inference"]["engine"] == "mclmc"
    ]
    table = evidence_table([*cells(made), *again])
    assert {"mclmc, seed 0", "mclmc, seed 1", "smc", "mean_field"} == set(table["source"])
    found = regret_table(table).set_index(["criterion", "source"])["regret"]
    assert found["LOO", "mclmc, seed 0"] == found["LOO", "mclmc, seed 1"] == 0


def test_ensembles_are_no_source(made):
    ensemble = made.record(inference={"engine": "mile"}, log_likelihood=-1.0)
    records = cells(made)
    assert len(evidence_table([*records, ensemble])) == len(evidence_table(records))


def test_a_source_with_two_cells_of_a_combination_has_no_regret(made):
    records = cells(made)
    twice = [r for r in records if r.settings["inference"]["engine"] == "mclmc"]
    sources = set(regret_table(evidence_table([*records, *twice]))["source"])
    assert sources == {"mean_field", "smc"}


def test_data_sets_of_one_title_and_networks_are_not_compared(made):
    """Evidence of other targets, or of another network, is no evidence against a prior."""
    records = []
    for target, level in (("a", -250.0), ("b", -900.0)):
        data = {"kind": "csv", "file": "x.csv", "target": target, "seed": 0}
        for hidden in ([5], [50]):
            for prior, more in (("normal", 0.0), ("laplace", 2.0)):
                records.append(
                    made.record(
                        prior,
                        dataset=data,
                        network={"kind": "dense", "hidden": hidden},
                        inference=SMC,
                        nll=0.3 + more,
                        log_evidence=level + hidden[0] + more,
                        log_evidence_mcse=0.1,
                    )
                )
    table = evidence_table(records)
    assert list(table["log_bayes_factor"]) == [-2.0, 0.0] * 4
    assert table["data"].nunique() == 4
    regret = regret_table(table).query("criterion == 'log evidence'")
    assert list(regret["combinations"]) == [2] * 4
    assert list(regret["regret"]) == pytest.approx([2.0] * 4)
