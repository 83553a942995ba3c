"""A metric as a table for a paper: its rows and columns are settings, the best is in bold.

Entries are means ± standard errors over data seeds. On each data set the best combination of a
table is marked, and those that are not significantly worse (`differences_to_best`).
"""

import math
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from pmbnn.core.errors import must_be_one_of
from pmbnn.core.numbers import MINUS
from pmbnn.experiment.cells import SOURCES, number_labels
from pmbnn.results.names import (
    ENGINE,
    bounds_evidence,
    group_by_settings,
    grouped,
    section_labels,
    setting_words,
    settings_row,
    valid_cells,
)
from pmbnn.results.ranking import (
    BEST,
    LEAST_SEEDS,
    LEVEL,
    NOT_WORSE,
    UNDECIDED,
    differences_to_best,
)
from pmbnn.results.record import CellRecord, count, is_unrepeated
from pmbnn.results.tables import (
    SCORE_NAMES,
    by_seed,
    error_note,
    mean_over_seeds,
    overlap_of,
    repeated_words,
    score_text,
    with_unit,
)

if TYPE_CHECKING:
    from pmbnn.results.loading import ExperimentResults

MORE_IS_BETTER = (
    *("accuracy", "balanced_accuracy", "elbo", "elpd_loo", "log_evidence", "log_likelihood"),
)

LESS_IS_BETTER = (
    *("nll", "normal_nll", "excess_nll", "validation_nll", "excess_error", "brier_score"),
    *("expected_calibration_error", "rmse", "crps"),
)

FAILED, FEWER = "failed", "§"
"""Word for a combination without results, and sign of one without scores on some data seeds."""

SEEDS = ("dataset.seed", "inference.seed")
"""Settings that repeat a combination."""

NAMED = ("network", "prior", "hyperprior", "likelihood", "inference")
"""Sections that are named as a whole where they set tables apart."""

COLUMNS = (
    *("data", "variant", "row", "column", "mean", "se", "seeds", "difference", "low", "high"),
    *("verdict", "cells", "failed", "marks"),
)
"""Columns of the entries: the mean with its standard error, the paired difference to the best
combination on the same data with both ends of its interval, the verdict; the number of cells and of
failed ones, and signs of cells that did not converge or chose an end of a grid, and of combinations
without a score on some data seeds."""

MARKDOWN = str.maketrans({sign: f"\\{sign}" for sign in "\\|*`<"})
"""Signs that Markdown reads as something else within a name."""

LATEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {"|": r"\textbar{}", "<": r"\textless{}", ">": r"\textgreater{}", "[": "{[}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"±": r"$\pm$", "−": "$-$", "×": r"$\times$", "†": r"$\dagger$", "‡": r"$\ddagger$"}
    | {FEWER: r"\S{}"}
)
"""Signs that LaTeX reads as something else."""

MARKS = str.maketrans({"†": r"\dagger", "‡": r"\ddagger", FEWER: r"\S"})
"""Marks in LaTeX's mathematics."""


