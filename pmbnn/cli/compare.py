"""Hold contrasts under ADVI against the posterior: ``pmbnn compare RESULTS...``."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pmbnn.cli.shared import (
    Command,
    ResultsFolders,
    new_console,
    open_results,
    reported,
    written,
)

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(cls=Command)
def compare(folders: ResultsFolders) -> None:
    """Say whether a prior matters, and whether ADVI says the same: verdicts, and compare.csv.

    Beside it, evidence.csv has log evidence, ELBO, LOO and held-out NLL of every cell, and
    regret.csv what choosing a prior by each of them costs under the posterior.

    Contrasts are those that the experiment file names; where it names none, every learned scale
    less every fixed one of the same prior. Intervals of a folder hold all at once, with
    probability 95 %.

    Exit status: 0 done, 2 bad input, 3 the system stood in the way (a full disk).
    """
    from pmbnn.experiment.contrasts import AmbiguousError
    from pmbnn.results.store import ResultsError
    from pmbnn.spec.errors import ConfigError

    with reported(AmbiguousError, ConfigError, ResultsError):
        for folder in dict.fromkeys(folders):
            _compare(folder)


def _compare(folder: Path) -> None:
    from pmbnn.compare.contrasts import sentence
    from pmbnn.compare.verdicts import make_verdicts, write_verdicts
    from pmbnn.results.references import refutations
    from pmbnn.results.store import ResultsError

    read = open_results(folder)
    for line in refutations(read.records).values():
        typer.echo(f"left out: {line}", err=True)
    found = make_verdicts(read)
    if found.contrasts.empty and found.regret.empty:
        raise ResultsError(f"The folder `{folder}` has no two cells to compare on the same data.")
    console = new_console()
    if not found.contrasts.empty:
        console.print(printed_table(read.name, found.contrasts))
    for row in found.contrasts.to_dict("records"):
        typer.echo(sentence(row))
    if not found.regret.empty:
        console.print(regrets(read.name, found.regret))
    with written(folder):
        files = write_verdicts(read.results, found)
        read.note_made(files)
    for file in files:
        typer.echo(f"table {folder / file}")


def printed_table(name: str, table: "pd.DataFrame") -> "Table":
    """A line a contrast and data set: differences in thousandths of a nat, and verdicts."""
    from rich.table import Table
    from rich.text import Text

    from pmbnn.compare.contrasts import COLUMN

    said = "exploratory: the experiment file names none" if table["exploratory"].any() else "named"
    title = f"{name}: contrasts ({said}), first less second, thousandths of a nat"
    shown = Table(title=Text(title), title_justify="left")
    titles = dict(zip(COLUMN, ("reference", "ADVI", "ADVI less reference"), strict=True))
    verdicts = {"posterior_verdict": "posterior says", "advi_verdict": "ADVI says"}
    # Without sampled cells there is nothing to say of the posterior.
    titles = {name: title for name, title in titles.items() if table[name].notna().any()}
    verdicts = {name: title for name, title in verdicts.items() if table[name].any()}
    for heading in ("data", "contrast", "seeds", *titles.values(), *verdicts.values()):
        shown.add_column(heading, justify="right" if heading in titles.values() else "left")
    for row in table.to_dict("records"):
        words = [row["data"], row["contrast"], str(row["seeds"])]
        words += [_interval(row, quantity) for quantity in titles]
        shown.add_row(*map(Text, words + [row[name] for name in verdicts]))
    return shown


def regrets(name: str, table: "pd.DataFrame") -> "Table":
    """A line a data set and criterion: what choosing a combination by it costs."""
    from rich.table import Table
    from rich.text import Text

    from pmbnn.results.tables import error_note

    title = f"{name}: regret of choosing a combination by, thousandths of a nat under the posterior"
    shown = Table(title=Text(title), title_justify="left")
    headings = ("data", "chosen by", "of", "seeds", "not converged", "regret", "largest", "right")
    for heading in (*headings, "by chance"):
        left = heading in ("data", "chosen by", "of")
        shown.add_column(heading, justify="left" if left else "right")
    for row in table.to_dict("records"):
        mean = f"{1000 * row['regret']:.2f}"
        if row["regret_se"] == row["regret_se"]:
            mean += f" ± {1000 * row['regret_se']:.2f}"
        words = [row["data"], row["criterion"], row["source"].replace("_", " "), str(row["seeds"])]
        words += [f"{row['not_converged']} of {row['cells']}"]
        words += [mean, f"{1000 * row['regret_largest']:.2f}", f"{row['right']:.0%}"]
        shown.add_row(*map(Text, [*words, f"{1000 * row['by_chance']:.2f}"]))
    if table["regret_se"].notna().any():
        shown.caption = error_note("data seeds", table["overlap"].max())
        shown.caption_justify = "left"
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
