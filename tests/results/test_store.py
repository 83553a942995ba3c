"""The results folder: whole cells or none, one-line errors, and files that read back."""

import csv
import errno
import hashlib
import json
import math
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from pmbnn.core.files import TEMPORARY
from pmbnn.results.integrity import set_aside_broken
from pmbnn.results.present import StorageError
from pmbnn.results.record import CellRecord
from pmbnn.results.store import Results, ResultsError, trace_writer


@pytest.fixture
def results(tmp_path):
    made = Results(tmp_path / "deep" / "results")
    made.prepare()
    return made


def cell(seconds=0.0, name="cell", **results):
    """A record that says little; `seconds` tells two of one name apart."""
    settings = {"prior": {"kind": "normal"}}
    return CellRecord(
        sweep="toy",
        name=name,
        status="converged",
        settings=settings,
        results=results,
        seconds=seconds,
    )


def text_writer(text):
    return lambda path: path.write_text(text)


def contents(folder):
    """Names of a folder's entries, hidden ones too."""
    return sorted(os.listdir(folder))


# Tables


def test_a_table_is_removed_if_it_is_there(results):
    table = pd.DataFrame({"x": [1]})
    results.write_table("a.csv", table)
    assert (results.folder / "a.csv").read_text() == "x\n1\n"
    for _ in range(2):
        results.remove_table("a.csv")
        assert contents(results.folder) == ["cells", "figures"]


# Cells


def test_prepare_makes_the_folders_and_nothing_else(results):
    assert contents(results.folder) == ["cells", "figures"]
    assert contents(results.cells) == contents(results.figures) == []


def test_a_saved_cell_is_there_whole(results):
    assert not results.is_finished("cell")
    stored = results.save_cell(cell(a=0.5), {"trace.nc": text_writer("trace")})
    assert results.is_finished("cell")
    assert contents(results.cells) == ["cell"]
    assert contents(results.cells / "cell") == ["metrics.json", "trace.nc"]
    assert results.load_record("cell") == stored
    assert stored.results == {"a": 0.5}
    assert stored.files["trace.nc"].size == 5
    assert stored.files["trace.nc"].sha256 == hashlib.sha256(b"trace").hexdigest()


def test_others_may_read_a_cell(results):
    """The temporary folder is for its owner alone; the cell must not stay so."""
    results.save_cell(cell(), {})
    assert (results.cells / "cell").stat().st_mode & 0o777 == 0o755


def test_a_writer_that_raises_leaves_no_cell(results):
    def fail(path):
        path.write_text("half")
        raise OSError("disk full")

    with pytest.raises(StorageError, match="cells/cell` cannot be written: disk full"):
        results.save_cell(cell(), {"trace.nc": fail})
    assert not results.is_finished("cell")
    assert contents(results.cells) == []


def test_a_writer_that_raises_leaves_the_old_cell_as_it_was(results):
    results.save_cell(cell(1), {})
    with pytest.raises(ZeroDivisionError):
        results.save_cell(cell(2), {"trace.nc": lambda _: 1 / 0})
    assert contents(results.cells) == ["cell"]
    assert results.load_record("cell").seconds == 1


def test_a_cell_is_replaced_whole(results):
    results.save_cell(cell(1), {"old": text_writer("")})
    results.save_cell(cell(2), {})
    assert results.load_record("cell").seconds == 2
    assert contents(results.cells / "cell") == ["metrics.json"]
    assert contents(results.cells) == ["cell"]


def test_a_removed_cell_is_forgotten(results):
    results.save_cell(cell(), {})
    results.remove("cell")
    results.remove("never was")
    assert not results.is_finished("cell")
    assert contents(results.cells) == []


def test_left_overs_of_a_killed_run_are_cleared_and_nothing_else(results):
    results.save_cell(cell(1), {})
    results.write_text("metrics.csv", "kept")
    half = results.cells / f"{TEMPORARY}x1"
    half.mkdir()
    (half / "metrics.json").write_text("{")
    (results.folder / f"{TEMPORARY}summary.csv").write_text("half")
    results.prepare()
    assert contents(results.cells) == ["cell"]
    assert contents(results.folder) == ["cells", "figures", "metrics.csv"]
    assert results.load_record("cell").seconds == 1


# Checkpoints


