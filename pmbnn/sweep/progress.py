"""What a running sweep shows: a live display on a terminal, plain lines in a log."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from rich.console import Console
from rich.status import Status

from pmbnn.core.stages import StageUpdate, on_progress
from pmbnn.prediction.progress import print_lines, shown
from pmbnn.processes.progress import LOG_EVERY, JobDisplay, stage_text
from pmbnn.results.caveats import choices_at_end
from pmbnn.results.names import cell_line
from pmbnn.results.record import CellRecord
from pmbnn.results.store import Results
from pmbnn.results.tables import SCORE_WORDS, main_score


class Display(JobDisplay):
    """Progress over cells."""

    def stored(self, record: CellRecord) -> None:
        """Count a cell and say how it went."""
        results, score = record.results, main_score([record])
        how = record.reason if record.failed else f"{SCORE_WORDS[score]} {results[score]:.4f}"
        status = ", ".join([record.status, *choices_at_end(record)])
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
    """Add a run to the table."""
    import pandas as pd

    finished = datetime.now(UTC).isoformat(timespec="seconds")
    run = {"finished": finished, "cells": cells, "workers": workers}
    rows = [
        run | {"of": of, "stage": stage, "seconds": round(spent, 3)}
        for of, seconds in (("workers", worker_seconds), ("command", command_seconds))
        for stage, spent in seconds.most_common()
    ]
    path = results.folder / FILE
    before = [pd.read_csv(path)] if path.is_file() else []
    results.write_table(FILE, pd.concat([*before, pd.DataFrame(rows)], ignore_index=True))


def shares(seconds: Counter[str]) -> str:
    """Stages and their shares of the time in words, the longest first, down to 1 %."""
    total = sum(seconds.values())
    return ", ".join(
        f"{stage} {spent / total:.0%}"
        for stage, spent in seconds.most_common()
        if spent >= 0.01 * total > 0
    )
