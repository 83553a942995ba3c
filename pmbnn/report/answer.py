"""The answer, with which the page begins: the best combinations on each data set."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from pmbnn.compare.claims import FILE as CLAIMS_FILE
from pmbnn.compare.claims import against_words, read_claims
from pmbnn.compare.contrasts import COLUMN, read_contrasts_table, sentence
from pmbnn.compare.contrasts import FILE as CONTRASTS_FILE
from pmbnn.compare.intervals import (
    BEST,
    LEAST_SEEDS,
    LEVEL,
    NO_INTERVAL,
    NOT_WORSE,
    SIGNIFICANTLY_WORSE,
)
from pmbnn.compare.scores import NO_SCORE, RANKED_WORDS, rank_combinations, ranking_score
from pmbnn.core.spec import Specification
from pmbnn.report.details import Grid, Thumbnail, thumbnail
from pmbnn.report.numbers import WHERE_CORRECTED, interval, plain, plain_with_error, signed
from pmbnn.report.tables import DataTable, Entry, Heading, caveats_entry
from pmbnn.results.loading import ExperimentResults
from pmbnn.results.record import CellRecord
from pmbnn.results.tables import Combinations, error_note

MOST_LEADERS = 4
"""Combinations whose maps stand beside the ranking."""

BADGES = {
    BEST: "converged",
    NOT_WORSE: "mark-elsewhere",
    SIGNIFICANTLY_WORSE: "plain",
    NO_INTERVAL: "not_converged",
    NO_SCORE: "failed",
}
"""Colours of the verdicts."""

NOT_RANKED = (
    "Not ranked: no score of these cells is of data that nothing was chosen by. Test rows are not "
    "used for it; hold out training rows (inference.validation) or draw fresh points."
)


class Ranked(NamedTuple):
    """A combination in words: its score, its paired difference to the best, the verdict.

    ``caveats`` says how many of its cells did not converge, or chose an end of a grid.
    """

    combination: str
    score: str
    difference: str
    interval: str
    verdict: Entry
    caveats: Entry


class Answer(NamedTuple):
    """The ranking of one data set, in words.

    Attributes
    ----------
    title
        Experiment, sweep and data.
    lead
        The answer in a few sentences.
    score
        Name of the score by which combinations are ranked.
    rows
        Every combination, the best first.
    leaders
        Cells of the first combinations, one data seed.
    leaders_seed
        That data seed, in words, where there are several.
    conditions
        Conditions of the answer.
    """

    title: str
    lead: list[str]
    score: str
    rows: list[Ranked]
    leaders: list[tuple[str, Thumbnail]]
    leaders_seed: str
    conditions: str


def answer_of(grid: Grid) -> Answer:
    """The ranking of a grid's combinations, in words."""
    table = rank_combinations(grid.combinations)
    name = ranking_score(grid.sheet.records)
    conditions = _conditions(grid.sheet.records, name, table)
    seed = f"data seed {grid.seeds[0]}" if len(grid.seeds) > 1 else ""
    if name is None:
        return Answer(grid.title, [NOT_RANKED], "", [], [], seed, conditions)
    score = RANKED_WORDS[name]
    lead = _lead(table, score, grid.combinations)
    rows = [_ranked(row, grid.combinations) for row in table.to_dict("records")]
    return Answer(grid.title, lead, score, rows, _leaders(grid, table), seed, conditions)


