"""What Python code gives for settings: everything that a file may say, and clear errors."""

import warnings
from pathlib import Path

import numpy as np
import pymc as pm
import pytest
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid

import pmbnn as pb
from pmbnn.core.errors import ArgumentError, ConfigError
from pmbnn.core.spec import Registry, Specification, are_kinds, specification_classes, union_parts
from pmbnn.experiment.axes import classes_by_kind
from pmbnn.experiment.cells import SOURCES
from pmbnn.prediction.settings import Diagnostics, Map, Predict

PLAIN = pb.Inference(steps=100, restarts=3, batch=16, learning_rate=0.25, early_stop=False, seed=7)


@pytest.mark.parametrize("whole", [np.int8, np.int64, np.uint16, lambda v: np.array(v)])
def test_numpy_s_numbers_have_the_text_of_plain_ones(whole):
    given = pb.Inference(
        steps=whole(100),
        restarts=whole(3),
        batch=whole(16),
        learning_rate=np.float32(0.25),
        early_stop=np.bool_(False),
        seed=whole(7),
    )
    assert given == PLAIN and hash(given) == hash(PLAIN)
    assert given.model_dump_json() == PLAIN.model_dump_json()
    assert {type(getattr(given, name)) for name in ("steps", "batch", "seed")} == {int}
    assert type(given.learning_rate) is float and type(given.early_stop) is bool


@pytest.mark.parametrize("hidden", [[5, 5], np.array([5, 5]), (np.int64(5), 5), range(5, 4, -1)])
def test_lists_and_arrays_are_tuples(hidden):
    expected = tuple(int(width) for width in hidden)
    found = pb.Dense(hidden=hidden)
    assert found == pb.Dense(hidden=expected)
    assert [type(width) for width in found.hidden] == [int] * len(expected)


@pytest.mark.parametrize("hidden", [5, np.int64(5)])
def test_a_number_is_one_layer(hidden):
    assert pb.Dense(hidden=hidden).hidden == (5,)


def test_a_path_is_its_text():
    assert pb.Table(file=Path("rows.csv"), target="y") == pb.Table(file="rows.csv", target="y")


def test_parts_within_parts_are_named_as_in_a_file():
    likelihoods = pb.likelihoods
    heads = likelihoods.Normal(sd="heteroscedastic")
    assert heads == likelihoods.Normal(sd=likelihoods.Heteroscedastic())
    assert heads == likelihoods.Normal(sd={"kind": "heteroscedastic"})
    assert pb.Predict(map={"resolution": np.int64(5)}) == Predict(map=Map(resolution=5))
    assert pb.Predict(diagnostics={"steps": [1, 5]}).diagnostics == Diagnostics(steps=(1, 5))
    assert pb.Predict(ood=["letters"]).ood == (pb.ood.Letters(),)
    layers = pb.Layered(layers=["flatten", {"kind": "dense", "units": np.int64(4)}])
    assert layers.layers == (pb.networks.Flatten(), pb.networks.DenseLayer(units=4))
    tuned = {"tune": {"log": [0.1, 10, np.int64(3)]}}
    for scale in (tuned, tuned["tune"]):  # as in a file, and as in a record
        assert pb.Fixed(scale=scale) == pb.Fixed(scale=pb.Tune(log=(0.1, 10.0, 3)))
    matched = {"match": {"kernel": "rbf", "lengthscale": np.float64(2), "amplitude": 1.0}}
    for scale in (matched, matched["match"]):
        assert pb.Fixed(scale=scale) == pb.Fixed(scale=pb.Match(lengthscale=2.0))
    assert pb.Fixed(scale=np.array([1.0, 0.5])) == pb.Fixed(scale=(1.0, 0.5))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pb.Dense(hiden=5), "`Dense` has no argument `hiden`; did you mean `hidden`?"),
        (lambda: pb.Dense(hidden=[5, 0]), "`hidden[1]` must be >= 1, got 0."),
        (lambda: pb.Dense(activation="Tanh"), "got 'Tanh'; did you mean `tanh`?"),
        (lambda: pb.Layered(), "`layers` is missing."),
        (lambda: pb.Layered(layers=[{"kind": "dens"}]), "`layers[0].kind` must be one of"),
        (lambda: pb.Inference(steps=np.float64(2.5)), "`steps` must be a whole number, got 2.5."),
        (lambda: pb.Inference(steps=True), "`steps` must be a whole number, got true."),
        (lambda: pb.Inference(learning_rate="a"), "`learning_rate` must be a number, got 'a'."),
        (lambda: pb.Inference(steps=1, epochs=1.0), "`Inference` must set `steps` or `epochs`,"),
        (lambda: pb.Inference(guide="advi"), "got 'advi'; did you mean `mean_field`?"),
        (lambda: pb.Predict(map={"resolution": 1}), "`map.resolution` must be >= 2, got 1."),
        (lambda: pb.Predict(ood=["leters"]), "got 'leters'; did you mean `letters`?"),
        (lambda: pb.likelihoods.Normal(sd=[1, -1]), "`sd[1]` must be > 0, got -1."),
        (lambda: pb.likelihoods.Normal(sd="het"), "`sd` must be one of half_cauchy, half_normal"),
        (lambda: pb.Fixed(scale={"tune": {"log": [2, 1, 3]}}), "`scale.tune` must have low < high"),
    ],
)
def test_errors_name_place_value_and_choices(make, message):
    with pytest.raises(ConfigError) as caught:
        make()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value) and "http" not in str(caught.value)


