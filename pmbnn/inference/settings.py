"""How to fit, as an experiment file says it."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pmbnn.specification import Specification

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]

DEFAULT_STEPS = 10_000


class Inference(Specification):
    """Settings of a fit.

    Parameters
    ----------
    engine
        ``compiled``, this project's own; or ``pymc``, the same through ``pm.fit``.
    guide
        Family of the approximation.
    steps, epochs
        Length of the fit: gradient steps (10,000 unless said), or passes over the rows.
    batch
        Rows a step; all of them unless said.
    learning_rate
        Adam's step size at its highest.
    schedule
        ``constant``; ``one_cycle``, up to the learning rate over the first tenth and down to
        zero on a cosine; ``cosine``, down from the start.
    restarts
        Independent fits of a cell.
    seed
        Decides initial values, noise and minibatches.
    initial_mean
        Where the guide's means start, in unconstrained space: at ``zero``, at standard normal
        draws times 0.1 (``random``), or matrices at normal draws with variance 1 / fan-in and
        everything else at zero (``fan_in``).
    initial_scale
        Where every standard deviation of the guide starts.
    improper_scale_cap
        Upper limit of the guide's standard deviations under an improper prior, where the ELBO
        has no maximum. Proper models are not touched.
    validation
        Share of the training rows held out when a cell chooses its scale and is scored for
        the choice of the best cell; 0 leaves both out.
    """

    engine: Literal["compiled", "pymc"] = "compiled"
    guide: Literal["mean_field"] = "mean_field"
    steps: Count | None = None
    epochs: Positive | None = None
    batch: Count | None = None
    learning_rate: Positive = 0.02
    schedule: Literal["constant", "one_cycle", "cosine"] = "one_cycle"
    restarts: Annotated[int, Field(ge=1, le=1000)] = 1
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    initial_mean: Literal["zero", "random", "fan_in"] = "fan_in"
    initial_scale: Positive = 0.05
    improper_scale_cap: Positive = 10.0
    validation: Annotated[float, Field(ge=0, le=0.5)] = 0.2

    @model_validator(mode="after")
    def _consistent(self):
        if self.steps is not None and self.epochs is not None:
            raise ValueError("must set `steps` or `epochs`, not both")
        if self.engine == "pymc" and self.batch is not None:
            raise ValueError("must leave out `batch` with engine `pymc`, which fits full batch")
        return self

    def total_steps(self, rows: int) -> int:
        """Gradient steps of a fit on that many rows."""
        if self.epochs is None:
            return self.steps or DEFAULT_STEPS
        return max(1, round(self.epochs * rows / min(self.batch or rows, rows)))
