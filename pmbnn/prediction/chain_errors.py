"""Monte-Carlo errors of predictions by independent chains, by leaving each chain out."""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import logsumexp

from pmbnn.prediction.class_probabilities import ClassProbabilities, Predictive, Weights


def jackknife_error(left_out: Sequence[float] | Sequence[np.ndarray]) -> np.ndarray:
    """Standard error of a statistic of all chains, or of an array of them.

    Parameters
    ----------
    left_out
        The statistic without each of the chains in turn, ``(chain, ...)``. NaN results where one of
        them is infinite, or there is none: the error is not known.

    References
    ----------
    Efron and Stein (1981), The Jackknife Estimate of Variance.
    """
    if not len(left_out):
        return np.float64(np.nan)
    with np.errstate(invalid="ignore"):
        return np.sqrt((len(left_out) - 1) * np.var(left_out, axis=0))


def probabilities_without_each(
    chains: Sequence[ClassProbabilities], weights: Weights
) -> Iterator[np.ndarray]:
    """Class probabilities without each of the chains in turn, ``(observation, class)``.

    Weights are those of the chains in the prediction, with sum 1.
    """
    probabilities = [np.asarray(chain.mean, np.float64) for chain in chains]
    for others in weights_without_each(weights):
        yield sum(weight * p for weight, p in zip(others, probabilities, strict=True) if weight)


def nll_without_each(
    chains: Sequence[Predictive], target: np.ndarray, weights: Weights
) -> list[float]:
    """Mean negative log-score of the targets without each chain in turn, nats, ``(chain,)``.

    Weights are those of the chains in the prediction, with sum 1.
    """
    scores = np.stack([chain.log_score(target) for chain in chains])
    # As logarithms: the density of a target far from every other chain is too small for a number.
    return [
        -float(logsumexp(scores, axis=0, b=others[:, None]).mean())
        for others in weights_without_each(weights)
    ]


def weights_without_each(weights: Weights) -> Iterator[np.ndarray]:
    """Weights of the others without each chain that has a weight; none if only one has."""
    used = np.flatnonzero(weights)
    for chain in used if len(used) > 1 else ():
        others = np.where(np.arange(len(weights)) == chain, 0.0, weights)
        yield others / others.sum()


def without_each(values: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
    """Means of non-negative values without each of them in turn."""
    # Rounding may leave a probability of the others a trace below zero.
    return (np.maximum(mean, 0) for mean in means_without_each(values))


def means_without_each(values: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
    """Means of values without each of them in turn."""
    total, others = sum(values), len(values) - 1
    return ((total - value) / others for value in values)


# Moments of an output: over chains they average, as its standard deviation does not


def moments_about(centre: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """First two moments about a centre, ``(..., 2, row)``, double precision.

    Parameters
    ----------
    centre
        ``(row,)``; close to the means, so that no digits are lost.
    mean, sd
        ``(..., row)``, as of each of several chains.
    """
    mean, sd = (np.asarray(v, np.float64) for v in (mean, sd))
    return np.stack([mean - centre, sd**2 + (mean - centre) ** 2], axis=-2)


def sd_of(moments: np.ndarray) -> np.ndarray:
    """Standard deviations of moments about some centre, ``(..., 2, row)``; never zero."""
    first, second = moments[..., 0, :], moments[..., 1, :]
    return np.sqrt(np.maximum(second - first**2, np.finfo(float).tiny))


# Distances between means over draws, their errors, floors and verdicts
#
# Arrays in, a number out: the tables of a sweep need them, and modules that fit would take
# its command seconds to import.


type Verdict = Literal["agrees", "differs", "undecided"]

SPLITS = 20
"""Random halves of the repeats that the floor is a mean over."""

MARGIN = 1.5
"""Times the floor: a larger distance is a difference from the posterior. Halves have half of the
draws each, so that an exact approximation is at about half the floor."""


class DistanceResult(NamedTuple):
    """A distance, the quantity that it is of, and a description of the difference."""

    value: float
    of: str
    direction: str = ""


Distance = Callable[[np.ndarray, np.ndarray], DistanceResult]
"""Between the means of approximation and reference."""


def total_variation(ours: np.ndarray, theirs: np.ndarray) -> DistanceResult:
    """Mean over inputs, of class probabilities ``(observation, class)``."""
    distance = 0.5 * float(np.abs(ours - theirs).sum(axis=-1).mean())
    largest, wanted = (float(p.max(axis=-1).mean()) for p in (ours, theirs))
    side = "more" if largest > wanted else "less"
    direction = (
        f"the approximation is {side} confident, with a largest probability of {largest:.3f} on "
        f"average and not {wanted:.3f}"
    )
    return DistanceResult(distance, "total variation", direction)


def wasserstein(ours: np.ndarray, theirs: np.ndarray) -> DistanceResult:
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
    return DistanceResult(float(np.sqrt(off.mean())), "Wasserstein distance")


def moments(names, ours, theirs) -> tuple[np.ndarray, np.ndarray, Distance]:
    """Blocks of first and second moments, ``(block, 2, scalar)``, and the distance between two."""
    centre = theirs.mean(axis=(0, 1))
    blocks = [
        np.stack([(v - centre).mean(axis=1), ((v - centre) ** 2).mean(axis=1)], axis=1)
        for v in (ours, theirs)
    ]

    def furthest(ours, theirs) -> DistanceResult:
        sds = [sd_of(m) for m in (ours, theirs)]
        off = np.concatenate([(ours[0] - theirs[0]) / sds[1], np.log(sds[0] / sds[1])])
        i = int(np.abs(off).argmax())
        kind = "mean" if i < len(names) else "log sd"
        name = names[i % len(names)]
        return DistanceResult(
            float(abs(off[i])), f"{kind} of {name}", _side(kind, name, float(off[i]))
        )

    return *blocks, furthest


def _side(kind: str, name: str, off: float) -> str:
    """Description of a difference of means, or of a logarithm of a ratio of standard deviations."""
    if kind == "mean":
        side = "above" if off > 0 else "below"
        return f"the approximation's mean of {name} is {abs(off):.2g} sd {side} the posterior's"
    return f"the approximation's sd of {name} is {np.exp(off):.2g} times the posterior's"


def distance_verdict(distance: float, error: float, floor: float, status: str) -> Verdict:
    """Verdict on a distance, by its standard error, its floor and the status of the reference."""
    if status != "converged":
        return "undecided"
    if distance <= MARGIN * floor:
        return "agrees"
    return "differs" if distance - 2 * error > MARGIN * floor else "undecided"


def standard_error(ours: np.ndarray, theirs: np.ndarray, distance: Distance) -> float:
    """Jackknife over the blocks of both (Efron and Stein 1981)."""
    by_ours = [distance(mean, theirs.mean(axis=0)).value for mean in means_without_each(ours)]
    by_theirs = [distance(ours.mean(axis=0), mean).value for mean in means_without_each(theirs)]
    return float(np.hypot(jackknife_error(by_ours), jackknife_error(by_theirs)))


def floor_of(blocks: np.ndarray, distance: Distance) -> float:
    """Mean distance between random halves."""
    rng = np.random.default_rng(0)
    half, distances = len(blocks) // 2, []
    for _ in range(SPLITS):
        order = rng.permutation(len(blocks))
        first, second = blocks[order[:half]], blocks[order[half:]]
        distances.append(distance(first.mean(axis=0), second.mean(axis=0)).value)
    return float(np.mean(distances))
