"""Progress of running jobs: a live display on a terminal or in a notebook, lines in a log."""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rich.console import Console, Group
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from pmbnn.core.machine import CPU, Device, cores, processes
from pmbnn.core.stages import StageUpdate
from pmbnn.experiment.cells import Cell
from pmbnn.experiment.cost import takes_all_cores
from pmbnn.fitting.workers import Progressed, Stored, Task, run_jobs, turns
from pmbnn.prediction.progress import duration, is_live, live, print_lines

if TYPE_CHECKING:
    from pmbnn.experiment.plugin_files import Source

SHOWN_JOBS = 8
"""Running jobs listed on a terminal."""

TRUST_IN_ESTIMATE = 0.1
"""Share of the expected work that weighs as much as the estimate made beforehand."""

LOG_EVERY = 60.0
"""Least number of seconds between two lines on one running job in a log."""


@dataclass(frozen=True)
class RunOptions:
    """How a command runs its jobs, and what it prints.

    Attributes
    ----------
    console
        Progress and messages are printed there.
    workers
        Processes; one for each core unless given.
    fresh
        Whether to run again what is stored already.
    wait
        Whether to wait where another process writes the same folder.
    quiet
        Whether to suppress progress output: show failures only.
    devices
        Devices that fits run on.
    """

    console: Console
    workers: int | None = None
    fresh: bool = False
    wait: bool = False
    quiet: bool = False
    devices: tuple[Device, ...] = (CPU,)

    @property
    def n_workers(self) -> int:
        """Number of processes."""
        return self.workers or cores()

    def print(self, *lines: str) -> None:
        """Print lines as they are; see `print_lines`."""
        print_lines(self.console, *lines)


@dataclass
class _Running:
    """A running job: the first and the latest update of its innermost stage, and its line."""

    first: StageUpdate
    since: float
    latest: StageUpdate
    printed: float
    line: str = ""

    def continues(self, update: StageUpdate) -> bool:
        """Whether an update is of the same run of a stage."""
        return update.stage == self.latest.stage and update.done >= self.latest.done

    def left(self, now: float) -> str:
        """Time left of this stage at its pace so far."""
        done, latest = self.latest.done - self.first.done, self.latest
        if not done or not latest.total:
            return ""
        return f"{duration((now - self.since) / done * (latest.total - latest.done))} left"


