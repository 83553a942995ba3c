"""Contrasts of stored cells: pairs, their deltas in one metric, and verdicts in words."""

import math

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from pmbnn.cli import app
from pmbnn.compare.contrasts import (
    TEXT,
    VERDICT_COLUMNS,
    advi_verdict,
    delta_table,
    learned_less_fixed,
    read_contrasts_table,
    sentence,
    verdict_table,
)
from pmbnn.compare.intervals import interval_verdict
from pmbnn.core.numbers import number_text
from pmbnn.experiment.cells import Contrast, Contrasts
from pmbnn.experiment.contrasts import AmbiguousError
from pmbnn.results.store import Results

ADVI = {"engine": "compiled", "guide": "mean_field", "kl_weight": 1.0, "kl_scaling": "sum"}
MCLMC = {"engine": "mclmc"}
LEARNED = Contrast(
    "learned",
    {"prior": {"kind": "normal"}, "hyperprior": {"kind": "half_normal"}},
    {"prior": {"kind": "normal"}, "hyperprior": {"kind": "fixed", "scale": 1.0}},
)
WANTED = Contrasts((LEARNED,))


def cell(made, hyperprior, value, seed=0, inference=MCLMC, **changes):
    """A cell whose excess NLL is given."""
    data = made.MOONS | {"seed": seed} | changes.pop("data", {})
    settings = {"seed": 0} | inference
    prior = changes.pop("prior", "normal")
    results = {"excess_nll": value, "nll": 0.3 + value}
    if inference["engine"] in ("mclmc", "mile"):
        results |= {"excess_nll_mcse": 0.0, "nll_mcse": 0.0}
    results |= changes
    return made.record(prior, hyperprior, data, inference=settings, **results)


def study(made, reference, advi, seeds=5, noise=0.0, **changes):
    """Cells of one contrast whose difference is given, under the posterior and under ADVI."""
    rng = np.random.default_rng(0)
    records = []
    for seed in range(seeds):
        for inference, difference in ((MCLMC, reference), (ADVI, advi)):
            easy, extra = rng.normal(0, 0.01), rng.normal(0, noise) + difference
            settings = {"seed": seed, "inference": inference} | changes
            records.append(cell(made, made.HALF_NORMAL, 0.02 + easy + extra, **settings))
            records.append(cell(made, made.FIXED, 0.02 + easy, **settings))
    return records


def test_deltas_are_of_the_same_data_and_inference(made):
    table = delta_table(study(made, 0.002, -0.005), WANTED)
    assert list(table["seed"]) == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(table["delta_reference"].astype(float), 0.002)
    np.testing.assert_allclose(table["delta_advi"].astype(float), -0.005)
    np.testing.assert_allclose(table["delta"].astype(float), -0.007)
    assert set(table["metric"]) == {"excess_nll"} and not table["exploratory"].any()
    assert set(table["data"]) == {"moons, noise 0.4"}


def test_test_rows_stand_in_where_one_cell_has_no_fresh_points(made):
    records = study(made, 0.002, 0.0)
    results = {k: v for k, v in records[0].results.items() if k != "excess_nll"}
    records[0] = made.changed(records[0], results=results)
    table = delta_table(records, WANTED)
    assert set(table["metric"]) == {"nll"}
    np.testing.assert_allclose(table["delta_reference"].astype(float), 0.002)


def test_monte_carlo_errors_add_in_squares_where_both_are_known(made):
    records = study(made, 0.0, 0.0)
    records = [
        made.changed(r, results=r.results | {"excess_nll_mcse": 3e-4 if i % 4 else 4e-4})
        if r.settings["inference"]["engine"] == "mclmc"
        else r
        for i, r in enumerate(records)
    ]
    table = delta_table(records, WANTED)
    np.testing.assert_allclose(table["delta_reference_mcse"].astype(float), 5e-4)
    assert table["delta_advi_mcse"].isna().all() and table["delta_mcse"].isna().all()


