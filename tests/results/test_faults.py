"""Errors of the system: one line with the file and the error, and no cell to blame."""

import errno
import os
import pickle

import pytest

from pmbnn.results.present import (
    SYSTEM_ERRORS,
    ResultsError,
    StorageError,
    fault_of,
    named_faults,
    storing,
    unwritable,
)


def os_error(number, *file):
    return OSError(number, os.strerror(number), *file)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EMFILE, errno.EPIPE])
def test_one_line_names_file_and_error(tmp_path, number):
    with pytest.raises(StorageError) as caught, storing(tmp_path / "x"):
        raise os_error(number)
    assert str(caught.value) == (
        f"`{tmp_path / 'x'}` cannot be written: {os.strerror(number)}; fix this and run the same "
        "command again, finished work is kept."
    )
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_other_errors_are_left_alone(tmp_path):
    with pytest.raises(ZeroDivisionError), storing(tmp_path):
        _ = 1 / 0
    with pytest.raises(FileNotFoundError), named_faults():
        (tmp_path / "x").read_text()


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENOTDIR, ResultsError), (errno.EEXIST, ResultsError), (errno.EACCES, StorageError)],
)
def test_what_cannot_be_a_folder_is_bad_input(tmp_path, number, kind):
    assert type(unwritable(tmp_path, os_error(number))) is kind


@pytest.mark.parametrize("number", SYSTEM_ERRORS)
def test_a_fault_that_nothing_named_is_named(number):
    with pytest.raises(StorageError, match="`there` cannot be opened: "), named_faults():
        raise os_error(number, "there")
    with pytest.raises(StorageError, match=os.strerror(number)), named_faults():
        raise os_error(number)


def caused(error, cause, hidden=False):
    try:
        try:
            raise cause
        except OSError as first:
            raise error from (None if hidden else first)
    except ValueError as found:
        return found


def test_a_full_disk_is_found_behind_an_error(tmp_path):
    full = os_error(errno.ENOSPC)
    assert "No space left" in str(fault_of(caused(ValueError("data"), full), tmp_path))
    assert fault_of(caused(ValueError("data"), full, hidden=True), tmp_path) is None
    known = StorageError("known")
    assert fault_of(known, tmp_path) is known


def test_missing_rights_are_the_systems_in_the_results_folder_alone(tmp_path):
    own = os_error(errno.EACCES, str(tmp_path / "checkpoints" / "0.npz"))
    assert "0.npz` cannot be written or read: Permission denied" in str(fault_of(own, tmp_path))
    data = os_error(errno.EACCES, str(tmp_path / "data.csv"))
    assert fault_of(data, tmp_path / "results") is None
    assert fault_of(ValueError("no fit"), tmp_path) is None
