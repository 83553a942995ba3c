"""The tables that commands print: of a finished sweep, of comparisons, of baselines."""

import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table
from rich.text import Text

from pmbnn.compare.agreement import KINDS, Kind
from pmbnn.compare.baselines import metric_columns, row_caveats, tally
from pmbnn.compare.claims import ALL, CLAIMS, HYPERPRIORS, KEYS, unit_of_measure
from pmbnn.compare.contrasts import COLUMN, METHODS, VERDICT_TEXT
from pmbnn.compare.diff import Diff
from pmbnn.compare.scores import RANKING_SCORE_NAMES, rank_combinations, ranking_score
from pmbnn.core.numbers import difference_text, interval_text, number_text
from pmbnn.inference.settings import DEFAULT_STEPS
from pmbnn.report.glossary import verdict_text
from pmbnn.results.derived import stale_line
from pmbnn.results.names import (
    OF_POSTERIOR,
    Variant,
    best_group,
    cell_line,
    combination_label,
    dataset_label,
    distinct,
    families,
    group_by_settings,
    grouped,
    invalid_chains,
    scale_label,
    seed_label,
    setting_words,
    valid_cells,
    variants,
)
from pmbnn.results.present import counted, superseded_line
from pmbnn.results.ranking import BEST, NOT_WORSE
from pmbnn.results.record import (
    AT_GRID_END,
    NOT_CONVERGED,
    CellRecord,
    choices_at_end,
    count,
    has_converged,
)
from pmbnn.results.state import FolderState
from pmbnn.results.tables import (
    SCORE_NAMES,
    combine,
    error_note,
    main_score,
    mean_and_error,
    mean_over_seeds,
    overlap_of,
    repeated_words,
    score_text,
    with_unit,
)

SHOWN_FAILURES = 5
"""Cells that failed, and combinations of one folder alone, that are named."""

SHOWN_SCORES = ("sd", "entropy")
"""Uncertainty scores whose areas are shown; ``ood.csv`` has them all."""

LONGEST_REASON = 100
"""Characters of the reason why a set was unavailable."""

MOST_DIAGNOSED = 4
"""Cells of a sweep whose snapshots are shown; ``metrics.json`` of a cell has them all."""

JUDGED = {"accuracy": 4, "log_likelihood": 4, "elbo": 4, "evidence": None}
"""Quantities of each part at each step, and their decimals; None for three significant digits."""

VERDICTS = ("agrees", "differs", "undecided")


def make_table(
    title: str,
    headings: Sequence[str],
    rows: Iterable[Iterable[object]],
    right: Collection[str] = (),
    caption: str = "",
) -> Table:
    """A table of plain text: brackets in it are no markup.

    Parameters
    ----------
    right
        Headings of the columns that are aligned to the right.
    """
    below = Text(caption) if caption else None
    table = Table(title=Text(title), title_justify="left", caption=below, caption_justify="left")
    for heading in headings:
        table.add_column(Text(heading), justify="right" if heading in right else "left")
    for row in rows:
        table.add_row(*(Text(str(value)) for value in row))
    return table


# A finished sweep


def accuracy_tables(records: Sequence[CellRecord]) -> list[Table]:
    """Accuracy ± standard error over seeds per prior × hyperprior, of each data set and variant.

    For regression it is the root mean squared error. A variant is anything else that differs,
    such as the guide.
    """
    return [_accuracy_table(variant.label, variant.records) for variant in variants(records)]


def _accuracy_table(title: str, records: Sequence[CellRecord]) -> Table:
    parts = grouped(records, lambda record: (record.cell.prior, record.cell.hyperprior))
    priors, hyperpriors = (list(dict.fromkeys(specs)) for specs in zip(*parts, strict=True))
    score = main_score(records)
    repeated = repeated_words(group_by_settings(records))
    columns = distinct(hyperpriors, scale_label)
    rows = (
        [name, *(_accuracy(parts.get((prior, column), []), score) for column in hyperpriors)]
        for prior, name in zip(priors, distinct(priors), strict=True)
    )
    title = f"Test {with_unit(SCORE_NAMES[score], score)}, {title}"
    caption = error_note(repeated, overlap_of(records)) if repeated else ""
    return make_table(title, ["prior", *columns], rows, columns, caption)


