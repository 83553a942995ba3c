"""Settings of predictions in an experiment file."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pmbnn.core.spec import Specification, added
from pmbnn.data.ood import AnyOod


class Map(Specification):
    """Grid over the plane of a two-dimensional data set.

    Parameters
    ----------
    resolution
        Number of points along each axis.
    margin
        How far the grid reaches beyond the training rows on every side, in units of their range.
    draws
        Number of draws of each restart that predict there. By default, those of ``predict``; with
        200 of them a class probability has a Monte-Carlo standard error of 0.035 at most.
    """

    resolution: Annotated[int, Field(ge=2, le=1000)] = 100
    margin: Annotated[float, Field(ge=0, le=10)] = 0.1
    draws: Annotated[int, Field(ge=2)] | None = added(None)


class Fresh(Specification):
    """Points spread evenly over a synthetic distribution, to judge a fit closely.

    Parameters
    ----------
    size
        Number of points. Powers of two are spread most evenly; 8,192 tell excess errors as closely
        as 50,000 random ones would, and excess NLL four times as closely.
    draws
        Number of draws of each restart that predict there.
    """

    size: Annotated[int, Field(ge=1)] = 8_192
    draws: Annotated[int, Field(ge=1)] = 200


class Diagnostics(Specification):
    """Snapshots of a fit at chosen steps.

    Parameters
    ----------
    steps
        Numbers of gradient steps after which the guide is kept, ascending, as a list of lists.
        Steps beyond the end are left out. By default none.
    draws
        Number of draws of each snapshot that are judged.
    rows
        Number of training rows, the first ones, and of held-out rows that they are judged on.
    """

    steps: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(max_length=100)] = ()
    draws: Annotated[int, Field(ge=2)] = 20
    rows: Annotated[int, Field(ge=1)] = 2_000

    @model_validator(mode="after")
    def _ascending(self):
        if list(self.steps) != sorted(set(self.steps)):
            raise ValueError(f"must have ascending `steps`, got {list(self.steps)}")
        return self


class Predict(Specification):
    """Predictions of a cell, and the draws that are kept.

    Parameters
    ----------
    draws
        Number of draws of each restart that predict.
    trace_draws
        Number of these draws, the first ones, that are kept in the trace.
    log_likelihood
        Keep the log-likelihood of every training row, for large networks too; small ones always
        keep it.
    mixture
        Restarts that predict: the one of highest ELBO (``best``); or all, with equal weights
        (``equal``), with weights proportional to exp(ELBO) (``elbo``; Zobay, 2014), or by stacking
        of leave-one-out scores (``stacked``; small networks only; Yao et al., 2022). Chains of
        samplers have equal weights.
    map
        Grid of a map, for data sets with two inputs. By default 100 × 100 points.
    fresh
        Fresh points at which excess error and excess NLL are measured, for ``moons`` and
        ``circles``. By default 8,192.
    diagnostics
        Snapshots of a fit at chosen steps. By default none.
    ood
        Out-of-distribution images to show to a classifier of digits, as a list of lists of names
        or mappings. By default none.
    confidence_threshold
        A digit is rejected if no class has a probability above this.
    """

    draws: Annotated[int, Field(ge=2)] = 1000
    trace_draws: Annotated[int, Field(ge=2)] = 100
    log_likelihood: bool = False
    mixture: Literal["best", "equal", "elbo", "stacked"] = "best"
    map: Map = Map()
    fresh: Fresh = Fresh()
    diagnostics: Diagnostics = Diagnostics()
    ood: tuple[AnyOod, ...] = ()
    confidence_threshold: Annotated[float, Field(gt=0, le=1)] = 0.2

    @property
    def map_draws(self) -> int:
        """Draws of each restart that predict on maps."""
        return self.map.draws or self.draws

    @model_validator(mode="after")
    def _distinct_names(self):
        names = [spec.name for spec in self.ood]
        if len(set(names)) < len(names):
            raise ValueError(f"must not repeat a kind in `ood`, got {', '.join(names)}")
        return self
