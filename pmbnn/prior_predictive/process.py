"""Functions of a network before and after its scales are matched, beside those of the process."""

import numpy as np
import xarray as xr

from pmbnn.data.arrays import Dataset
from pmbnn.experiment.cells import Cell
from pmbnn.models.matching import ScaledDraws, covariance, match_of, some_inputs

GROUP = "match"
"""Group of a stored check that has these functions."""

KINDS = ("scale 1", "matched", "process")
"""The functions: with scale 1 in every layer, with matched scales, of the Gaussian process."""

FUNCTIONS, POINTS = 8, 80
"""Functions that are shown, and points of the line that they are shown on."""

DRAWS = 500
"""Functions from which spreads are taken."""

SHARE = 0.6826894921370859
"""Probability that a normal variable is within one standard deviation of its mean."""


def match_functions(cell: Cell, dataset: Dataset) -> xr.Dataset | None:
    """Outputs at training inputs and between two of them; None if no scales were matched.

    ``function`` has single functions of each kind on the straight line between two training inputs
    that are far apart, with their ``position`` in units of standardised inputs. ``spread`` has half
    widths of the central 68 % of the increments between pairs of training inputs, whose
    ``distance`` is in the same units: a standard deviation where they are normal. Targets are
    standardised; outputs of a classifier are logits.
    """
    rows = dataset.training
    found = match_of(cell.hyperprior, cell.prior, cell.network, rows)
    if found is None:
        return None
    x = np.asarray(some_inputs(rows.x), np.float64)
    distances = np.linalg.norm(x[:, None] - x, axis=-1)
    start, end = x[list(np.unravel_index(distances.argmax(), distances.shape))]
    share = np.linspace(0, 1, POINTS)
    line = start + share[:, None] * (end - start)
    first, second = np.triu_indices(len(x), 1)
    draws = ScaledDraws(cell.network, cell.prior, rows.input_shape, DRAWS)
    outputs = draws.at(np.concatenate([line, x]))
    process = covariance(cell.hyperprior.scale, np.concatenate([line, x]))
    rng = np.random.default_rng(0)
    functions = {
        "scale 1": outputs(np.ones(len(found.scales))),
        "matched": outputs(found.scales),
        "process": rng.multivariate_normal(np.zeros(len(process)), process, DRAWS, method="eigh"),
    }
    tails = [(1 - SHARE) / 2, (1 + SHARE) / 2]

    def spread(drawn: np.ndarray) -> np.ndarray:
        low, high = np.quantile(drawn[:, POINTS + first] - drawn[:, POINTS + second], tails, axis=0)
        return (high - low) / 2

    arrays = {
        "function": (
            ("kind", "function", "point"),
            np.stack([functions[kind][:FUNCTIONS, :POINTS] for kind in KINDS]),
        ),
        "position": ("point", share * np.linalg.norm(end - start)),
        "spread": (("kind", "pair"), np.stack([spread(functions[kind]) for kind in KINDS])),
        "distance": ("pair", distances[first, second]),
    }
    return xr.Dataset(arrays, {"kind": list(KINDS)}, attrs=found.numbers)
