"""Stored cells are rebuilt with the plugins they were fitted with, or not at all."""

import shutil
import sys

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from pmbnn.cli import app
from pmbnn.core.errors import ConfigError
from pmbnn.core.spec import METRICS
from pmbnn.data.ood import OOD
from pmbnn.estimators.classifier import BNNClassifier
from pmbnn.experiment import plugins
from pmbnn.experiment.cells import REGISTRIES, Unknown
from pmbnn.experiment.load import load_experiment
from pmbnn.experiment.plan import jobs
from pmbnn.experiment.plugins import register
from pmbnn.fitting.job import run_job
from pmbnn.fitting.tasks import JobTask
from pmbnn.models.networks import NETWORKS, Dense
from pmbnn.models.priors import PRIORS, Laplace
from pmbnn.results.loading import load_results, restore_cell
from pmbnn.results.specifications import stored_specifications
from pmbnn.results.store import Results, ResultsError
from pmbnn.sweep.cells import prepare, write_header
from pmbnn.sweep.in_memory import experiment_in_memory

NETWORK = """
from typing import Literal

from pmbnn.experiment.plugins import register
from pmbnn.models.networks import Dense


@register
class Own(Dense):
    \"\"\"Dense layers whose outputs are multiplied.\"\"\"

    kind: Literal["own"] = "own"

    @property
    def factor(self):
        return 1.0

    def forward(self, x, weights, input_shape):
        return self.factor * super().forward(x, weights, input_shape)
"""
EDITED = NETWORK.replace("return 1.0", "return -1.0")

METRIC = """
from pmbnn.experiment.plugins import register


@register
def worst(predictive: "ClassProbabilities", target):
    return 1.0
"""

SWEEP = {
    "name": "one",
    "dataset": {"kind": "moons", "noise": 0.3, "train": 60, "test": 40},
    "network": {"kind": "own", "hidden": [[2]]},
    "prior": "normal",
    "inference": {"steps": 20, "restarts": 1, "validation": 0},
    "predict": {"draws": 5, "trace_draws": 5, "map": {"resolution": 4}},
}

pytestmark = pytest.mark.usefixtures("registries")


@pytest.fixture
def project(tmp_path):
    """Folder of an experiment file with a plugin beside it."""
    folder = tmp_path / "project"
    (folder / "parts").mkdir(parents=True)
    (folder / "parts" / "own.py").write_text(NETWORK)
    write(folder)
    return folder


def write(folder, *others, **changes):
    content = {"name": "own", "plugins": ["parts/own.py", *others], "sweeps": [SWEEP | changes]}
    (folder / "own.yaml").write_text(yaml.safe_dump(content))


def forget():
    """What another process would not know."""
    for choices in (*REGISTRIES.values(), *METRICS.values(), *plugins.OUTPUTS.values()):
        for kind in [kind for kind, part in choices.items() if part in plugins.ORIGINS]:
            del choices[kind]
    plugins.ORIGINS.clear()
    plugins._SOURCES.clear()
    for name in [name for name in sys.modules if name.startswith("pmbnn_plugin_")]:
        del sys.modules[name]


def stored(project, results="results/own"):
    """Folder of the one cell of the experiment, made up, as another process left it."""
    run = prepare(load_experiment(project / "own.yaml"), project / results)
    write_header(run)
    (task,) = run.tasks.values()
    run.results.save_cell(task.record(status="converged", results={"accuracy": 0.5}), {})
    forget()
    return run.results.cells / task.name


def restored(cell, **settings):
    results = Results(cell.parent.parent)
    with plugins.trusting(**settings) if settings else plugins.trusting(False):
        return stored_specifications(cell, results.load_record(cell.name))


def kept(cell):
    (file,) = (cell.parent.parent / "plugins").iterdir()
    return file


def test_a_cell_records_what_it_is_made_of_and_the_folder_keeps_it(project):
    cell = stored(project)
    record = Results(cell.parent.parent).load_record(cell.name)
    (plugin,) = record.plugins
    assert (plugin.name, plugin.sections) == ("parts/own.py", ("network",))
    assert kept(cell).stem == plugin.sha256
    assert kept(cell).read_text() == NETWORK
    for file in cell.parent.parent.rglob("*"):
        if file.is_file():
            assert str(project) not in file.read_text(), file


def test_a_plugin_that_is_as_it_was_is_run_where_the_experiment_has_it(project):
    cell = stored(project)
    assert restored(cell)["network"].factor == 1.0
    assert "own" not in NETWORKS  # what a cell is made of is not what new files may name