def _lead(table: pd.DataFrame, score: str, combinations: Combinations) -> list[str]:
    """Which is best, by how much, and how certain that is."""
    first, others = table.iloc[0], table.iloc[1:]
    if first["verdict"] != BEST:
        return ["No combination has a score."]
    score_text = plain_with_error(first["mean"], first["se"], 3)
    note = error_note(f"{first['seeds']} data seeds", combinations.overlap)
    note = "one data seed" if first["seeds"] == 1 else note
    lead = [f"Lowest {score}: {_name(first)}, {score_text} nats ({note})."]
    if caveats := combinations.caveats(first["row"], first["column"]).words:
        lead.append(f"Of its cells: {', '.join(caveats)}.")
    if others.empty:
        return [*lead, "It is the only combination: there is none to compare it with."]
    groups = dict(tuple(others.groupby("verdict")))
    if NOT_WORSE in groups:
        lead.append(f"Not significantly worse: {_names(groups[NOT_WORSE])}.")
    if SIGNIFICANTLY_WORSE in groups:
        worse = groups[SIGNIFICANTLY_WORSE]
        low, high = plain(worse["difference"].min(), 2), plain(worse["difference"].max(), 2)
        by = f"by {low}" if low == high else f"by {low} to {high}"
        lead.append(f"Significantly worse, {by} nats: {_names(worse)}.")
    if NO_INTERVAL in groups:
        unknown = groups[NO_INTERVAL]
        few = (unknown["shared"] < LEAST_SEEDS).all()
        reason = f" with fewer than {LEAST_SEEDS} data seeds" if few else ""
        lead.append(f"No interval{reason}: {_names(unknown)}.")
    if NO_SCORE in groups:
        lead.append(f"No score: {_names(groups[NO_SCORE])}.")
    return lead


def _name(row: Mapping[str, Any]) -> str:
    return f"{row['prior']} × {row['hyperprior']}"


def _names(rows: pd.DataFrame) -> str:
    return ", ".join(_name(row) for row in rows.to_dict("records"))


def _ranked(row: Mapping[str, Any], combinations: Combinations) -> Ranked:
    verdict = str(row["verdict"])
    few_seeds = verdict == NO_INTERVAL and row["shared"] < LEAST_SEEDS
    reason = f"fewer than {LEAST_SEEDS} data seeds: " if few_seeds else ""
    return Ranked(
        _name(row),
        plain_with_error(row["mean"], row["se"], 3),
        plain_with_error(signed(row["difference"]), row["difference_se"]),
        interval(row["low"], row["high"]),
        Entry(reason + verdict, badge=BADGES[verdict]),
        caveats_entry(combinations.caveats(row["row"], row["column"]).words),
    )


def _leaders(grid: Grid, table: pd.DataFrame) -> list[tuple[str, Thumbnail]]:
    """Thumbnails of the first combinations with the first data seed."""
    highest = grid.highest_sd
    shown = table[table["verdict"].isin([BEST, NOT_WORSE, NO_INTERVAL])].head(MOST_LEADERS)
    return [
        (_name(row), thumbnail(cell, highest))
        for row in shown.to_dict("records")
        for cell in grid.at((row["row"], row["column"]), grid.seeds[0])[:1]
    ]


def _conditions(records: Iterable[CellRecord], name: str | None, table: pd.DataFrame) -> str:
    """Conditions of a ranking: the approximation, the repetitions, the score, the intervals."""
    cells = [record.cell for record in records]
    inferences = [cell.inference for cell in cells]
    guides = _values(inferences, "guide")
    conditions = [f"guide {guides.replace('_', ' ')}"] if guides else []
    for key in ("steps", "epochs", "restarts"):
        value = _values(inferences, key)
        conditions += [f"{key} {value}"] if value else []
    conditions += [f"data seeds {_values([cell.dataset for cell in cells], 'seed')}"]
    if name == "excess_nll":
        sizes = sorted({cell.predict.fresh.size for cell in cells})
        conditions += [f"{', '.join(f'{size:,}' for size in sizes)} fresh points"]
    if name == "validation_nll":
        conditions += ["fits on the training rows that are left"]
    if table["low"].notna().any():
        conditions += [
            f"{100 * LEVEL:g} % intervals of paired differences over data seeds, which hold at "
            "once for all pairs of combinations"
        ]
    return "Conditions of this ranking: " + "; ".join(conditions) + "."


def _values(specs: Iterable[Specification], name: str) -> str:
    """All values of a setting in words; empty where it is not set."""
    values = dict.fromkeys(getattr(spec, name, None) for spec in specs)
    return ", ".join(str(value) for value in values if value is not None)


# Sparsity, uncertainty and scales in numbers, where a results folder has a table of them


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


# The first section on sampled cells: whether a prior matters, and whether ADVI is faithful


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
