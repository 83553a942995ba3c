"""Networks as scikit-learn's estimators: what they predict, keep, and how they are shared."""

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from joblib.externals.loky import get_reusable_executor
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tiers import slow_but

import pmbnn as pb
from pmbnn.estimators import base
from pmbnn.inference.engines import ENGINES

FEW = {"hidden": (3,), "steps": 200, "draws": 50}
SAMPLER = {"engine": "mclmc", "settings": {"chains": 2, "draws": 20, "tuning": 200, "thin": 2}}


def labelled(rows=60, seed=0):
    """Inputs of three names, and labels that two of them decide."""
    rng = np.random.default_rng(seed)
    x = pd.DataFrame(rng.normal(3, 2, (rows, 3)), columns=["age", "height", "weight"])
    return x, np.where(x["age"] + x["height"] > 6, "tall", "small")


def numbers(rows=60):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, 2))
    return x, 100 + 20 * x[:, 0] + rng.normal(0, 2, rows)


@pytest.fixture(scope="module")
def classifier():
    return pb.BNNClassifier(**FEW).fit(*labelled())


@pytest.fixture(scope="module")
def regressor():
    return pb.BNNRegressor(**FEW | {"steps": 2000}).fit(*numbers())


@pytest.fixture(scope="module")
def sampled():
    return pb.BNNClassifier(**FEW | SAMPLER, random_state=3).fit(*labelled())


@pytest.mark.slow
def test_chains_that_diverged_are_reported():
    x, y = numbers()
    settings = FEW | SAMPLER | {"activation": "relu", "standardise": False}
    regressor = pb.BNNRegressor(**settings).fit(x * 1e30, y)
    assert regressor.status_ == "diverged"
    assert regressor.reason_.startswith("2 of 2 chains met")
    for predict in (regressor.predict, lambda x: regressor.predict(x, return_std=True)):
        with pytest.raises(ValueError, match=r"must have draws of the posterior, but 2 of 2"):
            predict(x)


# Predictions


def test_labels_and_names_are_kept(classifier):
    x, y = labelled()
    assert classifier.classes_.tolist() == ["small", "tall"]
    assert classifier.feature_names_in_.tolist() == list(x.columns)
    assert set(classifier.predict(x)) == {"small", "tall"}
    assert classifier.score(x, y) > 0.85
    np.testing.assert_allclose(classifier.predict_proba(x).sum(axis=1), 1)


def test_numbers_come_back_in_their_own_units(regressor):
    x, y = numbers()
    mean, sd = regressor.predict(x, return_std=True)
    np.testing.assert_array_equal(mean, regressor.predict(x))
    assert regressor.score(x, y) > 0.9
    assert 1 < np.sqrt(np.mean((y - mean) ** 2)) < 4
    assert 1.5 < sd.mean() < 6  # the noise is 2


def test_targets_of_half_precision_have_their_mean_and_scale():
    x, y = numbers()
    half = (300 * y).astype(np.float16)
    found = pb.BNNRegressor(**FEW).fit(x, half)
    exact = half.astype(np.float64)
    assert found.target_mean_ == pytest.approx(exact.mean(), rel=1e-12)
    assert found.target_sd_ == pytest.approx(exact.std(), rel=1e-12)


@pytest.mark.parametrize("kind", ["U", "datetime64[D]"])
def test_targets_that_are_no_numbers(kind):
    x, y = numbers()
    with pytest.raises(ValueError, match="`y` must hold numbers, got"):
        pb.BNNRegressor().fit(x, y.astype(int).astype(kind))


@pytest.mark.parametrize("unit", ["D", "ns"])
def test_inputs_that_are_dates(unit):
    """Their numbers have a unit that those of other rows need not have."""
    days = pd.DataFrame(
        {"day": np.arange(20).astype("datetime64[D]").astype(f"datetime64[{unit}]")}
    )
    for x in (days, days.to_numpy()):
        with pytest.raises(ValueError, match="`X` must hold numbers, got datetime64"):
            pb.BNNRegressor().fit(x, np.arange(20.0))


