"""Notebooks of the documentation: their code, and what it shows."""

import ast
import json
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def code_cells(name):
    """Cells of code of the notebook of that name, as they are stored."""
    content = json.loads((DOCS / name).read_text(encoding="utf-8"))
    return [cell for cell in content["cells"] if cell["cell_type"] == "code"]


def run_cells(cells, space):
    """Value of the last expression of each cell, None where it ends on another statement.

    All run in the one namespace `space`, as in a notebook.
    """
    shown = []
    for number, cell in enumerate(cells):
        tree = ast.parse("".join(cell["source"]), f"cell {number}")
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"cell {number}", "exec"), space)
        value = last and eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), space)
        shown.append(value)
    return shown
