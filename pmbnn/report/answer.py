"""The answer, with which the page begins: for each data set a sentence and a forest plot."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from pmbnn.compare.claims import FILE as CLAIMS_FILE
from pmbnn.compare.claims import read_claims, row_caveats
from pmbnn.compare.scores import NO_SCORE, RANKING_SCORE_NAMES, rank_combinations, ranking_score
from pmbnn.core.numbers import difference_text, number_text
from pmbnn.report.details import Grid
from pmbnn.report.forest import Difference, ForestPlot, ForestRow, Line
from pmbnn.report.tables import (
    DataTable,
    Entry,
    Heading,
    caveats_entry,
    verdict_entry,
)
from pmbnn.results.loading import ExperimentResults
from pmbnn.results.names import dataset_title, invalid_chains, method_name
from pmbnn.results.present import counted
from pmbnn.results.ranking import (
    BEST,
    EQUIVALENT,
    LEAST_SEEDS,
    LEVEL,
    SIGNIFICANTLY_WORSE,
    UNDECIDED,
)
from pmbnn.results.record import CellRecord, Counts, count, is_unrepeated
from pmbnn.results.tables import (
    CORRECTED,
    NOT_RANDOM,
    WHERE_CORRECTED,
    Combinations,
    combine,
    overlap_of,
)

NOT_RANKED = (
    "No ranking on {data}: no cell has a score of data that nothing was chosen by. Test rows are "
    "not used for it; hold out training rows (inference.validation) or draw fresh points."
)

CHAINS_NOT_RANKED = (
    "No ranking on {data}: chains have no score of held-out rows, and test rows are not used for "
    "it. Contrasts (pmbnn compare) say how they differ on test rows."
)
"""Of sampled cells, for which no training row is held out but to tune a scale."""

NONE_LEFT = "No ranking on {data}: the draws of no cell are of the posterior."


class RankedRow(NamedTuple):
    """A combination in words.

    ``caveats`` says how many of its cells did not converge, or chose an end of a grid.
    """

    combination: str
    score: str
    seeds: str
    difference: str
    verdict: Entry
    caveats: Entry


class Ranking(NamedTuple):
    """Combinations that were all fitted, or sampled, in one way.

    Attributes
    ----------
    method
        What sets it apart from others on its data; empty where it is the only one.
    sentence
        The answer.
    basis
        What it rests on.
    score
        Name of the score by which combinations are ranked.
    plot
        Differences to the best; None where there is nothing to compare.
    rows
        Every combination, the best first.
    """

    method: str
    sentence: str
    basis: str
    score: str = ""
    plot: ForestPlot | None = None
    rows: Sequence[RankedRow] = ()


class Answer(NamedTuple):
    """Rankings on one data set; that of the posterior comes first where it was sampled."""

    title: str
    rankings: list[Ranking]


def answers_of(grids: Iterable[Grid], margins: Mapping[str, float]) -> list[Answer]:
    """Answers on each data set, in order of appearance.

    Parameters
    ----------
    margins
        Of practical equivalence, nats an observation, by the name of the experiment.
    """
    by_data: dict[tuple[str, str, str], list[Grid]] = {}
    for grid in grids:
        cell = grid.sheet.records[0].cell
        key = grid.experiment, cell.sweep, dataset_title(cell.dataset)
        by_data.setdefault(key, []).append(grid)
    names = [data for *_, data in by_data]
    answers = []
    for (experiment, sweep, data), group in by_data.items():
        ordered = sorted(group, key=lambda grid: not grid.sheet.records[0].cell.samples_posterior)
        rankings = [_ranking(g, data, margins.get(experiment), len(group) > 1) for g in ordered]
        title = data if names.count(data) == 1 else f"{data} ({experiment}, {sweep})"
        answers.append(Answer(title, rankings))
    return answers


def _ranking(grid: Grid, data: str, margin: float | None, is_one_of_several: bool) -> Ranking:
    # Fits of the same posteriors, on other sheets, may refute chains.
    refuted = invalid_chains([view.record for view in grid.cells.values()])
    records = [record for record in grid.sheet.records if record.name not in refuted]
    left_out = len(grid.sheet.records) - len(records)
    combinations = combine(records) if left_out and records else grid.combinations
    score = ranking_score(records)
    method = ""
    if is_one_of_several:
        variant = grid.sheet.title.partition("; ")[2]
        method = _method(grid.sheet.records)
        further = "; ".join(words for words in variant.split("; ") if words not in method)
        method = ", ".join(filter(None, [method, further]))
    basis = _basis(records or grid.sheet.records, score)
    if left_out:
        basis += f" Left out: {counted(left_out, 'cell')} whose draws are not of the posterior."
    if score is None:
        text = CHAINS_NOT_RANKED if grid.sheet.records[0].cell.is_sampled else NOT_RANKED
        return Ranking(method, (text if records else NONE_LEFT).format(data=data), basis)
    table, noun = rank_combinations(combinations, margin), _noun(combinations)
    best = combinations.caveats(table.at[0, "row"], table.at[0, "column"])
    sentence = answer_sentence(table, data, RANKING_SCORE_NAMES[score], count(records), best, noun)
    entries = table.to_dict("records")
    rows = [_ranked_row(entry, noun, combinations) for entry in entries]
    plot = None
    if table["difference"].notna().any():
        plotted = [
            ForestRow(
                row.combination,
                [Line(row.difference, row.verdict, _difference(entry), row.verdict.badge)],
                caveats=row.caveats.text,
            )
            for row, entry in zip(rows, entries, strict=True)
        ]
        plot = ForestPlot(plotted, margin)
    return Ranking(method, sentence, basis, RANKING_SCORE_NAMES[score], plot, rows)


def _difference(row: Mapping[str, Any]) -> Difference | None:
    """Difference to the best, that of the best itself included; None without a score."""
    if row["verdict"] == BEST:
        return Difference(0.0)
    if pd.isna(row["difference"]):
        return None
    return Difference(row["difference"], row["low"], row["high"])


def answer_sentence(
    table: pd.DataFrame,
    data: str,
    score: str,
    fits: Counts,
    best: Counts,
    noun: str = "combination",
) -> str:
    """The answer on one data set in a sentence.

    Parameters
    ----------
    table
        As `rank_combinations` makes it.
    data, score
        Names of the data set and of the score.
    fits, best
        Counts of all cells, and of those of the first combination.
    noun
        What sets combinations apart: ``prior``, ``hyperprior`` or ``combination``.
    """
    first, others = table.iloc[0], table[~table["verdict"].isin([BEST, NO_SCORE])]
    if first["verdict"] != BEST:
        return f"No {noun} has a score on {data}."
    name, mean = _name(first, noun), number_text(first["mean"], first["se"])
    lowest = f"{name} has the lowest {score}, {mean} nats"
    doubt = ""
    if best.not_converged:
        which = f"{best.not_converged} of its {best.fitted} fits" if best.fitted > 1 else "its fit"
        doubt = f", though {which} did not converge"
    if others.empty:
        alone = "the only one" if len(table) == 1 else "the only one with a score"
        return _capitalised(f"{name} is {alone} on {data}: {score} {mean} nats{doubt}.")
    if fits.not_converged and fits.not_converged + fits.improper == fits.fitted:
        return f"No verdict on {data}, as no fit converged: so far {lowest}."
    if others["difference"].isna().all():
        why = "the others have no finite score on its data seeds"
        return f"Undecided on {data}, as {why}: {lowest}{doubt}."
    groups = dict(tuple(others.groupby("verdict")))
    none = others.iloc[:0]
    unknown, worse = (groups.pop(verdict, none) for verdict in (UNDECIDED, SIGNIFICANTLY_WORSE))
    if not groups and worse.empty:
        seeds = int(others["shared"].max())
        few = "one data seed gives" if seeds == 1 else f"{seeds} data seeds give"
        why = f"{few} no interval" if seeds < LEAST_SEEDS else "no difference has an interval"
        return f"Undecided on {data}, as {why}: {lowest}{doubt}."
    if not groups:
        nearest = worse.loc[worse["difference"].idxmin()]
        by = number_text(nearest["difference"], nearest["difference_se"])
        over = _name(nearest, noun) if len(others) == 1 else f"the next, {_name(nearest, noun)}"
        lead = f"{name} is best on {data}, by {by} nats over {over}{doubt}"
        return _capitalised(f"{lead}{_undecided_phrase(unknown)}.")
    level = pd.concat(groups.values())
    within = number_text(float(level["difference"].abs().max()), digits=2)
    number, total = len(level) + 1, len(others) + 1
    which = f"all {total}" if number == total else f"{number} of {total}"
    which = "both" if total == 2 else which
    if set(groups) == {EQUIVALENT}:
        lead = f"{which} {noun}s are equivalent on {data}, within {within} nats"
    else:
        lead = f"No {noun} stands out on {data}: {which} lie within {within} nats"
    return _capitalised(f"{lead}{_worse_phrase(worse)}{_undecided_phrase(unknown)}.")


def _worse_phrase(worse: pd.DataFrame) -> str:
    """How many are significantly worse, and by how much."""
    if worse.empty:
        return ""
    ends = [number_text(float(worse["difference"].agg(end)), digits=2) for end in ("min", "max")]
    by = " to ".join(dict.fromkeys(ends))
    return f"; {len(worse)} {'is' if len(worse) == 1 else 'are'} significantly worse, by {by} nats"


def _undecided_phrase(unknown: pd.DataFrame) -> str:
    """How many differences have no interval."""
    return f"; {len(unknown)} undecided, without an interval" if len(unknown) else ""


def _capitalised(text: str) -> str:
    return text[0].upper() + text[1:]


def _noun(combinations: Combinations) -> str:
    """What sets the combinations apart."""
    priors, hyperpriors = combinations.shape
    if hyperpriors == 1 and priors > 1:
        return "prior"
    return "hyperprior" if priors == 1 and hyperpriors > 1 else "combination"


def _name(row: Mapping[str, Any], noun: str) -> str:
    return str(row[noun]) if noun in row else f"{row['prior']} × {row['hyperprior']}"


def _ranked_row(row: Mapping[str, Any], noun: str, combinations: Combinations) -> RankedRow:
    return RankedRow(
        _name(row, noun),
        number_text(row["mean"], row["se"]),
        str(row["seeds"]),
        difference_text(row["difference"], row["low"], row["high"]),
        verdict_entry(row["verdict"]),
        caveats_entry(combinations.caveats(row["row"], row["column"]).words),
    )


# What an answer rests on


def _basis(records: Sequence[CellRecord], score: str | None) -> str:
    """Method, fits that converged, data seeds, score and intervals."""
    cells = [record.cell for record in records]
    parts = [_method(records), _fits_phrase(records)]
    seeds = sorted({cell.data_seed for cell in cells})
    one = f"one data seed ({seeds[0]})"
    parts.append(one if len(seeds) == 1 else f"data seeds {', '.join(map(str, seeds))}")
    if score is not None:
        name = RANKING_SCORE_NAMES[score]
        if score == "excess_nll":
            sizes = sorted({cell.predict.fresh.size for cell in cells})
            name = name.replace("fresh", f"{', '.join(f'{size:,}' for size in sizes)} fresh")
        parts.append(name)
        overlap = overlap_of(records)
        if math.isinf(overlap):
            parts.append(f"no intervals over data seeds, as {NOT_RANDOM}")
        elif len(seeds) >= LEAST_SEEDS:
            parts.append(f"{100 * LEVEL:g} % simultaneous intervals over data seeds")
        if 0 < overlap < math.inf:
            parts.append(f"standard errors {CORRECTED}")
    return _capitalised("; ".join(parts)) + "."


def _method(records: Sequence[CellRecord]) -> str:
    """How the cells of one sheet came about: sampled, or fitted with a guide."""
    cell = records[0].cell
    name = method_name(cell.inference)
    if cell.is_ensemble:
        repeated = "" if is_unrepeated(records) else ", several on each data seed"
        return f"ensembles by {name.upper()}{repeated}: a verdict is about the procedure"
    if cell.is_sampled:
        at = "" if cell.temperature == 1 else f" at temperature {cell.temperature:g}"
        return f"posterior{at}, sampled by {name.upper()}"
    if cell.is_point:
        return f"{name.replace('_', ' ')} estimates"
    if cell.is_laplace:
        return "Laplace approximations"
    if cell.is_dropout:
        return "Monte-Carlo dropout"
    return f"ADVI with a {name.replace('_', '-')} guide"


def _fits_phrase(records: Sequence[CellRecord]) -> str:
    """How many fits converged, did not, or failed."""
    counts = count(records)
    failed = len(records) - counts.fitted
    if records[0].cell.is_ensemble:
        return f"{counts.fitted} of {len(records)} ensembles"
    noun = "posteriors" if records[0].cell.is_sampled else "fits"
    phrase = f"{counts.converged} of {len(records)} {noun} converged"
    rest = {"not": counts.not_converged, "improper": counts.improper, "failed": failed}
    others = [f"{number} {what}" for what, number in rest.items() if number]
    return f"{phrase} ({', '.join(others)})" if others else phrase


# Sparsity, uncertainty and scales in numbers, where a results folder has a table of them


COLUMNS = {"claim": "of what", "data": "data", "prior": "prior", "hyperprior": "hyperprior",
           "against": "against", "measure": "measure", "unit": "unit"}  # fmt: skip
"""Columns of text, with their headings."""


def claims_data_table(folders: Sequence[ExperimentResults]) -> DataTable | None:
    """Every row of the folders' tables, with means ± standard errors over data seeds."""
    current = [folder for folder in folders if not folder.is_stale(CLAIMS_FILE)]
    tables = [
        read_claims(folder.results.folder / CLAIMS_FILE).assign(experiment=folder.name)
        for folder in current
    ]
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
        Entry(number_text(mean, error), mean),
        Entry(str(row["seeds"]), float(row["seeds"])),
        caveats_entry(row_caveats(row)),
        Entry(str(row["sweep"])),
        Entry(str(row["experiment"])),
    ]


def _finite(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
