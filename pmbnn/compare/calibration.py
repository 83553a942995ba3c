"""Whether ways to a posterior are calibrated, quantity by quantity: ``calibration.csv``."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from pmbnn.prediction.calibration import alive, uniformity
from pmbnn.results.names import OF_POSTERIOR, settings_row
from pmbnn.results.ranks import StoredRanks
from pmbnn.results.tables import table_of

FILE = "calibration.csv"
"""File of a results folder that holds its table."""

INFERENCE = ("engine", "guide", "steps", "epochs", "kl_weight")
"""Fields of ``inference`` that are columns beside those that name the posterior."""


def calibration_table(stored: Iterable[StoredRanks]) -> pd.DataFrame:
    """A row for each combination and test quantity.

    Columns: ``sweep``, ``name``, settings; ``truths`` (``prior`` or ``posterior``),
    ``reference`` and ``effective_draws``, as `StoredRanks` has them; ``quantity``; ``simulations``
    that have ranks, and ``failed``, those whose fits diverged; ``draws``, ``restarts``;
    ``deviation``, the largest difference of the ranks' distribution function from a uniform one in
    units of the band's edge; ``verdict``: ``calibrated`` or ``miscalibrated``, with an error over
    all quantities of a combination; ``direction``, as `Uniformity` has it.
    """
    return table_of((row for ranks in stored for row in _rows(ranks)), dtype=None)


def _rows(stored: StoredRanks) -> Iterator[dict[str, Any]]:
    kept = alive(stored.ranks)
    settings = {k: v for k, v in settings_row(stored.settings).items() if _is_shown(k)}
    found = uniformity(kept, stored.draws) if len(kept) else [None] * len(stored.quantities)
    for quantity, one in zip(stored.quantities, found, strict=True):
        yield {
            "sweep": stored.sweep,
            "name": stored.name,
            **settings,
            "truths": stored.truths,
            "reference": stored.reference,
            "effective_draws": stored.effective_draws,
            "quantity": quantity,
            "simulations": len(kept),
            "failed": len(stored.ranks) - len(kept),
            "draws": stored.draws,
            "restarts": stored.restarts,
            "deviation": np.nan if one is None else one.deviation,
            "verdict": None if one is None else one.verdict,
            "direction": None if one is None else one.direction,
        }


def _is_shown(key: str) -> bool:
    section, *path = key.split(".")
    return section in OF_POSTERIOR or (section == "inference" and path[0] in INFERENCE)
