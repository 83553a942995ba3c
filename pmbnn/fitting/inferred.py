"""A fitted or sampled cell: sources of posterior draws with weights, and how they were found."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pmbnn.experiment.cells import Cell
from pmbnn.fitting.selection import Selection
from pmbnn.inference.result import Fit
from pmbnn.inference.samplers.chains import Samples
from pmbnn.models.priors import Hyperprior
from pmbnn.prediction.draws import DrawSource
from pmbnn.prediction.posterior import source_of_draws
from pmbnn.prediction.predictive import Predictive, Weights
from pmbnn.prediction.predictor import Predictor
from pmbnn.results.record import LearningRateSearch
from pmbnn.spec.display import Summarised


@dataclass(frozen=True, repr=False)
class InferredCell(Summarised):
    """A cell with the posterior given all training rows.

    Attributes
    ----------
    hyperprior
        Hyperprior of the model: the chosen one where a scale was tuned.
    data
        Values of the model's data variables.
    sources
        The guide of each restart that did not diverge, or the draws of each chain, by number; none
        if some chain diverged.
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
        rule = "lowest validation NLL" if by_nll else "highest ELBO"
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
