"""Draws as an ArviZ tree, with the dims and coordinates that PyMC gives them."""

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

from pmbnn.inference.convergence import final_mean
from pmbnn.inference.result import Fit

type Group = Mapping[str, np.ndarray]


def build_datatree(
    model: pm.Model, groups: Mapping[str, Group], attrs: Mapping[str, Mapping[str, object]]
) -> xr.DataTree:
    """Draws of a model's variables, with its observed and constant data.

    Parameters
    ----------
    groups
        Arrays ``(chain, draw, *shape)`` by name, by the name of their group; empty groups are left
        out.
    attrs
        Attributes of the groups.

    Returns
    -------
    xr.DataTree
        The groups, ``observed_data`` and ``constant_data``, the last two as ``pm.sample`` has them.
        Labels that netCDF cannot have are text: pairs of a MultiIndex, times with a zone.
    """
    # Half a second of start-up that fits in a sweep do not need.
    import arviz_base
    from pymc.backends.arviz import find_constants

    dims = {name: list(axes) for name, axes in model.named_vars_to_dims.items()}
    coords = {dim: _labels(some) for dim, some in model.coords.items() if some is not None}
    # Of several targets, a row has one log-likelihood.
    by_row = {n: dims[n][: a.ndim - 2] for n, a in groups["log_likelihood"].items() if n in dims}
    tree = arviz_base.from_dict(
        {name: group for name, group in groups.items() if group},
        coords=coords,
        dims=dims | by_row,
        attrs=attrs,
    )
    # Nothing is computed but casts: other modes compile for seconds.
    mode = "FAST_COMPILE"
    observed = {v.name: model.rvs_to_values[v].eval(mode=mode) for v in model.observed_RVs}
    for name, group in (("observed_data", observed), ("constant_data", find_constants(model))):
        if group:
            dataset = arviz_base.dict_to_dataset(group, coords=coords, dims=dims, sample_dims=[])
            tree[name] = xr.DataTree(dataset)
    return tree


def _labels(labels: Sequence[Hashable]) -> np.ndarray:
    """Labels of a dim as netCDF has them: of kinds that it does not have, their text."""
    index = pd.Index(labels, tupleize_cols=False)
    is_plain = isinstance(index.dtype, np.dtype) and index.dtype.kind in "biufmM"
    return index.to_numpy() if is_plain else np.array([str(label) for label in labels])


def history_of(fits: Sequence[Fit]) -> xr.Dataset:
    """ELBO of restarts during their fits, with its two parts, ``(restart, window)``, nats.

    A restart that stopped early ends in not-a-number. Where means moved on after the last window,
    ``elbo_at_end`` has the ELBO of each restart there, ``(restart,)``.
    """
    longest = max((fit.history.step for fit in fits), key=len)
    names, shape = ("elbo", "log_likelihood", "kl"), (len(fits), len(longest))
    arrays = {name: np.full(shape, np.nan) for name in names}
    for name, array in arrays.items():
        for row, fit in zip(array, fits, strict=True):
            values = getattr(fit.history, name)
            row[: len(values)] = values
    ends = {}
    if any(fit.elbo != final_mean(fit.history.elbo) for fit in fits if not fit.failed):
        ends["elbo_at_end"] = ("restart",), [fit.elbo for fit in fits]
    return xr.Dataset(
        {name: (("restart", "window"), array) for name, array in arrays.items()}
        | {"step": (("window",), longest)}
        | ends,
        {"restart": range(len(fits))},
        {"status": [fit.status for fit in fits]},
    )
