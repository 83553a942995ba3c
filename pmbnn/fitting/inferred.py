"""A cell with something to predict with, whether it was fitted or sampled."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pmbnn.experiment.cells import Cell
from pmbnn.fitting.selection import Search, Selection
from pmbnn.inference.result import Fit
from pmbnn.inference.samplers.chains import Samples
from pmbnn.models.priors import Hyperprior
from pmbnn.prediction.draws import DrawSource
from pmbnn.prediction.posterior import source_of_draws
from pmbnn.prediction.predictive import Predictive, Weights
from pmbnn.prediction.predictor import Predictor
from pmbnn.spec.display import Summarised


@dataclass(frozen=True, repr=False)
class InferredCell(Summarised):
    """A cell with its fits, or draws of its posterior, given all training rows.

    Attributes
    ----------
    hyperprior
        That of the model: the chosen one where a scale was tuned.
    data
        Values of the model's data variables.
    fits
        Fits of the restarts, or the draws of each chain; no chains if any met what is not finite.
    best
        The restart, or chain, that stands for all where one must; None if there is none.
    weights
        Of the restarts or chains in the cell's predictions.
    selection
        How the scale was tuned, where it was.
    search
        The search for a learning rate, where there was one.
    seconds
        The cell's share of the time spent.
    samples
        The chains of a sampler, and what is to be thought of them; None of fits.
    """

    cell: Cell
    hyperprior: Hyperprior
    data: Mapping[str, np.ndarray]
    fits: tuple[Fit | DrawSource, ...]
    best: int | None
    weights: tuple[float, ...]
    selection: Selection | None
    search: Search | None
    seconds: float
    samples: Samples | None = None

    @property
    def finite(self) -> list[int]:
        """Numbers of the restarts that did not diverge, or of the chains."""
        return [i for i, fit in enumerate(self.fits) if not fit.failed]

    @property
    def mixtures(self) -> dict[str, Weights]:
        """Mixtures of what is finite that are judged, by the prefix of their results.

        As the cell predicts, and, of fits, with the draws of all restarts pooled.
        """
        as_predicted = {"": [self.weights[i] for i in self.finite]}
        return as_predicted | ({"pooled_": None} if self.samples is None else {})

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
        """What the draws are of that the cell predicts with."""
        if self.samples is not None:
            engine = self.cell.inference.engine.upper()
            return f"the posterior, by {len(self.fits)} chains of {engine}"
        used = {i: weight for i, weight in enumerate(self.weights) if weight > 0}
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

    That of its restarts, weighted as its settings say, or of all its chains; of targets as they
    were fitted.
    """
    return predictor.predict(inferred.fits, inferred.weights, inferred.data, x, draws)


def fit_of_draws(inferred: InferredCell, draws: int) -> np.ndarray:
    """The restart, or chain, that each draw of a cell's mixture is from; see `source_of_draws`."""
    fits, weights = (dict(enumerate(of)) for of in (inferred.fits, inferred.weights))
    return source_of_draws(fits, weights, inferred.best, draws)


def single_draws_of_mixture(
    inferred: InferredCell, predictor: Predictor, x: np.ndarray, draws: int
) -> dict[str, np.ndarray]:
    """What the likelihood names, at single draws of a cell's mixture, ``(draw, observation, ...)``.

    Of a single point there is one draw, as all are the same.
    """
    fits, data, chosen = inferred.fits, inferred.data, fit_of_draws(inferred, draws)
    found = {i: predictor.single_draws(fits[i], data, x, draws) for i in np.unique(chosen)}
    if len(found) == 1:
        return next(iter(found.values()))
    return {
        name: np.stack([found[i][name][k % len(found[i][name])] for k, i in enumerate(chosen)])
        for name in found[chosen[0]]
    }
