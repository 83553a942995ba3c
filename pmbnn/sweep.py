"""Run the experiments of a YAML file: ``python -m pmbnn.sweep FILE``."""

import gc

if __name__ == "__main__":
    # Classes and cells of a plan all stay: looking for garbage among them only takes time.
    gc.disable()

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from pmbnn.config import Cell, Experiment
    from pmbnn.runner import Run

FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def sweep(
    file: Annotated[Path, typer.Argument(help="Experiment file (YAML).")],
    out: Annotated[
        Path | None, typer.Option(help="Results folder [default: results/<experiment>].")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Fit these cells only, e.g. prior=laplace or dataset.seed=0; may be repeated.",
            metavar="KEY=VALUE",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Fit again what is stored already.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="Processes for all but the largest networks [default: one per core]."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show failures and tables only.")] = False,
) -> None:
    """Fit every cell of an experiment and write tables, traces and figures.

    Exit status: 0 every cell has a fit, 1 some cell failed, 2 bad input.
    """
    try:
        code = _sweep(file, out, only or [], dry_run, fresh, workers, quiet)
    except ValueError as error:
        if not _is_input_error(error):
            raise
        typer.echo(f"error: {error}", err=True)
        code = BAD_INPUT
    except KeyboardInterrupt:
        typer.echo(
            "interrupted: finished cells are kept; the same command goes on from here", err=True
        )
        code = INTERRUPTED
    raise typer.Exit(code)


def _sweep(file, out, only, dry_run, fresh, workers, quiet) -> int:
    # Looking through all installed packages for plugins of pydantic takes longer than a plan.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from pmbnn.config import load_experiment
    from pmbnn.selection import select_cells

    experiment = load_experiment(file)
    every = [cell for one in experiment.sweeps for cell in one.cells]
    wanted = select_cells(every, only)
    if dry_run:
        from pmbnn.plan import print_plan

        print_plan(experiment, wanted)
        return 0
    folder = out or Path("results") / experiment.name
    return _run(experiment, wanted, folder, fresh, workers, quiet)


def _run(
    experiment: "Experiment",
    wanted: "list[Cell]",
    folder: Path,
    fresh: bool,
    workers: int | None,
    quiet: bool,
) -> int:
    gc.enable()
    from rich.console import Console

    from pmbnn.processes import cores
    from pmbnn.runner import forget, prepare, tables_are_current, write_header, write_tables

    console = Console(width=None if sys.stdout.isatty() else 160)
    run = prepare(experiment, folder)
    write_header(run)
    if fresh:
        forget(run, wanted)
    missing = run.missing(wanted)
    if not quiet:
        _announce(console, run, wanted, missing)
    workers = workers or cores()
    _fit_missing(console, run, missing, workers, quiet)
    if not run.missing(list(run.tasks)):
        run.results.remove_checkpoints()  # of jobs that were stopped and fitted otherwise since
    records = run.records()
    if not tables_are_current(run, records):
        from pmbnn.figures import write_figures
        from pmbnn.index_page import index_page

        if not quiet:
            console.print("drawing overviews")
        figures = write_figures(run.results, records, workers)
        page = index_page(experiment.name, figures, records)
        run.results.write_text("index.html", page)
        write_tables(run, records)
    return _conclude(console, run, wanted, records)


def _announce(console: "Console", run: "Run", wanted: "list[Cell]", missing: "list[Cell]") -> None:
    from pmbnn.datasets.regression import GENERATED

    for one in run.experiment.sweeps:
        for left_out in one.left_out:
            console.print(f"{one.name}: {left_out}", highlight=False, markup=False)
    for spec, (_, source) in run.sources.items():
        if source not in ("scikit-learn", GENERATED):
            console.print(f"data set {spec.kind}: source {source}", highlight=False)
    stored = len(wanted) - len(missing)
    console.print(f"{len(wanted)} cells, {stored} stored already, {len(missing)} to fit")


def _fit_missing(console, run: "Run", missing: "list[Cell]", workers: int, quiet: bool) -> None:
    from pmbnn.plan import cell_work, job_label
    from pmbnn.progress import Display
    from pmbnn.runner import run_cells
    from pmbnn.workers import Progressed, Stored

    work = {run.tasks[cell].name: cell_work(cell).seconds for cell in missing}
    with Display(console, work, quiet) as display:
        for job, event in run_cells(run, missing, workers):
            if isinstance(event, Progressed):
                display.running_job(job_label(job), *event[1:])
            elif isinstance(event, Stored):
                display.stored(event.record)
            else:
                display.finished_job(job_label(job))


def _conclude(console: "Console", run: "Run", wanted: "list[Cell]", records: list[dict]) -> int:
    """Print the tables and where things are; the exit status."""
    from pmbnn.closing_tables import diagnostics_tables, unavailable_lines, unfamiliar_tables
    from pmbnn.progress import accuracy_tables, describe, failed

    unfamiliar = unfamiliar_tables(records)
    for table in (*accuracy_tables(records), *unfamiliar, *diagnostics_tables(records)):
        console.print(table)
    for line in unavailable_lines(records):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    folder = run.results.folder
    tables = ["metrics.csv", "summary.csv", *(["unfamiliar.csv"] if unfamiliar else [])]
    console.print(
        f"tables {', '.join(f'{folder}/{name}' for name in tables)}; figures {folder}/figures; "
        f"traces and maps {folder}/cells",
        soft_wrap=True,
        highlight=False,
    )
    names = {run.tasks[cell].name for cell in wanted}
    lost = [record for record in records if record["name"] in names and failed(record)]
    for record in lost:
        console.print(
            f"failed: {describe(record)}: {record['reason']}",
            soft_wrap=True,
            highlight=False,
            markup=False,
        )
    return FAILED if lost else 0


def _is_input_error(error: ValueError) -> bool:
    """Whether the user's input is to blame; anything else is a fault worth a traceback."""
    from pmbnn.config import ConfigError
    from pmbnn.datasets import DataError

    if isinstance(error, ConfigError | DataError):
        return True
    storage = sys.modules.get("pmbnn.storage")
    return storage is not None and isinstance(error, storage.ResultsError)


if __name__ == "__main__":
    try:
        app()
    finally:
        if not gc.isenabled():  # nothing was fitted: the end has no garbage to look for either
            gc.freeze()
