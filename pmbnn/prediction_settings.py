"""What to predict from a fitted network, as an experiment file says it."""

from typing import Annotated, Literal

from pydantic import Field

from pmbnn.specification import Specification


class Map(Specification):
    """Grid over the plane of a two-dimensional data set.

    ``resolution`` points an axis, reaching ``margin`` times the range of the training rows
    beyond them on every side.
    """

    resolution: Annotated[int, Field(ge=2, le=1000)] = 100
    margin: Annotated[float, Field(ge=0, le=10)] = 0.1


class Fresh(Specification):
    """Points drawn anew from a synthetic distribution, to judge a fit closely.

    ``size`` points, predicted with ``draws`` posterior draws of each restart.
    """

    size: Annotated[int, Field(ge=1)] = 50_000
    draws: Annotated[int, Field(ge=1)] = 200


class Predict(Specification):
    """What is predicted and kept of a cell.

    ``draws`` of each restart are taken for predictions, and the first ``trace_draws`` of them
    kept in the trace. ``log_likelihood`` keeps the log-likelihood of every training row for
    large networks too; small ones always keep it. ``mixture`` says which restarts predict: the
    ``best``, all alike (``equal``), or all weighted by their evidence (``elbo``).
    """

    draws: Annotated[int, Field(ge=2)] = 1000
    trace_draws: Annotated[int, Field(ge=2)] = 100
    log_likelihood: bool = False
    mixture: Literal["best", "equal", "elbo"] = "best"
    map: Map = Map()
    fresh: Fresh = Fresh()
