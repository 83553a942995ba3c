"""Tables for papers: entries, the best and what is not significantly worse, in each format."""

import io
import math

import numpy as np
import pandas as pd
import pytest
from makers import FIXED, HALF_NORMAL, MOONS, NO_SCALE, changed, record, store

from pmbnn.core.errors import ConfigError
from pmbnn.results.loading import load_results
from pmbnn.results.metric_table import table

CIRCLES = MOONS | {"kind": "circles"}


def records(seeds=5, dataset=MOONS, **changes):
    """Five combinations: two about equal, two slightly worse, the flat prior much worse."""
    rng, made = np.random.default_rng(0), []
    for seed in range(seeds):
        common = 0.1 * rng.normal()
        for prior, offset, scales in (
            ("normal", 0.0, (FIXED, HALF_NORMAL)),
            ("laplace", 0.02, (FIXED, HALF_NORMAL)),
            ("flat", 0.5, (NO_SCALE,)),
        ):
            for i, scale in enumerate(scales):
                nll = 0.4 + common + offset + 0.01 * i + 0.01 * rng.normal()
                data = dataset | {"seed": seed}
                results = {"nll": nll, "accuracy": 1 - nll / 2} | changes
                made.append(record(prior, scale, data, **results))
    return made


def test_markdown():
    assert table(records()).to_markdown() == (
        "NLL (nats), moons, noise 0.4\n\n"
        "| prior | fixed 1 | half-normal | no scale |\n"
        "| :-- | --: | --: | --: |\n"
        "| normal | **0.41 ± 0.07** | 0.41 ± 0.06\\* |  |\n"
        "| Laplace | 0.43 ± 0.06\\* | 0.43 ± 0.06 |  |\n"
        "| flat |  |  | 0.91 ± 0.06 |\n\n"
        "Mean ± standard error over 5 data seeds; bold: best; \\*: not significantly worse (95 % "
        "intervals of all paired differences, which hold at once).\n"
    )


def test_results_make_their_own_table(tmp_path):
    made = records(seeds=2)
    results = load_results(store(tmp_path / "out", [(one, None) for one in made]).folder)
    assert (
        results.table().to_markdown() == table(made).to_markdown() == table(results).to_markdown()
    )
    assert results.select(prior="flat").table(metric="accuracy").entries["row"].tolist() == ["flat"]


def test_the_note_is_of_every_data_set():
    """Also where test rows of one are no sample, and data seeds are not as many."""
    gaps = [changed(one, overlap=math.inf) for one in records()]
    others = [changed(one, overlap=0.1) for one in records(3, CIRCLES)]
    made = table([*gaps, *others])
    assert made.entries.groupby("data")["se"].count().tolist() == [5, 0]
    assert made.note.startswith(
        "Mean ± standard error over seeds, corrected for overlapping splits; none where test rows "
        "were not drawn at random; "
    )
    assert made.note.count("no interval") == 1 and "data seeds are needed" not in made.note
    apart = table([*records(3), *others]).note
    assert apart.startswith(
        "Mean ± standard error over 3 data seeds, corrected for overlapping splits where data "
        "seeds split the same rows anew; "
    )
    assert table([*others, *records(3)]).note == apart


def test_latex():
    lines = table(records()).to_latex().splitlines()
    assert lines[0] == r"% \usepackage{booktabs}"
    assert r"\begin{tabular}{lrrr}" in lines
    assert r"normal & $\mathbf{0.41 \pm 0.07}$ & $0.41 \pm 0.06^{*}$ &  \\" in lines
    (caption,) = [line for line in lines if line.startswith(r"\caption")]
    assert r"Mean $\pm$ standard error" in caption and r"95 \% intervals" in caption


def test_errors_of_small_units_are_not_zero():
    """As of a permeability in square metres."""
    values = enumerate((4e-15, 5e-15, 6.5e-15))
    made = table(
        [record("normal", FIXED, MOONS | {"seed": s}, rmse=v) for s, v in values], metric="rmse"
    )
    assert "5.2e−15 ± 0.7e−15" in made.to_markdown()
    assert r"{5.2\times 10^{-15} \pm 0.7\times 10^{-15}}" in made.to_latex()


def test_latex_raises_marks_beside_the_exponent_of_a_number():
    """A double superscript is an error."""
    made = [changed(r, results={"rmse": 1e-9 * r.results["nll"]}) for r in records()]
    text = table(made, metric="rmse").to_latex()
    assert "}{}^{*}$" in text and "}^{*}" not in text.replace("{}^{*}", "")


def test_csv_has_the_intervals():
    frame = pd.read_csv(io.StringIO(table(records()).to_csv())).set_index(["prior", "hyperprior"])
    flat = frame.loc["flat", "no scale"]
    assert flat["verdict"] == "significantly worse"
    assert 0.4 < flat["low"] < flat["difference"] < flat["high"] < 0.6
    assert frame.loc["normal", "fixed 1"]["verdict"] == "best"


def test_more_is_better_of_accuracy():
    made = table(records(), metric="accuracy").entries.set_index(["row", "column"])
    assert made.loc["normal", "fixed 1"]["verdict"] == "best"
    flat = made.loc["flat", "no scale"]
    assert flat["verdict"] == "significantly worse" and flat["high"] < 0


def test_of_an_unknown_metric_none_is_best():
    made = table(records(mean_sd=0.1), metric="mean_sd")
    assert made.entries["verdict"].isna().all()
    assert "no best: nothing says whether a high or a low `mean_sd` is better." in made.note


