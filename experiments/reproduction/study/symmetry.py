"""How much of a guide's divergence from the posterior the symmetries of a dense network explain.

Hidden units may be exchanged, and those of an odd activation turn their sign, without changing the
network's function. A posterior under exchangeable, centred priors is the same at all of these
places, a guide of one mode at one of them: its Kullback-Leibler divergence is as much too large as
it misses there. What is left is the guide's own.
"""

import json
import math
import re
from collections.abc import Sequence
from itertools import permutations, product
from math import lgamma, log
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from scipy.special import logsumexp

from pmbnn.compare.agreement import kl_gap
from pmbnn.results.loading import ExperimentResults
from pmbnn.results.names import method_name, pairs, posterior_row
from pmbnn.results.reading import load_arrays
from pmbnn.results.record import CellRecord
from pmbnn.results.store import Results
from pmbnn.results.tables import table_of

MOST_UNITS = 6
"""Largest hidden layer whose exchanges are summed over: 46,080 with signs."""

ODD = ("tanh",)
"""Activations that turn their sign with their input."""

BLOCK = 512
"""Symmetries of the first layer that are in memory at once."""

DRAWS = 100
"""Of the guide: the error of the explained part is a few hundredths of a nat."""

LAYER = re.compile(r"(weight|bias)_(\d+)(?:_z)?")
SCALE_OF_LAYER = re.compile(r"(?:layer_\d+|network)_(?:scale|variance)(?:_log__)?")


class Layer(NamedTuple):
    """Means or scales of a layer's weights ``(input, unit)`` and biases ``(unit,)``."""

    weight: np.ndarray
    bias: np.ndarray


# The table


def symmetry_table(results: ExperimentResults) -> pd.DataFrame:
    """A row for each fit of a dense network whose posterior has a known evidence.

    Columns: ``sweep``, ``name``, the settings that name the posterior, ``guide``, ``reference``
    (the sampled cell), and ``kl_gap`` with ``kl_gap_mcse``, as ``agreement.csv`` has them.
    ``symmetry_bound`` is the most that symmetries of the network explain of the gap, in nats, and
    ``symmetry_gap`` what they do, with its Monte-Carlo error ``symmetry_gap_mcse``; these two are
    missing where they are not known.
    """
    return table_of(
        _row(results.results, fitted, sampled)
        for fitted, sampled in pairs(results.records)
        if "log_evidence" in sampled.results and fitted.cell.network.kind == "dense"
    )


def _row(results: Results, fitted: CellRecord, sampled: CellRecord) -> dict[str, Any]:
    return {
        "sweep": fitted.sweep,
        "name": fitted.name,
        **posterior_row(fitted.settings),
        "guide": method_name(fitted.cell.inference),
        "reference": sampled.name,
        **kl_gap(fitted, sampled),
        **_symmetry_columns(results, fitted),
    }


def _symmetry_columns(results: Results, fitted: CellRecord) -> dict[str, float]:
    cell = fitted.cell
    signs, units = cell.network.activation in ODD, list(cell.network.hidden)
    columns = {"symmetry_bound": symmetry_bound(units, signs)}
    if cell.inference.guide != "mean_field" or len(units) not in (1, 2) or max(units) > MOST_UNITS:
        return columns
    trace = load_arrays(results, fitted.name, {"guide": "loc|scale", "fit": ""})
    layers = _guide_layers(trace)
    if layers is None:
        return columns
    explained, error = symmetry_gap(*layers, signs, DRAWS, random_seed=0)
    return columns | {"symmetry_gap": explained, "symmetry_gap_mcse": error}


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


# How much symmetries explain


def symmetry_bound(units: Sequence[int], signs: bool) -> float:
    """Most that symmetries of hidden layers can explain: the log of their number, in nats."""
    return sum(lgamma(n + 1) + n * log(2) * signs for n in units)


def symmetry_gap(
    mean: Sequence[Layer], scale: Sequence[Layer], signs: bool, draws: int, random_seed: int
) -> tuple[float, float]:
    """E_q[log q − log q symmetrised] of a mean-field guide with its Monte-Carlo error, in nats.

    The symmetrised guide is the mean of the guide over all symmetries: zero is explained where the
    guide has the symmetries itself, the log of their number where its modes lie apart.

    Parameters
    ----------
    mean, scale
        Of the normal guide, layer after layer: of one or two hidden layers and the outputs.
    signs
        Whether units may turn their sign.

    Raises
    ------
    ValueError
        If there are more than two hidden layers, or too many units to sum over.
    """
    hidden = [len(layer.bias) for layer in mean[:-1]]
    if len(hidden) not in (1, 2) or max(hidden) > MOST_UNITS:
        raise ValueError(
            f"`mean` must have 1 or 2 hidden layers of at most {MOST_UNITS} units, got {hidden}."
        )
    rng, gaps = np.random.default_rng(random_seed), np.empty(draws)
    for i in range(draws):
        drawn = [
            Layer(*(m + s * rng.standard_normal(m.shape) for m, s in zip(*layer, strict=True)))
            for layer in zip(mean, scale, strict=True)
        ]
        gaps[i] = -_log_mean_ratio(drawn, mean, scale, signs)
    return float(gaps.mean()), float(gaps.std(ddof=1) / np.sqrt(draws))


