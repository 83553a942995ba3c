"""Draws from priors, stored."""

import numpy as np
import xarray as xr

from pmbnn.results.priors import StoredPrior, is_stored, save_prior
from pmbnn.results.store import Results


def test_a_folder_may_be_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    results = Results("results/mine")
    results.prepare()
    prior = StoredPrior(**dict.fromkeys(StoredPrior._fields, {}) | {"name": "normal"})
    save_prior(results, prior, {"draws": xr.Dataset({"x": ("draw", np.arange(3))})})
    assert is_stored(results, "normal")
    assert (tmp_path / "results/mine/prior/normal.nc").is_file()
