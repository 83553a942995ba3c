"""How much there is to read: lines of code and modules, by package, and what one run passes.

Run: ``uv run python benchmarks/house.py [--stations]``. A line counts if it has code: no blanks,
comments or docstrings; imports count.

``--stations`` profiles one cell on its way, in a sweep until its job is sent to a worker and in
``pmbnn predict``. A call from one package of `pmbnn` into another is a station, the first call of
each function only. Printed are the packages in that order, how many there are, and how often the
order returns to a package that it had left.
"""

import ast
import functools
import io
import os
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

import measuring

PACKAGE = measuring.PROJECT / "pmbnn"
STUDY = measuring.PROJECT / "experiments" / "reproduction" / "study"

NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
NO_CODE |= {tokenize.ENDMARKER}

EXPERIMENT = """
name: stations
sweeps:
  - name: one
    dataset: {kind: moons, noise: 0.3, train: 60, test: 30}
    network: {kind: dense, hidden: [[3]]}
    prior: normal
    hyperprior: half_normal
    inference: {steps: 200}
    predict: {draws: 20, trace_draws: 10, map: {resolution: 5}}
"""


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


def print_lines() -> None:
    """Print lines of code and modules of each package."""
    rooms: dict[str, list[int]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        rooms.setdefault(path.relative_to(PACKAGE).parts[0], []).append(lines_of_code(path))
    rows = [(room, f"{sum(lines):,}", str(len(lines))) for room, lines in rooms.items()]
    everything = [number for lines in rooms.values() for number in lines]
    rows.append(("pmbnn", f"{sum(everything):,}", str(len(everything))))
    study = [lines_of_code(path) for path in STUDY.glob("*.py")]
    rows.append(("the study's plugin", f"{sum(study):,}", str(len(study))))
    print(measuring.table([("package", "lines of code", "modules"), *rows]))


@functools.cache
def package_of(code: CodeType) -> str | None:
    """Package of `pmbnn` that a function is in; None outside, and at the top."""
    path = Path(code.co_filename)
    inside = path.relative_to(PACKAGE).parts if path.is_relative_to(PACKAGE) else ()
    return inside[0] if len(inside) > 1 else None


def callers(frame: FrameType) -> Iterator[CodeType]:
    """Functions of `pmbnn` that a call comes from, the nearest first."""
    while frame := frame.f_back:
        if package_of(frame.f_code):
            yield frame.f_code


class Stations:
    """A profile function that notes packages in the order of calls, until some function."""

    def __init__(self, last: str | None) -> None:
        self.last, self.packages, self.is_done = last, [], False
        self.functions: set[CodeType] = set()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Note a call from one package into another."""
        code = frame.f_code
        package = package_of(code)
        if event != "call" or self.is_done or not package or code.co_name.startswith("<"):
            return
        self.is_done = code.co_name == self.last
        outer = list(callers(frame))
        is_inside = bool(outer) and package_of(outer[0]) == package
        if is_inside or code in self.functions or any(call.co_name == "<module>" for call in outer):
            return
        self.functions.add(code)
        if self.packages[-1:] != [package]:
            self.packages.append(package)


def print_stations(arguments: list[str], last: str | None = None) -> None:
    """Run a command of `pmbnn`, and print its stations."""
    from pmbnn.cli import app

    stations = Stations(last)
    sys.setprofile(stations)
    try:
        app(arguments, prog_name="pmbnn")
    except SystemExit as stop:
        if stop.code:
            raise
    finally:
        sys.setprofile(None)
    packages = len(set(stations.packages))
    returns = len(stations.packages) - packages
    print(f"{arguments[0]}: {packages} packages, {returns} returns: {' '.join(stations.packages)}")


def main() -> None:
    """Print both."""
    print_lines()
    if "--stations" not in sys.argv:
        return
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("stations.yaml").write_text(EXPERIMENT)
        print_stations(["sweep", "stations.yaml", "--workers", "1"], "run_jobs")
        Path("new.csv").write_text("x1,x2\n0.1,0.2\n")
        (cell,) = Path("results/stations/cells").iterdir()
        print_stations(["predict", str(cell), "new.csv"])


if __name__ == "__main__":
    main()
