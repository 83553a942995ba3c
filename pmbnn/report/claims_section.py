"""Sparsity, uncertainty and scales in numbers, where a results folder has a table of them."""

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from pmbnn.compare.claims import FILE as CLAIMS_FILE
from pmbnn.compare.claims import against_words, read_claims
from pmbnn.report.numbers import WHERE_CORRECTED, plain_with_error
from pmbnn.report.tables import DataTable, Entry, Heading, caveats_entry
from pmbnn.results.loading import ExperimentResults

COLUMNS = {"claim": "of what", "data": "data", "prior": "prior", "hyperprior": "hyperprior",
           "against": "against", "measure": "measure", "unit": "unit"}  # fmt: skip
"""Columns of text, with their headings."""


def claims_data_table(folders: Sequence[ExperimentResults]) -> DataTable | None:
    """Every row of the folders' tables, with means ± standard errors over data seeds."""
    current = [folder for folder in folders if not folder.is_stale(CLAIMS_FILE)]
    tables = [read_claims(folder.results.folder / CLAIMS_FILE) for folder in current]
    tables = [table for table in tables if not table.empty]
    if not tables:
        return None
    headings = [
        *(Heading(title, choose=name != "measure") for name, title in COLUMNS.items()),
        Heading("mean", number=True, note=f"± {WHERE_CORRECTED}"),
        Heading("seeds", number=True),
        Heading(
            "of its cells", note="or pairs: not converged, and a fixed scale at an end of its grid"
        ),
        Heading("sweep", choose=True),
        Heading("experiment", choose=True),
    ]
    rows = [_claim_row(row) for row in pd.concat(tables).to_dict("records")]
    return DataTable("claims", "Comparisons in numbers", "rows", headings, rows)


def _claim_row(row: Mapping[str, object]) -> list[Entry]:
    mean, error = (_finite(row[name]) for name in ("mean", "se"))
    return [
        *(Entry(str(row[name])) for name in COLUMNS),
        Entry(plain_with_error(mean, error), mean),
        Entry(str(row["seeds"]), float(row["seeds"])),
        caveats_entry(against_words(row)),
        Entry(str(row["sweep"])),
        Entry(str(row["experiment"])),
    ]


def _finite(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
