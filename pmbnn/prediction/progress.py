"""What a call from Python shows while it runs: one line, in a terminal or a notebook."""

from collections.abc import Iterator
from contextlib import contextmanager

from pmbnn.inference.stages import News, telling


@contextmanager
def shown(wanted: bool = True) -> Iterator[None]:
    """Show the innermost stage of what is within, and how much of it is done."""
    if not wanted:
        yield
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    words = TimeRemainingColumn(), TextColumn("{task.fields[words]}", markup=False)
    with Progress(*columns, *words, transient=True) as bar:
        task = bar.add_task("", total=None, words="")

        def told(stages: tuple[News, ...]) -> None:
            if not stages:
                return
            news, total = stages[-1], stages[-1].total or None
            if bar.tasks[0].description != news.stage:
                bar.reset(task, total=total, description=news.stage)
            bar.update(task, completed=news.done, total=total, words=news.words)

        with telling(told):
            yield
