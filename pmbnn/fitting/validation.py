"""Accuracy on rows that no fit sees, while fits are running."""

import time
from collections.abc import Callable, Sequence

import numpy as np

from pmbnn.inference.result import Fit, Replica
from pmbnn.prediction.predictor import Predictor

EVERY = 10.0
"""Seconds between two validations, at least."""

SHARE = 0.03
"""Of the time, that validation may take."""

ROWS, DRAWS = 2_048, 5
"""Rows predicted, and draws of the parameters."""

HeldOut = tuple[np.ndarray, np.ndarray]
"""Standardised inputs and targets that a fit does not see."""


class ValidationCallback:
    """Judges the fits of one call now and then; nothing of a fit depends on it.

    Parameters
    ----------
    predictor
        Gives the predictions of the group; asked the first time.
    replicas
        What is fitted, one after the other.
    held_out
        The rows that each is judged on; None where there are none.
    """

    def __init__(
        self,
        predictor: Callable[[], Predictor],
        replicas: Sequence[Replica],
        held_out: Sequence[HeldOut | None],
    ) -> None:
        self._predictor = predictor
        self._judged = list(zip(replicas, held_out, strict=True))
        self._done, self._accuracy = 0, None
        self._next = time.monotonic() + EVERY

    def __call__(self, done: int, current: Callable[[], Fit]) -> float | None:
        """The latest accuracy of the fit that has done so many steps; None while not known."""
        if done < self._done:  # the next fit
            self._accuracy = None
        self._done = done
        if time.monotonic() >= self._next:
            self._accuracy, spent = self._timed(current)
            self._next = time.monotonic() + max(EVERY, spent / SHARE)
        return self._accuracy

    def _timed(self, current: Callable[[], Fit]) -> tuple[float | None, float]:
        """The accuracy, and the seconds it took once all is compiled."""
        fit = current()
        replica, held_out = self._judged[fit.replica]
        if held_out is None or fit.failed:
            return None, 0.0
        predictor = self._predictor()
        x, target = (array[:ROWS] for array in held_out)
        start = time.monotonic()
        correct = predictor.predict([fit], [1.0], replica.data, x, DRAWS).n_correct(target)
        accuracy = None if correct is None else correct / len(target)
        return accuracy, time.monotonic() - start
