"""The page: every section, its style and its script in one file that asks for nothing else."""

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files

from pmbnn.report.cell_table import tables_section
from pmbnn.report.cells import Shown, read_cells
from pmbnn.report.claims_table import claims_section
from pmbnn.report.compare import compare
from pmbnn.report.details import cell_templates
from pmbnn.report.folders import Folder
from pmbnn.report.gallery import gallery_section
from pmbnn.report.markup import Markup, element, join
from pmbnn.report.overviews import figures_section, find_figures, rebuilt_section
from pmbnn.report.published import Published
from pmbnn.report.published_table import published_section
from pmbnn.report.runs import runs_section

SECTIONS = {
    "runs-section": "What was run",
    "published-section": "Published and ours",
    "rebuilt-section": "Figures of the write-ups",
    "claims-section": "Claims",
    "cells-section": "Cells",
    "gallery-section": "Maps",
    "figures-section": "Overview figures",
}


def report_page(folders: Sequence[Folder], published: Sequence[Published]) -> str:
    """HTML of the report on some results folders."""
    cells = read_cells(folders)
    figures = find_figures(folders)
    main = element(
        "main",
        runs_section(folders),
        published_section(compare(published, cells)),
        rebuilt_section(figures),
        claims_section(folders),
        tables_section(cells),
        gallery_section(cells),
        figures_section(figures),
    )
    title = f"pmbnn: {', '.join(folder.name for folder in folders)}"
    body = join([_header(folders, cells), main, _dialog(), cell_templates(cells)])
    return _document(title, body)


def _header(folders: Sequence[Folder], cells: Sequence[Shown]) -> Markup:
    names = ", ".join(folder.name for folder in folders)
    links = [element("a", words, href=f"#{key}") for key, words in SECTIONS.items()]
    header = element(
        "header",
        element("p", "pmbnn, Bayesian neural networks as PyMC models", class_="quiet"),
        element("h1", names),
        element("p", f"{len(cells)} cells, rebuilt from stored results; nothing was fitted again."),
    )
    return join([header, element("nav", *links, aria_label="Sections")])


def _dialog() -> Markup:
    """Where a cell or a figure is shown; the script fills it."""
    heading = element("h2", "", id="detail-title", tabindex="-1")
    close = element("button", "Close", type="button", id="detail-close")
    return element(
        "dialog",
        element("div", heading, close, class_="bar"),
        element("div", id="detail-content"),
        id="detail",
        aria_labelledby="detail-title",
    )


def _document(title: str, body: Markup) -> str:
    style, script = _file("page.css"), _file("page.js")
    # Nothing but the two parts below, by their hashes, and pictures inside the page.
    policy = (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    head = join(
        [
            element("meta", charset="utf-8"),
            element("meta", http_equiv="Content-Security-Policy", content=policy),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", name="color-scheme", content="light dark"),
            element("title", title),
            # A tab's icon would be asked of the server otherwise.
            Markup('<link rel="icon" href="data:,">'),
            element("style", style),
        ]
    )
    page = element("html", element("head", head), element("body", body, element("script", script)),
                   lang="en")  # fmt: skip
    return f"<!doctype html>\n{page}\n"


def _file(name: str) -> Markup:
    return Markup(files("pmbnn.report").joinpath(name).read_text(encoding="utf-8"))


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
