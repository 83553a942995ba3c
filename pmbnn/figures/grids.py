"""A grid of priors × hyperpriors: tables of accuracy and uncertainty, its design, its accuracy."""

import math
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.models.priors import Fixed, Hyperprior, Prior
from pmbnn.results.tables import Combinations, Place

CELL = (1.15, 0.62)
"""Width and height of a combination, in inches."""

PANELS = (
    ("accuracy", "accuracy on test rows", "test accuracy", style.ACCURACY),
    (
        "mean_sd",
        "sd of the predicted class's probability",
        "mean uncertainty (sd)",
        style.UNCERTAINTY,
    ),
)


def plot_grid(combinations: Combinations, title: str) -> Figure:
    """Two tables of colours with the numbers in them, for any kind of data.

    Means over data seeds (of one, over its fits), with standard errors where there are several.
    """
    rows, columns = combinations.shape
    width = 2 * (max(3, columns) * CELL[0] + 1.6)
    figure = style.new_figure(width, rows * CELL[1] + 1.9)
    for axes, (name, words, label, colours) in zip(figure.subplots(1, 2), PANELS, strict=True):
        axes.set_title(words, fontsize=style.LABEL_SIZE)
        _draw_table(figure, axes, combinations, name, label, colours)
    notes = [title, combinations.error_note, combinations.mark_notes]
    style.set_title(figure, "\n".join(filter(None, notes)))
    return figure


def _draw_table(
    figure: Figure,
    axes: Axes,
    combinations: Combinations,
    name: str,
    label: str,
    colours: Colormap,
) -> None:
    rows, columns = combinations.shape
    places = [[(i, j) for j in range(columns)] for i in range(rows)]
    means = np.array([[combinations.score(*place, name)[0] for place in row] for row in places])
    image = style.draw_image(axes, means, colours, _limits(means), aspect="auto")
    axes.set_facecolor(style.EMPTY)
    words = [[_words(combinations, *place, name) for place in row] for row in places]
    style.draw_numbers(axes, image, words, style.LABEL_SIZE)
    axes.set_xticks(range(columns), combinations.columns, fontsize=style.TICK_SIZE)
    axes.set_yticks(range(rows), combinations.rows, fontsize=style.TICK_SIZE)
    axes.tick_params(length=0)
    axes.set_xlabel("hyperprior", fontsize=style.LABEL_SIZE)
    axes.set_ylabel("prior", fontsize=style.LABEL_SIZE)
    style.add_colour_bar(figure, image, axes, label)


def _limits(means: np.ndarray) -> tuple[float, float]:
    """Smallest and largest mean; a little apart where they are equal."""
    known = means[np.isfinite(means)]
    if not len(known):
        return 0.0, 1.0
    low, high = float(known.min()), float(known.max())
    return (low, high) if high > low else (low - 0.01, high + 0.01)


def _words(combinations: Combinations, row: int, column: int, name: str) -> str:
    mean, error = combinations.score(row, column, name)
    if not math.isfinite(mean):
        return combinations.absence(row, column)
    # As many decimals as a small error needs to be more than zero.
    decimals = max(3, min(6, math.ceil(-math.log10(error)))) if error > 0 else 3
    number = f"{mean:.{decimals}f}{combinations.marks(row, column)}"
    number += f"\n±{error:.{decimals}f}" if math.isfinite(error) else ""
    return number + ("\n(no scale)" if row in combinations.without_scale else "")


# Design of a grid: every prior × hyperprior, as the distribution of a weight it stands for


WEIGHTS = np.linspace(-8, 8, 321)
SCALES = np.geomspace(1e-2, 1e2, 201)

DENSITY = (1e-4, 20.0)
"""Ends of the logarithmic axis on which tails can be told apart."""

QUANTILES = 2000
"""Quantiles of a learned scale over which a weight's density is averaged."""

PANEL = (1.55, 1.1)
"""Width and height of a panel, in inches."""