def test_fits_of_one_data_seed_count_as_one(made):
    records = study(made, 0.001, 0.0)
    records += study(made, 0.003, 0.0, inference=MCLMC | {"seed": 1})[::4]
    records += study(made, 0.003, 0.0, inference=MCLMC | {"seed": 1})[1::4]
    table = delta_table(records, WANTED)
    np.testing.assert_allclose(table["delta_reference"].astype(float), 0.002)


def test_a_seed_without_all_pairs_is_left_out(made):
    contrast = Contrast("priors", {"prior": {"kind": "laplace"}}, {"prior": {"kind": "normal"}})
    records = [
        cell(made, hyperprior, value, seed, prior=prior)
        for seed in (0, 1)
        for prior, offset in (("laplace", 0.01), ("normal", 0.0))
        for hyperprior, value in ((made.FIXED, offset), (made.HALF_NORMAL, 3 * offset))
    ]
    table = delta_table(records, Contrasts((contrast,)))
    np.testing.assert_allclose(table["delta_reference"].astype(float), [0.02, 0.02])
    assert list(delta_table(records[:-1], Contrasts((contrast,)))["seed"]) == [0]


def test_without_contrasts_every_learned_scale_meets_every_fixed_one(made):
    records = [
        cell(made, hyperprior, 0.0, prior=prior)
        for prior in ("normal", "laplace")
        for hyperprior in (made.HALF_NORMAL, made.FIXED, made.TUNED, made.NO_SCALE)
    ]
    names = [contrast.name for contrast in learned_less_fixed(records)]
    assert names == [
        "normal: half-normal less fixed 1",
        "normal: half-normal less fixed (tuned)",
        "Laplace: half-normal less fixed 1",
        "Laplace: half-normal less fixed (tuned)",
    ]
    table = delta_table(records, Contrasts())
    assert list(table["contrast"]) == names and table["exploratory"].all()


def test_failed_tempered_and_point_fits_are_no_part_of_it(made):
    records = study(made, 0.0, 0.0)
    others = [ADVI | {"kl_weight": 0.1}, ADVI | {"guide": "map"}]
    records += [r for other in others for r in study(made, 9.0, 9.0, inference=other)]
    records += study(made, 9.0, 9.0, inference=ADVI | {"steps": 7}, failed=True)
    assert len(delta_table(records, WANTED)) == 5


def test_two_settings_of_advi_are_not_averaged(made):
    records = study(made, 0.0, 0.0)
    other = study(made, 0.0, 0.0, inference=ADVI | {"guide": "full_rank"})
    records += other[::4] + other[1::4]
    with pytest.raises(AmbiguousError, match="one `inference` of ADVI, .* they differ in guide"):
        delta_table(records, WANTED)


def test_of_several_samplers_the_first_counts(made):
    cells = study(made, 0.002, -0.005)
    others = [
        cell(made, h, 9.0, inference={"engine": "smc"}) for h in (made.HALF_NORMAL, made.FIXED)
    ]
    expected = delta_table(cells, WANTED)
    pd.testing.assert_frame_equal(delta_table([*cells, *others], WANTED), expected)


def test_data_sets_of_one_name_have_different_labels(made):
    whole, part = study(made, 0.0, 0.0), study(made, 0.0, 0.0, data={"train": 70})
    assert names_of(whole + part) == ["moons, noise 0.4, train 700", "moons, noise 0.4, train 70"]
    wide = [
        r.model_copy(
            update={"settings": r.settings | {"network": {"kind": "dense", "hidden": [50]}}}
        )
        for r in part
    ]
    # Where the data tell them apart, the network is not needed.
    assert names_of(whole + wide) == names_of(whole + part)
    assert names_of(part + wide) == [
        "moons, noise 0.4, dense 5-5 tanh",
        "moons, noise 0.4, dense 50 tanh",
    ]


def names_of(records):
    return list(dict.fromkeys(delta_table(records, WANTED)["data"]))


