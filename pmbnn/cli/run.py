"""Commands that run experiments: sweep, check, prior, calibrate, merge; and new, schema."""

import os
import shlex
from contextlib import ExitStack
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
    OutFile,
    Quiet,
    ResultsFolder,
    ResultsFolders,
    TrustPlugins,
    Verbose,
    Wait,
    Workers,
    new_console,
    write_or_print,
)
from pmbnn.prediction.progress import print_lines

if TYPE_CHECKING:
    from rich.console import Console

    from pmbnn.experiment.load import Experiment
    from pmbnn.sweep.stages import Outcome


def sweep(
    file: ExperimentFile,
    out: Out = None,
    only: Only = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a setting of every sweep, e.g. inference.steps=20000, or of one, "
            "SWEEP.inference.steps=20000; a comma lists the values of an axis: "
            "prior=normal,laplace. The value is YAML; may be repeated.",
        ),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            help="Fit this fixed part alone, for job arrays: the third of eight, in a results "
            "folder of its own [default: results/<experiment>-shard-3-of-8]. `pmbnn merge` joins "
            "them.",
            metavar="3/8",
        ),
    ] = None,
    dry_run: DryRun = False,
    verbose: Verbose = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Fit stored cells again.")] = False,
    workers: Workers = None,
    device: Device = "auto",
    wait: Wait = False,
    quiet: Quiet = False,
    trust_plugins: TrustPlugins = False,
    scheduler: Annotated[
        str | None,
        typer.Option(
            help="Fit on the workers of this Dask scheduler: tcp://HOST:PORT, or a scheduler file.",
            metavar="ADDRESS|FILE.json",
        ),
    ] = None,
    shared_folder: Annotated[
        bool,
        typer.Option(
            "--shared-folder",
            help="These workers see the results folder under the same path, and write it.",
        ),
    ] = False,
) -> None:
    """Fit every cell of an experiment and write tables, traces and figures.

    With --set, results go to a folder of their own, results/<experiment>-KEY=VALUE, unless --out
    names one. A comma outside brackets and quotes makes an axis: network.hidden=[50],[50,50] is the
    list of lists [[50], [50, 50]].

    Exit status: 0 every cell has a fit, 1 some cell failed, 2 bad input, 3 another sweep writes
    the folder, the scheduler does not answer, or I/O error (disk full, permissions): fix it and
    rerun the same command.
    """
    from pmbnn.core.machine import find_devices
    from pmbnn.experiment.load import load_experiment
    from pmbnn.experiment.plan import default_folder, read_shard, wanted_cells

    with ExitStack() as stack:
        cluster = None
        if scheduler is not None:
            from pmbnn.sweep.cluster.coordinator import connected, device_of_workers

            device = device_of_workers(device)
            if not dry_run:
                cluster = stack.enter_context(connected(scheduler, shared_folder))
        devices = find_devices(device)
        part = None if shard is None else read_shard(shard)
        experiment = load_experiment(file, overrides=overrides or [])
        wanted = wanted_cells(experiment, only or [], part, devices)
        folder = out or default_folder(experiment.name, part, experiment.overrides)
        if dry_run:
            _print_plan(experiment, wanted, workers, devices, verbose)
            if experiment.overrides:
                typer.echo(f"results folder: {folder}")
            _print_left_behind(experiment, folder)
            return
        from pmbnn.fitting.progress import RunOptions
        from pmbnn.sweep.stages import run_experiment

        options = RunOptions(new_console(), workers, fresh, wait, quiet, devices)
        outcome = run_experiment(experiment, wanted, folder, options, cluster)
        _print_outcome(options.console, outcome)
    raise typer.Exit(FAILED if outcome.failed else 0)


def _print_plan(experiment, cells, workers, devices, verbose) -> None:
    from pmbnn.core.machine import cores
    from pmbnn.experiment.plan import print_plan

    print_plan(experiment, cells, workers or cores(), devices, verbose)


def _print_left_behind(experiment: "Experiment", folder: Path) -> None:
    """Say how many stored cells other settings leave behind; other data show when they are read."""
    from pmbnn.experiment.plan import content_digest
    from pmbnn.results.present import left_behind_line, settings_left_behind

    gone = settings_left_behind(folder, map(content_digest, experiment.cells))
    if gone:
        typer.echo(left_behind_line(folder, len(gone)))


def _print_outcome(console: "Console", outcome: "Outcome") -> None:
    """Print the tables, where the files are, and which cells failed."""
    from pmbnn.cli import cell_tables
    from pmbnn.results.names import cell_line

    records, folder = outcome.records, outcome.folder
    ood = cell_tables.ood_tables(records)
    shown = [*cell_tables.accuracy_tables(records), *ood, *cell_tables.diagnostics_tables(records)]
    for table in filter(None, [*shown, cell_tables.reliability_table(records)]):
        console.print(table)
    files = ["metrics.csv", "summary.csv", *(["ood.csv"] if ood else [])]
    print_lines(
        console,
        *cell_tables.unavailable_lines(records),
        f"tables {', '.join(f'{folder}/{name}' for name in files)}; figures {folder}/figures; "
        f"traces and maps {folder}/cells",
        *(f"failed: {cell_line(record.cell)}: {record.reason}" for record in outcome.failed),
        *cell_tables.best_lines(records),
        f"next: the page {folder}/index.html; pmbnn table, predict, check or compare {folder}",
    )


