"""The section of a page on cells whose posterior was sampled."""

from dataclasses import replace

import pandas as pd
import pytest

from pmbnn.compare.contrasts import FILE, VERDICT_COLUMNS
from pmbnn.report.answer import verdict_views
from pmbnn.results.loading import ExperimentResults
from pmbnn.results.store import Results


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
    (view,) = verdict_views([folder(*rows)])
    assert view.lead.startswith(
        "Of 3 contrasts (named beforehand) the posterior decides 2 against a margin of 1 "
        "thousandths of a nat; ADVI is faithful in 1 and distorts or reverses 1."
    )
    first, second, _ = view.rows
    assert first.differences == ["−2.0 (−3.0 to −1.0)"] * 3
    assert (first.posterior.text, first.posterior.badge) == ("better", "best")
    assert (first.advi.text, first.advi.badge) == ("distorts", "behind")
    assert "the first is better under the posterior" in first.sentence
    assert second.sentence.endswith("Few seeds.")


def test_contrasts_that_were_not_named_are_exploratory(folder, make):
    (view,) = verdict_views([folder(make.contrast("a", "better", "faithful", exploratory=True))])
    assert "(exploratory: the experiment file names none)" in view.lead


def test_without_a_reference_there_is_no_section(folder, make):
    missing = dict.fromkeys([f"reference{end}" for end in ("", "_low", "_high")])
    assert verdict_views([folder(make.contrast("a", "", "", **missing))]) == []
    assert verdict_views([folder()]) == []


def test_without_fits_there_is_no_verdict_on_advi(folder, make):
    (view,) = verdict_views([folder(make.contrast("a", "better", ""))])
    assert view.rows[0].advi.text == "" and view.rows[0].advi.badge == ""


def test_verdicts_on_other_cells_are_not_shown(folder, make):
    before = folder(make.contrast("a", "better", "faithful"))
    assert verdict_views([before])
    assert verdict_views([replace(before, records=(make.record(),))]) == []
