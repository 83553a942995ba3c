"""Posteriors written and read back: the same draws, and clear errors."""

import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pmbnn as pb
from pmbnn.inference.guides import MeanField
from pmbnn.inference.samplers.chains import Chains, Convergence, Evidence, Samples
from pmbnn.inference.samplers.settings import Mclmc
from pmbnn.models.build import dense_classifier
from pmbnn.prediction import posterior_file
from pmbnn.prediction.draws import GuideDraws, KeptDraws
from pmbnn.prediction.posterior import read
from pmbnn.prediction.posterior_file import save

rng = np.random.default_rng(0)
X = rng.normal(size=(9, 2))
KEY = np.array([3, 1, 4, 1], np.uint32)


def plain_model(
    sigma="sigma", shape=(2,), first="mu", scale=1.0, y=X[:, 0], observed="y", potential=0.0
):
    """A model that is not one of this package."""
    with pm.Model() as model:
        mu = pm.Normal(first, 0.0, scale, shape=shape)
        pm.Normal(observed, mu.sum(), pm.HalfNormal(sigma), observed=y)
        if potential:
            pm.Potential("potential", potential * mu.sum())
    return model


def made_guide(origin, size, restarts=2):
    """A posterior with guides that were not fitted."""
    history = xr.Dataset(
        {"elbo": (("restart", "window"), np.arange(20.0).reshape(2, 10))},
        {"restart": range(2)},
        {"status": ["converged"] * 2},
    )
    parameters = {"loc": rng.normal(size=size), "scale": np.full(size, 0.5)}
    sources = {i: GuideDraws(MeanField(size), parameters, KEY + i) for i in range(restarts)}
    weights = {0: 0.25, 1: 0.75}
    words = ("converged", "made", "two guides")
    return pb.Posterior(
        origin, pb.Inference(restarts=2), sources, weights, 1, *words, 30, history=history
    )


def made_chains(origin, size):
    values = rng.normal(size=(2, 8, size))
    statistics = {"lp": rng.normal(size=(2, 8)), "diverging": np.zeros((2, 8), bool)}
    chains = Chains(values, statistics, np.zeros(2, bool))
    samples = Samples(chains, "undecided", "made", Convergence(1.1, np.inf, 8), {"step_size": 0.5})
    # In an order of their own, which the file has to keep.
    sources = {i: KeptDraws(of_chain[::-1]) for i, of_chain in enumerate(values)}
    words = ("undecided", "made", "two chains")
    weights = dict.fromkeys(sources, 0.5)
    return pb.Posterior(origin, Mclmc(), sources, weights, 0, *words, 8, "float64", samples=samples)


@pytest.fixture(scope="module")
def guides():
    return made_guide(plain_model(), 3)


NETWORK = {"x": X, "y": np.arange(9) % 2, "hidden": (2,)}


@pytest.fixture(scope="module")
def network_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("network") / "network.nc"
    made_guide(dense_classifier(**NETWORK), 12).save(path)
    return path


@pytest.fixture
def file(guides, tmp_path):
    guides.save(tmp_path / "posterior.nc")
    return tmp_path / "posterior.nc"


def assert_same_draws(found, posterior):
    for name, drawn in posterior.sample(7).items():
        np.testing.assert_array_equal(found.sample(7)[name], drawn)
    np.testing.assert_array_equal(found.log_joint(7), posterior.log_joint(7))
    assert repr(found) == repr(posterior)


def test_a_guide_is_read_back(guides, file):
    found = pb.load(file, plain_model())
    assert_same_draws(found, guides)
    assert (found.weights, found.best, found.elbo) == (guides.weights, 1, guides.elbo)
    assert found.settings == guides.settings
    kept = found.to_datatree()
    assert kept["posterior"].sizes["draw"] == 30
    np.testing.assert_array_equal(kept["posterior"]["mu"], guides.to_datatree()["posterior"]["mu"])
    assert kept["posterior"].attrs["draws_of"] == "two guides"
    assert "pmbnn" not in kept.children
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_draws_are_of_each_guide_as_often_as_its_weight_says(guides):
    every = guides.sample(400)["mu"]
    alone = [
        replace(guides, weights={i: 1.0}, best=guides.best).sample(400)["mu"]
        for i in guides.sources
    ]
    first = (every == alone[0]).all(axis=1)
    assert (first | (every == alone[1]).all(axis=1)).all()
    assert 60 < first.sum() < 140


