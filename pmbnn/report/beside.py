"""Published numbers beside ours: which cells hold ours, and by how much they differ."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pmbnn.experiment.published import Published, are_meant
from pmbnn.report.cells import CellView
from pmbnn.results.groups import best_group
from pmbnn.results.names import settings_row
from pmbnn.results.tables import by_data_seed, mean_and_error, overlap_of

SCALES: Mapping[str, float] = {"%": 100.0, "points": 100.0, "min": 1 / 60}
"""What numbers of metrics.json, in shares and seconds, are multiplied by for a unit."""


class Comparison(NamedTuple):
    """A published number and ours.

    Attributes
    ----------
    published
        The number.
    ours
        Mean over ``cells``, in the unit of the published number; None if there is none.
    error
        Its standard error over seeds, corrected where these split the same rows; not a number where
        there is one seed or no spread.
    difference
        Ours less published, or less the nearer end of a range; None where either is no number.
    cells
        Those that hold ours.
    """

    published: Published
    ours: float | str | None
    error: float
    difference: float | None
    cells: tuple[CellView, ...]


def beside(published: Sequence[Published], cells: Sequence[CellView]) -> list[Comparison]:
    """Every published number beside ours, in their order."""
    by_name = {number.id: number for number in published if number.id}
    return [_beside(number, by_name, cells) for number in published]


def _beside(
    number: Published, by_name: Mapping[str, Published], cells: Sequence[CellView]
) -> Comparison:
    ours, error, found = _ours(number, cells)
    if number.over is not None and isinstance(ours, float):
        below = _ours(by_name[number.over], cells)[0]
        is_number = isinstance(below, float) and below != 0
        ours, error = (ours / below if is_number else None), math.nan
    return Comparison(number, ours, error, _difference(ours, number.value), found)


def _ours(
    number: Published, cells: Sequence[CellView]
) -> tuple[float | str | None, float, tuple[CellView, ...]]:
    """Ours of a number: mean, standard error, and the cells it is of."""
    if number.path is None:
        return None, math.nan, ()
    held = [cell for cell in cells if _is_meant(cell, number)]
    if number.choose == "best":
        chosen = {r.name for r in best_group([cell.record for cell in held])}
        held = [cell for cell in held if cell.record.name in chosen]
    found = [(cell, value_at(cell.content, number.path)) for cell in held]
    found = [(cell, value) for cell, value in found if value is not None]
    meant = tuple(cell for cell, _ in found)
    values = [value for _, value in found]
    if not values:
        return None, math.nan, ()
    if not all(isinstance(value, int | float) for value in values):
        return str(values[0]), math.nan, meant
    # A spread of rounding errors is none.
    ours = by_data_seed((cell.record, _in_unit(value, number)) for cell, value in found)
    mean, error = mean_and_error(ours, overlap_of(cell.record for cell in meant))
    return mean, error if error > 1e-12 * abs(mean) else math.nan, meant


def _is_meant(cell: CellView, number: Published) -> bool:
    """Whether a cell is of the experiment and has the settings that a number names."""
    if number.experiment not in (None, cell.experiment):
        return False
    row = settings_row(cell.record.settings) | {"sweep": cell.record.sweep}
    return are_meant(number.where, row)


def value_at(record: Any, path: str) -> Any:
    """What lies at a path of names and places in lists; None if there is no such place."""
    for part in path.split("/"):
        try:
            record = record[int(part)] if isinstance(record, list | tuple) else record[part]
        except (KeyError, IndexError, ValueError, TypeError):
            return None
    return record


def _in_unit(value: float, number: Published) -> float:
    value = 1 - value if number.error else value
    return value**number.power * number.factor * SCALES.get(number.unit, 1.0)


def _difference(ours: float | str | None, value: Any) -> float | None:
    """By how much ours is above a value, or outside a range."""
    if not isinstance(ours, float) or isinstance(value, str):
        return None
    low, high = value if isinstance(value, tuple) else (value, value)
    return ours - min(max(ours, low), high)
