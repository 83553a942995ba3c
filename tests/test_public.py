"""``import pmbnn as pb``: what it has, and how little it loads."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest
import yaml

import pmbnn as pb
from pmbnn import experiment, testing
from pmbnn.experiment import plan

ROOT = Path(pb.__file__).parents[1]
STUBS = {pb: pb.__file__, testing: testing.__file__}


def test_version_is_that_of_the_package():
    assert pb.__version__ == version("pmbnn")


def test_every_dependency_has_its_reason():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text.split("## Dependencies", 1)[1].split("\n## ", 1)[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| ")]
    named = {name.strip() for row in rows[2:] for name in row.split(",")}
    assert named == {re.split(r"[<>=]", one)[0] for one in project["dependencies"]}


def test_every_station_of_a_cell_is_where_it_is_said_to_be():
    stations = re.findall(r"`([a-z_.]+):([\w.]+)`", (ROOT / "CONTRIBUTING.md").read_text())
    assert len(stations) > 15
    for module, name in stations:
        assert attrgetter(name)(import_module(f"pmbnn.{module}")), (module, name)


@pytest.mark.parametrize("package", [pb, experiment, testing], ids=lambda package: package.__name__)
def test_every_name_is_there(package):
    assert all(getattr(package, name) is not None for name in package.__all__)
    assert set(package.__all__) <= set(dir(package))


def test_names_are_spelt_the_same_for_type_checkers():
    """An alias without its own name is private to a type checker."""
    for file in STUBS.values():
        tree = ast.parse(Path(file).with_suffix(".pyi").read_text())
        aliases = [a for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names]
        assert aliases
        assert all(alias.asname == alias.name for alias in aliases)


def checked_types(file, cache):
    """What mypy says of a file that uses the package, and its exit status."""
    options = ["--disable-error-code", "import-untyped", "--cache-dir", str(cache)]
    command = [sys.executable, "-m", "mypy", *options, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout


@pytest.mark.slow
def test_uses_of_the_public_names_have_their_types(tmp_path):
    file = Path(__file__).with_name("typed_use.py")
    assert checked_types(file, tmp_path) == (0, "Success: no issues found in 1 source file\n")
    wrong = tmp_path / "wrong.py"
    wrong.write_text(f"{file.read_text()}\npb.fit(model, steps='many').nothing\n")
    status, said = checked_types(wrong, tmp_path)
    assert status == 1
    assert "incompatible type" in said and 'no attribute "nothing"' in said


def test_versions_are_shown(capsys):
    pb.show_versions()
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert shown["pmbnn"] == version("pmbnn")
    assert {"python", "jax", "pymc", "cores", "devices"} <= set(shown)


def test_a_tree_that_is_not_installed_has_a_version(monkeypatch):
    """Only on the path, a package has no metadata."""

    def without_metadata(name):
        if name == "pmbnn":
            raise PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(plan, "version", without_metadata)
    assert plan.decisive_versions()["pmbnn"] == version("pmbnn")
    assert plan.installed_versions(plan.RECORDED)["pmbnn"] == version("pmbnn")


def test_the_citation_is_of_this_version():
    cited = yaml.safe_load((Path(__file__).parents[1] / "CITATION.cff").read_text())
    assert cited["version"] == version("pmbnn")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="No pmbnn attribute nothing"):
        pb.nothing  # noqa: B018


@pytest.mark.parametrize(
    ("prior", "hyperprior"), [("laplace", "half_cauchy"), (pb.Laplace(), pb.HalfCauchy())]
)
def test_parts_are_named_or_given(prior, hyperprior):
    x, y = np.random.default_rng(0).normal(size=(6, 2)), np.arange(6) % 2
    model = pb.dense_classifier(x, y, hidden=(2,), prior=prior, hyperprior=hyperprior)
    found = [variable.owner.op.__class__.__name__ for variable in model.free_RVs]
    assert found == ["HalfCauchyRV"] * 2 + ["LaplaceRV"] * 4


def test_a_class_is_no_specification():
    x, y = np.zeros((2, 1)), np.arange(2)
    with pytest.raises(
        TypeError,
        match=r"`prior` must be a name, a mapping or a Prior such as `pb\.priors\.Laplace\(\)`",
    ):
        pb.dense_classifier(x, y, prior=pb.Laplace)
