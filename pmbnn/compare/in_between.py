"""How uncertain each method is in a gap between training rows: ``in_between.csv``.

The standard deviation is that of the network's output, noise not included.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from pmbnn.results.lines import AlongLine, Told, along_lines
from pmbnn.results.names import posterior_row
from pmbnn.results.record import CellRecord
from pmbnn.results.store import Results
from pmbnn.results.tables import table_of

FILE = "in_between.csv"
"""File of a results folder that holds its table."""


def in_between_table(results: Results, records: Sequence[CellRecord]) -> pd.DataFrame:
    """A row for each method that says something along a line across a gap.

    Columns: ``sweep``, the settings that name the posterior, ``method``, the cell's ``name`` and
    ``status``; ``sd_in_gap``, the standard deviation of the function there, with its Monte-Carlo
    standard error (``sd_in_gap_mcse``); the smallest one on the line before and after the gap
    (``smallest_before``, ``smallest_after``), near the rows; and, over the line, against the
    ``reference`` (``published``, or else the sampler): median, smallest and largest ratio of
    standard deviations (``ratio_median``, ``ratio_smallest``, ``ratio_largest``), and the root mean
    square difference of the means in standard deviations of the reference (``mean_distance``).
    ``relative_mcse`` is the median over the line of the standard deviation's Monte-Carlo standard
    error relative to it.

    References
    ----------
    Foong, Burt, Li and Turner (2020), On the Expressiveness of Approximate Inference in Bayesian
    Neural Networks, theorem 1: in a network with one hidden layer of rectified linear units,
    mean-field's variance in between two points is at most what it is near them.
    """
    lines = along_lines(results, records)
    return table_of(_row(line, told) for line in lines for told in line.told)


def write_in_between(results: Results, records: Sequence[CellRecord]) -> None:
    """Write the table; one without rows leaves no file."""
    results.replace_table(FILE, in_between_table(results, records))


def _row(line: AlongLine, told: Told) -> dict[str, Any]:
    settings = posterior_row(line.record.settings)
    row = {"sweep": line.record.sweep, **settings, "method": told.method}
    if told.record is not None:
        row |= {"name": told.record.name, "status": told.record.status}
    before = line.position < line.gap
    row |= {
        "sd_in_gap": _in_gap(line, told.sd),
        "sd_in_gap_mcse": None if told.error is None else _in_gap(line, told.error),
        "smallest_before": float(told.sd[before].min()),
        "smallest_after": float(told.sd[~before].min()),
    }
    if told.error is not None:
        row["relative_mcse"] = float(np.median(told.error / told.sd))
    return row | _against(told, line.reference)


def _in_gap(line: AlongLine, values: np.ndarray) -> float:
    return float(np.interp(line.gap, line.position, values))


def _against(told: Told, reference: Told | None) -> dict[str, Any]:
    """What a method says over the line, against what it is held against."""
    if reference is None or told is reference:
        return {}
    ratio, apart = told.sd / reference.sd, (told.mean - reference.mean) / reference.sd
    return {
        "reference": reference.method,
        "ratio_median": float(np.median(ratio)),
        "ratio_smallest": float(ratio.min()),
        "ratio_largest": float(ratio.max()),
        "mean_distance": float(np.sqrt(np.mean(apart**2))),
    }
