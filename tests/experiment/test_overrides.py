"""Overrides: texts and mappings read, put into experiment files, and named in folders."""

import pytest

from pmbnn.core.errors import ConfigError
from pmbnn.experiment.load import experiment_of, resolved
from pmbnn.experiment.overrides import (
    folder_suffix,
    overridden,
    override_texts,
    read_overrides,
)
from pmbnn.experiment.plan import default_folder

FILE = {
    "name": "toy",
    "sweeps": [
        {
            "name": "toy",
            "dataset": {"kind": "moons", "noise": 0.3},
            "network": {"kind": "dense", "hidden": [[3]]},
            "prior": "normal",
            "inference": [{"steps": 100, "restarts": 1}, "nuts"],
        }
    ],
}


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("inference.steps=20000", "inference.steps", 20000),
        ("prior=normal,laplace", "prior", ["normal", "laplace"]),
        ("prior = [normal, laplace]", "prior", ["normal", "laplace"]),
        ("network.hidden=[[50],[50,50]]", "network.hidden", [[50], [50, 50]]),
        ("network.hidden=[50],[50,50]", "network.hidden", [[50], [50, 50]]),
        ("network.hidden=[[50]]", "network.hidden", [[50]]),
        ("hyperprior={kind: fixed, scale: 1},half_normal", "hyperprior",
         [{"kind": "fixed", "scale": 1}, "half_normal"]),
        ("dataset.file='a,b.csv'", "dataset.file", "a,b.csv"),
        ("inference.learning_rate=1e-3", "inference.learning_rate", 0.001),
        ("predict.map=null", "predict.map", None),
        ("contrasts=[]", "contrasts", []),
    ],
)  # fmt: skip
def test_a_comma_outside_brackets_and_quotes_is_an_axis(text, key, value):
    assert read_overrides([text]) == {key: value}
    assert read_overrides(override_texts({key: value})) == {key: value}
    assert read_overrides({key: value}) == {key: value}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["prior"], "`--set` must be KEY=VALUE, got 'prior'."),
        (["prior="], "`--set` must be KEY=VALUE, got 'prior='."),
        (["prior=[normal"], "`--set prior`, line 1"),
        (["prior=normal]"], "`--set prior`, line 1"),
        (["prior=normal", "prior=laplace"], "given twice: several values are `prior=first,second`"),
        ("prior=normal", "`--set` must be a list of KEY=VALUE, or a mapping"),
        ({"prior": object()}, "`--set prior` must be a value as an experiment file has it"),
    ],
)
def test_what_cannot_be_read_is_an_error(given, message):
    with pytest.raises(ConfigError, match=message):
        read_overrides(given)


def sweep(*texts):
    return overridden(FILE, read_overrides(texts))["sweeps"][0]


def test_a_field_is_set_where_the_kind_has_it():
    assert sweep("inference.steps=5")["inference"] == [
        {"steps": 5, "restarts": 1},
        {"engine": "nuts"},
    ]
    assert sweep("inference.seed=1")["inference"][1] == {"engine": "nuts", "seed": 1}
    assert sweep("hyperprior.scale=2")["hyperprior"] == {"kind": "fixed", "scale": 2}
    assert sweep("prior.fan_in=true,false")["prior"] == {"kind": "normal", "fan_in": [True, False]}
    assert sweep("predict.map.resolution=5")["predict"] == {"map": {"resolution": 5}}


def test_a_key_may_begin_with_the_name_of_a_sweep():
    (first,) = FILE["sweeps"]
    both = {"sweeps": [first, first | {"name": "large"}]}
    changed = overridden(both, read_overrides(["large.prior=flat", "prior.fan_in=true"]))
    priors = [one["prior"] for one in changed["sweeps"]]
    assert priors == [{"kind": kind, "fan_in": True} for kind in ("normal", "flat")]


