"""Figures and tables that plugins register, made of the stored cells."""

import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console
from rich.status import Status

from pmbnn.core.spec import ORIGINS
from pmbnn.core.stages import StageUpdate, on_progress, stage
from pmbnn.experiment.plugin_files import Source
from pmbnn.experiment.plugins import FIGURE, OUTPUTS, TABLE, experiment_parts, part_place
from pmbnn.figures import Drawing, draw_files
from pmbnn.figures.overviews import as_file_name
from pmbnn.fitting.progress import LOG_EVERY, JobDisplay, stage_text
from pmbnn.prediction.progress import print_lines, shown
from pmbnn.results.derived import current_files, files_of_plugins, note_files, set_aside
from pmbnn.results.loading import ExperimentResults, load_results
from pmbnn.results.names import cell_line
from pmbnn.results.present import StorageError
from pmbnn.results.record import CellRecord, choices_at_end
from pmbnn.results.store import Results, remove
from pmbnn.results.tables import SCORE_NAMES, main_score, score_text


def make_outputs(
    results: Results, sources: Sequence[Source], say: Callable[[str], None]
) -> list[Path]:
    """Figures of an experiment's plugins, drawn where they are missing or stale, beside its tables.

    A figure is stale if it was made of other cells, or by other code. Files of figures and tables
    that are no longer registered are removed. A function that raises is left out, and `say` is
    called with a line that says so.

    Raises
    ------
    StorageError
        If the system does not let a file be written.
    """
    with experiment_parts(sources):
        outputs = [(kind, *item) for kind in MAKERS for item in OUTPUTS[kind].items()]
    before, made = files_of_plugins(results), []
    if outputs:
        with stage("plugins"):
            read = load_results(results.folder)
            made = [file for output in outputs for file in _make(read, *output, say)]
    for file in before.keys() - set(made):
        remove(results.folder / file)
    return [results.folder / file for file in made if file.endswith(".png")]


def _make(
    results: ExperimentResults,
    kind: str,
    name: str,
    function: Callable[[Any], Any],
    say: Callable[[str], None],
) -> list[str]:
    """Files of a figure or a table; none where its function raises."""
    try:
        return MAKERS[kind](results, name, function, f"{kind} {name} {ORIGINS[function].digest}")
    except StorageError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()).rstrip(".")
        place, message = _error_place(error, function), f"{type(error).__name__}: {reason}"
        say(f"left out: {kind} `{name}` ({place}) raised {message}.")
        return []


def _make_table(
    results: ExperimentResults, name: str, function: Callable[[Any], Any], plugin: str
) -> list[str]:
    """File of a table, which every sweep makes anew; none where it has no rows."""
    table = function(results)
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"must return a DataFrame, got {table!r}")
    file = f"{name}.csv"
    if not results.results.replace_table(file, table):
        return []
    note_files(results.results, [file], results.digest, plugin=plugin)
    return [file]


def _draw_figures(
    results: ExperimentResults, name: str, function: Callable[[Any], Any], plugin: str
) -> list[str]:
    """Files of a figure, drawn unless all that are noted are there and current."""
    store = results.results
    noted = {f: by for f, by in files_of_plugins(store).items() if by.startswith(plugin)}
    is_complete = set(noted.values()) == {f"{plugin}, {len(noted)} files"}
    if is_complete and current_files(store, noted, results.digest) == [*noted]:
        return [*noted]
    figures = _figures(function(results), name.replace("_", "-"))
    plugin = f"{plugin}, {len(figures)} files"
    drawings = [
        Drawing(store.figures / f"{file}.png", lambda figure=figure: figure, results.digest, plugin)
        for file, figure in figures.items()
    ]
    paths = draw_files(drawings, store, what=f"figure {name}")
    if pyplot := sys.modules.get("matplotlib.pyplot"):  # which keeps the figures that it makes
        for figure in figures.values():
            pyplot.close(figure)
    return [path.relative_to(store.folder).as_posix() for path in paths]


