"""Verdicts on stored ranks, quantity by quantity: ``calibration.csv``, and its summary."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from pmbnn.calibration.ranks import rank_ecdfs, valid_ranks
from pmbnn.calibration.store import StoredRanks
from pmbnn.results.names import OF_POSTERIOR, settings_row
from pmbnn.results.tables import table_of

FILE = "calibration.csv"
"""File of a results folder that holds the table."""

INFERENCE = [f"inference.{name}" for name in ("engine", "guide", "steps", "epochs", "kl_weight")]
"""Settings of inference that are columns, whether or not they tell combinations apart."""

SUMMARY = {
    "data": ("dataset.kind", "dataset.seed"),
    "network": (),
    "prior": (
        *("prior.kind", "prior.dist", "prior.per"),
        *("prior.nu", "prior.slab_scale", "prior.lengthscale"),
    ),
    "hyperprior": ("hyperprior.kind", "hyperprior.scale", "hyperprior.on"),
    "likelihood": (),
    "inference": ("inference.engine", "inference.guide"),
    "truths": ("truths",),
}
"""Headings of the summary that name a combination, with the columns that they are made of.

Further settings that tell combinations apart are added; a heading of none is left out.
"""

KINDS = {"data": "dataset.kind", "inference": "inference.engine"}
"""Columns with the kind of a section's settings, where it is not the heading's ``kind``."""

COUNTS = ("simulations", "failed", "miscalibrated")
"""Headings of the summary that count."""


def calibration_table(stored: Iterable[StoredRanks]) -> pd.DataFrame:
    """A row for each combination and test quantity.

    Columns: ``sweep``, ``name``, settings of the posterior, and of inference those of `INFERENCE`
    and what differs between combinations; ``truths`` (``prior`` or ``posterior``),
    ``reference`` and ``effective_draws``, as `StoredRanks` has them; ``quantity``; ``simulations``
    that have ranks, and ``failed``, those whose fits diverged; ``draws``, ``restarts``;
    ``deviation``, the largest difference of the ranks' distribution function from a uniform one in
    units of the band's edge; ``verdict``: ``calibrated`` or ``miscalibrated``, with an error over
    all quantities of a combination; ``direction``, as `RankEcdf` has it.
    """
    table = table_of((row for ranks in stored for row in _rows(ranks)), dtype=None)
    differing = _differing(table, "inference.engine")
    further = [n for n in table if n.startswith("inference.") and n not in INFERENCE]
    return table.drop(columns=[name for name in further if name not in differing])


def _rows(stored: StoredRanks) -> Iterator[dict[str, Any]]:
    valid = valid_ranks(stored.ranks)
    settings = {
        name: value
        for name, value in settings_row(stored.cell).items()
        if name.split(".")[0] in (*OF_POSTERIOR, "inference")
    }
    ecdfs = rank_ecdfs(valid, stored.draws) if len(valid) else [None] * len(stored.quantities)
    for quantity, ecdf in zip(stored.quantities, ecdfs, strict=True):
        yield {
            "sweep": stored.cell.sweep,
            "name": stored.name,
            **settings,
            "truths": stored.truths,
            "reference": stored.reference,
            "effective_draws": stored.effective_draws,
            "quantity": quantity,
            "simulations": len(valid),
            "failed": len(stored.ranks) - len(valid),
            "draws": stored.draws,
            "restarts": stored.restarts,
            "deviation": np.nan if ecdf is None else ecdf.deviation,
            "verdict": None if ecdf is None else ecdf.verdict,
            "direction": None if ecdf is None else ecdf.direction,
        }


def summary(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Headings, and a row for each combination: how many quantities leave their bands."""
    further = {
        heading: [name for name in _differing(table, kind) if name not in columns]
        for heading, columns in SUMMARY.items()
        if (kind := KINDS.get(heading, f"{heading}.kind")) in table
    }
    headings = {h: columns for h, columns in SUMMARY.items() if columns or further.get(h)}
    entries = []
    for rows in _combinations(table):
        first, wrong = rows.iloc[0], (rows["verdict"] == "miscalibrated").sum()
        names = [_joined(first, columns, further.get(h, ())) for h, columns in headings.items()]
        counts = [str(first["simulations"]), str(first["failed"]), f"{wrong} of {len(rows)}"]
        entries.append([*names, *counts, _furthest(rows)])
    return [*headings, *COUNTS, "furthest off"], entries


def _differing(table: pd.DataFrame, kind: str) -> list[str]:
    """Columns of a section that differ between combinations of one kind, and the kinds if several.

    Parameters
    ----------
    kind
        Column with the kind of the section's settings.
    """
    if table.empty:
        return []
    own = table[[name for name in table if name.startswith(f"{kind.split('.')[0]}.")]]
    number = own.groupby(kind, dropna=False).nunique(dropna=False).max()
    return [name for name in own if (own[kind].nunique() if name == kind else number[name]) > 1]


def notes(table: pd.DataFrame) -> list[str]:
    """Warnings about the truths that verdicts rest on, a line each."""
    lines = []
    for rows in _combinations(table):
        first = rows.iloc[0]
        if first["effective_draws"] < first["simulations"]:
            lines.append(
                f"{first['name']}: truths are worth {first['effective_draws']:.0f} independent "
                "ones, so that draws of the exact posterior would be found miscalibrated too often"
            )
        if first["reference"].endswith("undecided"):
            lines.append(f"{first['name']}: chains that truths are from disagree")
    return lines


def _combinations(table: pd.DataFrame) -> list[pd.DataFrame]:
    return [] if table.empty else [rows for _, rows in table.groupby("name", sort=False)]


def _furthest(rows: pd.DataFrame) -> str:
    """The quantity whose ranks are furthest from uniform, and how."""
    if rows["deviation"].isna().all():
        return "every fit diverged"
    worst = rows.loc[rows["deviation"].idxmax()]
    how = worst["direction"] or "within its band"
    return f"{worst['quantity']}: {worst['deviation']:.1f} × band, {how}"


def _joined(row: pd.Series, columns: Iterable[str], further: Iterable[str]) -> str:
    """Values of some columns, as far as the row has them, and further ones with their names."""
    texts = _texts(row, columns)
    words = [(", seed " if "dataset.seed" in texts else " ").join(texts.values())]
    words += [
        text if name.endswith(".kind") else f"{name.split('.', 1)[1].replace('_', ' ')} {text}"
        for name, text in _texts(row, further).items()
    ]
    return ", ".join(filter(None, words))


def _texts(row: pd.Series, columns: Iterable[str]) -> dict[str, str]:
    """Values of those columns that a row has, as text."""
    values = {name: row[name] for name in columns if name in row.index and pd.notna(row[name])}
    return {n: f"{v:.12g}" if isinstance(v, float) else str(v) for n, v in values.items()}
