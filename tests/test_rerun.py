"""The script that reruns an experiment of `results/reference` reports which numbers moved."""

from pathlib import Path

import pandas as pd
import pytest

STORED = pd.DataFrame(
    {
        "sweep": ["a", "a", "b"],
        "name": ["cell-1", "cell-2", "cell-3"],
        "prior.kind": ["normal", "laplace", "normal"],
        "inference.epochs": [40.0, 40.0, None],
        "band_at_-1.5": [1.0, 2.0, 3.0],
        "nll": [0.5, 0.6, 0.7],
        "nll_se": [0.03, 0.03, None],
        "seconds": [1.0, 2.0, 3.0],
    }
)


@pytest.fixture
def rerun(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    import rerun

    return rerun


def reported(rerun, new, folder, capsys):
    for name, table in {"stored": STORED, "new": new}.items():
        table.to_csv(folder / f"{name}.csv", index=False)
    return rerun.report(folder / "stored.csv", folder / "new.csv"), capsys.readouterr().out


def test_equal_numbers_in_another_order(rerun, tmp_path, capsys):
    new = STORED.assign(name="other", seconds=9.0, more=1).iloc[::-1]
    moved, printed = reported(rerun, new, tmp_path, capsys)
    assert moved == 0
    assert "6 numbers, 6 equal to the last bit" in printed


def test_a_number_moved_beyond_two_standard_errors(rerun, tmp_path, capsys):
    new = STORED.assign(nll=[0.55, 0.5, 0.77])
    moved, printed = reported(rerun, new, tmp_path, capsys)
    assert "1 within two standard errors, 1 moved, 1 differ and have no standard" in printed
    assert moved == 1 and "a laplace: nll 0.6 -> 0.5 (± 0.042)" in printed
    assert "nll: largest relative difference 0.1" in printed


def test_rows_that_are_missing(rerun, tmp_path, capsys):
    moved, printed = reported(rerun, STORED.head(2), tmp_path, capsys)
    assert moved and "cannot be matched by sweep, prior.kind" in printed


def test_several_seeds_of_a_row_are_averaged(rerun, tmp_path, capsys):
    one = STORED.drop(columns="nll_se")
    one.to_csv(tmp_path / "stored.csv", index=False)
    seeds = [one.assign(nll=one["nll"] + d, name=f"seed {d}") for d in (0.1, 0.2, 0.3)]
    pd.concat(seeds).to_csv(tmp_path / "new.csv", index=False)
    found = rerun.compare(*(pd.read_csv(tmp_path / f"{n}.csv") for n in ("stored", "new")))
    nll = found[found["column"] == "nll"]
    assert nll["new"].to_list() == pytest.approx([0.7, 0.8, 0.9])
    assert nll["error"].isna().all(), "a stored number without an error has an unknown one"
