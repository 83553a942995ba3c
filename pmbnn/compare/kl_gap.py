"""How far a guide's ELBO is below the log evidence, and how much of that is symmetry."""

import json
import math
import re

import numpy as np
import xarray as xr

from pmbnn.compare.symmetry import MOST_UNITS, ODD, Layer, symmetry_bound, symmetry_gap
from pmbnn.experiment.cells import Cell
from pmbnn.results.record import CellRecord

DRAWS = 100
"""Of the guide: the error of the explained part is a few hundredths of a nat."""

LAYER = re.compile(r"(weight|bias)_(\d+)(?:_z)?")
SCALE_OF_LAYER = re.compile(r"(?:layer_\d+|network)_(?:scale|variance)(?:_log__)?")


def gap_columns(fitted: CellRecord, sampled: CellRecord, trace: xr.DataTree) -> dict[str, float]:
    """Columns of a fitted cell whose posterior has a known evidence; none without it.

    ``kl_gap`` is log evidence less ELBO, in nats, with the evidence's standard error
    ``kl_gap_mcse``: the divergence of the guide from the posterior. ``symmetry_bound`` is the most
    that symmetries of the network explain of it, and ``symmetry_gap`` what they do, with its
    Monte-Carlo error ``symmetry_gap_mcse``; these are missing where they are not known.

    Parameters
    ----------
    trace
        The fitted cell's, with its group ``guide`` and the attributes of ``fit``.
    """
    if "log_evidence" not in sampled.results:
        return {}
    found = {
        "kl_gap": sampled.results["log_evidence"] - fitted.results["elbo"],
        "kl_gap_mcse": sampled.results["log_evidence_mcse"],
    }
    return found | _symmetry_columns(fitted.cell, trace)


def _symmetry_columns(cell: Cell, trace: xr.DataTree) -> dict[str, float]:
    network = cell.network
    if network.kind != "dense":
        return {}
    signs, units = network.activation in ODD, list(network.hidden)
    found = {"symmetry_bound": symmetry_bound(units, signs)}
    if cell.inference.guide != "mean_field" or len(units) > 2 or max(units) > MOST_UNITS:
        return found
    layers = _guide_layers(trace)
    if layers is None:
        return found
    explained, error = symmetry_gap(*layers, signs, DRAWS, random_seed=0)
    return found | {"symmetry_gap": explained, "symmetry_gap_mcse": error}


def _guide_layers(trace: xr.DataTree) -> tuple[list[Layer], list[Layer]] | None:
    """Means and scales of the best restart by layer; None where units have more of their own."""
    guide = trace["guide"].dataset
    best = guide.sel(restart=int(trace["fit"].attrs["best"]))
    arrays: dict[tuple[str, int], tuple[np.ndarray, np.ndarray]] = {}
    for name, start, shape in json.loads(guide.attrs["slots"]):
        matched = LAYER.fullmatch(name)
        if matched is None:
            # A scale that all units of a layer share stays where it is when they are exchanged.
            if SCALE_OF_LAYER.fullmatch(name) and math.prod(shape) == 1:
                continue
            return None
        stop = start + math.prod(shape)
        arrays[matched[1], int(matched[2])] = tuple(
            best[of].values[start:stop].reshape(shape).astype(np.float64) for of in ("loc", "scale")
        )
    numbers = sorted({number for _, number in arrays})
    return tuple(
        [Layer(arrays["weight", n][of], arrays["bias", n][of]) for n in numbers] for of in (0, 1)
    )
