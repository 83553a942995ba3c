"""Fitting the cells of a job: select on held-out rows, then fit all rows.

No test row is seen here. What a cell must choose (a tuned scale, the restart under an improper
prior) and the score that ranks cells come from fits on part of the training rows. Where none are
held out, every candidate is fitted to all rows, and that of highest evidence is taken.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pmbnn.core.display import Summarised
from pmbnn.core.spec import Tune
from pmbnn.core.stages import staged
from pmbnn.data.arrays import Dataset, Rows
from pmbnn.experiment.cells import Cell
from pmbnn.experiment.plan import settings_digest
from pmbnn.fitting.programs import GroupPrograms
from pmbnn.fitting.select import (
    Selection,
    best_restart,
    candidates_of,
    restart_weights,
    search_learning_rate,
    select_by_evidence,
    select_scale,
)
from pmbnn.inference.engines import engine_of
from pmbnn.inference.groups import Checkpoints
from pmbnn.inference.guides import Guide
from pmbnn.inference.optimum import with_distance
from pmbnn.inference.result import Fit, Replica, derive_keys
from pmbnn.inference.samplers.chains import Samples
from pmbnn.models.build import model_data
from pmbnn.models.hyperpriors import Hyperprior
from pmbnn.models.matching import ScaleMatch, match_of
from pmbnn.prediction.class_probabilities import Predictive, Weights
from pmbnn.prediction.draws import DrawSource, GuideDraws
from pmbnn.prediction.posterior import source_of_draws
from pmbnn.prediction.predictor import Predictor
from pmbnn.results.record import LearningRateSearch

# A fitted or sampled cell: sources of posterior draws with weights, and how they were found


@dataclass(frozen=True, repr=False)
class InferredCell(Summarised):
    """A cell with the posterior given all training rows.

    Attributes
    ----------
    hyperprior
        Hyperprior of the model: the chosen one where a scale was tuned, with the numbers of one
        that was matched.
    data
        Values of the model's data variables.
    sources
        The guide of each restart that did not diverge, or the draws of each chain, by number; none
        if too many chains broke.
    weights
        Weight of each source in the cell's predictions, by number.
    best
        Number of the source that is taken where only one can be; None if there is none.
    seconds
        The cell's share of the time spent.
    fits
        Fits of all restarts; none of a sampler.
    selection
        How the scale was tuned, where it was.
    search
        The search for a learning rate, where there was one.
    samples
        The chains of a sampler, with their verdict; None of fits.
    match
        How scales were matched to a Gaussian process, where they were.
    """

    cell: Cell
    hyperprior: Hyperprior
    data: Mapping[str, np.ndarray]
    sources: Mapping[int, DrawSource]
    weights: Mapping[int, float]
    best: int | None
    seconds: float
    fits: tuple[Fit, ...] = ()
    selection: Selection | None = None
    search: LearningRateSearch | None = None
    samples: Samples | None = None
    match: ScaleMatch | None = None

    @property
    def mixtures(self) -> dict[str, Weights]:
        """Weights of the sources in each mixture that is evaluated, by the prefix of its results.

        Those of the cell's predictions, and, of fits, equal ones.
        """
        weighted, count = {"": [*self.weights.values()]}, len(self.sources)
        return weighted if self.samples else weighted | {"pooled_": [1 / count] * count}

    @property
    def status(self) -> str:
        """Verdict on the best restart, on the first where all diverged, or on the chains."""
        return self._judged.status

    @property
    def reason(self) -> str:
        """A few words on the verdict."""
        return self._judged.reason

    @property
    def _judged(self) -> Fit | Samples:
        return self.samples or self.fits[self.best or 0]

    @property
    def draws_of(self) -> str:
        """Description of the distribution that the cell predicts with."""
        if self.samples is not None:
            engine = self.cell.inference.engine.upper()
            return f"the posterior, by {len(self.sources)} chains of {engine}"
        used = {i: weight for i, weight in self.weights.items() if weight > 0}
        if len(used) > 1:
            parts = ", ".join(f"{i} ({weight:.3g})" for i, weight in used.items())
            return f"the mixture of the guides of restarts (with weights) {parts}"
        best, count = self.best, len(self.fits)
        if count == 1:
            return f"the guide of restart {best}, the only one"
        by_nll = self.fits[best].status == "improper" and self.selection is not None
        rule = "lowest validation NLL" if by_nll else f"highest {self.cell.inference.objective}"
        return f"the guide of restart {best}, {rule} of {count}"


def predict_mixture(
    inferred: InferredCell, predictor: Predictor, x: np.ndarray, draws: int
) -> Predictive:
    """Prediction of a cell at standardised inputs ``(observation, feature)``.

    The mixture of its restarts, weighted by its settings, or of all its chains; for targets in the
    units that were fitted.
    """
    sources, weights = [*inferred.sources.values()], [*inferred.weights.values()]
    return predictor.predict(sources, weights, inferred.data, x, draws)


def single_draws_of_mixture(
    inferred: InferredCell, predictor: Predictor, x: np.ndarray, draws: int
) -> dict[str, np.ndarray]:
    """Parameters of the likelihood at single draws of a cell, ``(draw, observation, ...)``.

    A single point has one draw, as all are the same.
    """
    numbers = source_of_draws(inferred.sources, inferred.weights, inferred.best, draws)
    by_source = {
        i: predictor.single_draws(inferred.sources[i], inferred.data, x, draws)
        for i in np.unique(numbers)
    }
    if len(by_source) == 1:
        return next(iter(by_source.values()))
    return {
        name: np.stack(
            [by_source[i][name][k % len(by_source[i][name])] for k, i in enumerate(numbers)]
        )
        for name in by_source[numbers[0]]
    }


# Accuracy on rows that no fit sees, while fits are running


EVERY = 10.0
"""Seconds between two validations, at least."""

SHARE = 0.03
"""Of the time, that validation may take."""

ROWS, DRAWS = 2_048, 5
"""Rows predicted, and draws of the parameters."""

HeldOut = tuple[np.ndarray, np.ndarray]
"""Standardised inputs and targets that a fit does not see."""


class ValidationCallback:
    """Accuracy of the fits of one call on held-out rows now and then; no fit depends on it.

    Parameters
    ----------
    guide
        The guide of the fits.
    predictor
        Returns the predictor of the group; called at the first validation.
    replicas
        The replicas that are fitted, one after the other.
    held_out
        The rows for each replica; None where there are none.
    """

    def __init__(
        self,
        guide: Guide,
        predictor: Callable[[], Predictor],
        replicas: Sequence[Replica],
        held_out: Sequence[HeldOut | None],
    ) -> None:
        self._guide, self._predictor = guide, predictor
        self._replicas = list(zip(replicas, held_out, strict=True))
        self._done, self._accuracy = 0, None
        self._next = time.monotonic() + EVERY

    def __call__(self, done: int, current: Callable[[], Fit]) -> float | None:
        """The latest accuracy of the fit that has done so many steps; None while not known."""
        if done < self._done:  # the next fit
            self._accuracy = None
        self._done = done
        if time.monotonic() >= self._next:
            self._accuracy, spent = self._timed(current())
            self._next = time.monotonic() + max(EVERY, spent / SHARE)
        return self._accuracy

    def _timed(self, fit: Fit) -> tuple[float | None, float]:
        """The accuracy, and the seconds of its prediction."""
        replica, held_out = self._replicas[fit.replica]
        if held_out is None or fit.failed:
            return None, 0.0
        predictor, source = self._predictor(), GuideDraws.from_fit(self._guide, fit)
        x, target = (array[:ROWS] for array in held_out)
        start = time.monotonic()
        correct = predictor.predict([source], [1.0], replica.data, x, DRAWS).n_correct(target)
        accuracy = None if correct is None else correct / len(target)
        return accuracy, time.monotonic() - start


# The fits of a job


def fit_job(
    cells: Sequence[Cell],
    datasets: Mapping[object, Dataset],
    programs: GroupPrograms,
    search_cell: Cell | None = None,
    checkpoints: Path | None = None,
) -> list[InferredCell]:
    """Fit every cell.

    Parameters
    ----------
    datasets
        The loaded data by specification.
    search_cell
        The group's first cell: a learning rate is searched for on its data. Needed only for that.
    checkpoints
        Folder for the checkpoints of this job's long fits.
    """
    start = time.monotonic()
    training = [datasets[cell.dataset].training for cell in cells]
    most = len(training[0]) if cells[0].inference.validation > 0 else None
    search = None
    if isinstance(cells[0].inference.learning_rate, Tune):
        rows = datasets[search_cell.dataset].training
        search = programs.search(lambda: _search(search_cell, rows, programs, most))
    context = FitContext(programs, search, checkpoints, most)
    selections: Sequence[Selection | None] = [None] * len(cells)
    if most is not None:
        selections = _select(cells, training, context)
    candidates = [candidates_of(cell, rows) for cell, rows in zip(cells, training, strict=True)]
    if most is not None:
        candidates = [
            (those[selection.candidate],)
            for those, selection in zip(candidates, selections, strict=True)
        ]
    named = [
        {
            f"fit/{restart}" if i == 0 else f"fit/{i}/{restart}": hyperprior
            for i, hyperprior in enumerate(those)
            for restart in range(cell.inference.restarts)
        }
        for cell, those in zip(cells, candidates, strict=True)
    ]
    held_out = [_validation_rows(datasets[cell.dataset]) for cell in cells]
    snapshots = cells[0].predict.diagnostics.steps
    fits = _fit(cells, training, named, held_out, "fit", context, snapshots)
    seconds = (time.monotonic() - start) / len(cells)
    columns = zip(cells, training, candidates, fits, selections, strict=True)
    return [
        _fitted(cell, rows, *_chosen(cell, *choice), context, seconds)
        for cell, rows, *choice in columns
    ]


@dataclass(frozen=True)
class FitContext:
    """Programs, learning rate and checkpoints that all fits of a job share.

    ``most`` is the number of training rows, where some fits leave part of them out.
    """

    programs: GroupPrograms
    search: LearningRateSearch | None
    checkpoints: Path | None
    most: int | None


def _chosen(
    cell: Cell,
    candidates: Sequence[Hyperprior],
    fits: Sequence[Fit],
    selection: Selection | None,
) -> tuple[Hyperprior, Sequence[Fit], Selection | None]:
    """A cell's hyperprior with its fits, and how it was chosen; several have an evidence each."""
    if len(candidates) == 1:
        return candidates[0], fits, selection
    selection = select_by_evidence(cell, fits, candidates)
    first = selection.candidate * cell.inference.restarts
    return candidates[selection.candidate], fits[first : first + cell.inference.restarts], selection


