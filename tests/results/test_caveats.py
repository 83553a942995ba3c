"""How far cells can be relied on, and everywhere that this is said."""

import io

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from pmbnn.cli.cell_tables import accuracy_tables, reliability_table
from pmbnn.cli.tables import claims_tables, grid_end_lines
from pmbnn.compare.baselines import CHOSEN, make_baselines
from pmbnn.compare.claims import ALL, BEST_FIXED, HYPERPRIORS, claims_table, paired_rows, scale_rows
from pmbnn.compare.contrasts import delta_table
from pmbnn.compare.evidence import evidence_table
from pmbnn.experiment.cells import Contrasts
from pmbnn.figures.grids import plot_accuracy_overview, plot_grid
from pmbnn.report.answer import answers_of
from pmbnn.report.details import grids
from pmbnn.report.tables import CellView, Parts, cell_table, mean_table
from pmbnn.results.record import (
    LearningRateSearch,
    Restart,
    ScaleSelection,
    choices_at_end,
    count,
    has_converged,
    learning_rate_at_grid_end,
    scale_at_grid_end,
)
from pmbnn.results.tables import combine, metrics_table, summary_table

GRID = (0.1, 0.3, 1.0)
FIT = {"engine": "compiled", "guide": "mean_field", "seed": 0}


def tuned(made, seed, candidate, status="converged", prior="normal", scales=GRID, **results):
    """A cell that chose this candidate of a grid of scales."""
    selection = ScaleSelection(
        scales=scales, nll=((0.5,),) * len(scales), restart=(0,) * len(scales), candidate=candidate
    )
    scale = scales[candidate]
    results = {"excess_error": 0.02, "excess_nll": 0.02, "nll": 0.4, "scale": scale} | results
    one = made.record(prior, made.TUNED, made.MOONS | {"seed": seed}, inference=FIT, **results)
    return made.changed(one, selection=selection, status=status)


def learned(made, seed, status="converged", prior="normal", **results):
    results = {"excess_error": 0.01, "excess_nll": 0.01, "nll": 0.3} | results
    one = made.record(
        prior, made.HALF_NORMAL, made.MOONS | {"seed": seed}, inference=FIT, **results
    )
    return made.changed(one, status=status)


@pytest.fixture
def records(made):
    """Tuned cells of three data seeds, two at an end of their grid, and learned ones, two lost."""
    statuses = ("not_converged", "undecided", "converged")
    return [tuned(made, seed, candidate) for seed, candidate in enumerate((0, 1, 2))] + [
        learned(made, seed, status) for seed, status in enumerate(statuses)
    ]


@pytest.fixture
def views(records):
    return [CellView(f"cell-{n}", "own", r, {}, Parts(), ()) for n, r in enumerate(records)]


def shown(*tables):
    console = Console(width=200, file=io.StringIO())
    for table in tables:
        console.print(table)
    return console.file.getvalue()


# Of one cell


@pytest.mark.parametrize(("candidate", "at_end"), [(0, True), (1, False), (2, True)])
def test_a_scale_at_an_end_of_its_grid(made, candidate, at_end):
    record = tuned(made, 0, candidate)
    assert scale_at_grid_end(record) is at_end
    assert choices_at_end(record) == ["scale at an end of the grid"] * at_end


def test_the_order_of_candidates_does_not_matter(made):
    assert scale_at_grid_end(tuned(made, 0, 1, scales=(0.3, 1.0, 0.1))) is True
    assert scale_at_grid_end(tuned(made, 0, 0, scales=(0.3, 1.0, 0.1))) is False


def test_what_was_not_tuned_is_at_no_end(made):
    only = ScaleSelection(scales=(None,), nll=((0.5,),), restart=(0,), candidate=0)
    assert scale_at_grid_end(made.record()) is None
    assert scale_at_grid_end(made.changed(made.record(), selection=only)) is None
    assert scale_at_grid_end(tuned(made, 0, 0, scales=(0.1,))) is None
    assert learning_rate_at_grid_end(made.record()) is None


