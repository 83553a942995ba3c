"""In a notebook's kernel figures are pictures and results are tables; the notebooks run there.

That of the report's figures runs where a tiny form of its experiment is: ``test_experiments.py``.
"""

import pytest
from makers import MOONS, plane_trace, record, store
from notebooks import (
    DOCS,
    code_cells,
    notebook_of,
    printed,
    read_notebook,
    run_notebook,
    shown,
)

NOTEBOOKS = sorted(DOCS.glob("*.ipynb"))

LARGEST = 1_000_000
"""Bytes of a notebook that may be committed."""

PICTURE = "image/png"


@pytest.mark.slow
def test_figures_are_pictures_and_results_tables(tmp_path):
    """Whatever the backend is, and without changing it."""
    cells = [(record("normal", dataset=MOONS), plane_trace(resolution=(6, 5), points=20))]
    folder = store(tmp_path, cells).folder
    setup, map_, backend, results, cell, after = run_notebook(
        notebook_of(
            f"import pmbnn as pb\nresults = pb.load_results({str(folder)!r})\n"
            "figure = pb.plot(results, 'map')",
            "figure",
            "import matplotlib\nprint(matplotlib.get_backend())",
            "results",
            "results.cell()",
            "import matplotlib.pyplot as plt\nplt.figure()\nplt.close()\npb.plot(results, 'map')",
        ),
        tmp_path,
    )
    assert not setup.outputs, "nothing is shown unasked"
    assert len(shown(map_, PICTURE)) == len(shown(after, PICTURE)) == 1
    assert "inline" in printed(backend)
    for table in (results, cell):
        assert "<table" in shown(table, "text/html")[0]
        assert len(shown(table, "text/plain")[0]) < 500


@pytest.mark.slow
def test_the_notebook_of_traces_runs_from_top_to_bottom(tmp_path):
    """Warnings that it does not silence itself would show."""
    cells = run_notebook(read_notebook("inspect_traces.ipynb"), tmp_path)
    text = "".join(map(printed, cells))
    assert text.count("accuracy 0.") == text.count("corrected") == 2
    assert sum(len(shown(cell, PICTURE)) for cell in cells) == 2
    assert sum(len(shown(cell, "text/html")) for cell in cells) == 2
    assert not any(output.get("name") == "stderr" for cell in cells for output in cell.outputs)


@pytest.mark.parametrize(
    ("name", "pictures", "tables"), [("inspect_traces", 2, 2), ("report_figures", 14, 0)]
)
def test_outputs_are_kept(name, pictures, tables):
    cells = code_cells(read_notebook(f"{name}.ipynb"))
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert sum(len(shown(cell, PICTURE)) for cell in cells) == pictures
    assert sum(len(shown(cell, "text/html")) for cell in cells) == tables


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_small_and_names_no_machine(notebook):
    text = notebook.read_text(encoding="utf-8")
    assert len(text) < LARGEST
    content = read_notebook(notebook.name)
    assert set(content.metadata) == {"kernelspec", "language_info"}
    # Pictures are letters by chance.
    for cell in code_cells(content):
        for output in cell.outputs:
            output.get("data", {}).pop(PICTURE, None)
    for word in ("/home", "/root", "/tmp", "/work", "site-packages", "Warning", "Traceback"):
        assert word not in str(content)
