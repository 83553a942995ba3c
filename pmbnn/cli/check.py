"""Hold finished fits against the posterior: ``pmbnn check RESULTS``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pmbnn.cli.shared import (
    BAD_INPUT,
    FAILED,
    Command,
    Device,
    DryRun,
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

    from pmbnn.compare.agreement import Kind

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(cls=Command)
def check(
    folder: Annotated[
        Path,
        typer.Argument(metavar="RESULTS", help="Results folder: results/<experiment>."),
    ],
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Check these cells only, e.g. prior=laplace or dataset.seed=0; may be repeated.",
            metavar="KEY=VALUE",
        ),
    ] = None,
    engine: Annotated[str, typer.Option(help="Sampler that is the reference.")] = "mclmc",
    dry_run: DryRun = False,
    workers: Workers = None,
    device: Device = "auto",
    wait: Wait = False,
    quiet: Quiet = False,
    trust_plugins: TrustPlugins = False,
) -> None:
    """Sample the posterior of every finished cell and say how far its fit is from it.

    Nothing is fitted again. References are cells of the same folder; what is sampled once stays.

    Exit status: 0 every reference has draws, 1 some have none, 2 bad input, 3 a sweep is at work
    in the folder, or the system stood in the way (a full disk).
    """
    with ending_command():
        code = _check(folder, only or [], engine, dry_run, workers, device, wait, quiet)
    raise typer.Exit(code)


def _check(folder, only, engine, dry_run, workers, device, wait, quiet) -> int:
    from pmbnn.compare.agreement import agreement_table
    from pmbnn.experiment.machine import cores
    from pmbnn.experiment.plan import print_plan
    from pmbnn.inference.device import find_devices
    from pmbnn.inference.samplers.settings import SAMPLING
    from pmbnn.results.store import Results
    from pmbnn.sweep.check import check_folder, references

    if engine not in SAMPLING:
        choices = ", ".join(sorted(SAMPLING))
        typer.echo(f"error: `--engine` must be one of {choices}, got {engine!r}.", err=True)
        return BAD_INPUT
    devices, console = find_devices(device), new_console()
    wanted = references(folder, SAMPLING[engine](), only, devices)
    for line in wanted.left_out:
        console.print(f"left out: {line}", soft_wrap=True, highlight=False, markup=False)
    if dry_run:
        print_plan(wanted.experiment, wanted.cells, workers or cores(), devices)
        return 0
    outcome = check_folder(folder, wanted, console, workers, wait, quiet)
    for table in _tables(agreement_table(Results(folder), outcome.records)):
        console.print(table)
    return FAILED if outcome.failed else 0


def _tables(found: "pd.DataFrame") -> "list[Table]":
    """A table for each kind of prediction there is."""
    from pmbnn.compare.agreement import KINDS

    kinds = [kind for kind in KINDS.values() if kind.name in found.columns]
    return [_table(kind, found[found[kind.name].notna()]) for kind in kinds]


def _table(kind: "Kind", found: "pd.DataFrame") -> "Table":
    """Distance at test rows, mean and largest over data seeds, of each posterior and guide."""
    from rich.table import Table

    from pmbnn.results.caveats import NOT_CONVERGED
    from pmbnn.results.names import OF_POSTERIOR

    table = Table(title=f"{kind.title}, test rows", title_justify="left")
    for name in ("data", "prior", "hyperprior", "guide", "settings"):
        table.add_column(name)
    verdicts = ("agrees", "differs", "undecided")
    for name in ("not converged", "mean", "largest", "floor", "sd ratio", *verdicts):
        table.add_column(name, justify="right")
    keys = ["dataset.kind", "prior.kind", "hyperprior.kind", "guide"]
    others = [
        name
        for name in found.columns
        if name.split(".")[0] in (*OF_POSTERIOR, "mixture")
        and name not in (*keys, "dataset.seed")
        and found[name].nunique(dropna=False) > 1
    ]
    for every, group in found.groupby([*keys, *others], sort=False, dropna=False):
        key, values = every[: len(keys)], every[len(keys) :]
        settings = [
            f"{name.split('.')[-1]} {value}"
            for name, value in zip(others, values, strict=True)
            if value == value  # what is missing is not equal to itself
        ]
        distance, floor = group[kind.name], group[f"{kind.name}_floor"]
        counts = [str((group["verdict"] == v).sum()) for v in verdicts]
        lost = f"{group['fit_status'].isin(NOT_CONVERGED).sum()} of {len(group)}"
        numbers = (distance.mean(), distance.max(), floor.mean())
        printed = [*(f"{n:.4f}" for n in numbers), f"{group['sd_ratio'].median():.2f}"]
        table.add_row(*map(str, key), ", ".join(settings), lost, *printed, *counts)
    return table


if __name__ == "__main__":
    app()
