"""The documentation: the site builds without a warning, and what its pages show runs."""

import ast
import inspect
import os
import re
import subprocess
import sys
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml

from pmbnn.experiment.cells import SOURCES

ROOT = Path(__file__).parents[1]
PAGES = ["start", "scikit_learn", "uncertainty", "own_data"]
FILES = [
    "own_prior",
    "change_settings",
    "compare_priors",
    "many_splits",
    "check_fit",
    "predict_rows",
]
TASKS = [*FILES, "any_model"]
"""Pages of one task each, whose blocks run in order in one folder; the first have a YAML file."""


def python_blocks(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.mark.slow
def test_the_site_builds(tmp_path):
    options = ["-W", "--keep-going", "-q", "-d", str(tmp_path / "trees"), "-c", "docs"]
    command = [sys.executable, "-m", "sphinx", *options, ".", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "docs/index.html" in (tmp_path / "site" / "index.html").read_text()
    pages = tmp_path / "site" / "docs"
    start = (pages / "index.html").read_text()
    navigation = start[start.index('<nav class="bd-docs-nav') :].partition("</nav>")[0]
    for page in (*PAGES, *TASKS, "made/settings", "made/gallery", "made/glossary"):
        assert f'href="{page}.html"' in navigation, page
    assert "pip install" in re.sub("<[^>]+>", "", start) and "<img " in start
    assert "kl_annealing" in (pages / "made" / "settings.html").read_text()
    assert "predict_interval" in (pages / "made" / "api.html").read_text()
    for page, fewest in {"gallery": 6, "inspect_traces": 2, "report_figures": 14}.items():
        text = (pages / "made" / f"{page}.html").read_text()
        shown = re.findall(r'<img [^>]*src="([^"]+)"', text)
        assert len(shown) >= fewest
        full = re.findall(r'<a class="[^"]*image-reference" href="([^"]+)"', text)
        assert all((pages / "made" / source).is_file() for source in (*shown, *full))


def test_pages_of_settings_and_names_have_all_of_them(monkeypatch):
    """Each public name stands below the heading of its room, each setting with its values."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    from made_pages import api_page, settings_page

    assert "pmbnn.predict_rows" in api_page()
    page = settings_page()
    assert "`kl_weight`: number ≥ 0, default `1.0`\n: Factor of" in page
    assert "`noise`: number > 0, required\n: Standard deviation" in page
    assert "`split`: `random`, `folds` or `indices`, default `random`" in page
    for part in ("### `layers`: `convolution`", "### `scale`: `tune`", "### `ood`: `letters`"):
        assert part in page


def test_pages_of_notebooks_have_their_outputs(tmp_path, monkeypatch):
    """Made of what is stored in the notebooks: text that they print, tables, and pictures."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    from made_pages import notebook_page

    for name, pictures in {"inspect_traces": 2, "report_figures": 14}.items():
        page = notebook_page(ROOT / "docs" / f"{name}.ipynb", tmp_path)
        shown = re.findall(r"!\[[^]]*\]\(([^)]+)\)", page)
        assert len(shown) == len(set(shown)) == pictures
        for picture in shown:
            assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")
        assert page.count("```python") > pictures and "```text" in page


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_what_pages_show_runs(page, tmp_path):
    code = "\n".join(python_blocks(ROOT / "docs" / f"{page}.md"))
    assert "pb." in code
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", ["start", "scikit_learn"])
def test_what_pages_show_of_estimators_is_valid(page, monkeypatch):
    """Without the fits, which take half a minute."""
    from pmbnn.core.machine import current_device
    from pmbnn.estimators import base

    posterior = SimpleNamespace(
        device=current_device(),
        status="converged",
        reason="made",
        predict=lambda x: SimpleNamespace(mean=np.full((len(x), 2), 0.5)),
        to_datatree=lambda: {"posterior": SimpleNamespace(sizes={})},
    )
    fits = []
    monkeypatch.setattr(base, "fitted", lambda cell, dataset: fits.append(cell) or posterior)
    exec("\n".join(python_blocks(ROOT / "docs" / f"{page}.md")), {})
    assert len(set(fits)) == {"start": 1, "scikit_learn": 6}[page]


def test_names_and_arguments_that_pages_show_are_there():
    import pmbnn

    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    nodes = [
        node
        for page in pages
        for block in python_blocks(page)
        for node in ast.walk(ast.parse(block))
    ]
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module.startswith("pmbnn"):
            assert {one.name for one in node.names} <= set(dir(import_module(node.module)))
    texts = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)}
    names = [text for text in texts if re.fullmatch(r"pb(\.\w+)+", text)]
    shown = {name: attrgetter(name[3:])(pmbnn) for name in names}
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    given = [(ast.unparse(call.func), {k.arg for k in call.keywords}) for call in calls]
    given = [(name, arguments) for name, arguments in given if name in shown and arguments]
    assert len(given) > 10
    for name, arguments in given:
        part = shown[name]
        known = getattr(part, "model_fields", None) or inspect.signature(part).parameters
        assert arguments <= known.keys() or "settings" in known, name


