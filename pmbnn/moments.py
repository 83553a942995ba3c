"""Moments of predicted class probabilities over posterior draws, and those of mixtures."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Moments:
    """Moments of predicted class probabilities over posterior draws.

    Attributes
    ----------
    draws
        How many draws they are taken over.
    mean, sd
        Mean and standard deviation of each class's probability, ``(observation, class)``.
    expected_entropy
        Mean over draws of the entropy of a draw's probabilities, ``(observation,)``, in nats.
    votes
        Share of draws in which a class is the most probable one, ``(observation, class)``.
    mean_log
        Mean over draws of each class's log-probability, ``(observation, class)``, in nats.
    """

    draws: int
    mean: np.ndarray
    sd: np.ndarray
    expected_entropy: np.ndarray
    votes: np.ndarray
    mean_log: np.ndarray

    @property
    def predicted(self) -> np.ndarray:
        """The class of highest mean probability, ``(observation,)``."""
        return self.mean.argmax(axis=1)

    @property
    def predicted_sd(self) -> np.ndarray:
        """Standard deviation of the predicted class's probability, ``(observation,)``."""
        return _of_class(self.sd, self.predicted)

    @property
    def expected_error_rate(self) -> np.ndarray:
        """Share of draws whose class is not the predicted one, ``(observation,)``.

        Exactly zero where all draws agree.
        """
        # One less the share of the predicted class may miss zero in a mixture of restarts.
        others = self.votes.copy()
        np.put_along_axis(others, self.predicted[:, None], 0, axis=1)
        return others.sum(axis=1)

    @property
    def class_variance(self) -> np.ndarray:
        """Variance over draws of the probabilities, summed over classes, ``(observation,)``."""
        return np.sum(np.asarray(self.sd, np.float64) ** 2, axis=1)

    @property
    def entropy(self) -> np.ndarray:
        """Entropy of the mean probabilities, ``(observation,)``, in nats."""
        p = np.asarray(self.mean, np.float64)
        return -np.sum(p * np.log(np.maximum(p, np.finfo(np.float64).tiny)), axis=-1)

    @property
    def mutual_information(self) -> np.ndarray:
        """Information a label would bring about the weights, ``(observation,)``, in nats.

        References
        ----------
        Houlsby et al. (2011), Bayesian Active Learning by Disagreement, equation 2.
        """
        return np.maximum(self.entropy - self.expected_entropy, 0.0)

    def split(self, sizes: Sequence[int]) -> "list[Moments]":
        """The moments of consecutive runs of rows."""
        stops = np.cumsum(sizes)
        return [
            Moments(self.draws, *(array[a:b] for array in self._arrays))
            for a, b in zip(stops - np.asarray(sizes), stops, strict=True)
        ]

    @property
    def _arrays(self) -> tuple[np.ndarray, ...]:
        return self.mean, self.sd, self.expected_entropy, self.votes, self.mean_log


def pool(parts: Sequence[Moments], weights: Sequence[float] | None = None) -> Moments:
    """Moments of a mixture of the parts.

    Parameters
    ----------
    weights
        Of the parts, with sum 1; unless given, as if all draws had been taken at once.
    """
    draws = sum(part.draws for part in parts)
    if weights is None:
        weights = [part.draws / draws for part in parts]
    mean = sum(w * part.mean for w, part in zip(weights, parts, strict=True))
    variance = sum(
        w * (part.sd**2 + (part.mean - mean) ** 2) for w, part in zip(weights, parts, strict=True)
    )
    entropy, votes, mean_log = (
        sum(w * getattr(part, name) for w, part in zip(weights, parts, strict=True))
        for name in ("expected_entropy", "votes", "mean_log")
    )
    return Moments(draws, mean, np.sqrt(variance), entropy, votes, mean_log)


def _of_class(values: np.ndarray, label: np.ndarray) -> np.ndarray:
    """One class's value of each observation, ``(observation,)``."""
    return np.take_along_axis(values, label[:, None], axis=1)[:, 0]
