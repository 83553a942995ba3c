"""Join results folders of one experiment: ``pmbnn merge A B … --out RESULTS``."""

from pathlib import Path
from typing import Annotated

import typer

from pmbnn.cli.shared import (
    Command,
    Quiet,
    ResultsFolders,
    TrustPlugins,
    Wait,
    ending_command,
    new_console,
)

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(cls=Command)
def merge(
    folders: ResultsFolders,
    out: Annotated[
        Path, typer.Option(metavar="RESULTS", help="Results folder to join them in, made or not.")
    ],
    wait: Wait = False,
    quiet: Quiet = False,
    trust_plugins: TrustPlugins = False,
) -> None:
    """Join results folders of one experiment, such as those of `sweep --shard`.

    Whole cells are copied; what is there already is not copied again. Tables, figures and page
    are then those of all cells, as a sweep writes them, and `pmbnn sweep --out RESULTS` finds the
    cells stored.

    Exit status: 0 joined, 2 a folder does not belong to the others or a cell is broken, 3 the
    system stood in the way (a full disk).
    """
    from pmbnn.sweep.merge import merge as joined

    console = new_console()
    with ending_command():
        found = joined(folders, out, console, wait, quiet)
    counts = f"{found.copied} cells copied, {found.there} there already, {found.missing} missing"
    if found.left_out:
        counts += f", {found.left_out} left out that the experiment does not have"
    console.print(f"{out}: {counts}", soft_wrap=True, highlight=False, markup=False)


if __name__ == "__main__":
    app()
