"""An experiment file with distributions of PyMC, through the commands."""

import pandas as pd
import pytest
from typer.testing import CliRunner

import pmbnn as pb
from pmbnn.cli import app
from pmbnn.results.names import combination_label, combination_title

TEXT = """
name: toy
sweeps:
  - name: toy
    dataset: {kind: moons, noise: 0.3, train: 20, test: 10}
    network: {kind: dense, hidden: [[2]]}
    prior: [{kind: pymc, dist: Logistic, s: [0.5, 1]}]
    hyperprior: {kind: pymc, dist: Gamma, alpha: 2, beta: 1}
    inference: {steps: 20, restarts: 2}
    predict: {draws: 5, trace_draws: 4, map: {resolution: 5, draws: 2}, fresh: {size: 20, draws: 2}}
"""


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "toy.yaml"
    path.write_text(TEXT)
    return path


@pytest.mark.slow
def test_a_sweep(file, tmp_path):
    """Fitted, named after the distribution, and read back as it was."""
    found = call("sweep", file, "--out", tmp_path / "out", "--quiet")
    assert found.exit_code == 0, found.output
    results = pb.load_results(tmp_path / "out")
    cells = [record.cell for record in results.records]
    assert [cell.prior for cell in cells] == [
        pb.priors.PyMCPrior(dist="Logistic", s=s) for s in (0.5, 1)
    ]
    names = [record.name for record in results.records]
    for name, s in zip(names, ("0.5", "1"), strict=True):
        assert f"_pymc-Logistic-s{s}_pymc-Gamma-alpha2-beta1_" in name
    assert combination_label(cells[0]) == "Logistic × Gamma"
    assert combination_title(cells[0]) == "Logistic prior, Gamma hyperprior"
    table = pd.read_csv(tmp_path / "out" / "metrics.csv")
    assert list(table["prior"]) == ["Logistic, s 0.5", "Logistic, s 1"]
    assert list(table["prior.s"]) == [0.5, 1]
    written = (tmp_path / "out" / "experiment.yaml").read_text()
    assert "kappa" not in written and pb.load_experiment(tmp_path / "out" / "experiment.yaml")
    again = call("sweep", file, "--out", tmp_path / "out", "--quiet")
    assert again.exit_code == 0
    assert [r.name for r in pb.load_results(tmp_path / "out").records] == names


def test_a_parameter_is_set_by_the_command(file):
    experiment = pb.load_experiment(file, overrides=["prior.s=2,3", "hyperprior.alpha=5"])
    assert [cell.prior.s for cell in experiment.cells] == [2, 3]
    assert {cell.hyperprior.alpha for cell in experiment.cells} == {5}
    found = call("sweep", file, "--dry-run", "--set", "prior.s=2,-3")
    assert found.exit_code == 2
    message = "`sweeps[0].prior.s[1]` must have s > 0 in pm.Logistic, got s -3."
    assert message in " ".join(found.output.split())