def _accuracy(records: Sequence[CellRecord], score: str) -> str:
    """Mean over everything but prior and hyperprior, with its error and its caveats."""
    entries = []
    for group in group_by_settings(records):
        usable = [r for r in group if r.results]
        mean, error = mean_over_seeds(usable, score)
        entry = score_text(score, mean, error, decimals=4) if usable else "failed"
        counts, lost = count(usable), len(group) - len(usable)
        notes = {"failed": lost, "not converged": counts.not_converged}
        notes["at an end of the grid"] = max(counts.scales_at_end, counts.rates_at_end)
        note = ", ".join(f"{number} {what}" for what, number in notes.items() if number)
        entries.append(entry + (f" ({note})" if usable and note else ""))
    return "\n".join(entries)


def ood_tables(records: Sequence[CellRecord]) -> list[Table]:
    """How well each uncertainty score detects out-of-distribution images, a table a data set.

    A row is a cell, or the mean over data seeds; a column is a set.
    """
    shown = [r for r in records if r.images and r.images["ood"]]
    return [_ood_table(family) for family in families(shown)]


def _ood_table(family: Sequence[Variant]) -> Table:
    cell = family[0].records[0].cell
    title = (
        f"AUROC of out-of-distribution images by {' / '.join(SHOWN_SCORES)}, "
        f"{cell.sweep}: {dataset_label(cell.dataset)}"
    )
    sets = list(dict.fromkeys(n for v in family for r in v.records for n in r.images["ood"]))
    rows = (
        [
            "; ".join([*variant.words, combination_label(group[0].cell)]),
            *(_areas(group, name) for name in sets),
        ]
        for variant in family
        for group in group_by_settings(variant.records)
    )
    return make_table(title, ["cell", *sets], rows, sets)


def _areas(group: Sequence[CellRecord], name: str) -> str:
    """Mean areas of a set over the cells that predicted it; empty if there are none."""
    areas = [r.images["ood"][name] for r in group if r.images["ood"].get(name) is not None]
    means = [mean_and_error([n[f"auroc_{score}"] for n in areas])[0] for score in SHOWN_SCORES]
    return " / ".join(number_text(mean, decimals=3) for mean in means) if areas else ""


def unavailable_lines(records: Sequence[CellRecord]) -> list[str]:
    """Sets of images that were unavailable for some cell and why, a line each."""
    reasons: dict[str, str] = {}
    for record in records:
        reasons |= (record.images or {}).get("unavailable", {})
    return [
        f"out-of-distribution set {name} was unavailable: "
        + textwrap.shorten(reason, LONGEST_REASON, placeholder=" …")
        for name, reason in reasons.items()
    ]


def diagnostics_tables(records: Sequence[CellRecord]) -> list[Table]:
    """How the fits of each sweep went, nats a row: the first data seed of all settings.

    The best cell is first if something was held out to choose it by. The caption of the last
    table of a sweep has the number of cells without a table.
    """
    sweeps = grouped([r for r in records if r.diagnostics], lambda record: record.sweep)
    tables = []
    for cells in sweeps.values():
        best, titled = best_group(cells)[:1], _titled(cells)
        titled.sort(key=lambda pair: pair[1] not in best)
        tables += [_diagnostics_table(*pair) for pair in titled[:MOST_DIAGNOSED]]
        if (more := len(titled) - MOST_DIAGNOSED) > 0:
            caption = f"and {more} more: `diagnostics` in metrics.json of their cells"
            tables[-1].caption = Text(caption)
    return tables


def _titled(records: Sequence[CellRecord]) -> list[tuple[str, CellRecord]]:
    """The first seed of all settings of a sweep, with a title that no other has."""
    titled = []
    for family in families(records):
        groups = [(v.words, g[0]) for v in family for g in group_by_settings(v.records)]
        cells = [record.cell for _, record in groups]
        priors, hyperpriors = (
            distinct([getattr(cell, name) for cell in cells]) for name in ("prior", "hyperprior")
        )
        for (words, record), *names in zip(groups, priors, hyperpriors, strict=True):
            status = [] if has_converged(record) else ["not converged"]
            title = ", ".join([seed_label(record.cell), *words, " × ".join(names), *status])
            titled.append((f"Steps of {record.sweep} (nats a row): {title}", record))
    return titled


