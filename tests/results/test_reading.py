"""Parts of stored traces against what xarray reads of the whole."""

import errno

import numpy as np
import pytest
import xarray as xr

from pmbnn.results.reading import load_arrays, load_groups, stored_variables
from pmbnn.results.store import Results, trace_writer


@pytest.fixture
def results(tmp_path):
    rng = np.random.default_rng(0)
    images = xr.Dataset(
        # An array may have the name of one of its dims, whose labels are then nowhere.
        {"image": (("image", "row", "column"), rng.integers(0, 9, (5, 2, 3), np.uint8))},
        attrs={"draws_of": "a guide", "best": 2, "gap": 0.5, "of": ["a", "b"], "ends": [0.0, 1.0]},
    )
    predictions = xr.Dataset(
        {"probability": (("x1", "output"), rng.random((4, 2)).astype("f4"))}
        | {"scalar": ((), 1.5), "missing": ("x1", [0.5, np.nan, 1, 2])},
        coords={"x1": np.linspace(0, 1, 4), "output": ["zero", "one"]},
    )
    found = Results(tmp_path)
    (found.cells / "cell").mkdir(parents=True)
    tree = xr.DataTree.from_dict({"/images": images, "/predictions": predictions})
    trace_writer(tree)(found.cells / "cell" / "trace.nc")
    return found


def test_groups_are_as_xarray_reads_them(results):
    whole = results.load_trace("cell")
    xr.testing.assert_identical(load_groups(results, "cell", ["images", "predictions"]), whole)
    alone = load_groups(results, "cell", ["predictions", "elsewhere"])
    assert list(alone.children) == ["predictions"]
    xr.testing.assert_identical(alone["predictions"], whole["predictions"])


def test_arrays_come_with_the_labels_of_their_dims(results):
    found = load_arrays(results, "cell", {"predictions": "prob.*", "images": "nothing"})
    expected = results.load_trace("cell")["predictions"].to_dataset()[["probability"]]
    xr.testing.assert_identical(found["predictions"].to_dataset(), expected)
    assert not found["images"].variables


def test_dims_without_labels_are_no_variables(results):
    whole = results.load_trace("cell")
    expected = {name: frozenset(whole[name].variables) for name in whole.children}
    assert stored_variables(results, "cell") == expected
    assert "row" not in expected["images"]


READERS = {
    "groups": lambda results: load_groups(results, "cell", ["images", "predictions"]),
    "names": lambda results: stored_variables(results, "cell"),
    "whole": lambda results: results.load_trace("cell"),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_trace_that_cannot_be_read_is_an_error_of_input_that_names_it(results, read):
    """HDF5 tells failing disks and damaged files by numbers of its own, which mean nothing here."""
    path = results.cells / "cell" / "trace.nc"
    path.write_bytes(path.read_bytes()[:8] + bytes(100))
    with pytest.raises(OSError, match="`pmbnn verify` tells whether it is damaged") as raised:
        read(results)
    assert raised.value.errno == errno.EIO
    assert raised.value.filename == str(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        read(results)


def test_so_is_one_of_which_an_array_cannot_be_read(results):
    """It opens; what is compressed in it is not what was written."""
    path = results.cells / "cell" / "trace.nc"
    values = np.random.default_rng(0).random(20_000)
    tree = xr.DataTree.from_dict({"/predictions": xr.Dataset({"mean": ("row", values)})})
    trace_writer(tree)(path)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 2000] = bytes(2000)
    path.write_bytes(bytes(content))
    assert stored_variables(results, "cell") == {"predictions": {"mean"}}
    for read in (results.load_trace, lambda name: load_groups(results, name, ["predictions"])):
        with pytest.raises(OSError, match="pmbnn verify") as raised:
            read("cell")
        assert raised.value.errno == errno.EIO
