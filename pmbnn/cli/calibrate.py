"""Simulation-based calibration: ``pmbnn calibrate EXPERIMENT.yaml``."""

from pathlib import Path
from typing import Annotated

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
    from pmbnn.calibration.plan import plan_calibration, plan_lines
    from pmbnn.core.device import find_devices
    from pmbnn.experiment.load import load_experiment
    from pmbnn.experiment.machine import cores

    devices, experiment = find_devices(device), load_experiment(file)
    plan = plan_calibration(experiment, only, *asked, devices)
    if dry_run:
        typer.echo("\n".join(plan_lines(plan, workers or cores())))
        return 0
    from pmbnn.calibration.run import calibrate
    from pmbnn.calibration.table import COUNTS, FILE, notes, summary
    from pmbnn.cli.tables import make_table

    folder, console = out or Path("results") / experiment.name, new_console()
    table, failed = calibrate(experiment, plan, folder, console, workers, wait, quiet)
    headings, rows = summary(table)
    console.print(make_table("Ranks of truths among posterior draws", headings, rows, COUNTS))
    print_lines(console, *notes(table))
    if not table.empty:
        print_lines(console, f"table {folder / FILE}; figures {folder / 'calibration'}")
    return FAILED if failed else 0
