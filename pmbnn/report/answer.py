"""The answer, with which the page begins: the best combinations on each data set."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pandas as pd

from pmbnn.compare.intervals import (
    BEST,
    LEAST_SEEDS,
    LEVEL,
    NO_INTERVAL,
    NOT_WORSE,
    SIGNIFICANTLY_WORSE,
)
from pmbnn.compare.ranking import NO_SCORE, rank_combinations
from pmbnn.compare.scores import RANKED_WORDS, ranking_score
from pmbnn.report.gallery import Grid, Thumbnail, thumbnail
from pmbnn.report.numbers import interval, plain, plain_with_error, signed
from pmbnn.report.tables import Entry, caveats_entry
from pmbnn.results.record import CellRecord
from pmbnn.results.tables import Combinations, error_note
from pmbnn.spec import Specification

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
