"""One mean has one standard error, wherever it stands: that of data seeds of the same rows."""

import io
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from pmbnn.cli.cell_tables import accuracy_tables
from pmbnn.cli.tables import claims_tables, means_table
from pmbnn.compare.baselines import make_baselines
from pmbnn.compare.claims import claims_table
from pmbnn.compare.scores import rank_combinations
from pmbnn.experiment.published import PublishedTable
from pmbnn.figures.grids import plot_accuracy_overview, plot_grid
from pmbnn.report.answer import answers_of
from pmbnn.report.details import grids
from pmbnn.report.published_table import compare_published
from pmbnn.report.tables import CellView, Parts, mean_table
from pmbnn.results.tables import CORRECTED, combine, mean_and_error, overlap_of, summary_table

OVERLAP = 0.25
VALUES = (0.80, 0.84, 0.91)
ERROR = np.std(VALUES, ddof=1) * np.sqrt(1 / 3 + OVERLAP)
"""Nadeau and Bengio: the variance over n data seeds, times 1/n + test rows / training rows."""


@pytest.fixture
def records(made):
    """Three data seeds that split the same rows, with a number of the same values in all places."""
    found = [
        made.record(
            hyperprior=h,
            dataset=made.MOONS | {"seed": seed},
            accuracy=value,
            excess_nll=value,
            nll=value,
            validation_nll=value,
        )
        for h in (made.HALF_NORMAL, made.TUNED)
        for seed, value in enumerate(VALUES)
    ]
    return [made.changed(record, overlap=OVERLAP) for record in found]


@pytest.fixture
def views(records):
    return [CellView(f"cell-{n}", "own", r, {}, Parts(), ()) for n, r in enumerate(records)]


def shown(table, width=200):
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_the_summary(records):
    row = summary_table(records).iloc[0]
    assert row["accuracy_se"] == pytest.approx(ERROR) and row["overlap"] == OVERLAP


def test_test_rows_that_are_no_sample_have_no_error_anywhere(made, records, views):
    """Not in tables, rankings and intervals, and a note says why."""
    records = [made.changed(record, overlap=math.inf) for record in records]
    row = summary_table(records).iloc[0]
    assert row["accuracy"] == pytest.approx(np.mean(VALUES)) and np.isnan(row["accuracy_se"])
    combinations = combine(records)
    assert combinations.error_note == (
        "mean over 3 data seeds; no standard error, as test rows were not drawn at random"
    )
    assert set(rank_combinations(combinations)["verdict"]) == {"best", "undecided"}
    views = [replace(view, record=r) for view, r in zip(views, records, strict=True)]
    ((_, (ranking,)),) = answers_of(grids(views), {})
    assert "no intervals over data seeds, as test rows were not drawn" in ranking.basis
    assert ranking.sentence.startswith("Undecided on moons")


def test_the_summary_of_rows_of_their_own_and_of_fits_is_not_corrected(made, records):
    apart = [made.changed(record, overlap=0.0) for record in records[:3]]
    row = summary_table(apart).iloc[0]
    assert row["overlap"] == 0
    assert row["accuracy_se"] == pytest.approx(np.std(VALUES, ddof=1) / np.sqrt(3))
    fits = [
        made.record(inference={"seed": seed}, accuracy=value) for seed, value in enumerate(VALUES)
    ]
    fits = [made.changed(record, overlap=OVERLAP) for record in fits]
    assert overlap_of(fits) == 0.0
    (row,) = summary_table(fits).to_dict("records")
    assert row["accuracy_se"] == pytest.approx(np.std(VALUES, ddof=1) / np.sqrt(3))


def test_the_terminal(records):
    (table,) = accuracy_tables(records)
    text = shown(table)
    assert text.count(f"0.85 ± {ERROR:.2f}") == 2
    assert f"mean ± standard error over 3 data seeds, {CORRECTED}" in " ".join(text.split())