@pytest.mark.slow
@pytest.mark.parametrize("page", TASKS)
def test_pages_of_tasks_run_from_top_to_bottom(page, tmp_path):
    """A block that begins with the name of a file is that file; what is marked so is not run."""
    commands = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for language, text in blocks(page):
        if named := re.match(r"# (\S+\.(?:py|yaml))\n", text):
            (tmp_path / named[1]).write_text(shortened(text))
        elif language in ("python", "bash"):
            text = shortened(re.sub(r".*# not run here\n", "", text))
            program = sys.executable if language == "python" else "bash"
            done = subprocess.run(
                [program, *(["-e"] if language == "bash" else []), "-c", text],
                cwd=tmp_path,
                env=os.environ | {"PATH": commands},
                capture_output=True,
                text=True,
                timeout=600,
            )
            assert done.returncode == 0, done.stdout + done.stderr


def blocks(page):
    text = (ROOT / "docs" / f"{page}.md").read_text()
    return re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL)


def shortened(text):
    """The same with few steps and rows; whole posteriors are sampled by other tests."""
    text = re.sub(r"\b(steps\"?[:=] ?)\d+", r"\g<1>60", text)
    text = re.sub(r"\b((?:train|test)\"?: )\d+", r"\g<1>40", text)
    text = re.sub(r" +- {engine: mclmc.*\n", "", text)
    text = re.sub(r"(pmbnn check .*?)(?: --dry-run)?\n", r"\g<1> --dry-run\n", text)
    return text.replace("pb.sample(model", "pb.sample(model, chains=2, draws=20, tuning=100")


@pytest.mark.parametrize("page", FILES)
def test_files_of_pages_of_tasks_are_experiments(page, tmp_path, monkeypatch, registries):
    from pmbnn.experiment.load import load_experiment

    monkeypatch.syspath_prepend(tmp_path)
    for _, text in blocks(page):
        if named := re.match(r"# (\S+\.(?:py|yaml))\n", text):
            (tmp_path / named[1]).write_text(text)
    [file] = tmp_path.glob("*.yaml")
    experiment = load_experiment(file)
    if not experiment.sweeps[0].needs_data:
        assert experiment.cells


def test_yaml_of_the_page_on_experiment_files_is_valid(tmp_path):
    """A whole file, sections of a sweep, contrasts; tests of their own check the other blocks."""
    from pmbnn.experiment.cells import SOURCES
    from pmbnn.experiment.load import experiment_of

    shown = [
        yaml.safe_load(text) for language, text in blocks("experiment_files") if language == "yaml"
    ]
    assert len(experiment_of(shown[0], tmp_path).cells) == 130
    checked = set()
    for content in shown[1:]:
        dataset = {"kind": "sine" if "likelihood" in content else "mnist"}
        sweep = {
            "name": "shown",
            "dataset": dataset,
            "network": "dense",
            "prior": ["normal", "laplace"],
            "hyperprior": ["fixed", "half_normal"],
        }
        whole = {"name": "shown", "sweeps": [sweep]}
        if content.keys() <= SOURCES.keys():
            sweep |= content
        elif "contrasts" in content:
            whole |= content
        else:
            continue
        checked |= content.keys()
        assert experiment_of(whole, tmp_path).sweeps
    sections = {"dataset", "network", "inference", "predict", "likelihood"}
    assert checked == sections | {"contrasts", "margin"}


def test_the_sweep_of_the_page_on_uncertainty_is_whole(tmp_path):
    """Numbers are shown for it: all that decides them is written there."""
    from pmbnn.experiment.load import experiment_of

    [sweep] = [
        yaml.safe_load(text) for language, text in blocks("uncertainty") if language == "yaml"
    ]
    whole = {"name": "shown", "sweeps": [{"name": "shown", **sweep}]}
    assert len(experiment_of(whole, tmp_path).cells) == 10


