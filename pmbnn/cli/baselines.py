"""Usual methods beside the cells of results folders: ``pmbnn baselines RESULTS...``."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pmbnn.cli.shared import ResultsFolders, new_console, reported, written

if TYPE_CHECKING:
    import pandas as pd

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def baselines(folders: ResultsFolders) -> None:
    """Fit usual methods to the data of stored cells: one table with both, baselines.csv.

    Logistic or ridge regression, a random forest and a Gaussian process (up to 3,000 rows), of
    scikit-learn. The combination that stands for the networks is chosen by held-out training rows.

    Exit status: 0 done, 2 bad input.
    """
    from pmbnn.data import DataError
    from pmbnn.results.store import ResultsError

    with reported(ResultsError, DataError):
        for folder in dict.fromkeys(folders):
            _baselines(folder)


def _baselines(folder: Path) -> None:
    from pmbnn.compare.baselines import baselines_table
    from pmbnn.results.loading import load_results

    read = load_results(folder)
    console = new_console()
    with console.status("baselines") as status:
        table = baselines_table(read.results, read.records, status.update)
    console.print(_printed(read.name, table))
    with written(folder):
        read.results.write_table("baselines.csv", table)
    typer.echo(f"table {folder / 'baselines.csv'}")


def _printed(name: str, table: "pd.DataFrame"):
    """The table, numbers with standard errors over data seeds."""
    from rich.table import Table
    from rich.text import Text

    metrics = [c for c in table if f"{c}_se" in table]
    shown = Table(title=Text(f"{name}: networks and usual methods"), title_justify="left")
    for heading in ("data", "method", "seeds", *metrics):
        words = heading.replace("_", " ")
        shown.add_column(words, justify="right" if heading in ("seeds", *metrics) else "left")
    for row in table.to_dict("records"):
        method = row["method"]
        if isinstance(row.get("combination"), str) and row["combination"] != method:
            method = f"{method}: {row['combination']}"
        numbers = [_number(row[name], row[f"{name}_se"]) for name in metrics]
        shown.add_row(*map(Text, [row["data"], method, str(row["seeds"]), *numbers]))
    return shown


def _number(mean: float, error: float) -> str:
    if mean != mean:
        return ""
    return f"{mean:.3f}" + (f" ± {error:.3f}" if error == error else "")
