"""One learning rate for a group of fits, chosen by the ELBO of short ones."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pmbnn.inference.compiled import CompiledEngine
from pmbnn.inference.fit import Member, Progress

SHARE = 0.1
"""Length of the short fits, in lengths of a whole one."""

REPEATS = 3
"""Short fits of each candidate, as far as they fill one program."""


@dataclass(frozen=True)
class Search:
    """Candidate learning rates and the mean final ELBO of their short fits, ``(candidate,)``.

    A candidate one of whose fits diverged has the ELBO −∞.
    """

    candidates: np.ndarray
    elbo: np.ndarray

    @property
    def chosen(self) -> float:
        """The candidate of highest ELBO; the lowest rate if every one diverged."""
        return float(self.candidates[int(np.argmax(self.elbo))])


def search_learning_rate(
    engine: CompiledEngine,
    candidates: tuple[float, ...],
    member: Callable[[float, int, int], Member],
    progress: Progress | None = None,
) -> Search:
    """Short fits at every candidate, as further members of the engine's program.

    Parameters
    ----------
    member
        The member to fit at a rate, as the given repeat of the given candidate.
    """
    repeats = max(1, min(REPEATS, engine.width // len(candidates)))
    members = [
        member(rate, number, repeat)
        for number, rate in enumerate(candidates)
        for repeat in range(repeats)
    ]
    fits = engine.fit(members, progress, steps=max(1, round(SHARE * engine.steps)))
    elbo = np.array([-np.inf if fit.failed else fit.elbo for fit in fits])
    return Search(np.array(candidates), elbo.reshape(len(candidates), repeats).mean(axis=1))