def test_no_pairs_are_an_empty_table(made):
    deltas = delta_table([cell(made, made.FIXED, 0.0)], WANTED)
    assert deltas.empty and list(verdict_table(deltas, 0.001).columns) == list(VERDICT_COLUMNS)


# Verdicts

BELOW, WITHIN, ABOVE, OPEN = (-5, -2), (-0.5, 0.9), (2, 4), (-2, 0.5)
UNKNOWN = (math.nan, math.nan)


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        (BELOW, "better"),
        (WITHIN, "equivalent"),
        (ABOVE, "worse"),
        (OPEN, "undecided"),
        ((-3, 3), "undecided"),
        ((-2, -0.9), "undecided"),  # away from zero, but not from the margin
        (UNKNOWN, "undecided"),
    ],
)
def test_the_verdict_is_the_region_that_holds_the_whole_interval(interval, verdict):
    assert interval_verdict(*interval, margin=1) == verdict


@pytest.mark.parametrize(
    ("reference", "advi", "delta", "verdict"),
    [
        (BELOW, BELOW, WITHIN, "faithful"),
        (OPEN, OPEN, WITHIN, "faithful"),
        (BELOW, ABOVE, (4, 9), "reverses"),
        (ABOVE, BELOW, (-9, -4), "reverses"),
        (BELOW, ABOVE, (0.5, 12), "reverses"),
        (BELOW, OPEN, (2, 4), "distorts"),
        (OPEN, ABOVE, (2, 4), "distorts"),
        (BELOW, BELOW, BELOW, "distorts"),
        # One decided beside one that is not says nothing of their difference.
        (BELOW, OPEN, OPEN, "undecided"),
        (BELOW, WITHIN, OPEN, "undecided"),
        (BELOW, ABOVE, UNKNOWN, "reverses"),
        (UNKNOWN, BELOW, UNKNOWN, "undecided"),
    ],
)
def test_the_verdict_on_advi_rests_on_the_delta(reference, advi, delta, verdict):
    assert advi_verdict(reference, advi, delta, margin=1) == verdict


def test_verdicts_of_a_study(made):
    table = verdict_table(delta_table(study(made, -0.01, 0.02, noise=1e-3), WANTED), 0.001)
    (row,) = table.to_dict("records")
    assert (row["posterior_verdict"], row["advi_verdict"]) == ("better", "reverses")
    assert row["seeds"] == 5 and row["note"] == ""
    assert row["reference_low"] < row["reference"] < row["reference_high"]
    assert sentence(row).startswith(
        "moons, noise 0.4, learned: the first is better under the posterior, −0.0"
    )
    assert "; ADVI says the reverse, +0.0" in sentence(row)


@pytest.mark.parametrize(
    ("advi", "said"),
    [
        (-0.01, "the first is better under ADVI, −0.0"),
        (0.01, "the first is worse under ADVI, +0.0"),
        (0.0, "the two are equivalent under ADVI, "),
        (0.001, "ADVI leaves it undecided, "),
    ],
)
def test_without_a_reference_it_is_said_what_advi_has(made, advi, said):
    records = study(made, 0.0, advi, noise=1e-4)
    records = [r for r in records if r.settings["inference"]["engine"] != "mclmc"]
    (row,) = verdict_table(delta_table(records, WANTED), 0.001).to_dict("records")
    assert sentence(row).startswith(f"moons, noise 0.4, learned: {said}")
    assert sentence(row).endswith(" No cells of the reference.")
    assert "posterior" not in sentence(row)
    assert (row["posterior_verdict"], row["advi_verdict"]) == ("", "")