def test_chains_are_read_back(tmp_path):
    posterior = made_chains(plain_model(), 3)
    # Known of more draws than are kept, as of a stored cell.
    samples = replace(posterior.samples, evidence=Evidence(-3.5, 0.1))
    posterior = replace(posterior, samples=samples)
    posterior.save(tmp_path / "chains.nc")
    found = pb.load(tmp_path / "chains.nc", plain_model())
    assert_same_draws(found, posterior)
    for number, source in posterior.sources.items():
        np.testing.assert_array_equal(found.sources[number].values, source.values)
    assert found.log_evidence == Evidence(-3.5, 0.1)
    assert found.sample()["mu"].shape == (16, 2)
    assert found.convergence == posterior.convergence
    assert found.samples.tuned == {"step_size": 0.5}
    assert found.history is None and np.isnan(found.elbo) and np.isnan(found.pareto_k)
    for name, array in posterior.samples.chains.statistics.items():
        np.testing.assert_array_equal(found.samples.chains.statistics[name], array)
        assert found.to_datatree()["sample_stats"][name].dtype == array.dtype
    assert found.to_datatree(3)["sample_stats"]["lp"].shape == (2, 3)


def test_a_network_needs_no_model(tmp_path):
    model = dense_classifier(X, np.arange(9) % 2, hidden=(2,), hyperprior="half_normal")
    posterior = made_guide(model, 14)
    posterior.save(tmp_path / "network.nc")
    found = pickle.loads(pickle.dumps(pb.load(tmp_path / "network.nc")))
    assert_same_draws(found, posterior)
    np.testing.assert_array_equal(found.predict_proba(X), posterior.predict_proba(X))
    for one in (found, pb.load(tmp_path / "network.nc", model)):
        assert one.coords["feature"] == ("x1", "x2")


@pytest.mark.slow
def test_a_network_with_more_in_it_is_a_model_of_its_own(tmp_path):
    model = dense_classifier(X, np.arange(9) % 2, hidden=(2,))
    with model:
        pm.Deterministic("twice", 2 * model["bias_2"])
    made_guide(model, 12).save(tmp_path / "network.nc")
    with pytest.raises(ValueError, match="`model` must be given for"):
        pb.load(tmp_path / "network.nc")
    assert "twice" in pb.load(tmp_path / "network.nc", model).sample(2)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"shape": (3,)}, r"`mu` of shape \(2,\), got `mu` of shape \(3,\)"),
        ({"first": "nu"}, r"`mu` of shape \(2,\), got `nu` of shape \(2,\)"),
        ({"sigma": "scale"}, r"`sigma_log__` of shape \(\), got `scale_log__` of shape \(\)"),
    ],
)
def test_a_model_that_does_not_fit(file, changes, said):
    with pytest.raises(ValueError, match=said):
        pb.load(file, plain_model(**changes))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scale": 2.0}, r"prior and potentials differs, (-?[\d.]+) stored, (-?[\d.]+) now"),
        ({"y": X[:, 1]}, r"log-likelihood of `y` differs, .* stored, .* now.* likelihood or data"),
        pytest.param(
            {"y": X[:5, 0]},
            r"log-likelihood of `y` differs, .* stored, .* now.* likelihood or data",
            marks=pytest.mark.slow,
        ),
        ({"scale": np.nan}, r"prior and potentials differs, .* stored, -inf now"),
        ({"potential": np.nan}, r"prior and potentials differs, .* stored, not a number now"),
        ({"observed": "z"}, r"observed variables of the posterior in .*: y, got z"),
    ],
)
def test_a_model_of_another_density(file, changes, said):
    with pytest.raises(ValueError, match=said):
        pb.load(file, plain_model(**changes))


