"""Which rows each step of a minibatch fit sees."""

import numpy as np


def batch_indices(
    stream: np.ndarray, rows: int, batch: int, first_step: int, steps: int
) -> np.ndarray:
    """Row indices ``(step, batch)`` of `steps` steps from `first_step`, reproducible anywhere.

    The rows are shuffled anew for each pass over them, and the passes laid end to end: every
    row is seen equally often, and a step may reach across two passes.
    """
    start, stop = first_step * batch, (first_step + steps) * batch
    first_pass, last_pass = start // rows, (stop - 1) // rows
    shuffled = [
        np.random.default_rng([*stream, i]).permutation(rows)
        for i in range(first_pass, last_pass + 1)
    ]
    laid_out = np.concatenate(shuffled)
    offset = first_pass * rows
    return laid_out[start - offset : stop - offset].reshape(steps, batch)
