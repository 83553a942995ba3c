"""Figures and tables that the studies of this folder need, and other experiments do not.

Experiment files name this folder in ``plugins``. Fits do not depend on it.
"""

from typing import TYPE_CHECKING

import pmbnn as pb

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@pb.register
def gap(results: "pb.ExperimentResults") -> "dict[str, Figure]":
    """The function along a line across a gap between training rows, for each data set."""
    from .in_between import gap_figures

    return gap_figures(results)


@pb.register
def in_between(results: "pb.ExperimentResults") -> "pd.DataFrame":
    """How uncertain each method is along that line."""
    from .in_between import in_between_table

    return in_between_table(results)


@pb.register
def noise(results: "pb.ExperimentResults") -> "dict[str, Figure]":
    """Images of noise as a Bayesian and a deterministic network classify them."""
    from .compared_noise import noise_figures

    return noise_figures(results)


@pb.register
def symmetry(results: "pb.ExperimentResults") -> "pd.DataFrame":
    """How much of a guide's divergence from the posterior the network's symmetries explain."""
    from .symmetry import symmetry_table

    return symmetry_table(results)
