"""Checkpoints: whole or not at all, as often as asked for, and of this fit."""

import jax.numpy as jnp
import numpy as np
import pytest

from pmbnn.inference.checkpoint import (
    INTERVAL,
    Checkpoint,
    Checkpoints,
    ChunkState,
    arrays_of,
    restored,
)
from pmbnn.inference.loop import State

ARRAYS = [np.arange(3), np.array([[1.5, np.nan], [-np.inf, 5e-324]]), np.array(7, np.uint32)]


class Clock:
    """A clock that a test sets."""

    time = 100.0

    def __call__(self):
        return self.time


@pytest.fixture
def checkpoint(tmp_path):
    return Checkpoint(tmp_path / "a" / "fit.npz", 0.0)


def never():
    pytest.fail("arrays were made although nothing is due")


# --- the file -----------------------------------------------------------------------------


def test_round_trip(checkpoint):
    """In order, with their types and bits; the folder is made."""
    checkpoint.save_if_due(lambda: ARRAYS)
    for found, array in zip(checkpoint.load(), ARRAYS, strict=True):
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)


def test_the_last_one_counts(checkpoint):
    for i in range(12):
        checkpoint.save_if_due(lambda i=i: [np.array(i)] * 11)
    assert [int(a) for a in checkpoint.load()] == [11] * 11
    assert [p.name for p in checkpoint.path.parent.iterdir()] == ["fit.npz"]


def test_missing(checkpoint):
    assert checkpoint.load() is None


def test_each_fit_has_its_own(tmp_path):
    checkpoints = Checkpoints(tmp_path / "job", interval=0.0)
    for name in ("0", "16"):
        checkpoints.of(name).save_if_due(lambda name=name: [np.array(int(name))])
    assert [int(checkpoints.of(n).load()[0]) for n in ("0", "16")] == [0, 16]
    assert Checkpoints(tmp_path).interval == INTERVAL


@pytest.mark.parametrize("content", [b"", b"PK", b"not a checkpoint", b"\x93NUMPY\x01\x00"])
def test_unreadable(checkpoint, content):
    checkpoint.path.parent.mkdir()
    checkpoint.path.write_bytes(content)
    assert checkpoint.load() is None


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_cut_short(checkpoint, share):
    checkpoint.save_if_due(lambda: ARRAYS)
    whole = checkpoint.path.read_bytes()
    checkpoint.path.write_bytes(whole[: int(share * len(whole))])
    assert checkpoint.load() is None


def test_flipped_bits(checkpoint):
    """A checksum tells."""
    checkpoint.save_if_due(lambda: [np.arange(500)])
    content = bytearray(checkpoint.path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    checkpoint.path.write_bytes(content)
    assert checkpoint.load() is None


def test_flipped_bits_anywhere(checkpoint):
    """In the directory of the file, too: what is read is what was written, or nothing."""
    checkpoint.save_if_due(lambda: ARRAYS)
    whole = checkpoint.path.read_bytes()
    for place in range(len(whole)):
        flipped = whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]
        checkpoint.path.write_bytes(flipped)
        for found, array in zip(checkpoint.load() or [], ARRAYS, strict=False):
            np.testing.assert_array_equal(found, array)


def test_a_failed_save_leaves_the_last_one(checkpoint, monkeypatch):
    """As when the disk is full halfway."""
    checkpoint.save_if_due(lambda: ARRAYS)

    def fail(file, *arrays):
        file.write(b"half of it")
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="no space left"):
        checkpoint.save_if_due(lambda: [np.zeros(2)])
    np.testing.assert_array_equal(checkpoint.load()[0], ARRAYS[0])


# --- when ---------------------------------------------------------------------------------


def test_interval(tmp_path):
    """Counted from the start, and then from the last time."""
    clock = Clock()
    checkpoint, saved = Checkpoint(tmp_path / "fit.npz", 20.0, clock), []
    for clock.time in range(100, 191, 5):
        before = len(saved)
        checkpoint.save_if_due(lambda: saved.append(clock.time) or [np.array(clock.time)])
        assert len(saved) == before or int(checkpoint.load()[0]) == clock.time
    assert saved == [120, 140, 160, 180]


def test_a_late_save_shifts_the_next(tmp_path):
    clock = Clock()
    checkpoint, saved = Checkpoint(tmp_path / "fit.npz", 20.0, clock), []
    for clock.time in (135, 150, 154, 155):
        checkpoint.save_if_due(lambda: saved.append(clock.time) or [])
    assert saved == [135, 155]


def test_a_short_fit_leaves_none(tmp_path):
    clock = Clock()
    checkpoint = Checkpoint(tmp_path / "fit.npz", 20.0, clock)
    clock.time += 19.9
    checkpoint.save_if_due(never)
    checkpoint.save_if_due(never, at_end=True)
    assert not checkpoint.path.exists()


def test_a_long_fit_leaves_its_end(tmp_path):
    clock = Clock()
    checkpoint = Checkpoint(tmp_path / "fit.npz", 20.0, clock)
    clock.time += 20
    checkpoint.save_if_due(lambda: [np.array(1)])
    clock.time += 1
    checkpoint.save_if_due(never)
    checkpoint.save_if_due(lambda: [np.array(2)], at_end=True)
    assert int(checkpoint.load()[0]) == 2


def test_a_resumed_fit_leaves_its_end(tmp_path):
    """However little was left of it."""
    Checkpoint(tmp_path / "fit.npz", 0.0).save_if_due(lambda: [np.array(1)])
    resumed = Checkpoint(tmp_path / "fit.npz", 20.0, Clock())
    resumed.save_if_due(lambda: [np.array(2)], at_end=True)
    assert int(resumed.load()[0]) == 2


# --- runs ---------------------------------------------------------------------------------


def a_run(replicas=2, size=3, windows=2):
    """A run whose every array holds other numbers."""
    shape = (replicas, size)
    state = State(
        {"loc": jnp.arange(6.0)[: replicas * size].reshape(shape), "rho": jnp.ones(shape)},
        {},
        (jnp.full(shape, 2.0),),
        jnp.full(replicas, 8, jnp.int32),
    )
    sums = [np.full((replicas, 2), i + 0.5) for i in range(windows)]
    return ChunkState(
        state, sums, [4 * (i + 1) for i in range(windows)], np.array([0, 1])[:replicas]
    )


def start_of(run):
    return run._replace(sums=[], ends=[], stopped=np.zeros_like(run.stopped))


def test_runs_come_back(checkpoint):
    run = a_run()
    checkpoint.save_if_due(lambda: arrays_of(run))
    found = restored(checkpoint, start_of(run))
    assert found.done == run.done == 8
    assert found.ends == run.ends
    np.testing.assert_array_equal(found.stopped, run.stopped)
    np.testing.assert_array_equal(np.stack(found.sums), np.stack(run.sums))
    for a, b in zip(arrays_of(found)[3:], arrays_of(run)[3:], strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


def test_runs_of_other_shapes_start_again(checkpoint):
    """Of another group, of another model, or something else altogether."""
    checkpoint.save_if_due(lambda: arrays_of(a_run()))
    for other in (a_run(replicas=1), a_run(size=2)):
        start = start_of(other)
        assert restored(checkpoint, start) is None
    checkpoint.save_if_due(lambda: [np.zeros(2)])
    start = start_of(a_run())
    assert restored(checkpoint, start) is None


def test_nothing_is_restored_where_nothing_was_saved(checkpoint):
    start = start_of(a_run())
    assert restored(checkpoint, start) is None
