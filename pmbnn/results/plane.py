"""Maps of a classifier over the plane, from stored traces."""

import json
from typing import NamedTuple

import numpy as np
import xarray as xr

from pmbnn.results.reading import group_of


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