def _diagnostics_table(title: str, record: CellRecord) -> Table:
    diagnostics, cell = record.diagnostics, record.cell
    parts = diagnostics["parts"]
    columns = {"step": [f"{step:,}" for step in diagnostics["step"]]}
    if cell.has_score("kl"):
        columns["KL"] = [number_text(value, decimals=4) for value in diagnostics["kl"]]
    words = {"log_likelihood": "log-lik.", "elbo": cell.objective}
    for part in ("train", "validation" if "validation" in parts else "test"):
        for name, decimals in JUDGED.items():
            if cell.has_score(name):
                values = parts[part][name]
                texts = [number_text(v, decimals=decimals, digits=3) for v in values]
                columns[f"{part} {words.get(name, name)}"] = texts
    return make_table(title, [*columns], zip(*columns.values(), strict=True), [*columns])


def reliability_table(records: Sequence[CellRecord]) -> Table | None:
    """How many cells of each data set did not converge, or chose an end of a grid."""
    groups = variants(records)
    if not groups:
        return None
    counts = [(len(group.records), count(group.records)) for group in groups]
    refuted = invalid_chains(records)
    columns = {
        "failed": [(size - c.fitted, size) for size, c in counts],
        "not converged": [(c.not_converged, c.fitted) for _, c in counts],
        "refuted": [
            (sum(r.name in refuted for r in group.records), c.fitted)
            for group, (_, c) in zip(groups, counts, strict=True)
        ],
        "improper": [(c.improper, c.fitted) for _, c in counts],
        f"scale {AT_GRID_END}": [(c.scales_at_end, c.scales) for _, c in counts],
        f"learning rate {AT_GRID_END}": [(c.rates_at_end, c.rates) for _, c in counts],
    }
    for rare in ("refuted", "improper"):
        if not any(number for number, _ in columns[rare]):
            del columns[rare]
    shown = {
        heading: [f"{number} of {total}" if total else "" for number, total in column]
        for heading, column in columns.items()
        if not heading.endswith(AT_GRID_END) or any(total for _, total in column)
    }
    rows = zip([group.label for group in groups], *shown.values(), strict=True)
    return make_table("Reliability of these cells", ["cells", *shown], rows, shown)


def best_words(records: Sequence[CellRecord]) -> str:
    """The best combination of a variant, by its score on data that nothing was chosen by.

    Empty where there is no such score.
    """
    name = ranking_score(records)
    ranked = None if name is None else rank_combinations(combine(records))
    if ranked is None or ranked.at[0, "verdict"] != BEST:
        return ""
    first, level = ranked.iloc[0], int((ranked["verdict"] == NOT_WORSE).sum())
    mean = number_text(first["mean"], first["se"], decimals=4)
    words = f"{first['prior']} × {first['hyperprior']} ({RANKING_SCORE_NAMES[name]} {mean})"
    return words + (f"; {level} more not significantly worse" if level else "")


def best_lines(records: Sequence[CellRecord]) -> list[str]:
    """The best combination of each data set and variant, and how many cells converged.

    Chains that are refuted, see `invalid_chains`, are neither.
    """
    valid = valid_cells(records)
    lines = [
        f"best, {variant.label}: {words}"
        for variant in variants(valid)
        if (words := best_words(variant.records))
    ]
    judged = [record for record in records if record.status != "ensemble"]
    ensembles = len(records) - len(judged)
    if judged:
        counts, remedy = count(r for r in valid if r.status != "ensemble"), longer_fits(judged)
        others = {"improper": counts.improper, "refuted": len(records) - len(valid)}
        rest = "".join(f", {number} {what}" for what, number in others.items() if number)
        of = counted(len(judged), "cell")
        lines.append(f"{counts.converged} of {of} converged{rest}{remedy}")
    return [*lines, *([counted(ensembles, "ensemble")] if ensembles else [])]


