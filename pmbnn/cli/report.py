"""Write one page of results: ``python -m pmbnn.report RESULTS…``."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pmbnn.cli.shared import Command, ResultsFolders, open_results, reported

if TYPE_CHECKING:
    from pmbnn.processes.helpers import Helpers
    from pmbnn.results.loading import ExperimentResults

PAGE = "report.html"

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(cls=Command)
def report(
    folders: ResultsFolders,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the page, which is made [default: the first results folder]."),
    ] = None,
) -> None:
    """Show results folders on one page: the best combinations first, then every table and figure.

    Nothing is fitted again. Figures and comparisons that are missing, or were made of other
    cells, are made again from what is stored. Published numbers stand beside ours where the
    experiment named some. The page, report.html, needs no other file and no network.

    Exit status: 0 the page is written, 2 bad input, 3 the system stood in the way (a full disk).
    """
    from pmbnn.results.store import ResultsError

    with reported(ResultsError):
        path, size = _report(folders, out or folders[0])
    typer.echo(f"page {path} ({size / 1e6:.1f} MB)")


def _report(folders: list[Path], out: Path) -> tuple[Path, int]:
    """Path of the page written, and its size in bytes."""
    from pmbnn.experiment.machine import cores
    from pmbnn.processes.helpers import Helpers

    read = [open_results(folder) for folder in dict.fromkeys(folders)]
    with Helpers(cores(), sum(len(folder.records) for folder in read)) as helpers:
        # They import what this process imports next.
        helpers.start("pmbnn.report.rebuild", "pmbnn.report.cells")
        return _write_page(read, out, helpers)


def _write_page(
    read: Sequence["ExperimentResults"], out: Path, helpers: "Helpers"
) -> tuple[Path, int]:
    from rich.console import Console

    from pmbnn.inference.stages import stage
    from pmbnn.report.page import published_tables, report_page
    from pmbnn.report.rebuild import rebuild
    from pmbnn.report.writing import check_writable, write_page
    from pmbnn.sweep.progress import following

    console = Console(stderr=True)
    tables = published_tables(read)
    check_writable(out)
    say = partial(console.print, soft_wrap=True, highlight=False, markup=False)
    with following(console, quiet=False):
        whole = [rebuild(folder, say, helpers) for folder in read]
        with stage("page"):
            text = report_page(whole, tables, helpers)
    path = out / PAGE
    write_page(path, text)
    for folder in whole:
        if folder.results.folder.resolve() == out.resolve():
            folder.note_made([PAGE])
    return path, len(text.encode("utf-8"))
