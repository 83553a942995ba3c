"""Remove superseded cells from a results folder: ``pmbnn prune RESULTS``."""

from pathlib import Path
from typing import Annotated

import typer

from pmbnn.cli.shared import Command, Wait, ending_command

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(cls=Command)
def prune(
    folder: Annotated[
        Path,
        typer.Argument(metavar="RESULTS", help="Results folder: results/<experiment>."),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")
    ] = False,
    wait: Wait = False,
) -> None:
    """Remove cells that the experiment no longer has, and tables and figures of them.

    A sweep keeps what it supersedes: cells whose data, plugins or settings have changed since. No
    command reads them; they are used again if the experiment has them again. Present cells stay,
    also those that failed.

    Exit status: 0 done, 2 bad input, 3 another process is at work in the folder, or the system
    stood in the way.
    """
    from pmbnn.results.pruning import prune as pruned

    with ending_command():
        found = pruned(folder, dry_run, wait)
    for one in found:
        typer.echo(one)
    size = sum(one.size for one in found)
    what = "would be removed" if dry_run else "removed"
    typer.echo(f"{len(found)} superseded, {size:,} bytes {what}" if found else "nothing superseded")
