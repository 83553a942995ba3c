"""Where the time of a run went: ``times.csv``, to which every run that fits something adds."""

from collections import Counter
from datetime import UTC, datetime

from pmbnn.results.store import Results

FILE = "times.csv"
"""Table of runs: ``finished``, when (UTC); ``cells`` that it fitted and ``workers`` that it had;
``of``, ``workers`` or ``command``; the ``stage``; and the wall-clock ``seconds`` that it took,
of all workers together."""


def write_times(
    results: Results, cells: int, workers: int, of_workers: Counter[str], of_command: Counter[str]
) -> None:
    """Add a run to the table."""
    import pandas as pd

    finished = datetime.now(UTC).isoformat(timespec="seconds")
    rows = [
        {
            "finished": finished,
            "cells": cells,
            "workers": workers,
            "of": of,
            "stage": stage,
            "seconds": round(spent, 3),
        }
        for of, seconds in (("workers", of_workers), ("command", of_command))
        for stage, spent in seconds.most_common()
    ]
    path = results.folder / FILE
    before = [pd.read_csv(path)] if path.is_file() else []
    results.write_table(FILE, pd.concat([*before, pd.DataFrame(rows)], ignore_index=True))


def shares(seconds: Counter[str], least: float = 0.01) -> str:
    """Stages and their shares in words, the longest first; those below `least` are left out."""
    total = sum(seconds.values())
    named = [
        f"{stage} {spent / total:.0%}"
        for stage, spent in seconds.most_common()
        if spent >= least * total > 0
    ]
    return ", ".join(named)
