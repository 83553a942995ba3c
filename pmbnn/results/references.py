"""Fitted cells and the sampled cells of the same posterior."""

from collections.abc import Iterator, Sequence

from pmbnn.inference.samplers.settings import SAMPLING
from pmbnn.results.record import CellRecord
from pmbnn.results.tables import settings_row

LADDER = "ladder.csv"
"""File of a results folder that holds its repair ladder, a row a posterior and way to fit it."""

CHAINS = "chains"
"""What tables have of sampled cells where fits have the mixture of their restarts."""

OF_POSTERIOR = ("dataset", "network", "prior", "hyperprior", "likelihood")
"""Sections of settings that name a posterior in tables."""

MIXTURE = "predict.mixture"
"""Which restarts predict: no part of the posterior that they approximate."""


def pairs(records: Sequence[CellRecord]) -> Iterator[tuple[CellRecord, CellRecord]]:
    """Every fitted cell with each sampled one of the same posterior."""
    finished = [r for r in records if r.results]
    sampled: dict[tuple, list[CellRecord]] = {}
    for record in finished:
        if is_sampled(record):
            sampled.setdefault(posterior_key(record), []).append(record)
    for record in finished:
        if not is_sampled(record) and is_of_posterior(record):
            yield from ((record, other) for other in sampled.get(posterior_key(record), ()))


def sampler_pairs(records: Sequence[CellRecord]) -> Iterator[tuple[CellRecord, CellRecord]]:
    """Every further sampled cell of a posterior with the first one: other engines, steps, seeds."""
    first: dict[tuple, CellRecord] = {}
    for record in records:
        if not record.results or not is_sampled(record):
            continue
        other = first.setdefault(posterior_key(record), record)
        if other is not record:
            yield record, other


def is_sampled(record: CellRecord) -> bool:
    """Whether a cell's draws are of the posterior itself."""
    return record.settings.get("inference", {}).get("engine") in SAMPLING


def is_of_posterior(record: CellRecord) -> bool:
    """Whether a fit is of the posterior that the model has, not of a tempered one."""
    inference = record.settings["inference"]
    return inference.get("kl_weight", 1) == 1 and inference.get("kl_scaling", "sum") == "sum"


def posterior_key(record: CellRecord) -> tuple:
    """Everything that decides the posterior and where it is looked at, as a key."""
    settings = settings_row(record.settings)
    kept = {k: v for k, v in settings.items() if not k.startswith("inference.") and k != MIXTURE}
    return record.sweep, record.fingerprint, *kept.items()
