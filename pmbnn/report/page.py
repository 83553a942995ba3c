"""The report: one HTML file, the answer first, then everything that it rests on."""

from collections import Counter
from collections.abc import Sequence

from pmbnn.core.errors import ConfigError
from pmbnn.experiment.contrasts import stored_contrasts
from pmbnn.experiment.published import FILE, PublishedTable, read_published
from pmbnn.fitting.helpers import ALONE, Helpers
from pmbnn.report.answer import answers_of, claims_data_table
from pmbnn.report.baselines import baseline_views
from pmbnn.report.contrasts import contrast_views
from pmbnn.report.details import cell_detail, grid_views, grids
from pmbnn.report.images import find_overviews, grouped
from pmbnn.report.prior_predictive import atlas_sheets
from pmbnn.report.published_table import published_view
from pmbnn.report.rendering import content_policy, own_file, render
from pmbnn.report.runs import run_of, status_table, unfinished_table
from pmbnn.report.tables import cell_table, mean_table, read_cells
from pmbnn.results.loading import ExperimentResults, named_apart
from pmbnn.results.store import ResultsError

SECTIONS = {
    "answer": "Answer",
    "predictions": "Predictions",
    "posterior": "Contrasts",
    "baselines": "Baseline models",
    "cells": "Cells",
    "comparisons": "Comparisons",
    "figures": "Figures",
    "diagnostics": "Diagnostics",
    "atlas": "Prior atlas",
    "runs": "Provenance",
    "published": "Published numbers",
    "glossary": "Glossary",
}
"""Sections in their order, each a template of that name."""

CONTENT = {
    "predictions": "grids",
    "posterior": "contrasts",
    "baselines": "baselines",
    "comparisons": "claims",
    "figures": "overviews",
    "atlas": "atlas",
    "published": "published",
}
"""Sections that are left out where their content is empty, and its name in the template."""

NamedTable = tuple[PublishedTable, list[str]]
"""A table of published numbers, and the experiments that name it."""


def report_page(
    folders: Sequence[ExperimentResults], tables: Sequence[NamedTable], helpers: Helpers = ALONE
) -> str:
    """HTML of the report on some results folders, with their tables of published numbers."""
    folders = named_apart(folders)
    cells = read_cells(folders, helpers)
    laid_out, overviews = list(grids(cells)), find_overviews(folders)
    # Figures of all data seeds would make the page several times as large.
    large = {
        record.name
        for grid in laid_out
        for record in grid.sheet.records
        if record.cell.data_seed == grid.seeds[0]
    }
    published = [
        published_view(number, table, [c for c in cells if c.experiment in names], overviews)
        for number, (table, names) in enumerate(t for t in tables if t[0].groups or t[0].figures)
    ]
    content = {
        "answers": answers_of(laid_out, {folder.name: _margin(folder) for folder in folders}),
        "grids": grid_views(laid_out, overviews),
        "contrasts": contrast_views(folders),
        "baselines": baseline_views(folders),
        "claims": claims_data_table(folders),
        "claimed": {name: claim for view in published for name, claim in view.claims.items()},
        "overviews": {name: grouped(figures) for name, figures in overviews.items()},
        "atlas": atlas_sheets(folders),
        "published": published,
    }
    style, script = own_file("page.css"), own_file("page.js")
    return render(
        "page.html",
        title=", ".join(folder.name for folder in folders),
        policy=content_policy(style, script),
        style=style,
        script=script,
        sections={n: title for n, title in SECTIONS.items() if content.get(CONTENT.get(n), True)},
        n_cells=len(cells),
        cell_table=cell_table(cells),
        mean_table=mean_table(cells),
        statuses=status_table(cells),
        unfinished=unfinished_table(cells),
        runs=[run_of(folder) for folder in folders],
        details=(cell_detail(cell, cell.record.name in large) for cell in cells),
        **content,
    )


def _margin(folder: ExperimentResults) -> float | None:
    """Margin of practical equivalence of an experiment, nats an observation, where it is known."""
    try:
        return stored_contrasts(folder.results.folder).margin
    except (ConfigError, OSError):
        return None


def published_tables(folders: Sequence[ExperimentResults]) -> list[NamedTable]:
    """Tables of published numbers that results folders hold, each with its experiments.

    Of several folders of one experiment each has a table of its own.

    Raises
    ------
    ResultsError
        If one is not as it must be.
    """
    experiments: dict[tuple[str, int], list[str]] = {}
    tables: dict[str, PublishedTable] = {}
    earlier: Counter[tuple[str, str]] = Counter()
    for folder, named in zip(folders, named_apart(folders), strict=True):
        path = folder.results.folder / FILE
        if not path.is_file():
            continue
        try:
            text = path.read_text(encoding="utf-8")
            tables[text] = tables.get(text) or read_published(text, str(path))
        except (OSError, ValueError) as error:
            raise ResultsError(f"`{path}` cannot be read: {error}") from error
        experiments.setdefault((text, earlier[text, folder.name]), []).append(named.name)
        earlier[text, folder.name] += 1
    return [(tables[text], names) for (text, _), names in experiments.items()]
