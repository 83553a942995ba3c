"""Run the experiments of a YAML file: ``python -m pmbnn.sweep FILE``."""

from contextlib import AbstractContextManager, nullcontext
from functools import partial
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
    from rich.console import Console

    from pmbnn.experiment.load import Experiment
    from pmbnn.sweep.stages import Outcome

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(cls=Command)
def sweep(
    file: Annotated[Path, typer.Argument(help="Experiment file (YAML).")],
    out: Out = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Fit these cells only, e.g. prior=laplace or dataset.seed=0; may be repeated.",
            metavar="KEY=VALUE",
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
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Fit again what is stored already.")
    ] = False,
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
    prior_only: Annotated[
        bool,
        typer.Option("--prior-only", help="Fit nothing: show what the priors say beforehand."),
    ] = False,
) -> None:
    """Fit every cell of an experiment and write tables, traces and figures.

    Exit status: 0 every cell has a fit, 1 some cell failed, 2 bad input, 3 another sweep is at
    work in the folder, the scheduler does not answer, or the system stood in the way (a full
    disk, missing rights): the same command goes on afterwards.
    """
    from pmbnn.inference.device import find_devices

    with (
        ending_command("finished cells are kept"),
        _cluster(None if dry_run or prior_only else scheduler, shared_folder) as cluster,
    ):
        devices = find_devices(device if scheduler is None else _of_workers(device))
        run = _priors if prior_only else partial(_sweep, cluster=cluster)
        code = run(file, out, only or [], shard, dry_run, fresh, workers, devices, wait, quiet)
    raise typer.Exit(code)


def _cluster(scheduler: str | None, shared_folder: bool) -> "AbstractContextManager":
    """The cluster of a scheduler, if one is named."""
    if scheduler is None:
        return nullcontext()
    from pmbnn.sweep.cluster.connect import connected

    return connected(scheduler, shared_folder)


def _of_workers(device: str) -> str:
    from pmbnn.sweep.cluster.connect import device_of_workers

    return device_of_workers(device)


def _sweep(file, out, only, shard, dry_run, fresh, workers, devices, wait, quiet, cluster) -> int:
    from pmbnn.experiment.load import check_data, load_experiment
    from pmbnn.experiment.selection import select_cells
    from pmbnn.experiment.shards import default_folder, in_shard, read_shard

    part = None if shard is None else read_shard(shard)
    experiment = load_experiment(file)
    check_data(experiment)
    wanted = in_shard(experiment, select_cells(list(experiment.cells), only), part, devices)
    folder = out or default_folder(experiment.name, part)
    if dry_run:
        from pmbnn.experiment.machine import cores
        from pmbnn.experiment.plan import print_plan

        print_plan(experiment, wanted, workers or cores(), devices)
        _print_left_behind(experiment, folder)
        return 0
    from pmbnn.sweep.stages import run_experiment

    console = new_console()
    outcome = run_experiment(
        experiment, wanted, folder, console, workers, fresh, wait, quiet, devices, cluster
    )
    return _conclude(console, outcome)


def _print_left_behind(experiment: "Experiment", folder: Path) -> None:
    """Say how many stored cells other settings leave behind; other data show when they are read."""
    from pmbnn.experiment.plan import content_digest
    from pmbnn.results.present import left_behind_line, settings_left_behind

    gone = settings_left_behind(folder, map(content_digest, experiment.cells))
    if gone:
        typer.echo(left_behind_line(folder, len(gone)))


def _priors(file, out, only, shard, dry_run, fresh, workers, devices, wait, quiet) -> int:
    from pmbnn.experiment.load import check_data, load_experiment
    from pmbnn.experiment.selection import select_cells
    from pmbnn.spec.errors import must

    if shard is not None:
        raise must("--shard", "must be left out with `--prior-only`", shard)
    experiment = load_experiment(file)
    check_data(experiment)
    wanted = select_cells(list(experiment.cells), only)
    if dry_run:
        from pmbnn.experiment.priors import prior_lines

        typer.echo("\n".join(prior_lines(experiment, wanted)))
        return 0
    from pmbnn.sweep.prior import priors_table, run_priors

    folder, console = out or Path("results") / experiment.name, new_console()
    found = run_priors(experiment, wanted, folder, console, workers, fresh, wait, quiet)
    console.print(priors_table(found))
    words = f"table {folder}/prior.csv; figures {folder}/prior"
    console.print(words, soft_wrap=True, highlight=False)
    return 0


def _conclude(console: "Console", outcome: "Outcome") -> int:
    """Print the tables and where things are; the exit status."""
    from pmbnn.cli.closing_tables import (
        diagnostics_tables,
        ood_tables,
        reliability_table,
        unavailable_lines,
    )
    from pmbnn.results.names import cell_line
    from pmbnn.sweep.progress import accuracy_tables

    records, folder = outcome.records, outcome.folder
    ood = ood_tables(records)
    tables = [*accuracy_tables(records), *ood, *diagnostics_tables(records)]
    for table in filter(None, [*tables, reliability_table(records)]):
        console.print(table)
    for line in unavailable_lines(records):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    tables = ["metrics.csv", "summary.csv", *(["ood.csv"] if ood else [])]
    console.print(
        f"tables {', '.join(f'{folder}/{name}' for name in tables)}; figures {folder}/figures; "
        f"traces and maps {folder}/cells",
        soft_wrap=True,
        highlight=False,
    )
    for record in outcome.failed:
        console.print(
            f"failed: {cell_line(record.cell)}: {record.reason}",
            soft_wrap=True,
            highlight=False,
            markup=False,
        )
    return FAILED if outcome.failed else 0


if __name__ == "__main__":
    app()
