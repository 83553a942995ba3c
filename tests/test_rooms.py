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
SLOW |= {"pymc", "pytensor", "jax", "optax", "h5py", "h5netcdf", "netCDF4", "mlxtend", "PIL"}
SLOW |= {"arviz_stats", "blackjax"}
"""Packages that take long to load: none is needed to read and plan an experiment."""

ROOMS = (
    "spec",
    "data",
    "models",
    "inference",
    "prediction",
    "experiment",
    "results",
    "fitting",
    "estimators",
    "testing",
    "figures",
    "compare",
    "report",
    "sweep",
    "cli",
)
"""From the ground up: a room imports from earlier ones only, and from itself."""

SHIMS = {"claims", "predict", "report.__main__", "sweep.__main__"}
"""What ``python -m`` names: they stand apart, and import the commands."""


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
        f"from pmbnn.cli.{command} import app\n"
        "try:\n    app()\n"
        "except SystemExit as stop:\n    assert not stop.code, stop.code"
    )


@pytest.mark.parametrize(
    "command", ["sweep", "calibrate", "predict", "claims", "compare", "report"]
)
def test_help_loads_nothing_slow(command):
    loaded = loaded_by_sweep("--help", command=command)
    assert "typer" in loaded
    assert not loaded & SLOW


def test_the_one_command_loads_nothing_slow():
    loaded = loaded_by(
        "import sys; sys.argv = ['pmbnn', '--help']\n"
        "from pmbnn.cli import app\n"
        "try:\n    app()\n"
        "except SystemExit as stop:\n    assert not stop.code, stop.code"
    )
    assert "typer" in loaded
    assert not loaded & (SLOW | {"pydantic"})


def test_importing_the_package_loads_next_to_nothing():
    assert not loaded_by("import pmbnn") & (SLOW | {"pydantic", "yaml", "typer"})


@pytest.mark.parametrize("name", ["register", "load_experiment", "Laplace", "dense_classifier"])
def test_public_names_of_plans_load_nothing_slower_than_numpy(name):
    assert loaded_by(f"import pmbnn; pmbnn.{name}") & SLOW <= {"numpy"}


@pytest.mark.parametrize("options", [(), ("--prior-only",)])
def test_a_dry_run_loads_nothing_slow(options):
    loaded = loaded_by_sweep(str(PRIORS), "--dry-run", *options)
    assert {"typer", "pydantic", "yaml"} <= loaded
    assert not loaded & SLOW


@pytest.mark.parametrize(
    "module",
    [
        "experiment.load",
        "experiment.plan",
        "experiment.selection",
        "data",
        "data.ood",
        "data.own_images",
        "sweep.workers",
        "fitting.tasks",
    ],
)
def test_reading_and_planning_load_nothing_slow(module):
    assert not loaded_by(f"import pmbnn.{module}") & SLOW


def test_metrics_load_numpy_alone():
    loaded = loaded_by("import pmbnn.prediction.metrics")
    assert loaded & SLOW == {"numpy"}


@pytest.mark.parametrize(
    "module",
    [
        "results.store",
        "figures.stage",
        "results.tables",
        "sweep.cells",
        "sweep.progress",
        "report.page",
        "report.rebuild",
        "compare.agreement",
        "sweep.stages",
    ],
)
def test_what_reads_results_does_not_load_what_fits(module):
    loaded = loaded_by(f"import pmbnn.{module}")
    assert not loaded & {"arviz", "arviz_base", "pymc", "pytensor", "jax", "optax"}
    assert not loaded & {"dask", "distributed"}, "only who names a cluster needs these"


# Directions


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


def room_of(module: str) -> str:
    return module.split(".")[0]


def test_every_import_points_to_an_earlier_room():
    trees = modules()
    assert len(trees) > 40, "the package was found"
    wrong = []
    for module, tree in trees.items():
        for other in imported(tree, set(trees)):
            if module in SHIMS:
                assert room_of(other) == "cli"
            elif ROOMS.index(room_of(other)) > ROOMS.index(room_of(module)):
                wrong.append(f"{module} imports {other}")
    assert wrong == []


def test_every_room_exists_and_none_stands_outside():
    found = {room_of(name) for name in set(modules()) - SHIMS}
    assert found == set(ROOMS)


def test_the_top_holds_packages_and_three_modules_at_most():
    top = [path.name for path in PACKAGE.iterdir() if path.suffix == ".py"]
    assert "__init__.py" in top
    assert len(top) <= 4
