"""The detail of a cell, kept in a template of the page until it is asked for."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pmbnn.core.numbers import number_text
from pmbnn.figures import Sheet, sheets, style
from pmbnn.figures.maps import HIGHEST_SD
from pmbnn.report.images import THUMBNAIL, Image, Overview, figure_image, map_image
from pmbnn.report.tables import CellView, Entry, PlainTable, Training, Weights, status_entry
from pmbnn.results.names import settings_row
from pmbnn.results.record import AT_GRID_END, CellRecord, scale_at_grid_end
from pmbnn.results.tables import Combinations, Place, combine, score_text, with_unit

# Small line drawings of a cell as SVG: how the ELBO rose, where the last layer's weights are


WIDTH, HEIGHT = 340, 170
LEFT, RIGHT, TOP, BOTTOM = 8, 332, 12, 142

ELBO_START = 0.1
"""Share of a fit after which its ELBO decides what is shown: it starts far below."""

DENSITY_FLOOR = 0.004
"""Share of its peak below which a density is not drawn."""


class Path(NamedTuple):
    """A line: the ``d`` of an SVG path, and its class."""

    d: str
    kind: str


class Text(NamedTuple):
    """Text at a place."""

    x: float
    y: float
    text: str
    anchor: str | None = None


class Drawing(NamedTuple):
    """An SVG drawing; ``label`` says what it shows to those who do not see it."""

    width: int
    height: int
    label: str
    paths: Sequence[Path]
    texts: Sequence[Text] = ()
    caption: str = ""


AXIS = Path(f"M{LEFT} {BOTTOM}H{RIGHT}", "axis")


def draw_training(training: Training, objective: str = "ELBO") -> Drawing | None:
    """Draw the ELBO, or another objective, over the steps of every restart.

    None if it is never finite.
    """
    limits, steps = _elbo_limits(training.elbo), (training.step[0], training.step[-1])
    if limits is None:
        return None
    x, paths = _scaled(training.step, steps, LEFT, RIGHT), [AXIS]
    # The restart predicted with comes last, on top.
    for restart in sorted(range(len(training.elbo)), key=lambda restart: restart == training.best):
        y = _scaled(_cut(training.elbo[restart], limits), limits, BOTTOM, TOP)
        paths.append(Path(_path(x, y), "best" if restart == training.best else "other"))
    low, high = (number_text(value) for value in limits)
    first, last = (number_text(int(step)) for step in steps)
    texts = (
        Text(LEFT, TOP - 2, high),
        Text(RIGHT, BOTTOM - 4, low, "end"),
        Text(LEFT, HEIGHT - 12, f"step {first}"),
        Text(RIGHT, HEIGHT - 12, last, "end"),
    )
    label = f"{objective} from {low} to {high} nats over {last} steps"
    caption = f"{objective} (nats) over the steps, cut off below where it starts"
    count = len(training.elbo)
    caption += f"; {count} restarts, the one predicted with in colour" if count > 1 else ""
    return Drawing(WIDTH, HEIGHT, label, paths, texts, caption)


def draw_weights(weights: Weights) -> Drawing | None:
    """Draw the densities of the last layer's weights, each scaled to its highest point."""
    ends = float(weights.at[0]), float(weights.at[-1])
    if not ends[0] < ends[1]:
        return None
    number, away = weights.away.size, int(weights.away.sum())
    by_weight = len(weights.density) == number
    x, paths = _scaled(weights.at, ends, LEFT, RIGHT), [AXIS]
    texts = [
        Text(LEFT, HEIGHT - 12, number_text(ends[0], digits=2)),
        Text(RIGHT, HEIGHT - 12, number_text(ends[1], digits=2), "end"),
    ]
    if ends[0] < 0 < ends[1]:
        zero = round(float(_scaled(np.zeros(1), ends, LEFT, RIGHT)[0]), 1)
        paths.append(Path(f"M{zero} {TOP}V{BOTTOM}", "zero"))
        texts.append(Text(zero, HEIGHT - 12, "0", "middle"))
    kinds = ["away" if by_weight and is_away else "near" for is_away in weights.away]
    curves = zip(kinds, weights.density, strict=False)
    # The few that stand apart are drawn last, on top.
    for kind, density in sorted(curves, key=lambda curve: curve[0] == "away"):
        # Heights that could not be told from the axis are left out.
        y = _scaled(np.where(density < DENSITY_FLOOR, np.nan, density), (0, 1), BOTTOM, TOP)
        paths.append(Path(_path(x, y), kind))
    lines = "a line each, scaled to its peak" if by_weight else "all draws together"
    caption = f"Posterior of the last layer's {number} weights, {lines}; of {away} "
    caption += "the central 90 % interval leaves out zero"
    caption += " (in colour)" if by_weight and away else ""
    label = f"densities of {number} weights of the last layer"
    return Drawing(WIDTH, HEIGHT, label, paths, texts, caption)