@pytest.mark.parametrize(("chosen", "at_end"), [(0.01, True), (0.03, False), (0.1, True)])
def test_a_learning_rate_at_an_end_of_its_candidates(made, chosen, at_end):
    search = LearningRateSearch(candidates=(0.01, 0.03, 0.1), elbo=(1, 2, None), chosen=chosen)
    record = made.changed(made.record(), learning_rate_search=search)
    assert learning_rate_at_grid_end(record) is at_end
    assert count([record]).columns == {"not_converged": 0, "learning_rate_at_grid_end": at_end}


def test_statuses(made):
    converged = {
        status: has_converged(made.changed(made.record(), status=status))
        for status in ("converged", "improper", "not_converged", "undecided")
    }
    assert converged == {
        "converged": True, "improper": True, "not_converged": False, "undecided": False,
    }  # fmt: skip


def test_other_restarts_count_where_they_are_in_the_mixture(made):
    def mixture(weight):
        restarts = [("converged", 1 - weight), ("not_converged", weight)]
        restarts = tuple(Restart(status=s, reason="", elbo=0.0, weight=w) for s, w in restarts)
        return made.changed(made.record(), restarts=restarts)

    assert has_converged(mixture(0.0)) and has_converged(mixture(1e-9))
    assert not has_converged(mixture(0.5))


# Tables


def test_counts_in_the_summary(made, records):
    lost = made.record(dataset=made.MOONS | {"seed": 3}, inference=FIT, failed=True)
    first, second = summary_table([*records, lost]).to_dict("records")
    assert (first["not_converged"], first["scale_at_grid_end"]) == (0, 2)
    assert (second["cells"], second["failed"], second["not_converged"]) == (4, 1, 2)
    assert pd.isna(second["scale_at_grid_end"])


def test_booleans_in_the_metrics(records):
    table = metrics_table(records)
    assert list(table["scale_at_grid_end"][:3]) == [True, False, True]
    assert table["scale_at_grid_end"][3:].isna().all()


def test_the_last_table_of_a_sweep(records):
    text = " ".join(shown(reliability_table(records)).split())
    assert "not converged" in text and "scale at an end of the grid" in text
    assert "toy: moons, noise 0.4 │ 0 of 6 │ 2 of 6 │ 2 of 3 │" in text
    assert "learning rate" not in text and "improper" not in text
    assert reliability_table([]) is None


def test_entries_of_the_accuracy_table(records):
    text = " ".join(shown(*accuracy_tables(records)).split())
    assert "(2 at an end of the grid)" in text
    assert "(2 not converged)" in text


# The page and figures


def test_rows_are_marked_on_the_page(views):
    table = cell_table(views)
    at = [heading.title for heading in table.headings].index("choices")
    badges = [row[at].badge for row in table.rows]
    assert badges == ["not_converged", "", "not_converged", "", "", ""]
    table = mean_table(views)
    at = [heading.title for heading in table.headings].index("of its cells")
    assert [row[at].text for row in table.rows] == [
        "scale at an end of the grid in 2 of 3",
        "2 of 3 not converged",
    ]


def test_the_answer_says_how_many_of_its_cells(views):
    (grid,) = grids(views)
    ((answer,),) = (answer.rankings for answer in answers_of([grid], {}))
    assert answer.sentence.endswith(", though 2 of its 3 fits did not converge.")
    assert [row.caveats.text for row in answer.rows] == [
        "2 of 3 not converged",
        "scale at an end of the grid in 2 of 3",
    ]


def test_figures_mark_combinations(records):
    combinations = combine(records)
    assert combinations.marks(0, 0) == "‡" and combinations.marks(0, 1) == "†"
    notes = "† 2 of 6 not converged; ‡ scale at an end of the grid in 2 of 3"
    assert combinations.mark_notes == notes
    for plot in (plot_grid, plot_accuracy_overview):
        figure = plot(combinations, "title")
        assert notes in " ".join(figure.get_suptitle().split())


