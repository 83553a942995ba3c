"""What each entry loads, and that imports point one way only."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import pmbnn

PACKAGE = Path(pmbnn.__file__).parent
PRIORS = PACKAGE.parent / "experiments" / "priors.yaml"

SLOW = {"numpy", "scipy", "sklearn", "xarray", "pandas", "matplotlib", "arviz", "arviz_base"}
SLOW |= {"pymc", "pytensor", "jax", "optax", "h5py", "h5netcdf", "mlxtend", "PIL"}
"""Packages that take long to load: none is needed to read and plan an experiment."""

LAYERS = """
    specification short_names
    metrics regression_metrics predictive moments tables storage posterior_weights
    digit_format classification detection processes
    datasets variants priors convolution inference.settings ink
    likelihoods networks pictures unfamiliar
    prediction_settings
    experiment config_errors
    yaml_file axes
    config_checks
    config selection estimate labels
    plan tasks
    models figures progress closing_tables index_page
    report.folders
    claims
    report
    inference
    guide_draws learning_rate
    prediction regression_prediction
    predictors
    watching
    fitting
    mixture regenerate regression_evaluation
    picture_evaluation
    diagnosis
    evaluation
    prediction_groups curve_groups
    trace
    job
    workers
    runner
    sweep predict
"""
"""A module imports from earlier lines only. A folder stands for all modules in it that are not
named themselves; those may import each other."""


def loaded_by(code: str) -> set[str]:
    """Top-level packages in memory after a piece of code ran in a fresh process."""
    code += "\nimport json, sys\nprint(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def loaded_by_sweep(*arguments: str, command: str = "sweep") -> set[str]:
    return loaded_by(
        f"import sys; sys.argv = {[command, *arguments]!r}\n"
        f"from pmbnn.{command} import app\n"
        "try:\n    app()\n"
        "except SystemExit as stop:\n    assert not stop.code, stop.code"
    )


@pytest.mark.parametrize("command", ["sweep", "predict", "claims.command", "report.command"])
def test_help_loads_nothing_slow(command):
    loaded = loaded_by_sweep("--help", command=command)
    assert "typer" in loaded
    assert not loaded & SLOW


def test_a_dry_run_loads_nothing_slow():
    loaded = loaded_by_sweep(str(PRIORS), "--dry-run")
    assert {"typer", "pydantic", "yaml"} <= loaded
    assert not loaded & SLOW


@pytest.mark.parametrize(
    "module",
    ["config", "plan", "selection", "datasets", "unfamiliar", "pictures", "workers", "tasks"],
)
def test_reading_and_planning_load_nothing_slow(module):
    assert not loaded_by(f"import pmbnn.{module}") & SLOW


def test_metrics_load_numpy_alone():
    loaded = loaded_by("import pmbnn.metrics")
    assert loaded & SLOW == {"numpy"}


@pytest.mark.parametrize(
    "module",
    ["storage", "figures", "tables", "runner", "progress", "report.page", "report.rebuild"],
)
def test_what_reads_results_does_not_load_what_fits(module):
    loaded = loaded_by(f"import pmbnn.{module}")
    assert not loaded & {"arviz", "arviz_base", "pymc", "pytensor", "jax", "optax"}


# Directions


def layer_of(module: str) -> tuple[int, str]:
    """Line of a module in LAYERS and the name it stands under there."""
    places = {
        name: (number, name)
        for number, line in enumerate(LAYERS.strip().splitlines())
        for name in line.split()
    }
    found = places.get(module) or places.get(module.split(".")[0])
    assert found, f"pmbnn.{module} is on no line of LAYERS: put it there."
    return found


def modules() -> dict[str, ast.Module]:
    """Syntax trees of every module, by name without ``pmbnn.``; an empty name is left out."""
    named = {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__"): path
        for path in PACKAGE.rglob("*.py")
    }
    trees = {name.rstrip("."): ast.parse(path.read_text("utf-8")) for name, path in named.items()}
    return {name: tree for name, tree in trees.items() if name}


def imported(tree: ast.Module, known: set[str]) -> set[str]:
    """Modules of this package that a module imports anywhere, for types or within functions."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith("pmbnn") for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            if node.module.split(".")[0] == "pmbnn":
                inner = node.module.removeprefix("pmbnn").lstrip(".")
                names = {f"{inner}.{alias.name}".lstrip(".") for alias in node.names}
                found |= (names & known) or ({inner} if inner else set())
    return found


def test_every_import_points_to_an_earlier_layer():
    trees = modules()
    assert len(trees) > 40, "the package was found"
    wrong = []
    for module, tree in trees.items():
        line, name = layer_of(module)
        for other in imported(tree, set(trees)):
            other_line, other_name = layer_of(other)
            if other_line > line or (other_line == line and other_name != name):
                wrong.append(f"{module} imports {other}")
    assert wrong == []


def test_every_line_of_the_layers_exists():
    names = set(modules())
    assert [name for name in LAYERS.split() if name not in names] == []
