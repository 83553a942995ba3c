"""What posterior draws say of the weights of a layer and of learned scales: NumPy in, numbers out.

A weight is *away from zero* where the central 90 % of its draws leave zero out. It is *narrow
about zero* where the central 90 % of its draws lie within half the layer's own scale on either
side of zero; that scale is the root of the mean square over all draws of all weights of the
layer. Neither changes when every weight of a layer is multiplied by the same number. A weight can
be neither: its draws then reach past zero, and far.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from pmbnn.models.likelihoods import NOISE
from pmbnn.results.reading import group_of

if TYPE_CHECKING:
    import xarray as xr

COVERAGE = 0.9
"""Share of the draws that an interval holds."""

NARROW = 0.5
"""Reach of a narrow interval on either side of zero, in units of the layer's own scale."""

WEIGHT = re.compile(r"weight_(\d+)")
SCALE = re.compile(r"(?:layer_\d+|network)_scale")
LEARNED = re.compile(rf"{SCALE.pattern}|{NOISE}|mixture_sigma_\d")
"""Names of what is learned of scales: those of priors, and the noise."""


def best_restart(trace: "xr.DataTree") -> int:
    """Number of the best restart, by the coordinate ``restart``."""
    return int(trace["fit"].dataset.attrs["best"])


def best_draws(trace: "xr.DataTree") -> "xr.Dataset":
    """Draws of the best restart alone, whatever mixture the cell predicts with.

    Weights of different restarts are of different modes: taken together they say little. Of a
    sampler they are those of all chains, whose modes are the posterior's.

    Raises
    ------
    ValueError
        If the trace has neither of the groups ``restarts`` and ``posterior``.
    """
    if "restarts" in trace.children:
        return group_of(trace, "restarts").sel(restart=best_restart(trace))
    posterior = group_of(trace, "posterior")
    if posterior.sizes["chain"] == 1:
        return posterior.isel(chain=0)
    return (
        posterior.stack(every=("chain", "draw"))
        .drop_vars(["every", "chain", "draw"])
        .rename(every="draw")
    )


def last_layer(trace: "xr.DataTree") -> np.ndarray:
    """Draws of the last layer's weights under the best restart, ``(draw, weight)``.

    Parameters
    ----------
    trace
        Trace with the groups ``posterior`` and ``fit``, and ``restarts`` if it has several.

    Raises
    ------
    ValueError
        If the posterior holds no weights.
    """
    posterior = best_draws(trace)
    found = {int(m[1]): name for name in posterior if (m := WEIGHT.fullmatch(str(name)))}
    if not found:
        raise ValueError("The group `posterior` must have weights: weight_1, ...")
    draws = posterior[found[max(found)]].transpose("draw", ...)
    return draws.values.reshape(draws.sizes["draw"], -1).astype(np.float64)


def switched_off(trace: "xr.DataTree") -> tuple[int, int] | None:
    """Hidden units of a dense network that are switched off under the best restart, and all units.

    A unit is off where none of the weights that leave it is away from zero. None where some layer
    is not dense, or not kept.
    """
    posterior, off, units = best_draws(trace), 0, 0
    found = {int(m[1]): name for name in posterior if (m := WEIGHT.fullmatch(str(name)))}
    if 1 not in found or len(found) < 2:
        return None
    for number in sorted(found)[1:]:
        draws = posterior[found[number]].transpose("draw", ...).values.astype(np.float64)
        if draws.ndim != 3:
            return None
        leaving = away_from_zero(draws.reshape(len(draws), -1)).reshape(draws.shape[1:])
        off += int((~leaving.any(axis=1)).sum())
        units += len(leaving)
    return off, units


def learned_scales(trace: "xr.DataTree") -> dict[str, float]:
    """Posterior median of every learned scale under the best restart, by name.

    The scales of a layer's units are brought together by their geometric mean. Fixed scales are
    not in a trace.
    """
    posterior = best_draws(trace)
    names = sorted(str(name) for name in posterior if SCALE.fullmatch(str(name)))
    medians = {name: posterior[name].median("draw").values for name in names}
    return {name: float(np.exp(np.log(median).mean())) for name, median in medians.items()}


def scale_draws(draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Draws of every learned scale by name, those of units one by one, ``(draw,)`` each."""
    found = {}
    for name, array in draws.items():
        if not LEARNED.fullmatch(name):
            continue
        for index in np.ndindex(array.shape[1:]):
            place = f"[{', '.join(map(str, index))}]" if index else ""
            found[f"{name}{place}"] = array[(slice(None), *index)].astype(np.float64)
    return found


def central_interval(draws: np.ndarray, coverage: float = COVERAGE) -> tuple[np.ndarray, ...]:
    """Both ends of the central interval of each weight's draws, ``(draw, weight)``."""
    tail = (1 - coverage) / 2
    low, high = np.quantile(draws, [tail, 1 - tail], axis=0)
    return low, high


def away_from_zero(draws: np.ndarray) -> np.ndarray:
    """Whether each weight is away from zero; see above."""
    low, high = central_interval(draws)
    return (low > 0) | (high < 0)


def narrow_about_zero(draws: np.ndarray) -> np.ndarray:
    """Whether each weight is narrow about zero; see above."""
    low, high = central_interval(draws)
    reach = NARROW * np.sqrt(np.mean(draws**2))
    return (low < 0) & (high > 0) & (np.maximum(-low, high) <= reach)


def excess_kurtosis(values: np.ndarray) -> float:
    """Fourth standardised moment less 3: 0 for a normal distribution; NaN for equal values.

    With ``n`` values it is at most ``n - 2 + 1 / (n - 1) - 3``, where one stands out from equals.
    """
    from scipy import stats

    return float(stats.kurtosis(values)) if np.ptp(values) > 0 else float("nan")


def hoyer_sparsity(values: np.ndarray) -> float:
    """Hoyer's measure: 0 if all are equally large, 1 if one alone is not zero.

    References
    ----------
    Hoyer (2004), Non-negative matrix factorization with sparseness constraints, section 3.1.
    """
    size, largest = values.size, np.max(np.abs(values))
    if size < 2 or largest == 0:
        return float("nan")
    scaled = np.abs(values) / largest
    ratio = scaled.sum() / np.sqrt(np.sum(scaled**2))
    return float((np.sqrt(size) - ratio) / (np.sqrt(size) - 1))
