"""Usual methods beside the cells of results folders: ``pmbnn baselines RESULTS...``."""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pmbnn.cli.shared import (
    Command,
    ResultsFolders,
    TrustPlugins,
    new_console,
    open_results,
    reported,
    written,
)

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from pmbnn.compare.published_splits import PublishedMethod

app = typer.Typer(add_completion=False, rich_markup_mode=None)

Usual = Annotated[
    str,
    typer.Option(
        "--methods",
        metavar="NAMES",
        help="Usual methods to fit, commas between: linear, forest, process; or none.",
    ),
]

PublishedFile = Annotated[
    str | None,
    typer.Option(
        "--published",
        metavar="FILE",
        help="CSV file with published results of each split: columns set, split, and metrics.",
    ),
]

Name = Annotated[
    str, typer.Option(help="What the published method is called [default: the file's name].")
]


@app.command(cls=Command)
def baselines(
    folders: ResultsFolders,
    methods: Usual = "linear,forest,process",
    published: PublishedFile = None,
    name: Name = "",
    trust_plugins: TrustPlugins = False,
) -> None:
    """Fit usual methods to the data of stored cells: one table with both, baselines.csv.

    Logistic or ridge regression, a random forest and a Gaussian process (up to 3,000 rows), of
    scikit-learn. The networks' combination is chosen on each data seed, by its held-out training
    rows and by ELBO. paired_baselines.csv has what the first differs from every method by, on the
    same data seeds, and whether that is a win, a tie or a loss.

    Published results of each split are paired alike: those of a file, and those that the
    experiment's table of published numbers names.

    Exit status: 0 done, 2 bad input, 3 the system stood in the way (a full disk).
    """
    from pmbnn.data import DataError
    from pmbnn.results.store import ResultsError
    from pmbnn.spec.errors import ConfigError

    with reported(ResultsError, DataError, ConfigError):
        usual, given = _usual_methods(methods), _given(published, name)
        for folder in dict.fromkeys(folders):
            _baselines(folder, usual, given)


def _usual_methods(words: str) -> list[str]:
    """Keys of usual methods that an option names."""
    from pmbnn.compare.usual_methods import KEYS
    from pmbnn.spec.errors import must_be_one_of

    found = [] if words == "none" else [word.strip() for word in words.split(",")]
    for word in found:
        if word not in KEYS:
            raise must_be_one_of("--methods", [*KEYS, "none"], word)
    return found


def _given(file: str | None, name: str) -> "list[PublishedMethod]":
    from pmbnn.compare.published_splits import read_splits

    return [] if file is None else read_splits(file, name, setting="--published")


def _baselines(folder: Path, usual: Sequence[str], given: "Sequence[PublishedMethod]") -> None:
    from pmbnn.compare.baselines import make_baselines, write_baselines
    from pmbnn.compare.published_splits import stored_splits
    from pmbnn.results.store import ResultsError

    read = open_results(folder)
    named, absent = stored_splits(read.results)
    for words in absent:
        typer.echo(f"left out: {words}", err=True)
    console = new_console()
    with console.status("baselines") as status:
        # Forests on large sets take minutes each: a log tells them too.
        went_on = status.update if console.is_terminal else partial(typer.echo, err=True)
        found = make_baselines(read.results, read.records, usual, [*named, *given], went_on)
    if found.means.empty:
        raise ResultsError(f"The folder `{folder}` has no cell with results.")
    for data, means in found.means.groupby("data", sort=False):
        console.print(_means(f"{read.name}, {data}", means.dropna(axis=1, how="all")))
        paired = found.paired[found.paired["data"] == data]
        if not paired.empty:
            console.print(_paired(f"{read.name}, {data}", paired))
    if found.paired.empty:
        typer.echo("Nothing is paired: no cell has a score of held-out rows.", err=True)
    elif found.paired["data"].nunique() > 1:
        console.print(_tally(read.name, found.paired))
    with written(folder):
        files = write_baselines(read.results, found)
        read.note_made(files)
    for file in files:
        typer.echo(f"table {folder / file}")


def _means(title: str, table: "pd.DataFrame") -> "Table":
    """Means with standard errors over data seeds."""
    from pmbnn.compare.baselines import against_words, metrics_of
    from pmbnn.report.numbers import to_error
    from pmbnn.results.tables import error_note
    from pmbnn.results.units import with_unit

    metrics = metrics_of(table)
    words = [with_unit(metric.replace("_", " "), metric) for metric in metrics]
    shown = _new_table(f"{title}: networks and usual methods", ["method"], ["seeds", *words])
    for row in table.to_dict("records"):
        method = ": ".join(filter(None, (row["method"], row["combination"])))
        method = "\n".join([method, *against_words(row)])
        numbers = [to_error(row[metric], row.get(f"{metric}_se", math.nan)) for metric in metrics]
        _add(shown, method, row["seeds"], *numbers)
    if table["seeds"].max() > 1:
        shown.caption = error_note(f"{table['seeds'].max()} data seeds", table["overlap"].max())
        shown.caption_justify = "left"
    return shown


def _paired(title: str, table: "pd.DataFrame") -> "Table":
    """Differences of the chosen network and every other method on the same data seeds."""
    from pmbnn.compare.baselines import CHOSEN
    from pmbnn.results.units import with_unit

    shown = _new_table(
        f"{title}: {CHOSEN} less other methods, below zero it is better",
        ["method", "metric"],
        ["seeds", "difference", "95 % interval", "p", "ahead/level/behind", "verdict"],
    )
    for row in table.to_dict("records"):
        known = row["low"] == row["low"]
        interval = f"{row['low']:+.3g} to {row['high']:+.3g}" if known else ""
        p_value = f"{row['p_value']:.2g}" if known else ""
        seeds = f"{row['ahead']}/{row['level']}/{row['behind']}"
        metric = with_unit(row["metric"], row["metric"])
        head = [row["method"], metric, row["seeds"], f"{row['difference']:+.3g}"]
        _add(shown, *head, interval, p_value, seeds, row["verdict"])
    return shown


def _tally(name: str, paired: "pd.DataFrame") -> "Table":
    """Wins, ties and losses of the chosen network over data sets."""
    from pmbnn.compare.baselines import tally

    counts = tally(paired)
    verdicts = [verdict for verdict in counts.columns[2:] if counts[verdict].any()]
    title = f"{name}: over data sets, the network against"
    shown = _new_table(title, ["method", "metric"], verdicts)
    for row in counts[["method", "metric", *verdicts]].itertuples(index=False):
        _add(shown, *row)
    return shown


def _new_table(title: str, left: Sequence[str], right: Sequence[str]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    shown = Table(title=Text(title), title_justify="left")
    for heading in (*left, *right):
        shown.add_column(heading, justify="left" if heading in left else "right")
    return shown


def _add(shown: "Table", *words: object) -> None:
    from rich.text import Text

    shown.add_row(*(Text(str(word)) for word in words))
