"""Check the files of a results folder: ``pmbnn verify RESULTS``."""

from pathlib import Path
from typing import Annotated

import typer

from pmbnn.cli.shared import FAILED, Command, reported

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(cls=Command)
def verify(
    folder: Annotated[
        Path,
        typer.Argument(metavar="RESULTS", help="Results folder: results/<experiment>."),
    ],
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Set broken cells aside, so that a sweep fits them again."),
    ] = False,
) -> None:
    """Compare every stored cell with the sizes and checksums that its record holds.

    Exit status: 0 all are whole, 1 some are broken, 2 bad input, 3 the system stood in the way.
    """
    from pmbnn.results import verify as broken_cells
    from pmbnn.results.store import ResultsError

    with reported(ResultsError):
        broken = broken_cells(folder, repair)
    for line in broken:
        typer.echo(line)
    raise typer.Exit(FAILED if broken else 0)