def _fitted(cell, rows, hyperprior, fits, selection, context, seconds) -> InferredCell:
    best = best_restart(fits, selection)
    data = model_data(hyperprior, rows, cell.likelihood, cell.prior)
    program = context.programs.program(cell, rows, context.most)
    guide = program.guide
    if cell.inference.check_optimum and best is not None and not program.flat.points:
        density = context.programs.density(cell, rows)
        compared = with_distance(fits[best], guide, density, data, len(rows))
        fits = [*fits[:best], compared, *fits[best + 1 :]]
    sources = {i: GuideDraws.from_fit(guide, one) for i, one in enumerate(fits) if not one.failed}

    def log_likelihood(fit: Fit) -> np.ndarray:
        predictor = context.programs.predictor(cell, rows)
        source = GuideDraws.from_fit(guide, fit)
        return predictor.row_log_likelihood(source, data, cell.predict.draws)

    mixture = cell.predict.mixture
    if cell.is_dropout and mixture == "elbo":
        mixture = "equal"  # its objective compares no masses
    weights = restart_weights(fits, best, mixture, log_likelihood)
    return InferredCell(
        cell=cell,
        hyperprior=hyperprior,
        data=data,
        sources=sources,
        weights={i: weights[i] for i in sources},
        best=best,
        seconds=seconds,
        fits=tuple(fits),
        selection=selection,
        search=context.search,
        match=match_of(cell.hyperprior, cell.prior, cell.network, rows),
    )