def longer_fits(records: Sequence[CellRecord]) -> str:
    """Options that double the length of fits which did not converge; empty if all did."""
    # Sweeps of one file may count steps or epochs. All fits of a sweep get the same length.
    sweeps = grouped(records, lambda record: record.sweep)
    options = []
    for sweep, cells in sweeps.items():
        if any(record.status == "not_converged" for record in cells):
            fits = [record.settings["inference"] for record in cells if not record.cell.is_sampled]
            epochs = max(settings.get("epochs") or 0 for settings in fits)
            steps = max(settings.get("steps") or DEFAULT_STEPS for settings in fits)
            key = "inference.epochs" if epochs else "inference.steps"
            name = key if len(sweeps) == 1 else f"{sweep}.{key}"
            options.append(f"--set {name}={2 * (epochs or steps)}")
    return f"; for longer fits: {' '.join(options)}" if options else ""


# A results folder


def state_lines(folder: Path, state: FolderState) -> list[str]:
    """How far a folder is, then what is wrong or stale in it, and where to look next."""
    counts = ", ".join(f"{n} {status}" for status, n in state.statuses.most_common())
    writing = f"; being written by {state.writer}" if state.writer else ""
    finished = f"{len(state.records)} of {counted(state.cells, 'cell')} finished"
    lines = [f"{state.name} ({folder}): {finished}{f' ({counts})' if counts else ''}{writing}"]
    if state.overrides:
        lines.append(f"changed settings: {' '.join(state.overrides)}")
    missing = {"sweep": state.missing - state.unsampled, "check": state.unsampled}
    for command, number in missing.items():
        if number and not state.is_being_written:
            lines.append(f"{number} missing: the same `pmbnn {command}` command fits them")
    lines += [f"broken: {problem}" for problem in state.broken]
    if line := superseded_line(folder, state.superseded):
        lines.append(line)
    # A running sweep makes its tables at the end.
    if state.stale and not state.is_being_written:
        lines.append(f"stale, {stale_line(state.stale)}")
    lines += [f"refuted: {line}" for line in invalid_chains(state.records).values()]
    failed = [record for record in state.records if record.failed]
    lines += [f"failed: {cell_line(r.cell)}: {r.reason}" for r in failed[:SHOWN_FAILURES]]
    if (more := len(failed) - SHOWN_FAILURES) > 0:
        lines.append(f"and {more} more failed: `pmbnn show {folder} -v`")
    return lines


def state_table(records: Sequence[CellRecord]) -> Table:
    """A line a data set and variant: finished cells by status, and the best combination."""
    rows, refuted = [], invalid_chains(records)
    right = ["finished", "converged", "not converged", "improper", "failed"]
    right += ["refuted"] if refuted else []
    for variant in variants(records):
        cells = variant.records
        valid = [record for record in cells if record.name not in refuted]
        counts = count(record for record in valid if record.status != "ensemble")
        numbers = [len(cells), counts.converged, counts.not_converged, counts.improper]
        numbers += [sum(r.failed for r in cells), len(cells) - len(valid)]
        rows.append([variant.label, *numbers[: len(right)], best_words(valid)])
    return make_table("Cells", ["cells", *right, "best"], rows, right)


def cells_table(records: Sequence[CellRecord]) -> Table:
    """A line a cell: its status, main score and time."""
    score = main_score(records)
    rows = []
    for record in records:
        status = ", ".join([record.status, *choices_at_end(record)])
        number = score_text(score, record.results.get(score), decimals=4)
        seconds = number_text(record.seconds, decimals=1)
        rows.append([cell_line(record.cell), status, number, seconds, record.name])
    right = [SCORE_NAMES[score], "seconds"]
    return make_table("Cells", ["cell", "status", *right, "name"], rows, right)


def diff_tables(found: Diff) -> Iterator[Table]:
    """Settings that differ, and metrics of paired combinations."""
    if not found.settings.empty:
        rows = found.settings.itertuples(index=False)
        yield make_table("Settings that differ", list(found.settings), rows)
    if found.metrics.empty:
        return
    rows = []
    for row in found.metrics.to_dict("records"):
        numbers = [score_text(row["metric"], row[side], decimals=4) for side in "ab"]
        numbers.append(score_text(row["metric"], row["difference"], digits=3, signed=True))
        numbers.append(interval_text(row["low"], row["high"]))
        left = [row[name] for name in ("data", "combination", "metric", "seeds")]
        rows.append([*left, *numbers, row["not_converged"] or ""])
    right = ["seeds", "a", "b", "b less a", "95 % interval", "not converged"]
    headings = ["data", "combination", "metric", *right]
    yield make_table("Metrics, paired by data seed", headings, rows, right)


