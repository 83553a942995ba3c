"""Log scores of test rows, stored and predicted again, and the numbers of these rows."""

import numpy as np
import pandas as pd
import pytest

from pmbnn.compare.rows import why_not_random
from pmbnn.data.arrays import fit_standardisation
from pmbnn.experiment.load import load_experiment
from pmbnn.experiment.plan import jobs
from pmbnn.fitting.job import run_job
from pmbnn.fitting.tasks import JobTask
from pmbnn.results import row_scores
from pmbnn.results.loading import load_results
from pmbnn.results.present import ResultsError
from pmbnn.results.row_scores import SplitRows, log_scores, row_numbers, rows_of_test
from pmbnn.sweep.cells import prepare, write_header

EXPERIMENT = """
name: toy
sweeps:
  - name: toy
    dataset: {{kind: table, file: rows.csv, target: {target}, without: [[{without}]],
               missing: mean, seed: [0, 1]}}
    network: {{kind: dense, hidden: [[3]]}}
    prior: normal
    hyperprior: {{kind: fixed, scale: 1}}
    likelihood: {likelihood}
    inference: {{steps: 30, restarts: 2, validation: 0}}
    predict: {{draws: 20, trace_draws: 2, mixture: equal}}
"""

NORMAL = "{kind: normal, sd: half_normal}"
KINDS = {
    "numbers": ("y", "label, other", NORMAL),
    "targets": ("[[y, other]]", "label", NORMAL),
    "classes": ("label", "y, other", "categorical"),
}


def table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(40, 9, (50, 3)), columns=["a", "b", "c"])
    frame["y"] = frame["a"] + rng.normal(size=50)
    frame["other"] = 7 * frame["b"] + rng.normal(size=50)
    frame["label"] = np.where(frame["a"] > 40, "high", "low")
    frame.loc[::4, "b"] = np.nan
    return frame


@pytest.fixture(scope="module", params=KINDS)
def cells(request, tmp_path_factory):
    """Cells of one experiment on two splits, fitted in this process."""
    folder = tmp_path_factory.mktemp(request.param)
    table().to_csv(folder / "rows.csv", index=False)
    target, without, likelihood = KINDS[request.param]
    file = folder / "toy.yaml"
    file.write_text(EXPERIMENT.format(target=target, without=without, likelihood=likelihood))
    run = prepare(load_experiment(file), folder / "out")
    write_header(run)
    for job in jobs(list(run.tasks)):
        task = JobTask(job.group, job.width, tuple(run.tasks[cell] for cell in job.wanted))
        run_job(task, run.results.folder, lambda _: None)
    results = load_results(folder / "out")
    return [results.cell(dataset_seed=seed) for seed in (0, 1)]


def test_their_mean_is_minus_the_stored_nll(cells):
    for cell in cells:
        scores = log_scores(cell)
        assert scores.shape == (10,)
        assert -scores.mean() == pytest.approx(cell.record.results["nll"], rel=1e-6)


def test_cells_stored_without_them_have_the_same_again(cells, monkeypatch):
    stored = log_scores(cells[0])
    pattern = row_scores.WANTED["test_predictions"].replace("log_score|", "")
    monkeypatch.setitem(row_scores.WANTED, "test_predictions", pattern)
    monkeypatch.setattr(row_scores, "ROUNDING", 1e-5)
    np.testing.assert_allclose(log_scores(cells[0]), stored, rtol=1e-4)


def test_a_cell_that_predicts_otherwise_is_refused(cells, monkeypatch):
    results = cells[0].record.results
    monkeypatch.setitem(results, "nll", results["nll"] + 0.01)
    with pytest.raises(ResultsError, match=f"cell `{cells[0].record.name}` does not predict"):
        log_scores(cells[0])


def test_rows_of_two_splits_are_those_of_the_table(cells):
    """Though they come back with rounding errors, and with another mean where one is missing."""
    splits = [rows_of_test(cell) for cell in cells]
    frame = table()[["a", "c"]].to_numpy()
    distance = [np.abs(split.x[:, [0, 2]][:, None] - frame).sum(axis=2) for split in splits]
    truth = [one.argmin(axis=1) for one in distance]
    assert max(one.min(axis=1).max() for one in distance) < 1e-12
    assert len(np.intersect1d(*truth)) > 0
    numbers = np.concatenate(row_numbers(splits))
    pairs = set(zip(numbers.tolist(), np.concatenate(truth).tolist(), strict=True))
    assert len(pairs) == len(np.unique(numbers)) == len(np.unique(np.concatenate(truth)))


def test_another_kind_of_predictions_is_refused(made, tmp_path):
    record = made.record(predictive="counts", nll=1.0)
    trace = made.both(made.plane_trace(points=5, resolution=(3, 3)))
    trace["constant_data"] = trace["predictions"].copy()
    made.store(tmp_path, [(record, trace)])
    with pytest.raises(ResultsError, match=f"cell `{record.name}` has no log scores .* `counts`"):
        log_scores(load_results(tmp_path).cell())


# Numbers of rows


def test_rows_are_known_by_inputs_and_targets():
    x = np.array([[1.0, 2.0], [1.0, 3.0], [np.nan, 3.0], [1.0, 2.0], [1.0, 2.0]])
    rows = SplitRows(x, np.array([0, 0, 0, 1, 0]))
    first, second = row_numbers([rows, SplitRows(x[::-1], rows.target[::-1])])
    assert len(np.unique(first)) == 4 and first[0] == first[4]
    np.testing.assert_array_equal(second, first[::-1])


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_rows_are_the_same_after_other_standardisations(dtype):
    rng = np.random.default_rng(0)
    x = np.round(rng.normal(1e3, 1, (200, 2)), 2)
    rows = []
    for _ in range(5):
        standardisation = fit_standardisation(x[rng.permutation(200)[:100]], "feature")
        again = standardisation.undo(standardisation(x).astype(dtype)).astype(dtype)
        rows.append(SplitRows(again, np.zeros(200)))
    expected = np.unique(x, axis=0, return_inverse=True)[1].ravel()
    for numbers in row_numbers(rows):
        np.testing.assert_array_equal(numbers, expected)


def test_inputs_far_smaller_than_the_mean_are_the_same_in_all_splits():
    """Pixels of a margin: all inputs are less one mean, whose rounding errors come back."""
    rng = np.random.default_rng(0)
    x = np.concatenate([np.zeros((300, 2)), rng.integers(0, 256, (300, 3)) / 255], axis=1)
    rows = []
    for _ in range(5):
        standardisation = fit_standardisation(x[rng.permutation(300)[:100]], "global")
        again = standardisation.undo(standardisation(x).astype("f4")).astype("f4")
        rows.append(SplitRows(again, np.zeros(300), standardisation.mean))
    assert len({split.x[0, 0] for split in rows}) > 1
    first, *others = row_numbers(rows)
    assert len(np.unique(first)) == 300
    for numbers in others:
        np.testing.assert_array_equal(numbers, first)
    drawn = {seed: rng.permutation(300)[:100] for seed in range(5)}
    splits = {s: SplitRows(rows[s].x[i], np.zeros(100), rows[s].mean) for s, i in drawn.items()}
    assert why_not_random(splits, drawn) == ""


def test_splits_with_different_inputs_are_refused():
    splits = [SplitRows(np.zeros((2, width)), np.zeros(2)) for width in (2, 3)]
    with pytest.raises(ValueError, match=r"same inputs, got \[2, 3\]"):
        row_numbers(splits)