@staged("search")
def _search(
    cell: Cell, rows: Rows, programs: GroupPrograms, most: int | None
) -> LearningRateSearch:
    """Search the group's learning rate on the rows of its first cell."""
    data = model_data(candidates_of(cell, rows)[0], rows, cell.likelihood, cell.prior)
    name = settings_digest(cell)

    def replica(rate: float, number: int, repeat: int) -> Replica:
        return Replica(data, derive_keys(f"{name}/search/{number}/{repeat}"), rate)

    return search_learning_rate(
        programs.program(cell, rows, most),
        engine_of(cell.inference).fit,
        cell.inference.learning_rate.candidates,
        replica,
    )


@staged("choose")
def _select(
    cells: Sequence[Cell], training: Sequence[Rows], context: FitContext
) -> list[Selection]:
    """Scores of every candidate of every cell on held-out training rows."""
    share = cells[0].inference.validation
    parts = [
        rows.split(share, random_seed=cell.inference.seed)
        for cell, rows in zip(cells, training, strict=True)
    ]
    candidates = [candidates_of(cell, rows) for cell, rows in zip(cells, training, strict=True)]
    named = [
        {
            f"choose/{i}/{restart}": hyperprior
            for i, hyperprior in enumerate(hyperpriors)
            for restart in range(cell.inference.restarts)
        }
        for cell, hyperpriors in zip(cells, candidates, strict=True)
    ]
    training = [kept for kept, _ in parts]
    predictor = context.programs.predictor(cells[0], training[0])
    guide = context.programs.program(cells[0], training[0], context.most).guide
    held_out = [(rows.x, rows.y) for _, rows in parts]
    fits = _fit(cells, training, named, held_out, "choose", context)
    return [
        select_scale(cell, cell_fits, guide, hyperpriors, *part, predictor)
        for cell, cell_fits, hyperpriors, part in zip(cells, fits, candidates, parts, strict=True)
    ]