def _elbo_limits(elbo: np.ndarray) -> tuple[float, float] | None:
    """Lowest and highest ELBO shown; None if none is finite."""
    finite = np.isfinite(elbo)
    if not finite.any():
        return None
    settled = elbo[:, int(ELBO_START * elbo.shape[1]) :]
    settled = settled[np.isfinite(settled)]
    low = float(settled.min() if settled.size else elbo[finite].min())
    high = float(elbo[finite].max())
    return (low, high) if low < high else (low - 1, high + 1)


def _cut(values: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    """Values of which those below the limits are moved to them."""
    return np.where(np.isfinite(values), np.maximum(values, limits[0]), np.nan)


def _scaled(values: np.ndarray, ends: tuple[float, float], start: float, stop: float) -> np.ndarray:
    """Values in coordinates of the drawing."""
    low, high = ends
    return start + (np.asarray(values, float) - low) / ((high - low) or 1) * (stop - start)


def _path(x: np.ndarray, y: np.ndarray) -> str:
    """Line through the points, interrupted where one is not finite."""
    steps, pen = [], "M"
    for across, up in zip(x, y, strict=True):
        if np.isfinite(up):
            steps.append(f"{pen}{across:.1f} {up:.1f}")
        pen = "L" if np.isfinite(up) else "M"
    return "".join(steps)


# Everything shown of a cell


SETS = (
    "size", "entropy", "mutual_information", "sd", "top_probability", "auroc_entropy",
    "auroc_sd", "rejected_by_sd", "rejected_by_confidence",
)  # fmt: skip
"""Numbers shown of each set of images; metrics.json has them all."""


class Detail(NamedTuple):
    """Everything shown of a cell: its parts are empty or None where it has none."""

    key: str
    title: str
    name: str
    status: Entry
    reason: str
    figures: list[tuple[Image, str]]
    files: list[str]
    drawings: list[Drawing]
    results: Mapping[str, str]
    tables: list[PlainTable]
    settings: Mapping[str, str]


def cell_detail(cell: CellView, with_figures: bool = True) -> Detail:
    """Everything shown of a cell; with its figures, or with the names of their files."""
    record, parts = cell.record, cell.parts
    # On its way, a Laplace approximation has come to a mode.
    objective = "log-posterior" if record.cell.is_laplace else record.cell.objective
    drawings = (
        draw_training(parts.training, objective) if parts.training else None,
        draw_weights(parts.weights) if parts.weights else None,
    )
    makers = (_restarts, _chains, _candidates, _image_sets, _diagnostics)
    return Detail(
        key=cell.key,
        title=cell.title,
        name=record.name,
        status=status_entry(record.status),
        reason=record.reason,
        figures=[
            (figure_image(path), f"{path.stem} of {cell.title}")
            for path in (cell.figures if with_figures else ())
        ],
        files=[path.name for path in cell.figures],
        drawings=[drawing for drawing in drawings if drawing],
        results=_results(record),
        tables=[table for make in makers if (table := make(record))],
        settings={
            n: number_text(value, digits=6) for n, value in settings_row(record.settings).items()
        },
    )


def _results(record: CellRecord) -> dict[str, str]:
    if not record.results:
        return {}
    standardised = record.predictive == "density"
    measures = {
        with_unit(name.replace("_", " "), name, standardised): score_text(name, value)
        for name, value in record.results.items()
        if not name.startswith("pooled_")
    }
    return measures | {"time (seconds)": number_text(record.seconds)}


def _restarts(record: CellRecord) -> PlainTable | None:
    if len(record.restarts) < 2:
        return None
    rows = [
        [str(at), r.status.replace("_", " "), number_text(r.elbo), number_text(r.weight), r.reason]
        for at, r in enumerate(record.restarts)
    ]
    elbo = with_unit(record.cell.objective, "elbo", record.predictive == "density")
    return PlainTable("Restarts", ("restart", "status", elbo, "weight", "reason"), rows)


def _chains(record: CellRecord) -> PlainTable | None:
    """Number of chains and draws, and what the chains were tuned to."""
    sampling = record.sampling
    if sampling is None:
        return None
    entries = {"chains": sampling.chains, "draws of each": sampling.draws}
    entries |= {"largest R-hat": sampling.rhat_largest} | dict(sampling.tuned)
    headings = [name.replace("_", " ") for name in entries]
    return PlainTable("Chains", headings, [[number_text(value) for value in entries.values()]])


def _candidates(record: CellRecord) -> PlainTable | None:
    """Scales that were tried, with their held-out scores or evidence."""
    selection = record.selection
    if selection is None:
        return None
    heading, scored, best_of = "NLL of held-out rows (nats)", selection.nll, min
    if selection.evidence is not None:
        heading, scored, best_of = "log evidence of all training rows", selection.evidence, max
        heading = with_unit(heading, "elbo", record.predictive == "density")
    rows = []
    for number, (scale, scores) in enumerate(zip(selection.scales, scored, strict=True)):
        best = best_of((score for score in scores if score is not None), default=None)
        is_chosen = number == selection.candidate
        at_end = f", {AT_GRID_END}" if is_chosen and scale_at_grid_end(record) else ""
        chosen = f"chosen{at_end}" if is_chosen else ""
        rows.append([number_text(scale), number_text(best), chosen])
    return PlainTable("Scales tried", ("scale", heading, ""), rows)


def _image_sets(record: CellRecord) -> PlainTable | None:
    """Uncertainty about images: of the test set, then of out-of-distribution sets."""
    images = record.images
    if not images:
        return None
    sets = {"test": images["test"]} | images.get("ood", {})
    rows = [
        [name, *(number_text(numbers.get(key)) for key in SETS)] for name, numbers in sets.items()
    ]
    headings = ("set", *(key.replace("_", " ") for key in SETS))
    return PlainTable("Images (entropies in bits)", headings, rows)


def _diagnostics(record: CellRecord) -> PlainTable | None:
    """Diagnostics at each snapshot of the fit."""
    diagnostics: Mapping[str, Any] | None = record.diagnostics
    if not diagnostics:
        return None
    cell = record.cell
    columns = {"step": diagnostics["step"]}
    columns |= {"KL": diagnostics["kl"]} if cell.has_score("kl") else {}
    for part, measures in diagnostics["parts"].items():
        for name, values in measures.items():
            if cell.has_score(name):
                words = cell.objective if name == "elbo" else name.replace("_", " ")
                columns[f"{part} {words}"] = values
    rows = [list(map(number_text, row)) for row in zip(*columns.values(), strict=True)]
    return PlainTable("On the way (nats a row)", list(columns), rows)


# Maps of every cell in the layout of the grid: priors down, hyperpriors across


class Grid(NamedTuple):
    """Cells of one sheet, laid out, with those of each experiment by name of their record."""

    experiment: str
    sheet: Sheet
    combinations: Combinations
    cells: Mapping[str, CellView]

    @property
    def title(self) -> str:
        """Data in words, and what sets the cells apart from others of these data."""
        return self.sheet.title

    @property
    def place(self) -> str:
        """Experiment and sweep."""
        return f"{self.experiment}, {self.sheet.records[0].sweep}"

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
    """A button that opens a cell: its maps or its figure."""

    key: str
    title: str
    summary: str
    images: tuple[Image, ...] = ()
    figure: Image | None = None


class SeedTable(NamedTuple):
    """Cells of one data seed: a row of places a prior, each with thumbnails or a word."""

    key: str
    seed: int
    rows: list[tuple[str, list[list[Thumbnail] | str]]]


class GridView(NamedTuple):
    """Predictions of a grid: figures, or a table of thumbnails for each data seed, or neither."""

    number: int
    title: str
    caption: str
    figures: list[tuple[Image, str]]
    columns: tuple[str, ...]
    tables: list[SeedTable]


MAPS = (
    "Left, the posterior mean of the probability of the first class; right, its standard deviation "
    "over posterior draws, on one colour scale for each data set. The black line is the decision "
    "boundary, probability one half. Below, the main score, and a tuned scale σ. Select a cell to "
    "enlarge it."
)

CURVES = (
    "Predictions of each cell, with its main score, and a tuned scale σ: mean and bands over a "
    "line, or mean and standard deviation over a plane. Select a cell to enlarge it."
)

FIGURES = {
    "density": ("predicted-observed", "Observed test rows against predictions, with intervals."),
    "class_probabilities": (
        "reliability",
        "How often predicted classes of test rows are right, against their probability.",
    ),
}
"""Figure that shows predictions where inputs are neither a line nor a plane, and its caption."""


def grids(cells: Sequence[CellView]) -> Iterator[Grid]:
    """A grid for each data set of every sweep."""
    for name in dict.fromkeys(cell.experiment for cell in cells):
        by_name = {cell.record.name: cell for cell in cells if cell.experiment == name}
        for sheet in sheets([cell.record for cell in by_name.values()]):
            yield Grid(name, sheet, combine(sheet.records), by_name)


def grid_views(
    grids: Sequence[Grid], overviews: Mapping[str, Sequence[Overview]]
) -> list[GridView]:
    """Predictions of each grid, as far as there is something to show.

    Parameters
    ----------
    overviews
        Figures by the name of the experiment.
    """
    titles = [grid.title for grid in grids]
    views = [
        _grid_view(
            number,
            grid,
            grid.title if titles.count(grid.title) == 1 else f"{grid.title} ({grid.place})",
            overviews.get(grid.experiment, ()),
        )
        for number, grid in enumerate(grids)
    ]
    return [view for view in views if view.tables or view.figures]


def _grid_view(number: int, grid: Grid, title: str, overviews: Sequence[Overview]) -> GridView:
    """Predictions of a grid: maps of a plane, bands over a line, or a figure of test rows."""
    cells = [grid.cells[record.name] for record in grid.sheet.records]
    view = GridView(number, title, "", [], grid.combinations.columns, [])
    if any(cell.parts.plane is not None for cell in cells):
        return view._replace(caption=MAPS, tables=_seed_tables(number, grid))
    if any(cell.figures for cell in cells):
        return view._replace(caption=CURVES, tables=_seed_tables(number, grid))
    predictive = next((cell.record.predictive for cell in cells if cell.record.predictive), None)
    kind, caption = FIGURES.get(predictive, ("", ""))
    figures = [
        (overview.image, overview.title)
        for overview in overviews
        if overview.path.stem == f"{grid.sheet.file}-{kind}"
    ]
    return view._replace(caption=caption, figures=figures)


def _seed_tables(number: int, grid: Grid) -> list[SeedTable]:
    """Tables of a grid's thumbnails, one for each data seed."""
    highest, combinations = grid.highest_sd, grid.combinations

    def place(row: int, column: int, seed: int) -> list[Thumbnail] | str:
        cells = [thumbnail(cell, highest) for cell in grid.at((row, column), seed)]
        # One that failed is a cell, too: there are others of this combination, of other seeds.
        is_of_others = (row, column) in combinations.records
        return cells or ("not run" if is_of_others else combinations.absence(row, column))

    tables = []
    for seed in grid.seeds:
        rows = [
            (name, [place(row, column, seed) for column in range(len(combinations.columns))])
            for row, name in enumerate(combinations.rows)
        ]
        tables.append(SeedTable(f"grid-{number}-{seed}", seed, rows))
    return tables


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
        return shown._replace(figure=figure_image(cell.figures[0], THUMBNAIL))
    return shown
