"""What every kind of prediction has in common."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

import numpy as np

if TYPE_CHECKING:
    from pmbnn.data.arrays import Rows, Standardisation
    from pmbnn.inference.result import Fit
    from pmbnn.models.likelihoods import Likelihood
    from pmbnn.prediction.draws import DrawSource

type Weights = Sequence[float] | None
"""Of fits in a mixture, with sum 1; None takes the draws of all as if drawn from one."""


class DrawReader(Protocol):
    """What reads a likelihood's parameters off draws: a `Predictor`, which documents the methods.

    Kinds of predictions ask for no more of it, so that they need not know the class.
    """

    likelihood: "Likelihood"

    def single_draws(self, fit, data, x, draws) -> dict[str, np.ndarray]: ...  # noqa: D102

    def reduced(self, reduce, fit, data, x, draws, block) -> list[np.ndarray]: ...  # noqa: D102

    def n_distinct(self, fit, draws: int) -> int: ...  # noqa: D102

    def predict(self, fits, weights, data, x, draws) -> "Predictive": ...  # noqa: D102


class Predictive(ABC):
    """What posterior draws say of each observation; one subclass for each kind of prediction.

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
        predictor: DrawReader,
        fits: "Sequence[Fit | DrawSource]",
        mixtures: Sequence[Weights],
        data: Mapping[str, np.ndarray],
        x: np.ndarray,
        draws: int,
        target: np.ndarray | None,
    ) -> list[Self]:
        """One prediction for each mixture of the fits; see `Predictor.predict_mixtures`."""

    @classmethod
    @abstractmethod
    def nll(
        cls,
        predictor: DrawReader,
        fit: "Fit | DrawSource",
        data: Mapping[str, np.ndarray],
        rows: "Rows",
        draws: int,
    ) -> float:
        """Mean negative log-density of the targets of some rows under one fit, in nats."""

    @abstractmethod
    def log_score(self, target: np.ndarray) -> np.ndarray:
        """Log-probability or log-density of the targets, ``(observation,)``, in nats.

        Of a prediction that was scored when it was made, `target` is what it was scored by.
        """

    def in_units_of(self, standardisation: "Standardisation") -> Self:
        """What it says of targets in their own units, where it was made of standardised ones.

        Only predictions of numbers have units.
        """
        return self

    def n_correct(self, target: np.ndarray) -> int | None:
        """How many targets are predicted exactly; None where no target can be."""
        return None


def with_weight(fits: Sequence, weights: Weights) -> tuple[list[int], list[float] | None]:
    """Indices of the fits that have a weight in a mixture, and their weights."""
    if weights is None:
        return list(range(len(fits))), None
    used = [i for i, weight in enumerate(weights) if weight > 0]
    return used, [weights[i] for i in used]