def plot_design(combinations: Combinations, title: str) -> Figure:
    """Priors down, hyperpriors across; above them the scales that a hyperprior stands for.

    A panel shows the density of one weight before anything is seen, a learned scale averaged
    out, on a logarithmic axis, and the number of cells. A tuned scale has a line for each of its
    candidates.
    """
    rows, columns = combinations.shape
    figure = style.new_figure(PANEL[0] * columns + 1.2, PANEL[1] * (rows + 1) + 1.6)
    panels = figure.subplots(rows + 1, columns, squeeze=False)
    for column, axes in enumerate(panels[0]):
        axes.set_title(combinations.columns[column], fontsize=style.LABEL_SIZE)
        _draw_scale(axes, _hyperprior(combinations, column))
    for row, line in enumerate(panels[1:]):
        for column, axes in enumerate(line):
            _draw_weight(axes, combinations, row, column)
    for axes, name in zip(panels[:, 0], ("scale", *combinations.rows), strict=True):
        axes.set_ylabel(name, fontsize=style.LABEL_SIZE)
    note = "design: density of the scale (top row) and of one weight, on logarithmic axes"
    style.set_title(figure, f"{title}\n{note}")
    return figure


def _hyperprior(combinations: Combinations, column: int) -> Hyperprior | None:
    """Hyperprior of a column; None if only priors without a scale stand in it."""
    cells = (records[0].cell for (_, at), records in combinations.records.items() if at == column)
    return next((cell.hyperprior for cell in cells if cell.has_scale), None)


def _draw_scale(axes: Axes, hyperprior: Hyperprior | None) -> None:
    """Density of the scale's logarithm, or a line at every fixed scale."""
    scales = [] if hyperprior is None else fixed_scales(hyperprior)
    density = None
    if hyperprior is not None and not scales:
        density = log_scale_density(hyperprior, SCALES)
    if not scales and density is None:
        style.draw_empty(axes, "no scale" if hyperprior is None else "no formula")
        return
    axes.set(xscale="log", xlim=(SCALES[0], SCALES[-1]), yticks=[])
    axes.set_ylim(0, 0.8)
    axes.vlines(scales, 0, 0.75, color=style.CLASS_COLOURS[1])
    if density is not None:
        axes.fill_between(SCALES, density, color=style.CLASS_COLOURS[1], alpha=0.3)
        axes.plot(SCALES, density, color=style.CLASS_COLOURS[1])
    axes.set_xticks([0.01, 1, 100], ["0.01", "1", "100"], fontsize=style.TICK_SIZE)
    axes.minorticks_off()


def _draw_weight(axes: Axes, combinations: Combinations, row: int, column: int) -> None:
    """Density of a weight, and the number of cells."""
    records = combinations.records.get((row, column), ())
    if not records:
        style.draw_empty(axes, combinations.absence(row, column))
        return
    cell = records[0].cell
    axes.set(xlim=(WEIGHTS[0], WEIGHTS[-1]), xticks=[-5, 0, 5])
    axes.tick_params(labelsize=style.TICK_SIZE)
    if not cell.has_scale:
        found = [np.full(WEIGHTS.shape, 0.05)]  # improper: level, at no height in particular
    else:
        found = weight_densities(cell.prior, cell.hyperprior, WEIGHTS)
    if not found:
        style.draw_empty(axes, "no formula")
        return
    axes.set(yscale="log", ylim=DENSITY)
    axes.set_yticks([1e-4, 1e-2, 1], ["0.0001", "0.01", "1"] if column == 0 else [])
    axes.set_yticks([], minor=True)
    for density in found:
        axes.plot(WEIGHTS, density, color=style.CLASS_COLOURS[0], linewidth=1.3 / len(found) + 0.3)
        fill = {"color": style.CLASS_COLOURS[0], "alpha": 0.25 / len(found), "linewidth": 0}
        axes.fill_between(WEIGHTS, DENSITY[0], density, **fill)
    cells = f"{len(records)} cell{'s' if len(records) > 1 else ''}"
    words = f"{cells}, no scale" if row in combinations.without_scale else cells
    place = {"ha": "right", "va": "top", "transform": axes.transAxes}
    axes.text(0.97, 0.95, words, fontsize=style.TICK_SIZE, color=style.GREY, **place)


# Densities before anything is seen


