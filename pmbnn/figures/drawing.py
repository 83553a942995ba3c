"""Figures drawn into files, many of them by several processes."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from pmbnn.figures.style import save_figure
from pmbnn.processes import without_interrupts
from pmbnn.storage import TEMPORARY, Results

ENOUGH = 4
"""Figures for which a process is worth its start, which takes as long as drawing two."""


class Drawing(NamedTuple):
    """Name of a figure's file, and what draws it, which another process can be sent."""

    file: str
    draw: Callable[[], Figure]


def draw_files(results: Results, drawings: Sequence[Drawing], processes: int) -> list[Path]:
    """Paths of the files drawn, in the order given; this process and others share the work."""
    results.figures.mkdir(parents=True, exist_ok=True)
    helpers = min(processes, len(drawings) // ENOUGH) - 1
    if helpers < 1:
        return [_write(results, drawing) for drawing in drawings]
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(helpers, mp_context=context)
    try:
        with without_interrupts():
            futures = [pool.submit(_write, results, drawing) for drawing in drawings]
        pairs = list(zip(drawings, futures, strict=True))
        # Helpers begin at the start, this process at the end, until all are taken.
        for drawing, future in reversed(pairs):
            if future.cancel():
                _write(results, drawing)
        return [_path_of(results, *pair) for pair in pairs]
    finally:
        pool.shutdown(cancel_futures=True)


def _path_of(results: Results, drawing: Drawing, future: Future) -> Path:
    """Path of a file that is drawn, or drawn here if the process that had it was ended."""
    if future.cancelled():
        return results.figures / drawing.file
    try:
        return future.result()
    except BrokenProcessPool:
        return _write(results, drawing)


def _write(results: Results, drawing: Drawing) -> Path:
    """Draw and save a figure so that its name never stands for half a file."""
    # In the folder that `Results.prepare` clears of what an interrupted run leaves behind.
    part = results.folder / f"{TEMPORARY}{drawing.file}"
    save_figure(drawing.draw(), part)
    path = results.figures / drawing.file
    os.replace(part, path)
    return path
