"""Steps of a fit at which something was looked at."""

import numpy as np


def first_and_last(steps: np.ndarray) -> list[int]:
    """Places of the first step after the start and of the last one; one if they are the same."""
    after_start = np.flatnonzero(steps > 0)
    first = int(after_start[0]) if len(after_start) else 0
    last = len(steps) - 1
    return [first, last] if last > first else [last]


def step_name(step: int) -> str:
    """A step in words: ``step 6,000``."""
    return f"step {int(step):,}"
