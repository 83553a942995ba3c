"""The section on networks beside baseline models."""

import pandas as pd
import pytest

from pmbnn.compare.baselines import Baselines, write_baselines
from pmbnn.report.baselines import baseline_views
from pmbnn.results.loading import ExperimentResults
from pmbnn.results.store import Results


@pytest.fixture
def view_of(tmp_path):
    def view(*tables):
        results = Results(tmp_path)
        results.prepare()
        folder = ExperimentResults("toys", results, (), {}, ())
        joined = Baselines(*(pd.concat(t) for t in zip(*tables, strict=True)))
        folder.note_made(write_baselines(results, joined))
        (found,) = baseline_views([folder])
        return found

    return view


def test_one_data_set_in_words(view_of, make):
    view = view_of(make.baselines())
    (data,) = view.sets
    assert view.tally is None
    assert data.lead == [
        f"By {metric} the network is better than random forest, undecided against that "
        f"chosen by ELBO and {make.hostile}."
        for metric in ("NLL", "error")
    ]
    assert data.metrics == ["accuracy", "NLL (nats)"]
    names = [row.name for row in data.rows]
    assert names[0].startswith("network chosen") and names[-1] == "normal × tuned"
    first, by_elbo, forest, *_ = data.rows
    assert (first.note, first.numbers) == ("normal × tuned (2)", ["0.9", "0.346 ± 0.012"])
    assert not any(one.text for one in first.differences)
    assert (by_elbo.differences[0].text, by_elbo.differences[0].verdict.text) == (
        "−0.2", "undecided",
    )  # fmt: skip
    assert forest.differences[0].text == "−0.20 (−0.30 to −0.10)"
    assert forest.differences[0].hint.startswith("p-value 0.03; ahead on 2 data seeds")


def test_verdicts_are_counted_over_data_sets(view_of, make):
    view = view_of(make.baselines("one"), make.baselines("another"))
    assert view.tally.headings == ["network against", "NLL", "error"]
    rows = {row[0]: row[1:] for row in view.tally.rows}
    assert rows["random forest"] == ["2 better"] * 2
    assert rows["network chosen by ELBO"] == ["2 undecided"] * 2
    assert "normal × tuned" not in rows


def test_a_table_of_other_cells_is_not_shown(tmp_path, make):
    results = Results(tmp_path)
    results.prepare()
    before, after = (
        ExperimentResults("toys", results, (make.record(accuracy=accuracy),), {}, ())
        for accuracy in (0.8, 0.9)
    )
    files = write_baselines(results, Baselines(*make.baselines()))
    before.note_made(files)
    results.write_text(
        "published.yaml", "splits: [{method: dropout, source: Some (2016), file: a.csv}]"
    )
    (view,) = baseline_views([before])
    assert view.notes == ["Results of dropout as published: Some (2016)."]
    assert len(view.sets) == 1
    (view,) = baseline_views([after])
    (note,) = view.notes
    assert "of other cells or published results than the present ones: baselines.csv, " in note
    assert "(made anew by `pmbnn baselines`)" in note
    assert view.sets == []
    after.note_made(files)
    (tmp_path / "baselines.csv").write_text("of another folder")
    assert baseline_views([after])[0].sets == []


def test_a_table_of_an_earlier_version_is_left_out(view_of, make):
    means, paired = make.baselines()
    view = view_of((means, paired.assign(verdict="win")))
    assert view.sets == []
    assert view.notes[0].startswith("Left out: `") and "got 'win'" in view.notes[0]


def test_nothing_is_said_where_nothing_is_paired(view_of, make):
    means, paired = make.baselines()
    (data,) = view_of((means, paired[:0])).sets
    assert data.lead == ["Nothing is paired: no cell has a score of held-out rows."]
    assert [row.differences for row in data.rows] == [[]] * 4


def test_a_folder_without_tables_has_no_section(tmp_path):
    assert baseline_views([ExperimentResults("toys", Results(tmp_path), (), (), ())]) == []
