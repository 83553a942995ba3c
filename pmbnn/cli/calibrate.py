"""Calibrate ways to a posterior by simulation: ``pmbnn calibrate EXPERIMENT.yaml``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pmbnn.cli.shared import (
    FAILED,
    Command,
    Device,
    DryRun,
    Out,
    Quiet,
    TrustPlugins,
    Wait,
    Workers,
    ending_command,
    new_console,
)

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(cls=Command)
def calibrate(
    file: Annotated[Path, typer.Argument(metavar="EXPERIMENT", help="Experiment file (YAML).")],
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Calibrate these cells only, e.g. prior=laplace or dataset.seed=0; may be "
            "repeated.",
            metavar="KEY=VALUE",
        ),
    ] = None,
    simulations: Annotated[
        int, typer.Option(min=10, help="Simulated data sets of each combination.")
    ] = 500,
    draws: Annotated[
        int, typer.Option(min=9, help="Posterior draws that a truth has its rank among.")
    ] = 99,
    restarts: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Fits of each simulated data set, the best of which counts [default: as the "
            "file says].",
        ),
    ] = None,
    around_data: Annotated[
        bool,
        typer.Option(
            "--around-data",
            help="Draw truths from the posterior given the data, not from the prior, and fit the "
            "data together with what is simulated.",
        ),
    ] = False,
    out: Out = None,
    dry_run: DryRun = False,
    workers: Workers = None,
    device: Device = "auto",
    wait: Wait = False,
    quiet: Quiet = False,
    trust_plugins: TrustPlugins = False,
) -> None:
    """Fit data simulated from known parameters, and say whether posterior draws can be believed.

    Parameters are drawn from the prior, targets simulated at the training inputs, and each
    combination of network, prior, hyperprior and inference is fitted to them: among draws of the
    exact posterior, the ranks of the parameters are uniform. What is stored stays; more
    simulations go on from it.

    Exit status: 0 every combination has its simulations, 1 some do not, 2 bad input, 3 another
    process is at work in the folder, or the system stood in the way (a full disk).
    """
    asked = (simulations, draws, restarts, "posterior" if around_data else "prior")
    with ending_command("finished simulations are kept"):
        code = _calibrate(file, only or [], asked, out, dry_run, workers, device, wait, quiet)
    raise typer.Exit(code)


def _calibrate(file, only, asked, out, dry_run, workers, device, wait, quiet) -> int:
    from pmbnn.compare.calibration import FILE
    from pmbnn.experiment.load import load_experiment
    from pmbnn.experiment.machine import cores
    from pmbnn.inference.device import find_devices
    from pmbnn.results.ranks import FOLDER
    from pmbnn.sweep.calibrate import calibrate, plan_calibration, plan_lines

    devices, experiment = find_devices(device), load_experiment(file)
    plan = plan_calibration(experiment, only, *asked, devices)
    if dry_run:
        typer.echo("\n".join(plan_lines(plan, workers or cores())))
        return 0
    folder, console = out or Path("results") / experiment.name, new_console()
    outcome = calibrate(experiment, plan, folder, console, workers, wait, quiet)
    console.print(printed_table(outcome.table))
    for line in notes(outcome.table):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    if not outcome.table.empty:
        words = f"table {folder / FILE}; figures {folder / FOLDER}"
        console.print(words, soft_wrap=True, highlight=False)
    return FAILED if outcome.failed else 0


def notes(found: "pd.DataFrame") -> list[str]:
    """What a reader of the verdicts must know beside them."""
    if found.empty:
        return []
    lines = []
    for name, rows in found.groupby("name", sort=False):
        first = rows.iloc[0]
        if first["effective_draws"] < first["simulations"]:
            lines.append(
                f"{name}: truths are worth {first['effective_draws']:.0f} independent ones, so "
                "that draws of the exact posterior would be found miscalibrated too often"
            )
        if first["reference"].endswith("undecided"):
            lines.append(f"{name}: chains that truths are from disagree")
    return lines


def printed_table(found: "pd.DataFrame") -> "Table":
    """A line a combination: how many quantities leave their bands, and which does by most."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Ranks of truths among posterior draws", title_justify="left")
    for name in ("data", "prior", "hyperprior", "inference", "truths"):
        table.add_column(name)
    for name in ("simulations", "failed", "miscalibrated"):
        table.add_column(name, justify="right")
    table.add_column("furthest off")
    if found.empty:
        return table
    for _, rows in found.groupby("name", sort=False):
        first = rows.iloc[0]
        words = [
            f"{first['dataset.kind']}, seed {first['dataset.seed']}",
            _words(first, "prior.kind", "prior.nu"),
            _words(first, "hyperprior.kind", "hyperprior.scale", "hyperprior.on"),
            _words(first, "inference.engine", "inference.guide"),
            first["truths"],
            str(first["simulations"]),
            str(first["failed"]),
            f"{(rows['verdict'] == 'miscalibrated').sum()} of {len(rows)}",
        ]
        table.add_row(*map(Text, [*words, _furthest(rows)]))
    return table


def _furthest(rows: "pd.DataFrame") -> str:
    """The quantity whose ranks are furthest from uniform, and how."""
    if rows["deviation"].isna().all():
        return "every fit diverged"
    worst = rows.loc[rows["deviation"].idxmax()]
    how = worst["direction"] or "within its band"
    return f"{worst['quantity']}: {worst['deviation']:.1f} × band, {how}"


def _words(row: "pd.Series", *names: str) -> str:
    """Values of some columns, as far as the row has them."""
    import pandas as pd

    found = [row[name] for name in names if name in row.index and pd.notna(row[name])]
    return " ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in found)


if __name__ == "__main__":
    app()
