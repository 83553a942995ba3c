"""Parts of stored traces: groups, images, maps over the plane, summaries of weights and scales."""

import json
import math
import re
from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Protocol

import netCDF4
import numpy as np
import xarray as xr

from pmbnn.data.arrays import Standardisation, identity_standardisation
from pmbnn.models.likelihoods import TARGET_NAME
from pmbnn.models.noise import NOISE
from pmbnn.results.present import (
    check_fits,
    reading_netcdf,
)
from pmbnn.results.store import Results

LOG_SCORE = "log_score"
"""Variable of ``test_predictions``: log-probability or log-density of each target, in nats."""

PHOTOGRAPHS = "photographs"
"""Attribute of groups whose images are shown without inverting them."""

FLATTEST, TALLEST = 0.4, 1.5
"""Shapes of maps, heights as multiples of widths, that fit on a page."""


def load_groups(results: Results, name: str, groups: Sequence[str]) -> xr.DataTree:
    """Groups of the trace of cell ``name``, those that it has, in memory.

    Raises
    ------
    FileNotFoundError
        If the cell has no trace.
    OSError
        If it cannot be read.
    """
    return load_arrays(results, name, dict.fromkeys(groups, ".*"))


def load_arrays(results: Results, name: str, wanted: Mapping[str, str]) -> xr.DataTree:
    """Arrays of groups of the trace of cell ``name``, those that it has, in memory.

    It takes a fraction of the time of xarray, which reads every array of a group several times.

    Parameters
    ----------
    results, name
        The results folder and the name of the cell.
    wanted
        Groups, each with a regular expression that the names of arrays must match. The coordinates
        of these arrays come with them.

    Raises
    ------
    FileNotFoundError
        If the cell has no trace.
    OSError
        If it cannot be read.
    """
    path = results.cells / name / "trace.nc"
    with reading_netcdf(path), netCDF4.Dataset(path) as file:
        groups = {name: file.groups[name] for name in wanted if name in file.groups}
        check_fits(sum(map(_bytes, groups.values())), path)
        arrays = {f"/{name}": _arrays(group, wanted[name]) for name, group in groups.items()}
    return xr.DataTree.from_dict(arrays)


def load_netcdf(path: Path) -> xr.Dataset:
    """The one group of a netCDF file, in memory.

    Raises
    ------
    OSError, ValueError
        If it cannot be read.
    """
    with reading_netcdf(path), xr.open_dataset(path, engine="netcdf4") as opened:
        check_fits(opened.nbytes, path)
        return opened.load()


def stored_variables(results: Results, name: str) -> dict[str, frozenset[str]]:
    """Names of the arrays of every group of a stored trace."""
    path = results.cells / name / "trace.nc"
    with reading_netcdf(path), netCDF4.Dataset(path) as file:
        return {name: frozenset(group.variables) for name, group in file.groups.items()}


def target_standardisation(trace: xr.DataTree) -> Standardisation:
    """The map from targets in their own units to those that were fitted."""
    kept = trace["constant_data"].dataset
    if "target_sd" not in kept:
        return identity_standardisation()
    return Standardisation(kept["target_mean"].values, kept["target_sd"].values)


def by_target(trace: xr.DataTree) -> dict[str, xr.DataTree]:
    """Traces of single targets, by their names; with one target the trace itself, by ``""``."""
    groups = {f"/{name}": group.dataset for name, group in trace.children.items()}
    labels = [group[TARGET_NAME].values for group in groups.values() if TARGET_NAME in group.coords]
    if not labels:
        return {"": trace}

    def alone(i: int) -> xr.DataTree:
        one = {TARGET_NAME: i}
        parts = {p: g.isel(one, drop=True, missing_dims="ignore") for p, g in groups.items()}
        return xr.DataTree.from_dict(parts)

    return {str(name): alone(i) for i, name in enumerate(labels[0])}


def _arrays(group: netCDF4.Group, pattern: str) -> xr.Dataset:
    """The arrays of a group whose names match, as xarray would read them."""
    stored = group.variables
    # Images may have a dim of their own name; labels of a dim have it alone.
    labels = {name for name in stored if stored[name].dimensions == (name,)}
    names = [name for name in stored if re.fullmatch(pattern, name) and name not in labels]
    arrays = {name: (stored[name].dimensions, _values(stored[name])) for name in names}
    dims = {dim for axes, _ in arrays.values() for dim in axes}
    coords = {dim: (dim, _values(stored[dim])) for dim in dims & labels}
    return xr.Dataset(arrays, coords, {name: group.getncattr(name) for name in group.ncattrs()})


