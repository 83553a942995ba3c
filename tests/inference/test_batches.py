"""Minibatches see every row equally often, and the same rows wherever a fit is cut."""

import numpy as np
import pytest

from pmbnn.inference.batches import batch_indices

KEY = np.array([1, 2, 3, 4], np.uint32)


@pytest.mark.parametrize(("rows", "batch"), [(60, 20), (60, 25), (7, 7), (10, 3), (5, 1)])
def test_every_row_equally_often(rows, batch):
    """After four passes' worth of rows, each was seen four times; before, never five."""
    seen = batch_indices(KEY, rows, batch, 0, 4 * rows)
    assert seen.shape == (4 * rows, batch)
    np.testing.assert_array_equal(np.bincount(seen.ravel(), minlength=rows), 4 * batch)
    for one_pass in seen.ravel()[: 4 * rows].reshape(4, rows):
        np.testing.assert_array_equal(np.sort(one_pass), np.arange(rows))


@pytest.mark.parametrize(("rows", "batch"), [(60, 20), (10, 3)])
@pytest.mark.parametrize("segment", [1, 2, 7, 40])
def test_segments_join(rows, batch, segment):
    """Where a fit is cut does not show: any first step gives the rows of that step."""
    whole = batch_indices(KEY, rows, batch, 0, 40)
    for first in range(0, 41 - segment):
        part = batch_indices(KEY, rows, batch, first, segment)
        np.testing.assert_array_equal(part, whole[first : first + segment])


def test_passes_and_keys_differ():
    passes = batch_indices(KEY, 60, 60, 0, 3)
    others = batch_indices(KEY + np.uint32(1), 60, 60, 0, 3)
    orders = {tuple(order) for order in (*passes, *others, range(60))}
    assert len(orders) == 7


def test_rows_are_drawn_evenly():
    """Over 2,000 passes each row comes first as often as chance has it."""
    first = batch_indices(KEY, 10, 10, 0, 2000)[:, 0]
    counts = np.bincount(first, minlength=10)
    assert np.abs(counts - 200).max() < 4.5 * np.sqrt(2000 * 0.1 * 0.9)
