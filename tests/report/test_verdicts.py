"""The section of a page on contrasts: a sentence, a forest plot and a table."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pmbnn.compare.contrasts import FILE, VERDICT_COLUMNS
from pmbnn.report.contrasts import contrast_views
from pmbnn.results.loading import ExperimentResults
from pmbnn.results.store import Results

NAN = np.nan


@pytest.fixture
def folder(tmp_path):
    def of(*rows):
        results = Results(tmp_path)
        results.prepare()
        results.write_table(FILE, pd.DataFrame(rows, columns=VERDICT_COLUMNS))
        made = ExperimentResults("trust", results, (), {}, ())
        made.note_made([FILE])
        return made

    return of


def test_counts_and_rows(folder, make):
    rows = [
        make.contrast("normal: learned less fixed", "better", "distorts"),
        make.contrast("laplace: learned less fixed", "undecided", "undecided", note="Few seeds."),
        make.contrast("cauchy: learned less fixed", "equivalent", "faithful"),
    ]
    (view,) = contrast_views([folder(*rows)])
    assert view.sentence == (
        "Of 3 contrasts the posterior decides 2; ADVI is faithful in 1 and distorts or reverses 1."
    )
    assert view.basis.startswith("Named beforehand; margin 0.001 nats; 95 % simultaneous")
    first, second, _ = view.rows
    assert first.differences == ["−0.0020 (−0.0030 to −0.0010)"] * 3
    assert (first.posterior.text, first.posterior.badge) == ("better", "best")
    assert (first.advi.text, first.advi.badge) == ("distorts", "behind")
    assert "the first is better under the posterior" in first.sentence
    assert second.sentence.endswith("Few seeds.")


def ends(name, low, high):
    return {name: (low + high) / 2, f"{name}_low": low, f"{name}_high": high}


def test_the_plot_has_every_contrast_under_the_posterior_and_under_advi(folder, make):
    rows = [
        make.contrast("a", "better", "distorts") | ends("advi", 0.001, 0.003),
        make.contrast("b", "worse", "") | ends("reference", 0.004, 0.006) | ends("advi", NAN, NAN),
        make.contrast("c", "equivalent", "faithful") | ends("reference", -0.0005, 0.0005),
        make.contrast("d", "undecided", "undecided") | ends("reference", -0.002, 0.002),
    ]
    plot = contrast_views([folder(*rows)])[0].plot
    assert [row.name for row in plot.rows] == ["a", "b", "c", "d"]
    assert plot.rows[0].note == "moons, noise 0.4 (5 data seeds)"
    kinds = [row.lines[0].kind for row in plot.rows]
    assert kinds == ["best", "behind", "equivalent", "undecided"]
    assert [[line.label for line in row.lines] for row in plot.rows[:2]] == [
        ["posterior", "ADVI"], ["posterior"],
    ]  # fmt: skip
    assert [line.verdict.text for line in plot.rows[0].lines] == ["better", "distorts"]
    axis = plot.axis
    posterior, advi = (axis.mark(line.difference, line.kind) for line in plot.rows[0].lines)
    assert posterior.high < axis.zero < advi.low
    start, width = axis.band
    assert start < axis.mark(plot.rows[2].lines[0].difference, "").low < axis.zero < start + width


def test_without_intervals_it_is_said_what_they_need(folder, make):
    row = make.contrast("a", "undecided", "undecided", seeds=1)
    row |= {
        f"{name}_{end}": NAN for name in ("reference", "advi", "delta") for end in ("low", "high")
    }
    (view,) = contrast_views([folder(row)])
    assert view.basis.endswith("margin 0.001 nats; no intervals, which need 3 data seeds.")
    (plotted,) = view.plot.rows
    assert plotted.note.endswith("(1 data seed)")
    assert view.plot.axis.mark(plotted.lines[0].difference, "undecided").low is None


def test_few_data_seeds_are_not_the_only_reason_for_no_interval(folder, make):
    """Such as test rows that were not drawn at random, which the note of each contrast says."""
    row = make.contrast("a", "undecided", "undecided") | {"seeds": 5}
    row |= {f"{name}_{end}": NAN for name in ("reference", "ensemble") for end in ("low", "high")}
    (view,) = contrast_views([folder(row)])
    assert view.basis.endswith("margin 0.001 nats; no intervals.")


def test_contrasts_that_were_not_named_are_exploratory(folder, make):
    (view,) = contrast_views([folder(make.contrast("a", "better", "faithful", exploratory=True))])
    assert view.basis.startswith("Exploratory: the experiment file names none; margin")


def test_without_a_reference_there_is_no_section(folder, make):
    missing = dict.fromkeys([f"reference{end}" for end in ("", "_low", "_high")])
    assert contrast_views([folder(make.contrast("a", "", "", **missing))]) == []
    assert contrast_views([folder()]) == []


def test_ensembles_have_a_column_and_a_sentence(folder, make):
    none = {f"{name}{end}": NAN for name in ("reference", "delta") for end in ("", "_low", "_high")}
    pooled = ends("ensemble", 0.001, 0.003) | {"ensemble_verdict": "worse"}
    (view,) = contrast_views([folder(make.contrast("a", "", "", **none, **pooled))])
    assert view.sentence == (
        "Ensembles, which are no draws of the posterior, decide 1 of 1 contrast."
    )
    assert view.headings == ["ADVI (nats)", "ensemble (nats)"]
    (row,), (plotted,) = view.rows, view.plot.rows
    assert len(row.differences) == 2 and row.ensemble.text == "worse"
    assert [line.label for line in plotted.lines] == ["ensemble", "ADVI"]
    assert view.has_ensembles and not view.has_posterior


def test_without_fits_there_is_no_verdict_on_advi(folder, make):
    (view,) = contrast_views([folder(make.contrast("a", "better", ""))])
    assert view.rows[0].advi.text == "" and view.rows[0].advi.badge == ""


def test_verdicts_on_other_cells_are_not_shown(folder, make):
    before = folder(make.contrast("a", "better", "faithful"))
    assert contrast_views([before])
    assert contrast_views([replace(before, records=(make.record(),))]) == []
