"""The tables and lines that commands print of cells: of a finished sweep, of a results folder."""

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from pmbnn.cli.tables import make_table
from pmbnn.compare.diff import Diff
from pmbnn.compare.scores import RANKING_SCORE_NAMES, rank_combinations, ranking_score
from pmbnn.core.numbers import interval_text, number_text
from pmbnn.inference.settings import DEFAULT_STEPS
from pmbnn.results.derived import stale_line
from pmbnn.results.names import (
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
    valid_cells,
    variants,
)
from pmbnn.results.present import counted, superseded_line
from pmbnn.results.ranking import BEST, NOT_WORSE
from pmbnn.results.record import (
    AT_GRID_END,
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
            options.append(f"--set {name}={2 * (epochs or steps):.10g}")
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
