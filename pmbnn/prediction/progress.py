"""Progress of a call from Python: one line, on a terminal or in a notebook."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from pmbnn.core.stages import StageUpdate, measured, on_progress

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


@contextmanager
def shown(wanted: bool = True, console: "Console | None" = None) -> Iterator[None]:
    """Show the innermost stage of the calls within, and how much of it is done.

    At the end the line disappears from a terminal; a notebook then shows the times of the stages.
    """
    if not wanted:
        yield
        return
    from rich import get_console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    times = TimeElapsedColumn(), TextColumn("so far,"), TimeRemainingColumn(), TextColumn("left")
    console, seconds = console or get_console(), Counter()
    bar = Progress(*columns, *times, TextColumn("{task.fields[words]}", markup=False))
    task = bar.add_task("", total=None, words="")
    is_over = False

    def show(stages: tuple[StageUpdate, ...]) -> None:
        if not stages:
            return
        update, total = stages[-1], stages[-1].total or None
        if bar.tasks[0].description != update.stage:
            bar.reset(task, total=total, description=update.stage)
        bar.update(task, completed=update.done, total=total, words=update.words)

    with live(console, lambda: times_text(seconds) if is_over else bar):
        try:
            with on_progress(show), measured() as seconds:
                yield
        finally:
            is_over = True


def live(
    console: "Console", render: "Callable[[], RenderableType]"
) -> AbstractContextManager[object]:
    """Draw the output of `render` in place until the end; in a notebook the last output stays."""
    if console.is_jupyter:
        from pmbnn.prediction.notebook import drawn_anew

        return drawn_anew(render)
    from rich.live import Live

    return Live(console=console, get_renderable=render, transient=True)


def is_live(console: "Console") -> bool:
    """Whether printed output can be redrawn in place."""
    return console.is_terminal or console.is_jupyter


def times_text(seconds: Counter[str]) -> str:
    """Stages and their times as text, the longest first."""
    return ", ".join(
        f"{stage} {f'{spent:.1f} s' if spent < 10 else duration(spent)}"
        for stage, spent in seconds.most_common()
        if spent >= 0.05
    )


def duration(seconds: float) -> str:
    """Text of a number of seconds, with minutes from one minute on."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def print_lines(console: "Console", *lines: str) -> None:
    """Print lines as they are, without folding, markup or colours."""
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False)