@pytest.mark.slow
def test_a_model_in_single_precision_is_the_same(file, guides):
    found = pb.load(file, plain_model(y=X[:, 0].astype(np.float32)))
    np.testing.assert_array_equal(found.sample(3)["mu"], guides.sample(3)["mu"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hyperprior": pb.Fixed(scale=2.0)}, "the hyperprior of the posterior .*1.0.* got .*2.0"),
        ({"prior": "laplace"}, "the prior of the posterior in .*'normal'.* got .*'laplace'"),
        ({"x": X + 1}, "the training rows of the posterior .* got others: `x` differs"),
        ({"y": np.arange(9) // 5}, "the training rows of the posterior .* got others: `y` differs"),
    ],
)
def test_another_network(network_file, changes, said):
    with pytest.raises(ValueError, match=said):
        pb.load(network_file, dense_classifier(**NETWORK | changes))


def test_another_model_with_the_variables_of_a_network(network_file):
    model = dense_classifier(**NETWORK)
    with model:
        pm.Potential("more", model["bias_2"].sum())
    with pytest.raises(ValueError, match=r"must be left out for .*\.nc`, or be the network that"):
        pb.load(network_file, model)


def test_models_that_are_none(file):
    with pytest.raises(ValueError, match="`model` must be given for .*posterior.nc"):
        pb.load(file)
    with pytest.raises(TypeError, match="`model` must be a pm.Model, got dict"):
        pb.load(file, {})


def test_files_that_are_none(file, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.nc"):
        pb.load(tmp_path / "none.nc")
    (tmp_path / "text.nc").write_text("no netCDF")
    with pytest.raises(ValueError, match=r"text\.nc` is no file of a posterior, or is damaged"):
        pb.load(tmp_path / "text.nc")
    cut = tmp_path / "cut.nc"
    cut.write_bytes(file.read_bytes()[:5_000])
    with pytest.raises(ValueError, match=r"cut\.nc` is no file of a posterior, or is damaged"):
        pb.load(cut)
    xr.Dataset({"a": 1}).to_netcdf(tmp_path / "other.nc", engine="netcdf4")
    with pytest.raises(ValueError, match="it has no group `pmbnn`"):
        pb.load(tmp_path / "other.nc")


def test_another_format_is_refused(guides, tmp_path, monkeypatch):
    monkeypatch.setattr(posterior_file, "FORMAT", 99)
    guides.save(tmp_path / "later.nc")
    monkeypatch.undo()
    with pytest.raises(ValueError, match="must be in format 4, got format 99"):
        pb.load(tmp_path / "later.nc", plain_model())


def test_a_file_that_lacks_something_is_damaged(guides, tmp_path, monkeypatch):
    whole = posterior_file._of_posterior
    monkeypatch.setattr(posterior_file, "_of_posterior", lambda p: whole(p).drop_vars("draw_key"))
    guides.save(tmp_path / "less.nc")
    with pytest.raises(
        ValueError, match=r"less\.nc` is damaged, or of another version: .*draw_key"
    ):
        pb.load(tmp_path / "less.nc", plain_model())


def test_what_cannot_be_written_leaves_what_was_there(guides, file, monkeypatch):
    before = file.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pmbnn.core.files.flush", full)
    with pytest.raises(OSError, match="No space left"):
        guides.save(file)
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_arrays_of_others_are_kept_beside(guides, tmp_path):
    save(guides, tmp_path / "more.nc", xr.Dataset({"labels": ("label", [1, 2])}, attrs={"a": 1}))
    found, further = read(tmp_path / "more.nc", plain_model())
    assert further["labels"].values.tolist() == [1, 2] and further.attrs == {"a": 1}
    assert "labels" not in found.to_datatree()["posterior"]


FRESH = """
import numpy as np, pmbnn as pb
found = pb.load("network.nc")
np.savez("found.npz", proba=found.predict_proba(np.load("x.npy")), **found.sample(5))
"""


@pytest.mark.slow
def test_a_fresh_process_draws_the_same_bits(tmp_path):
    model = dense_classifier(X, np.arange(9) % 2, hidden=(2,))
    posterior = pb.fit(model, steps=50, restarts=2, progress=False)
    posterior.save(tmp_path / "network.nc")
    np.save(tmp_path / "x.npy", X)
    subprocess.run([sys.executable, "-c", FRESH], cwd=tmp_path, check=True, timeout=300)
    with np.load(tmp_path / "found.npz") as found:
        np.testing.assert_array_equal(found["proba"], posterior.predict_proba(X))
        for name, drawn in posterior.sample(5).items():
            np.testing.assert_array_equal(found[name], drawn)
