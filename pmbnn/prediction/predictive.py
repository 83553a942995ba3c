"""What every kind of prediction has in common."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

if TYPE_CHECKING:
    from pmbnn.data.arrays import Rows, Standardisation
    from pmbnn.prediction.draws import DrawSource
    from pmbnn.prediction.predictor import Predictor

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