def _log_mean_ratio(drawn, mean, scale, signs: bool) -> float:
    """Log of the mean over symmetries of the guide's density at a draw moved, over that at it."""
    # Where unit `i` of the draw stands in the place of unit `j`, with sign `s`, (i, j, s).
    arriving = _incoming(drawn[0], mean[0], scale[0], signs)
    flat = ([array for layer in layers for array in layer] for layers in (drawn, mean, scale))
    here = sum(map(_log_density, *flat))
    places = len(drawn) - 1
    leaving = _outgoing(drawn[places].weight, mean[places].weight, scale[places].weight, signs)
    rest = _log_density(drawn[places].bias, mean[places].bias, scale[places].bias)
    units = [len(layer.bias) for layer in drawn[:-1]]
    total = -symmetry_bound(units, signs) + rest - here
    if places == 1:
        return total + _log_permanent(logsumexp(arriving + leaving, axis=2)[None])[0]
    return total + _over_two_layers(arriving, leaving, drawn[1], mean[1], scale[1], signs)


def _over_two_layers(arriving, leaving, drawn: Layer, mean: Layer, scale: Layer, signs) -> float:
    """Log of the sum over the symmetries of both layers: of the first one by one."""
    # The weight from unit `i` to unit `k` of the draw in the place of that from `j` to `l`,
    # its sign turned or not: (i, j, k, l, s).
    kinds = _signs(signs)
    moved = kinds * drawn.weight[:, None, :, None, None]
    between = _log_normal(
        moved, mean.weight[None, :, None, :, None], scale.weight[None, :, None, :, None]
    )
    biases = _log_normal(
        kinds * drawn.bias[:, None, None], mean.bias[None, :, None], scale.bias[None, :, None]
    )
    ends = biases + leaving
    size, turns = len(arriving), range(len(kinds))
    every = np.array(list(product(permutations(range(size)), product(turns, repeat=size))))
    parts = []
    for start in range(0, len(every), BLOCK):
        block = every[start : start + BLOCK]
        # Unit `order[j]` of the draw in the place of unit `j`, (symmetry, place).
        order, turned = block[:, 0], block[:, 1]
        place = np.arange(size)
        first = arriving[order, place, turned].sum(axis=1)
        # A weight between two units that both turn keeps its sign.
        by_sign = [between[order, place, :, :, turned ^ s].sum(axis=1) for s in turns]
        pairs = logsumexp(np.stack(by_sign, axis=-1) + ends, axis=-1)
        parts.append(first + _log_permanent(pairs))
    return float(logsumexp(np.concatenate(parts)))


def _incoming(drawn: Layer, mean: Layer, scale: Layer, signs: bool) -> np.ndarray:
    """Log-density of unit `i`'s weights and bias in the place of unit `j`'s, ``(i, j, sign)``."""
    kinds = _signs(signs)
    weights = _log_normal(
        kinds * drawn.weight[:, :, None, None], mean.weight[:, None, :, None],
        scale.weight[:, None, :, None],
    ).sum(axis=0)  # fmt: skip
    biases = _log_normal(
        kinds * drawn.bias[:, None, None], mean.bias[None, :, None], scale.bias[None, :, None]
    )
    return weights + biases


def _outgoing(drawn, mean, scale, signs: bool) -> np.ndarray:
    """Log-density of the weights from unit `i` in the place of those from `j`, ``(i, j, sign)``."""
    moved = _signs(signs) * drawn[:, None, :, None]
    return _log_normal(moved, mean[None, :, :, None], scale[None, :, :, None]).sum(axis=2)


def _signs(signs: bool) -> np.ndarray:
    return np.array([1.0, -1.0] if signs else [1.0])


def _log_density(drawn, mean, scale) -> float:
    return float(_log_normal(drawn, mean, scale).sum())


def _log_normal(value, mean, scale) -> np.ndarray:
    # Without the constant, which all of a ratio share.
    return -0.5 * ((value - mean) / scale) ** 2 - np.log(scale)


def _log_permanent(logs: np.ndarray) -> np.ndarray:
    """Log of the permanent of the matrices exp(`logs`), ``(matrix, row, column)``."""
    size = logs.shape[-1]
    orders = np.array(list(permutations(range(size))))
    return logsumexp(logs[:, orders, np.arange(size)].sum(axis=-1), axis=-1)
