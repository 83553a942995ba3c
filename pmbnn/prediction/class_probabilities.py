"""Predicted class probabilities: moments over posterior draws, in bounded memory.

Draws are regenerated from the guide one at a time inside the compiled loop; only running
moments are kept, so memory grows with neither the number of draws nor that of the rows.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from pmbnn.core.display import Summarised
from pmbnn.prediction import metrics

if TYPE_CHECKING:
    import jax
    import xarray as xr

    from pmbnn.data.arrays import Rows, Standardisation
    from pmbnn.prediction.draws import DrawSource
    from pmbnn.prediction.predictor import Predictor


# What every kind of prediction has in common


type Weights = Sequence[float]
"""Weights of sources in a mixture, with sum 1."""


class Predictive(ABC):
    """Prediction for each observation by posterior draws; one subclass for each kind.

    A likelihood names its kind by `key`. Metrics, groups of a trace, tables and figures are
    found by the type, in a registry of their own each.
    """

    key: ClassVar[str]
    """Name of the kind, in likelihoods, records and traces."""

    block: ClassVar[int]
    """Rows whose single draws are in memory at once."""

    mean: np.ndarray
    """Predicted mean, observations first."""

    @classmethod
    @abstractmethod
    def of_mixtures(
        cls,
        predictor: "Predictor",
        sources: "Sequence[DrawSource]",
        mixtures: Sequence[Weights],
        data: Mapping[str, np.ndarray],
        x: np.ndarray,
        draws: int,
        target: np.ndarray | None,
    ) -> list[Self]:
        """One prediction for each mixture of the sources; see `Predictor.predict_mixtures`."""

    @classmethod
    @abstractmethod
    def nll(
        cls,
        predictor: "Predictor",
        source: "DrawSource",
        data: Mapping[str, np.ndarray],
        rows: "Rows",
        draws: int,
    ) -> float:
        """Mean negative log-density of the targets of some rows under one source, in nats."""

    @abstractmethod
    def log_score(self, target: np.ndarray) -> np.ndarray:
        """Log-probability or log-density of the targets, ``(observation,)``, in nats.

        A prediction that was scored when it was made returns that score, whatever `target`.
        """

    def in_units_of(self, standardisation: "Standardisation") -> Self:
        """The same prediction in the units that targets had before they were standardised.

        Only predictions of numbers have units.
        """
        return self

    def n_correct(self, target: np.ndarray) -> int | None:
        """Number of targets that are predicted exactly; None where no target can be."""
        return None

    def uncertainty(self) -> dict[str, np.ndarray]:
        """Uncertainty of a new observation and its two parts, by name; observations first.

        ``total`` is the sum of ``aleatoric``, which would be left if the weights were known, and
        ``epistemic``, which comes from not knowing them.

        Of classes, in nats: the entropy of the mean probabilities is the mean entropy over draws
        plus the mutual information of label and weights. Of numbers, in squared units of the
        target: the variance is the mean variance of the noise plus the variance of the means.

        References
        ----------
        Depeweg et al. (2018), Decomposition of Uncertainty in Bayesian Deep Learning for Efficient
        and Risk-sensitive Learning.
        """
        raise TypeError(f"The uncertainty of a {type(self).__name__} has no parts.")


def by_part(total: np.ndarray, epistemic: np.ndarray) -> dict[str, np.ndarray]:
    """Uncertainty and its parts by the names of `Predictive.uncertainty`."""
    aleatoric = np.maximum(total - epistemic, 0.0)
    return {"total": total, "aleatoric": aleatoric, "epistemic": epistemic}


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
        return metrics.entropy(self.mean)

    @property
    def mutual_information(self) -> np.ndarray:
        """Information a label would bring about the weights, ``(observation,)``, in nats.

        References
        ----------
        Houlsby et al. (2011), Bayesian Active Learning by Disagreement, equation 2.
        """
        return np.maximum(self.entropy - self.expected_entropy, 0.0)

    def log_score(self, target: np.ndarray) -> np.ndarray:  # noqa: D102
        return metrics.log_probability(np.asarray(self.mean, np.float64), target)

    def n_correct(self, target: np.ndarray) -> int:  # noqa: D102
        return int(np.sum(self.predicted == target))

    def uncertainty(self) -> dict[str, np.ndarray]:  # noqa: D102
        return by_part(self.entropy, self.mutual_information)

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


# Rejection of uncertain predictions, and scores of uncertainty
#
# A score, ``(observation,)``, is higher where a prediction is less certain.


PERCENTILE = 99
"""Percentage of the held-out digits that their own threshold accepts."""

HELD_OUT = ("validation_predictions", "test_predictions")
"""Groups of a trace with predictions of rows that were not fitted, in order of preference."""


@dataclass(frozen=True)
class Threshold:
    """Uncertainty above which an image is rejected.

    Attributes
    ----------
    sd
        The threshold.
    percentile
        Percentage of the held-out rows that are not more uncertain.
    group
        The group of the trace with the predictions of these rows.
    rows
        Number of these rows.
    """

    sd: float
    percentile: float
    group: str
    rows: int


def rejection_threshold(trace: "xr.DataTree", percentile: float) -> Threshold:
    """Percentile of the uncertainty of a cell's held-out rows.

    Those of the validation rows are taken where the trace keeps them, for a threshold chosen on
    test rows has seen them.

    Raises
    ------
    ValueError
        If the trace keeps neither.
    """
    for group in HELD_OUT:
        if group in trace.children:
            dataset = trace[group].to_dataset()
            p, sd = (dataset[name].values for name in ("probability", "sd"))
            uncertainty = np.take_along_axis(sd, p.argmax(axis=1)[:, None], axis=1)
            limit = float(np.percentile(uncertainty, percentile))
            return Threshold(limit, percentile, group, len(uncertainty))
    raise ValueError(f"The trace must have one of the groups {', '.join(sorted(HELD_OUT))}.")


def geometric_entropy(mean_log: np.ndarray) -> np.ndarray:
    """Entropy in bits of the geometric mean of probabilities, ``(observation,)``.

    That of exp of the mean log-probability, an unnormalised geometric mean over draws, given
    ``mean_log`` of shape ``(observation, class)`` in nats; it is not the predictive entropy.
    """
    mean_log = np.asarray(mean_log, np.float64)
    return -np.sum(np.exp(mean_log) * mean_log, axis=1) / np.log(2)


def detection_metrics(known: np.ndarray, unknown: np.ndarray) -> dict[str, float]:
    """Areas under the curves of detecting unknown observations by a score.

    ``auroc`` is the probability that a random unknown one scores higher than a random known
    one, ties counting half; ``aupr`` is the mean precision with the unknown ones as positives.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    is_unknown = np.repeat([0, 1], [len(known), len(unknown)])
    scores = np.concatenate([known, unknown])
    return {
        "auroc": float(roc_auc_score(is_unknown, scores)),
        "aupr": float(average_precision_score(is_unknown, scores)),
    }


def threshold(held_out: np.ndarray, percentile: float = PERCENTILE) -> float:
    """Score that `percentile` of the held-out observations do not exceed."""
    return float(np.percentile(held_out, percentile))


def risk_coverage(score: np.ndarray, correct: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coverage and risk: share accepted, and share of mistakes among the accepted.

    Both ``(observation,)``, in ascending order of the score. Observations of equal score are
    accepted together: each has the risk of all up to the last of them.

    References
    ----------
    Geifman and El-Yaniv (2017), Selective Classification for Deep Neural Networks, section 2.
    """
    order = np.argsort(score, kind="stable")
    mistakes = np.cumsum(~np.asarray(correct, bool)[order])
    accepted = np.arange(1, len(score) + 1)
    # The order among ties is arbitrary.
    last = np.searchsorted(score[order], score[order], side="right") - 1
    return accepted / len(score), (mistakes / accepted)[last]


def area_under_risk_coverage(score: np.ndarray, correct: np.ndarray) -> float:
    """Mean over coverages of the share of mistakes among what is accepted."""
    return float(risk_coverage(score, correct)[1].mean())
