"""A folder's verdicts in files: contrasts, evidence, and what choosing by each number costs."""

from typing import NamedTuple

import pandas as pd

from pmbnn.compare.contrasts import FILE, delta_table, verdict_table
from pmbnn.compare.evidence import EVIDENCE_FILE, REGRET_FILE, evidence_table, regret_table
from pmbnn.experiment.contrasts import stored_contrasts
from pmbnn.results.loading import ExperimentResults
from pmbnn.results.store import Results

TEXT = ("contrast", "data", "metric", "posterior_verdict", "advi_verdict", "note")
"""Columns of ``compare.csv`` that are words, where nothing stands for the empty word."""


class Verdicts(NamedTuple):
    """Tables of a folder.

    Attributes
    ----------
    contrasts
        As `pmbnn.compare.contrasts.verdict_table` makes it.
    evidence, regret
        As those of `pmbnn.compare.evidence`.
    """

    contrasts: pd.DataFrame
    evidence: pd.DataFrame
    regret: pd.DataFrame


def make_verdicts(folder: ExperimentResults) -> Verdicts:
    """The verdicts of a folder's cells, computed anew.

    Raises
    ------
    ConfigError
        If its copy of the experiment file cannot be read.
    AmbiguousError
        If a contrast has several cells for one.
    """
    contrasts = stored_contrasts(folder.results.folder)
    table = verdict_table(delta_table(folder.records, contrasts), contrasts.margin)
    evidence = evidence_table(folder.records)
    return Verdicts(table, evidence, regret_table(evidence))


def write_verdicts(results: Results, verdicts: Verdicts) -> list[str]:
    """Names of the files written; a table without rows leaves none.

    Raises
    ------
    OSError
        If one cannot be written.
    """
    tables = zip((FILE, EVIDENCE_FILE, REGRET_FILE), verdicts, strict=True)
    return [file for file, table in tables if results.replace_table(file, table)]


def read_contrasts_table(results: Results) -> pd.DataFrame:
    """The table of contrasts that a folder holds, without rows where there is none."""
    path = results.folder / FILE
    if not path.is_file():
        return pd.DataFrame()
    # An empty word would be read as a missing number, and so would a sweep called `NA`.
    table = pd.read_csv(
        path, dtype=dict.fromkeys(TEXT, object), keep_default_na=False, na_values=[""]
    )
    return table.assign(**{name: table[name].fillna("") for name in TEXT})


def have_reference(folder: ExperimentResults) -> bool:
    """Whether some cells of a folder were sampled."""
    return any(record.cell.is_sampled for record in folder.records)