def test_a_sentence_has_the_number_format_of_the_package():
    """Digits follow the width of the interval, and zero has no sign."""
    row = {f"{name}{end}": value for name in ("reference", "advi", "delta")
           for end, value in (("", -0.00001), ("_low", -0.0012), ("_high", 0.0011))}  # fmt: skip
    row |= {"data": "moons", "contrast": "learned", "margin": 0.002, "note": ""}
    row |= {"ensemble": math.nan, "ensemble_verdict": ""}
    text = sentence(row | {"posterior_verdict": "equivalent", "advi_verdict": "faithful"})
    assert text == (
        "moons, learned: the two are equivalent under the posterior, 0.0000 (−0.0012 to +0.0011) "
        "nats; ADVI says the same, 0.0000 (−0.0012 to +0.0011) nats."
    )


def test_an_infinite_difference_is_a_verdict(made):
    """Targets without any probability on one data seed: no mean of the others stands in for it."""
    records = study(made, 0.0, 0.0, noise=1e-4)
    results = records[8].results | dict.fromkeys(("excess_nll", "nll"), math.inf)
    records[8] = records[8].model_copy(update={"results": results})
    (row,) = verdict_table(delta_table(records, WANTED), 0.001).to_dict("records")
    assert (row["reference"], row["posterior_verdict"]) == (math.inf, "worse")
    assert "the first is worse under the posterior, +∞ nats" in sentence(row)


def test_two_infinite_scores_have_no_difference(made):
    """Under a data set's first metric, which stays; that the pair is left out is said."""
    records = study(made, 0.0, 0.0, noise=1e-4)
    for place in (8, 9):
        results = records[place].results | dict.fromkeys(("excess_nll", "nll"), math.inf)
        records[place] = records[place].model_copy(update={"results": results})
    (row,) = verdict_table(delta_table(records, WANTED), 0.001).to_dict("records")
    assert (row["metric"], row["posterior_verdict"]) == ("excess_nll", "equivalent")
    assert "Pairs of cells left out, as both scores are infinite: 1." in row["note"]


