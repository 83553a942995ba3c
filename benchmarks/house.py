"""How much there is to read: lines of code and modules, by room, and of the study's plugin.

Run: ``uv run python benchmarks/house.py``. A line counts if it has code: no blanks, comments or
docstrings; imports count.
"""

import ast
import io
import tokenize
from pathlib import Path

import measuring

PACKAGE = measuring.PROJECT / "pmbnn"
STUDY = measuring.PROJECT / "experiments" / "reproduction" / "study"

NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
NO_CODE |= {tokenize.ENDMARKER}


def lines_of_code(path: Path) -> int:
    """Lines with a token that is neither a comment nor a docstring."""
    text, found = path.read_text(), set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found.difference_update(range(node.lineno, node.end_lineno + 1))
    return len(found)


def main() -> None:
    """Print the table."""
    rooms: dict[str, list[int]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        rooms.setdefault(path.relative_to(PACKAGE).parts[0], []).append(lines_of_code(path))
    rows = [(room, f"{sum(lines):,}", str(len(lines))) for room, lines in rooms.items()]
    everything = [number for lines in rooms.values() for number in lines]
    rows.append(("pmbnn", f"{sum(everything):,}", str(len(everything))))
    study = [lines_of_code(path) for path in STUDY.glob("*.py")]
    rows.append(("the study's plugin", f"{sum(study):,}", str(len(study))))
    print(measuring.table([("room", "lines of code", "modules"), *rows]))


if __name__ == "__main__":
    main()
