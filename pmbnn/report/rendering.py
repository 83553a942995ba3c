"""Pages from templates, in which everything is escaped, and files that are written whole."""

import base64
import hashlib
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pmbnn.compare.scores import SCORES, scores_of
from pmbnn.core.numbers import number_text
from pmbnn.report.glossary import GLOSSARY, anchor, link_terms, meaning
from pmbnn.results.names import combination_label, seed_label
from pmbnn.results.present import storing, unwritable
from pmbnn.results.record import CellRecord, choices_at_end
from pmbnn.results.store import RECORD, TEMPORARY
from pmbnn.results.tables import of_targets, with_unit


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("pmbnn.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["terms"] = link_terms
    environment.globals |= {"GLOSSARY": GLOSSARY, "anchor": anchor, "meaning": meaning}
    return environment


def render(template: str, **content: object) -> str:
    """Text of a template with its content."""
    return _environment().get_template(template).render(content)


def own_file(name: str) -> Markup:
    """Style or script of this package, which goes into a page as it is."""
    return Markup(files("pmbnn.report").joinpath(name).read_text(encoding="utf-8"))


def content_policy(style: str, script: str) -> str:
    """Content-Security-Policy that lets in these two, by their hashes, and images in the page."""
    return (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


# Where the page goes: whole or not at all


def check_writable(folder: Path) -> None:
    """Make the folder, and see that a file can be written in it before any work is done.

    Raises
    ------
    ResultsError, StorageError
        If it cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise unwritable(folder, error) from error


def write_page(path: Path, text: str) -> None:
    """Write the page so that its name never stands for half of it.

    Raises
    ------
    StorageError
        If it cannot be written.
    """
    part = path.with_name(f"{TEMPORARY}{path.name}")
    with storing(path):
        try:
            part.write_text(text, encoding="utf-8")
            os.replace(part, path)
        except OSError:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            raise


# ``index.html`` of a results folder: its overviews, and every cell with its numbers


class CellRow(NamedTuple):
    """A cell in the table: its name, the address of its link, and the entries of its columns."""

    name: str
    link: str
    status: str
    reason: str
    numbers: list[str]


def index_page(
    name: str,
    figures: Sequence[Path],
    records: Sequence[CellRecord],
    cells: Path,
    superseded: str = "",
) -> str:
    """HTML page of a results folder, which refers to files of this folder alone.

    `cells` is the folder of the cells; `superseded` says how many of them are left out.
    """
    scores = list(dict.fromkeys(name for scores in scores_of(records) for name in scores.index))
    results = of_targets(scores, (name for record in records for name in record.results))
    columns = []
    for score in scores:
        columns += [name for name, (base, _) in results.items() if base == score] or [score]
    tables = ["metrics.csv", "summary.csv"]
    if any(record.images for record in records):
        tables.append("ood.csv")
    return render(
        "index.html",
        name=name,
        superseded=superseded,
        tables=tables,
        figures=[path.name for path in figures],
        columns=[with_unit(column, column) for column in columns],
        rows=[_row(record, columns, cells) for record in records],
    )


def _row(record: CellRecord, columns: Sequence[str], cells: Path) -> CellRow:
    cell, results = record.cell, record.results
    label = f"{record.sweep}: {seed_label(cell)}, {combination_label(cell)}"
    numbers = [number_text(results.get(column), decimals=4) for column in columns]
    scores = SCORES.get(record.predictive or "")
    figures = () if scores is None else scores.figures
    file = next((name for name in figures if (cells / record.name / name).is_file()), RECORD)
    status = ", ".join([record.status, *choices_at_end(record)])
    return CellRow(label, f"cells/{record.name}/{file}", status, record.reason, numbers)
