"""Trees have the names, dims, coordinates and types that PyMC gives those of ``pm.sample``."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from pymc.backends.arviz import to_inference_data

from pmbnn.inference.flat import value_shapes
from pmbnn.models.build import dense_classifier
from pmbnn.prediction.datatree import build_datatree

RNG = np.random.default_rng(0)


def with_labels():
    with pm.Model(coords={"obs_id": list("abcde"), "column": [3, 4]}) as model:
        x = pm.Data("x", RNG.normal(size=(5, 2)), dims=("obs_id", "column"))
        mean = x @ pm.Normal("w", dims="column") * pm.Data("scale", 2.0)
        pm.Normal("y", mean, 1.0, observed=RNG.normal(size=5), dims="obs_id")
    return model


def without_labels():
    """Labels that PyMC casts are constant data too."""
    with pm.Model() as model:
        x = pm.Data("x", RNG.normal(size=(5, 2)), dims=("observation", "column"))
        labels = pm.Data("labels", np.array([0, 1, 0, 1, 1], "int8"), dims="observation")
        w = pm.Normal("w", shape=2)
        pm.Bernoulli("y", logit_p=x @ w, observed=labels, dims="observation")
    return model


def with_dates():
    with pm.Model(coords={"day": pd.date_range("2020-01-01", periods=4)}) as model:
        pm.Poisson("n", pm.HalfNormal("mu"), observed=[1, 2, 3, 4], dims="day")
    return model


def of_this_package():
    return dense_classifier(RNG.normal(size=(6, 2)), np.arange(6) % 3, hidden=(2,))


MODELS = [with_labels, without_labels, with_dates, of_this_package]


@pytest.mark.parametrize("build", MODELS)
def test_groups_are_those_of_pymc(build):
    model = build()
    drawn = {
        v.name: RNG.normal(size=(1, 3, *shape))
        for v, shape in zip(model.free_RVs, value_shapes(model).values(), strict=True)
    }
    ours = build_datatree(model, {"posterior": drawn, "log_likelihood": {}}, {})
    theirs = to_inference_data(prior={n: a[0] for n, a in drawn.items()}, model=model)
    names = {name: "prior" if name == "posterior" else name for name in ours.children}
    assert set(names.values()) == set(theirs.children) - {"prior_predictive"}
    for name, of_pymc in names.items():
        found, expected = ours[name].to_dataset(), theirs[of_pymc].to_dataset()
        assert found.equals(expected)
        assert {n: v.dtype for n, v in found.variables.items()} == {
            n: v.dtype for n, v in expected.variables.items()
        }


def test_rows_are_selected_by_their_label():
    tree = build_datatree(with_labels(), {"posterior": {}, "log_likelihood": {}}, {})
    assert tree["observed_data"]["y"].sel(obs_id="c").shape == ()
    assert tree["constant_data"]["x"].sel(obs_id="c", column=4).shape == ()


@pytest.mark.parametrize(
    ("labels", "second"),
    [
        (pd.MultiIndex.from_product([["a"], [1, 2]]), "('a', 2)"),
        (pd.date_range("2020-01-01", periods=2, tz="Europe/Berlin"), "2020-01-02 00:00:00+01:00"),
        (pd.period_range("2020-01", periods=2, freq="M"), "2020-02"),
        ([("a", 1), "b"], "b"),
    ],
)
def test_labels_that_netcdf_does_not_have_are_text(labels, second, tmp_path):
    with pm.Model(coords={"day": labels}) as model:
        pm.Poisson("n", pm.HalfNormal("mu"), observed=[1, 2], dims="day")
    tree = build_datatree(model, {"posterior": {}, "log_likelihood": {}}, {})
    assert tree["observed_data"]["day"].values[1] == second
    tree.to_netcdf(tmp_path / "tree.nc")
