"""Caveats of cells: fits that did not converge, choices at an end of their grid.

There may be a better scale, or learning rate, beyond one that is at an end of its candidates: a
comparison with it is then one with the grid, not with the best.
"""

from collections.abc import Iterable
from typing import NamedTuple

from pmbnn.results.record import CellRecord, LearningRateSearch, ScaleSelection

NOT_CONVERGED = ("not_converged", "undecided")
"""Statuses of fits whose ELBO still rose, and of chains that disagree."""

AT_GRID_END = "at an end of the grid"


LEAST_WEIGHT = 0.01
"""A restart with less weight in a cell's predictions does not decide what they are."""


def has_converged(record: CellRecord) -> bool:
    """Whether a cell's fit, or its chains, have converged as far as was tested.

    The status of a cell is that of its best restart; where it predicts with a mixture, the others
    count as well.
    """
    used = [restart.status for restart in record.restarts if restart.weight >= LEAST_WEIGHT]
    return not any(status in NOT_CONVERGED for status in (record.status, *used))


def scale_at_grid_end(record: CellRecord) -> bool | None:
    """Whether a tuned scale is the smallest or largest candidate; None if none was tuned."""
    return _at_end(record.selection)


def learning_rate_at_grid_end(record: CellRecord) -> bool | None:
    """Whether a searched learning rate is the lowest or highest candidate; None of a given one."""
    return _at_end(record.learning_rate_search)


def choices_at_end(record: CellRecord) -> list[str]:
    """Names of choices of a cell that are at an end of their candidates."""
    choices = {
        "scale": scale_at_grid_end(record),
        "learning rate": learning_rate_at_grid_end(record),
    }
    return [f"{what} {AT_GRID_END}" for what, at_end in choices.items() if at_end]


def _at_end(choice: ScaleSelection | LearningRateSearch | None) -> bool | None:
    if choice is None:
        return None
    if isinstance(choice, ScaleSelection):
        candidates, chosen = choice.scales, choice.scales[choice.candidate]
    else:
        candidates, chosen = choice.candidates, choice.chosen
    # One candidate, or none with a scale, is no choice.
    distinct = {candidate for candidate in candidates if candidate is not None}
    return chosen in (min(distinct), max(distinct)) if len(distinct) > 1 else None


class Counts(NamedTuple):
    """Numbers of cells.

    Attributes
    ----------
    fitted
        Those with a fit.
    not_converged
        Of these, fits whose ELBO still rose and chains that disagree.
    improper
        Of these, under a prior without a normalised density, whose ELBO has no maximum.
    scales, scales_at_end
        Of these, those whose scale was tuned, and those where it is at an end of its grid.
    rates, rates_at_end
        The same of learning rates.
    """

    fitted: int
    not_converged: int
    improper: int
    scales: int
    scales_at_end: int
    rates: int
    rates_at_end: int

    @property
    def columns(self) -> dict[str, int]:
        """Counts as columns of a table; those of choices where something was tuned."""
        at_end = {
            f"{what.replace(' ', '_')}_at_grid_end": number
            for what, (number, total) in self._choices.items()
            if total
        }
        return {"not_converged": self.not_converged} | at_end

    @property
    def words(self) -> list[str]:
        """Caveats: ``2 of 5 not converged``; empty without any."""
        return [caveat for caveats in self._caveats.values() for caveat in caveats]

    @property
    def marked_words(self) -> list[str]:
        """Caveats, each with the sign that marks it in figures."""
        marked = self._caveats.items()
        return [f"{sign} {', '.join(caveats)}" for sign, caveats in marked if caveats]

    @property
    def _caveats(self) -> dict[str, list[str]]:
        """Caveats by the sign that marks them."""
        number = self.not_converged
        at_end = [
            f"{what} {AT_GRID_END} in {number} of {total}"
            for what, (number, total) in self._choices.items()
            if number
        ]
        return {"†": [f"{number} of {self.fitted} not converged"] * bool(number), "‡": at_end}

    @property
    def _choices(self) -> dict[str, tuple[int, int]]:
        """Numbers of choices at an end of their grid, and of all, by what was chosen."""
        return {
            "scale": (self.scales_at_end, self.scales),
            "learning rate": (self.rates_at_end, self.rates),
        }


def count(records: Iterable[CellRecord]) -> Counts:
    """Counts over the cells with results."""
    fitted = [record for record in records if record.results]
    scales = [s for r in fitted if (s := scale_at_grid_end(r)) is not None]
    rates = [s for r in fitted if (s := learning_rate_at_grid_end(r)) is not None]
    return Counts(
        fitted=len(fitted),
        not_converged=sum(not has_converged(record) for record in fitted),
        improper=sum(record.status == "improper" for record in fitted),
        scales=len(scales),
        scales_at_end=sum(scales),
        rates=len(rates),
        rates_at_end=sum(rates),
    )
