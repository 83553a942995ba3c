"""The report: one HTML file, the answer first, then everything that it rests on."""

from collections.abc import Sequence

from pmbnn.experiment.published import FILE, PublishedTable, read_published
from pmbnn.fitting.helpers import ALONE, Helpers
from pmbnn.report.answer import answer_of, claims_data_table, verdict_views
from pmbnn.report.baselines import baseline_views
from pmbnn.report.details import cell_detail, grid_view, grids
from pmbnn.report.images import find_overviews, grouped
from pmbnn.report.prior_predictive import ATLAS, atlas_sheets
from pmbnn.report.published_table import published_view
from pmbnn.report.rendering import content_policy, own_file, render
from pmbnn.report.runs import run_of, status_table, unfinished_table
from pmbnn.report.tables import cell_table, mean_table, read_cells
from pmbnn.results.loading import ExperimentResults
from pmbnn.results.store import ResultsError

VERDICTS = {"verdicts": "Verdicts"}
"""First section, where a posterior was sampled."""

ANSWER = {"answer": "Answer"}

BASELINES = {"baselines": "Baseline models"}
"""Section on baseline models, where `pmbnn baselines` fitted some."""

SECTIONS = {
    "maps": "Maps",
    "cells": "Cells",
    "comparisons": "Comparisons",
    "figures": "Figures",
    "diagnostics": "Diagnostics",
    "runs": "What was run",
}
"""Sections of every page after the answer. Prior predictive checks and published numbers follow,
where there are some."""

NamedTable = tuple[PublishedTable, list[str]]
"""A table of published numbers, and the experiments that name it."""


def report_page(
    folders: Sequence[ExperimentResults], tables: Sequence[NamedTable], helpers: Helpers = ALONE
) -> str:
    """HTML of the report on some results folders, with their tables of published numbers."""
    cells = read_cells(folders, helpers)
    laid_out = list(grids(cells))
    overviews, verdicts = find_overviews(folders), verdict_views(folders)
    baselines, atlas = baseline_views(folders), atlas_sheets(folders)
    published = [
        published_view(number, table, [c for c in cells if c.experiment in names], overviews)
        for number, (table, names) in enumerate(t for t in tables if t[0].groups or t[0].figures)
    ]
    style, script = own_file("page.css"), own_file("page.js")
    return render(
        "page.html",
        title=", ".join(folder.name for folder in folders),
        policy=content_policy(style, script),
        style=style,
        script=script,
        sections=(VERDICTS if verdicts else {})
        | ANSWER
        | (BASELINES if baselines else {})
        | SECTIONS
        | (ATLAS if atlas else {})
        | ({"published": "Published"} if published else {}),
        n_cells=len(cells),
        verdicts=verdicts,
        answers=[answer_of(grid) for grid in laid_out],
        baselines=baselines,
        grids=[grid_view(number, grid) for number, grid in enumerate(laid_out)],
        cell_table=cell_table(cells),
        mean_table=mean_table(cells),
        claims=claims_data_table(folders),
        claimed={name: claim for view in published for name, claim in view.claims.items()},
        overviews={name: grouped(figures) for name, figures in overviews.items()},
        atlas=atlas,
        statuses=status_table(cells),
        unfinished=unfinished_table(cells),
        runs=[run_of(folder) for folder in folders],
        published=published,
        details=map(cell_detail, cells),
    )


def published_tables(folders: Sequence[ExperimentResults]) -> list[NamedTable]:
    """Tables of published numbers that results folders hold, each with its experiments.

    Raises
    ------
    ResultsError
        If one is not as it must be.
    """
    experiments: dict[str, list[str]] = {}
    tables: dict[str, PublishedTable] = {}
    for folder in folders:
        path = folder.results.folder / FILE
        if not path.is_file():
            continue
        try:
            text = path.read_text(encoding="utf-8")
            tables[text] = tables.get(text) or read_published(text, str(path))
        except (OSError, ValueError) as error:
            raise ResultsError(f"`{path}` cannot be read: {error}") from error
        experiments.setdefault(text, []).append(folder.name)
    return [(tables[text], names) for text, names in experiments.items()]
