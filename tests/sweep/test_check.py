"""References for what is finished: sampled beside it, in the same folder."""

import io
from types import SimpleNamespace

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

import pmbnn as pb
from pmbnn.cli import app
from pmbnn.compare.agreement import FILE
from pmbnn.experiment.load import ConfigError, load_experiment
from pmbnn.fitting.progress import RunOptions
from pmbnn.inference.samplers.settings import Mclmc, Smc
from pmbnn.results.store import Results, ResultsError
from pmbnn.sweep.check import References, references, with_sampler, without_quantiles
from pmbnn.sweep.stages import run_experiment

FILE_TEXT = """
name: toy
sweeps:
  - name: toy
    dataset: {kind: moons, noise: 0.3, train: 60, test: 40}
    network: {kind: dense, hidden: [[2]]}
    prior: [normal, flat]
    hyperprior: {kind: fixed, scale: [0.5, 1]}
    inference: {steps: 60, kl_weight: [1, 0.1]}
    predict: {draws: 10, trace_draws: 6, map: {resolution: 4}, fresh: {size: 50, draws: 4}}
"""

SHORT = Mclmc(chains=4, draws=16, descent=50, tuning=200, thin=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished sweep: two scales of a proper prior and an improper one, each tempered too."""
    here = tmp_path_factory.mktemp("check")
    file = here / "toy.yaml"
    file.write_text(FILE_TEXT)
    pb.run(file, out=here / "out", workers=1, quiet=True)
    return here / "out"


def sample(wanted, folder):
    options = RunOptions(Console(file=io.StringIO()), workers=1, quiet=True)
    cells = wanted.cells
    return run_experiment(wanted.experiment, cells, folder, options, are_references=True)


def written(folder):
    """When the record of each cell was written."""
    files = Results(folder).cells.glob("*/metrics.json")
    return {path.parent.name: path.stat().st_mtime_ns for path in files}


@pytest.mark.slow
def test_what_has_a_posterior_is_sampled_and_the_rest_named(folder):
    wanted = references(folder, SHORT)
    assert [cell.hyperprior.scale for cell in wanted.cells] == [0.5, 1]
    assert all(cell.inference == SHORT for cell in wanted.cells)
    assert [line.split(":")[0] for line in wanted.left_out] == [
        "prior flat",
        "fits with another KL than the ELBO's",
    ]
    (cell,) = references(folder, SHORT, ["hyperprior.scale=1"]).cells
    assert cell.hyperprior.scale == 1


@pytest.mark.parametrize(("failed", "status"), [((), 0), (("a cell",), 1)])
def test_the_exit_status_tells_whether_all_references_have_draws(
    failed, status, tmp_path, monkeypatch
):
    wanted = SimpleNamespace(experiment=None, cells=(), left_out=())
    outcome = SimpleNamespace(records=(), failed=failed)
    monkeypatch.setattr("pmbnn.sweep.check.references", lambda *_: wanted)
    monkeypatch.setattr("pmbnn.sweep.stages.run_experiment", lambda *_, **__: outcome)
    done = CliRunner().invoke(app, ["check", str(tmp_path)])
    assert done.exit_code == status, done.output


@pytest.mark.slow
def test_a_selection_of_nothing_is_an_error(folder):
    with pytest.raises(ConfigError, match="prior"):
        references(folder, SHORT, ["prior=cauchy"])


@pytest.mark.slow
def test_references_join_the_folder_and_nothing_is_fitted_again(folder):
    fitted = written(folder)
    outcome = sample(references(folder, SHORT), folder)
    after = written(folder)
    assert {name: after[name] for name in fitted} == fitted
    assert len(after) == len(fitted) + 2
    assert not outcome.failed
    assert (folder / FILE).is_file()
    assert sum(r.sampling is not None for r in pb.load_results(folder).records) == 2
    # Once more samples nothing.
    again = sample(references(folder, SHORT), folder)
    assert written(folder) == after
    assert len(again.records) == len(outcome.records)
    # The experiment of the folder knows the sampler now, each once.
    inference = load_experiment(folder / "experiment.yaml").sweeps[0].sections["inference"]
    assert [spec.engine for spec in inference] == ["compiled", "compiled", "mclmc"]


@pytest.mark.slow
def test_the_command_says_what_is_wrong(folder, tmp_path):
    run = CliRunner()
    for given, message in (
        ([str(tmp_path)], "must be a results folder"),
        ([str(folder), "--engine", "gibbs"], "`--engine` must be one of mams, mclmc"),
        ([str(folder), "--only", "prior=cauchy"], "prior"),
    ):
        found = run.invoke(app, ["check", *given])
        assert found.exit_code == 2
        assert message in found.output
    planned = run.invoke(app, ["check", str(folder), "--dry-run"])
    assert planned.exit_code == 0
    assert "2 of" in planned.output
    assert "left out: prior flat" in planned.output


def test_a_sampler_is_left_out_of_sweeps_that_it_cannot_take(tmp_path):
    """Those whose quantile functions are not known, from prior to posterior."""
    content = yaml.safe_load(FILE_TEXT)
    (sweep,) = content["sweeps"]
    priors = {"taken": "normal", "left": ["laplace", "student_t"]}
    content["sweeps"] = [sweep | {"name": name, "prior": prior} for name, prior in priors.items()]
    file = tmp_path / "toy.yaml"
    file.write_text(yaml.safe_dump(content))
    experiment = load_experiment(file)
    lacking = without_quantiles(experiment)
    assert lacking == {"left": ["prior student_t"]}
    beside = with_sampler(experiment, Smc(), tmp_path, lacking)
    assert {cell.sweep for cell in beside.cells if cell.is_sampled} == {"taken"}
    with pytest.raises(ConfigError, match=r"`sweeps\[1\]\.prior\[1\]` must be .* with engine smc"):
        with_sampler(experiment, Smc(), tmp_path)


def test_a_folder_without_fits_is_an_error(tmp_path):
    with pytest.raises(ResultsError, match="must be a results folder"):
        references(tmp_path, SHORT)


@pytest.mark.slow
def test_fits_of_another_version_are_named(folder, monkeypatch):
    monkeypatch.setattr("pmbnn.experiment.plan.__version__", "0.0.1")
    rule = r"has no finished fit .* posterior \(6 cells: of other data, plugins or versions"
    with pytest.raises(ResultsError, match=rule):
        references(folder, SHORT)


@pytest.mark.parametrize("workers", [1, 3])
def test_the_plan_is_for_the_workers_that_were_asked_for(tmp_path, monkeypatch, workers):
    file = tmp_path / "toy.yaml"
    file.write_text(FILE_TEXT)
    experiment = with_sampler(load_experiment(file), SHORT, tmp_path)
    wanted = References(experiment, experiment.cells[:1], ())
    monkeypatch.setattr("pmbnn.sweep.check.references", lambda *_: wanted)
    planned = CliRunner().invoke(
        app, ["check", str(tmp_path), "--workers", str(workers), "--dry-run"]
    )
    assert planned.exit_code == 0
    assert f"with {workers} worker" in planned.output