def test_the_job_that_the_page_on_clusters_submits():
    """A worker of one thread for each core, within the environment that the page names."""
    import dask

    shown = python_blocks(ROOT / "docs" / "cluster.md")[0]
    here = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    names: dict = {}
    with dask.config.set({"jobqueue.slurm.scheduler-options": here}):
        exec(shown, names)
        with names["cluster"] as cluster:
            script = cluster.job_script()
    lines = script.splitlines()
    assert "#SBATCH --cpus-per-task=8" in lines and "#SBATCH -t 04:00:00" in lines
    assert "#SBATCH --mem=15G" in lines
    assert lines.index("export PMBNN_DATA=~/data") < len(lines) - 1
    assert "--nthreads 1 " in lines[-1] and "--nworkers 8 " in lines[-1]


def test_commands_that_pages_name_are_there():
    from pmbnn.cli import app

    pages = [page.read_text() for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))]
    line = re.compile(r"^(?:\$ |uv run )?pmbnn ([a-z]+)", re.MULTILINE)
    shown = {name for page in pages for name in line.findall(page)}
    assert {"new", "compare"} <= shown <= {command.name for command in app.registered_commands}


def test_the_first_day_shows_what_new_writes_and_the_plan_says(tmp_path):
    """Of a table as the page describes it."""
    from pmbnn.experiment.cost import total_work
    from pmbnn.experiment.draft import draft
    from pmbnn.experiment.load import load_experiment

    n = 260
    plants = pd.DataFrame(
        {
            "plant": [f"P{i:04}" for i in range(n)],
            "measured": [f"2024-05-{1 + i % 28:02}" for i in range(n)],
            "site": [["north", "south", "east"][i % 3] if i >= 6 else None for i in range(n)],
            "soil": [["clay", "sand"][i // 2 % 2] for i in range(n)],
            "height": [round(16.2 + 0.6 * (i % 103), 1) for i in range(n)],
            "leaf": [round(7.1 + 0.5 * (i % 58), 1) for i in range(n)],
            "flowers": [i * 7 % 13 for i in range(n)],
            "health": [["good", "fair", "poor"][i // 3 % 3] for i in range(n)],
        }
    )
    plants.loc[20:28, "height"] = None
    plants.loc[30, "height"], plants.loc[31, "leaf"] = 77.6, 35.6
    plants.to_csv(tmp_path / "plants.csv", index=False)
    text = draft(tmp_path / "plants.csv", "plants.csv")
    page = (ROOT / "docs" / "first_day.md").read_text()
    shown = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[0]
    assert shown in text
    (tmp_path / "plants.yaml").write_text(text)
    cells = load_experiment(tmp_path / "plants.yaml").cells
    assert f"the plan: {len(cells)} cells in six groups, {total_work(cells).fits} fits" in page


def test_every_result_and_table_is_described():
    from pmbnn.experiment.plugins import METRIC, TABLE, TAKEN
    from pmbnn.results.tables import UNITS

    text = (ROOT / "docs" / "results.md").read_text()
    further = ("mean_sd", "best_accuracy", "train_rmse", "band_ratio_1.5", "mean_total_sd")
    results = {n for n in (*TAKEN[METRIC], *UNITS, *further) if not n.endswith("_mcse")}
    columns = {*SOURCES, "sweep", "name", "seed", "device", "reason", "target_range"}
    assert [n for n in sorted(results - columns) if f"`{n}`" not in text] == []
    assert [n for n in sorted(TAKEN[TABLE]) if f"`{n}.csv`" not in text] == []


def test_columns_of_tables_of_comparisons_are_described():
    from pmbnn.compare import agreement, baselines, contrasts, over_data, sensitivity
    from pmbnn.compare.claims import CLAIMS

    text = (ROOT / "docs" / "results.md").read_text()
    columns = {
        *(contrasts.VERDICT_COLUMNS + over_data.COLUMNS + baselines.PAIRED_COLUMNS),
        *(agreement.JUDGEMENTS + sensitivity.COLUMNS + CLAIMS),
        *("regret", "regret_se", "regret_largest", "right", "by_chance"),
        *("total_variation", "wasserstein", "mean_distance", "sd_ratio", "kl_gap"),
    }
    more = ("low", "high", *contrasts.REACH)
    assert all(f"_{end}`" in text for end in more)
    ends = {f"{name}_{end}" for name in contrasts.COLUMN for end in more}
    assert [n for n in sorted(columns - ends) if f"`{n}`" not in text] == []


def test_the_grid_of_the_first_page_is_an_experiment(tmp_path):
    from pmbnn.experiment.load import load_experiment

    text = (ROOT / "docs" / "start.md").read_text()
    [shown] = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "mine.yaml").write_text(shown)
    assert len(load_experiment(tmp_path / "mine.yaml").cells) == 24
