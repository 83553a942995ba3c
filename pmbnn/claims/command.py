"""Test the report's claims on stored results: ``python -m pmbnn.claims RESULTS...``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

BAD_INPUT = 2

TABLE = "claims.csv"

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def claims(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="RESULTS...", help="Results folders: results/<experiment>."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help=f"One table for all folders [default: {TABLE} in each folder]."),
    ] = None,
) -> None:
    """Hold what the report claims against stored results: tables, and claims.csv.

    Exit status: 0 done, 2 bad input.
    """
    from pmbnn.storage import ResultsError

    try:
        _claims(folders, out)
    except ResultsError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(BAD_INPUT) from error


def _claims(folders: list[Path], out: Path | None) -> None:
    from rich.console import Console

    from pmbnn.claims.rows import claim_rows
    from pmbnn.report.folders import read_folder

    read = [read_folder(folder) for folder in folders]
    rows = {one.results.folder: claim_rows(one.name, one.results, one.records) for one in read}
    every = [row for found in rows.values() for row in found]
    console = Console(width=None if sys.stdout.isatty() else 160)
    for table in claim_tables(every):
        console.print(table)
    for path, found in {out: every}.items() if out else _in_folders(rows):
        _write(path, found)
        typer.echo(f"table {path}")


def _in_folders(rows: dict[Path, list[dict]]) -> list[tuple[Path, list[dict]]]:
    return [(folder / TABLE, found) for folder, found in rows.items()]


def _write(path: Path, rows: list[dict]) -> None:
    """Write a table whole or not at all."""
    from pmbnn.storage import Results, ResultsError

    try:
        Results(path.parent).write_table(path.name, rows)
    except OSError as error:
        raise ResultsError(f"`{path}` cannot be written: {error.strerror}.") from error


def claim_tables(rows: list[dict]) -> "list[Table]":
    """A table for every claim and data set: a line a combination, a column a measure."""
    groups: dict[tuple[str, str], list[dict]] = {}
    for row in rows:
        data = "; ".join(filter(None, [row["data"], row["variant"]]))
        title = f"{row['claim']}: {row['experiment']}, {row['sweep']}, {data}"
        groups.setdefault((row["claim"], title), []).append(row)
    return [_table(title, found) for (_, title), found in sorted(groups.items(), key=_place)]


def _place(group: tuple) -> int:
    from pmbnn.claims.rows import CLAIMS

    return CLAIMS.index(group[0][0])


def _table(title: str, rows: list[dict]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    measures = list(dict.fromkeys(row["measure"] for row in rows))
    names = [name for name in ("prior", "hyperprior", "against") if any(row[name] for row in rows)]
    table = Table(*names, title=Text(title), title_justify="left")
    for measure in measures:
        table.add_column(Text(measure), justify="right")
    lines: dict[tuple, dict[str, str]] = {}
    for row in rows:
        place = tuple(row[name] for name in names)
        lines.setdefault(place, {})[row["measure"]] = _number(row)
    for place, numbers in lines.items():
        table.add_row(*map(Text, place), *(numbers.get(measure, "") for measure in measures))
    return table


def _number(row: dict) -> str:
    """Mean ± standard error, in three digits."""
    import math

    error = f" ± {row['se']:.2g}" if math.isfinite(row["se"]) else ""
    return f"{row['mean']:.3g}{error}"


if __name__ == "__main__":
    app()