def test_an_edited_plugin_never_stands_for_the_one_that_was_fitted(project):
    cell = stored(project)
    (project / "parts" / "own.py").write_text(EDITED)
    with pytest.raises(ResultsError) as caught:
        restored(cell)
    message = str(caught.value)
    assert message.startswith(f"The cell `{cell}` needs the plugin parts/own.py as it was")
    assert "has changed since" in message and "put it back" in message
    assert "--trust-plugins" in message and "trust_plugins=True" in message
    assert "\n" not in message
    assert restored(cell, trust=True)["network"].factor == 1.0


def test_a_package_is_kept_whole_and_never_stands_for_an_edited_one(project):
    """Whichever of its files was edited, or has gone."""
    package = project / "package"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("from . import own\n")
    (package / "own.py").write_text(NETWORK)
    (package / "data" / "notes.txt").write_text("one")
    content = {"name": "own", "plugins": ["package"], "sweeps": [SWEEP]}
    (project / "own.yaml").write_text(yaml.safe_dump(content))
    cell = stored(project)
    record = Results(cell.parent.parent).load_record(cell.name)
    assert [(p.name, p.sections) for p in record.plugins] == [("package/", ("network",))]
    copy = kept(cell)
    texts = {file.relative_to(copy).as_posix() for file in copy.rglob("*") if file.is_file()}
    assert (copy.name, texts) == (
        record.plugins[0].sha256,
        {"__init__.py", "own.py", "data/notes.txt"},
    )
    assert restored(cell)["network"].factor == 1.0
    forget()
    (package / "data" / "notes.txt").write_text("two")
    with pytest.raises(ResultsError, match=r"needs the plugin package/ as it was .* has changed"):
        restored(cell)
    assert restored(cell, trust=True)["network"].factor == 1.0
    forget()
    shutil.rmtree(package)
    with pytest.raises(ResultsError, match=r"needs the plugin package/ .* it is not there: put"):
        restored(cell)
    (copy / "own.py").write_text(EDITED)
    with pytest.raises(ResultsError, match=r"is damaged: put the plugin back, or fit again\.$"):
        restored(cell, trust=True)


def test_old_and_new_versions_live_in_one_process(project):
    old = stored(project)
    (project / "parts" / "own.py").write_text(EDITED)
    new = stored(project)
    assert old != new
    (cell,) = load_experiment(project / "own.yaml").cells
    assert restored(new)["network"].factor == -1.0
    with pytest.raises(ResultsError, match="has changed since"):
        restored(old)
    assert restored(old, trust=True)["network"].factor == 1.0
    # Which has become of neither the new cells nor what files name.
    assert restored(new)["network"].factor == -1.0
    assert (cell.network.factor, NETWORKS["own"](hidden=(2,)).factor) == (-1.0, -1.0)
    assert load_experiment(project / "own.yaml").cells[0].network.factor == -1.0
    (project / "parts" / "own.py").write_text(NETWORK)
    assert load_experiment(project / "own.yaml").cells[0].network.factor == 1.0


def test_a_moved_folder_is_opened(project, tmp_path):
    """With the experiment beside it as it is, without it where the copy is trusted."""
    stored(project)
    moved = tmp_path / "elsewhere" / "project"
    moved.parent.mkdir()
    shutil.move(project, moved)
    (cell,) = (moved / "results" / "own" / "cells").iterdir()
    assert restored(cell)["network"].factor == 1.0
    alone = tmp_path / "alone"
    shutil.move(moved / "results" / "own", alone)
    forget()
    (cell,) = (alone / "cells").iterdir()
    with pytest.raises(ResultsError, match="and it is not there: put it back, or run the copy"):
        restored(cell)
    load_results(alone).cell(prior="normal")  # which runs nothing
    with pytest.raises(ResultsError, match="not there"):
        restored(cell)
    assert load_results(alone, trust_plugins=True).records
    assert restored(cell)["network"].factor == 1.0


def test_a_damaged_copy_is_not_run(project):
    cell = stored(project)
    kept(cell).write_text("raise SystemExit('run')")
    (project / "parts" / "own.py").unlink()
    with pytest.raises(ResultsError, match=r"is damaged: put the plugin back, or fit again\.$"):
        restored(cell, trust=True)
    kept(cell).unlink()
    with pytest.raises(ResultsError, match=r"The results folder keeps no copy\.$"):
        restored(cell, trust=True)


