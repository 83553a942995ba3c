"""What the commands share: options, exit statuses, errors that end a command, the console."""

import codecs
import io
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from click import Context, HelpFormatter
    from rich.console import Console

    from pmbnn.results.loading import ExperimentResults
    from pmbnn.results.record import CellRecord

FAILED = 1
"""Exit status: some of the cells, or of the files, failed."""

BAD_INPUT = 2
"""Exit status: the input cannot be used."""

FAULT = 3
"""Exit status: I/O error (disk full, permissions): fix it and rerun the same command."""

INTERRUPTED = 130
"""Exit status: Ctrl-C or TERM."""

INTERRUPTED_LINE = "interrupted: finished results are kept; the same command goes on from here"

LOG_WIDTH = 160
"""Width in columns of tables that are not printed on a terminal: none is folded."""

ExperimentFile = Annotated[Path, typer.Argument(metavar="FILE", help="Experiment file (YAML).")]

ResultsFolder = Annotated[
    Path, typer.Argument(metavar="RESULTS", help="Results folder: results/<experiment>.")
]

ResultsFolders = Annotated[
    list[Path], typer.Argument(metavar="RESULTS...", help="Results folders: results/<experiment>.")
]

Only = Annotated[
    list[str] | None,
    typer.Option(
        help="Use these cells only, e.g. prior=laplace or dataset.seed=0; may be repeated.",
        metavar="KEY=VALUE",
    ),
]

Out = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", metavar="RESULTS", help="Results folder [default: results/<experiment>]."
    ),
]

OutFile = typer.Option("--out", "-o", metavar="FILE", help="Write to a file instead of printing.")

DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")]

Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        "-w",
        min=1,
        metavar="N",
        help="Processes for all but the largest networks [default: one per core; one per GPU].",
    ),
]

Device = Annotated[
    str,
    typer.Option(
        help="Compute device: auto (GPUs if JAX finds some), cpu or gpu.", metavar="auto|cpu|gpu"
    ),
]

Wait = Annotated[
    bool, typer.Option("--wait", help="Wait for another process that writes the same folder.")
]

Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Suppress progress output: show failures and tables only."),
]

Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="With --dry-run: print the multiply-adds too, and the largest network that fits.",
    ),
]


def _trust(context: typer.Context, trust: bool) -> bool:
    """Allow stored copies of plugins to be run until the command ends."""
    if trust:
        from pmbnn.experiment.plugins import trusting

        context.with_resource(trusting())
    return trust


TrustPlugins = Annotated[
    bool,
    typer.Option(
        "--trust-plugins",
        callback=_trust,
        help="Run the copies of plugins stored in a results folder if the original files are "
        "missing or changed. They are Python code: only if you trust who wrote them.",
    ),
]
"""Of commands that rebuild stored cells, or read the experiment file of a results folder."""


PLAIN_SIGNS = {"−": "-", "–": "-", "×": "x", "±": "+/-"}
"""Signs of numbers in encodings that lack them; other characters are escaped."""


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Handler of errors of `write_any_sign`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    signs = (PLAIN_SIGNS.get(sign, ascii(sign)[1:-1]) for sign in lacking)
    return "".join(signs), error.end