def _bytes(group: netCDF4.Group) -> float:
    """Bytes of the arrays of a group; those of text as eight a word."""
    return sum(
        math.prod(map(float, variable.shape)) * getattr(variable.dtype, "itemsize", 8)
        for variable in group.variables.values()
    )


def _values(variable: netCDF4.Variable) -> np.ndarray:
    variable.set_auto_mask(False)
    values = variable[...]
    return values.astype(str) if values.dtype == object else values


def group_of(trace: xr.DataTree, name: str) -> xr.Dataset:
    """One group of a trace.

    Raises
    ------
    ValueError
        If the trace does not have it.
    """
    if name not in trace.children:
        names = ", ".join(sorted(trace.children)) or "none"
        raise ValueError(f"The trace must have a group `{name}`, got {names}.")
    return trace[name].dataset


def values_of(trace: xr.DataTree, group: str, name: str, *axes: Hashable) -> np.ndarray:
    """One array of a group, its axes in the given order, or as they are if none is given.

    Raises
    ------
    ValueError
        If the trace does not have the group, or the group not the array.
    """
    arrays = group_of(trace, group)
    if name not in arrays:
        raise ValueError(f"The group `{group}` must have `{name}`.")
    return arrays[name].transpose(*axes).values if axes else arrays[name].values


def images_of(trace: xr.DataTree, group: str, name: str, axis: Hashable) -> np.ndarray:
    """Images of a group for figures, ``(image, row, column)``, colours last; bytes.

    Photographs are as they are; images that are bright on black, as digits, are inverted.

    Raises
    ------
    ValueError
        As `values_of`.
    """
    pixels = values_of(trace, group, name, axis, "row", "column", ...)
    is_foreground = pixels.ndim == 3 and not group_of(trace, group).attrs.get(PHOTOGRAPHS, 0)
    return 255 - pixels if is_foreground else pixels


# Maps of a classifier over the plane, from stored traces


class Grid(Protocol):
    """Evenly spaced raw coordinates of the plane."""

    x1: np.ndarray
    x2: np.ndarray


def shape_of(grid: Grid) -> float:
    """Height of a map as a multiple of its width: a square where that would not fit on a page.

    Features of such different ranges have different units.
    """
    (left, right), (bottom, top) = edges(grid.x1), edges(grid.x2)
    shape = float((top - bottom) / (right - left))
    return shape if FLATTEST <= shape <= TALLEST else 1.0


def edges(centres: np.ndarray) -> tuple[float, float]:
    """Outer edges of the pixels around evenly spaced centres."""
    first, last = float(centres[0]), float(centres[-1])
    half = (last - first) / (len(centres) - 1) / 2
    return first - half, last + half


class PlaneMap(NamedTuple):
    """Posterior over the plane.

    ``probability`` and ``sd`` are mean and standard deviation over posterior draws of the
    first class's probability, ``(x1, x2)``; ``x1``, ``x2`` are raw coordinates, of the
    ``features`` of these names.
    """

    x1: np.ndarray
    x2: np.ndarray
    probability: np.ndarray
    sd: np.ndarray
    first_class: str
    features: tuple[str, str] = ("x1", "x2")


def plane_map(trace: xr.DataTree) -> PlaneMap:
    """Map of the first class that a trace holds.

    Raises
    ------
    ValueError
        If the trace has no group ``predictions``.
    """
    group = group_of(trace, "predictions")
    first = group.isel(output=0)
    probability, sd = (first[name].transpose("x1", "x2").values for name in ("probability", "sd"))
    name = str(first["output"].item())
    coordinates = group["x1"].values, group["x2"].values
    return PlaneMap(*coordinates, probability, sd, name, plane_features(trace))


def plane_features(trace: xr.DataTree) -> tuple[str, str]:
    """Names of the two inputs that a trace's map is over."""
    kept = group_of(trace, "predictions").attrs.get("features", '["x1", "x2"]')
    first, second = json.loads(kept)
    return first, second


