"""The first section on sampled cells: whether a prior matters, and whether ADVI is faithful."""

from collections.abc import Sequence
from typing import NamedTuple

from pmbnn.compare.contrasts import COLUMN, read_contrasts_table, sentence
from pmbnn.compare.contrasts import FILE as CONTRASTS_FILE
from pmbnn.report.numbers import interval, signed
from pmbnn.report.tables import Entry
from pmbnn.results.loading import ExperimentResults

CONTRAST_BADGES = {
    "better": "converged",
    "equivalent": "converged",
    "worse": "failed",
    "faithful": "converged",
    "distorts": "failed",
    "reverses": "failed",
    "undecided": "not_converged",
}
"""Colours of the verdicts."""


class ContrastRow(NamedTuple):
    """A contrast on a data set, in words; differences are in thousandths of a nat.

    ``note`` says why there is no verdict, or why it may be wrong.
    """

    contrast: str
    data: str
    differences: list[str]
    posterior: Entry
    advi: Entry
    sentence: str
    note: str


class VerdictView(NamedTuple):
    """The verdicts of one experiment.

    Attributes
    ----------
    experiment
        Its name.
    lead
        How many contrasts were decided, and whether they were named beforehand.
    rows
        Every contrast and data set.
    """

    experiment: str
    lead: str
    rows: list[ContrastRow]


def verdict_views(folders: Sequence[ExperimentResults]) -> list[VerdictView]:
    """Verdicts of the folders that hold some of sampled cells."""
    return [view for folder in folders if (view := _view(folder)) is not None]


def _view(folder: ExperimentResults) -> VerdictView | None:
    if folder.is_stale(CONTRASTS_FILE):
        return None
    table = read_contrasts_table(folder.results)
    if table.empty or table["reference"].isna().all():
        return None
    rows = table[table["reference"].notna()].to_dict("records")
    return VerdictView(folder.name, _contrasts_lead(rows), [_contrast_row(row) for row in rows])


def _contrasts_lead(rows: Sequence[dict]) -> str:
    """Counts of both verdicts, the margin, and the level of the intervals."""
    exploratory = "exploratory: the experiment file names none"
    origin = exploratory if rows[0]["exploratory"] else "named beforehand"
    decided = sum(row["posterior_verdict"] != "undecided" for row in rows)
    faithful = sum(row["advi_verdict"] == "faithful" for row in rows)
    wrong = sum(row["advi_verdict"] in ("distorts", "reverses") for row in rows)
    return (
        f"Of {len(rows)} contrasts ({origin}) the posterior decides {decided} against a "
        f"margin of {1000 * rows[0]['margin']:g} thousandths of a nat; ADVI is faithful in "
        f"{faithful} and distorts or reverses {wrong}. All intervals hold at once, with "
        "probability 95 %."
    )


def _contrast_row(row: dict) -> ContrastRow:
    return ContrastRow(
        contrast=row["contrast"],
        data=f"{row['data']} ({row['seeds']} data seeds)",
        differences=[_interval(row, name) for name in COLUMN],
        posterior=_entry(row["posterior_verdict"]),
        advi=_entry(row["advi_verdict"]),
        sentence=sentence(row),
        note=row["note"],
    )


def _entry(verdict: str) -> Entry:
    return Entry(verdict, badge=CONTRAST_BADGES[verdict]) if verdict else Entry("")


def _interval(row: dict, name: str) -> str:
    mean, low, high = (1000 * row[name + end] for end in ("", "_low", "_high"))
    ends = interval(low, high)
    return f"{signed(mean, 2)} ({ends})" if ends else signed(mean, 2)
