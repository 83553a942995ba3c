"""Overview figures of each results folder, and which published figures they repeat."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from pmbnn.experiment.published import PublishedFigure, PublishedTable
from pmbnn.figures import sheet_of, sheets
from pmbnn.report.images import Image, figure_image
from pmbnn.results.loading import ExperimentResults


class Overview(NamedTuple):
    """An overview: the name of its part of the page, what it is of, its file, its folder."""

    key: str
    group: str
    words: str
    path: Path
    folder: str

    @property
    def place(self) -> str:
        """Where it lies, from the folder that holds the results folder."""
        return f"{self.folder}/figures/{self.path.name}"

    @property
    def image(self) -> Image:
        """The figure itself."""
        return figure_image(self.path)


class OverviewGroup(NamedTuple):
    """Overviews of one data set."""

    title: str
    overviews: list[Overview]


class RepeatedFigure(NamedTuple):
    """A published figure: the command that draws ours, and ours on this page."""

    name: str
    shows: str
    command: str
    ours: list[Overview]


def find_overviews(folders: Sequence[ExperimentResults]) -> dict[str, list[Overview]]:
    """Overviews of every folder by the name of its experiment, in the order of its records."""
    found: dict[str, list[Overview]] = {}
    number = 0
    for folder in folders:
        own = {sheet.file: sheet for sheet in sheets(folder.records)}
        order = {file: at for at, file in enumerate(own)}
        placed = [(sheet_of(path, own), path) for path in folder.figures]
        placed.sort(key=lambda pair: (order.get(pair[0], len(order)), pair[1].name))
        for file, path in placed:
            group = f"{own[file].records[0].sweep}: {own[file].title}" if file else "of all cells"
            kind = path.stem.removeprefix(file).strip("-").replace("-", " ")
            name = folder.results.folder.resolve().name
            overview = Overview(f"figure-{number}", group, f"{kind}: {group}", path, name)
            found.setdefault(folder.name, []).append(overview)
            number += 1
    return found


def grouped(overviews: Sequence[Overview]) -> list[OverviewGroup]:
    """Overviews of each data set together."""
    groups: dict[str, list[Overview]] = {}
    for overview in overviews:
        groups.setdefault(overview.group, []).append(overview)
    return [OverviewGroup(title, shown) for title, shown in groups.items()]


def repeated_figures(
    published: PublishedTable, overviews: Mapping[str, Sequence[Overview]]
) -> list[RepeatedFigure]:
    """Every published figure, with the command that draws ours and where ours is."""
    return [_repeated(figure, published.command, overviews) for figure in published.figures]


def _repeated(
    figure: PublishedFigure, command: str, overviews: Mapping[str, Sequence[Overview]]
) -> RepeatedFigure:
    ours = [
        overview
        for experiment in figure.experiments
        for overview in overviews.get(experiment, ())
        if any(fnmatchcase(overview.path.stem, pattern) for pattern in figure.files)
    ]
    command = figure.command or command.replace("{experiment}", figure.experiments[0])
    return RepeatedFigure(figure.name, figure.shows, command, ours)