def test_checkpoints_of_a_job_are_forgotten_and_those_of_others_kept(results):
    assert not results.checkpoints("one").exists(), "naming a folder makes none"
    for job in ("one", "two"):
        for stage in ("choose", "fit"):
            (results.checkpoints(job) / stage).mkdir(parents=True)
            (results.checkpoints(job) / stage / "0.npz").write_bytes(b"kept")
    results.remove_checkpoints("one")
    assert contents(results.folder / "checkpoints") == ["two"]
    assert contents(results.checkpoints("two")) == ["choose", "fit"]
    results.remove_checkpoints("one")
    results.remove_checkpoints("two")
    assert contents(results.folder) == ["cells", "figures"], "the empty folder goes too"


def test_all_checkpoints_are_forgotten(results):
    results.remove_checkpoints()
    for job in ("one", "two"):
        results.checkpoints(job).mkdir(parents=True)
        (results.checkpoints(job) / "0.npz").write_bytes(b"kept")
    results.save_cell(cell(), {})
    results.remove_checkpoints()
    assert contents(results.folder) == ["cells", "figures"]
    assert results.is_finished("cell")


def test_checkpoints_outlive_the_start_of_the_next_run(results):
    """An interrupted fit goes on from them."""
    results.checkpoints("one").mkdir(parents=True)
    (results.checkpoints("one") / "0.npz").write_bytes(b"kept")
    results.prepare()
    assert contents(results.checkpoints("one")) == ["0.npz"]


# Faults of the system


def refuse(monkeypatch, name, number):
    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(f"pmbnn.results.store.{name}", fail)


@pytest.mark.parametrize("name", ["os.replace", "os.fsync", "tempfile.mkdtemp"])
def test_a_refused_system_call_leaves_no_half_cell(results, monkeypatch, name):
    with monkeypatch.context() as refused:
        refuse(refused, name, errno.EIO)
        with pytest.raises(StorageError, match="Input/output error; fix this"):
            results.save_cell(cell(), {"trace.nc": text_writer("")})
    assert contents(results.cells) == []


@pytest.mark.parametrize("name", ["os.replace", "os.fsync"])
def test_a_refused_system_call_leaves_the_file_that_was_there(results, monkeypatch, name):
    results.write_text("file", "old")
    with monkeypatch.context() as refused:
        refuse(refused, name, errno.ENOSPC)
        with pytest.raises(StorageError, match="file` cannot be written: No space left on device"):
            results.write_text("file", "new")
    assert contents(results.folder) == ["cells", "figures", "file"]
    assert (results.folder / "file").read_text() == "old"


def test_a_cell_that_cannot_be_read_just_now_is_not_set_aside(results, monkeypatch):
    results.save_cell(cell(), {})
    with monkeypatch.context() as refused:

        def fail(*_, **__):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        refused.setattr(Path, "read_text", fail)
        with pytest.raises(StorageError, match="cannot be read: Too many open files; fix"):
            set_aside_broken(results)
    assert contents(results.cells) == ["cell"]
    assert set_aside_broken(results) == []


# Folders that cannot be


@pytest.mark.parametrize("below", ["", "results", "deep/results"])
def test_a_folder_that_is_a_file_or_lies_below_one(tmp_path, below):
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(
        ResultsError, match=r"The results folder `.*` cannot be written: .*\.$"
    ) as e:
        Results(file / below).prepare()
    assert len(str(e.value).splitlines()) == 1
    assert str(file / below) in str(e.value)
    assert file.read_text() == "mine"


@pytest.mark.parametrize("part", ["cells", "figures"])
def test_a_file_in_the_place_of_a_part(tmp_path, part):
    (tmp_path / part).write_text("mine")
    with pytest.raises(ResultsError, match="cannot be written: File exists"):
        Results(tmp_path).prepare()
    assert (tmp_path / part).read_text() == "mine"


# Files


def test_numbers_that_are_not_finite_become_null(results):
    content = {
        "a": math.nan,
        "b": [1.5, math.inf, {"c": -math.inf}],
        "d": (1, "NaN", None, True),
        "e": float(np.float32("nan")),
    }
    results.write_json("some.json", content)
    text = (results.folder / "some.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {
        "a": None,
        "b": [1.5, None, {"c": None}],
        "d": [1, "NaN", None, True],
        "e": None,
    }
    assert content["b"][1] == math.inf, "what was handed in is not changed"


def test_json_keeps_every_digit(results):
    numbers = dict(zip("abcde", [0.1, 1 / 3, 1e-300, -5e17, np.nextafter(1, 2)], strict=True))
    results.save_cell(cell(**numbers), {})
    assert results.load_record("cell").results == numbers


