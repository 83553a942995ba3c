"""Stored prior predictive checks."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from pmbnn.data import Moons, Sine
from pmbnn.experiment.cells import Cell
from pmbnn.inference.settings import Inference
from pmbnn.models.hyperpriors import Fixed
from pmbnn.models.likelihoods import Categorical
from pmbnn.models.likelihoods import Normal as NormalNoise
from pmbnn.models.likelihoods import StudentT as StudentTNoise
from pmbnn.models.networks import Dense
from pmbnn.models.priors import Normal
from pmbnn.prediction.settings import Map, Predict
from pmbnn.prior_predictive.store import (
    StoredPrior,
    data_path,
    load_prior,
    prior_labels,
    save_prior,
    summary,
)
from pmbnn.results.store import Results, ResultsError


@pytest.fixture
def prior():
    specs = (Moons(noise=0.4), Dense(), Normal(), Fixed(scale=2.0), Categorical())
    numbers = {"constant": 0.25, "entropy_mcse": float("nan")}
    cell = Cell("toy", *specs, Inference(), Predict())
    return StoredPrior("normal", cell, Fixed(scale=3.0), numbers, ("draws",))


GROUPS = {"draws": xr.Dataset({"x": ("draw", np.arange(3))})}


def test_a_check_is_read_as_it_was_written(prior, tmp_path):
    results = Results(tmp_path)
    save_prior(results, prior, GROUPS)
    found = load_prior(results, "normal")
    assert isinstance(found.cell, Cell)
    # A number that is not finite is stored as missing.
    assert found == prior._replace(numbers={"constant": 0.25, "entropy_mcse": None})


def test_a_folder_may_be_a_relative_path(prior, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    results = Results("results/mine")
    results.prepare()
    save_prior(results, prior, GROUPS)
    assert (tmp_path / "results/mine/prior/normal.nc").is_file()


def test_a_broken_file_is_named_with_the_remedy(prior, tmp_path):
    results = Results(tmp_path)
    save_prior(results, prior, GROUPS)
    data_path(results, "normal").write_bytes(b"no netCDF")
    with pytest.raises(ResultsError, match="normal.nc` cannot be read.*`pmbnn prior`"):
        load_prior(results, "normal")


def test_small_units_of_targets_are_shown_by_their_digits(prior):
    """Of capacities in farads, a range of picofarads is not zero."""
    numbers = {"output_range": 3.21e-13, "output_range_mcse": 2e-15, "saturated": 1e-13}
    _, [row], _ = summary([prior._replace(numbers=numbers)])
    assert row[-2:] == ["0", "3.210e−13 ± 0.020e−13"]


def test_combinations_of_one_prior_are_told_apart(prior):
    """By the settings of their data, their likelihoods, and the maps they are evaluated on."""
    cells = [
        replace(prior.cell, dataset=Sine(train=rows), likelihood=likelihood)
        for rows in (20, 30)
        for likelihood in (NormalNoise(sd=0.1), NormalNoise(sd=0.5), StudentTNoise())
    ]
    maps = [Predict(map=Map(resolution=n)) for n in (20, 40)]
    cells += [prior.cell, *(replace(prior.cell, hyperprior=Fixed(), predict=p) for p in maps)]
    labels = prior_labels([prior._replace(cell=cell, tuned=None) for cell in cells])
    assert len({*labels}) == len(cells)
    assert [one.data for one in labels[:3]] == [
        f"sine, noise 1, train 20, {name}"
        for name in ("normal, sd 0.1", "normal, sd 0.5", "Student-t")
    ]
    assert labels[6].data == "moons, noise 0.4"
