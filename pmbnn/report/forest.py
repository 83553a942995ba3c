"""Forest plots: differences with their intervals, a row each, on one axis.

Places are percentages of the width: a plot fills wide and narrow screens alike, and its text is
that of the page.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.ticker import MaxNLocator

from pmbnn.core.numbers import NEGLIGIBLE, number_text
from pmbnn.report.tables import Entry

REACH = 2.5
"""Where the axis ends, in lengths of the longest interval that must be seen whole."""

FAR = 10
"""A clear difference that is this many times as large may lie beyond the axis."""

ROOM = 0.05
"""Share of the axis that is free at both ends."""


class Difference(NamedTuple):
    """A difference and both ends of its interval, not a number where there is none."""

    value: float
    low: float = math.nan
    high: float = math.nan

    @property
    def ends(self) -> list[float]:
        """What is to be seen of it."""
        return [value for value in self if math.isfinite(value)]

    @property
    def is_clear(self) -> bool:
        """Whether its interval leaves out zero."""
        return self.low > 0 or self.high < 0


class Mark(NamedTuple):
    """A difference in percent of the axis.

    ``low`` and ``high`` are None without an interval. ``beyond`` is ``left`` or ``right`` where the
    difference lies off that end of the axis. ``kind`` is the class of its colour.
    """

    kind: str
    at: float
    low: float | None = None
    high: float | None = None
    beyond: str = ""


class Axis(NamedTuple):
    """The axis of all rows: both ends and the margin, in the unit of the differences."""

    start: float
    stop: float
    margin: float | None = None

    def place(self, value: float) -> float:
        """Place of a value in percent; that of an end if it lies beyond."""
        share = (value - self.start) / (self.stop - self.start)
        return round(100 * min(max(share, 0.0), 1.0), 2)

    @property
    def zero(self) -> float:
        """Place of no difference."""
        return self.place(0.0)

    @property
    def band(self) -> tuple[float, float] | None:
        """Start and width of the margin."""
        if self.margin is None:
            return None
        start = self.place(-self.margin)
        return start, round(self.place(self.margin) - start, 2)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Places of round numbers, and their text."""
        values = MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(self.start, self.stop)
        rounding = NEGLIGIBLE * (self.stop - self.start)  # differences may be in very small units
        return [
            (self.place(value), number_text(float(value), signed=True, rounding=rounding))
            for value in values
            if self.start < value < self.stop
        ]

    def mark(self, difference: Difference, kind: str) -> Mark:
        """Place of a difference and its interval."""
        value, low, high = difference
        beyond = "left" if value < self.start else "right" if value > self.stop else ""
        if not math.isfinite(low):
            return Mark(kind, self.place(value), beyond=beyond)
        return Mark(kind, self.place(value), self.place(low), self.place(high), beyond)


def axis_of(differences: Sequence[Difference], margin: float | None = None) -> Axis:
    """Axis on which every interval that includes zero is seen whole.

    Clear differences that are much larger would leave the others no room: they lie beyond it.
    """
    band = [-margin, margin] if margin else []
    sizes = {
        is_clear: [max(map(abs, d.ends)) for d in differences if d.ends and d.is_clear == is_clear]
        for is_clear in (True, False)
    }
    near, clear = max(sizes[False], default=0.0), min(sizes[True], default=0.0)
    shown = max(near, clear) if clear < FAR * near or near == 0 else near
    reach = REACH * max([shown, *band])
    every = [0.0, *band, *(end for difference in differences for end in difference.ends)]
    start, stop = max(min(every), -reach), min(max(every), reach)
    room = ROOM * (stop - start) or 1.0
    return Axis(start - room, stop + room, margin)


class Line(NamedTuple):
    """A difference in a row of a forest plot.

    Attributes
    ----------
    text
        The difference in words.
    verdict
        The verdict on it.
    difference
        What is drawn; None where it is not known.
    kind
        Class of its colour.
    label
        What the difference is of, where a row has several.
    """

    text: str
    verdict: Entry
    difference: Difference | None
    kind: str
    label: str = ""


class ForestRow(NamedTuple):
    """What is compared, its differences from top to bottom, and caveats of its fits.

    ``note`` says on which data, where rows are of several.
    """

    name: str
    lines: Sequence[Line]
    note: str = ""
    caveats: str = ""


class ForestPlot(NamedTuple):
    """Rows of a forest plot, and the margin of practical equivalence if there is one."""

    rows: Sequence[ForestRow]
    margin: float | None = None

    @property
    def axis(self) -> Axis:
        """Axis of all rows."""
        lines = (line for row in self.rows for line in row.lines)
        return axis_of([line.difference for line in lines if line.difference], self.margin)

    @property
    def has_caveats(self) -> bool:
        """Whether fits of some row did not converge, or chose an end of a grid."""
        return any(row.caveats for row in self.rows)
