"""Rows filled up to whole vectors of the machine.

A loop over a whole number of vectors has no remainder, which takes as long as many of them.
"""

LANES = 64
"""Rows of a step are filled up to a multiple of this: four vectors of AVX-512."""


def padding_of(rows: int, batch: int) -> int:
    """Rows to add to those of a step, if it sees all of a model that takes any number."""
    return 0 if batch < rows or rows < LANES else -rows % LANES