def test_the_experiment_of_a_results_folder_is_read_alike(project):
    cell = stored(project)
    file = cell.parent.parent / "experiment.yaml"
    assert load_experiment(file) == load_experiment(project / "own.yaml")
    forget()
    (project / "parts" / "own.py").write_text(EDITED)
    with pytest.raises(ConfigError, match=r"^`plugins\[0\]` needs the plugin parts/own.py as it"):
        load_experiment(file)
    experiment = load_experiment(file, trust_plugins=True)
    assert experiment.cells[0].network.factor == 1.0
    (name,) = [task.name for task in prepare(experiment, cell.parent.parent).tasks.values()]
    assert name == cell.name
    # As workers of the sampler get it.
    forget()
    plugins.load_sources(experiment.plugins)
    assert NETWORKS["own"](hidden=(2,)).factor == 1.0


def test_a_metric_is_not_needed_to_rebuild_a_cell(project):
    (project / "metric.py").write_text(METRIC)
    write(project, "metric.py", network={"kind": "dense", "hidden": [[2]]})
    cell = stored(project)
    record = Results(cell.parent.parent).load_record(cell.name)
    assert [(p.name, p.sections) for p in record.plugins] == [("metric.py", ("metric",))]
    (project / "metric.py").unlink()
    assert restored(cell)["network"] == Dense(hidden=(2,))


def test_metrics_of_another_experiment_do_not_name_cells(project, tmp_path):
    first = stored(project).name
    other = tmp_path / "other.yaml"
    (tmp_path / "metric.py").write_text(METRIC)
    content = {"name": "other", "plugins": ["metric.py"], "sweeps": [SWEEP | {"network": "dense"}]}
    other.write_text(yaml.safe_dump(content))
    load_experiment(other)
    run = prepare(load_experiment(project / "own.yaml"), project / "results" / "own")
    assert [task.name for task in run.tasks.values()] == [first]


def test_a_derived_class_is_rebuilt_with_both_files(project):
    derived = (
        "from typing import Literal\n"
        "from pmbnn.experiment.plugins import register\n"
        "from pmbnn.models.networks import NETWORKS\n"
        "@register\n"
        "class Derived(NETWORKS['own']):\n"
        "    kind: Literal['derived'] = 'derived'\n"
    )
    (project / "derived.py").write_text(derived)
    write(project, "derived.py", network={"kind": "derived", "hidden": [[2]]})
    cell = stored(project)
    assert restored(cell)["network"].factor == 1.0
    # A file that has not changed derives from the other as it is now.
    (project / "parts" / "own.py").write_text(EDITED)
    assert load_experiment(project / "own.yaml").cells[0].network.factor == -1.0
    assert restored(cell)["network"].factor == 1.0
    forget()
    with pytest.raises(ResultsError, match=r"needs the plugin parts/own\.py .* has changed"):
        restored(cell)
    assert restored(cell, trust=True)["network"].factor == 1.0


def test_a_class_of_a_notebook_that_changed_is_named(project, monkeypatch):
    """It has no file: its methods stand for it. Cells of such classes are no longer fitted."""
    monkeypatch.delattr(sys.modules[__name__], "__file__")
    monkeypatch.setattr("pmbnn.sweep.cells.check_reached", lambda cells: None)

    def define(value):
        class Typed(Laplace):
            kind: str = "typed"
            other: float = value

            def variable(self, name, scale, dims, shared):
                return super().variable(name, scale, dims, shared)

        return register(Typed)

    define(1.0)
    run = prepare(
        experiment_in_memory(
            {"name": "own", "sweeps": [SWEEP | {"network": "dense", "prior": "typed"}]},
            project / "results",
        ),
        project / "results",
    )
    write_header(run)
    (task,) = run.tasks.values()
    run.results.save_cell(task.record(status="converged", results={"accuracy": 0.5}), {})
    cell = run.results.cells / task.name
    assert restored(cell)["prior"].other == 1.0
    define(2.0)
    assert restored(cell)["prior"].other == 1.0  # the class is still there
    del PRIORS["typed"]
    forget()
    define(2.0)
    with pytest.raises(ResultsError, match="needs a class typed into a notebook as it was"):
        restored(cell)