@dataclass(frozen=True)
class MetricTable:
    """Means of a metric by two settings; a table for each data set and for other settings.

    Attributes
    ----------
    rows, columns
        What the rows and the columns are.
    metric
        Name of the metric among results.
    entries
        A row for each entry; see `COLUMNS`.
    note
        Meaning of the errors and marks.
    """

    rows: str
    columns: str
    metric: str
    entries: pd.DataFrame
    note: str

    @property
    def frame(self) -> pd.DataFrame:
        """The entries, a row each, with columns of the names of the two settings."""
        return self.entries.rename(columns={"row": self.rows, "column": self.columns})

    def to_markdown(self) -> str:
        """The table in Markdown."""
        parts = []
        for name, headings, lines in self._tables(_markdown_entry):
            header = [text.translate(MARKDOWN) for text in (self.rows, *headings)]
            rule = [":--", *["--:"] * len(headings)]
            body = [[first.translate(MARKDOWN), *rest] for first, *rest in lines]
            text = "\n".join(f"| {' | '.join(line)} |" for line in (header, rule, *body))
            parts.append(f"{name.translate(MARKDOWN)}\n\n{text}")
        return "\n\n".join([*parts, self.note.replace("*", r"\*")]) + "\n"

    def to_latex(self) -> str:
        """The table in LaTeX, with rules of the package ``booktabs``."""
        parts = [r"% \usepackage{booktabs}"]
        for name, headings, lines in self._tables(_latex_entry):
            caption = f"{name}. {self.note}".translate(LATEX)
            header = [text.translate(LATEX) for text in (self.rows, *headings)]
            body = [[first.translate(LATEX), *rest] for first, *rest in lines]
            rows = [f"{' & '.join(line)} \\\\" for line in (header, *body)]
            parts += [
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{caption}}}",
                rf"\begin{{tabular}}{{l{'r' * len(headings)}}}",
                r"\toprule",
                rows[0],
                r"\midrule",
                *rows[1:],
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
            ]
        return "\n".join(parts) + "\n"

    def to_csv(self) -> str:
        """The entries as CSV, a row each, with differences, intervals and verdicts."""
        return self.frame.to_csv(index=False, lineterminator="\n")

    def _repr_markdown_(self) -> str:
        return self.to_markdown()

    def _tables(
        self, write: Callable[[Mapping[str, Any]], str]
    ) -> Iterator[tuple[str, list[str], list[list[str]]]]:
        """Name, headings and lines of each table, its entries as written."""
        for (data, variant), part in self.entries.groupby(["data", "variant"], sort=False):
            part = part.assign(metric=self.metric)
            texts = {(e["row"], e["column"]): write(e) for e in part.to_dict("records")}
            rows, columns = (list(dict.fromkeys(part[name])) for name in ("row", "column"))
            words = SCORE_NAMES.get(self.metric, self.metric.replace("_", " "))
            name = ", ".join(filter(None, [with_unit(words, self.metric), data, variant]))
            yield (
                name,
                columns,
                [[row, *(texts.get((row, c), "") for c in columns)] for row in rows],
            )


def table(
    results: "ExperimentResults | Sequence[CellRecord]",
    rows: str = "prior",
    columns: str = "hyperprior",
    metric: str = "nll",
) -> MetricTable:
    """Means of a metric by two settings, for a paper: in Markdown, LaTeX or CSV.

    Cells that differ in their data seed or in the seed of the fit are averaged. Other settings
    that vary, and data sets unless they are rows or columns, have a table each. On each data set
    the best combination of a table is in bold, and those that are not significantly worse are
    marked.

    Parameters
    ----------
    results
        Results of `load_results`, or cells of them.
    rows, columns
        A section of the settings (``prior``), a field of one (``network.hidden``) or ``sweep``.
    metric
        A result of the cells, such as ``accuracy``.

    Raises
    ------
    ConfigError
        If there is no such setting or metric.

    Examples
    --------
    >>> print(pb.table(results, "prior", "network.hidden").to_latex())  # doctest: +SKIP
    """
    records = getattr(results, "records", results)
    records = valid_cells(records)
    settings = {r.name: {"sweep": r.sweep} | settings_row(r.cell.without_seeds) for r in records}
    known = {"sweep", *SOURCES}.union(*settings.values()).difference(SEEDS)
    for option, axis in (("--rows", rows), ("--columns", columns)):
        if axis not in known:
            raise must_be_one_of(option, known, axis)
    metrics = {n for r in records for n, value in r.results.items() if value is not None}
    if metric not in metrics:
        raise must_be_one_of("--metric", metrics, metric)
    labels = [_labels(records, settings, axis) for axis in ("dataset", rows, columns)]
    entries = []
    for data, variant, block in _blocks(records, settings, (rows, columns), labels[0]):
        places = grouped(block, lambda r: (labels[1][r.name], labels[2][r.name]))
        ranks = _ranks(places, metric, labels[0])
        for place, group in places.items():
            counts, failed = count(group), sum(r.failed for r in group)
            at_end = counts.scales_at_end or counts.rates_at_end
            marks = "†" * bool(counts.not_converged) + "‡" * bool(at_end)
            marks += FEWER * ranks[place]["fewer"]
            head = dict(zip(COLUMNS, (data, variant, *place), strict=False))
            cells = {"cells": len(group), "failed": failed, "marks": marks}
            entries.append(head | ranks[place] | cells)
    listed = pd.DataFrame(entries, columns=COLUMNS)
    return MetricTable(rows, columns, metric, listed, _note(records, listed, metric))