def test_a_table_reads_back(results):
    rows = [
        {"name": 'a, quoted "words"\nover lines', "x": 1 / 3, "n": 2},
        {"name": "b", "x": math.nan, "extra": True},
        {"name": "ä", "x": None, "n": 10**12, "extra": math.inf},
    ]
    results.write_table("table.csv", pd.DataFrame(rows, dtype=object))
    with (results.folder / "table.csv").open(encoding="utf-8", newline="") as file:
        read = list(csv.DictReader(file))
    assert list(read[0]) == ["name", "x", "n", "extra"], "in order of first appearance"
    assert [row["name"] for row in read] == [row["name"] for row in rows]
    assert float(read[0]["x"]) == 1 / 3
    assert [row["x"] for row in read[1:]] == ["", ""]
    assert [row["n"] for row in read] == ["2", "", str(10**12)]
    assert [row["extra"] for row in read] == ["", "True", "inf"]


def test_files_are_replaced_whole(results):
    results.write_text("file", "long text")
    results.write_text("file", "x")
    assert (results.folder / "file").read_text() == "x"
    assert contents(results.folder) == ["cells", "figures", "file"]


# Traces


@pytest.fixture
def trace():
    rng = np.random.default_rng(0)
    posterior = xr.Dataset(
        {
            "weight_1": (("chain", "draw", "feature"), rng.normal(size=(2, 9, 3)).astype("f4")),
            "layer_1_scale": (("chain", "draw"), rng.normal(size=(2, 9))),
        },
        coords={"chain": [0, 2], "draw": range(9), "feature": ["x1", "x2", "x3"]},
    )
    fit = xr.Dataset(
        # One array has the name of a group.
        {"elbo": (("chain", "window"), [[1.0, np.nan]]), "best": ((), 1), "pixels": ((), 2.0)},
        attrs={"status": '["converged"]', "best": -1},
    )
    pixels = xr.Dataset({"image": (("row",), np.arange(5, dtype="u1"))})
    empty = xr.Dataset(attrs={"fingerprint": "abc"})
    groups = {"posterior": posterior, "fit": fit, "pixels": pixels, "constant_data": empty}
    return xr.DataTree.from_dict({f"/{name}": group for name, group in groups.items()})


def test_a_trace_reads_back(results, trace):
    results.save_cell(cell(), {"trace.nc": trace_writer(trace)})
    read = results.load_trace("cell")
    assert set(read.children) == set(trace.children)
    for name in trace.children:
        xr.testing.assert_identical(read[name].to_dataset(), trace[name].to_dataset())
        for variable, array in trace[name].data_vars.items():
            assert read[name][variable].dtype == array.dtype


def test_a_large_trace_is_written_where_there_is_room(results, trace, monkeypatch):
    monkeypatch.setattr("pmbnn.prediction.trace_file.MOST_IN_MEMORY", 0)
    results.save_cell(cell(), {"trace.nc": trace_writer(trace)})
    assert set(results.load_trace("cell").children) == set(trace.children)
    free = shutil.disk_usage(results.folder)._replace(free=trace.nbytes - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    with pytest.raises(StorageError, match="No space left on device"):
        results.save_cell(cell(name="other"), {"trace.nc": trace_writer(trace)})
    assert contents(results.cells) == ["cell"]


def test_a_trace_is_in_memory_once_loaded(results, trace):
    results.save_cell(cell(), {"trace.nc": trace_writer(trace)})
    read = results.load_trace("cell")
    results.remove("cell")
    for name in trace.children:
        xr.testing.assert_identical(read[name].to_dataset(), trace[name].to_dataset())


def test_a_trace_is_compressed(tmp_path):
    flat = xr.Dataset({"zeros": (("a",), np.zeros(100_000))})
    trace_writer(xr.DataTree.from_dict({"/group": flat}))(tmp_path / "trace.nc")
    assert (tmp_path / "trace.nc").stat().st_size < 50_000


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no full disk")
def test_a_trace_on_a_full_disk_is_an_error_and_no_death(trace):
    """HDF5 would end the process."""
    with pytest.raises(OSError, match="No space left"):
        trace_writer(trace)(Path("/dev/full"))


def test_a_failed_cell_has_no_trace(results):
    results.save_cell(cell(), {})
    with pytest.raises(FileNotFoundError):
        results.load_trace("cell")