# Comparisons


def test_pairs_whose_fixed_scale_is_at_the_end_are_counted(records):
    (row,) = [r for r in paired_rows(combine(records)) if r["measure"] == "excess error"]
    assert (row["cells"], row["at_grid_end"], row["not_converged"]) == (3, 2, 2)


def test_the_best_of_given_scales_may_be_the_last(made):
    """Of three given scales the largest, then the middle one, is best on held-out rows."""
    scores = {0.1: (0.5, 0.5), 1.0: (0.4, 0.2), 10.0: (0.3, 0.3)}
    records = [
        made.record(
            hyperprior={"kind": "fixed", "scale": scale},
            dataset=made.MOONS | {"seed": seed},
            validation_nll=score,
        )
        for scale, of_scale in scores.items()
        for seed, score in enumerate(of_scale)
    ]
    records += [learned(made, seed) for seed in (0, 1)]
    rows = {
        r["against"]: r for r in paired_rows(combine(records)) if r["measure"] == "excess error"
    }
    assert (rows[BEST_FIXED]["cells"], rows[BEST_FIXED]["at_grid_end"]) == (2, 1)
    assert rows["fixed 10"]["at_grid_end"] == 0  # it was given, not chosen
    chosen, *_ = [r for r in scale_rows(combine(records), {}) if r["measure"].startswith("chosen")]
    assert (chosen["cells"], chosen["at_grid_end"]) == (2, 1)


def test_claims_say_how_many_pairs(made, tmp_path, records):
    records = records + [tuned(made, 0, 0, prior="laplace"), learned(made, 0, prior="laplace")]
    trace = made.both(made.plane_trace(resolution=(12, 10), points=20), made.weights_trace(2))
    results = made.store(tmp_path, [(record, trace) for record in records])
    table = claims_table("own", results, records)
    over_all = table[(table["prior"] == ALL) & (table["measure"] == "excess error")]
    assert over_all[["cells", "at_grid_end", "not_converged"]].values.tolist() == [[4, 3, 2]]
    # Another data set with other measures, of whose pair nothing else is known.
    further = table[table["claim"] == HYPERPRIORS].iloc[[0]].assign(data="other", measure="NLL")
    (line,) = grid_end_lines(pd.concat([table, further.assign(cells=1, at_grid_end=1)]))
    assert line.startswith("own: in 4 of 5 pairs the fixed scale is at an end of its grid")
    (line,) = grid_end_lines(table)
    assert line.startswith("own: in 3 of 4 pairs the fixed scale is at an end of its grid")
    text = shown(*claims_tables(table))
    assert "†‡" in text and "‡ some fixed scales at an end of the grid" in text


def test_baselines_count_data_seeds(made, tmp_path, records):
    results = made.store(tmp_path, [(record, made.plane_trace()) for record in records])
    means = make_baselines(results, records, models=()).means.set_index("method")
    assert means.loc["normal × fixed (tuned)", ["not_converged", "at_grid_end"]].tolist() == [0, 2]
    assert means.loc["normal × half-normal", ["not_converged", "at_grid_end"]].tolist() == [2, 0]
    assert means.loc[CHOSEN, "at_grid_end"] == 2  # the first of equal scores


def test_contrasts_and_evidence_count_cells(records):
    deltas = delta_table(records, Contrasts())
    assert deltas[["advi_cells", "advi_not_converged", "pairs", "at_grid_end"]].values.tolist() == [
        [2, 1, 1, 1], [2, 1, 1, 0], [2, 0, 1, 1],
    ]  # fmt: skip
    evidence = evidence_table(records)
    assert evidence["scale_at_grid_end"].tolist()[:3] == [True, False, True]
    assert np.all([value is None for value in evidence["scale_at_grid_end"][3:]])
