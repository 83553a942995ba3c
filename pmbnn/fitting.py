"""Fitting the cells of a job: choose on held-out rows, then fit all rows.

No test row is seen here. What a cell must choose (a tuned scale, the restart under an improper
prior) and the score that ranks cells come from fits on part of the training rows.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pymc as pm

from pmbnn.config import Cell
from pmbnn.datasets.base import Dataset, Rows
from pmbnn.inference.engines import ENGINES
from pmbnn.inference.fit import Fit, Member, random_streams
from pmbnn.metrics import nll
from pmbnn.models import build_model, model_data
from pmbnn.plan import settings_digest
from pmbnn.prediction import Predictor
from pmbnn.priors import Fixed, Hyperprior

Report = Callable[[str, int, int, float], None]
"""Called with the stage, steps done, steps in all and the latest mean ELBO."""


@dataclass(frozen=True)
class Choice:
    """Scores of the choosing fits of one cell.

    Attributes
    ----------
    scales
        Candidate scales, ``(candidate,)``; not a number where there is nothing to tune.
    nll
        Negative log-probability of the held-out rows, in nats an observation,
        ``(candidate, restart)``; not a number where a fit diverged.
    restart
        The restart that stands for each candidate, ``(candidate,)``: that of highest ELBO, or
        of lowest score where the ELBO means nothing.
    """

    scales: np.ndarray
    nll: np.ndarray
    restart: np.ndarray

    @property
    def scores(self) -> np.ndarray:
        """One score a candidate, infinite where every fit diverged, ``(candidate,)``."""
        chosen = np.take_along_axis(self.nll, self.restart[:, None], axis=1)[:, 0]
        return np.where(np.isfinite(chosen), chosen, np.inf)

    @property
    def candidate(self) -> int:
        """The candidate with the lowest score."""
        return int(self.scores.argmin())


@dataclass(frozen=True)
class FittedCell:
    """A cell with its fits on all training rows.

    ``best`` is the restart it predicts with, None if all diverged; ``data`` are the values of
    the final model's data variables; ``seconds`` is its share of the time spent fitting.
    """

    cell: Cell
    hyperprior: Hyperprior
    data: Mapping[str, np.ndarray]
    fits: tuple[Fit, ...]
    best: int | None
    choice: Choice | None
    seconds: float


def candidates(hyperprior: Hyperprior) -> tuple[Hyperprior, ...]:
    """The hyperpriors a cell chooses from: one for each candidate of a tuned scale."""
    if isinstance(hyperprior, Fixed) and hyperprior.scale is not None:
        return tuple(Fixed(scale=scale) for scale in hyperprior.candidates)
    return (hyperprior,)


class GroupFitter:
    """Everything compiled for one group of cells; jobs of the group share it."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._engines: dict[int, object] = {}
        self._predictor: Predictor | None = None

    def predictor(self, cell: Cell, rows: Rows) -> Predictor:
        """Predictions of the group's model."""
        if self._predictor is None:
            self._predictor = Predictor(graph_model(cell, rows))
        return self._predictor

    def fit_job(
        self, cells: Sequence[Cell], datasets: Mapping[object, Dataset], report: Report
    ) -> list[FittedCell]:
        """Fit every cell; `datasets` holds the loaded data by specification."""
        start = time.monotonic()
        training = [datasets[cell.dataset].training for cell in cells]
        choices = self._choose(cells, training, report)
        chosen = [
            candidates(cell.hyperprior)[choice.candidate if choice else 0]
            for cell, choice in zip(cells, choices, strict=True)
        ]
        tasks = [
            (cell, rows, hyperprior, f"fit/{restart}")
            for cell, rows, hyperprior in zip(cells, training, chosen, strict=True)
            for restart in range(cell.inference.restarts)
        ]
        fits = _in_runs(self._fit(tasks, "fit", report), [c.inference.restarts for c in cells])
        seconds = (time.monotonic() - start) / len(cells)
        return [
            FittedCell(
                cell,
                hyperprior,
                model_data(hyperprior, rows),
                tuple(of_cell),
                best_restart(of_cell, choice),
                choice,
                seconds,
            )
            for cell, hyperprior, rows, of_cell, choice in zip(
                cells, chosen, training, fits, choices, strict=True
            )
        ]

    def _choose(self, cells, training, report: Report) -> list[Choice | None]:
        """Scores of every candidate of every cell on held-out training rows."""
        share = cells[0].inference.validation
        if share == 0:
            return [None] * len(cells)
        parts = [
            rows.split(share, random_seed=cell.inference.seed)
            for cell, rows in zip(cells, training, strict=True)
        ]
        tasks = [
            (cell, kept, hyperprior, f"choose/{i}/{restart}")
            for cell, (kept, _) in zip(cells, parts, strict=True)
            for i, hyperprior in enumerate(candidates(cell.hyperprior))
            for restart in range(cell.inference.restarts)
        ]
        sizes = [len(candidates(c.hyperprior)) * c.inference.restarts for c in cells]
        fits = _in_runs(self._fit(tasks, "choose", report), sizes)
        return [
            self._score(cell, of_cell, *part)
            for cell, of_cell, part in zip(cells, fits, parts, strict=True)
        ]

    def _score(self, cell: Cell, fits: Sequence[Fit], kept: Rows, held_out: Rows) -> Choice:
        options, restarts = candidates(cell.hyperprior), cell.inference.restarts
        predictor = self.predictor(cell, kept)
        scores = np.full((len(options), restarts), np.nan)
        chosen = np.zeros(len(options), dtype=int)
        for i, (hyperprior, runs) in enumerate(
            zip(options, _in_runs(fits, [restarts] * len(options)), strict=True)
        ):
            data = model_data(hyperprior, kept)
            for restart in scored_restarts(runs):
                moments = predictor.moments(runs[restart], data, held_out.x, cell.predict.draws)
                scores[i, restart] = nll(np.asarray(moments.mean, np.float64), held_out.y)
            if np.isfinite(scores[i]).any():
                chosen[i] = np.nanargmin(scores[i])
        scales = [h.scale if isinstance(h, Fixed) else None for h in options]
        return Choice(np.array(scales, dtype=float), scores, chosen)

    def _fit(self, tasks, stage: str, report: Report) -> list[Fit]:
        if not tasks:
            return []
        cell, rows, *_ = tasks[0]
        if len(rows) not in self._engines:
            engine = ENGINES[cell.inference.engine]
            model = graph_model(cell, rows)
            self._engines[len(rows)] = engine(model, cell.inference, len(rows), self.width)
        members = [
            Member(model_data(h, r), random_streams(f"{settings_digest(c)}/{name}"))
            for c, r, h, name in tasks
        ]
        return self._engines[len(rows)].fit(members, lambda *news: report(stage, *news))


