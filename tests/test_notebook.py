"""The notebooks run, and what is committed of them is small and names no machine.

That of the report's figures runs where a tiny form of its experiment is: ``test_experiments.py``.
"""

import json
from pathlib import Path

import matplotlib
import pytest
from notebooks import DOCS, code_cells, run_cells

NOTEBOOKS = sorted(DOCS.glob("*.ipynb"))

LARGEST = 150_000
"""Bytes of a notebook that may be committed."""


@pytest.fixture(scope="module")
def cells():
    return code_cells("inspect_traces.ipynb")


@pytest.fixture
def agg():
    import matplotlib.pyplot as plt

    before = matplotlib.get_backend()
    matplotlib.use("agg")
    yield plt
    plt.close("all")
    matplotlib.use(before)


@pytest.mark.slow
def test_it_runs_from_top_to_bottom(cells, agg, capsys):
    """In one namespace, as in a notebook; warnings that it does not silence itself are errors."""
    space = {"__name__": "notebook"}
    drawn = []
    agg.show, show = lambda: drawn.append(agg.gcf()), agg.show
    try:
        run_cells(cells, space)
    finally:
        agg.show = show
    printed = capsys.readouterr().out
    assert printed.count("accuracy 0.") == len(space["traces"]) == 2
    assert printed.count("corrected") == 2
    assert len(drawn) == 2 and all(figure.axes for figure in drawn)
    assert not Path(space["folder"].name).exists()


def test_outputs_are_kept(cells):
    kept = [cell for cell in cells if cell["outputs"]]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    kinds = [kind for c in kept for out in c["outputs"] for kind in out.get("data", ())]
    assert kinds.count("image/png") == 2 and kinds.count("text/html") == 2


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_small_and_names_no_machine(notebook):
    text = notebook.read_text(encoding="utf-8")
    assert len(text) < LARGEST
    for word in ("/home", "/root", "/tmp", "/work", "site-packages", "Warning", "Traceback"):
        assert word not in text
    assert set(json.loads(text)["metadata"]) == {"kernelspec", "language_info"}