def diff_lines(found: Diff) -> list[str]:
    """What is the same, and combinations that only one folder has."""
    lines = [] if len(found.settings) else ["the same settings and versions"]
    for name, only in (("a", found.only_a), ("b", found.only_b)):
        if only:
            shown = "; ".join(only[:SHOWN_FAILURES])
            more = len(only) - SHOWN_FAILURES
            lines.append(f"only in {name}: {shown}{f' and {more} more' if more > 0 else ''}")
    if found.metrics.empty:
        lines.append("no combination of the two is on the same data seeds: no metric is compared")
    return lines


# Agreement with the posterior


def agreement_tables(agreement: pd.DataFrame) -> list[Table]:
    """A table for each kind of prediction in the agreement of fits with the posterior."""
    kinds = [kind for kind in KINDS.values() if kind.name in agreement.columns]
    return [_agreement_table(kind, agreement[agreement[kind.name].notna()]) for kind in kinds]


def _agreement_table(kind: Kind, agreement: pd.DataFrame) -> Table:
    """Distance at test rows, mean and largest over data seeds, of each posterior and guide."""
    keys = ["dataset.kind", "prior.kind", "hyperprior.kind", "guide"]
    others = [
        name
        for name in agreement.columns
        if name.split(".")[0] in (*OF_POSTERIOR, "mixture")
        and name not in (*keys, "dataset.seed")
        and agreement[name].nunique(dropna=False) > 1
    ]
    rows = []
    for values, group in agreement.groupby([*keys, *others], sort=False, dropna=False):
        key, more = values[: len(keys)], dict(zip(others, values[len(keys) :], strict=True))
        settings = ", ".join(
            setting_words(n, value) for n, value in more.items() if pd.notna(value)
        )
        distance, floor = group[kind.name], group[f"{kind.name}_floor"]
        lost = f"{group['fit_status'].isin(NOT_CONVERGED).sum()} of {len(group)}"
        means = distance.mean(), distance.max(), floor.mean()
        numbers = [number_text(mean, decimals=4) for mean in means]
        numbers.append(number_text(group["sd_ratio"].median(), decimals=2))
        counts = [(group["verdict"] == verdict).sum() for verdict in VERDICTS]
        rows.append([*key, settings, lost, *numbers, *counts])
    left = ["data", "prior", "hyperprior", "guide", "settings"]
    right = ["not converged", "mean", "largest", "floor", "sd ratio", *VERDICTS]
    return make_table(f"{kind.title}, test rows", [*left, *right], rows, right)


# Contrasts


def contrasts_table(name: str, contrasts: pd.DataFrame) -> Table:
    """A line a contrast and data set: differences in nats, and verdicts."""
    exploratory = contrasts["exploratory"].any()
    kind = "exploratory: the experiment file names none" if exploratory else "named"
    title = f"{name}: contrasts ({kind}), first less second, nats"
    titles = "reference", "ADVI", "ADVI less reference", "ensemble"
    numbers = dict(zip(COLUMN, titles, strict=True))
    says = "posterior says", "ADVI says", "ensemble says"
    verdicts = dict(zip(VERDICT_TEXT, says, strict=True))
    # Without its cells a method has no numbers and no verdict.
    numbers = {name: text for name, text in numbers.items() if contrasts[name].notna().any()}
    verdicts = {name: text for name, text in verdicts.items() if contrasts[name].any()}
    rows = (
        [row["data"], row["contrast"], row["seeds"]]
        + [_interval(row, quantity) for quantity in numbers]
        + [verdict_text(row[name]) for name in verdicts]
        for row in contrasts.to_dict("records")
    )
    headings = ["data", "contrast", "seeds", *numbers.values(), *verdicts.values()]
    return make_table(title, headings, rows, numbers.values())


def _interval(row: Mapping[str, Any], name: str) -> str:
    """Mean and both ends of its interval, as far as they are finite."""
    return difference_text(*(row[name + end] for end in ("", "_low", "_high")))