def write_any_sign() -> None:
    """Let output go on where its encoding lacks a sign, as that of files on Windows lacks "−"."""
    codecs.register_error("pmbnn", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="pmbnn")


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """End the block at TERM, as job schedulers send it, like at Ctrl-C.

    Helpers end, and no file is left that says that the folder is being written, which another
    machine could not check. Nothing changes where TERM is handled already.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def interrupt(number, frame):
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a script
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def one_line_warnings() -> Iterator[None]:
    """Print warnings to users as one line each, without the place in the code that gave them."""
    before = warnings.formatwarning

    def one_line(message, category, *place, **more):
        if issubclass(category, UserWarning):
            return f"warning: {message}\n"
        return before(message, category, *place, **more)

    warnings.formatwarning = one_line
    try:
        yield
    finally:
        warnings.formatwarning = before


class Command(TyperCommand):
    """A command that ends with one line after Ctrl-C or an error that a user can correct.

    Any other error is a fault of the program, and keeps its traceback.
    """

    def invoke(self, ctx: typer.Context) -> object:
        """Run it."""
        from pmbnn.core.errors import UserError
        from pmbnn.results.present import StorageError, named_faults

        try:
            with termination_as_interrupt(), named_faults(), one_line_warnings():
                return super().invoke(ctx)
        except UserError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(error.exit_status) from error
        except KeyboardInterrupt as stop:
            typer.echo(INTERRUPTED_LINE, err=True)
            raise typer.Exit(INTERRUPTED) from stop
        except StorageError as error:
            with suppress(OSError):  # the log may lie on the disk that is full
                typer.echo(f"error: {error}", err=True)
            raise typer.Exit(FAULT) from error


class Commands(TyperGroup):
    """Commands whose help lists them by panel, without importing rich."""

    def format_commands(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """Write a section for each panel."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            panels.setdefault(command.rich_help_panel, []).append((name, command.short_help))
        for panel, lines in panels.items():
            with formatter.section(panel):
                formatter.write_dl(lines)


def open_results(folder: Path) -> "ExperimentResults":
    """Open a results folder; lines say how many cells are superseded, and how many missing.

    Raises
    ------
    ResultsError
        As `load_results` does.
    """
    from pmbnn.results.loading import load_results
    from pmbnn.results.present import missing_line, superseded_line

    read = load_results(folder)
    for line in (superseded_line(folder, read.superseded), missing_line(folder, read.missing)):
        if line:
            typer.echo(line, err=True)
    return read


def only_records(read: "ExperimentResults", only: Sequence[str]) -> "list[CellRecord]":
    """Records of the cells that meet every condition ``KEY=VALUE``."""
    from pmbnn.experiment.selection import select_cells

    chosen = set(select_cells([record.cell for record in read.records], only))
    return [record for record in read.records if record.cell in chosen]


@contextmanager
def writing_to(path: Path) -> Iterator[None]:
    """Turn an `OSError` over a file or folder into an error that names it.

    Raises
    ------
    ResultsError, StorageError
        If it cannot be written.
    """
    from pmbnn.results.present import NO_FOLDER, ResultsError, storage_error

    try:
        yield
    except (FileNotFoundError, *NO_FOLDER) as error:
        raise ResultsError(f"`{path}` cannot be written: {error.strerror}.") from error
    except OSError as error:
        raise storage_error(path, error) from error


@contextmanager
def writing_file(path: Path) -> Iterator[Path]:
    """Place to write a file at that a user has named, which appears there whole or not at all.

    Raises
    ------
    ResultsError, StorageError
        If it cannot be written.
    """
    from pmbnn.core.files import whole_file

    with writing_to(path):
        if path.is_symlink() or (path.exists() and not path.is_file()):
            yield path  # as /dev/stdout or a pipe, which another file cannot stand for
            return
        if path.exists():
            path.open("ab").close()  # a file that is read-only is not replaced either
        with whole_file(path) as part:
            yield part


def write_or_print(text: str, out: Path | None) -> None:
    """Write text to a file that a user has named, or print it if they have named none.

    Raises
    ------
    ResultsError, StorageError
        If it cannot be written.
    """
    if out is None:
        sys.stdout.write(text)
    else:
        with writing_file(out) as part:
            part.write_text(text, encoding="utf-8")


def check_parent(path: Path | None, option: str) -> None:
    """Raise ResultsError if an option names a file in a folder that does not exist."""
    from pmbnn.results.present import ResultsError

    if path is not None and not path.parent.is_dir():
        raise ResultsError(f"`{option}` must lie in a folder that exists, got `{path}`.")


def new_console() -> "Console":
    """A console as wide as the terminal, or as a log."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else LOG_WIDTH)
