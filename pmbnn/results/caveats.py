"""Caveats of cells: fits that did not converge, choices at an end of their grid.

Beyond a tuned scale, or learning rate, at an end of its candidates there may be a better one: what
it is compared with is then compared with the grid, not with the best.
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
    """Whether nothing is known against the convergence of a cell's fit, or of its chains.

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
    """Choices of a cell that are at an end of their candidates, in words."""
    found = {"scale": scale_at_grid_end(record), "learning rate": learning_rate_at_grid_end(record)}
    return [f"{what} {AT_GRID_END}" for what, at_end in found.items() if at_end]


def _at_end(choice: ScaleSelection | LearningRateSearch | None) -> bool | None:
    if choice is None:
        return None
    if isinstance(choice, ScaleSelection):
        candidates, chosen = choice.scales, choice.scales[choice.candidate]
    else:
        candidates, chosen = choice.candidates, choice.chosen
    # One candidate, or none with a scale, is no choice.
    known = {candidate for candidate in candidates if candidate is not None}
    return chosen in (min(known), max(known)) if len(known) > 1 else None


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
        """Counts as columns of a table; of what was tuned, where something was."""
        found = {"not_converged": self.not_converged}
        if self.scales:
            found["scale_at_grid_end"] = self.scales_at_end
        if self.rates:
            found["learning_rate_at_grid_end"] = self.rates_at_end
        return found

    @property
    def words(self) -> list[str]:
        """What there is to say against the cells: ``2 of 5 not converged``; empty if nothing."""
        found = []
        if self.not_converged:
            found.append(f"{self.not_converged} of {self.fitted} not converged")
        return found + self._at_end

    @property
    def marked_words(self) -> list[str]:
        """The same, each with the sign that marks it in figures."""
        signs = {"†": self.words[: bool(self.not_converged)], "‡": self._at_end}
        return [f"{sign} {', '.join(words)}" for sign, words in signs.items() if words]

    @property
    def _at_end(self) -> list[str]:
        found = []
        if self.scales_at_end:
            found.append(f"scale {AT_GRID_END} in {self.scales_at_end} of {self.scales}")
        if self.rates_at_end:
            found.append(f"learning rate {AT_GRID_END} in {self.rates_at_end} of {self.rates}")
        return found


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
