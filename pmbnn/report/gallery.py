"""Maps of every cell in the layout of the grid: priors down, hyperpriors across."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pmbnn.figures import style
from pmbnn.figures.combinations import Combinations, Place, combine, data_seed
from pmbnn.figures.plane import HIGHEST_SD
from pmbnn.figures.titles import chosen_scale
from pmbnn.figures.write import Sheet, sheets
from pmbnn.report.cells import Shown
from pmbnn.report.drawing import draw_spark
from pmbnn.report.images import THUMBNAIL, figure_address, map_address
from pmbnn.report.markup import Markup, element, join
from pmbnn.report.numbers import fixed


class Grid(NamedTuple):
    """Cells of one sheet, laid out, with those of each experiment by name of their record."""

    sheet: Sheet
    combinations: Combinations
    cells: Mapping[str, Shown]

    @property
    def seeds(self) -> list[int]:
        """Data seeds in order of appearance."""
        return list(dict.fromkeys(data_seed(record) for record in self.sheet.records))

    def at(self, place: Place, seed: int) -> list[Shown]:
        """Cells of a combination with a data seed."""
        records = self.combinations.records.get(place, ())
        return [self.cells[r["name"]] for r in records if data_seed(r) == seed]


def gallery_section(cells: Sequence[Shown]) -> Markup:
    """A grid for each data set and seed of every sweep; a cell is a button that opens it."""
    parts = [
        element("section", element("h3", f"{name}: {grid.sheet.title}"), *_grid(number, grid))
        for number, (name, grid) in enumerate(_grids(cells))
    ]
    note = (
        "Left, the posterior probability of the first class; right, its standard deviation over "
        "posterior draws, on one colour scale for each data set; the black line is probability "
        "one half. Below, the accuracy, and a chosen scale σ. Where there are no maps, the rise "
        "of the ELBO stands for a cell."
    )
    return element(
        "section", element("h2", "Maps"), element("p", note), join(parts), id="gallery-section"
    )


def _grids(cells: Sequence[Shown]) -> Iterator[tuple[str, Grid]]:
    for name in dict.fromkeys(cell.experiment for cell in cells):
        own = {cell.record["name"]: cell for cell in cells if cell.experiment == name}
        for sheet in sheets([cell.record for cell in own.values()]):
            label = f"{name}, {sheet.records[0]['sweep']}"
            yield label, Grid(sheet, combine(sheet.records), own)


def _grid(number: int, grid: Grid) -> Iterator[Markup]:
    """Choice of a data seed where there are several, and a table for each."""
    seeds = grid.seeds
    if len(seeds) > 1:
        options = [element("option", seed, value=f"grid-{number}-{seed}") for seed in seeds]
        chooser = element("select", *options, data_grids=f"grid-{number}", id=f"chooser-{number}")
        label = element("label", element("span", "data seed"), chooser)
        yield element("div", label, class_="filters")
    shown = [grid.cells[record["name"]] for record in grid.sheet.records]
    planes = [cell.parts.plane for cell in shown if cell.parts.plane is not None]
    highest = style.upper_limit((plane.sd for plane in planes), HIGHEST_SD)
    for seed in seeds:
        table = _table(grid, seed, highest)
        title = f"{grid.sheet.title}, data seed {seed}"
        yield element("div", table, id=f"grid-{number}-{seed}", class_="scroll", tabindex="0",
                      role="region", aria_label=title)  # fmt: skip


def _table(grid: Grid, seed: int, highest: float) -> Markup:
    rows, columns = grid.combinations.shape
    head = [element("th", name, scope="col") for name in grid.combinations.columns]
    lines = [
        element(
            "tr",
            element("th", grid.combinations.rows[row], scope="row"),
            *(
                element("td", _place(grid, (row, column), seed, highest))
                for column in range(columns)
            ),
        )
        for row in range(rows)
    ]
    corner = element("td", element("span", "prior × hyperprior", class_="unseen"))
    return element(
        "table",
        element("thead", element("tr", corner, *head)),
        element("tbody", *lines),
        class_="gallery",
    )


def _place(grid: Grid, place: Place, seed: int, highest: float) -> Markup:
    cells = grid.at(place, seed)
    if not cells:
        return element("span", grid.combinations.absence(*place), class_="quiet")
    return join(_button(cell, highest) for cell in cells)


def _button(cell: Shown, highest: float) -> Markup:
    """What stands for a cell and opens it."""
    words = _words(cell)
    return element(
        "button",
        _picture(cell, highest),
        element("span", words),
        type="button",
        class_="thumb",
        data_cell=cell.key,
        aria_label=f"Open {cell.title}",
    )


def _words(cell: Shown) -> str:
    """Its main score, the scale that was chosen, and its status where the fit failed."""
    results = cell.record["results"]
    if not results:
        return cell.record["status"].replace("_", " ")
    accuracy, rmse, scale = results.get("accuracy"), results.get("rmse"), chosen_scale(cell.record)
    words = [fixed(accuracy, 3)] if accuracy is not None else []
    words += [f"RMSE {rmse:.3g}"] if rmse is not None else []
    words += [f"σ {scale:.2g}"] if scale is not None else []
    return ", ".join(words)


def _picture(cell: Shown, highest: float) -> Markup:
    plane = cell.parts.plane
    if plane is not None:
        maps = [
            map_address(plane, plane.probability, style.PROBABILITY, 1.0),
            map_address(plane, plane.sd, style.UNCERTAINTY, highest),
        ]
        width, height = len(plane.x1), len(plane.x2)
        return join(element("img", src=m, alt="", width=width, height=height) for m in maps)
    if cell.pictures:
        address, width, height = figure_address(cell.pictures[0], THUMBNAIL)
        return element("img", src=address, alt="", width=width, height=height, class_="wide")
    if cell.parts.training is not None:
        return draw_spark(cell.parts.training)
    return Markup("")