def scored_restarts(fits: Sequence[Fit]) -> list[int]:
    """Which restarts of a candidate are scored: that of highest ELBO, or all if improper."""
    alive = [i for i, fit in enumerate(fits) if not fit.failed]
    if not alive or fits[alive[0]].status == "improper":
        return alive
    return [max(alive, key=lambda i: fits[i].elbo)]


def best_restart(fits: Sequence[Fit], choice: Choice | None) -> int | None:
    """The restart a cell predicts with: highest final ELBO, or lowest score if improper."""
    alive = [i for i, fit in enumerate(fits) if not fit.failed]
    if not alive:
        return None
    if fits[alive[0]].status == "improper" and choice is not None:
        scores = np.nan_to_num(choice.nll[choice.candidate], nan=np.inf)
        return min(alive, key=lambda i: scores[i])
    return max(alive, key=lambda i: fits[i].elbo)


def graph_model(cell: Cell, rows: Rows) -> pm.Model:
    """A cell's model on one row, for its graph: the data of a fit are handed in separately."""
    hyperprior = candidates(cell.hyperprior)[0]
    return build_model(cell.network, cell.prior, hyperprior, cell.likelihood, rows.take([0]))


def _in_runs(items: Sequence, sizes: Sequence[int]) -> list[Sequence]:
    """Consecutive runs of the given sizes."""
    stops = np.cumsum(sizes)
    return [items[a:b] for a, b in zip(stops - np.asarray(sizes), stops, strict=True)]