def _validation_rows(dataset: Dataset) -> HeldOut | None:
    x, target = dataset.x_validation, dataset.y_validation
    return None if x is None else (x, target)


def _fit(
    cells: Sequence[Cell],
    training: Sequence[Rows],
    named: Sequence[Mapping[str, Hyperprior]],
    held_out: Sequence[HeldOut | None],
    stage: str,
    context: FitContext,
    snapshots: tuple[int, ...] = (),
) -> list[list[Fit]]:
    """Fits of each cell, all in one program.

    Parameters
    ----------
    training
        Rows of each cell that are fitted.
    named
        Hyperpriors of each cell's fits by their names; random numbers derive from cell and name.
    held_out
        Rows of each cell that no fit sees.
    """
    replicas = [
        Replica(
            model_data(hyperprior, rows, cell.likelihood, cell.prior),
            derive_keys(f"{settings_digest(cell)}/{name}"),
            context.search.chosen if context.search else cell.inference.learning_rate,
        )
        for cell, rows, hyperpriors in zip(cells, training, named, strict=True)
        for name, hyperprior in hyperpriors.items()
    ]
    cell, rows = cells[0], training[0]
    program = context.programs.program(cell, rows, context.most)
    callback = ValidationCallback(
        program.guide,
        lambda: context.programs.predictor(cell, rows),
        replicas,
        [rows for rows, names in zip(held_out, named, strict=True) for _ in names],
    )

    def progress(done, steps, elbo, current):
        # Of several fits at once, one would say nothing.
        accuracy = callback(done, current) if context.programs.width == 1 else None
        return "" if accuracy is None else f"validation accuracy {accuracy:.4f}"

    checkpoints = None if context.checkpoints is None else Checkpoints(context.checkpoints / stage)
    fit = engine_of(cell.inference).fit
    fits = iter(fit(program, replicas, progress, checkpoints, snapshots=snapshots))
    return [[next(fits) for _ in names] for names in named]
