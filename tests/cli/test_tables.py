"""Tables at the end of a sweep of classifiers of images, from made records."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from pmbnn.cli import run
from pmbnn.cli.cell_tables import diagnostics_tables, ood_tables, unavailable_lines
from pmbnn.results.record import CellRecord
from pmbnn.sweep.stages import Outcome

KINDS = ("sd", "entropy", "mutual_information")


def images(**areas):
    """What a record says of sets whose areas are given by score."""
    ood = {
        name: {f"auroc_{score}": area for score, area in zip(KINDS, of_set, strict=False)}
        for name, of_set in areas.items()
    }
    return {"ood": ood, "unavailable": {}}


def diagnostics(shift=0.0, parts=("train", "test")):
    numbers = {"accuracy": 0.1, "log_likelihood": -2.0, "elbo": -2.5, "evidence": 1.5e-7}
    return {
        "step": [0, 5000],
        "kl": [0.5 + shift, 0.25],
        "parts": {
            part: {name: [v + i, v + i + 0.01] for name, v in numbers.items()}
            for i, part in enumerate(parts)
        },
    }


def record(sweep="digits", seed=0, prior="normal", guide="mean_field", score=None, **more):
    return CellRecord(
        sweep=sweep,
        name=f"{sweep}-{prior}-{seed}",
        status="converged",
        reason="",
        settings={
            "dataset": {"kind": "mnist", "seed": seed},
            "prior": {"kind": prior},
            "hyperprior": {"kind": "fixed", "scale": 0.1},
            "inference": {"guide": guide},
        },
        results={"accuracy": 0.9, "validation_nll": score},
        seconds=1.0,
    ).model_copy(update=more)


def shown(tables):
    """Rendered tables: the titles, and the cells of each line."""
    console = Console(file=io.StringIO(), width=220)
    for table in tables:
        console.print(table)
    lines = console.file.getvalue().splitlines()
    rows = [line.replace("┃", "│").split("│") for line in lines]
    return [[cell.strip() for cell in row if cell.strip()] for row in rows if len(row) > 1]


def titles(tables):
    return [str(table.title) for table in tables]


# Out-of-distribution images


def test_areas_of_every_cell_and_set():
    records = [
        record(images=images(letters=(0.9, 0.8), noise=(0.51, 0.52))),
        record(guide="map", images=images(letters=(0.7, 0.6))),
        record(sweep="other", images=images(letters=(0.123, 0.456))),
    ]
    tables = ood_tables(records)
    assert titles(tables) == [
        "AUROC of out-of-distribution images by sd / entropy, digits: mnist",
        "AUROC of out-of-distribution images by sd / entropy, other: mnist",
    ]
    assert shown(tables) == [
        ["cell", "letters", "noise"],
        ["guide mean_field; normal × fixed 0.1", "0.900 / 0.800", "0.510 / 0.520"],
        ["guide map; normal × fixed 0.1", "0.700 / 0.600"],
        ["cell", "letters"],
        ["normal × fixed 0.1", "0.123 / 0.456"],
    ]


def test_seeds_are_averaged_and_priors_are_not():
    records = [
        record(images=images(letters=(0.9, 0.8))),
        record(seed=1, images=images(letters=(0.7, None))),
        record(prior="laplace", images=images(letters=(0.5, 0.5))),
    ]
    assert shown(ood_tables(records))[1:] == [
        ["normal × fixed 0.1", "0.800 / 0.800"],
        ["laplace × fixed 0.1", "0.500 / 0.500"],
    ]


def test_no_table_without_ood_images():
    failed = record(status="error", results={})
    assert ood_tables([record(), failed, record(images=images())]) == []


def test_sets_that_were_unavailable_are_named_once():
    lost = images() | {"unavailable": {"fashion": "no network " * 30}}
    (line,) = unavailable_lines([record(), record(images=lost), record(seed=1, images=lost)])
    assert line.startswith("out-of-distribution set fashion was unavailable: no network no network")
    assert line.endswith(" …")
    assert len(line) < 150
    assert unavailable_lines([record(), record(images=images(letters=(1, 1)))]) == []


# Snapshots of a fit


def test_steps_of_a_cell():
    (table,) = diagnostics_tables([record(diagnostics=diagnostics())])
    assert str(table.title) == "Steps of digits (nats a row): mnist, seed 0, normal × fixed 0.1"
    columns = [str(column.header) for column in table.columns]
    numbers = ["accuracy", "log-lik.", "ELBO", "evidence"]
    assert columns == ["step", "KL", *(f"{p} {n}" for p in ("train", "test") for n in numbers)]
    assert shown([table])[1:] == [
        ["0", "0.5000"]
        + ["0.1000", "−2.0000", "−2.5000", "1.5e−7"]
        + ["1.1000", "−1.0000", "−1.5000", "1"],
        ["5,000", "0.2500"]
        + ["0.1100", "−1.9900", "−2.4900", "0.01"]
        + ["1.1100", "−0.9900", "−1.4900", "1.01"],
    ]


@pytest.mark.parametrize(
    ("guide", "objective", "values"),
    [
        (
            "map",
            ["log-posterior"],
            ["0.1000", "−2.0000", "−2.5000", "1.1000", "−1.0000", "−1.5000"],
        ),
        # The log-likelihood itself, which is there once.
        ("maximum_likelihood", [], ["0.1000", "−2.0000", "1.1000", "−1.0000"]),
    ],
)
def test_steps_of_a_fit_without_an_elbo_name_its_objective(guide, objective, values):
    """It has no divergence and no approximate evidence."""
    (table,) = diagnostics_tables([record(guide=guide, diagnostics=diagnostics())])
    columns = [str(column.header) for column in table.columns]
    numbers = ["accuracy", "log-lik.", *objective]
    assert columns == ["step", *(f"{p} {n}" for p in ("train", "test") for n in numbers)]
    assert shown([table])[1][1:] == values


def test_validation_rows_are_shown_rather_than_test_rows():
    snapshots = diagnostics(parts=("train", "validation", "test"))
    (table,) = diagnostics_tables([record(diagnostics=snapshots)])
    headers = [str(column.header).split()[0] for column in table.columns]
    assert (headers.count("validation"), headers.count("test")) == (4, 0)


def test_the_best_cell_of_each_sweep_is_first():
    """Chosen by what was held out; in their order where nothing was."""
    tables = diagnostics_tables(
        [
            record(score=0.5, diagnostics=diagnostics()),
            record(prior="laplace", score=0.4, diagnostics=diagnostics()),
            record(prior="cauchy", score=0.3),
            record("other", prior="cauchy", diagnostics=diagnostics()),
            record("other", diagnostics=diagnostics()),
            record("without"),
        ]
    )
    words = [title.split(", ")[-1] for title in titles(tables)]
    expected = ["laplace", "normal", "cauchy", "normal"]
    assert words == [f"{prior} × fixed 0.1" for prior in expected]
    assert [title.split(":")[0] for title in titles(tables)] == [
        *["Steps of digits (nats a row)"] * 2,
        *["Steps of other (nats a row)"] * 2,
    ]


def weighted(kl_weight, **more):
    """Record of a cell with a KL weight, and snapshots that no other has."""
    found = record(diagnostics=diagnostics(shift=kl_weight), **more)
    found.settings["inference"] = {"kl_weight": kl_weight}
    return found


def test_cells_of_a_sweep_have_different_names_and_seeds_have_not():
    tables = diagnostics_tables([weighted(w, seed=s) for w in (1, 0.001) for s in (0, 1)])
    first, second = titles(tables)
    assert "weight 1, normal × fixed 0.1" in first
    assert "weight 0.001, normal × fixed 0.1" in second
    assert [shown([table])[1][1] for table in tables] == ["1.5000", "0.5010"]
    assert [table.caption for table in tables] == [None, None]


def test_priors_of_one_name_have_different_names():
    records = [record(diagnostics=diagnostics()) for _ in range(2)]
    records[1].settings["prior"] = {"kind": "normal", "fan_in": True}
    records[0].settings["prior"] = {"kind": "normal", "fan_in": False}
    first, second = titles(diagnostics_tables(records))
    assert first.endswith("normal, fan_in False × fixed 0.1")
    assert second.endswith("normal, fan_in True × fixed 0.1")


def test_of_many_cells_four_are_shown_and_the_rest_counted():
    tables = diagnostics_tables([weighted(w) for w in range(7)])
    assert [title.split(", ")[2].split()[-1] for title in titles(tables)] == list("0123")
    assert [table.caption for table in tables[:3]] == [None] * 3
    assert str(tables[3].caption).startswith("and 3 more")
    assert diagnostics_tables([weighted(w) for w in range(4)])[3].caption is None


def test_numbers_that_were_not_finite_are_left_out():
    snapshots = diagnostics()
    snapshots["kl"][0] = None
    snapshots["parts"]["test"]["elbo"][0] = None
    (table,) = diagnostics_tables([record(diagnostics=snapshots)])
    first, last = shown([table])[1:]
    assert (len(first), len(last)) == (8, 10)


# The end of a sweep


def concluded(records, failed=()):
    console = Console(file=io.StringIO(), width=220)
    run._print_outcome(console, Outcome(Path("out"), tuple(records), tuple(failed)))
    return console.file.getvalue()


def test_a_sweep_ends_with_its_tables():
    lost = images(letters=(0.9, 0.8)) | {"unavailable": {"fashion": "no [network]"}}
    text = concluded([record(images=lost, diagnostics=diagnostics())])
    places = [
        text.index(words)
        for words in (
            "Test accuracy, digits",
            "AUROC of out-of-distribution images",
            "0.900 / 0.800",
            "Steps of digits (nats a row)",
            "Reliability of these cells",
            "out-of-distribution set fashion was unavailable: no [network]",
            "tables out/metrics.csv, out/summary.csv, out/ood.csv; figures",
        )
    ]
    assert places == sorted(places)


def test_a_sweep_of_points_ends_as_before():
    text = concluded([record()])
    assert "ood" not in text
    assert "Steps of" not in text
    assert "tables out/metrics.csv, out/summary.csv; figures" in text


def test_a_sweep_ends_with_the_best_combination_and_where_to_look():
    cells = [record(prior=prior, score=score) for prior, score in (("normal", 0.4), ("flat", 0.3))]
    cells = [cell.model_copy(update={"predictive": "class_probabilities"}) for cell in cells]
    *_, best, converged, following = concluded(cells).splitlines()
    assert best == ("best, digits: mnist: flat × fixed 0.1 (NLL of held-out training rows 0.3000)")
    assert converged == "2 of 2 cells converged"
    assert following.startswith("next: the page out/index.html; pmbnn table, predict, check or")


def test_a_sweep_counts_its_ensembles_apart():
    """They neither converged nor did they not."""
    text = concluded([record(), record(seed=1, status="ensemble")])
    assert "\n1 of 1 cell converged\n1 ensemble\n" in text


@pytest.mark.parametrize(
    ("other", "length", "option"),
    [
        ("digits", {"steps": 500}, "inference.steps=1000"),
        ("points", {"steps": None, "epochs": 4.0}, "digits.inference.epochs=8"),
        ("digits", {"steps": None}, "inference.steps=20000"),  # of no length in the file
    ],
)
def test_a_sweep_that_did_not_converge_names_the_option_for_longer_fits(other, length, option):
    cells = [record(sweep=other), *(record(seed=s, status="not_converged") for s in (1, 2))]
    settings = cells[0].settings | {"inference": {"epochs": None} | length}
    text = concluded([cell.model_copy(update={"settings": settings}) for cell in cells])
    assert f"1 of 3 cells converged; for longer fits: --set {option}\n" in text


def test_every_sweep_with_short_fits_has_an_option():
    short = record(status="not_converged")
    settings = short.settings | {"inference": {"steps": 500}}
    cells = [short.model_copy(update={"settings": settings, "sweep": name}) for name in "ab"]
    options = "--set a.inference.steps=1000 --set b.inference.steps=1000"
    assert f"0 of 2 cells converged; for longer fits: {options}\n" in concluded(cells)


def test_longer_fits_are_longer_than_all_fits_of_the_sweep():
    """The option sets the length of all, also of those that converged."""
    cells = [
        one.model_copy(update={"settings": one.settings | {"inference": {"steps": steps}}})
        for one, steps in ((record(status="not_converged"), 500), (record(seed=1), 4000))
    ]
    assert "; for longer fits: --set inference.steps=8000\n" in concluded(cells)


def test_a_cell_that_failed_is_named():
    lost = record(status="diverged", reason="not finite", results={})
    text = concluded([record(), lost], [lost])
    (line,) = [line for line in text.splitlines() if line.startswith("failed: ")]
    assert line.endswith(": not finite")