def check(
    folder: ResultsFolder,
    only: Only = None,
    engine: Annotated[
        str, typer.Option(metavar="mclmc|mams|nuts|smc", help="Sampler of the reference.")
    ] = "mclmc",
    dry_run: DryRun = False,
    verbose: Verbose = False,
    workers: Workers = None,
    device: Device = "auto",
    wait: Wait = False,
    quiet: Quiet = False,
    trust_plugins: TrustPlugins = False,
) -> None:
    """Sample the posterior of every finished cell and report how far its fit is from it.

    Nothing is fitted again. References are cells of the same folder; stored ones are not sampled
    again.

    Exit status: 0 every reference has draws, 1 some have none, 2 bad input, 3 a sweep writes the
    folder, or I/O error (disk full, permissions): fix it and rerun the same command.
    """
    from pmbnn.core.errors import must_be_one_of
    from pmbnn.core.machine import find_devices
    from pmbnn.inference.samplers.settings import SAMPLING
    from pmbnn.sweep.check import references

    samplers = {name: settings for name, settings in SAMPLING.items() if not settings.is_ensemble}
    if engine not in samplers:
        raise must_be_one_of("--engine", samplers, engine)
    devices, console = find_devices(device), new_console()
    wanted = references(folder, samplers[engine](), only or [], devices)
    print_lines(console, *(f"left out: {line}" for line in wanted.left_out))
    if dry_run:
        _print_plan(wanted.experiment, wanted.cells, workers, devices, verbose)
        return
    from pmbnn.cli.tables import agreement_tables
    from pmbnn.compare.agreement import agreement_table
    from pmbnn.fitting.progress import RunOptions
    from pmbnn.results.store import Results
    from pmbnn.sweep.stages import run_experiment

    options = RunOptions(console, workers, wait=wait, quiet=quiet, devices=devices)
    outcome = run_experiment(wanted.experiment, wanted.cells, folder, options, are_references=True)
    for table in agreement_tables(agreement_table(Results(folder), outcome.records)):
        console.print(table)
    raise typer.Exit(FAILED if outcome.failed else 0)


def calibrate(
    file: ExperimentFile,
    only: Only = None,
    simulations: Annotated[
        int, typer.Option(min=10, metavar="N", help="Simulated data sets of each combination.")
    ] = 500,
    draws: Annotated[
        int,
        typer.Option(min=9, metavar="N", help="Posterior draws among which each truth is ranked."),
    ] = 99,
    restarts: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
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
    from pmbnn.calibration.plan import plan_calibration, plan_lines
    from pmbnn.core.machine import cores, find_devices
    from pmbnn.experiment.load import load_experiment
    from pmbnn.experiment.plan import default_folder

    truths = "posterior" if around_data else "prior"
    devices, experiment = find_devices(device), load_experiment(file)
    plan = plan_calibration(experiment, only or [], simulations, draws, restarts, truths, devices)
    if dry_run:
        typer.echo("\n".join(plan_lines(plan, workers or cores(), devices)))
        return
    from pmbnn.calibration.run import calibrate
    from pmbnn.calibration.table import COUNTS, FILE, notes, summary
    from pmbnn.cli.tables import make_table
    from pmbnn.fitting.progress import RunOptions

    folder = out or default_folder(experiment.name, overrides=experiment.overrides)
    console = new_console()
    options = RunOptions(console, workers, wait=wait, quiet=quiet, devices=devices)
    table, failed = calibrate(experiment, plan, folder, options)
    headings, rows = summary(table)
    console.print(make_table("Ranks of truths among posterior draws", headings, rows, COUNTS))
    print_lines(console, *notes(table))
    if not table.empty:
        print_lines(console, f"table {folder / FILE}; figures {folder / 'calibration'}")
    raise typer.Exit(FAILED if failed else 0)


def prior(
    file: ExperimentFile,
    only: Only = None,
    out: Out = None,
    dry_run: DryRun = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Draw again from priors that are stored.")
    ] = False,
    workers: Workers = None,
    wait: Wait = False,
    quiet: Quiet = False,
    trust_plugins: TrustPlugins = False,
) -> None:
    """Run prior predictive checks: draw functions from the priors of an experiment.

    Nothing is fitted. Each combination of data set, network, prior, hyperprior and likelihood has
    a figure and a row of prior.csv; each candidate of a tuned scale has its own. Stored ones are
    kept.

    Exit status: 0 every prior was drawn from, 1 some were not, 2 bad input, 3 another process
    writes the folder, or I/O error (disk full, permissions): fix it and rerun the same command.
    """
    from pmbnn.experiment.load import load_experiment
    from pmbnn.experiment.plan import default_folder, wanted_cells
    from pmbnn.prior_predictive.plan import plan_lines, plan_priors

    experiment = load_experiment(file)
    plan = plan_priors(experiment, wanted_cells(experiment, only or []))
    if dry_run:
        typer.echo("\n".join(plan_lines(experiment, plan)))
        return
    from pmbnn.cli.tables import make_table
    from pmbnn.fitting.progress import RunOptions
    from pmbnn.prior_predictive.run import run_priors
    from pmbnn.prior_predictive.store import summary

    folder = out or default_folder(experiment.name, overrides=experiment.overrides)
    console = new_console()
    options = RunOptions(console, workers, fresh, wait, quiet)
    priors, failed = run_priors(experiment, plan, folder, options)
    console.print(make_table("Functions drawn from the prior", *summary(priors)))
    print_lines(console, f"table {folder / 'prior.csv'}; figures {folder / 'prior'}")
    raise typer.Exit(FAILED if failed else 0)


