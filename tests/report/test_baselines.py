"""The section on networks beside usual methods."""

import os

import pandas as pd
import pytest

from pmbnn.compare.baselines import Baselines, write_baselines
from pmbnn.report.baselines import baseline_views
from pmbnn.report.numbers import to_error
from pmbnn.results.loading import ExperimentResults
from pmbnn.results.store import Results


@pytest.fixture
def view_of(tmp_path):
    def view(*tables):
        results = Results(tmp_path)
        results.prepare()
        write_baselines(results, Baselines(*(pd.concat(t) for t in zip(*tables, strict=True))))
        (found,) = baseline_views([ExperimentResults("toys", results, (), (), ())])
        return found

    return view


def test_one_data_set_in_words(view_of, make):
    view = view_of(make.baselines())
    (data,) = view.sets
    assert view.tally is None
    assert data.lead == [
        f"By {metric} the network is better than random forest, not told apart from {make.hostile}."
        for metric in ("NLL", "error")
    ]
    assert data.metrics == ["accuracy", "NLL"]
    names = [row.name for row in data.rows]
    assert names[0].startswith("network chosen") and names[-1] == "normal × tuned"
    first, by_elbo, forest, *_ = data.rows
    assert (first.note, first.numbers) == ("normal × tuned (2)", ["0.9", "0.346 ± 0.012"])
    assert not any(one.words for one in first.differences)
    assert (by_elbo.differences[0].words, by_elbo.differences[0].verdict.words) == (
        "−0.2", "no interval",
    )  # fmt: skip
    assert forest.differences[0].words == "−0.2 (−0.3 to −0.1)"
    assert forest.differences[0].hint.startswith("p = 0.03; ahead on 2 data seeds")


def test_verdicts_are_counted_over_data_sets(view_of, make):
    view = view_of(make.baselines("one"), make.baselines("another"))
    assert view.tally.headings == ["network against", "NLL", "error"]
    rows = {row[0]: row[1:] for row in view.tally.rows}
    assert rows["random forest"] == ["2 better"] * 2
    assert rows["network chosen by ELBO"] == ["2 without interval"] * 2
    assert "normal × tuned" not in rows


def test_a_table_older_than_its_cells_and_published_sources(tmp_path, make):
    record = make.record()
    results = Results(tmp_path)
    results.prepare()
    write_baselines(results, Baselines(*make.baselines()))
    results.save_cell(record, {})
    folder = ExperimentResults("toys", results, (record,), {}, ())
    times = results.folder / "baselines.csv", results.cells / record.name / "metrics.json"
    for path, time in zip(times, (200, 100), strict=True):
        os.utime(path, (time, time))
    assert baseline_views([folder])[0].notes == []
    os.utime(times[1], (300, 300))
    results.write_text(
        "published.yaml", "splits: [{method: dropout, source: Some (2016), file: a.csv}]"
    )
    older, source = baseline_views([folder])[0].notes
    assert older.endswith(f"not count in it: pmbnn baselines {tmp_path} makes it anew.")
    assert source == "Results of dropout as published: Some (2016)."


def test_nothing_is_said_where_nothing_is_paired(view_of, make):
    means, paired = make.baselines()
    (data,) = view_of((means, paired[:0])).sets
    assert data.lead == ["Nothing is paired: no cell has a score of held-out rows."]
    assert [row.differences for row in data.rows] == [[]] * 4


def test_a_folder_without_tables_has_no_section(tmp_path):
    assert baseline_views([ExperimentResults("toys", Results(tmp_path), (), (), ())]) == []


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [(54.84, 1.41, "54.8 ± 1.4"), (0.9774, 0.0157, "0.977 ± 0.016"), (1234.5, 210.0, "1,234 ± 210"),
     (0.98, float("nan"), "0.98"), (0.98, 0.0, "0.98")],
)  # fmt: skip
def test_digits_by_the_error(value, error, words):
    assert to_error(value, error) == words