def fixed_scales(hyperprior: Hyperprior) -> list[float]:
    """Scales that a fixed one stands for: one, or its candidates; none if it is learned."""
    return list(hyperprior.scales) if isinstance(hyperprior, Fixed) else []


def log_scale_density(hyperprior: Hyperprior, scale: np.ndarray) -> np.ndarray | None:
    """Density of the logarithm of a learned scale; None if there is no formula here.

    Whether the hyperprior is that of the scale or of its square is taken into account.
    """
    law = _law(hyperprior)
    if law is None:
        return None
    on_variance = hyperprior.on == "variance"
    value = scale**2 if on_variance else scale
    return (2 if on_variance else 1) * value * law.pdf(value)


def weight_densities(prior: Prior, hyperprior: Hyperprior, weight: np.ndarray) -> list[np.ndarray]:
    """Density of one weight under every fixed scale, or with a learned one averaged out.

    The list is empty if there is no formula here. The fan-in rule is left out.
    """
    standard = _standard_density(prior)
    if standard is None:
        return []
    fixed = fixed_scales(hyperprior)
    if fixed:
        return [standard(weight / scale) / scale for scale in fixed]
    law = _law(hyperprior)
    if law is None:
        return []
    quantiles = law.ppf((np.arange(QUANTILES) + 0.5) / QUANTILES)[:, None]
    scales = np.sqrt(quantiles) if hyperprior.on == "variance" else quantiles
    return [np.mean(standard(weight / scales) / scales, axis=0)]


def _law(hyperprior: Hyperprior):
    """Distribution of what a hyperprior is on."""
    from scipy import stats

    laws = {
        "half_normal": lambda h: stats.halfnorm(scale=h.sigma),
        "half_cauchy": lambda h: stats.halfcauchy(scale=h.beta),
        "inverse_gamma": lambda h: stats.invgamma(h.alpha, scale=h.beta),
    }
    make = laws.get(hyperprior.kind)
    return None if make is None else make(hyperprior)


def _standard_density(prior: Prior):
    """Density of a weight whose scale is 1."""
    from scipy import stats

    standard = {
        "normal": lambda p: stats.norm.pdf,
        "laplace": lambda p: stats.laplace.pdf,
        "cauchy": lambda p: stats.cauchy.pdf,
        "student_t": lambda p: stats.t(p.nu).pdf,
        "scale_mixture": _mixture,
        "trainable_mean": lambda p: stats.norm(scale=np.hypot(1.0, p.spread)).pdf,
        "horseshoe": lambda p: _horseshoe,
    }
    make = standard.get(prior.kind)
    return None if make is None else make(prior)


def _mixture(prior: Prior):
    from scipy.stats import norm

    share, wide, narrow = prior.proportion, prior.sigma_1, prior.sigma_2
    return lambda x: share * norm.pdf(x, scale=wide) + (1 - share) * norm.pdf(x, scale=narrow)


def _horseshoe(x: np.ndarray) -> np.ndarray:
    """Density of local · z with local ~ half-Cauchy(1) and z ~ N(0, 1), in closed form."""
    from scipy.special import exp1

    half = np.maximum(x**2 / 2, 1e-12)
    # exp(h) E1(h) tends to 1/h where exp(h) would overflow.
    large = half > 500
    safe = np.where(large, 1.0, half)
    return np.where(large, 1 / half, np.exp(safe) * exp1(safe)) / np.sqrt(2 * np.pi**3)


# Accuracy of every prior × hyperprior of one data set, with its standard error


LINE = 0.24
"""Height of one combination, in inches."""

GAP = 0.8
"""Empty lines between two priors."""


class Line(NamedTuple):
    """One combination: its place in the table, height on the axis, colour and marker."""

    place: Place
    height: float
    colour: str
    marker: str


