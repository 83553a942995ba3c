"""What a finished sweep shows of classifiers of images: their uncertainty, and how a fit went."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from pmbnn.results.caveats import AT_GRID_END, count, has_converged
from pmbnn.results.groups import Variant, best_group, families, group_by_settings, variants
from pmbnn.results.names import combination_label, dataset_label, distinct, seed_label
from pmbnn.results.record import CellRecord
from pmbnn.results.tables import mean_and_error

SHOWN_SCORES = ("sd", "entropy")
"""Uncertainty scores whose areas are shown; ``ood.csv`` has them all."""

LONGEST_REASON = 100
"""Characters of the reason why a set was unavailable."""

MOST_DIAGNOSED = 4
"""Cells of a sweep whose snapshots are shown; ``metrics.json`` of a cell has them all."""

JUDGED = {"accuracy": ".4f", "log_likelihood": ".4f", "elbo": ".4f", "evidence": ".3g"}
"""What is shown of each part at each step."""

HEADINGS = {"log_likelihood": "log-lik.", "elbo": "ELBO"}


def ood_tables(records: Sequence[CellRecord]) -> list[Table]:
    """How well each uncertainty score detects out-of-distribution images, a table a data set.

    A row is a cell, or the mean over data seeds; a column is a set.
    """
    shown = [r for r in records if r.images and r.images["ood"]]
    return [_ood_table(family) for family in families(shown)]


def reliability_table(records: Sequence[CellRecord]) -> Table | None:
    """How many cells of each data set did not converge, or chose an end of a grid; None of none."""
    counted = [(v.label, v.records, count(v.records)) for v in variants(records)]
    table = Table(title="How far these cells can be relied on", title_justify="left")
    table.add_column("cells")
    parts = {
        "failed": [(len(of) - c.fitted, len(of)) for _, of, c in counted],
        "not converged": [(c.not_converged, c.fitted) for *_, c in counted],
        "improper": [(c.improper, c.fitted) for *_, c in counted],
        f"scale {AT_GRID_END}": [(c.scales_at_end, c.scales) for *_, c in counted],
        f"learning rate {AT_GRID_END}": [(c.rates_at_end, c.rates) for *_, c in counted],
    }
    always = ("failed", "not converged")
    shown = {
        name: numbers
        for name, numbers in parts.items()
        if name in always or any(of if "grid" in name else n for n, of in numbers)
    }
    for name in shown:
        table.add_column(name, justify="right")
    for number, (words, *_) in enumerate(counted):
        entries = (numbers[number] for numbers in shown.values())
        table.add_row(words, *(f"{n} of {of}" if of else "" for n, of in entries))
    return table if counted else None


def unavailable_lines(records: Sequence[CellRecord]) -> list[str]:
    """Sets that some cell could not be shown and why, a line each."""
    reasons: dict[str, str] = {}
    for record in records:
        reasons |= (record.images or {}).get("unavailable", {})
    return [
        f"out-of-distribution set {name} was unavailable: "
        + textwrap.shorten(reason, LONGEST_REASON, placeholder=" …")
        for name, reason in reasons.items()
    ]


def diagnostics_tables(records: Sequence[CellRecord]) -> list[Table]:
    """How the fits of each sweep went, nats an image: the first data seed of all settings.

    The best cell is first where something was held out to choose it by. Below the last table of
    a sweep stands how many more there are.
    """
    sweeps: dict[str, list[CellRecord]] = {}
    for record in records:
        if record.diagnostics:
            sweeps.setdefault(record.sweep, []).append(record)
    return [table for of_sweep in sweeps.values() for table in _diagnostics_of_sweep(of_sweep)]


def _diagnostics_of_sweep(records: Sequence[CellRecord]) -> list[Table]:
    titled = _titled(records)
    best = best_group(records)[:1]
    titled.sort(key=lambda pair: pair[1] not in best)
    tables = [_diagnostics_table(*pair) for pair in titled[:MOST_DIAGNOSED]]
    more = len(titled) - len(tables)
    if more:
        tables[-1].caption = f"and {more} more: `diagnostics` in metrics.json of their cells"
        tables[-1].caption_justify = "left"
    return tables


def _titled(records: Sequence[CellRecord]) -> list[tuple[str, CellRecord]]:
    """The first seed of all settings of a sweep, with a title that no other has."""
    found = []
    for family in families(records):
        groups = [(v.words, g[0]) for v in family for g in group_by_settings(v.records)]
        cells = [record.cell for _, record in groups]
        priors, hyperpriors = (
            distinct([getattr(cell, name) for cell in cells]) for name in ("prior", "hyperprior")
        )
        for (words, record), *names in zip(groups, priors, hyperpriors, strict=True):
            status = [] if has_converged(record) else ["not converged"]
            title = ", ".join([seed_label(record.cell), *words, " × ".join(names), *status])
            found.append((f"Steps of {record.sweep} (nats an image): {title}", record))
    return found


def _ood_table(family: Sequence[Variant]) -> Table:
    cell = family[0].records[0].cell
    title = (
        f"AUROC of out-of-distribution images by {' / '.join(SHOWN_SCORES)}, "
        f"{cell.sweep}: {dataset_label(cell.dataset)}"
    )
    every = [record for variant in family for record in variant.records]
    sets = list(dict.fromkeys(name for r in every for name in r.images["ood"]))
    table = Table(title=title, title_justify="left")
    table.add_column("cell")
    for name in sets:
        table.add_column(name, justify="right")
    for variant in family:
        for group in group_by_settings(variant.records):
            words = "; ".join([*variant.words, combination_label(group[0].cell)])
            table.add_row(words, *(_areas(group, name) for name in sets))
    return table


def _areas(group: Sequence[CellRecord], name: str) -> str:
    """Mean areas of a set over the cells that were shown it; empty where none was."""
    found = [r.images["ood"].get(name) for r in group]
    found = [numbers for numbers in found if numbers is not None]
    means = [mean_and_error([n[f"auroc_{score}"] for n in found])[0] for score in SHOWN_SCORES]
    return " / ".join(f"{mean:.3f}" for mean in means) if found else ""


def _diagnostics_table(title: str, record: CellRecord) -> Table:
    diagnostics = record.diagnostics
    parts = diagnostics["parts"]
    shown = ["train", "validation" if "validation" in parts else "test"]
    table = Table(title=title, title_justify="left")
    for column in ("step", "KL", *(f"{p} {HEADINGS.get(n, n)}" for p in shown for n in JUDGED)):
        table.add_column(column, justify="right")
    for i, step in enumerate(diagnostics["step"]):
        table.add_row(
            f"{step:,}",
            _number(diagnostics["kl"][i], ".4f"),
            *(_judged(parts[part], i, name) for part in shown for name in JUDGED),
        )
    return table


def _judged(part: Mapping[str, Any], i: int, name: str) -> str:
    return _number(part[name][i], JUDGED[name])


def _number(value: float | None, form: str) -> str:
    """A number; what was not finite is stored as nothing."""
    return "" if value is None else format(value, form)