# Functions


@pytest.fixture(scope="module")
def model():
    with pm.Model() as found:
        pm.Normal("y", pm.Normal("mu"), 1.0, observed=[0.0, 1.0])
    return found


@pytest.mark.parametrize(
    ("call", "given", "message"),
    [
        (pb.fit, {"n": 100}, "`pb.fit` has no argument `n`; did you mean `steps`? Choices: batch,"),
        (pb.fit, {"method": "advi"}, "no argument `method`; did you mean `guide`?"),
        (pb.fit, {"seed": 1}, "no argument `seed`; did you mean `random_seed`?"),
        (pb.fit, {"restart": 2}, "no argument `restart`; did you mean `restarts`?"),
        (pb.fit, {"draws": 9}, "no argument `draws`: it is an argument of `sample`, `predict`"),
        (pb.fit, {"guide": "fullrank_advi"}, "got 'fullrank_advi'; did you mean `full_rank`?"),
        (pb.fit, {"steps": 0}, "`steps` must be >= 1, got 0."),
        (pb.fit, {"random_seed": -1}, "`random_seed` must be >= 0, got -1."),
        (pb.fit, {"steps": 5, "epochs": 1}, "`pb.fit` must set `steps` or `epochs`, not both."),
        (pb.fit, {"dtype": "double"}, "`dtype` must be one of float32, float64, got 'double'."),
        (pb.sample, {"tune": 9}, "no argument `tune`; did you mean `tuning`? Choices: chains,"),
        (pb.sample, {"cores": 2}, "no argument `cores`: all chains run in one program"),
        (pb.sample, {"seed": 1}, "no argument `seed`; did you mean `random_seed`?"),
        (
            pb.sample,
            {"engine": "mclmc", "target_accept": 0.9},
            "`target_acceptance` is one of mams, nuts and smc, not of mclmc.",
        ),
        (pb.sample, {"engine": "NUTS"}, "got 'NUTS'; did you mean `nuts`?"),
        (pb.sample, {"draws": 3}, "`draws` must be >= 4, got 3."),
        (pb.sample, {"dtype": "double"}, "`dtype` must be one of float32, float64, got 'double'."),
    ],
)
def test_arguments_are_checked_in_the_words_of_a_file(model, call, given, message):
    with pytest.raises(ConfigError) as caught:
        call(model, progress=False, **given)
    assert message in str(caught.value)
    assert isinstance(caught.value, TypeError) == ("has no argument" in str(caught.value))


