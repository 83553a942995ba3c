"""Settings of predictions in an experiment file."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pmbnn.core.spec import Specification, added
from pmbnn.data.ood import AnyOod


class Map(Specification):
    """Grid over the plane of a two-dimensional data set.

    ``resolution`` points an axis, reaching ``margin`` times the range of the training rows
    beyond them on every side. ``draws`` of each restart predict there: all that there are unless
    given; with 200 of them a class probability has a Monte-Carlo standard error of 0.035 at most.
    """

    resolution: Annotated[int, Field(ge=2, le=1000)] = 100
    margin: Annotated[float, Field(ge=0, le=10)] = 0.1
    draws: Annotated[int, Field(ge=2)] | None = added(None)


class Fresh(Specification):
    """Points spread evenly over a synthetic distribution, to judge a fit closely.

    ``size`` points, predicted with ``draws`` posterior draws of each restart. Powers of two are
    spread most evenly; 8,192 tell excess errors as closely as 50,000 random ones would, and excess
    NLL four times as closely.
    """

    size: Annotated[int, Field(ge=1)] = 8_192
    draws: Annotated[int, Field(ge=1)] = 200


class Diagnostics(Specification):
    """Snapshots of a fit at chosen steps.

    After each of ``steps`` steps the guide is kept, and later judged by ``draws`` draws on the
    first ``rows`` training rows and as many held-out ones. Steps beyond the end are left out.
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

    ``draws`` of each restart are taken for predictions, and the first ``trace_draws`` of them
    kept in the trace. ``log_likelihood`` keeps the log-likelihood of every training row for
    large networks too; small ones always keep it. ``mixture`` says which restarts predict: the
    ``best``, all with equal weights (``equal``), all weighted by their evidence (``elbo``) or by
    leave-one-out scores (``stacked``; small networks only). Chains of samplers have equal weights.

    ``ood`` names out-of-distribution images to show to a classifier of images; an image is
    rejected if no class has a probability above ``confidence_threshold``.
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
