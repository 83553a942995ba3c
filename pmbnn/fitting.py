"""Fitting the cells of a job: choose on held-out rows, then fit all rows.

No test row is seen here. What a cell must choose (a tuned scale, the restart under an improper
prior) and the score that ranks cells come from fits on part of the training rows.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pymc as pm

from pmbnn.config import Cell
from pmbnn.datasets.rows import Dataset, Rows
from pmbnn.inference.checkpoint import Checkpoints
from pmbnn.inference.engines import ENGINES
from pmbnn.inference.fit import Fit, Member, random_streams
from pmbnn.learning_rate import Search, search_learning_rate
from pmbnn.models import build_model, model_data
from pmbnn.plan import settings_digest
from pmbnn.predictors import AnyPredictor, build_predictor
from pmbnn.priors import Fixed, Hyperprior
from pmbnn.specification import Tune
from pmbnn.watching import HeldOut, Watch

Report = Callable[[str, int, int, float, float | None], None]
"""Called with the stage, steps done, steps in all, the latest mean ELBO and, where there are rows
to judge by and a fit takes its time, the accuracy on held-out rows."""


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

    ``best`` is the best restart, None if all diverged; ``weights`` are those of the restarts in
    its predictions, ``(restart,)``; ``data`` are the values of the final model's data variables;
    ``search`` is that of the learning rate, where it was searched for; ``seconds`` is its share
    of the time spent fitting.
    """

    cell: Cell
    hyperprior: Hyperprior
    data: Mapping[str, np.ndarray]
    fits: tuple[Fit, ...]
    best: int | None
    weights: tuple[float, ...]
    choice: Choice | None
    search: Search | None
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
        self._predictor: AnyPredictor | None = None
        self._search: Search | None = None
        self._checkpoints: Path | None = None

    def predictor(self, cell: Cell, rows: Rows) -> AnyPredictor:
        """Predictions of the group's model."""
        if self._predictor is None:
            model = graph_model(cell, rows)
            self._predictor = build_predictor(model, cell.likelihood, cell.inference)
        return self._predictor

    def fit_job(
        self,
        cells: Sequence[Cell],
        datasets: Mapping[object, Dataset],
        report: Report,
        pilot: Cell | None = None,
        checkpoints: Path | None = None,
    ) -> list[FittedCell]:
        """Fit every cell.

        Parameters
        ----------
        datasets
            The loaded data by specification.
        pilot
            The group's first cell, whose data its learning rate is searched on; it is needed
            only where there is a rate to search for.
        checkpoints
            Folder for the checkpoints of this job's long fits.
        """
        start = time.monotonic()
        self._checkpoints = checkpoints
        training = [datasets[cell.dataset].training for cell in cells]
        if isinstance(cells[0].inference.learning_rate, Tune) and self._search is None:
            self._search = self._search_rate(pilot, datasets[pilot.dataset].training, report)
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
        looked_at = [_set_aside(datasets[cell.dataset]) for cell, *_ in tasks]
        found = self._fit(tasks, "fit", report, looked_at)
        fits = _in_runs(found, [c.inference.restarts for c in cells])
        seconds = (time.monotonic() - start) / len(cells)
        return [
            self._fitted(*of_cell, seconds)
            for of_cell in zip(cells, chosen, training, fits, choices, strict=True)
        ]

    def _fitted(self, cell, hyperprior, rows, fits, choice, seconds) -> FittedCell:
        best = best_restart(fits, choice)
        return FittedCell(
            cell=cell,
            hyperprior=hyperprior,
            data=model_data(hyperprior, rows, cell.likelihood),
            fits=tuple(fits),
            best=best,
            weights=restart_weights(fits, best, cell.predict.mixture),
            choice=choice,
            search=self._search,
            seconds=seconds,
        )

    def _search_rate(self, pilot: Cell, rows: Rows, report: Report) -> Search:
        """Search the group's learning rate on the rows of its first cell."""
        hyperprior = candidates(pilot.hyperprior)[0]
        data, name = model_data(hyperprior, rows, pilot.likelihood), settings_digest(pilot)

        def member(rate: float, number: int, repeat: int) -> Member:
            return Member(data, random_streams(f"{name}/search/{number}/{repeat}"), rate)

        options = pilot.inference.learning_rate.candidates
        return search_learning_rate(
            self._engine(pilot, rows),
            options,
            member,
            lambda done, steps, elbo, _: report("search", done, steps, elbo, None),
        )

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
        looked_at = [
            (held_out.x, held_out.y) if held_out.classes else None
            for size, (_, held_out) in zip(sizes, parts, strict=True)
            for _ in range(size)
        ]
        fits = _in_runs(self._fit(tasks, "choose", report, looked_at), sizes)
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
            data = model_data(hyperprior, kept, cell.likelihood)
            for restart in scored_restarts(runs):
                draws = cell.predict.draws
                scores[i, restart] = predictor.nll(runs[restart], data, held_out, draws)
            if np.isfinite(scores[i]).any():
                chosen[i] = np.nanargmin(scores[i])
        scales = [h.scale if isinstance(h, Fixed) else None for h in options]
        return Choice(np.array(scales, dtype=float), scores, chosen)

    def _engine(self, cell: Cell, rows: Rows):
        """What fits the group's cells on that many rows."""
        if len(rows) not in self._engines:
            engine = ENGINES[cell.inference.engine]
            model = graph_model(cell, rows)
            self._engines[len(rows)] = engine(model, cell.inference, len(rows), self.width)
        return self._engines[len(rows)]

    def _fit(
        self, tasks, stage: str, report: Report, held_out: Sequence[HeldOut | None]
    ) -> list[Fit]:
        if not tasks:
            return []
        cell, rows, *_ = tasks[0]
        members = [
            Member(
                model_data(hyperprior, rows, cell.likelihood),
                random_streams(f"{settings_digest(cell)}/{name}"),
                self._search.chosen if self._search else cell.inference.learning_rate,
            )
            for cell, rows, hyperprior, name in tasks
        ]
        checkpoints = None if self._checkpoints is None else Checkpoints(self._checkpoints / stage)
        looks = cell.predict.diagnostics.steps if stage == "fit" else ()
        watch = Watch(lambda: self.predictor(cell, rows), members, held_out)

        def progress(done, steps, elbo, current):
            # Of several fits at once, one would say nothing.
            accuracy = watch(done, current) if self.width == 1 else None
            report(stage, done, steps, elbo, accuracy)

        return self._engine(cell, rows).fit(members, progress, checkpoints, snapshots=looks)


