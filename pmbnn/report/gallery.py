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
        planes = (self.cells[record.name].parts.plane for record in self.sheet.records)
        return style.upper_limit((p.sd for p in planes if p is not None), HIGHEST_SD)

    def at(self, place: Place, seed: int) -> list[CellView]:
        """Cells of a combination with a data seed."""
        records = self.combinations.records.get(place, ())
        return [self.cells[r.name] for r in records if r.cell.data_seed == seed]


class Thumbnail(NamedTuple):
    """A button that opens a cell: its maps, its figure, or a drawing of its ELBO."""

    key: str
    title: str
    summary: str
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
        by_name = {cell.record.name: cell for cell in cells if cell.experiment == name}
        for sheet in sheets([cell.record for cell in by_name.values()]):
            yield Grid(name, sheet, combine(sheet.records), by_name)


def grid_view(number: int, grid: Grid) -> GridView:
    """Tables of a grid's thumbnails, one for each data seed."""
    highest, combinations = grid.highest_sd, grid.combinations

    def place(row: int, column: int, seed: int) -> list[Thumbnail] | str:
        cells = [thumbnail(cell, highest) for cell in grid.at((row, column), seed)]
        return cells or combinations.absence(row, column)

    tables = []
    for seed in grid.seeds:
        rows = [
            (name, [place(row, column, seed) for column in range(len(combinations.columns))])
            for row, name in enumerate(combinations.rows)
        ]
        tables.append(SeedTable(f"grid-{number}-{seed}", seed, rows))
    return GridView(number, grid.title, combinations.columns, tables)


def thumbnail(cell: CellView, highest: float) -> Thumbnail:
    """Thumbnail of a cell; the colours of its map of uncertainty end at ``highest``."""
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