def over_data_table(name: str, means: pd.DataFrame) -> Table:
    """A line a contrast and method: the mean over data sets like these, in nats."""
    right = ["data sets", "mean", "sd between"]
    rows = (
        [
            *(row["contrast"], METHODS[row["method"]], row["data_sets"]),
            difference_text(*(row[end] for end in ("mean", "low", "high"))),
            number_text(row["sd_between"], digits=2),
            verdict_text(row["verdict"]),
        ]
        for row in means.to_dict("records")
    )
    caption = (
        "By a random-effects meta-analysis: a second answer, which takes the data sets as a "
        "sample. The intervals allow for splits that share rows, and hold together with "
        "probability 95 %."
    )
    title = f"{name}: contrasts over data sets, first less second, nats"
    return make_table(title, ["contrast", "of", *right, "verdict"], rows, right, caption)


def row_errors_table(name: str, errors: pd.DataFrame) -> Table:
    """A line a contrast, data set and method: the difference in nats, and both standard errors."""
    kind = "exploratory: the experiment file names none" if errors["exploratory"].any() else "named"
    title = f"{name}: contrasts ({kind}) of the test NLL by row, first less second, nats"
    left = ["data", "contrast", "of"]
    right = ["seeds", "rows", "difference", "se by rows", "se by splits"]
    rows = (
        [
            *(row["data"], row["contrast"], METHODS[row["method"]], row["seeds"], row["rows"]),
            difference_text(*(row[end] for end in ("difference", "low", "high"))),
            *(number_text(row[se], digits=2) for se in ("se_rows", "se_nadeau_bengio")),
            verdict_text(row["verdict"]),
        ]
        for row in errors.to_dict("records")
    )
    caption = (
        "Intervals by rows hold together with probability 95 %, for the training sets that were "
        "drawn. Standard errors by splits allow for other training sets (Nadeau and Bengio 2003)."
    )
    return make_table(title, [*left, *right, "verdict by rows"], rows, right, caption)


def regret_table(name: str, regret: pd.DataFrame) -> Table:
    """A line a data set and criterion: what choosing a combination by it costs."""
    title = f"{name}: regret of choosing a combination by, nats under the posterior"
    left = ["data", "chosen by", "of"]
    right = ["seeds", "not converged", "regret", "largest", "right", "by chance"]
    rows = (
        [
            *(row["data"], row["criterion"], row["source"].replace("_", " "), row["seeds"]),
            f"{row['not_converged']} of {row['cells']}",
            number_text(row["regret"], row["regret_se"], decimals=5),
            number_text(row["regret_largest"], decimals=5),
            f"{row['right']:.0%}",
            number_text(row["by_chance"], decimals=5),
        ]
        for row in regret.to_dict("records")
    )
    has_errors = regret["regret_se"].notna().any()
    overlaps = regret.loc[regret["seeds"] > 1, "overlap"]
    caption = error_note("data seeds", *overlaps) if has_errors else ""
    return make_table(title, [*left, *right], rows, right, caption)


# Priors and hyperpriors


def claims_tables(claims: pd.DataFrame) -> Iterator[Table]:
    """A table for every comparison and data set: a line a combination, a column a measure."""
    for claim in CLAIMS:
        places = ["experiment", "sweep", "data", "variant"]
        groups = claims[claims["claim"] == claim].groupby(places, sort=False)
        for (experiment, sweep, *data), rows in groups:
            title = f"{claim}: {experiment}, {sweep}, {'; '.join(filter(None, data))}"
            yield _claims_table(title, rows)


def _claims_table(title: str, rows: pd.DataFrame) -> Table:
    names = [name for name in ("prior", "hyperprior", "against") if rows[name].any()]
    measures = rows["measure"].drop_duplicates().tolist()
    lines = rows.assign(entry=rows.apply(_mean_and_marks, axis=1)).pivot_table(
        index=names, columns="measure", values="entry", aggfunc="last", sort=False, fill_value=""
    )
    units = map(unit_of_measure, measures)
    right = [f"{m} ({u})" if u else m for m, u in zip(measures, units, strict=True)]
    shown = lines[measures].reset_index().itertuples(index=False)
    with_error = rows["se"].notna()
    repeated = "data seeds" if (rows["seeds"] > 1).any() else "fits"
    notes = {
        error_note(repeated, rows["overlap"].max()): with_error,
        "† some fits not converged": rows["not_converged"] > 0,
        f"‡ some fixed scales {AT_GRID_END}": rows["at_grid_end"] > 0,
    }
    caption = "; ".join(note for note, marked in notes.items() if marked.any())
    return make_table(title, [*names, *right], shown, right, caption)


