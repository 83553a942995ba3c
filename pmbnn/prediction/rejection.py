"""Rejection of uncertain predictions, and scores of uncertainty.

A score, ``(observation,)``, is higher where a prediction is less certain.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import xarray as xr

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
