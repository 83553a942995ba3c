"""The page that shows a new user round runs from top to bottom, in a folder of its own."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "tour.md"
TEXT = PAGE.read_text(encoding="utf-8")

pytestmark = pytest.mark.slow


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The reader's folder, with the two files that the page tells them to write."""
    made = tmp_path_factory.mktemp("tour")
    [prior] = [text for text in blocks("python") if "@pb.register" in text]
    [experiment] = blocks("yaml")
    (made / "my_priors.py").write_text(prior)
    (made / "mine.yaml").write_text(experiment)
    return made


def run(command, folder):
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=540, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def shown(folder):
    """What each command of the page prints."""
    [commands] = blocks("bash")
    found = {}
    for line in commands.splitlines():
        name, *words = shlex.split(line)
        found[line] = run([str(Path(sys.executable).parent / name), *words], folder)
    return found


def test_the_commands(shown, folder):
    plan, sweep, _, verify = shown.values()
    assert "mine: 12 cells" in plan
    assert len(re.findall(r"^ +\d+ +3 +\d+ ", plan, re.MULTILINE)) == 4, (
        "groups, of three seeds each"
    )
    assert "logistic" in sweep
    assert verify == ""
    assert len(list((folder / "results/mine/cells").glob("*/map.png"))) == 12


def test_the_page_has_no_word_of_our_study(shown, folder):
    page = (folder / "results/mine/index.html").read_text(encoding="utf-8")
    assert "logistic" in page
    for word in ("MNIST", "Published", "write-up", "the report", "TensorFlow"):
        assert word not in page, word


def test_the_python(shown, folder):
    """Every other block, one after the other in one script, without asking for its name."""
    code = "\n".join(text for text in blocks("python") if "@pb.register" not in text)
    code += (
        "\nassert table.shape == (2, 2) and table.notna().all(axis=None)"
        "\nassert {'weight_1', 'layer_1_scale'} <= set(posterior.data_vars)"
        "\nassert proba.shape == (3, 2) and idata['posterior'].sizes['draw'] == 500"
        "\nagain = pb.run('mine.yaml', out='results/mine', workers=2)"
        "\nassert len(again.records) == 12"
    )
    (folder / "script.py").write_text(code)
    before = {p: p.stat().st_mtime_ns for p in (folder / "results/mine/cells").glob("*/trace.nc")}
    run([sys.executable, "script.py"], folder)
    assert before == {path: path.stat().st_mtime_ns for path in before}, "nothing fitted again"


def test_a_changed_prior_is_fitted_again_and_nothing_else(shown, folder):
    cells = folder / "results/mine/cells"
    before = set(os.listdir(cells))
    source = (folder / "my_priors.py").read_text()
    (folder / "my_priors.py").write_text(source + "\n# changed\n")
    only = ["--only", "dataset.seed=0"]
    run([sys.executable, "-m", "pmbnn.sweep", "mine.yaml", *only], folder)
    added = set(os.listdir(cells)) - before
    assert len(added) == 2 and all("logistic" in name for name in added)
