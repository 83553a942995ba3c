"""Images inside the page: drawn or read, made small, encoded as data addresses."""

import base64
import io
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.colors import Colormap
from PIL import Image as Raster

from pmbnn.experiment.published import PublishedTable
from pmbnn.figures import sheet_of, sheets
from pmbnn.figures.style import reduce_colours
from pmbnn.results.loading import ExperimentResults, is_named
from pmbnn.results.present import MOST_PIXELS
from pmbnn.results.reading import PlaneMap
from pmbnn.results.store import ResultsError

SHADES = 255
"""Shades of a map; the last colour of its palette is that of the line."""

WIDEST = 1400
"""Pixels across a figure: more than a page shows at twice the usual density."""

THUMBNAIL = 320
"""Pixels across a small figure that stands for a large one."""

MAP_QUALITY = 85
"""Quality of maps, of 100, which are a third as large as without loss."""

MAP_SCALE = 2
"""Pixels a point of the map: the decision boundary is then one in two of them."""


class Image(NamedTuple):
    """An image inside the page: its data address, and its size in pixels of the page."""

    src: str
    width: int
    height: int


def figure_image(path: Path, widest: int = WIDEST) -> Image:
    """The figure of a file, at most that many pixels wide.

    Raises
    ------
    ResultsError
        If the file holds no image.
    """
    try:
        with Raster.open(path) as raster:
            if raster.width * raster.height > MOST_PIXELS:
                raise ValueError(f"it has more than {MOST_PIXELS:,} pixels")
            raster.load()
            figure = _on_white(raster)
    except (OSError, SyntaxError, ValueError, Raster.DecompressionBombError) as error:
        raise ResultsError(f"The figure `{path}` cannot be read: {error}.") from error
    if figure.width > widest:
        height = max(1, round(figure.height * widest / figure.width))
        figure = figure.resize((widest, height), Raster.Resampling.LANCZOS)
        # Without the shades that resizing makes, a third of the size is left.
        figure = reduce_colours(np.asarray(figure)).convert("RGB")
    return Image(_address(figure, lossless=True), *figure.size)


def map_image(plane: PlaneMap, values: np.ndarray, colours: Colormap, highest: float) -> Image:
    """Map of ``values`` over the plane with its decision boundary.

    ``x1`` goes to the right and ``x2`` up.
    """
    shade = np.rint(np.clip(values / highest, 0, 1) * (SHADES - 1)).astype(np.uint8)
    shade = shade.repeat(MAP_SCALE, axis=0).repeat(MAP_SCALE, axis=1)
    shade[_boundary(plane.probability)] = SHADES
    image = Raster.fromarray(np.ascontiguousarray(shade.T[::-1]), "L")
    palette = np.zeros((SHADES + 1, 3), np.uint8)
    palette[:SHADES] = colours(np.linspace(0, 1, SHADES), bytes=True)[:, :3]
    image.putpalette(palette.tobytes())
    return Image(_address(image.convert("RGB")), len(plane.x1), len(plane.x2))


def _boundary(probability: np.ndarray) -> np.ndarray:
    """Pixels where the first class begins to have a probability above one half."""
    first = (probability > 0.5).repeat(MAP_SCALE, axis=0).repeat(MAP_SCALE, axis=1)
    edge = np.zeros_like(first)
    edge[1:] |= first[1:] != first[:-1]
    edge[:, 1:] |= first[:, 1:] != first[:, :-1]
    return edge


def _on_white(image: Raster.Image) -> Raster.Image:
    """An image without transparency."""
    if image.mode == "RGB":
        return image.copy()
    rgba = image.convert("RGBA")
    return Raster.alpha_composite(Raster.new("RGBA", rgba.size, "white"), rgba).convert("RGB")


def _address(image: Raster.Image, lossless: bool = False) -> str:
    """Data address of an image as WebP, a quarter smaller than PNG."""
    data = io.BytesIO()
    image.save(data, "WEBP", lossless=lossless, quality=50 if lossless else MAP_QUALITY, method=2)
    return f"data:image/webp;base64,{base64.b64encode(data.getvalue()).decode('ascii')}"


# Overview figures of each results folder, and which published figures they repeat


class Overview(NamedTuple):
    """An overview: the name of its part of the page, its group and title, its file and folder."""

    key: str
    group: str
    title: str
    path: Path
    folder: str

    @property
    def place(self) -> str:
        """Path of its file, from the folder that holds the results folder."""
        return f"{self.folder}/figures/{self.path.name}"

    @property
    def image(self) -> Image:
        """The figure itself."""
        return figure_image(self.path)


class RepeatedFigure(NamedTuple):
    """A published figure: the command that draws ours, and ours on this page."""

    name: str
    shows: str
    command: str
    ours: list[Overview]


def find_overviews(folders: Sequence[ExperimentResults]) -> dict[str, list[Overview]]:
    """Overviews of every folder by the name of its experiment, in the order of its records."""
    overviews: dict[str, list[Overview]] = {}
    numbers = count()
    for folder in folders:
        by_file = {sheet.file: sheet for sheet in sheets(folder.records)}
        # Figures that are of no sheet come last.
        order = {file: number for number, file in enumerate([*by_file, ""])}
        figures = [(sheet_of(path, by_file), path) for path in folder.figures]
        for file, path in sorted(figures, key=lambda pair: (order[pair[0]], pair[1].name)):
            sheet = by_file.get(file)
            group = "of all cells" if sheet is None else f"{sheet.records[0].sweep}: {sheet.title}"
            kind = path.stem.removeprefix(file).strip("-").replace("-", " ")
            name, key = folder.results.folder.resolve().name, f"figure-{next(numbers)}"
            overview = Overview(key, group, f"{kind}: {group}", path, name)
            overviews.setdefault(folder.name, []).append(overview)
    return overviews


def grouped(overviews: Sequence[Overview]) -> dict[str, list[Overview]]:
    """Overviews of each data set together, by its title."""
    groups: dict[str, list[Overview]] = {}
    for overview in overviews:
        groups.setdefault(overview.group, []).append(overview)
    return groups


def repeated_figures(
    published: PublishedTable, overviews: Mapping[str, Sequence[Overview]]
) -> list[RepeatedFigure]:
    """Every published figure, with the command that draws ours and where ours is."""
    figures = []
    for figure in published.figures:
        ours = [
            overview
            for experiment in figure.experiments
            for name, drawn in overviews.items()
            if is_named(name, experiment)
            for overview in drawn
            if any(fnmatchcase(overview.path.stem, pattern) for pattern in figure.files)
        ]
        command = published.command.replace("{experiment}", figure.experiments[0])
        figures.append(RepeatedFigure(figure.name, figure.shows, figure.command or command, ours))
    return figures
