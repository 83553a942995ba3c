"""Simulation-based calibration: ``pmbnn calibrate EXPERIMENT.yaml``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pmbnn.cli.command import (
    FAILED,
    Device,
    DryRun,
    ExperimentFile,
    Only,
    Out,
    Quiet,
    TrustPlugins,
    Wait,
    Workers,
    interruptible,
    new_console,
    print_lines,
)

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table


def calibrate(
    file: ExperimentFile,
    only: Only = None,
    simulations: Annotated[
        int, typer.Option(min=10, help="Simulated data sets of each combination.")
    ] = 500,
    draws: Annotated[
        int, typer.Option(min=9, help="Posterior draws among which each truth is ranked.")
    ] = 99,
    restarts: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Fits of each simulated data set, the best of which is used [default: that of "
            "the file].",
        ),
    ] = None,
    around_data: Annotated[
        bool,
        typer.Option(
            "--around-data",
            help="Draw truths from the posterior given the data, not from the prior, and fit the "
            "data together with the simulated ones.",
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
    """Run simulation-based calibration (SBC): fit data simulated from known parameters.

    Parameters are drawn from the prior, targets simulated at the training inputs, and each
    combination of network, prior, hyperprior and inference is fitted to them: among draws of the
    exact posterior, the ranks of the parameters are uniform. Stored simulations are kept, and
    more are added to them.

    Exit status: 0 every combination has its simulations, 1 some do not, 2 bad input, 3 another
    process writes the folder, or I/O error (disk full, permissions): fix it and rerun the same
    command.
    """
    asked = (simulations, draws, restarts, "posterior" if around_data else "prior")
    with interruptible("finished simulations are kept"):
        code = _calibrate(file, only or [], asked, out, dry_run, workers, device, wait, quiet)
    raise typer.Exit(code)


def _calibrate(file, only, asked, out, dry_run, workers, device, wait, quiet) -> int:
    from pmbnn.compare.calibration import FILE
    from pmbnn.core.device import find_devices
    from pmbnn.experiment.load import load_experiment
    from pmbnn.experiment.machine import cores
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
    print_lines(console, *notes(outcome.table))
    if not outcome.table.empty:
        print_lines(console, f"table {folder / FILE}; figures {folder / FOLDER}")
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
    from pmbnn.cli.tables import make_table

    rows = []
    for _, quantities in found.groupby("name", sort=False):
        first = quantities.iloc[0]
        rows.append(
            [
                f"{first['dataset.kind']}, seed {first['dataset.seed']}",
                _words(first, "prior.kind", "prior.nu"),
                _words(first, "hyperprior.kind", "hyperprior.scale", "hyperprior.on"),
                _words(first, "inference.engine", "inference.guide"),
                first["truths"],
                first["simulations"],
                first["failed"],
                f"{(quantities['verdict'] == 'miscalibrated').sum()} of {len(quantities)}",
                _furthest(quantities),
            ]
        )
    left = ["data", "prior", "hyperprior", "inference", "truths"]
    right = ["simulations", "failed", "miscalibrated"]
    title = "Ranks of truths among posterior draws"
    return make_table(title, [*left, *right, "furthest off"], rows, right)


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
