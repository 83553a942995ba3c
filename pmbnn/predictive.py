"""What posterior draws of a regression say of each observation: a mixture of normals.

Each draw is one component: the network's output is its mean and the noise its standard
deviation. Everything here is exact for the given draws; nothing further is drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

LEVEL = 0.95
"""Probability of the central intervals that are kept."""

BISECTIONS = 40
"""Halvings of the range that a quantile lies in: 1e-12 of it is left."""

PAIRED = 200
"""Components that the ranked probability score, whose work grows with their square, looks at."""


@dataclass(frozen=True)
class PredictiveDraws:
    """A mixture of normal distributions at each observation.

    Attributes
    ----------
    output
        Means of the components, ``(draw, observation)``.
    noise
        Their standard deviations, ``(draw,)``.
    weight
        Their weights, of sum 1, ``(draw,)``.
    """

    output: np.ndarray
    noise: np.ndarray
    weight: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """Mean of the output, and of what is observed, ``(observation,)``."""
        return self.weight @ self.output

    @property
    def epistemic_sd(self) -> np.ndarray:
        """Standard deviation of the output over draws, ``(observation,)``."""
        return np.sqrt(self.weight @ (self.output - self.mean) ** 2)

    @property
    def total_sd(self) -> np.ndarray:
        """Standard deviation of what is observed, noise included, ``(observation,)``."""
        return np.sqrt(self.epistemic_sd**2 + self.weight @ self.noise**2)

    def cdf(self, target: np.ndarray) -> np.ndarray:
        """Probability that less than `target` is observed, ``(observation,)``."""
        from scipy.special import ndtr

        return self.weight @ ndtr(self._standardised(target))

    def log_density(self, target: np.ndarray) -> np.ndarray:
        """Log-density of `target`, ``(observation,)``, in nats."""
        from scipy.special import logsumexp

        log_noise = np.log(self.noise)[:, None] + 0.5 * np.log(2 * np.pi)
        log_densities = -0.5 * self._standardised(target) ** 2 - log_noise
        return logsumexp(log_densities, axis=0, b=self.weight[:, None])

    def crps(self, target: np.ndarray) -> np.ndarray:
        """Continuous ranked probability score, ``(observation,)``, in the targets' units.

        Of many components, at most `PAIRED` evenly chosen ones count.

        References
        ----------
        Grimit, Gneiting, Berrocal and Johnson (2006), The continuous ranked probability score
        for circular variables, section 2, for a mixture of normals.
        """
        chosen = np.linspace(0, len(self.weight) - 1, min(PAIRED, len(self.weight))).astype(int)
        output, noise = self.output[chosen], self.noise[chosen]
        weight = self.weight[chosen] / self.weight[chosen].sum()
        score = weight @ _mean_distance(target - output, noise[:, None])
        for own, sd, share in zip(output, noise, weight, strict=True):
            between = _mean_distance(own - output, np.hypot(sd, noise)[:, None])
            score -= 0.5 * share * (weight @ between)
        return score

    def output_interval(self, level: float = LEVEL) -> np.ndarray:
        """Central interval of the output over draws, ``(bound, observation)``."""
        tails = [(1 - level) / 2, (1 + level) / 2]
        return np.quantile(self.output, tails, axis=0, method="inverted_cdf", weights=self.weight)

    def total_interval(self, level: float = LEVEL) -> np.ndarray:
        """Central interval of what is observed, ``(bound, observation)``."""
        return np.stack([self._quantile(p) for p in ((1 - level) / 2, (1 + level) / 2)])

    def _standardised(self, target: np.ndarray) -> np.ndarray:
        return (target - self.output) / self.noise[:, None]

    def _quantile(self, probability: float) -> np.ndarray:
        """By bisection: a quantile lies between the smallest and largest of the components."""
        from scipy.special import ndtri

        of_each = self.output + ndtri(probability) * self.noise[:, None]
        low, high = of_each.min(axis=0), of_each.max(axis=0)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            below = self.cdf(middle) < probability
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return (low + high) / 2


def _mean_distance(mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Mean absolute value of a normal variable."""
    from scipy.special import ndtr

    standard = mean / sd
    return sd * np.sqrt(2 / np.pi) * np.exp(-0.5 * standard**2) + mean * (2 * ndtr(standard) - 1)


@dataclass(frozen=True)
class Prediction:
    """What is kept of the draws at each observation.

    Attributes
    ----------
    mean, epistemic_sd, total_sd
        ``(observation,)``; without and with the noise.
    output_interval, total_interval
        Central intervals of probability `LEVEL`, ``(bound, observation)``.
    log_density, cdf, crps
        Of the targets, ``(observation,)``: nats, probability of less, ranked probability score.
        Not a number where there are no targets.
    """

    mean: np.ndarray
    epistemic_sd: np.ndarray
    total_sd: np.ndarray
    output_interval: np.ndarray
    total_interval: np.ndarray
    log_density: np.ndarray
    cdf: np.ndarray
    crps: np.ndarray


def summarise_draws(draws: PredictiveDraws, target: np.ndarray | None = None) -> Prediction:
    """What is kept of the draws, and how they fit the targets if there are any."""
    scores = ("log_density", "cdf", "crps")
    unknown = np.full(draws.output.shape[1], np.nan)
    return Prediction(
        mean=draws.mean,
        epistemic_sd=draws.epistemic_sd,
        total_sd=draws.total_sd,
        output_interval=draws.output_interval(),
        total_interval=draws.total_interval(),
        **{name: unknown if target is None else getattr(draws, name)(target) for name in scores},
    )


def join_predictions(parts: Sequence[Prediction]) -> Prediction:
    """Predictions of consecutive runs of rows as one."""
    names = [field.name for field in fields(Prediction)]
    return Prediction(*(np.concatenate([getattr(p, n) for p in parts], axis=-1) for n in names))