def _mean_and_marks(row: pd.Series) -> str:
    """Mean ± standard error, in three digits, with the marks of the caption."""
    marks = "†" * bool(row["not_converged"]) + "‡" * bool(row["at_grid_end"])
    return number_text(row["mean"], row["se"], digits=3) + marks


def grid_end_lines(claims: pd.DataFrame) -> Iterator[str]:
    """How many pairs have a fixed scale at an end of its grid, a line an experiment."""
    pairs = claims[(claims["claim"] == HYPERPRIORS) & (claims["prior"] != ALL)]
    # All measures are of the same pairs.
    pairs = pairs.drop_duplicates([n for n in KEYS if n != "measure"])
    for experiment, rows in pairs.groupby("experiment", sort=False):
        if at_end := int(rows["at_grid_end"].sum()):
            yield (
                f"{experiment}: in {at_end} of {int(rows['cells'].sum())} pairs the fixed scale is "
                "at an end of its grid (marked ‡): where the learned one is better, a fixed one "
                "beyond may be better still"
            )


# Baselines


def baselines_tables(name: str, means: pd.DataFrame, paired: pd.DataFrame) -> Iterator[Table]:
    """Means and paired differences of each data set, and counts over several data sets."""
    has_several = not paired.empty and paired["data"].nunique() > 1
    for data, rows in means.groupby("data", sort=False):
        yield means_table(f"{name}, {data}", rows.dropna(axis=1, how="all"))
        differences = paired if paired.empty else paired[paired["data"] == data]
        if not differences.empty:
            yield _paired_table(f"{name}, {data}", differences, has_several)
    if has_several:
        yield tally_table(name, paired)


def means_table(title: str, means: pd.DataFrame) -> Table:
    """Means of networks and baseline models, with standard errors over data seeds."""
    metrics = metric_columns(means)
    rows = []
    for row in means.to_dict("records"):
        method = ": ".join(filter(None, (row["method"], row["combination"])))
        numbers = [score_text(metric, row[metric], row.get(f"{metric}_se")) for metric in metrics]
        rows.append(["\n".join([method, *row_caveats(row)]), row["seeds"], *numbers])
    right = ["seeds", *(with_unit(metric.replace("_", " "), metric) for metric in metrics)]
    seeds = means["seeds"].max()
    caption = error_note(f"{seeds} data seeds", means["overlap"].max()) if seeds > 1 else ""
    title = f"{title}: networks and baseline models"
    return make_table(title, ["method", *right], rows, right, caption)


def _paired_table(title: str, paired: pd.DataFrame, has_holm: bool) -> Table:
    """Differences of a network and every other method on the same data seeds."""
    rows = []
    for row in paired.to_dict("records"):
        rows.append(
            [
                *(row["method"], with_unit(row["metric"], row["metric"]), row["seeds"]),
                score_text(row["metric"], row["difference"], row["se"], signed=True),
                interval_text(row["low"], row["high"]),
                number_text(row["p_value"], digits=2),
                *([number_text(row["p_holm"], digits=2)] if has_holm else []),
                f"{row['ahead']}/{row['level']}/{row['behind']}",
                verdict_text(row["verdict"]),
            ]
        )
    title = f"{title}: {paired['network'].iloc[0]} less other methods, below zero it is better"
    p_values = ["p", "p, Holm"] if has_holm else ["p"]
    right = ["seeds", "difference", "95 % interval", *p_values, "ahead/level/behind", "verdict"]
    return make_table(title, ["method", "metric", *right], rows, right)


def tally_table(name: str, paired: pd.DataFrame) -> Table:
    """Verdicts on the chosen network over data sets."""
    counts = tally(paired)
    verdicts = [verdict for verdict in counts.columns[2:] if counts[verdict].any()]
    rows = counts[["method", "metric", *verdicts]].itertuples(index=False)
    title = f"{name}: over data sets, the network against"
    return make_table(title, ["method", "metric", *verdicts], rows, verdicts)
