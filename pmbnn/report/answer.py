"""What the page leads with: the best combinations on each data set, and how certain that is."""

import math
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
from pmbnn.report.numbers import plain, signed
from pmbnn.report.tables import Entry, against_entry
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

    ``against`` says how many of its cells did not converge, or chose an end of a grid.
    """

    combination: str
    score: str
    difference: str
    interval: str
    verdict: Entry
    against: Entry


class Answer(NamedTuple):
    """The ranking of one data set, in words.

    Attributes
    ----------
    title
        Experiment, sweep and data.
    lead
        The answer in a few sentences.
    score
        What is ranked by.
    rows
        Every combination, the best first.
    leaders
        Cells of the first combinations, one data seed.
    leaders_words
        Which data seed that is.
    conditions
        Conditions of the answer.
    """

    title: str
    lead: list[str]
    score: str
    rows: list[Ranked]
    leaders: list[tuple[str, Thumbnail]]
    leaders_words: str
    conditions: str


def answer_of(grid: Grid) -> Answer:
    """The ranking of a grid's combinations, in words."""
    table = rank_combinations(grid.combinations)
    name = ranking_score(grid.sheet.records)
    score = RANKED_WORDS[name] if name else ""
    return Answer(
        title=grid.title,
        lead=_lead(table, score, grid.combinations) if name else [NOT_RANKED],
        score=score,
        rows=[_ranked(row, grid.combinations) for row in table.to_dict("records")] if name else [],
        leaders=_leaders(grid, table) if name else [],
        leaders_words=f"data seed {grid.seeds[0]}" if len(grid.seeds) > 1 else "",
        conditions=_conditions(grid.sheet.records, name, table),
    )


def _lead(table: pd.DataFrame, score: str, combinations: Combinations) -> list[str]:
    """Which is best, by how much, and how certain that is."""
    first, others = table.iloc[0], table.iloc[1:]
    if first["verdict"] != BEST:
        return ["No combination has a score."]
    words = f"Lowest {score}: {_name(first)}, {_with_error(first['mean'], first['se'])} nats"
    found = [f"{words} ({_seeds(first['seeds'], combinations.overlap)})."]
    if against := combinations.caveats(first["row"], first["column"]).words:
        found.append(f"Of its cells: {', '.join(against)}.")
    if others.empty:
        return [*found, "It is the only combination: there is none to compare it with."]
    groups = dict(tuple(others.groupby("verdict")))
    if NOT_WORSE in groups:
        found.append(f"Not significantly worse: {_names(groups[NOT_WORSE])}.")
    if SIGNIFICANTLY_WORSE in groups:
        worse = groups[SIGNIFICANTLY_WORSE]
        low, high = (plain(worse["difference"].agg(end), 2) for end in ("min", "max"))
        by = f"by {low}" if low == high else f"by {low} to {high}"
        found.append(f"Significantly worse, {by} nats: {_names(worse)}.")
    if NO_INTERVAL in groups:
        unknown = groups[NO_INTERVAL]
        few = (unknown["shared"] < LEAST_SEEDS).all()
        reason = f" with fewer than {LEAST_SEEDS} data seeds" if few else ""
        found.append(f"No interval{reason}: {_names(unknown)}.")
    if NO_SCORE in groups:
        found.append(f"No score: {_names(groups[NO_SCORE])}.")
    return found


def _name(row: Mapping[str, Any]) -> str:
    return f"{row['prior']} × {row['hyperprior']}"


def _names(rows: pd.DataFrame) -> str:
    return ", ".join(_name(row) for row in rows.to_dict("records"))


def _seeds(number: int, overlap: float) -> str:
    return "one data seed" if number == 1 else error_note(f"{number} data seeds", overlap)


def _with_error(mean: float, error: float) -> str:
    return f"{plain(mean, 3)} ± {plain(error, 2)}" if math.isfinite(error) else plain(mean, 3)


def _ranked(row: Mapping[str, Any], combinations: Combinations) -> Ranked:
    verdict = str(row["verdict"])
    words = verdict
    if verdict == NO_INTERVAL and row["shared"] < LEAST_SEEDS:
        words = f"fewer than {LEAST_SEEDS} data seeds: {verdict}"
    difference = signed(row["difference"])
    if difference and math.isfinite(row["difference_se"]):
        difference += f" ± {plain(row['difference_se'], 2)}"
    interval = ""
    if math.isfinite(row["low"]):
        interval = f"{signed(row['low'], 2)} to {signed(row['high'], 2)}"
    return Ranked(
        _name(row),
        _with_error(row["mean"], row["se"]),
        difference,
        interval,
        Entry(words, badge=BADGES[verdict]),
        against_entry(combinations.caveats(row["row"], row["column"]).words),
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
    words = [f"guide {guides.replace('_', ' ')}"] if guides else []
    for key in ("steps", "epochs", "restarts"):
        value = _values(inferences, key)
        words += [f"{key} {value}"] if value else []
    words += [f"data seeds {_values([cell.dataset for cell in cells], 'seed')}"]
    if name == "excess_nll":
        sizes = sorted({cell.predict.fresh.size for cell in cells})
        words += [f"{', '.join(f'{size:,}' for size in sizes)} fresh points"]
    if name == "validation_nll":
        words += ["fits on the training rows that are left"]
    if table["low"].notna().any():
        words += [
            f"{100 * LEVEL:g} % intervals of paired differences over data seeds, which hold at "
            "once for all pairs of combinations"
        ]
    return "Conditions of this ranking: " + "; ".join(words) + "."


def _values(specs: Iterable[Specification], name: str) -> str:
    """All values of a setting in words; empty where it is not set."""
    values = dict.fromkeys(getattr(spec, name, None) for spec in specs)
    return ", ".join(str(value) for value in values if value is not None)
