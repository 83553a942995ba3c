"""Distances between means over draws, their errors and floors, and what they say.

Arrays in, a number out: the tables of a sweep need them, and what fits and samples would take its
command seconds to import.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from pmbnn.prediction.chain_errors import jackknife_error, means_without_each, sd_of

type Verdict = Literal["agrees", "differs", "undecided"]

SPLITS = 20
"""Random halves of the repeats that the floor is a mean over."""

MARGIN = 1.5
"""Times the floor: what is further away is told apart from the posterior. Halves have half of the
draws each, so that an exact approximation is at about half the floor."""


class Found(NamedTuple):
    """A distance, what it is of, and to which side the first of two is off."""

    value: float
    of: str
    direction: str = ""


Distance = Callable[[np.ndarray, np.ndarray], Found]
"""Between the means of approximation and reference."""


def total_variation(ours: np.ndarray, theirs: np.ndarray) -> Found:
    """Mean over inputs, of class probabilities ``(observation, class)``."""
    distance = 0.5 * float(np.abs(ours - theirs).sum(axis=-1).mean())
    largest, wanted = (float(of.max(axis=-1).mean()) for of in (ours, theirs))
    side = "more" if largest > wanted else "less"
    direction = (
        f"the approximation is {side} confident, with a largest probability of {largest:.3f} on "
        f"average and not {wanted:.3f}"
    )
    return Found(distance, "total variation", direction)


def wasserstein(ours: np.ndarray, theirs: np.ndarray) -> Found:
    """Root mean square over rows of that between normals, in standard deviations of the second.

    Parameters
    ----------
    ours, theirs
        First two moments of an output, ``(2, row)``.

    References
    ----------
    Givens and Shortt (1984), A class of Wasserstein metrics for probability distributions,
    proposition 7: its square is that of the difference of means plus that of the standard
    deviations.
    """
    (mean, sd), (wanted, unit) = ((m[0], sd_of(m)) for m in (ours, theirs))
    off = ((mean - wanted) ** 2 + (sd - unit) ** 2) / unit**2
    return Found(float(np.sqrt(off.mean())), "Wasserstein distance")


def moments(names, ours, theirs) -> tuple[np.ndarray, np.ndarray, Distance]:
    """Blocks of first and second moments, ``(block, 2, scalar)``, and the distance between two."""
    centre = theirs.mean(axis=(0, 1))
    blocks = [
        np.stack([(v - centre).mean(axis=1), ((v - centre) ** 2).mean(axis=1)], axis=1)
        for v in (ours, theirs)
    ]

    def furthest(ours, theirs) -> Found:
        sds = [sd_of(m) for m in (ours, theirs)]
        off = np.concatenate([(ours[0] - theirs[0]) / sds[1], np.log(sds[0] / sds[1])])
        i = int(np.abs(off).argmax())
        kind = "mean" if i < len(names) else "log sd"
        name = names[i % len(names)]
        return Found(float(abs(off[i])), f"{kind} of {name}", _side(kind, name, float(off[i])))

    return *blocks, furthest


def _side(kind: str, name: str, off: float) -> str:
    """Which way a mean or a logarithm of a standard deviation is off."""
    if kind == "mean":
        side = "above" if off > 0 else "below"
        return f"the approximation's mean of {name} is {abs(off):.2g} sd {side} the posterior's"
    return f"the approximation's sd of {name} is {np.exp(off):.2g} times the posterior's"


def distance_verdict(distance: float, error: float, floor: float, status: str) -> Verdict:
    """What a distance says, by its standard error, its floor and the status of the reference."""
    if status != "converged":
        return "undecided"
    if distance <= MARGIN * floor:
        return "agrees"
    return "differs" if distance - 2 * error > MARGIN * floor else "undecided"


def standard_error(ours: np.ndarray, theirs: np.ndarray, distance: Distance) -> float:
    """Jackknife over the blocks of both (Efron and Stein 1981)."""
    of_ours = [distance(left, theirs.mean(axis=0)).value for left in means_without_each(ours)]
    of_theirs = [distance(ours.mean(axis=0), left).value for left in means_without_each(theirs)]
    return float(np.hypot(jackknife_error(of_ours), jackknife_error(of_theirs)))


def floor_of(blocks: np.ndarray, distance: Distance) -> float:
    """Mean distance between random halves."""
    rng = np.random.default_rng(0)
    half, found = len(blocks) // 2, []
    for _ in range(SPLITS):
        order = rng.permutation(len(blocks))
        first, second = blocks[order[:half]], blocks[order[half:]]
        found.append(distance(first.mean(axis=0), second.mean(axis=0)).value)
    return float(np.mean(found))