def plot_accuracy_overview(combinations: Combinations, title: str) -> Figure:
    """Mean accuracy over data seeds ± standard error, one line a combination.

    For synthetic data the best possible accuracy is marked, and a second panel shows the
    excess error: how much more often than the best classifier the fit errs on fresh points.
    """
    lines = _lines(combinations)
    synthetic = any(_known(combinations, line, "excess_error") for line in lines)
    height = LINE * (lines[-1].height + 2) + 1.3
    figure = style.new_figure(10.5 if synthetic else 7.5, max(2.6, height))
    panels = figure.subplots(1, 2 if synthetic else 1, sharey=True, squeeze=False)[0]
    _draw_points(panels[0], combinations, lines, "accuracy")
    panels[0].set_xlabel("test accuracy", fontsize=style.LABEL_SIZE)
    _label_lines(panels[0], combinations, lines)
    _mark_best(figure, panels[0], combinations, lines)
    if synthetic:
        _draw_points(panels[1], combinations, lines, "excess_error")
        panels[1].set_xlabel("excess error over the best possible", fontsize=style.LABEL_SIZE)
        panels[1].axvline(0.0, color=style.GREY, linestyle="--", linewidth=1)
    style.set_title(figure, f"{title}\n{_note(combinations)}")
    return figure


def _lines(combinations: Combinations) -> list[Line]:
    """Lines from the top down; a prior without scale has one only."""
    rows, columns = combinations.shape
    found: list[Line] = []
    height = 0.0
    for row in range(rows):
        for column in range(columns):
            place = (row, column)
            if row in combinations.without_scale and place not in combinations.records:
                continue
            colour = style.CLASS_COLOURS[column % len(style.CLASS_COLOURS)]
            colour = style.GREY if row in combinations.without_scale else colour
            found.append(Line(place, height, colour, style.MARKERS[column % len(style.MARKERS)]))
            height += 1
        height += GAP
    return found


def _known(combinations: Combinations, line: Line, name: str) -> bool:
    return math.isfinite(combinations.score(*line.place, name)[0])


def _draw_points(axes: Axes, combinations: Combinations, lines: list[Line], name: str) -> None:
    """Means with error bars; a word where there are none."""
    for line in lines:
        mean, error = combinations.score(*line.place, name)
        if math.isfinite(mean):
            bar = error if math.isfinite(error) else None
            axes.errorbar(
                mean, line.height, xerr=bar, color=line.colour, marker=line.marker,
                markersize=6, capsize=3, linestyle="none",
            )  # fmt: skip
        else:
            absent = {"x": 0.02, "va": "center", "transform": axes.get_yaxis_transform()}
            axes.text(y=line.height, s=combinations.absence(*line.place), color=style.GREY,
                      fontsize=style.TICK_SIZE, **absent)  # fmt: skip
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.08)
    axes.tick_params(axis="x", labelsize=style.TICK_SIZE)
    axes.tick_params(axis="y", length=0)


def _label_lines(axes: Axes, combinations: Combinations, lines: list[Line]) -> None:
    """Name of the hyperprior at every line, of the prior above each group."""
    names = [_line_name(combinations, line) for line in lines]
    axes.set_yticks([line.height for line in lines], names, fontsize=style.TICK_SIZE)
    axes.set_ylim(lines[-1].height + 0.8, -0.8)


def _line_name(combinations: Combinations, line: Line) -> str:
    row, column = line.place
    scale = "no scale" if row in combinations.without_scale else combinations.columns[column]
    done = len(combinations.finished(row, column))
    every = len(combinations.records.get(line.place, ()))
    failed = f" ({every - done} failed)" if 0 < done < every else ""
    return f"{combinations.rows[row]}, {scale}{failed} {combinations.marks(row, column)}".rstrip()


def _mark_best(figure: Figure, axes: Axes, combinations: Combinations, lines: list[Line]) -> None:
    """Line at the best possible accuracy, where the data's distribution is known."""
    known = [combinations.score(*line.place, "best_accuracy")[0] for line in lines]
    best = next((value for value in known if math.isfinite(value)), None)
    if best is None:
        return
    axes.axvline(
        best, color="black", linestyle="--", linewidth=1.2, label=f"best possible, {best:.3f}"
    )
    handles, labels = axes.get_legend_handles_labels()
    below = {"loc": "outside lower center", "frameon": False}
    figure.legend(handles, labels, fontsize=style.TICK_SIZE, **below)


def _note(combinations: Combinations) -> str:
    error = combinations.error_note or "one data seed, so no standard errors"
    return "\n".join(filter(None, [error, combinations.mark_notes]))
