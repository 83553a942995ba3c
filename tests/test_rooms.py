"""What each entry loads, and that imports point one way only."""

import ast
import functools
import itertools
import json
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import pmbnn
from pmbnn.inference.samplers.settings import SAMPLING

PACKAGE = Path(pmbnn.__file__).parent
PRIORS = PACKAGE.parent / "experiments" / "priors.yaml"
WITH_PLUGIN = PRIORS.with_name("trust_samplers.yaml")

SLOW = {"numpy", "scipy", "sklearn", "xarray", "pandas", "matplotlib", "arviz", "arviz_base"}
SLOW |= {"pymc", "pytensor", "jax", "optax", "netCDF4", "mlxtend", "PIL"}
SLOW |= {"arviz_stats", "blackjax", "dask", "distributed", "rich", "matplotlib.pyplot"}
"""Packages that take long to load: none is needed to read and plan an experiment."""

ROOMS = (
    "core",
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
    "prior_predictive",
    "compare",
    "report",
    "calibration",
    "sweep",
    "cli",
)
"""From the ground up: a room imports from earlier ones only, and from itself."""

SHIMS = {"__main__", "sweep.__main__"}
"""Programs that ``python -m`` runs: they import the commands only, and no module imports them."""

FITS = {"arviz", "arviz_base", "pymc", "pytensor", "jax", "optax", "dask", "distributed"}
FITS |= {"matplotlib.pyplot"}
"""What reading results does not need: fitting does, or who names a cluster."""


def command(*arguments: str) -> str:
    """Code that calls the one command, which must end well."""
    return (
        f"import sys; sys.argv = {['pmbnn', *arguments]!r}\n"
        "from pmbnn.cli import app\n"
        "try:\n    app()\n"
        "except SystemExit as stop:\n    assert not stop.code, stop.code"
    )


COMMANDS = ("sweep", "check", "prior", "calibrate", "predict", "report", "claims", "compare")
COMMANDS += ("schema",)
READ_AND_PLAN = (
    "experiment.load",
    "experiment.plan",
    "data",
    "data.ood",
    "data.images",
    "fitting.workers",
    "fitting.tasks",
)
READ_RESULTS = (
    "results.store",
    "results.tables",
    "figures",
    "figures.stage",
    "sweep.cells",
    "sweep.outputs",
    "sweep.stages",
    "report.page",
    "report.rebuild",
    "compare.agreement",
)
STEPS = (
    ("import pmbnn", SLOW | {"pydantic", "yaml", "typer"}),
    (command("--help"), SLOW | {"pydantic"}),
    *((command(name, "--help"), SLOW) for name in COMMANDS),
    *((f"import pmbnn.{module}", SLOW) for module in READ_AND_PLAN),
    ("import pmbnn.data as d; d.Moons(noise=0.3).rows, d.Mnist(source='embedded').rows", SLOW),
    (command("sweep", str(PRIORS), "--dry-run"), SLOW),
    (command("sweep", str(PRIORS), "--dry-run", "--set", "prior=normal,laplace"), SLOW),
    (command("sweep", str(WITH_PLUGIN), "--dry-run"), SLOW),
    (command("prior", str(PRIORS), "--dry-run", "--only", "prior=normal"), SLOW),
    *(
        (f"import pmbnn; pmbnn.{name}", SLOW - {"numpy"})
        for name in ("register", "load_experiment", "Laplace", "dense_classifier")
    ),
    ("import pmbnn.prediction.metrics", SLOW - {"numpy"}),
    *((f"import pmbnn.{module}", FITS) for module in READ_RESULTS),
)
"""Code and what it must not load. One process runs all, so what may be loaded only grows."""

RUN_STEPS = """
import json, sys
for code in json.loads(sys.argv[1]):
    try:
        exec(code, {})
    finally:
        print("\\n" + json.dumps(sorted(sys.modules)), flush=True)
"""


@pytest.fixture(scope="module")
def loaded() -> list[set[str]]:
    """Modules in memory after each of the steps, in one fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", RUN_STEPS, json.dumps([code for code, _ in STEPS])],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith('["')]
    return [set(json.loads(line)) for line in lines]


def test_each_entry_loads_no_more_than_it_needs(loaded):
    assert len(loaded) == len(STEPS)
    allowed = [forbidden for _, forbidden in STEPS]
    assert all(after <= before for before, after in itertools.pairwise(allowed)), "it only grows"
    wrong = {
        code: sorted(modules & forbidden)
        for (code, forbidden), modules in zip(STEPS, loaded, strict=True)
        if modules & forbidden
    }
    assert wrong == {}
    assert {"typer", "pydantic", "yaml", "numpy", "xarray"} <= loaded[-1], "the steps have run"


# Directions


@functools.cache
def modules() -> dict[str, ast.Module]:
    """Syntax trees of every module, by name without ``pmbnn.``; an empty name is left out."""
    named = {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__"): path
        for path in PACKAGE.rglob("*.py")
    }
    trees = {name.rstrip("."): ast.parse(path.read_text("utf-8")) for name, path in named.items()}
    return {name: tree for name, tree in trees.items() if name}


def imported(tree: ast.AST, known: set[str], types: bool = True) -> set[str]:
    """Modules of this package that a module imports anywhere, also within functions.

    Parameters
    ----------
    types
        Whether to count imports under ``if TYPE_CHECKING``.
    """
    names: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        is_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if types or not is_types:
            names |= imported(node, known, types)
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith("pmbnn") for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            if node.module.split(".")[0] == "pmbnn":
                inner = node.module.removeprefix("pmbnn").lstrip(".")
                modules = {f"{inner}.{alias.name}".lstrip(".") for alias in node.names}
                names |= (modules & known) or ({inner} if inner else set())
    return names


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


def test_no_module_imports_itself_through_others():
    """Nor within functions; only imports for types may point either way."""
    trees = modules()
    TopologicalSorter(
        {name: imported(tree, set(trees), types=False) - {name} for name, tree in trees.items()}
    ).prepare()  # a CycleError names the modules


def test_samplers_are_imported_by_their_names_only():
    """When one is chosen: they import blackjax, which takes a second that no fit needs.

    One may import another.
    """
    trees = modules()
    samplers = {f"inference.samplers.{engine}" for engine in SAMPLING}
    assert samplers <= set(trees)
    others = {name: tree for name, tree in trees.items() if name not in samplers}
    assert not any(imported(tree, set(trees)) & samplers for tree in others.values())


def test_every_room_exists_and_none_stands_outside():
    found = {room_of(name) for name in set(modules()) - SHIMS}
    assert found == set(ROOMS)


def test_the_top_holds_packages_and_three_modules_at_most():
    top = [path.name for path in PACKAGE.iterdir() if path.suffix == ".py"]
    assert "__init__.py" in top
    assert len(top) <= 4
