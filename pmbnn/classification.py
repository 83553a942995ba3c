"""What a network says of single pictures, and when it had better say nothing.

Throughout, ``probability`` has shape ``(draw, observation, class)`` and ``weight``, of sum 1,
``(draw,)``; entropies are in bits.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import xarray as xr

HELD_OUT = ("validation_predictions", "test_predictions")
"""Groups of a trace with predictions of rows that were not fitted, in order of preference."""


@dataclass(frozen=True)
class Classification:
    """What posterior draws say of one picture.

    Attributes
    ----------
    predicted
        The class of highest mean probability.
    probability, sd
        Mean and standard deviation over draws of each class's probability, ``(class,)``.
    entropy
        Of the mean probabilities, in bits.
    mutual_information
        What a label would tell about the weights, in bits.
    expected_error_rate
        Share of the draws whose most probable class is another one.
    """

    predicted: int
    probability: np.ndarray
    sd: np.ndarray
    entropy: float
    mutual_information: float
    expected_error_rate: float

    @property
    def uncertainty(self) -> float:
        """Standard deviation of the predicted class's probability."""
        return float(self.sd[self.predicted])


@dataclass(frozen=True)
class Threshold:
    """Uncertainty above which a picture is refused.

    Attributes
    ----------
    sd
        The threshold itself.
    percentile
        Share of held-out rows, in percent, that are not more uncertain.
    group
        The group of the trace that holds their predictions.
    rows
        Their number.
    """

    sd: float
    percentile: float
    group: str
    rows: int

    def refuses(self, classification: Classification) -> bool:
        """Whether a picture is more uncertain than nearly all of those held out."""
        return classification.uncertainty > self.sd


def classify(probability: np.ndarray, weight: np.ndarray) -> list[Classification]:
    """One classification for each observation, from the probabilities of every draw."""
    p = np.asarray(probability, np.float64)
    mean = np.tensordot(weight, p, axes=1)
    sd = np.sqrt(np.tensordot(weight, (p - mean) ** 2, axes=1))
    predicted = mean.argmax(axis=1)
    entropy = _bits(mean)
    information = np.maximum(entropy - np.tensordot(weight, _bits(p), axes=1), 0.0)
    error = np.tensordot(weight, p.argmax(axis=2) != predicted, axes=1)
    return [
        Classification(int(predicted[i]), mean[i], sd[i], *map(float, numbers))
        for i, numbers in enumerate(zip(entropy, information, error, strict=True))
    ]


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
            kept = trace[group].to_dataset()
            p, sd = (kept[name].values for name in ("probability", "sd"))
            uncertainty = np.take_along_axis(sd, p.argmax(axis=1)[:, None], axis=1)
            limit = float(np.percentile(uncertainty, percentile))
            return Threshold(limit, percentile, group, len(uncertainty))
    raise ValueError(f"The trace must have one of the groups {', '.join(sorted(HELD_OUT))}.")


def _bits(p: np.ndarray) -> np.ndarray:
    """Entropy over the last axis."""
    return -np.sum(p * np.log2(np.maximum(p, np.finfo(np.float64).tiny)), axis=-1)