def _figures(returned: object, kind: str) -> dict[str, Figure]:
    """What a function returned, by the names of files that end on the kind of figure."""
    if returned is None:
        return {}
    figures = returned if isinstance(returned, Mapping) else {"": returned}
    for key, figure in figures.items():
        if not isinstance(key, str) or not isinstance(figure, Figure):
            raise TypeError(
                "must return a Figure, a dictionary of names and figures, or None, got "
                f"{returned!r}"
            )
    files = {f"{as_file_name(key)}-{kind}".lstrip("-"): figures[key] for key in figures}
    if len(files) < len(figures):
        names = ", ".join(figures)
        raise ValueError(f"must name figures by different letters and digits, got {names}")
    return files


MAKERS = {TABLE: _make_table, FIGURE: _draw_figures}


def _error_place(error: Exception, function: Callable[[Any], Any]) -> str:
    """Line of a function's package that an error passed last; that of the function if none."""
    package = function.__module__.partition(".")[0]
    lines = [
        f"{frame.f_code.co_filename}, line {line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__", "").partition(".")[0] == package
    ]
    return lines[-1] if lines else part_place(function)


# What a running sweep shows: a live display on a terminal, plain lines in a log


class Display(JobDisplay):
    """Progress over cells."""

    def stored(self, record: CellRecord) -> None:
        """Count a cell and say how it went."""
        results, score = record.results, main_score([record])
        number = f"{SCORE_NAMES[score]} {score_text(score, results.get(score), decimals=4)}"
        status = ", ".join([record.status, *choices_at_end(record)])
        how = record.reason if record.failed else number
        line = f"{cell_line(record.cell)}: {status}, {how}"
        self.finished(record.name, line, f"{record.seconds:.1f} s", failed=record.failed)


@contextmanager
def following(console: Console, quiet: bool) -> Iterator[None]:
    """Show the present stage, or in a log those that have many parts."""
    if quiet:
        yield
    elif console.is_jupyter:
        with shown(console=console):
            yield
    elif console.is_terminal:
        with console.status("") as status, on_progress(partial(_show, status)):
            yield
    else:
        with on_progress(_Log(console)):
            yield


def _show(status: Status, stages: Sequence[StageUpdate]) -> None:
    status.update(stage_text(stages[-1]) if stages else "")


@dataclass
class _Log:
    """Lines on stages of a known number of parts: at their start, and from time to time."""

    console: Console
    stage: str = ""
    printed: float = 0.0

    def __call__(self, stages: Sequence[StageUpdate]) -> None:
        """Print how far the innermost stage is, if it is a new one or some time has passed."""
        if not stages or not stages[-1].total:
            return
        innermost, now = stages[-1], time.monotonic()
        if innermost.stage != self.stage or now - self.printed >= LOG_EVERY:
            self.stage, self.printed = innermost.stage, now
            print_lines(self.console, stage_text(innermost))


# Where the time of a run went: ``times.csv``, to which every run that fits something adds


FILE = "times.csv"
"""Table of runs: ``finished``, when (UTC); ``cells`` that it fitted and ``workers`` that it had;
``of``, ``workers`` or ``command``; the ``stage``; and the wall-clock ``seconds`` that it took,
of all workers together."""


def write_times(
    results: Results,
    cells: int,
    workers: int,
    worker_seconds: Counter[str],
    command_seconds: Counter[str],
) -> None:
    """Add a run to the table; one that someone has changed is set aside."""
    import pandas as pd

    finished = datetime.now(UTC).isoformat(timespec="seconds")
    run = {"finished": finished, "cells": cells, "workers": workers}
    rows = [
        run | {"of": of, "stage": stage, "seconds": round(spent, 3)}
        for of, seconds in (("workers", worker_seconds), ("command", command_seconds))
        for stage, spent in seconds.most_common()
    ]
    path, table = results.folder / FILE, pd.DataFrame(rows)
    if path.is_file():
        try:
            before = pd.read_csv(path)
        except ValueError:
            before = pd.DataFrame()
        if [*before] == [*table]:
            table = pd.concat([before, table], ignore_index=True)
        else:  # as a spreadsheet has saved it, with other separators
            set_aside(results, FILE)
    results.write_table(FILE, table)


def shares(seconds: Counter[str]) -> str:
    """Stages and their shares of the time in words, the longest first, down to 1 %."""
    total = sum(seconds.values())
    return ", ".join(
        f"{stage} {spent / total:.0%}"
        for stage, spent in seconds.most_common()
        if spent >= 0.01 * total > 0
    )