# Summaries of posterior draws of the weights of a layer and of learned scales
#
# A weight is *away from zero* where the central 90 % of its draws leave zero out. It is *narrow
# about zero* where the central 90 % of its draws lie within half the layer's own scale on either
# side of zero; that scale is the root of the mean square over all draws of all weights of the
# layer. Neither changes when every weight of a layer is multiplied by the same number. A weight can
# be neither: its draws then reach past zero, and far.


COVERAGE = 0.9
"""Share of the draws that an interval holds."""

ACTIVE = 0.99
"""Share of the sum of squared sizes of a layer's units that those have which matter."""

NARROW = 0.5
"""Reach of a narrow interval on either side of zero, in units of the layer's own scale."""

WEIGHT = re.compile(r"weight_(\d+)")
SCALE = re.compile(r"(?:layer_\d+|network)_scale")
LEARNED = re.compile(rf"{SCALE.pattern}|{NOISE}|mixture_sigma_\d|layer_\d+_slab_variance")
"""Names of learned scales: those of priors, slabs among them as variances, and the noise."""


def best_restart(trace: xr.DataTree) -> int:
    """Number of the best restart, by the coordinate ``restart``."""
    return int(trace["fit"].dataset.attrs["best"])


def best_draws(trace: xr.DataTree) -> xr.Dataset:
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


def last_layer(trace: xr.DataTree) -> np.ndarray:
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
    weights = _weights(trace)
    if not weights:
        raise ValueError("The group `posterior` must have weights: weight_1, ...")
    draws = weights[max(weights)].values.astype(np.float64)
    return draws.reshape(len(draws), -1)


def switched_off(trace: xr.DataTree) -> tuple[int, int] | None:
    """Hidden units of a dense network that are switched off under the best restart, and all units.

    A unit is off where none of the weights that leave it is away from zero. None where some layer
    is not dense, or not kept.
    """
    layers, off, units = _dense_layers(trace), 0, 0
    if layers is None:
        return None
    for draws in map(np.float64, layers[1:]):
        leaving = away_from_zero(draws.reshape(len(draws), -1)).reshape(draws.shape[1:])
        off += int((~leaving.any(axis=1)).sum())
        units += len(leaving)
    return off, units


def active_units(trace: xr.DataTree) -> float | None:
    """Mean number of hidden units that matter in a draw; None as `switched_off` has it.

    The size of a unit is the norm of the weights that enter it times that of those that leave it.
    Of each layer the largest units matter that have `ACTIVE` of the sum of squared sizes. Unlike
    intervals of single weights, the number is the same whatever the order of the units.
    """
    layers = _dense_layers(trace)
    if layers is None:
        return None
    number = 0.0
    for entering, leaving in pairwise(layers):
        squares = (entering**2).sum(1, np.float64) * (leaving**2).sum(2, np.float64)
        shares = np.sort(squares, axis=1)[:, ::-1].cumsum(axis=1) / squares.sum(1, keepdims=True)
        number += float(1 + (shares < ACTIVE).sum(axis=1).mean())
    return number


def _dense_layers(trace: xr.DataTree) -> list[np.ndarray] | None:
    """Draws of the weights of all layers, ``(draw, entering, leaving)``; None unless all are dense.

    None, too, of one layer, which has no hidden units.
    """
    weights = _weights(trace)
    layers = [weights[number].values for number in sorted(weights)]
    if 1 not in weights or len(layers) < 2 or any(draws.ndim != 3 for draws in layers):
        return None
    return layers


def _weights(trace: xr.DataTree) -> dict[int, xr.DataArray]:
    """Draws of the weights of each layer under the best restart, by its number, draws first."""
    posterior = best_draws(trace)
    return {
        int(match[1]): array.transpose("draw", ...)
        for name, array in posterior.items()
        if (match := WEIGHT.fullmatch(str(name)))
    }


def learned_scales(trace: xr.DataTree) -> dict[str, float]:
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
    scales = {}
    for name, array in draws.items():
        if not LEARNED.fullmatch(name):
            continue
        for index in np.ndindex(array.shape[1:]):
            place = f"[{', '.join(map(str, index))}]" if index else ""
            scales[f"{name}{place}"] = array[(slice(None), *index)].astype(np.float64)
    return scales


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
