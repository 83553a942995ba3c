"""What a running calibration shows: bars on a terminal, plain lines in a log."""

import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pmbnn.core.stages import News
from pmbnn.sweep.progress import LOG_EVERY, far


class CalibrationDisplay:
    """Progress over combinations, and over the simulations of those that are running.

    Parameters
    ----------
    total
        Combinations.
    quiet
        Show failures only.
    """

    def __init__(self, console: Console, total: int, quiet: bool) -> None:
        self.console, self.total, self.quiet = console, total, quiet
        self.done = 0
        self._told: dict[str, float] = {}
        self._bars: dict[str, int] = {}
        self.bar = Progress(
            MofNCompleteColumn(),
            BarColumn(bar_width=20),
            TimeRemainingColumn(),
            TextColumn("{task.description}", markup=False),
            console=console,
            transient=True,
        )
        self._all = self.bar.add_task("combinations", total=total)

    def __enter__(self) -> "CalibrationDisplay":
        """Start the live display, on a terminal."""
        if self._is_live:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the live display."""
        if self._is_live:
            self.bar.stop()

    @property
    def _is_live(self) -> bool:
        return self.console.is_terminal and not self.quiet

    def running(self, words: str, stages: Sequence[News]) -> None:
        """Show how far a combination is: simulations done, or draws of a reference."""
        if not stages:
            return
        now, news = time.monotonic(), stages[0]
        told = self._told.setdefault(words, now)
        if words not in self._bars:
            self._bars[words] = self.bar.add_task(words, total=news.total or None)
        self.bar.update(
            self._bars[words],
            completed=news.done,
            total=news.total or None,
            description=f"{news.stage}: {words}",
        )
        if not self._is_live and now - told >= LOG_EVERY:
            self._told[words] = now
            self._print(f"{far(news)}: {words}")

    def finished(self, words: str, reason: str | None) -> None:
        """Count a combination and say how it went."""
        self.done += 1
        self.bar.update(self._all, completed=self.done)
        if words in self._bars:
            self.bar.remove_task(self._bars.pop(words))
        how = "done" if reason is None else f"failed, {reason}"
        self._print(f"[{self.done}/{self.total}] {words}: {how}", always=reason is not None)

    def _print(self, line: str, always: bool = False) -> None:
        if always or not (self.quiet or self._is_live):
            self.console.print(line, soft_wrap=True, highlight=False, markup=False)