def _labels(
    records: Sequence[CellRecord], settings: Mapping[str, Mapping[str, Any]], axis: str
) -> dict[str, str]:
    """Headings of an axis by the names of cells."""
    if axis in SOURCES:
        labels = section_labels([record.cell for record in records], axis)
    else:
        labels = number_labels([row.get(axis, "") for row in settings.values()])
    return dict(zip(settings, labels, strict=True))


def _blocks(
    records: Sequence[CellRecord],
    settings: Mapping[str, Mapping[str, Any]],
    axes: Sequence[str],
    data: Mapping[str, str],
) -> Iterator[tuple[str, str, list[CellRecord]]]:
    """Records that differ in two settings and seeds alone: their data, what else sets them apart.

    The data are empty where they are an axis, so that a block has all.
    """

    def rest(record: CellRecord) -> tuple[tuple[str, Any], ...]:
        # Two sweeps are told apart by their settings.
        row = settings[record.name] | {"device": record.device}
        return tuple(
            (key, value)
            for key, value in row.items()
            if key != "sweep" and not any(f"{key}.".startswith(f"{axis}.") for axis in axes)
        )

    has_data = not any(axis.partition(".")[0] == "dataset" for axis in axes)
    # A section is named as a whole, unless a field of it is an axis.
    whole = {s for s in NAMED if not any(axis.partition(".")[0] == s for axis in axes)}
    names = {section: _labels(records, settings, section) for section in whole}
    blocks = grouped(records, rest)
    place = {key: data[block[0].name] if has_data else "" for key, block in blocks.items()}
    for key, block in blocks.items():
        others = [dict(other) for other in blocks if place[other] == place[key]]
        words = (
            f"{section} {names[section][block[0].name]}"
            if (section := setting.partition(".")[0]) in whole
            else setting_words(setting, value)
            for setting, value in _differing(dict(key), others)
        )
        yield place[key], ", ".join(dict.fromkeys(words)), block


def _differing(
    own: Mapping[str, Any], others: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, Any]]:
    """Settings that differ from those of other blocks."""
    same_engine = [other for other in others if other.get(ENGINE) == own.get(ENGINE)]
    for key, value in own.items():
        is_of_engine = key.startswith("inference.") and key != ENGINE
        if any(o.get(key) != value for o in (same_engine if is_of_engine else others)):
            yield key, value


def _ranks(
    places: Mapping[Hashable, Sequence[CellRecord]], metric: str, data: Mapping[str, str]
) -> dict[Hashable, dict[str, Any]]:
    """Means, differences and verdicts of places: one is best on a data set at a temperature."""
    ranks: dict[Hashable, dict[str, Any]] = {}
    for same in grouped(places, lambda place: _compared(places[place][0], data)).values():
        usable = {i: [r for r in places[place] if r.results] for i, place in enumerate(same)}
        scores = pd.DataFrame({i: by_seed(usable[i], metric) for i in usable}, dtype=float)
        overlap = overlap_of(record for cells in usable.values() for record in cells)
        seeds, every = scores.count(), len(scores)  # also those that have no such score
        compared: dict[Hashable, dict[str, Any]] = {}
        if metric in (*MORE_IS_BETTER, *LESS_IS_BETTER):
            is_less = metric in LESS_IS_BETTER
            unrepeated = [i for i, cells in usable.items() if is_unrepeated(cells)]
            compared = differences_to_best(
                scores[[i for i, cells in usable.items() if _are_ranked(cells, metric)]],
                overlap,
                less_is_better=is_less,
                unrepeated=unrepeated,
            ).to_dict("index")
        for i, place in enumerate(same):
            mean, error = mean_over_seeds(usable[i], metric)
            ranks[place] = {"mean": mean, "se": error, "seeds": int(seeds[i])}
            ranks[place] |= {"fewer": bool(0 < seeds[i] < every)} | compared.get(i, {})
    return ranks


