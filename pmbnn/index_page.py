"""``index.html`` of a results folder: its overviews, and every cell with its maps and numbers."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from pmbnn.tables import Record, data_label, label, main_score

STYLE = (
    "body{font-family:sans-serif;margin:2em;max-width:80em}img{max-width:100%}"
    "td,th{padding:.2em .8em;text-align:left}td.number{text-align:right}"
)

COLUMNS = ("accuracy", "nll", "excess_error", "validation_nll")
"""Results shown of every cell; `metrics.csv` has them all."""

REGRESSION_COLUMNS = ("rmse", "nll", "crps", "coverage_95", "validation_nll")
"""The same where every cell is a regression."""


def index_page(name: str, figures: Sequence[Path], records: Sequence[Record]) -> str:
    """One HTML page that needs nothing but the folder it lies in."""
    pictures = "".join(
        f'<h3>{escape(path.stem)}</h3><img src="figures/{escape(path.name)}" alt="">'
        for path in figures
    )
    columns = REGRESSION_COLUMNS if main_score(records) == "rmse" else COLUMNS
    head = "".join(f"<th>{column}</th>" for column in ("cell", "status", *columns))
    rows = "".join(_row(record, columns) for record in records)
    tables = ["metrics.csv", "summary.csv"]
    if any(record.get("pictures") for record in records):
        tables.append("unfamiliar.csv")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(name)}</title>'
        f"<style>{STYLE}</style><h1>{escape(name)}</h1>"
        f"<p>Tables: {', '.join(map(_link, tables))}; "
        'settings: <a href="experiment.yaml">experiment.yaml</a>; '
        'origin: <a href="provenance.json">provenance.json</a>.</p>'
        f"<h2>Overviews</h2>{pictures}"
        f"<h2>Cells</h2><table><tr>{head}</tr>{rows}</table></html>\n"
    )


def _link(file: str) -> str:
    return f'<a href="{file}">{file}</a>'


def _row(record: Record, columns: Sequence[str]) -> str:
    settings, results = record["settings"], record["results"]
    words = (
        f"{record['sweep']}: {data_label(record)}, seed {settings['dataset']['seed']}, "
        f"{label(settings['prior'])} × {label(settings['hyperprior'])}"
    )
    pages = {"excess_error": "map.png", "rmse": "curves.png"}
    page = next((pages[name] for name in pages if name in results), "metrics.json")
    link = f'<a href="cells/{escape(record["name"])}/{page}">{escape(words)}</a>'
    numbers = "".join(f'<td class="number">{_number(results.get(c))}</td>' for c in columns)
    reason = escape(record["reason"], quote=True)
    return f'<tr><td>{link}</td><td title="{reason}">{record["status"]}</td>{numbers}</tr>'


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
