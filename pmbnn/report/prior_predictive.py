"""The page's section on prior predictive checks, where a results folder has some."""

from collections.abc import Sequence
from typing import NamedTuple

from pmbnn.prior_predictive.store import (
    PriorLabels,
    StoredPrior,
    figure_path,
    measure_headings,
    prior_labels,
    stored_priors,
)
from pmbnn.report.images import Image, figure_image
from pmbnn.report.numbers import plain
from pmbnn.report.tables import DataTable, Entry, Heading
from pmbnn.results.loading import ExperimentResults
from pmbnn.results.store import Results

ATLAS = {"atlas": "Prior atlas"}
"""Section that stands where functions were drawn from priors."""


class PriorView(NamedTuple):
    """One prior × hyperprior: its figure, the place of its file, and its numbers in words."""

    key: str
    title: str
    place: str
    image: Image
    numbers: dict[str, str]


class AtlasSheet(NamedTuple):
    """Every prior × hyperprior of one data set and network; without figures of images."""

    title: str
    table: DataTable
    views: list[PriorView]


def atlas_sheets(folders: Sequence[ExperimentResults]) -> list[AtlasSheet]:
    """A sheet for each data set and network that the folders have priors of."""
    sheets: list[AtlasSheet] = []
    for folder in folders:
        groups: dict[tuple[str, ...], list[tuple[StoredPrior, PriorLabels]]] = {}
        priors = stored_priors(folder.results)
        for prior, words in zip(priors, prior_labels(priors), strict=True):
            groups.setdefault((prior.cell.sweep, words.data, words.network), []).append(
                (prior, words)
            )
        for (sweep, *what), group in groups.items():
            title = f"{folder.name}, {sweep}: {', '.join(what)}"
            sheets.append(_sheet(f"atlas-{len(sheets)}", title, group, folder.results))
    return sheets


def _sheet(
    name: str, title: str, group: Sequence[tuple[StoredPrior, PriorLabels]], results: Results
) -> AtlasSheet:
    shown = measure_headings([prior for prior, _ in group])
    headings = [Heading("prior", choose=True), Heading("hyperprior", choose=True)]
    headings += [Heading(w, number=True, note="± Monte-Carlo error") for w in shown.values()]
    rows = [
        [Entry(words.prior), Entry(words.hyperprior), *(_entry(prior, n) for n in shown)]
        for prior, words in group
    ]
    table = DataTable(name, f"What priors say, {title}", "priors", headings, rows)
    views = [
        _view(f"{name}-figure-{number}", prior, words, results)
        for number, (prior, words) in enumerate(group)
        if figure_path(results, prior.name).is_file()
    ]
    return AtlasSheet(title, table, views)


def _view(key: str, prior: StoredPrior, words: PriorLabels, results: Results) -> PriorView:
    path = figure_path(results, prior.name)
    return PriorView(
        key=key,
        title=f"{words.prior} × {words.hyperprior}",
        place=f"{results.folder.resolve().name}/prior/{path.name}",
        image=figure_image(path),
        numbers={said: _entry(prior, n).words for n, said in measure_headings([prior]).items()},
    )


def _entry(prior: StoredPrior, name: str) -> Entry:
    """A number with its Monte-Carlo error, where it has one."""
    value, error = prior.numbers.get(name), prior.numbers.get(f"{name}_mcse")
    if value is None:
        return Entry("")
    return Entry(plain(value) if error is None else f"{plain(value)} ± {plain(error, 2)}", value)