class JobDisplay:
    """Progress over pieces of work, such as cells, and over the jobs that do them.

    Parameters
    ----------
    work
        Expected seconds of each piece, by name: they weigh the time left.
    quiet
        Show failures only.
    unit
        Name of the pieces.
    """

    def __init__(
        self, console: Console, work: Mapping[str, float], quiet: bool, unit: str = "cells"
    ) -> None:
        self.console, self.work, self.quiet = console, dict(work), quiet
        self.total, self.done = len(work), 0
        self.all_work = sum(work.values()) or 1.0
        self.left = self.all_work
        self.running: dict[str, _Running] = {}
        self.start = time.monotonic()
        self.bar = Progress(
            TextColumn(unit),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
        )
        self.task = self.bar.add_task(unit, total=self.total, left="")
        self._live = ExitStack()

    def __enter__(self) -> "JobDisplay":
        """Start the live display, on a terminal or in a notebook."""
        if self._is_live:
            self._live.enter_context(live(self.console, self._render))
        return self

    def __exit__(self, *_: object) -> None:
        """End the live display; in a notebook, the bar stays."""
        self.running.clear()
        self.bar.update(self.task, left=f"in {duration(time.monotonic() - self.start)}")
        self._live.close()

    @property
    def _is_live(self) -> bool:
        return is_live(self.console) and not self.quiet

    def running_job(self, job: str, stages: Sequence[StageUpdate]) -> None:
        """Show the progress of a job by its stages, outermost first."""
        if not stages:
            return
        now, update = time.monotonic(), stages[-1]
        running = self.running.get(job)
        if running is None or not running.continues(update):
            printed = running.printed if running else now
            running = self.running[job] = _Running(update, now, update, printed)
        running.latest = update
        parts = [*map(stage_text, stages), running.left(now), update.words]
        # A terminal cuts the end off: what is fitted first, and its details last.
        name, _, details = job.partition(", ")
        line = f"{name}: {', '.join(filter(None, parts))}"
        running.line = f"{line} ({details})" if details else line
        if not self._is_live and not self.quiet and now - running.printed >= LOG_EVERY:
            running.printed = now
            print_lines(self.console, running.line)

    def finished_job(self, job: str) -> None:
        """Take a job off the list."""
        self.running.pop(job, None)

    def finished(self, name: str, words: str, *notes: str, failed: bool = False) -> None:
        """Count a piece of work, and print a line on it: always if it failed.

        Parameters
        ----------
        name
            Name of the piece in ``work``.
        words
            The line.
        notes
            Notes in brackets behind it, with the time left.
        """
        self.done += 1
        self.left -= self.work.get(name, 0.0)
        self.bar.update(self.task, completed=self.done, left=self._time_left())
        if failed or (not self.quiet and not self._is_live):
            line = f"[{self.done}/{self.total}] {words} ({'; '.join([*notes, self._time_left()])})"
            print_lines(self.console, line)

    def _time_left(self) -> str:
        """Time left at the pace so far; until a tenth is done the estimate counts more."""
        trust = TRUST_IN_ESTIMATE * self.all_work
        elapsed = time.monotonic() - self.start
        pace = (elapsed + trust) / (self.all_work - self.left + trust)
        return f"about {duration(pace * max(self.left, 0.0))} left"

    def _render(self) -> Group:
        lines = [
            Text(running.line, no_wrap=True, overflow="ellipsis")
            for running in list(self.running.values())[:SHOWN_JOBS]
        ]
        return Group(self.bar, *lines)


def stage_text(update: StageUpdate) -> str:
    """Name of a stage, and how much of it is done."""
    counted = f"{update.done:,}/{update.total:,}" if update.total else ""
    return " ".join(filter(None, [update.stage, counted and update.unit, counted]))


class NamedTask(Task, Protocol):
    """A task about one cell, whose `run` stores once: the reason if it failed, None if not.

    Attributes
    ----------
    cell
        The cell.
    name, label
        Name of its file, and its description.
    """

    cell: Cell
    name: str
    label: str


def run_tasks[T: NamedTask](
    seconds: Mapping[T, float],
    folder: Path,
    options: RunOptions,
    plugins: "Sequence[Source]" = (),
) -> dict[str, str]:
    """Run tasks on worker processes, showing progress; a task that fails does not stop the others.

    Parameters
    ----------
    seconds
        Expected seconds of each task on one core.
    folder, plugins
        As `run_jobs` has them.

    Returns
    -------
    dict
        Why tasks failed, by their names.
    """
    reasons: dict[str, str | None] = {}
    workers, devices = options.n_workers, options.devices
    work = {task.name: s / processes(workers, devices) for task, s in seconds.items()}
    groups = turns(list(seconds), lambda task: takes_all_cores(task.cell), workers, devices)
    with JobDisplay(options.console, work, options.quiet, "combinations") as display:
        for tasks, n_processes, single_threaded in groups:
            for event in run_jobs(tasks, folder, n_processes, single_threaded, plugins, devices):
                task = tasks[event.job]
                if isinstance(event, Progressed):
                    display.running_job(task.label, event.stages)
                elif task.name not in reasons:
                    # A worker that is done says so after the task that it has stored.
                    reason = event.record if isinstance(event, Stored) else event.died
                    reasons[task.name] = reason
                    display.finished_job(task.label)
                    words = f"{task.label}: {f'failed, {reason}' if reason else 'done'}"
                    display.finished(task.name, words, failed=reason is not None)
    return {name: reason for name, reason in reasons.items() if reason is not None}
