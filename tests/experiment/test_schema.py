"""The JSON Schema of experiment files: what is valid, what is not, and what editors show."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from typer.testing import CliRunner

from pmbnn.cli import app
from pmbnn.core.spec import Registry
from pmbnn.experiment.cells import SOURCES
from pmbnn.experiment.schema import schema
from pmbnn.experiment.yaml_file import parse_yaml, read_yaml

FILES = sorted((Path(__file__).parents[2] / "experiments").glob("*.yaml"))

SWEEP = """
name: file
sweeps:
  - name: sweep
    dataset: {kind: moons, noise: 0.4, seed: [0, 1]}
    network: {kind: dense, hidden: [[5, 5]]}
    prior: [normal, {kind: laplace, fan_in: [false, true]}]
    hyperprior: [half_cauchy, {kind: fixed, scale: [0.5, {tune: {log: [0.1, 10, 5]}}, [1, 2, 1],
                                                 {match: {kernel: matern32, lengthscale: 2}}]}]
"""


@pytest.fixture(scope="module")
def validator():
    Draft202012Validator.check_schema(schema())
    return Draft202012Validator(schema())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_experiment_file_is_valid(validator, file):
    validator.validate(read_yaml(file))


OF_PYMC = "{kind: pymc, dist: Logistic, s: [0.5, 1]}"


def test_a_distribution_of_pymc_has_its_names_in_the_schema(validator):
    text = SWEEP.replace("{kind: laplace, fan_in: [false, true]}", OF_PYMC)
    assert text != SWEEP
    validator.validate(parse_yaml(text, "text"))
    for good, bad in (("Logistic", "Logistc"), ("s: [0.5, 1]", "s: wide"), ("s: [", "z: [")):
        assert not validator.is_valid(parse_yaml(text.replace(good, bad), "text"))
    on_scale = text.replace("[half_cauchy,", "[{kind: pymc, dist: Gamma, alpha: 2, beta: 1},")
    validator.validate(parse_yaml(on_scale, "text"))
    assert not validator.is_valid(parse_yaml(on_scale.replace("Gamma", "Logistic"), "text"))


def test_axes_and_names_are_valid(validator):
    validator.validate(parse_yaml(SWEEP, "text"))


TARGETS = "{kind: table, file: t.csv, target: %s}"


@pytest.mark.parametrize("target", ["a", "[a, b]", "[[a, b]]", "[a, [b, c]]"])
def test_a_target_is_a_name_or_several(validator, target):
    content = parse_yaml(SWEEP, "text")
    content["sweeps"][0]["dataset"] = parse_yaml(TARGETS % target, "text")
    content["sweeps"][0]["likelihood"] = {"kind": "normal", "sd": [[0.1, 0.2], "half_normal"]}
    validator.validate(content)
    for wrong in ([0.1, "third"], [[0.1, -1]]):
        content["sweeps"][0]["likelihood"]["sd"] = wrong
        assert not validator.is_valid(content)


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ("half_cauchy", "half_couchy"),
        ("kind: dense", "kind: dence"),
        ("hidden: [[5, 5]]", "hidden: [5, 5]"),
        ("noise: 0.4", "noise: loud"),
        ("seed: [0, 1]", "seed: []"),
        ("seed: [0, 1]", "seeds: 0"),
        ("fan_in: [false, true]", "fan_in: 2"),
        ("log: [0.1, 10, 5]", "log: [0.1, 10]"),
        ("name: file", "name: a file"),
        ("    prior:", "    priors:"),
    ],
)
def test_mistakes_are_not(validator, good, bad):
    text = SWEEP.replace(good, bad)
    assert text != SWEEP
    assert not validator.is_valid(parse_yaml(text, "text"))


PRIORS = "['cauchy', 'cell', 'correlated_normal', 'flat', 'horseshoe', 'laplace', 'matrix_normal', "
NEAREST = [
    ("[normal,", "[nromal,", "prior[0]", f"'nromal' is not one of {PRIORS}"),
    ("kind: laplace", "kind: lapalce", "prior[1].kind", f"'lapalce' is not one of {PRIORS}"),
    ("kind: laplace", "kind: [flat, x]", "prior[1].kind[1]", f"'x' is not one of {PRIORS}"),
    ("[normal,", "[3,", "prior[0]", f"3 is not one of {PRIORS}"),
    ("fan_in:", "fan:", "prior[1]", "('fan' was unexpected)"),
    ("fan_in: [false, true]", "fan_in: 2", "prior[1].fan_in", "2 is not of type 'boolean'"),
    ("kind: dense", "kind: dence", "network.kind", "'dence' is not one of ['dense', 'layers', "),
    ("noise: 0.4", "noise: loud", "dataset.noise", "'loud' is not of type 'number'"),
    ("scale: [0.5", "scale: [x", "hyperprior[1].scale[0]",
     "'x' is not of type 'number', 'array', 'null'"),
    ("kernel: matern32", "kernel: matern", "hyperprior[1].scale[3].match.kernel",
     "'matern' is not one of ['rbf', 'matern12', "),
    ("    prior:", "    likelihood: {kind: normal, sd: x}\n    prior:", "likelihood.sd",
     "'x' is not one of ['half_cauchy', 'half_normal', "),
    ("    prior:", "    inference: {engine: x}\n    prior:", "inference.engine",
     "'x' is not one of ['compiled', 'mams', "),
]  # fmt: skip


@pytest.mark.parametrize(("good", "bad", "place", "message"), NEAREST)
def test_a_mistake_is_one_error_with_its_place_and_the_choices(
    validator, good, bad, place, message
):
    """As a validator and an editor show it, not that nothing of all there is fits."""
    text = SWEEP.replace(good, bad, 1)
    assert text != SWEEP
    error = best_match(validator.iter_errors(parse_yaml(text, "text")))
    assert error.json_path == f"$.sweeps[0].{place}"
    assert message in error.message


def test_every_class_and_field_is_described():
    """Editors show what docstrings say."""
    made = schema()
    defined = made["$defs"]
    for source in SOURCES.values():
        for cls in source.values() if isinstance(source, Registry) else [source]:
            own = defined[f"{cls.__module__.rpartition('.')[2]}.{cls.__name__}"]
            assert own["description"]
            assert set(own["properties"]) == set(cls.model_fields)
    guide = defined["settings.Inference"]["properties"]["guide"]
    assert guide["description"].startswith("Family of the approximation")
    assert guide["default"] == "mean_field"
    assert "description" in made["properties"]["sweeps"]["items"]["properties"]["prior"]


def settings(node, place="$"):
    """Places and schemas of all settings; a condition (``if``) is none."""
    if isinstance(node, list):
        node = dict(enumerate(node))
    if isinstance(node, dict):
        for name, part in node.get("properties", {}).items():
            yield f"{place}.{name}", part
        for key, part in node.items():
            if key != "if":
                yield from settings(part, f"{place}.{key}")


def test_every_setting_is_described_with_its_default():
    """Where a default is no value that could be shown, the description says what it stands for."""
    described = dict(settings(schema()))
    assert len(described) > 300
    missing = [place for place, part in described.items() if not part.get("description")]
    assert not missing
    unclear = [
        place
        for place, part in described.items()
        if "default" in part
        and not place.endswith((".kind", ".engine"))
        and "default" not in part["description"].lower()
    ]
    assert not unclear
    train = described["$.$defs.synthetic.Moons.train"]
    assert train["description"] == "Number of training rows. Default: 700."


def test_the_command(tmp_path):
    found = CliRunner().invoke(app, ["schema"])
    assert found.exit_code == 0
    assert json.loads(found.stdout) == json.loads(json.dumps(schema()))
    file = tmp_path / "schema.json"
    assert CliRunner().invoke(app, ["schema", "--out", str(file)]).exit_code == 0
    assert file.read_text(encoding="utf-8") == found.stdout


PLUGIN = """
import pmbnn as pb

@pb.register
class Cubic(pb.Prior):
    '''A prior of one's own.'''
    kind: str = "cubic"
    def variable(self, name, scale, dims, shared): ...
"""


def test_parts_of_ones_own_are_in_it(tmp_path, registries):
    (tmp_path / "own.py").write_text(PLUGIN)
    text = SWEEP.replace("name: file", "name: file\nplugins: [own.py]").replace("normal,", "cubic,")
    (tmp_path / "file.yaml").write_text(text)
    found = CliRunner().invoke(app, ["schema", "--for", str(tmp_path / "file.yaml")])
    assert found.exit_code == 0, found.output
    assert Draft202012Validator(json.loads(found.stdout)).is_valid(parse_yaml(text, "text"))
    missing = CliRunner().invoke(app, ["schema", "--for", str(tmp_path / "none.yaml")])
    assert missing.exit_code == 2
