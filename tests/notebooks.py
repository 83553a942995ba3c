"""Notebooks run by a real kernel, as a reader runs them, and what their cells show."""

from pathlib import Path

import nbformat
from nbclient import NotebookClient

DOCS = Path(__file__).parents[1] / "docs"


def read_notebook(name):
    """The notebook of that name, as it is stored."""
    return nbformat.read(DOCS / name, as_version=4)


def code_cells(notebook):
    """Its cells of code."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def notebook_of(*cells):
    """A notebook of these pieces of code."""
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])


def run_notebook(notebook, folder, timeout=900):
    """Run all cells in a kernel that starts in a folder; an exception in one is raised here."""
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=timeout, kernel_name="python3", resources=resources).execute()
    return code_cells(notebook)


def shown(cell, kind):
    """Everything of one kind that a cell shows: pictures (``image/png``), tables, text."""
    return [output.data[kind] for output in cell.outputs if kind in output.get("data", {})]


def printed(cell):
    """What a cell prints."""
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")
