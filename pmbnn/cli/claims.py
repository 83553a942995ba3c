"""Compare priors and hyperpriors on stored results: ``python -m pmbnn.claims RESULTS...``."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pmbnn.cli.shared import (
    Command,
    ResultsFolders,
    check_folder_of,
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
def claims(
    folders: ResultsFolders,
    out: Annotated[
        Path | None,
        typer.Option(help="One table for all folders [default: claims.csv in each folder]."),
    ] = None,
) -> None:
    """Compare priors and hyperpriors on stored results: tables, and claims.csv.

    Sparsity of the last layer, uncertainty at the true boundary, learned scales less fixed ones,
    and the scales themselves, as means ± standard errors over data seeds.

    Exit status: 0 done, 2 bad input, 3 the system stood in the way (a full disk).
    """
    from pmbnn.results.store import ResultsError

    with reported(ResultsError):
        _claims(folders, out)


def _claims(folders: list[Path], out: Path | None) -> None:
    import pandas as pd

    from pmbnn.compare.claims import FILE, claims_table, write_claims

    check_folder_of(out, "--out")
    read = [open_results(folder) for folder in folders]
    found = {
        one.results.folder / FILE: claims_table(one.name, one.results, one.records) for one in read
    }
    every = pd.concat(found.values(), ignore_index=True)
    console = new_console()
    for table in printed_tables(every):
        console.print(table)
    for line in grid_end_lines(every):
        typer.echo(line)
    for path, table in ({out: every} if out else found).items():
        with written(path):
            write_claims(path, table)
        typer.echo(f"table {path}")
    for one in () if out else read:
        with written(one.results.folder):
            one.note_made([FILE])


def printed_tables(table: "pd.DataFrame") -> Iterator["Table"]:
    """A table for every comparison and data set: a line a combination, a column a measure."""
    from pmbnn.compare.claims import CLAIMS

    for claim in CLAIMS:
        own = table[table["claim"] == claim]
        places = ["experiment", "sweep", "data", "variant"]
        for (experiment, *words), rows in own.groupby(places, sort=False):
            sweep, data, variant = words
            title = f"{claim}: {experiment}, {sweep}, {'; '.join(filter(None, [data, variant]))}"
            shown = _printed(title, rows)
            shown.caption, shown.caption_justify = _caption(rows), "left"
            yield shown


def _caption(rows: "pd.DataFrame") -> str:
    """What ± and the marks mean, where there are some."""
    from pmbnn.results.caveats import AT_GRID_END
    from pmbnn.results.tables import error_note

    said = {
        error_note("data seeds", rows["overlap"].max()): rows["se"].notna(),
        "† some fits not converged": rows["not_converged"] > 0,
        f"‡ some fixed scales {AT_GRID_END}": rows["at_grid_end"] > 0,
    }
    return "; ".join(words for words, are in said.items() if are.any())


def grid_end_lines(table: "pd.DataFrame") -> Iterator[str]:
    """How many pairs rest on a fixed scale at an end of its grid, a line an experiment."""
    from pmbnn.compare.claims import HYPERPRIORS, KEYS
    from pmbnn.compare.paired import ALL

    pairs = table[(table["claim"] == HYPERPRIORS) & (table["prior"] != ALL)]
    # All measures are of the same pairs.
    pairs = pairs.drop_duplicates([n for n in KEYS if n != "measure"])
    for experiment, rows in pairs.groupby("experiment", sort=False):
        if at_end := int(rows["at_grid_end"].sum()):
            pairs = f"{at_end} of {int(rows['cells'].sum())} pairs"
            yield (
                f"{experiment}: in {pairs} the fixed scale is at an end of its grid (marked ‡): "
                "where the learned one is better, a fixed one beyond may be better still"
            )


def _printed(title: str, rows: "pd.DataFrame") -> "Table":
    from rich.table import Table
    from rich.text import Text

    from pmbnn.compare.claims import unit_of_measure

    names = [name for name in ("prior", "hyperprior", "against") if rows[name].any()]
    measures = rows["measure"].drop_duplicates().tolist()
    words = rows.assign(words=rows.apply(_number, axis=1))
    lines = words.pivot_table(
        index=names, columns="measure", values="words", aggfunc="last", sort=False, fill_value=""
    )
    table = Table(*names, title=Text(title), title_justify="left")
    for measure in measures:
        unit = unit_of_measure(measure)
        heading = f"{measure} ({unit})" if unit else measure
        table.add_column(Text(heading), justify="right")
    for place, numbers in lines[measures].iterrows():
        place = place if isinstance(place, tuple) else (place,)
        table.add_row(*map(Text, place), *map(Text, numbers))
    return table


def _number(row: "pd.Series") -> str:
    """Mean ± standard error, in three digits, with the marks of `_caption`."""
    import math

    error = f" ± {row['se']:.2g}" if math.isfinite(row["se"]) else ""
    marks = "†" * bool(row["not_converged"]) + "‡" * bool(row["at_grid_end"])
    return f"{row['mean']:.3g}{error}{marks}"


if __name__ == "__main__":
    app()