def test_the_ranking_and_the_answer(records, views):
    ranked = rank_combinations(combine(records))
    np.testing.assert_allclose(ranked["se"], ERROR)
    (grid,) = grids(views)
    ((answer,),) = (answer.rankings for answer in answers_of([grid], {}))
    assert CORRECTED in answer.basis
    assert all(f"± {ERROR:.2f}" in row.score for row in answer.rows)


def test_fits_are_no_data_seeds_on_the_page(made):
    """Two fits of each of three data seeds."""
    records = [
        made.record(dataset=made.MOONS | {"seed": seed}, inference={"seed": fit}, nll=value)
        for seed, value in enumerate(VALUES)
        for fit in (0, 1)
    ]
    table = mean_table([CellView(f"{n}", "own", r, {}, Parts(), ()) for n, r in enumerate(records)])
    (row,) = table.rows
    entries = {
        heading.title: entry.text for heading, entry in zip(table.headings, row, strict=True)
    }
    assert entries["data seeds"] == "3"
    assert entries["NLL (nats)"] == f"0.85 ± {np.std(VALUES, ddof=1) / np.sqrt(3):.2f}"


def test_the_page(views):
    table = mean_table(views)
    at = [heading.title for heading in table.headings].index("accuracy")
    assert [row[at].text for row in table.rows] == [f"0.85 ± {ERROR:.2f}"] * 2
    assert table.title == f"Means over seeds ± standard error, {CORRECTED}"
    assert CORRECTED in table.headings[at].note
    number = {"quantity": "accuracy", "value": 0.8, "path": "results/accuracy"}
    where = {"experiment": "own", "where": {"hyperprior.kind": "half_normal"}}
    group = {"study": "s", "source": "s", **where, "numbers": [number]}
    (found,) = compare_published(PublishedTable.model_validate({"groups": [group]}).numbers, views)
    assert (found.ours, found.error) == (pytest.approx(0.85), pytest.approx(ERROR))


def test_figures(records):
    combinations = combine(records)
    assert combinations.score(0, 0, "accuracy") == (pytest.approx(0.85), pytest.approx(ERROR))
    for plot in (plot_grid, plot_accuracy_overview):
        title = plot(combinations, "title").get_suptitle()
        assert f"over 3 data seeds, {CORRECTED}" in " ".join(title.split())


def test_baselines_and_claims(made, tmp_path, records):
    results = made.store(tmp_path, [(record, made.plane_trace()) for record in records])
    means = make_baselines(results, records, models=()).means
    chosen = means[means["kind"] == "combination"]
    np.testing.assert_allclose(chosen["accuracy_se"], ERROR)
    assert (means["overlap"] == OVERLAP).all()
    assert CORRECTED in shown(means_table("title", means))
    claims = claims_table("own", results, records)
    assert (claims["overlap"] == OVERLAP).all()
    text = "".join(shown(table) for table in claims_tables(claims))
    assert CORRECTED in re.sub(r"\s+", " ", text)
    for _, rows in claims.groupby(["claim", "measure"]):
        assert ((rows["se"] >= 0) | rows["se"].isna()).all()


def test_scales_and_sparsity_are_corrected_too(made):
    from pmbnn.compare.claims import _measured, scale_rows

    tuned = [
        made.changed(
            made.record(hyperprior=made.TUNED, dataset=made.MOONS | {"seed": seed}, scale=scale),
            overlap=OVERLAP,
        )
        for seed, scale in enumerate((1.0, 2.0, 4.0))
    ]
    expected = mean_and_error(np.log([1.0, 2.0, 4.0]), OVERLAP)[1]
    (row,) = [r for r in scale_rows(combine(tuned), {}) if r["measure"].startswith("chosen")]
    assert row["se"] == pytest.approx(row["mean"] * expected)
    measures = {record.name: {"away": float(n)} for n, record in enumerate(tuned)}
    (row,) = _measured(combine(tuned), measures)
    assert row["se"] == pytest.approx(mean_and_error([0.0, 1.0, 2.0], OVERLAP)[1])
