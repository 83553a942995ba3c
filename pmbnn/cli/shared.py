"""What the commands share: exit statuses, arguments, errors that end one, where they print."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from rich.console import Console

    from pmbnn.results.loading import ExperimentResults

FAILED = 1
"""Exit status: some of what was asked for failed."""

BAD_INPUT = 2
"""Exit status: nothing could be done with what was given."""

FAULT = 3
"""Exit status: the system stood in the way, after whose remedy the same command goes on."""

INTERRUPTED = 130
"""Exit status: Ctrl-C."""

LOG_WIDTH = 160
"""Columns of what is printed elsewhere than on a terminal: no table is folded there."""

ResultsFolders = Annotated[
    list[Path],
    typer.Argument(metavar="RESULTS...", help="Results folders: results/<experiment>."),
]

Out = Annotated[Path | None, typer.Option(help="Results folder [default: results/<experiment>].")]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")]

Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Processes for all but the largest networks [default: one per core; one per GPU].",
    ),
]

Device = Annotated[
    str,
    typer.Option(
        help="What programs run on: auto (GPUs where JAX finds some), cpu or gpu.",
        metavar="auto|cpu|gpu",
    ),
]

Wait = Annotated[
    bool, typer.Option("--wait", help="Wait for another process that writes the same folder.")
]

Quiet = Annotated[bool, typer.Option("--quiet", help="Show failures and tables only.")]


def _trust(context: typer.Context, trust: bool) -> bool:
    """Allow kept copies of plugins to be run until the command ends."""
    if trust:
        from pmbnn.experiment.plugins import trusting

        context.with_resource(trusting())
    return trust


TrustPlugins = Annotated[
    bool,
    typer.Option(
        "--trust-plugins",
        callback=_trust,
        help="Run the copies of plugins that a results folder keeps, where the plugins are not "
        "there as they were. They are Python code: only if you trust who wrote them.",
    ),
]
"""Of commands that rebuild stored cells, or read the experiment file of a results folder."""


@contextmanager
def reported(*errors: type[Exception]) -> Iterator[None]:
    """End the command with one line and status 2 where one of these errors is raised."""
    try:
        yield
    except errors as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(BAD_INPUT) from error


@contextmanager
def ending_command(kept: str = "") -> Iterator[None]:
    """End the command with one line where the user can mend an error; a fault has a traceback.

    Parameters
    ----------
    kept
        What a command that can be interrupted (Ctrl-C) keeps.
    """
    try:
        yield
    except ValueError as error:
        status = _exit_status(error)
        if status is None:
            raise
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(status) from error
    except KeyboardInterrupt as stop:
        if not kept:
            raise
        typer.echo(f"interrupted: {kept}; the same command goes on from here", err=True)
        raise typer.Exit(INTERRUPTED) from stop


def _exit_status(error: ValueError) -> int | None:
    """Status for an error that the user can mend; None of a fault, which is worth a traceback."""
    from pmbnn.data import DataError
    from pmbnn.inference.device import DeviceError
    from pmbnn.spec.errors import ConfigError

    connect = sys.modules.get("pmbnn.sweep.cluster.connect")
    if connect is not None and isinstance(error, connect.ClusterError):
        return FAULT if isinstance(error, connect.ClusterLostError) else BAD_INPUT
    store, lock = (sys.modules.get(f"pmbnn.results.{name}") for name in ("store", "lock"))
    if lock is not None and isinstance(error, lock.FolderBusyError):
        return FAULT
    results_errors = () if store is None else (store.ResultsError,)
    known = (ConfigError, DataError, DeviceError, *results_errors)
    return BAD_INPUT if isinstance(error, known) else None


def open_results(folder: Path) -> "ExperimentResults":
    """A results folder, opened; a line says how many superseded cells are left out.

    Raises
    ------
    ResultsError
        As `load_results` does.
    """
    from pmbnn.results.loading import load_results
    from pmbnn.results.present import superseded_line

    read = load_results(folder)
    if line := superseded_line(folder, read.superseded):
        typer.echo(line, err=True)
    return read


@contextmanager
def written(path: Path) -> Iterator[None]:
    """Turn an error of the system over a file that is written into one that names it.

    Raises
    ------
    ResultsError, StorageError
        If it cannot be written.
    """
    from pmbnn.results.faults import OF_WHAT_WAS_ASKED, ResultsError, storage_error

    try:
        yield
    except (FileNotFoundError, *OF_WHAT_WAS_ASKED) as error:
        raise ResultsError(f"`{path}` cannot be written: {error.strerror}.") from error
    except OSError as error:
        raise storage_error(path, error) from error


class Command(TyperCommand):
    """A command that ends with one line and status 3 where the system stands in its way."""

    def invoke(self, ctx: typer.Context) -> object:
        """Run it."""
        from pmbnn.results.faults import StorageError, named_faults

        try:
            with named_faults():
                return super().invoke(ctx)
        except StorageError as error:
            with suppress(OSError):  # the log may lie on the disk that is full
                typer.echo(f"error: {error}", err=True)
            raise typer.Exit(FAULT) from error


def check_folder_of(path: Path | None, option: str) -> None:
    """Raise ResultsError where an option names a file that is to lie in no folder."""
    from pmbnn.results.faults import ResultsError

    if path is not None and not path.parent.is_dir():
        raise ResultsError(f"`{option}` must lie in a folder that exists, got `{path}`.")


def new_console() -> "Console":
    """A console as wide as the terminal, or as a log."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else LOG_WIDTH)