def test_settings_that_are_equal_to_six_digits_stand_apart():
    """They shared a heading, and the mean of both stood under it."""
    scales = {0.1234567: 0.3, 0.1234568: 0.9}
    made = [
        record("normal", FIXED | {"scale": scale}, MOONS | {"seed": seed}, nll=nll)
        for scale, nll in scales.items()
        for seed in range(3)
    ]
    by_name = table(made).entries
    assert by_name["column"].tolist() == [f"fixed 0.123457, scale {scale}" for scale in scales]
    assert by_name["mean"].tolist() == pytest.approx([*scales.values()])
    by_field = table(made, "prior", "hyperprior.scale").entries
    assert by_field["column"].tolist() == [*map(str, scales)]


def test_names_with_signs_of_markdown_and_latex():
    """A bar in the name of a file ended the cell of a table in Markdown."""
    file = {"kind": "table", "file": r"a|b*c<[d_%.csv", "target": "y", "task": "classification"}
    made = [record("normal", FIXED, {**file, "seed": 0}, nll=0.5)]
    by_data = table(made, "dataset", "prior")
    assert r"| table a\|b\*c\<[d_% | **0.5** |" in by_data.to_markdown().splitlines()
    assert r"table a\textbar{}b*c\textless{}{[}d\_\% & $\mathbf{0.5}$ \\" in by_data.to_latex()
    assert table(made).to_markdown().startswith(r"NLL (nats), table a\|b\*c\<[d_%")


def test_data_sets_are_tables_or_an_axis_with_a_best_each():
    both = records() + records(dataset=CIRCLES)
    assert table(both).to_markdown().count("| prior |") == 2
    made = table([r for r in both if r.cell.prior.kind != "flat"], "hyperprior", "dataset")
    best = made.entries[made.entries["verdict"] == "best"]
    assert sorted(best["column"].unique()) == ["circles, noise 0.4, factor 0.5", "moons, noise 0.4"]
    # Two priors are left: a table each.
    assert list(made.entries["variant"].unique()) == ["prior normal", "prior Laplace"]


def test_a_field_is_an_axis():
    wide = {"kind": "dense", "hidden": [50]}
    cells = [*records(), record("normal", FIXED, network=wide, nll=0.5)]
    made = table(cells, columns="network.hidden")
    assert "| prior | 5-5 | 50 |" in made.to_markdown()


def test_posteriors_at_other_temperatures_are_not_ranked_with_each_other():
    """Each temperature has its own best."""
    cells = [
        record("normal", FIXED, MOONS | {"seed": seed}, inference=inference, nll=nll + seed)
        for seed in range(5)
        for nll, inference in (
            (0.5, {"engine": "mclmc"}),
            (0.4, {"engine": "mclmc", "temperature": 0.5}),
        )
    ]
    entries = table(cells, "prior", "inference.temperature").entries
    assert list(entries["verdict"]) == ["best", "best"]


def test_an_elbo_without_a_maximum_and_other_objectives_are_not_ranked():
    made = [
        changed(record(prior, scale, MOONS | {"seed": seed}, elbo=elbo + seed), status=status)
        for seed in range(3)
        for prior, scale, elbo, status in (
            ("normal", FIXED, -280, "converged"),
            ("flat", NO_SCALE, -50, "improper"),
        )
    ]
    by_prior = table(made, metric="elbo")
    assert by_prior.entries["verdict"].tolist()[0] == "best"
    assert by_prior.entries["verdict"].isna().tolist() == [False, True]
    assert "bold: best; not ranked: ELBOs that have no maximum, and what" in by_prior.note
    point = [record("normal", inference={"guide": "map"}, elbo=-60), record("normal", elbo=-280)]
    by_guide = table(point, "inference.guide", metric="elbo").entries.set_index("row")
    assert by_guide["verdict"].dropna().to_dict() == {"mean_field": "best"}


def test_combinations_on_fewer_data_seeds_are_marked():
    """Their mean is of other data: it may be lower than that of the best."""
    made = [
        record(prior, FIXED, MOONS | {"seed": seed}, nll=seed + 0.1 * (prior == "laplace"))
        for seed in range(5)
        for prior in ("normal", "laplace")
        if seed < 3 or prior == "normal"
    ]
    some = table(made)
    assert "| Laplace | 1.1 ± 0.6§ |" in some.to_markdown()
    assert some.note.endswith("; § of fewer data seeds.")
    latex = some.to_latex()
    assert r"Laplace & $1.1 \pm 0.6^{\S}$" in latex and r"; \S{} of fewer data seeds" in latex
    assert "§" not in table(records()).to_markdown()
    # Nobody has a score on the last one.
    lacking = [
        changed(r, results=r.results | {"crps": None if i > 3 else 0.1}) for i, r in enumerate(made)
    ]
    assert table(lacking, metric="crps").to_markdown().count("§") == 3


def test_caveats_are_marked():
    made = records()
    made = [changed(made[0], status="not_converged"), *made[1:]]
    text = table(made).to_markdown()
    assert "**0.41 ± 0.07**†" in text and "† 1 of 25 not converged" in text
    failed = [record("student_t", FIXED, MOONS | {"seed": s}, failed=True) for s in range(5)]
    assert "| Student-t | failed |" in table(records() + failed).to_markdown()


def test_one_data_seed_has_no_intervals():
    made = table(records(seeds=1))
    assert set(made.entries["verdict"]) == {"best", "undecided"}
    assert "no interval, for which 3 data seeds are needed" in made.note


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("priors",), "`--rows` must be one of .*, got 'priors'; did you mean `prior`?"),
        (("prior", "dataset.seed"), "`--columns` must be one of "),
        (("prior", "hyperprior", "nlll"), "`--metric` must be one of .*; did you mean `nll`?"),
    ],
)
def test_unknown_settings_and_metrics(arguments, message):
    with pytest.raises(ConfigError, match=message):
        table(records(), *arguments)
