"""A first experiment file for one's own table: ``pmbnn new FILE.csv``."""

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from pmbnn.cli.shared import Command, reported, written

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(cls=Command)
def new(
    table: Annotated[
        Path, typer.Argument(metavar="TABLE", help="CSV file, packed or not, Parquet or Excel.")
    ],
    target: Annotated[
        str | None, typer.Option(help="Column to be predicted [default: the last one].")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Experiment file [default: the table's name .yaml]."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write it in place of one that is there.")
    ] = False,
) -> None:
    """Look at a table and write an experiment file for it, with comments.

    Exit status: 0, 2 for bad input, 3 where the system stood in the way (a full disk).
    """
    from pmbnn.data import DataError
    from pmbnn.experiment.draft import draft, name_of
    from pmbnn.experiment.load import check_data, experiment_of
    from pmbnn.experiment.yaml_file import parse_yaml
    from pmbnn.results.faults import ResultsError
    from pmbnn.spec.errors import ConfigError

    file = out or Path(f"{name_of(table)}.yaml")
    with reported(ConfigError, DataError, ResultsError):
        if not table.is_file():
            raise DataError(f"{table} does not exist.")
        if file.exists() and not force:
            raise DataError(f"{file} is there already: choose another (`--out`), or `--force`.")
        told = os.path.relpath(table.resolve(), file.resolve().parent)
        text = draft(table, Path(told).as_posix(), target)
        # What this writes is valid, or is not written.
        experiment = experiment_of(parse_yaml(text, str(file)), file.resolve().parent)
        check_data(experiment)
        with written(file):
            file.write_text(text, encoding="utf-8")
    typer.echo(text, nl=False)
    typer.echo(f"\n{file}: {len(experiment.cells)} cells. Next:", err=True)
    quoted = shlex.quote(str(file))
    typer.echo(f"  pmbnn sweep {quoted} --dry-run   # how long it will take", err=True)
    typer.echo(f"  pmbnn sweep {quoted}", err=True)
    typer.echo(f"  pmbnn baselines results/{experiment.name}", err=True)
    typer.echo(f"  pmbnn report results/{experiment.name}", err=True)