def test_the_order_of_overrides_does_not_matter():
    (first,) = FILE["sweeps"]
    both = {"sweeps": [first, first | {"name": "large"}]}
    texts = ["large.prior.nu=9", "prior.nu=7", "large.prior=student_t", "prior=normal,student_t"]
    for given in (texts, texts[::-1]):
        changed = overridden(both, read_overrides(given))
        assert [one["prior"] for one in changed["sweeps"]] == [
            [{"kind": "normal"}, {"kind": "student_t", "nu": 7}],
            {"kind": "student_t", "nu": 9},
        ]


def test_entries_that_become_equal_are_one():
    content = {"sweeps": [{"inference": [{"steps": 1}, {"steps": 2}]}]}
    assert overridden(content, {"inference.steps": 3})["sweeps"] == [{"inference": {"steps": 3}}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("inference.stps=5", "`sweeps[0].inference[0]` has no key `stps`; did you mean `steps`?"),
        ("prior=normal,lap", "`sweeps[0].prior[1]` must be one of "),
        ("inference.steps=many", "`sweeps[0].inference[0].steps` must be a whole number"),
        ("pior=normal", "`--set pior` must be one of contrasts, dataset, "),
        ("plugins=x.py", "predict, prior, published, toy, got 'plugins'."),
        ("margin.low=1", "`--set margin.low` must be one of "),
        ("toy=1", "`--set toy` must be one of dataset, hyperprior, "),
        ("toy.pior=normal", "got 'pior'; did you mean `prior`?"),
        ("dataset.noise.sd=1", "`--set dataset.noise.sd` must name a mapping before `.sd`"),
    ],
)
def test_the_schema_checks_what_comes_of_them(tmp_path, text, message):
    with pytest.raises(ConfigError) as error:
        experiment_of(FILE, tmp_path, overrides=[text])
    assert message in str(error.value)


def test_a_setting_that_some_sweep_does_not_allow_names_those_that_do(tmp_path):
    (first,) = FILE["sweeps"]
    by_epochs = first | {"name": "large", "inference": {"epochs": 2, "batch": 10}}
    content = FILE | {"sweeps": [first, by_epochs, first | {"name": "again", "prior": "laplace"}]}
    with pytest.raises(ConfigError) as error:
        experiment_of(content, tmp_path, overrides=["inference.steps=5"])
    assert str(error.value) == (
        "`sweeps[1].inference` must set `steps` or `epochs`, not both. `--set inference.steps` "
        "changes every sweep. Change only those that allow it: `--set again.inference.steps=…`, "
        "`--set toy.inference.steps=…`."
    )
    texts = ["again.inference.steps=5", "toy.inference.steps=5"]
    assert len(experiment_of(content, tmp_path, overrides=texts).cells) == 5


def test_an_experiment_knows_its_overrides_and_its_file_is_not_changed_again(tmp_path):
    texts = ("inference.restarts=2", "prior=normal,laplace")
    experiment = experiment_of(FILE, tmp_path, overrides=texts)
    assert (len(experiment.cells), experiment.overrides) == (4, texts)
    again = experiment_of(resolved(experiment), tmp_path)
    assert again == experiment and again.overrides == texts
    more = experiment_of(resolved(experiment), tmp_path, overrides=["prior=flat"])
    assert more.overrides == (texts[0], "prior=flat")
    assert "overrides" not in resolved(experiment_of(FILE, tmp_path))


def test_folders_of_other_overrides_are_others():
    assert default_folder("toy").as_posix() == "results/toy"
    assert default_folder("toy", overrides=["prior=flat"]).as_posix() == "results/toy-prior=flat"
    values = ("[50],[50, 50]", "[[50, 50]]", "50,50,50", "a/../b", "x" * 200, "x" * 201)
    names = {folder_suffix([f"network.hidden={value}"]) for value in values}
    assert len(names) == len(values)
    assert all(len(name) < 100 and "/" not in name and "[" not in name for name in names)