def test_an_unknown_argument_is_python_s_own_error_too():
    assert issubclass(ArgumentError, TypeError) and issubclass(ArgumentError, ValueError)


ROWS = np.random.default_rng(0).normal(size=(12, 2))


def test_parts_of_a_model_are_given_as_in_a_file():
    rows = pb.Dataset.from_arrays(ROWS, ROWS[:, 0])
    likelihood = {"kind": "normal", "sd": "heteroscedastic"}
    network = {"kind": "dense", "hidden": np.array([2])}
    model = pb.build_model(network, {"kind": "student_t", "nu": 5}, "fixed", likelihood, rows)
    assert len(model.coords["hidden_1"]) == 2
    assert list(model.coords["output"]) == ["y", "noise"]


def test_estimators_take_what_a_grid_of_numpy_s_numbers_has():
    grid = {"hidden": np.arange(2, 4), "steps": np.arange(10, 30, 10), "draws": [np.int64(5)]}
    for parameters in ParameterGrid(grid):
        cell = clone(pb.BNNRegressor()).set_params(**parameters)._cell(given())
        assert cell.network.hidden == (int(parameters["hidden"]),)
        assert type(cell.inference.steps) is int and type(cell.predict.draws) is int


def given():
    rows = pb.Dataset.from_arrays(ROWS, ROWS[:, 0])
    assert not rows.classes
    return rows


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"settings": {"epoch": 3}}, "`settings` has no key `epoch`; did you mean `epochs`?"),
        ({"steps": 0}, "`steps` must be >= 1, got 0."),
        ({"random_state": -1}, "`random_state` must be >= 0, got -1."),
        ({"draws": 1}, "`draws` must be >= 2, got 1."),
        ({"network": "lenet"}, "got 'lenet'; did you mean `lenet5`?"),
        ({"likelihood": {"kind": "normal", "sd": "het"}}, "`likelihood.sd` must be one of"),
        ({"likelihood": {"sd": 1}}, "`likelihood.kind` is missing. Choices: bernoulli,"),
    ],
)
def test_parameters_of_estimators_are_checked_in_the_words_of_a_file(parameters, message):
    with pytest.raises(ConfigError) as caught:
        pb.BNNRegressor(**parameters)._cell(given())
    assert message in str(caught.value)


def test_what_is_suggested_is_there():
    with pytest.raises(TypeError, match=r"such as `pb\.likelihoods\.Bernoulli\(\)`, got 3"):
        pb.BNNRegressor(likelihood=3)._cell(given())
    assert pb.likelihoods.Bernoulli().kind == "bernoulli"


# Names


NAMESPACES = ("datasets", "hyperpriors", "likelihoods", "networks", "ood", "priors", "samplers")


def parts_of(source):
    """Classes of a section, and of what stands within them."""
    classes = list(source.values()) if isinstance(source, Registry) else [source]
    for cls in classes:
        yield cls
        for field in cls.model_fields.values():
            yield from within(field.annotation)


def within(annotation):
    for part in union_parts(annotation):
        for entry in getattr(part, "__args__", ()):
            yield from within(entry)
    classes = specification_classes(annotation)
    if classes:
        yield from parts_of(classes_by_kind(classes) if are_kinds(classes) else classes[0])


def test_every_part_of_a_file_has_a_public_name():
    parts = {cls for source in SOURCES.values() for cls in parts_of(source)}
    parts = {cls for cls in parts if cls.__module__.startswith("pmbnn.")}
    namespaces = [pb, *(getattr(pb, namespace) for namespace in NAMESPACES)]
    public = [getattr(space, name) for space in namespaces for name in space.__all__]
    assert len(parts) > 40 and all(issubclass(cls, Specification) for cls in parts)
    assert {cls.__name__ for cls in parts if cls not in public} == set()


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_names_of_a_namespace_are_there(namespace):
    module = getattr(pb, namespace)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(getattr(module, name) is not None for name in module.__all__)
