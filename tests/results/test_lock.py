"""One writer a results folder, told apart by process; what a killed one leaves is taken over."""

import os
import subprocess
import sys

import pytest

from pmbnn.results.store import LOCK, WRITER, FolderBusyError, ResultsError, writing

HOLD = """
import select, sys
from pathlib import Path
from pmbnn.results.store import writing
with writing(Path(sys.argv[1])):
    print("held", flush=True)
    select.select([sys.stdin], [], [], 60)  # who waits in vain is found out, not left waiting
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the folder until it is told to let go."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_the_error_of_a_second_writer_names_the_first(tmp_path, holder):
    with (
        pytest.raises(FolderBusyError, match=rf"by process {holder.pid} on .* since 20.*`--wait`"),
        writing(tmp_path),
    ):
        pytest.fail("two writers")


def test_a_second_writer_can_wait(tmp_path, holder):
    holder.stdin.write("\n")
    holder.stdin.flush()
    with writing(tmp_path, wait=True):
        holder.wait(timeout=30)
    assert holder.returncode == 0


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path, holder):
    holder.kill()
    holder.wait(timeout=30)
    assert (tmp_path / WRITER).is_file(), "it could not clear up"
    with writing(tmp_path):
        assert f'"process": {os.getpid()}' in (tmp_path / WRITER).read_text()
    assert not (tmp_path / WRITER).exists()


def test_the_folder_is_free_again_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), writing(tmp_path):
        _ = 1 / 0
    with writing(tmp_path):
        assert (tmp_path / LOCK).exists()


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ResultsError, match="cannot be written"), writing(tmp_path / "file"):
        pytest.fail("held")


@pytest.mark.parametrize("name", ["experiment.yaml", "index.html"])
def test_files_of_others_are_not_written_over(tmp_path, name):
    """As those of a working directory that is named as the results folder."""
    (tmp_path / name).write_text("mine")
    rule = f"must be new or one of results, and a file that no sweep wrote would be lost: .*{name}"
    with pytest.raises(ResultsError, match=rule), writing(tmp_path):
        pytest.fail("it would be written over")
    assert os.listdir(tmp_path) == [name]
    (tmp_path / "cells").mkdir()
    with writing(tmp_path):
        pass
