"""What lies in a results folder may come from anyone: nothing too large is read, nothing is run."""

import pickle
import struct
import zlib

import numpy as np
import pytest
import xarray as xr
from PIL import Image

from pmbnn.core import machine
from pmbnn.data import DataError
from pmbnn.data.base import read_archive
from pmbnn.inference.groups import Checkpoint
from pmbnn.results import present
from pmbnn.results.integrity import verify
from pmbnn.results.reading import load_groups
from pmbnn.results.record import CellRecord
from pmbnn.results.store import Results, ResultsError, trace_writer

RAN = []


class Trap:
    """What says so when it is unpickled."""

    def __reduce__(self):
        return RAN.append, ("unpickled",)


@pytest.fixture
def results(tmp_path):
    made = Results(tmp_path / "results")
    made.prepare()
    zeros = xr.Dataset({"zeros": ("a", np.zeros(100_000))})
    record = CellRecord(sweep="s", name="cell", status="converged", settings={})
    trace = xr.DataTree.from_dict({"/fit": zeros, "/other": xr.Dataset()})
    made.save_cell(record, {"trace.nc": trace_writer(trace)})
    return made


def test_a_record_that_no_sweep_writes_is_not_read(results, monkeypatch):
    file = results.cells / "cell" / "metrics.json"
    monkeypatch.setattr(present, "MOST_JSON", file.stat().st_size)
    assert results.load_record("cell")
    file.write_text(file.read_text() + " ")
    with pytest.raises(ResultsError, match="it has .* bytes, at most .* are read"):
        results.load_record("cell")


def test_a_bottomless_record_is_one_line(results):
    (results.cells / "cell" / "metrics.json").write_text("[" * 200_000)
    with pytest.raises(ResultsError, match="cannot be read"):
        results.load_record("cell")
    (problem,) = verify(results.folder)
    assert len(str(problem).splitlines()) == 1


@pytest.mark.parametrize(
    "read", [lambda r: r.load_trace("cell"), lambda r: load_groups(r, "cell", ["fit"])]
)
def test_arrays_that_memory_does_not_hold_are_not_read(results, monkeypatch, read):
    """The file is a hundredth of them."""
    assert (results.cells / "cell" / "trace.nc").stat().st_size < 50_000
    monkeypatch.setattr(machine, "total_memory", lambda: 800_000.0)
    assert read(results)
    monkeypatch.setattr(machine, "total_memory", lambda: 799_999.0)
    with pytest.raises(ResultsError, match=r"trace\.nc` holds arrays of .* GB: must be at most"):
        read(results)


def giant_png():
    """A few bytes that would be an image of 10^10 pixels."""

    def chunk(kind, data):
        return (
            struct.pack("!I", len(data)) + kind + data + struct.pack("!I", zlib.crc32(kind + data))
        )

    header = struct.pack("!IIBBBBB", 100_000, 100_000, 8, 0, 0, 0, 0)
    packed = zlib.compress(bytes(1000))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")
    )


def test_a_giant_figure_is_not_decoded(results):
    from pmbnn.report.images import figure_image

    file = results.figures / "giant.png"
    file.write_bytes(giant_png())
    with pytest.raises(ResultsError, match=r"giant\.png` cannot be read"):
        figure_image(file)
    (problem,) = verify(results.folder)
    assert problem.path == file
    assert Image.MAX_IMAGE_PIXELS is not None, "Pillow's own limit is as it was"


def test_nothing_is_unpickled(tmp_path):
    file = tmp_path / "arrays.npz"
    np.savez(file, x=np.array([Trap()], dtype=object), arr_0=np.array([Trap()], dtype=object))
    with pytest.raises(DataError, match="holds Python objects, which are never unpickled"):
        read_archive(file, "arrays.npz", {"x": "x"})
    assert Checkpoint(file, 1.0).load() is None
    file.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(DataError, match="it is no archive"):
        read_archive(file, "arrays.npz", {"x": "x"})
    assert Checkpoint(file, 1.0).load() is None
    assert RAN == []