def merge(
    folders: ResultsFolders,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="RESULTS", help="Results folder of all cells, existing or not."
        ),
    ],
    wait: Wait = False,
    quiet: Quiet = False,
    trust_plugins: TrustPlugins = False,
) -> None:
    """Merge results folders of one experiment, such as those of `sweep --shard`.

    Whole cells are copied, except those that the folder has already. Tables, figures and page are
    then those of all cells, as a sweep writes them, and `pmbnn sweep --out RESULTS` finds the
    cells stored.

    Exit status: 0 merged, 2 a folder does not belong to the others or a cell is broken, 3 I/O
    error (disk full, permissions): fix it and rerun the same command.
    """
    from pmbnn.sweep.merge import merge as merge_folders

    console = new_console()
    merged = merge_folders(folders, out, console, wait, quiet)
    counts = f"{merged.copied} cells copied, {merged.there} there already, {merged.missing} missing"
    if merged.left_out:
        counts += f", {merged.left_out} left out that the experiment does not have"
    print_lines(console, f"{out}: {counts}")


def new(
    table: Annotated[
        Path,
        typer.Argument(metavar="TABLE", help="CSV file, compressed or not, Parquet or Excel."),
    ],
    target: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column to predict [default: the last one]."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Experiment file [default: the table's name .yaml]."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite an existing experiment file.")
    ] = False,
) -> None:
    """Read a table and write an experiment file for it, with comments.

    Exit status: 0 written, 2 bad input, 3 I/O error (disk full, permissions).
    """
    from pmbnn.data import DataError
    from pmbnn.experiment.draft import draft, name_of
    from pmbnn.experiment.load import check_data, experiment_of
    from pmbnn.experiment.yaml_file import parse_yaml

    file = out or Path(f"{name_of(table)}.yaml")
    if not table.is_file():
        raise DataError(f"{table} does not exist.")
    if file.exists() and not force:
        raise DataError(f"{file} is there already: choose another (`--out`), or `--force`.")
    relative = os.path.relpath(table.resolve(), file.resolve().parent)
    text = draft(table, Path(relative).as_posix(), target)
    # A draft that is not valid is an error here, not in the user's first sweep.
    experiment = experiment_of(parse_yaml(text, str(file)), file.resolve().parent)
    check_data(experiment)
    write_or_print(text, file)
    typer.echo(text, nl=False)
    typer.echo(f"\n{file}: {len(experiment.cells)} cells. Next:", err=True)
    quoted = shlex.quote(str(file))
    typer.echo(f"  pmbnn sweep {quoted} --dry-run   # how long it will take", err=True)
    typer.echo(f"  pmbnn sweep {quoted}", err=True)
    typer.echo(f"  pmbnn baselines results/{experiment.name}", err=True)
    typer.echo(f"  pmbnn report results/{experiment.name}", err=True)
    typer.echo(f"  pmbnn predict results/{experiment.name} new.csv --best", err=True)


def schema(
    out: Annotated[
        Path | None,
        OutFile,
    ] = None,
    experiment: Annotated[
        Path | None,
        typer.Option(
            "--for",
            metavar="FILE",
            help="Include what the plugins of this experiment file register.",
        ),
    ] = None,
    trust_plugins: TrustPlugins = False,
) -> None:
    """Print the JSON Schema of experiment files, for editors that complete and check YAML.

    Exit status: 0 written, 2 bad input, 3 I/O error (disk full, permissions).
    """
    import json

    from pmbnn.experiment.load import load_experiment
    from pmbnn.experiment.schema import schema as json_schema

    if experiment is not None:
        load_experiment(experiment)
    text = json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
    write_or_print(text, out)
