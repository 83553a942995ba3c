"""Draws as ArviZ takes them, with the dims and coordinates of their model."""

from collections.abc import Mapping

import numpy as np
import pymc as pm
import xarray as xr

from pmbnn.inference.batches import model_values

type Group = Mapping[str, np.ndarray]


def build_datatree(
    model: pm.Model, groups: Mapping[str, Group], attrs: Mapping[str, Mapping[str, object]]
) -> xr.DataTree:
    """Draws of a model's variables, and what the model holds beside them.

    Parameters
    ----------
    groups
        Arrays ``(chain, draw, *shape)`` by name, by the name of their group; empty groups are left
        out.
    attrs
        Of the groups.

    Returns
    -------
    xr.DataTree
        The groups, ``observed_data`` and ``constant_data``.
    """
    # Half a second of start-up that fits in a sweep do not need.
    import arviz_base

    names = model.named_vars_to_dims
    dims = {name: [d for d in found if d is not None] for name, found in names.items()}
    dims = {name: found for name, found in dims.items() if len(found) == model[name].ndim}
    # Of several targets, a row has one log-likelihood.
    by_row = {n: dims[n][: a.ndim - 2] for n, a in groups["log_likelihood"].items() if n in dims}
    tree = arviz_base.from_dict(
        {name: group for name, group in groups.items() if group},
        coords={name: list(labels) for name, labels in model.coords.items() if labels},
        dims=dims | by_row,
        attrs=attrs,
    )
    observed = {v.name: model.rvs_to_values[v].eval() for v in model.observed_RVs}
    for name, group in (("observed_data", observed), ("constant_data", model_values(model))):
        if group:
            arrays = {n: (_dims(n, a.ndim, dims), a) for n, a in group.items()}
            tree[name] = xr.DataTree(xr.Dataset(arrays))
    return tree


def _dims(name: str, ndim: int, dims: Mapping[str, list[str]]) -> list[str]:
    """Dims of an array of the model's data; numbered ones where the model names none."""
    found = dims.get(name, ())
    return list(found) if len(found) == ndim else [f"{name}_dim_{axis}" for axis in range(ndim)]
