"""How few weights of the last layer a posterior keeps away from zero."""

import numpy as np

from pmbnn.results.weights import (
    away_from_zero,
    excess_kurtosis,
    hoyer_sparsity,
    narrow_about_zero,
)


def sparsity_measures(draws: np.ndarray) -> dict[str, float]:
    """Measures of a layer's sparsity from draws ``(draw, weight)``, by name.

    What *away from zero* and *narrow about zero* mean is told in `pmbnn.results.weights`.
    """
    means = draws.mean(axis=0)
    return {
        "weights": float(draws.shape[1]),
        "away from zero": float(away_from_zero(draws).sum()),
        "share narrow about zero": float(narrow_about_zero(draws).mean()),
        "excess kurtosis of means": excess_kurtosis(means),
        "Hoyer sparsity of means": hoyer_sparsity(means),
    }
