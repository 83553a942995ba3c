"""Commands that read results folders: baselines, claims, compare, report, verify and prune."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pmbnn.cli.command import (
    FAILED,
    ResultsFolder,
    ResultsFolders,
    TrustPlugins,
    Wait,
    check_parent,
    new_console,
    open_results,
    writing_to,
)
from pmbnn.prediction.progress import print_lines

if TYPE_CHECKING:
    from pmbnn.compare.published_splits import PublishedMethod
    from pmbnn.processes.helpers import Helpers
    from pmbnn.results.loading import ExperimentResults

PAGE = "report.html"


def baselines(
    folders: ResultsFolders,
    methods: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Baseline models, separated by commas: linear, forest, process; or none.",
        ),
    ] = "linear,forest,process",
    published: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="CSV file with published results of each split: columns set, split, and metrics.",
        ),
    ] = None,
    name: Annotated[
        str, typer.Option(help="Name of the published method [default: the file's name].")
    ] = "",
    trust_plugins: TrustPlugins = False,
) -> None:
    """Fit baseline models on the splits of stored cells: one table with both, baselines.csv.

    Logistic or ridge regression, a random forest and a Gaussian process (up to 3,000 rows), of
    scikit-learn. The networks' combination is chosen on each data seed, by its held-out training
    rows and by ELBO. paired_baselines.csv has the paired differences between the first and every
    method on the same data seeds, and whether the network is better, worse or undecided.

    Published results of each split are paired in the same way: those of a file, and those that
    the experiment's table of published numbers names.

    Exit status: 0 done, 2 bad input, 3 I/O error (disk full, permissions): fix it and rerun the
    same command.
    """
    from pmbnn.compare.published_splits import read_splits

    keys = _baseline_keys(methods)
    given = [] if published is None else read_splits(published, name, setting="--published")
    for folder in dict.fromkeys(folders):
        _baselines(folder, keys, given)


def _baseline_keys(names: str) -> list[str]:
    """Keys of the baseline models that an option names."""
    from pmbnn.compare.baselines import KEYS
    from pmbnn.spec.errors import must_be_one_of

    keys = [] if names == "none" else [name.strip() for name in names.split(",")]
    for key in keys:
        if key not in KEYS:
            raise must_be_one_of("--methods", [*KEYS, "none"], key)
    return keys


def _baselines(folder: Path, keys: Sequence[str], given: "Sequence[PublishedMethod]") -> None:
    from pmbnn.cli.tables import baselines_tables
    from pmbnn.compare.baselines import make_baselines, write_baselines
    from pmbnn.compare.published_splits import stored_splits
    from pmbnn.results.store import ResultsError

    read = open_results(folder)
    published, absent = stored_splits(read.results)
    for reason in absent:
        typer.echo(f"left out: {reason}", err=True)
    console = new_console()
    with console.status("baselines") as status:
        # Forests on large sets take minutes each: a log shows progress too.
        on_progress = status.update if console.is_terminal else partial(typer.echo, err=True)
        every = [*published, *given]
        made = make_baselines(read.results, read.records, keys, every, on_progress)
    if made.means.empty:
        raise ResultsError(f"The folder `{folder}` has no cell with results.")
    if made.paired.empty:
        typer.echo("Nothing is paired: no cell has a score of held-out rows.", err=True)
    for table in baselines_tables(read.name, made.means, made.paired):
        console.print(table)
    with writing_to(folder):
        files = write_baselines(read.results, made)
        read.note_made(files)
    for file in files:
        typer.echo(f"table {folder / file}")


def claims(
    folders: ResultsFolders,
    out: Annotated[
        Path | None,
        typer.Option(help="One table for all folders [default: claims.csv in each folder]."),
    ] = None,
) -> None:
    """Compare priors and hyperpriors on stored results: tables, and claims.csv.

    Sparsity of the last layer, uncertainty at the true boundary, differences between learned
    scales and fixed ones, and the scales themselves, as means ± standard errors over data seeds.

    Exit status: 0 done, 2 bad input, 3 I/O error (disk full, permissions): fix it and rerun the
    same command.
    """
    import pandas as pd

    from pmbnn.cli.tables import claims_tables, grid_end_lines
    from pmbnn.compare.claims import FILE, claims_table, write_claims

    check_parent(out, "--out")
    read = [open_results(folder) for folder in folders]
    tables = {
        one.results.folder / FILE: claims_table(one.name, one.results, one.records) for one in read
    }
    every = pd.concat(tables.values(), ignore_index=True)
    console = new_console()
    for table in claims_tables(every):
        console.print(table)
    for line in grid_end_lines(every):
        typer.echo(line)
    for path, table in ({out: every} if out else tables).items():
        with writing_to(path):
            write_claims(path, table)
        typer.echo(f"table {path}")
    for one in () if out else read:
        with writing_to(one.results.folder):
            one.note_made([FILE])


def compare(folders: ResultsFolders) -> None:
    """Report whether a prior matters, and whether ADVI agrees: verdicts, and compare.csv.

    Beside it, evidence.csv has log evidence, ELBO, LOO and held-out NLL of every cell, and
    regret.csv what choosing a prior by each of them costs under the posterior.

    Contrasts are those that the experiment file names; if it names none, every learned scale
    minus every fixed one of the same prior. The intervals of a folder are simultaneous, with
    probability 95 %.

    Exit status: 0 done, 2 bad input, 3 I/O error (disk full, permissions): fix it and rerun the
    same command.
    """
    for folder in dict.fromkeys(folders):
        _compare(folder)


def _compare(folder: Path) -> None:
    from pmbnn.cli.tables import contrasts_table, regret_table
    from pmbnn.compare.contrasts import make_verdicts, sentence, write_verdicts
    from pmbnn.results.groups import invalid_chains
    from pmbnn.results.store import ResultsError

    read = open_results(folder)
    for line in invalid_chains(read.records).values():
        typer.echo(f"left out: {line}", err=True)
    verdicts = make_verdicts(read)
    if verdicts.contrasts.empty and verdicts.regret.empty:
        raise ResultsError(f"The folder `{folder}` has no two cells to compare on the same data.")
    console = new_console()
    if not verdicts.contrasts.empty:
        console.print(contrasts_table(read.name, verdicts.contrasts))
    for row in verdicts.contrasts.to_dict("records"):
        typer.echo(sentence(row))
    if not verdicts.regret.empty:
        console.print(regret_table(read.name, verdicts.regret))
    with writing_to(folder):
        files = write_verdicts(read.results, verdicts)
        read.note_made(files)
    for file in files:
        typer.echo(f"table {folder / file}")


def report(
    folders: ResultsFolders,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the page, which is made [default: the first results folder]."),
    ] = None,
) -> None:
    """Show results folders on one page: the best combinations first, then every table and figure.

    Nothing is fitted again. Figures and comparisons that are missing, or that other cells were
    used for, are made again from stored results. Published numbers stand beside ours if the
    experiment named some. The page, report.html, needs no other file and no network.

    Exit status: 0 the page is written, 2 bad input, 3 I/O error (disk full, permissions): fix it
    and rerun the same command.
    """
    from pmbnn.core.machine import cores
    from pmbnn.processes.helpers import Helpers

    read = [open_results(folder) for folder in dict.fromkeys(folders)]
    with Helpers(cores(), sum(len(folder.records) for folder in read)) as helpers:
        # They import what this process imports next.
        helpers.start("pmbnn.report.rebuild", "pmbnn.report.cells")
        path, size = _write_page(read, out or folders[0], helpers)
    typer.echo(f"page {path} ({size / 1e6:.1f} MB)")


def _write_page(
    read: Sequence["ExperimentResults"], out: Path, helpers: "Helpers"
) -> tuple[Path, int]:
    """Write the page; its path, and its size in bytes."""
    from rich.console import Console

    from pmbnn.core.stages import stage
    from pmbnn.report.page import published_tables, report_page
    from pmbnn.report.rebuild import rebuild
    from pmbnn.report.rendering import check_writable, write_page
    from pmbnn.sweep.progress import following

    console = Console(stderr=True)
    tables = published_tables(read)
    check_writable(out)
    with following(console, quiet=False):
        whole = [rebuild(folder, partial(print_lines, console), helpers) for folder in read]
        with stage("page"):
            text = report_page(whole, tables, helpers)
    path = out / PAGE
    write_page(path, text)
    for folder in whole:
        if folder.results.folder.resolve() == out.resolve():
            folder.note_made([PAGE])
    return path, len(text.encode("utf-8"))


def verify(
    folder: ResultsFolder,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Set broken cells aside, so that a sweep fits them again."),
    ] = False,
) -> None:
    """Check the files of every stored cell against the sizes and checksums in its record.

    Exit status: 0 all are whole, 1 some are broken, 2 bad input, 3 I/O error (disk full,
    permissions).
    """
    from pmbnn import results

    broken = results.verify(folder, repair)
    for line in broken:
        typer.echo(line)
    raise typer.Exit(FAILED if broken else 0)


def prune(
    folder: ResultsFolder,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would be removed, and remove nothing.")
    ] = False,
    wait: Wait = False,
) -> None:
    """Remove cells that the experiment no longer has, and tables and figures of them.

    A sweep keeps cells whose data, plugins or settings have changed since. No command reads them;
    they are used again if the experiment has them again. Present cells stay, also failed ones.

    Exit status: 0 done, 2 bad input, 3 another process writes the folder, or I/O error (disk
    full, permissions): fix it and rerun the same command.
    """
    from pmbnn.results.derived import prune as remove_superseded

    removed = remove_superseded(folder, dry_run, wait)
    for cell in removed:
        typer.echo(cell)
    size, what = sum(cell.size for cell in removed), "would be removed" if dry_run else "removed"
    counts = f"{len(removed)} superseded, {size:,} bytes {what}"
    typer.echo(counts if removed else "nothing superseded")