def _are_ranked(cells: Sequence[CellRecord], metric: str) -> bool:
    """Whether a metric of cells is compared: of ELBOs, those that bound an evidence."""
    return metric != "elbo" or all(map(bounds_evidence, cells))


def _compared(record: CellRecord, data: Mapping[str, str]) -> tuple[str, float]:
    """What places share that are compared: data set, and temperature of the posterior."""
    return data[record.name], record.cell.temperature


def _note(records: Sequence[CellRecord], entries: pd.DataFrame, metric: str) -> str:
    """Meaning of the errors and marks."""
    by_data = grouped(records, lambda record: record.cell.without_seeds.dataset).values()
    repeated = [(repeated_words(group_by_settings(cells)), overlap_of(cells)) for cells in by_data]
    repeated = [(words, overlap) for words, overlap in repeated if words]
    words = {words for words, _ in repeated}
    said = words.pop() if len(words) == 1 else "seeds"
    notes = [error_note(said, *(overlap for _, overlap in repeated))] if repeated else []
    verdicts = set(entries["verdict"].dropna())
    if BEST in verdicts:
        notes.append("bold: best")
    if NOT_WORSE in verdicts:
        notes.append(
            f"*: not significantly worse ({100 * LEVEL:g} % intervals of all paired differences, "
            "which hold at once)"
        )
    undecided = entries[entries["verdict"] == UNDECIDED]
    if len(undecided):
        few = f", for which {LEAST_SEEDS} data seeds are needed"
        has_few = (undecided["seeds"] < LEAST_SEEDS).any()
        notes.append(f"undecided, without a mark: no interval{few if has_few else ''}")
    if not all(_are_ranked([record], metric) for record in records):
        notes.append("not ranked: ELBOs that have no maximum, and what is maximised in their place")
    elif not verdicts:
        notes.append(f"no best: nothing says whether a high or a low `{metric}` is better")
    if entries["marks"].str.contains(FEWER).any():
        notes.append(f"{FEWER} of fewer data seeds")
    text = "; ".join([*notes, *count(records).marked_words])
    return f"{text[:1].upper()}{text[1:]}."


def _entry_text(entry: Mapping[str, Any]) -> str:
    """Mean ± standard error; a combination without a value has failed, or lacks the metric."""
    if math.isnan(entry["mean"]):
        return FAILED if entry["failed"] else ""
    return score_text(entry["metric"], entry["mean"], entry["se"])


def _markdown_entry(entry: Mapping[str, Any]) -> str:
    text = _entry_text(entry)
    if text in ("", FAILED):
        return text
    text = f"**{text}**" if entry["verdict"] == BEST else text
    return text + r"\*" * (entry["verdict"] == NOT_WORSE) + entry["marks"]


def _latex_entry(entry: Mapping[str, Any]) -> str:
    text = _entry_text(entry)
    if text in ("", FAILED):
        return text
    text = re.sub(rf"e({MINUS}?\d+)", r"\\times 10^{\1}", text)
    text = text.replace("±", r"\pm").replace(MINUS, "-").replace(",", "{,}").replace("∞", r"\infty")
    text = rf"\mathbf{{{text}}}" if entry["verdict"] == BEST else text
    marks = ("*" * (entry["verdict"] == NOT_WORSE) + entry["marks"]).translate(MARKS)
    # After an exponent of the number the marks are raised on their own: LaTeX takes no second one.
    base = "{}" if marks and text.endswith("}") and not text.startswith(r"\mathbf") else ""
    return f"${text}{f'{base}^{{{marks}}}' if marks else ''}$"