@pytest.mark.parametrize("missing", [None, pd.NA, np.nan])
def test_a_missing_label_is_named(missing):
    x, _ = labelled()
    y = ["a", "b"] * (len(x) // 2)
    y[2] = missing
    for labels in (y, pd.Series(y, dtype="string")):
        with pytest.raises(ValueError, match="a label for each row, but that of row 3 is missing"):
            pb.BNNClassifier().fit(x, labels)


def test_inputs_are_standardised_unless_it_is_switched_off(monkeypatch):
    datasets = []
    monkeypatch.setattr(base, "fitted", lambda cell, dataset: datasets.append(dataset))
    x, y = labelled()
    for standardise in (True, False):
        pb.BNNClassifier(standardise=standardise).fit(x, y)
    standardised, given = (np.asarray(dataset.x_train) for dataset in datasets)
    np.testing.assert_allclose(standardised.std(axis=0), 1)
    np.testing.assert_array_equal(given, np.asarray(x))
    assert not np.allclose(standardised, given)


def test_intervals_hold_what_they_say(regressor):
    x, y = numbers()
    wide, narrow = (regressor.predict_interval(x, level) for level in (0.9, 0.5))
    inside = [np.mean((y > found[:, 0]) & (y < found[:, 1])) for found in (wide, narrow)]
    assert inside[0] > 0.85 and 0.35 < inside[1] < inside[0]
    assert (np.ptp(wide, axis=1) > np.ptp(narrow, axis=1)).all()
    of_function = regressor.predict_interval(x, 0.9, noise=False)
    assert (np.ptp(of_function, axis=1) < np.ptp(wide, axis=1)).all()
    narrower = regressor.predict_interval(x, 0.5, noise=False)
    assert (np.ptp(narrower, axis=1) < np.ptp(of_function, axis=1)).all()
    with pytest.raises(ValueError, match=r"`level` must be between 0 and 1, got 95\."):
        regressor.predict_interval(x, 95)


def test_parts_of_the_uncertainty_are_those_of_the_prediction(classifier, regressor):
    x, _ = labelled(7)
    x.index = range(10, 17)
    found = classifier.predict_uncertainty(x)
    assert list(found) == ["total", "aleatoric", "epistemic"]
    assert list(found.index) == list(x.index)
    p = classifier.predict_proba(x)
    np.testing.assert_allclose(found["total"], -np.sum(p * np.log(p), axis=1), rtol=1e-4)
    x, _ = numbers(7)
    found = regressor.predict_uncertainty(x.tolist())
    _, sd = regressor.predict(x, return_std=True)
    np.testing.assert_allclose(found["total"], sd**2)
    np.testing.assert_allclose(found["total"], found["aleatoric"] + found["epistemic"])
    noise = regressor.trace_["posterior"]["noise"] * regressor.target_sd_
    np.testing.assert_allclose(found["aleatoric"], float(np.mean(noise**2)), rtol=1e-4)


@pytest.mark.slow
def test_a_sampler_predicts_too(sampled):
    x, y = labelled()
    assert sampled.status_ in ("converged", "undecided")
    assert sampled.score(x, y) > 0.85
    assert sampled.trace_["posterior"].sizes["chain"] == 2


def test_the_seed_decides(classifier):
    x, y = labelled()
    again, other = (pb.BNNClassifier(**FEW, random_state=seed).fit(x, y) for seed in (0, 1))
    np.testing.assert_array_equal(again.predict_proba(x), classifier.predict_proba(x))
    assert not np.array_equal(other.predict_proba(x), classifier.predict_proba(x))


@pytest.mark.slow
def test_a_scale_is_chosen():
    scale = pb.Fixed(scale=pb.Tune(log=(0.001, 1.0, 2)))
    found = pb.BNNClassifier(**FEW, hyperprior=scale).fit(*labelled())
    assert found.posterior_.origin.parts.hyperprior.scale == 1.0


# PyMC and ArviZ


def test_model_and_trace(classifier):
    assert isinstance(classifier.model_, pm.Model)
    assert classifier.model_.coords["feature"] == ("age", "height", "weight")
    posterior = classifier.trace_["posterior"]
    assert posterior["weight_1"].dims == ("chain", "draw", "feature", "hidden_1")
    assert posterior.sizes["draw"] == 50
    assert {"log_likelihood", "sample_stats", "fit"} <= set(classifier.trace_.children)


# In the company of others


def test_one_shape_compiles_once(monkeypatch):
    built, compiled = [], ENGINES["compiled"]

    def build_program(*args, **kwargs):
        built.append(args)
        return compiled.build_program(*args, **kwargs)

    counting = compiled._replace(build_program=build_program)
    monkeypatch.setitem(ENGINES, "compiled", counting)
    base._programs.cache_clear()
    x, y = labelled()  # as `classifier`, whose compiled program is found on the disk
    estimator = pb.BNNClassifier(**FEW)
    for rows in (60, 59):
        estimator.fit(x[:rows], y[:rows])
    clone(estimator).set_params(random_state=5).fit(x, y)
    assert len(built) == 1


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_searches_and_pipelines(processes):
    x, y = labelled()
    search = GridSearchCV(
        make_pipeline(StandardScaler(), pb.BNNClassifier(**FEW)),
        {"bnnclassifier__prior": ["normal", pb.Laplace()]},
        scoring="neg_log_loss",
        cv=2,
        n_jobs=processes,
    ).fit(x, y)
    get_reusable_executor().shutdown()  # other tests count the processes that they start
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.score(x, y) > -0.6


# Files


MADE = ["classifier", "regressor", "sampled"]


@pytest.mark.parametrize("made", slow_but(["regressor"], MADE))
def test_a_file_gives_back_the_estimator(made, request, tmp_path):
    estimator = request.getfixturevalue(made)
    x = labelled()[0] if made != "regressor" else numbers()[0]
    estimator.save(tmp_path / "fitted.nc")
    found = type(estimator).load(tmp_path / "fitted.nc")
    again = pickle.loads(pickle.dumps(estimator))
    assert str(found.get_params()) == str(estimator.get_params())
    assert found.status_ == estimator.status_
    for other in (found, again):
        np.testing.assert_array_equal(other.predict(x), estimator.predict(x))
    weights = [e.trace_["posterior"]["weight_1"] for e in (found, estimator)]
    np.testing.assert_array_equal(*weights)
    # A loaded one can be written and fitted again.
    found.save(tmp_path / "again.nc")
    assert type(found).load(tmp_path / "again.nc").reason_ == estimator.reason_


@pytest.mark.slow
def test_specifications_and_labels_survive_a_file(tmp_path):
    x, _ = numbers()
    y = x[:, 0] > 0
    network = pb.Dense(hidden=(2,), activation="relu")
    estimator = pb.BNNClassifier(network=network, prior=pb.Laplace(), steps=50, draws=10)
    estimator.fit(x, y).save(tmp_path / "fitted.nc")
    found = pb.BNNClassifier.load(tmp_path / "fitted.nc")
    assert (found.network, found.prior) == (network, pb.Laplace())
    assert found.predict(x).dtype == bool


def test_a_search_for_a_rate_survives_a_file():
    rate = pb.Tune(log=(0.001, 0.1, 3))
    assert base._read(json.loads(json.dumps(base._written(rate)))) == rate


def test_other_files_are_refused(tmp_path, classifier):
    (tmp_path / "text.nc").write_text("no netCDF")
    with pytest.raises(ValueError, match=r"text\.nc` is no file of a posterior"):
        pb.BNNClassifier.load(tmp_path / "text.nc")
    with pytest.raises(FileNotFoundError):
        pb.BNNClassifier.load(tmp_path / "none.nc")
    classifier.save(tmp_path / "fitted.nc")
    with pytest.raises(ValueError, match="must hold a BNNRegressor, got a BNNClassifier"):
        pb.BNNRegressor.load(tmp_path / "fitted.nc")


# What cannot be


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        (
            {"prior": "lapalce"},
            r"`prior` must be one of cauchy, .*, got 'lapalce'; did you mean `laplace`",
        ),
        ({"hyperprior": 1.0}, r"`hyperprior` must be a name, a mapping or a Hyperprior such"),
        ({"engine": "advi"}, r"`engine` must be one of compiled, mams, mclmc, .*, got 'advi'\."),
        ({"guide": "normal"}, "guide"),
        ({"settings": {"nothing": 1}}, "nothing"),
        ({"likelihood": "normal"}, "`likelihood` must be for classification"),
    ],
)
def test_wrong_parameters(parameters, said):
    with pytest.raises((ValueError, TypeError), match=said):
        pb.BNNClassifier(**parameters).fit(*labelled())


