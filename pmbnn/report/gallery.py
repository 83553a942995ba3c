"""Maps of every cell in the layout of the grid: priors down, hyperpriors across."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pmbnn.figures import Sheet, sheets, style
from pmbnn.figures.maps import HIGHEST_SD
from pmbnn.report.cells import CellView
from pmbnn.report.details import Drawing, draw_spark
from pmbnn.report.images import THUMBNAIL, Image, figure_image, map_image
from pmbnn.results.tables import Combinations, Place, combine


class Grid(NamedTuple):
    """Cells of one sheet, laid out, with those of each experiment by name of their record."""

    experiment: str
    sheet: Sheet
    combinations: Combinations
    cells: Mapping[str, CellView]

    @property
    def title(self) -> str:
        """Experiment, sweep and data in words."""
        return f"{self.experiment}, {self.sheet.records[0].sweep}: {self.sheet.title}"

    @property
    def seeds(self) -> list[int]:
        """Data seeds in order of appearance."""
        return list(dict.fromkeys(record.cell.data_seed for record in self.sheet.records))

    @property
    def highest_sd(self) -> float:
        """Upper end of the colour scale that all maps of uncertainty of this grid share."""
        shown = [self.cells[record.name] for record in self.sheet.records]
        planes = [cell.parts.plane for cell in shown if cell.parts.plane is not None]
        return style.upper_limit((plane.sd for plane in planes), HIGHEST_SD)

    def at(self, place: Place, seed: int) -> list[CellView]:
        """Cells of a combination with a data seed."""
        records = self.combinations.records.get(place, ())
        return [self.cells[r.name] for r in records if r.cell.data_seed == seed]


class Thumbnail(NamedTuple):
    """What stands for a cell and opens it: its maps, its figure, or the rise of its ELBO."""

    key: str
    title: str
    words: str
    images: tuple[Image, ...] = ()
    figure: Image | None = None
    drawing: Drawing | None = None


class SeedTable(NamedTuple):
    """Cells of one data seed: a row of places a prior, each with thumbnails or a word."""

    key: str
    seed: int
    rows: list[tuple[str, list[list[Thumbnail] | str]]]


class GridView(NamedTuple):
    """A grid as it is shown: a table for each data seed."""

    number: int
    title: str
    columns: tuple[str, ...]
    tables: list[SeedTable]


def grids(cells: Sequence[CellView]) -> Iterator[Grid]:
    """A grid for each data set of every sweep."""
    for name in dict.fromkeys(cell.experiment for cell in cells):
        own = {cell.record.name: cell for cell in cells if cell.experiment == name}
        for sheet in sheets([cell.record for cell in own.values()]):
            yield Grid(name, sheet, combine(sheet.records), own)


def grid_view(number: int, grid: Grid) -> GridView:
    """Everything of a grid that is shown."""
    highest = grid.highest_sd
    rows, columns = grid.combinations.shape
    tables = []
    for seed in grid.seeds:
        lines = [
            (
                grid.combinations.rows[row],
                [_place(grid, (row, column), seed, highest) for column in range(columns)],
            )
            for row in range(rows)
        ]
        tables.append(SeedTable(f"grid-{number}-{seed}", seed, lines))
    return GridView(number, grid.title, grid.combinations.columns, tables)


def _place(grid: Grid, place: Place, seed: int, highest: float) -> list[Thumbnail] | str:
    cells = grid.at(place, seed)
    if not cells:
        return grid.combinations.absence(*place)
    return [thumbnail(cell, highest) for cell in cells]


def thumbnail(cell: CellView, highest: float) -> Thumbnail:
    """What stands for a cell; its map of uncertainty ends at ``highest``."""
    shown = Thumbnail(cell.key, cell.title, cell.summary)
    plane = cell.parts.plane
    if plane is not None:
        maps = (
            map_image(plane, plane.probability, style.PROBABILITY, 1.0),
            map_image(plane, plane.sd, style.UNCERTAINTY, highest),
        )
        return shown._replace(images=maps)
    if cell.figures:
        return shown._replace(figure=figure_image(cell.figures[0].path, THUMBNAIL))
    if cell.parts.training is not None:
        return shown._replace(drawing=draw_spark(cell.parts.training))
    return shown