def test_a_contrast_of_infinite_scores_alone_is_named(made):
    records = study(made, 0.0, 0.0, noise=1e-4)
    for place, record in enumerate(records):
        results = record.results | dict.fromkeys(("excess_nll", "nll"), math.inf)
        records[place] = record.model_copy(update={"results": results})
    (row,) = verdict_table(delta_table(records, WANTED), 0.001).to_dict("records")
    assert (row["pairs"], row["seeds"]) == (len(records) // 2, 0)
    assert (
        "No finite differences under the reference. No finite differences under ADVI."
        in (row["note"])
    )
    assert f"as both scores are infinite: {row['pairs']}." in sentence(row)


def test_a_method_without_cells_is_told_from_one_without_finite_differences(made):
    records = study(made, 0.0, 0.0, noise=1e-4)
    fits = [r for r in records if r.settings["inference"]["engine"] != "mclmc"]
    for place in (0, 1):
        results = fits[place].results | dict.fromkeys(("excess_nll", "nll"), math.inf)
        fits[place] = fits[place].model_copy(update={"results": results})
    (row,) = verdict_table(delta_table(fits, WANTED), 0.001).to_dict("records")
    assert row["note"].startswith("No cells of the reference. Pairs of cells left out")


MILE = {"engine": "mile"}


def test_ensembles_have_verdicts_of_their_own(made):
    records = study(made, 0.0, 0.0, noise=1e-4)
    pooled = []
    for seed in (0, 1):
        both = study(made, -0.005, -0.005, noise=1e-4, inference=MILE | {"seed": seed})
        pooled += [made.changed(r, status="ensemble") for r in (*both[0::4], *both[1::4])]
    (row,) = verdict_table(delta_table(records + pooled, WANTED), 0.001).to_dict("records")
    assert (row["posterior_verdict"], row["advi_verdict"]) == ("equivalent", "faithful")
    assert row["ensemble_verdict"] == "better" and row["doubtful"] == 0
    assert "ADVI says the same" in sentence(row)
    assert "; the first is better under the ensemble, −0.005" in sentence(row)
    assert "Ensembles are no draws of the posterior" in row["note"]
    assert "one inference seed" not in row["note"]
    (alone,) = verdict_table(delta_table(pooled[:10], WANTED), 0.001).to_dict("records")
    assert (alone["posterior_verdict"], alone["ensemble_verdict"]) == ("", "better")
    assert sentence(alone).startswith("moons, noise 0.4, learned: the first is better under the en")
    assert "It rests on one inference seed." in alone["note"]


def test_what_stands_in_the_way_is_said(made):
    records = study(made, 0.0, 0.0, noise=5e-4)
    records = [r for r in records if r.settings["inference"]["engine"] == "mclmc"]
    records = [
        made.changed(r, status="not_converged", results=r.results | {"excess_nll_mcse": 1e-4})
        for r in records
    ]
    (row,) = verdict_table(delta_table(records, WANTED), 0.001).to_dict("records")
    assert row["note"] == (
        "No cells of ADVI. Monte-Carlo error of the reference (up to 0.00014) exceeds a tenth of "
        "the margin. 10 sampled cells did not converge."
    )
    assert row["posterior_verdict"] == "equivalent" and math.isnan(row["delta"])
    assert row["advi_verdict"] == "" and "ADVI says" not in sentence(row)
    (row,) = verdict_table(delta_table(records, WANTED), 0.002).to_dict("records")
    assert "Monte-Carlo" not in row["note"]
    records[0] = made.changed(records[0], results=records[0].results | {"excess_nll_mcse": None})
    (row,) = verdict_table(delta_table(records, WANTED), 0.002).to_dict("records")
    assert "Monte-Carlo error of the reference is not known." in row["note"]


def test_data_seeds_that_split_the_same_rows_have_longer_intervals(made):
    """Of ten splits of the same rows, four to one, an interval is as long as that of three."""
    records = study(made, -0.01, 0.02, seeds=10, noise=1e-3)
    (alone,) = verdict_table(delta_table(records, WANTED), 0.001).to_dict("records")
    shared = [made.changed(r, overlap=0.25) for r in records]
    (split,) = verdict_table(delta_table(shared, WANTED), 0.001).to_dict("records")
    lengths = [row["reference_high"] - row["reference_low"] for row in (split, alone)]
    assert lengths[0] / lengths[1] == pytest.approx(np.sqrt(1 + 10 * 0.25))
    assert split["note"] == "Data seeds split the same rows: the intervals allow for it."
    assert (alone["posterior_verdict"], alone["advi_verdict"]) == ("better", "reverses")
    assert alone["note"] == ""


def test_what_a_contrast_can_find_is_said(made):
    """And that more splits of the same rows would not show equivalence."""
    records = study(made, 0.0, 0.0, seeds=10, noise=1e-3)
    shared = delta_table([made.changed(r, overlap=0.25) for r in records], WANTED)
    (fresh,) = verdict_table(delta_table(records, WANTED), 0.0005).to_dict("records")
    (split,) = verdict_table(shared, 0.0005).to_dict("records")
    assert fresh["reference_limit"] == 0 and fresh["note"] == ""
    for row in (fresh, split):
        half_width = (row["reference_high"] - row["reference_low"]) / 2
        assert row["reference_limit"] < half_width
        assert half_width + 0.0005 < row["reference_detectable"] < 1.5 * half_width + 0.0005
    assert split["note"].endswith(
        "With infinitely many of them an interval would still reach "
        f"{split['reference_limit']:.2g} nats to either side: equivalence is out of reach."
    )
    (wide,) = verdict_table(shared, 0.002).to_dict("records")
    assert wide["note"] == "Data seeds split the same rows: the intervals allow for it."


def test_test_rows_that_are_no_sample_have_no_interval(made):
    """Those of other data sets are as they are without them."""
    random = study(made, -0.01, 0.02, seeds=10, noise=1e-3)
    gaps = study(made, -0.01, 0.02, data={"noise": 0.3})
    gaps = [made.changed(record, overlap=math.inf) for record in gaps]
    both = verdict_table(delta_table([*random, *gaps], WANTED), 0.001)
    alone = verdict_table(delta_table(random, WANTED), 0.001)
    pd.testing.assert_frame_equal(both.iloc[:1], alone)
    second = both.iloc[1]
    assert (second["posterior_verdict"], second["advi_verdict"]) == ("undecided", "undecided")
    assert np.isnan(second["reference_low"]) and second["reference"] == pytest.approx(-0.01)
    assert second["note"] == "No interval, as test rows were not drawn at random."


# The command


@pytest.fixture
def folder(made, tmp_path):
    records = study(made, -0.01, 0.02, noise=1e-3)
    return made.store(tmp_path / "toy", [(record, None) for record in records]).folder


def run(*arguments):
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


def test_the_command_prints_and_writes_verdicts(folder):
    done = run(folder)
    assert done.exit_code == 0, done.output
    assert "exploratory" in done.output and "reverses" in done.output
    assert "detectable: the smallest true difference" in " ".join(done.output.split())
    assert "normal: half-normal less fixed 1: the first is better under" in done.output
    written = pd.read_csv(folder / "compare.csv")
    assert list(written.columns) == list(VERDICT_COLUMNS)
    assert list(written["advi_verdict"]) == ["reverses"]
    assert number_text(written.loc[0, "reference_detectable"], digits=2) in done.output.split()


def test_without_sampled_cells_the_command_says_nothing_of_the_posterior(made, tmp_path):
    records = study(made, -0.01, 0.02, noise=1e-3)
    records = [r for r in records if r.settings["inference"]["engine"] != "mclmc"]
    folder = made.store(tmp_path / "toy", [(record, None) for record in records]).folder
    done = run(folder)
    assert done.exit_code == 0, done.output
    assert "the first is worse under ADVI" in done.output
    assert not any(word in done.output for word in ("posterior", "undecided", "reference "))
    written = pd.read_csv(folder / "compare.csv")
    assert written[["posterior_verdict", "advi_verdict", "reference"]].isna().all(axis=None)


def test_the_command_takes_the_contrasts_of_the_experiment(folder):
    side = "{prior: normal, hyperprior: %s}"
    text = f"margin: 0.5\ncontrasts: [{{name: mine, first: {side % 'half_normal'}, "
    (folder / "experiment.yaml").write_text(f"{text}second: {side % 'fixed'}}}]")
    done = run(folder)
    assert done.exit_code == 0, done.output
    assert "exploratory" not in done.output
    written = pd.read_csv(folder / "compare.csv")
    shown = written[["contrast", "margin", "posterior_verdict", "advi_verdict"]]
    assert shown.iloc[0].to_list() == ["mine", 0.5, "equivalent", "faithful"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "error: The results folder `missing` does not exist."),
        ("margin: no", "error: `margin` must be a number > 0, got 'no'."),
    ],
)
def test_bad_folders_are_one_line(folder, content, message, monkeypatch):
    monkeypatch.chdir(folder)
    if content:
        (folder / "experiment.yaml").write_text(content)
    done = run("." if content else "missing")
    assert done.exit_code == 2
    assert done.stderr == f"{message}\n"


def test_a_folder_without_pairs_is_said_so(made, tmp_path):
    made.store(tmp_path, [(cell(made, made.FIXED, 0.0), None)])
    done = run(tmp_path)
    assert done.exit_code == 2
    message = f"error: The folder `{tmp_path}` has no two cells to compare on the same data.\n"
    assert done.stderr == message


def test_a_contrast_called_na_keeps_its_name(tmp_path):
    row = dict.fromkeys(VERDICT_COLUMNS, 1.5) | dict.fromkeys(TEXT, "") | {"contrast": "NA"}
    pd.DataFrame([row | {"note": "null", "pairs": np.nan}]).to_csv(tmp_path / "compare.csv")
    table = read_contrasts_table(Results(tmp_path))
    assert table.loc[0, list(TEXT)].tolist() == ["NA", *[""] * (len(TEXT) - 2), "null"]
    assert np.isnan(table.loc[0, "pairs"])
