"""Predicted class probabilities: moments over posterior draws, in bounded memory.

Draws are regenerated from the guide one at a time inside the compiled loop; only running
moments are kept, so memory grows with neither the number of draws nor that of the rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pmbnn.prediction import metrics
from pmbnn.prediction.predictive import Predictive, Weights
from pmbnn.spec.display import Summarised

if TYPE_CHECKING:
    import jax

BLOCK = 512
"""Rows predicted at once. One length for all, the last block padded, so that a group compiles one
program. Twice as many take a tenth less time a row of a small network; the few hundred test rows of
small data sets, which every restart and candidate scale predicts, would be mostly padding."""


@dataclass(frozen=True, repr=False)
class ClassProbabilities(Summarised, Predictive):
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

    key: ClassVar[str] = "class_probabilities"
    block: ClassVar[int] = 32

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

    def log_score(self, target: np.ndarray) -> np.ndarray:  # noqa: D102
        with np.errstate(divide="ignore"):
            return np.log(_of_class(np.asarray(self.mean, np.float64), target))

    def n_correct(self, target: np.ndarray) -> int:  # noqa: D102
        return int(np.sum(self.predicted == target))

    @classmethod
    def of_mixtures(cls, predictor, sources, mixtures, data, x, draws, target):  # noqa: D102
        parts = [cls.of_source(predictor, source, data, x, draws) for source in sources]
        return [mix(parts, weights) for weights in mixtures]

    @classmethod
    def of_source(cls, predictor, source, data, x: np.ndarray, draws: int) -> "ClassProbabilities":
        """Prediction by one source of draws, a block of rows at a time."""
        draws = source.n_distinct(draws)
        return cls(draws, *predictor.reduced(cls._reduce, source, data, x, draws, BLOCK))

    @classmethod
    def nll(cls, predictor, source, data, rows, draws):  # noqa: D102
        probability = predictor.predict([source], [1.0], data, rows.x, draws).mean
        return metrics.nll(np.asarray(probability, np.float64), rows.y)

    @staticmethod
    def _reduce(
        parameters: "Callable[[jax.Array | int], tuple[jax.Array]]", draws: "jax.Array"
    ) -> "tuple[jax.Array, ...]":
        """Running moments over draws, in the order of the attributes (Welford 1962)."""
        import jax
        import jax.numpy as jnp

        def body(i, carry):
            mean, squares, entropy, votes, log = carry
            p = parameters(i)[0].T
            step = p - mean
            # Usually step · (p - new mean), which the compiler may round to below zero.
            squares = squares + step**2 * (i / (i + 1))
            log_p = jnp.log(jnp.maximum(p, jnp.finfo(p.dtype).tiny))
            entropy = entropy - jnp.sum(p * log_p, axis=0)
            votes = votes + (jnp.argmax(p, axis=0) == jnp.arange(len(p))[:, None])
            log = log + log_p
            return mean + step / (i + 1), squares, entropy, votes, log

        (probability,) = jax.eval_shape(parameters, 0)
        zero = jnp.zeros(probability.shape[::-1], probability.dtype)
        start = (zero, zero, zero[0], zero, zero)
        mean, squares, entropy, votes, log = jax.lax.fori_loop(0, draws, body, start)
        sd = jnp.sqrt(squares / draws)
        return mean.T, sd.T, entropy / draws, votes.T / draws, log.T / draws


def mix(parts: Sequence[ClassProbabilities], weights: Weights) -> ClassProbabilities:
    """Moments of a mixture of predictions; one that has all the weight is returned as it is."""
    used = [(part, weight) for part, weight in zip(parts, weights, strict=True) if weight > 0]
    if len(used) == 1:
        return used[0][0]

    def mean(name: str) -> np.ndarray:
        return sum(weight * getattr(part, name) for part, weight in used)

    probability = mean("mean")
    variance = sum(w * (part.sd**2 + (part.mean - probability) ** 2) for part, w in used)
    return ClassProbabilities(
        draws=sum(part.draws for part, _ in used),
        mean=probability,
        sd=np.sqrt(variance),
        expected_entropy=mean("expected_entropy"),
        votes=mean("votes"),
        mean_log=mean("mean_log"),
    )


@metrics.metrics_of.register
def _class_metrics(predictive: ClassProbabilities, target: np.ndarray) -> dict[str, float]:
    return metrics.classification_metrics(predictive.mean, target) | {
        "mean_sd": float(predictive.predicted_sd.mean()),
        "mean_entropy": float(predictive.entropy.mean()),
        "mean_mutual_information": float(predictive.mutual_information.mean()),
    }


def _of_class(values: np.ndarray, label: np.ndarray) -> np.ndarray:
    """One class's value of each observation, ``(observation,)``."""
    return np.take_along_axis(values, label[:, None], axis=1)[:, 0]
