"""Commands that read results folders.

They are show, report, table, diff, compare, claims, baselines, export, verify and prune.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pmbnn.cli.command import (
    FAILED,
    Only,
    OutFile,
    ResultsFolder,
    ResultsFolders,
    TrustPlugins,
    Wait,
    check_parent,
    new_console,
    only_records,
    open_results,
    write_or_print,
    writing_to,
)
from pmbnn.prediction.progress import print_lines

if TYPE_CHECKING:
    from pmbnn.compare.published_splits import PublishedMethod
    from pmbnn.results.loading import ExperimentResults

PAGE = "index.html"

FORMATS = ("markdown", "latex", "csv")
"""Formats of a table for a paper."""


def baselines(
    folders: ResultsFolders,
    methods: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Baseline models, separated by commas: linear, forest, boosting, process; or "
            "none.",
        ),
    ] = "linear,forest,boosting,process",
    published: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="CSV file with published results of each split: columns set, split, and metrics.",
        ),
    ] = None,
    name: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Name of the published method [default: the file's name]."
        ),
    ] = "",
    network: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Compare this combination, e.g. prior=normal; may be repeated "
            "[default: the one chosen by held-out rows].",
        ),
    ] = None,
    trust_plugins: TrustPlugins = False,
) -> None:
    """Fit baseline models on the splits of stored cells: one table with both, baselines.csv.

    Logistic or ridge regression, a random forest, gradient boosting and a Gaussian process (up to
    3,000 rows), of scikit-learn. The networks' combination is chosen on each data seed, by its
    held-out training rows and by ELBO. paired_baselines.csv has the paired differences between the
    first and every method on the same data seeds, and whether the network is better, worse or
    undecided. A combination that you named before you saw results, also a sampled one, takes its
    place by --network.

    Published results of each split are paired in the same way: those of a file, and those that
    the experiment's table of published numbers names.

    Exit status: 0 done, 2 bad input, 3 I/O error (disk full, permissions): fix it and rerun the
    same command.
    """
    from pmbnn.compare.baseline_models import KEYS
    from pmbnn.compare.published_splits import read_splits
    from pmbnn.core.errors import must_be_one_of

    keys = [] if methods == "none" else [key.strip() for key in methods.split(",")]
    for key in keys:
        if key not in KEYS:
            raise must_be_one_of("--methods", [*KEYS, "none"], key)
    splits = [] if published is None else read_splits(published, name, setting="--published")
    for folder in dict.fromkeys(folders):
        _baselines(folder, keys, splits, network or [])


def _baselines(
    folder: Path,
    keys: Sequence[str],
    splits: "Sequence[PublishedMethod]",
    network: Sequence[str],
) -> None:
    from pmbnn.cli.tables import baselines_tables
    from pmbnn.compare.baselines import make_baselines, write_baselines
    from pmbnn.compare.published_splits import stored_splits
    from pmbnn.results.store import ResultsError

    stored = open_results(folder)
    published, absent = stored_splits(stored.results)
    _say_left_out(stored, absent)
    console = new_console()
    with console.status("baselines") as status:
        # Forests on large sets take minutes each: a log shows progress too.
        on_progress = status.update if console.is_terminal else partial(typer.echo, err=True)
        tables = make_baselines(
            stored.results, stored.records, keys, [*published, *splits], on_progress, network
        )
    if tables.means.empty:
        raise ResultsError(f"The folder `{folder}` has no cell with results.")
    paired = set(tables.paired["data"])
    for data in tables.means["data"].unique():
        if data not in paired:
            why = "no cell has a score of held-out rows, and `--network` names none"
            typer.echo(f"Nothing is paired on {data}: {why}.", err=True)
    for table in baselines_tables(stored.name, tables.means, tables.paired):
        console.print(table)
    _write(stored, lambda: write_baselines(stored.results, tables))


def _write(stored: "ExperimentResults", write: Callable[[], Sequence[str]]) -> None:
    """Write tables into a results folder, note which cells they are of, and print their paths."""
    folder = stored.results.folder
    with writing_to(folder):
        files = write()
        stored.note_made(files)
    for file in files:
        typer.echo(f"table {folder / file}")


def claims(
    folders: ResultsFolders,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="One table for all folders [default: claims.csv in each folder].",
        ),
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
    from pmbnn.results.loading import named_apart

    check_parent(out, "--out")
    opened = [open_results(folder) for folder in dict.fromkeys(folders)]
    for stored in opened:
        _say_left_out(stored)
    tables = {
        stored.results.folder / FILE: claims_table(stored.name, stored.results, stored.records)
        for stored in opened
    }
    both = zip(named_apart(opened), tables.values(), strict=True)
    joined = pd.concat(
        [table.assign(experiment=stored.name) for stored, table in both], ignore_index=True
    )
    console = new_console()
    for table in claims_tables(joined):
        console.print(table)
    for line in grid_end_lines(joined):
        typer.echo(line)
    for path, table in ({out: joined} if out else tables).items():
        with writing_to(path):
            write_claims(path, table)
        typer.echo(f"table {path}")
    for stored in () if out else opened:
        with writing_to(stored.results.folder):
            stored.note_made([FILE])


def compare(
    folders: ResultsFolders,
    rows: Annotated[
        bool,
        typer.Option(
            "--rows",
            help="Write errors of contrasts by test row instead, of one data seed or of several "
            "that split the same rows anew: compare_rows.csv.",
        ),
    ] = False,
    trust_plugins: TrustPlugins = False,
) -> None:
    """Report whether a prior matters, and whether ADVI agrees: verdicts, and compare.csv.

    Beside it, compare_over_data.csv has means of contrasts over three or more data sets,
    evidence.csv log evidence, ELBO, LOO and held-out NLL of sampled cells and of fits with an
    ELBO, and regret.csv what choosing a prior by each of them costs under the posterior.

    Contrasts are those that the experiment file names; if it names none, every learned scale
    minus every fixed one of the same prior. The intervals of a folder are simultaneous, with
    probability 95 %.

    With --rows, standard errors of differences of the test NLL take rows as the sample, each with
    all splits that it is a test row of. They are of the training sets that were drawn. Cells that
    were stored without log scores of their test rows predict these again.

    Exit status: 0 done, 2 bad input, 3 I/O error (disk full, permissions): fix it and rerun the
    same command.
    """
    for folder in dict.fromkeys(folders):
        (_compare_rows if rows else _compare)(folder)


def _compare(folder: Path) -> None:
    from pmbnn.cli.tables import contrasts_table, over_data_table, regret_table
    from pmbnn.compare.contrasts import make_verdicts, sentence, write_verdicts
    from pmbnn.results.store import ResultsError

    stored, console = open_results(folder), new_console()
    _say_left_out(stored)
    verdicts = make_verdicts(stored)
    if verdicts.contrasts.empty and verdicts.regret.empty:
        raise ResultsError(f"The folder `{folder}` has no two cells to compare on the same data.")
    if not verdicts.contrasts.empty:
        console.print(contrasts_table(stored.name, verdicts.contrasts))
    for row in verdicts.contrasts.to_dict("records"):
        typer.echo(sentence(row))
    if not verdicts.over_data.empty:
        console.print(over_data_table(stored.name, verdicts.over_data))
    if not verdicts.regret.empty:
        console.print(regret_table(stored.name, verdicts.regret))
    _write(stored, lambda: write_verdicts(stored.results, verdicts))


def _say_left_out(stored: "ExperimentResults", others: Sequence[str] = ()) -> None:
    """Print which chains are refuted, as they are not compared, and what else is left out."""
    from pmbnn.results.names import invalid_chains

    for line in [*invalid_chains(stored.records).values(), *others]:
        typer.echo(f"left out: {line}", err=True)


def _compare_rows(folder: Path) -> None:
    from rich.console import Console

    from pmbnn.cli.tables import row_errors_table
    from pmbnn.compare.rows import make_row_errors, write_row_errors
    from pmbnn.results.store import ResultsError
    from pmbnn.sweep.outputs import following

    stored = open_results(folder)
    with following(Console(stderr=True), quiet=False):
        errors = make_row_errors(stored)
    _say_left_out(stored, errors.left_out)
    if errors.table.empty:
        raise ResultsError(
            f"The folder `{folder}` has no contrast of the test NLL on one data seed, or on "
            "several that split the same rows."
        )
    new_console().print(row_errors_table(stored.name, errors.table))
    _write(stored, lambda: write_row_errors(stored.results, errors))


def show(
    folder: ResultsFolder,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="List every cell with its status and score.")
    ] = False,
) -> None:
    """Show what a results folder holds: cells, their status, the best combinations, stale files.

    It may be called while a sweep writes the folder: nothing is locked or written.

    Exit status: 0 shown, 2 bad input.
    """
    from pmbnn.cli.cell_tables import cells_table, state_lines, state_table
    from pmbnn.results.state import folder_state

    state, console = folder_state(folder), new_console()
    lines = state_lines(folder, state)
    print_lines(console, lines[0])
    if state.records:
        console.print((cells_table if verbose else state_table)(state.records))
    print_lines(console, *lines[1:])


def diff(
    first: Annotated[Path, typer.Argument(metavar="A", help="Results folder.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another results folder.")],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Compare this metric; may be repeated [default: accuracy, rmse, nll, excess_nll].",
        ),
    ] = None,
) -> None:
    """Compare two results folders: settings that differ, and metrics paired by data seed.

    Combinations are paired where they agree in every setting of which the two folders have a value
    in common. A difference is the second less the first, with the 95 % interval of the paired t
    test over data seeds; intervals hold one by one.

    Exit status: 0 done, 2 bad input.
    """
    from pmbnn.cli.cell_tables import diff_lines, diff_tables
    from pmbnn.compare.diff import diff as compare_folders

    opened = [open_results(folder) for folder in (first, second)]
    for stored in opened:
        _say_left_out(stored)
    found, console = compare_folders(*opened, metric), new_console()
    for shown in diff_tables(found):
        console.print(shown)
    print_lines(console, *diff_lines(found))


def export(
    folder: ResultsFolder,
    to: Annotated[Path, typer.Option(metavar="FILE.zip", help="ZIP file to write.")],
    data: Annotated[
        bool, typer.Option("--data", help="Add the files of data that the experiment reads.")
    ] = False,
) -> None:
    """Write a results folder as one ZIP file for a colleague.

    It has the present cells, the plugins, the tables and figures, and the fingerprints of the data
    (provenance.json); no checkpoints, and no superseded cells. `pmbnn report` and `pmbnn predict`
    read the unzipped folder, with --trust-plugins where cells need plugins. Traces of the cells
    hold predictions of the test rows, and may hold training rows.

    Exit status: 0 written, 2 bad input, 3 I/O error (disk full, permissions).
    """
    from pmbnn.results.export import export as write_zip

    files = write_zip(folder, to, data)
    cells = sum(file.endswith("/metrics.json") for file in files)
    size = to.stat().st_size / 1e6
    typer.echo(f"{to}: {cells} cells, {len(files)} files, {size:.1f} MB")


def table(
    folder: ResultsFolder,
    rows: Annotated[
        str, typer.Option(metavar="SETTING", help="A section or a field, e.g. prior.")
    ] = "prior",
    columns: Annotated[
        str, typer.Option(metavar="SETTING", help="Another one, e.g. network.hidden.")
    ] = "hyperprior",
    metric: Annotated[str, typer.Option(metavar="NAME", help="A column of metrics.csv.")] = "nll",
    form: Annotated[
        str, typer.Option("--format", "-f", metavar="|".join(FORMATS), help="Format of the table.")
    ] = "markdown",
    only: Only = None,
    out: Annotated[
        Path | None,
        OutFile,
    ] = None,
) -> None:
    """Print a metric as a table for a paper: mean ± standard error, the best in bold.

    In each table the best combination of a data set is in bold, and those that are not
    significantly worse are marked: their simultaneous intervals of paired differences over data
    seeds contain zero. Other settings that vary have a table each. CSV has a row for each entry,
    with intervals.

    Exit status: 0 written, 2 bad input, 3 I/O error (disk full, permissions).
    """
    from pmbnn.core.errors import must_be_one_of

    if form not in FORMATS:
        raise must_be_one_of("--format", FORMATS, form)
    check_parent(out, "--out")
    from pmbnn.results.metric_table import table as metric_table
    from pmbnn.results.names import valid_cells

    stored = open_results(folder)
    _say_left_out(stored)
    # Fits that are not asked for may refute chains that are.
    valid = {record.name for record in valid_cells(stored.records)}
    records = [record for record in only_records(stored, only or []) if record.name in valid]
    made = metric_table(records, rows, columns, metric)
    text = {"markdown": made.to_markdown, "latex": made.to_latex, "csv": made.to_csv}[form]()
    write_or_print(text, out)


def report(
    folders: ResultsFolders,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FOLDER",
            help="Folder of the page, which is made [default: the first results folder].",
        ),
    ] = None,
) -> None:
    """Show results folders on one page: the answer first, then every table and figure.

    Nothing is fitted again. Figures and comparisons that are missing, or that other cells were
    used for, are made again from stored results. Published numbers stand beside ours if the
    experiment named some. The page, index.html, needs no other file and no network.

    Exit status: 0 the page is written, 2 bad input, 3 I/O error (disk full, permissions): fix it
    and rerun the same command.
    """
    from rich.console import Console

    from pmbnn.core.files import whole_file
    from pmbnn.core.machine import cores
    from pmbnn.core.stages import stage
    from pmbnn.fitting.helpers import Helpers

    opened = [open_results(folder) for folder in dict.fromkeys(folders)]
    with Helpers(cores(), sum(len(stored.records) for stored in opened)) as helpers:
        # They import what this process imports next.
        helpers.start("pmbnn.report.rebuild", "pmbnn.report.tables")
        from pmbnn.report.page import published_tables, report_page
        from pmbnn.report.rebuild import rebuild
        from pmbnn.report.rendering import check_writable
        from pmbnn.sweep.outputs import following

        folder, console = out or folders[0], Console(stderr=True)
        tables = published_tables(opened)
        check_writable(folder)
        with following(console, quiet=False):
            say = partial(print_lines, console)
            rebuilt = [rebuild(stored, say, helpers) for stored in opened]
            with stage("page"):
                text = report_page(rebuilt, tables, helpers)
    path = folder / PAGE
    with writing_to(path), whole_file(path) as part:
        part.write_text(text, encoding="utf-8")
    for stored in rebuilt:
        if stored.results.folder.resolve() == folder.resolve():
            stored.note_made([PAGE])
    typer.echo(f"page {path} ({len(text.encode('utf-8')) / 1e6:.1f} MB)")


def verify(
    folder: ResultsFolder,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Set broken cells aside and remove other broken files, so that the next sweep "
            "fits and draws them again.",
        ),
    ] = False,
) -> None:
    """Check the files of every stored cell against the sizes and checksums in its record.

    Figures, and files of priors and ranks, are read.

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
    Tables that were set aside (stale/), broken cells that were fitted again, priors that the
    experiment no longer has, and checkpoints that no cell needs are removed as well.

    Exit status: 0 done, 2 bad input, 3 another process writes the folder, or I/O error (disk
    full, permissions): fix it and rerun the same command.
    """
    from pmbnn.results.prune import prune as remove_superseded

    removed = remove_superseded(folder, dry_run, wait)
    for cell in removed:
        typer.echo(cell)
    size, what = sum(cell.size for cell in removed), "would be removed" if dry_run else "removed"
    counts = f"{len(removed)} superseded, {size:,} bytes {what}"
    typer.echo(counts if removed else "nothing superseded")
