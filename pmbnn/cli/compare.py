"""Hold contrasts under ADVI against the posterior: ``pmbnn compare RESULTS...``."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pmbnn.cli.shared import ResultsFolders, new_console, reported, written

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def compare(folders: ResultsFolders) -> None:
    """Say whether a prior matters, and whether ADVI says the same: verdicts, and compare.csv.

    Contrasts are those that the experiment file names; where it names none, every learned scale
    less every fixed one of the same prior. Intervals of a folder hold all at once, with
    probability 95 %.

    Exit status: 0 done, 2 bad input.
    """
    from pmbnn.experiment.contrasts import AmbiguousError
    from pmbnn.experiment.errors import ConfigError
    from pmbnn.results.store import ResultsError

    with reported(AmbiguousError, ConfigError, ResultsError):
        for folder in dict.fromkeys(folders):
            _compare(folder)


def _compare(folder: Path) -> None:
    from pmbnn.compare.claims import write_claims
    from pmbnn.compare.contrasts import FILE, delta_table, sentence, verdict_table
    from pmbnn.experiment.contrasts import stored_contrasts
    from pmbnn.results.loading import load_results
    from pmbnn.results.store import ResultsError

    read = load_results(folder)
    contrasts = stored_contrasts(folder)
    table = verdict_table(delta_table(read.records, contrasts), contrasts.margin)
    if table.empty:
        raise ResultsError(f"The folder `{folder}` has no two cells to compare on the same data.")
    console = new_console()
    console.print(printed_table(read.name, table))
    for row in table.to_dict("records"):
        typer.echo(sentence(row))
    with written(folder / FILE):
        write_claims(folder / FILE, table)
    typer.echo(f"table {folder / FILE}")


def printed_table(name: str, table: "pd.DataFrame") -> "Table":
    """A line a contrast and data set: differences in thousandths of a nat, and verdicts."""
    from rich.table import Table
    from rich.text import Text

    from pmbnn.compare.contrasts import COLUMN

    said = "exploratory: the experiment file names none" if table["exploratory"].any() else "named"
    title = f"{name}: contrasts ({said}), first less second, thousandths of a nat"
    shown = Table(title=Text(title), title_justify="left")
    titles = ("reference", "ADVI", "ADVI less reference")
    for heading in ("data", "contrast", "seeds", *titles, "posterior says", "ADVI says"):
        shown.add_column(heading, justify="right" if heading in titles else "left")
    for row in table.to_dict("records"):
        words = [row["data"], row["contrast"], str(row["seeds"])]
        words += [_interval(row, quantity) for quantity in COLUMN]
        words += [row["posterior_verdict"], row["advi_verdict"]]
        shown.add_row(*map(Text, words))
    return shown


def _interval(row: dict, name: str) -> str:
    """Mean and both ends of its interval, where they are known."""
    import math

    mean, low, high = (1000 * row[name + end] for end in ("", "_low", "_high"))
    if not math.isfinite(mean):
        return ""
    return f"{mean:.2f}" + (f" ({low:.2f} to {high:.2f})" if math.isfinite(low) else "")


if __name__ == "__main__":
    app()