def test_an_object_of_a_class_that_was_registered_anew_is_rejected(project, tmp_path):
    load_experiment(project / "own.yaml")
    old = NETWORKS["own"](hidden=(2,))
    (project / "parts" / "own.py").write_text(EDITED)
    load_experiment(project / "own.yaml")
    content = {"name": "own", "sweeps": [SWEEP | {"network": old}]}
    with pytest.raises(ConfigError, match=r"^`sweeps\[0\]\.network` must be of a class as it is"):
        experiment_in_memory(content, tmp_path / "out")


def test_a_plugin_that_raises_leaves_nothing_registered(project):
    (project / "parts" / "own.py").write_text(NETWORK + "\n1 / 0\n")
    with pytest.raises(ConfigError, match="raised ZeroDivisionError"):
        load_experiment(project / "own.yaml")
    assert "own" not in NETWORKS
    assert plugins.ORIGINS == {} and "own" not in OOD


def test_commands_take_the_option(project, monkeypatch):
    """The one that reads a cell, and the one that reads the experiment of a folder."""
    cell = stored(project)
    (project / "parts" / "own.py").write_text(EDITED)
    folder = cell.parent.parent
    for command in (["check", str(folder), "--dry-run"], ["merge", str(folder), "--out", "x"]):
        done = CliRunner().invoke(app, [*command])
        assert done.exit_code == 2, done.output
        assert done.stderr.startswith("error: `plugins[0]` needs the plugin parts/own.py")
        assert len(done.stderr.splitlines()) == 1
        forget()
    done = CliRunner().invoke(app, ["check", str(folder), "--dry-run", "--trust-plugins"])
    assert done.exit_code == 0, done.output
    assert plugins._TRUSTED.get() is False


@pytest.mark.slow
def test_an_edited_network_predicts_nothing_on_old_weights(project):
    """From the fit to predictions, and the trusted copy says what was said."""
    run = prepare(load_experiment(project / "own.yaml"), project / "results" / "own")
    write_header(run)
    (job,) = jobs(list(run.tasks))
    task = JobTask(job.group, job.width, tuple(run.tasks[cell] for cell in job.wanted))
    run_job(task, run.results.folder, lambda _: None)
    (cell,) = run.results.cells.iterdir()

    def predictions(it):
        return it.predict(np.linspace(-1, 1, 10).reshape(5, 2), 20).mean

    before = predictions(restore_cell(cell))
    forget()
    (project / "parts" / "own.py").write_text(EDITED)
    with pytest.raises(ResultsError, match="has changed since"):
        restore_cell(str(cell))
    np.testing.assert_array_equal(predictions(restore_cell(cell, trust_plugins=True)), before)


@pytest.mark.slow
def test_an_estimator_is_loaded_with_the_class_it_was_fitted_with(project, tmp_path):
    """Its file holds no code: the class must be registered as it was."""
    load_experiment(project / "own.yaml")
    x = np.random.default_rng(0).normal(size=(30, 2))
    network = NETWORKS["own"](hidden=(2,))
    estimator = BNNClassifier(network=network, steps=20, draws=5, restarts=1)
    file = tmp_path / "fitted.nc"
    estimator.fit(x, x[:, 0] > 0).save(file)
    assert BNNClassifier.load(file).network == network
    forget()
    (project / "parts" / "own.py").write_text(EDITED)
    load_experiment(project / "own.yaml")
    with pytest.raises(ValueError, match=r"needs `parts/own\.py` as it was at the fit, which is"):
        BNNClassifier.load(file)
    (project / "parts" / "own.py").write_text(NETWORK)
    load_experiment(project / "own.yaml")
    assert BNNClassifier.load(file).network.factor == 1.0


def test_a_cell_is_listed_without_its_plugin_and_typed_with_it(project):
    cell = stored(project)
    results = load_results(cell.parent.parent, trust_plugins=True)
    assert results.metrics["network.kind"].tolist() == ["own"]
    (record,) = results.records
    assert isinstance(record.cell.network, Unknown)
    assert record.cell.network.hidden == [2]
    load_experiment(project / "own.yaml")
    (record,) = load_results(cell.parent.parent).records
    assert type(record.cell.network) is NETWORKS["own"]


def test_a_cell_is_not_typed_by_a_plugin_that_has_changed(project):
    cell = stored(project)
    (project / "parts" / "own.py").write_text(EDITED)
    load_experiment(project / "own.yaml")
    assert "own" in NETWORKS
    record = Results(cell.parent.parent).load_record(cell.name)
    assert isinstance(record.cell.network, Unknown)
