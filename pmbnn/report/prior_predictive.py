"""Section on prior predictive checks, where a results folder has some."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pmbnn.prior_predictive.store import (
    PriorLabels,
    StoredPrior,
    figure_path,
    match_path,
    measure_headings,
    prior_labels,
    stored_priors,
)
from pmbnn.report.images import Image, figure_image
from pmbnn.report.tables import DataTable, Entry, Heading
from pmbnn.results.loading import ExperimentResults
from pmbnn.results.store import Results
from pmbnn.results.tables import score_text


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
        for prior, labels in zip(priors, prior_labels(priors), strict=True):
            key = prior.cell.sweep, labels.data, labels.network
            groups.setdefault(key, []).append((prior, labels))
        for (sweep, *names), group in groups.items():
            title = f"{folder.name}, {sweep}: {', '.join(names)}"
            sheets.append(_sheet(f"atlas-{len(sheets)}", title, group, folder.results))
    return sheets


def _sheet(
    name: str, title: str, group: Sequence[tuple[StoredPrior, PriorLabels]], results: Results
) -> AtlasSheet:
    measures = measure_headings([prior for prior, _ in group])
    headings = [Heading("prior", choose=True), Heading("hyperprior", choose=True)]
    headings += [Heading(h, number=True, note="± Monte-Carlo error") for h in measures.values()]
    rows = [
        [Entry(labels.prior), Entry(labels.hyperprior), *(_entry(prior, n) for n in measures)]
        for prior, labels in group
    ]
    table = DataTable(name, f"What priors say, {title}", "priors", headings, rows)
    views = [
        _view(f"{name}-{kind}-{number}", prior, labels, results, path_of(results, prior.name))
        for number, (prior, labels) in enumerate(group)
        for kind, path_of in (("figure", figure_path), ("match", match_path))
        if path_of(results, prior.name).is_file()
    ]
    return AtlasSheet(title, table, views)


def _view(
    key: str, prior: StoredPrior, labels: PriorLabels, results: Results, path: Path
) -> PriorView:
    title = f"{labels.prior} × {labels.hyperprior}"
    if path == match_path(results, prior.name):
        title += ", before and after matching"
    place = f"{results.folder.resolve().name}/prior/{path.name}"
    numbers = {h: _entry(prior, name).text for name, h in measure_headings([prior]).items()}
    return PriorView(key, title, place, figure_image(path), numbers)


def _entry(prior: StoredPrior, name: str) -> Entry:
    """A number with its Monte-Carlo error, where it has one."""
    value, error = prior.numbers.get(name), prior.numbers.get(f"{name}_mcse")
    return Entry(score_text(name, value, error), value)
