"""Checkpoints: whole or not at all, as often as asked for, and of this fit."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pmbnn.inference.groups import INTERVAL, Checkpoint, Checkpoints, arrays_of, restored

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


# --- trees of arrays ----------------------------------------------------------------------


class Tree(NamedTuple):
    """As the state of fits: arrays of JAX and of NumPy, and nothing where there is none."""

    parameters: dict
    average: dict
    windows: np.ndarray


def a_tree(size=3, dtype="float32"):
    parameters = {"loc": jnp.arange(float(size), dtype=dtype), "rho": jnp.ones((0, size), dtype)}
    return Tree(parameters, {}, np.array(7))


def test_trees_come_back(checkpoint):
    """With their types and bits, of no rows too."""
    tree = a_tree()
    checkpoint.save_if_due(lambda: arrays_of(tree))
    found = restored(checkpoint, jax.tree.map(np.zeros_like, tree))
    assert jax.tree.structure(found) == jax.tree.structure(tree)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(tree), strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


def test_trees_of_another_form_start_again(checkpoint):
    """Of another group, of another model, of other numbers, or something else altogether."""
    checkpoint.save_if_due(lambda: arrays_of(a_tree()))
    for other in (
        a_tree(size=2),
        a_tree(dtype="float16"),
        a_tree()._replace(average={"loc": np.ones(3)}),
    ):
        assert restored(checkpoint, other) is None
    checkpoint.save_if_due(lambda: [np.zeros(2)])
    assert restored(checkpoint, a_tree()) is None


def test_nothing_is_restored_where_nothing_was_saved(checkpoint):
    assert restored(checkpoint, a_tree()) is None