def test_a_fit_that_fails_leaves_the_one_before(monkeypatch):
    """Labels and names of columns of another fit would be given to its draws."""
    x, y = labelled()
    columns = x[["weight", "height", "age"]]
    classifier = pb.BNNClassifier(**FEW).fit(x, y).calibrate(*labelled(seed=1))
    regressor = pb.BNNRegressor(**FEW).fit(x, x["age"])
    new = pb.BNNClassifier(**FEW)
    before = [dict(vars(estimator)) for estimator in (classifier, regressor, new)]

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(base, "fitted", interrupted)
    targets = np.where(y == "tall", "cat", "dog"), x["weight"], y
    for estimator, other in zip((classifier, regressor, new), targets, strict=True):
        with pytest.raises(KeyboardInterrupt):
            estimator.fit(columns, other)
    assert [vars(estimator) for estimator in (classifier, regressor, new)] == before
    with pytest.raises(ValueError, match="feature names should match"):
        regressor.predict(columns)


def test_one_class_and_no_fit():
    x, y = labelled()
    with pytest.raises(ValueError, match="two classes or more, got one class"):
        pb.BNNClassifier().fit(x, np.repeat(y[:1], len(y)))
    for use in ("predict", "predict_proba", "predict_uncertainty"):
        with pytest.raises(NotFittedError):
            getattr(pb.BNNClassifier(), use)(x)
    with pytest.raises(NotFittedError):
        pb.BNNRegressor().save("nowhere.nc")


# Scikit-learn's own checks


CHECK = """
import pmbnn as pb
from sklearn.utils.estimator_checks import check_estimator
found = check_estimator(pb.{name}(steps=300), on_skip=None)
assert {{one["status"] for one in found}} == {{"passed"}}, found
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["BNNClassifier", "BNNRegressor"])
def test_scikit_learn_s_checks(name):
    """In a process of its own: one of the checks needs SciPy told before it is imported."""
    environment = os.environ | {"SCIPY_ARRAY_API": "1"}
    command = [sys.executable, "-W", "ignore", "-c", CHECK.format(name=name)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
