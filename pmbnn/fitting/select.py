"""Choices of a fit: a learning rate by short fits, scale and restart by held-out rows or evidence.

No test row is seen here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pmbnn.data.arrays import Rows
from pmbnn.experiment.cells import Cell
from pmbnn.inference.advi import Program
from pmbnn.inference.guides import Guide
from pmbnn.inference.result import Fit, Replica
from pmbnn.models.build import model_data
from pmbnn.models.hyperpriors import Hyperprior
from pmbnn.models.matching import matched
from pmbnn.prediction.draws import GuideDraws
from pmbnn.prediction.leave_one_out import stacking_weights
from pmbnn.prediction.predictor import Predictor
from pmbnn.results.record import LearningRateSearch

SHORT_FIT = 0.1
"""Length of the short fits of a learning rate, in lengths of a whole one."""


REPEATS = 3
"""Short fits of each candidate, as far as they fill one program."""


def search_learning_rate(
    program: Program,
    fit: Callable[..., list[Fit]],
    candidates: tuple[float, ...],
    replica: Callable[[float, int, int], Replica],
) -> LearningRateSearch:
    """Short fits at every candidate, as further replicas of the group's program.

    Parameters
    ----------
    replica
        The replica to fit at a rate, as the given repeat of the given candidate.

    Returns
    -------
    LearningRateSearch
        A candidate one of whose fits diverged has the ELBO −∞. The candidate of highest ELBO is
        chosen, the lowest rate if every one diverged.
    """
    repeats = max(1, min(REPEATS, program.width // len(candidates)))
    replicas = [
        replica(rate, number, repeat)
        for number, rate in enumerate(candidates)
        for repeat in range(repeats)
    ]
    fits = fit(program, replicas, steps=max(1, round(SHORT_FIT * program.steps)))
    elbo = np.array([-np.inf if one.failed else one.elbo for one in fits])
    elbo = elbo.reshape(len(candidates), repeats).mean(axis=1).tolist()
    chosen = float(candidates[int(np.argmax(elbo))])
    return LearningRateSearch(candidates=candidates, elbo=elbo, chosen=chosen)


@dataclass(frozen=True)
class Selection:
    """Scores of the candidate scales of one cell, by held-out training rows or by the evidence.

    Attributes
    ----------
    scales
        Candidate scales, ``(candidate,)``; not a number where there is nothing to tune.
    nll
        Negative log-probability of the held-out rows, in nats an observation,
        ``(candidate, restart)``; not a number where a fit diverged. None by the evidence.
    restart
        The restart that stands for each candidate, ``(candidate,)``: that of highest ELBO, or
        of lowest score where the ELBO means nothing.
    evidence
        Log evidence of all training rows, in nats, ``(candidate, restart)``; not a number where a
        fit diverged. None by held-out rows.
    """

    scales: np.ndarray
    nll: np.ndarray | None
    restart: np.ndarray
    evidence: np.ndarray | None = None

    @property
    def scores(self) -> np.ndarray:
        """NLL, or minus log evidence, of each candidate, ``(candidate,)``.

        It is infinite where every fit diverged.
        """
        scores = -self.evidence if self.nll is None else self.nll
        chosen = np.take_along_axis(scores, self.restart[:, None], axis=1)[:, 0]
        return np.where(np.isfinite(chosen), chosen, np.inf)

    @property
    def candidate(self) -> int:
        """The candidate with the lowest score."""
        return int(self.scores.argmin())


def select_scale(
    cell: Cell,
    fits: Sequence[Fit],
    guide: Guide,
    candidates: Sequence[Hyperprior],
    kept: Rows,
    held_out: Rows,
    predictor: Predictor,
) -> Selection:
    """Scores of a cell's candidate scales on rows that their fits did not see.

    Parameters
    ----------
    candidates
        What the cell chooses from; see `candidates_of`.
    fits, guide
        Fits to the rows `kept`, the restarts of one candidate after the other; their guide.
    """
    restarts = cell.inference.restarts
    nll = np.full((len(candidates), restarts), np.nan)
    chosen = np.zeros(len(candidates), dtype=int)
    for i, hyperprior in enumerate(candidates):
        candidate_fits = fits[i * restarts : (i + 1) * restarts]
        data = model_data(hyperprior, kept, cell.likelihood, cell.prior)
        for restart in scored_restarts(candidate_fits):
            source = GuideDraws.from_fit(guide, candidate_fits[restart])
            nll[i, restart] = predictor.nll(source, data, held_out, cell.predict.draws)
        if np.isfinite(nll[i]).any():
            chosen[i] = np.nanargmin(nll[i])
    return Selection(candidate_scales(candidates), nll, chosen)


def select_by_evidence(
    cell: Cell, fits: Sequence[Fit], candidates: Sequence[Hyperprior]
) -> Selection:
    """The log evidence of a cell's candidate scales, by Laplace approximations on all rows.

    Parameters
    ----------
    fits
        The restarts of one candidate after the other.
    candidates
        What the cell chooses from; see `candidates_of`.

    References
    ----------
    MacKay (1992), A Practical Bayesian Framework for Backpropagation Networks.
    """
    evidence = np.array([np.nan if one.failed else one.elbo for one in fits])
    evidence = evidence.reshape(len(candidates), cell.inference.restarts)
    restart = np.where(np.isnan(evidence), -np.inf, evidence).argmax(axis=1)
    return Selection(candidate_scales(candidates), None, restart, evidence)


def candidates_of(cell: Cell, rows: Rows) -> tuple[Hyperprior, ...]:
    """What a cell chooses from, with numbers in the place of scales that are to be matched.

    Parameters
    ----------
    rows
        All training rows, whose inputs decide matched scales.
    """
    candidates = cell.hyperprior.candidates
    return tuple(matched(h, cell.prior, cell.network, rows) for h in candidates)


def candidate_scales(candidates: Sequence[Hyperprior]) -> np.ndarray:
    """Common scales of candidates, ``(candidate,)``; not a number without one."""
    scales = [getattr(hyperprior, "scale", None) for hyperprior in candidates]
    return np.array([s if isinstance(s, int | float) else None for s in scales], dtype=float)


def scored_restarts(fits: Sequence[Fit]) -> list[int]:
    """Which restarts of a candidate are scored: that of highest ELBO, or all if improper."""
    finite = [i for i, fit in enumerate(fits) if not fit.failed]
    if not finite or fits[finite[0]].status == "improper":
        return finite
    return [max(finite, key=lambda i: fits[i].elbo)]


def best_restart(fits: Sequence[Fit], selection: Selection | None) -> int | None:
    """The restart a cell predicts with: highest final ELBO, or lowest score if improper."""
    finite = [i for i, fit in enumerate(fits) if not fit.failed]
    if not finite:
        return None
    if fits[finite[0]].status == "improper" and selection is not None:
        scores = np.nan_to_num(selection.nll[selection.candidate], nan=np.inf)
        return min(finite, key=lambda i: scores[i])
    return max(finite, key=lambda i: fits[i].elbo)


def restart_weights(
    fits: Sequence[Fit],
    best: int | None,
    mixture: str,
    log_likelihood: Callable[[Fit], np.ndarray] | None = None,
) -> tuple[float, ...]:
    """Weights of the restarts in a cell's predictions.

    ``best`` takes one restart; ``equal`` all with equal weights; ``elbo`` weights in proportion to
    exp(ELBO), the optimum of a mixture whose components hardly overlap; ``stacked`` weights of
    highest leave-one-out log score on the training rows. Where the ELBO means nothing (an improper
    prior) or compares no masses (a point), ``elbo`` is ``equal``.

    Parameters
    ----------
    log_likelihood
        Log-likelihood of the training rows at a fit's draws, ``(draw, observation)``, nats; needed
        for ``stacked``.

    References
    ----------
    Zobay (2014), Variational Bayesian inference with Gaussian-mixture approximations,
    section 2, for components without overlap.
    """
    finite = np.array([not fit.failed for fit in fits])
    if best is None or mixture == "best":
        return tuple(float(i == best) for i in range(len(fits)))
    weights = finite.astype(float)
    if mixture == "elbo" and fits[best].status != "improper" and fits[best].scale.any():
        weights[finite] = np.exp([fit.elbo - fits[best].elbo for fit in fits if not fit.failed])
    if mixture == "stacked":
        weights[finite] = stacking_weights([log_likelihood(f) for f in fits if not f.failed])
    return tuple(float(w) for w in weights / weights.sum())
