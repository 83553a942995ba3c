"""Overview figures of each results folder, and which of the write-ups' figures they rebuild."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from pmbnn.figures.write import sheets
from pmbnn.report.folders import Folder
from pmbnn.report.images import figure_address
from pmbnn.report.markup import Markup, element, join


class Rebuilt(NamedTuple):
    """A figure of a write-up, the experiments it is of here, and names of its files."""

    name: str
    words: str
    experiments: tuple[str, ...]
    files: tuple[str, ...]


REBUILT = (
    Rebuilt("R0", "a deterministic network beside a Bayesian one", ("priors",), ("*network*",)),
    Rebuilt("R1", "the data", ("priors", "noise", "mnist_report"), ("*-points", "*-samples")),
    Rebuilt("R2", "design of the grid: prior × hyperprior", ("priors",), ("*-design",)),
    Rebuilt("R3", "circles: probability and uncertainty", ("priors",), ("*circles*-maps",)),
    Rebuilt("R4", "moons: probability and uncertainty", ("priors",), ("*moons*-maps",)),
    Rebuilt(
        "R5",
        "fixed scale against a learned one on circles",
        ("scales", "priors"),
        ("*circles*-scales",),
    ),
    Rebuilt(
        "R6", "weights of the last layer, Laplace beside Cauchy", ("priors",), ("*-last-layer",)
    ),
    Rebuilt(
        "R7", "variance over classes, expected error rate", ("mnist_report",), ("*-uncertainty",)
    ),
    Rebuilt("R8", "mistakes without doubt", ("mnist_report",), ("*-confident-mistakes",)),
    Rebuilt("R9", "pictures with the lowest confidence", ("mnist_report",), ("*-least-confident",)),
    Rebuilt("S2", "both runs on their way", ("mnist_tempered",), ("published-*-training",)),
    Rebuilt(
        "S2",
        "digits and letters, the rule of rejection",
        ("mnist_tempered",),
        ("published-*-letters",),
    ),
    Rebuilt("S3", "regression: predictions and their bands", ("regression_sine",), ("*-curves",)),
    Rebuilt("S3", "LeNet-5: weights early and late", ("mnist_lenet",), ("published-*-weights",)),
    Rebuilt(
        "S3",
        "LeNet-5: digits and noise, early and late",
        ("mnist_lenet",),
        ("published-*-examples",),
    ),
    Rebuilt("S4", "toy regression, near and far", ("regression_quartic",), ("*-curves",)),
    Rebuilt("S4", "eight images of noise, both networks", ("mnist_backprop",), ("*-noise",)),
    # `python -m pmbnn.predict … --figure results/mnist_backprop/figures/pictures.png`
    Rebuilt("S4", "seven pictures, both networks", ("mnist_backprop",), ("pictures",)),
)
"""Figures of the write-ups, in their order."""


class Figure(NamedTuple):
    """An overview: the name of its part of the page, what it is of, and its file."""

    key: str
    group: str
    words: str
    path: Path


def find_figures(folders: Sequence[Folder]) -> Mapping[str, list[Figure]]:
    """Overviews of every folder by the name of its experiment, in the order of its records."""
    found: dict[str, list[Figure]] = {}
    number = 0
    for folder in folders:
        titles = {sheet.file: sheet.title for sheet in sheets(folder.records)}
        order = {file: at for at, file in enumerate(titles)}
        placed = [(sheet_of(path, titles), path) for path in folder.figures]
        placed.sort(key=lambda pair: (order.get(pair[0], len(order)), pair[1].name))
        for sheet, path in placed:
            group = f"{_sweep(folder, sheet)}{titles[sheet]}" if sheet else "of all cells"
            kind = path.stem.removeprefix(sheet).strip("-").replace("-", " ")
            figure = Figure(f"figure-{number}", group, f"{kind}: {group}", path)
            found.setdefault(folder.name, []).append(figure)
            number += 1
    return found


def sheet_of(path: Path, files: Iterable[str]) -> str:
    """Start of a figure's file name that is a sheet's; the longest, or empty where none is."""
    fitting = [file for file in files if path.stem.startswith(f"{file}-")]
    return max(fitting, key=len, default="")


def _sweep(folder: Folder, sheet: str) -> str:
    own = next(s for s in sheets(folder.records) if s.file == sheet)
    return f"{own.records[0]['sweep']}: "


def figures_section(figures: Mapping[str, list[Figure]]) -> Markup:
    """Every overview, small; a button shows it large."""
    parts = []
    for experiment, own in figures.items():
        groups: dict[str, list[Figure]] = {}
        for figure in own:
            groups.setdefault(figure.group, []).append(figure)
        parts.append(element("h3", experiment))
        parts += [_group(name, shown, at == 0) for at, (name, shown) in enumerate(groups.items())]
    if not parts:
        parts = [element("p", "These results folders hold no figures.")]
    return element("section", element("h2", "Overview figures"), join(parts), id="figures-section")


def _group(name: str, figures: Sequence[Figure], is_open: bool) -> Markup:
    summary = element("summary", f"{name} ({len(figures)})")
    shown = element("div", join(map(_button, figures)), class_="figures")
    return element("details", summary, shown, open=is_open)


def _button(figure: Figure) -> Markup:
    address, width, height = figure_address(figure.path)
    image = element("img", src=address, alt="", width=width, height=height, loading="lazy")
    words = element("span", figure.words.split(":")[0])
    return element("button", image, words, type="button", class_="overview", id=figure.key,
                   data_figure=figure.words, aria_label=f"Enlarge {figure.words}")  # fmt: skip


def rebuilt_section(figures: Mapping[str, list[Figure]]) -> Markup:
    """Figures of the write-ups and where they are on this page."""
    rows = [
        element(
            "tr",
            element("th", rebuilt.name, scope="row"),
            element("td", rebuilt.words),
            element("td", _places(rebuilt, figures)),
        )
        for rebuilt in REBUILT
    ]
    heads = ("figure", "what it shows", "rebuilt here")
    head = element("tr", *(element("th", name, scope="col") for name in heads))
    table = element("table", element("thead", head), element("tbody", *rows))
    title = "Figures of the write-ups"
    scroll = element("div", table, class_="scroll", tabindex="0", role="region", aria_label=title)
    return element("section", element("h2", title), scroll, id="rebuilt-section")


def _places(rebuilt: Rebuilt, figures: Mapping[str, list[Figure]]) -> Markup:
    """Links to the files that match; else the experiments that draw them."""
    found = [
        figure
        for experiment in rebuilt.experiments
        for figure in figures.get(experiment, ())
        if any(fnmatchcase(figure.path.stem, pattern) for pattern in rebuilt.files)
    ]
    if found:
        links = [element("a", f.words, href=f"#{f.key}", data_show=f.key) for f in found]
        return element("ul", *(element("li", link) for link in links), class_="places")
    file = element("code", f"experiments/{rebuilt.experiments[0]}.yaml")
    return element("span", "not among these results; ", file, class_="quiet")