def _set_aside(dataset: Dataset) -> HeldOut | None:
    """Rows that no fit on the training rows sees, if some are set aside."""
    if dataset.x_validation is None:
        return None
    return dataset.x_validation, dataset.y_validation


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


def restart_weights(fits: Sequence[Fit], best: int | None, mixture: str) -> tuple[float, ...]:
    """Weights of the restarts in a cell's predictions.

    ``best`` takes one alone; ``equal`` all alike; ``elbo`` in proportion to exp(ELBO), which is
    the optimum of a mixture whose components hardly overlap. Where the ELBO means nothing (an
    improper prior) or compares no masses (a point), ``elbo`` is ``equal``.

    References
    ----------
    Zobay (2014), Variational Bayesian inference with Gaussian-mixture approximations,
    section 2, for components without overlap.
    """
    alive = np.array([not fit.failed for fit in fits])
    if best is None or mixture == "best":
        return tuple(float(i == best) for i in range(len(fits)))
    weights = alive.astype(float)
    if mixture == "elbo" and fits[best].status != "improper" and fits[best].scale.any():
        weights[alive] = np.exp([fit.elbo - fits[best].elbo for fit in fits if not fit.failed])
    return tuple(float(w) for w in weights / weights.sum())


def graph_model(cell: Cell, rows: Rows) -> pm.Model:
    """A cell's model on one row, for its graph: the data of a fit are handed in separately."""
    hyperprior = candidates(cell.hyperprior)[0]
    return build_model(cell.network, cell.prior, hyperprior, cell.likelihood, rows.take([0]))


def _in_runs(items: Sequence, sizes: Sequence[int]) -> list[Sequence]:
    """Consecutive runs of the given sizes."""
    stops = np.cumsum(sizes)
    return [items[a:b] for a, b in zip(stops - np.asarray(sizes), stops, strict=True)]
