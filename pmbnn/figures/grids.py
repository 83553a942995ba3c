"""A grid of priors × hyperpriors: tables of accuracy and uncertainty, its design, its accuracy."""

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import cycle
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, PercentFormatter

from pmbnn.core.numbers import number_text
from pmbnn.figures import style
from pmbnn.models.hyperpriors import Fixed, Hyperprior
from pmbnn.models.prior_base import Prior
from pmbnn.models.pymc_distributions import as_constants
from pmbnn.results.names import dataset_row_label
from pmbnn.results.tables import Combinations, Place, accuracy_error

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
"""Result, heading, label of its colours, and these."""


@style.with_sizes
def plot_grid(combinations: Combinations, title: str) -> Figure:
    """Two tables of colours with the numbers in them, for any kind of data.

    Means over data seeds (of one, over its fits), with standard errors where there are several.
    """
    rows, columns = combinations.shape
    lines = [line for name in combinations.columns for line in _column_name(name).splitlines()]
    across = max([CELL[0], *(style.text_width(line, style.TICK_SIZE) + 0.1 for line in lines)])
    width = 2 * (max(3, columns) * across + 1.6)
    figure = style.new_figure(width, rows * CELL[1] + 1.9)
    for axes, (name, heading, label, colours) in zip(figure.subplots(1, 2), PANELS, strict=True):
        axes.set_title(heading)
        _draw_table(figure, axes, combinations, name, label, colours)
    notes = [title, _error_note(combinations), combinations.mark_notes]
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
    scores = [[_score(combinations, (i, j), name) for j in range(columns)] for i in range(rows)]
    means = np.array(scores)[..., 0]
    low, high = _limits(means)
    limits = {"vmin": low, "vmax": high}
    image = axes.imshow(means, cmap=colours, interpolation="nearest", aspect="auto", **limits)
    axes.set_facecolor(style.EMPTY)
    texts = [
        [_score_text(combinations, (i, j), *score) for j, score in enumerate(line)]
        for i, line in enumerate(scores)
    ]
    style.draw_texts(axes, image, texts, style.LABEL_SIZE)
    axes.set_xticks(range(columns), map(_column_name, combinations.columns))
    axes.set_yticks(range(rows), combinations.rows)
    axes.tick_params(length=0)
    axes.set(xlabel="hyperprior", ylabel="prior")
    figure.colorbar(image, ax=axes, label=label)


def _column_name(hyperprior: str) -> str:
    """Name of a hyperprior in several lines, which columns have room for."""
    return hyperprior.replace(", ", ",\n")


def _score(combinations: Combinations, place: Place, name: str) -> tuple[float, float]:
    """Mean and standard error; where nothing is repeated, that of a share of so many test rows."""
    mean, error = combinations.score(*place, name)
    cells = combinations.finished(*place)
    if name == "accuracy" and len(cells) == 1 and not combinations.error_note:
        error = accuracy_error(cells[0]) or math.nan
    return mean, error


def _error_note(combinations: Combinations) -> str:
    """Meaning of ±, or that there is none."""
    if combinations.error_note:
        return combinations.error_note
    scores = [_score(combinations, place, "accuracy") for place in combinations.records]
    if not any(math.isfinite(error) for _, error in scores):
        return "one data seed: no standard error is known"
    return "one data seed: accuracy ± binomial standard error, of so many test rows"


def _limits(means: np.ndarray) -> tuple[float, float]:
    """Smallest and largest mean; a little apart where they are equal."""
    finite = means[np.isfinite(means)]
    if not len(finite):
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    return (low, high) if high > low else (low - 0.01, high + 0.01)


def _score_text(combinations: Combinations, place: Place, mean: float, error: float) -> str:
    """Mean and standard error of a combination, or why it has none."""
    if not math.isfinite(mean):
        return combinations.absence(*place)
    number, _, error_text = number_text(mean, error, decimals=3).partition(" ± ")
    number += combinations.marks(*place) + (f"\n± {error_text}" if error_text else "")
    return number + ("\n(no scale)" if place[0] in combinations.without_scale else "")


# Design of a grid: every prior × hyperprior, as the distribution of a weight it stands for


WEIGHTS = np.linspace(-8, 8, 321)
SCALES = np.geomspace(1e-2, 1e2, 201)

FARTHEST = (1e-6, 1e6)
"""Ends that the axis of scales may have for learned ones, whose deciles may be infinite."""

DENSITY = (1e-4, 20.0)
"""Ends of the logarithmic axis on which tails can be told apart."""

QUANTILES = 2000
"""Quantiles of a learned scale over which a weight's density is averaged."""

PANEL = (1.55, 1.1)
"""Width and height of a panel, in inches."""


@style.with_sizes
def plot_design(combinations: Combinations, title: str) -> Figure:
    """Priors down, hyperpriors across; above them the scales that a hyperprior stands for.

    A panel shows the density of one weight before anything is seen, a learned scale averaged
    out, on a logarithmic axis, and the number of cells. A tuned scale has a line for each of its
    candidates.
    """
    rows, columns = combinations.shape
    figure = style.new_figure(PANEL[0] * columns + 1.2, PANEL[1] * (rows + 1) + 1.6)
    panels = figure.subplots(rows + 1, columns, squeeze=False)
    hyperpriors = [_hyperprior(combinations, column) for column in range(columns)]
    scales = scales_of(hyperpriors)
    for name, hyperprior, axes in zip(combinations.columns, hyperpriors, panels[0], strict=True):
        axes.set_title(_column_name(name))
        _draw_scale(axes, hyperprior, scales)
    for row, line in enumerate(panels[1:]):
        for column, axes in enumerate(line):
            _draw_weight(axes, combinations, row, column)
    for axes, name in zip(panels[:, 0], ("scale", *combinations.rows), strict=True):
        axes.set_ylabel(name.replace(", ", ",\n"))  # a panel is not high enough for more
    note = "design: density of the scale (top row) and of one weight, on logarithmic axes"
    cells = [record.cell for records in combinations.records.values() for record in records]
    if any(getattr(cell.prior, "fan_in", False) for cell in cells):
        note += "; scales are not divided by √fan-in here"
    style.set_title(figure, f"{title}\n{note}")
    return figure


def _hyperprior(combinations: Combinations, column: int) -> Hyperprior | None:
    """Hyperprior of a column; None if only priors without a scale stand in it."""
    cells = (records[0].cell for (_, at), records in combinations.records.items() if at == column)
    return next((cell.hyperprior for cell in cells if cell.has_scale), None)


def scales_of(hyperpriors: Iterable[Hyperprior | None]) -> np.ndarray:
    """Scales at which densities are drawn: `SCALES`, or farther where hyperpriors are beyond."""
    reached = [SCALES[0], SCALES[-1]]
    for hyperprior in filter(None, hyperpriors):
        if _law(hyperprior) is None:
            reached += fixed_scales(hyperprior)
        else:
            reached += np.clip(_scales_at(hyperprior, np.array([0.1, 0.9])), *FARTHEST).tolist()
    low, high = min(reached), max(reached)
    is_beyond = low < SCALES[0] or high > SCALES[-1]
    return np.geomspace(low, high, len(SCALES)) if is_beyond else SCALES


def _draw_scale(axes: Axes, hyperprior: Hyperprior | None, at: np.ndarray) -> None:
    """Draw the density of the scale's logarithm, or a line at every fixed scale."""
    if hyperprior is None:
        style.draw_empty(axes, "no scale")
        return
    scales, density = fixed_scales(hyperprior), log_scale_density(hyperprior, at)
    if not scales and density is None:
        style.draw_empty(axes, "no formula")
        return
    # A little beyond the ends, where a candidate would be hidden by the frame.
    axes.set(xscale="log", xlim=(at[0] / 1.3, at[-1] * 1.3), yticks=[], ylim=(0, 0.8))
    axes.vlines(scales, 0, 0.75, color=style.CLASS_COLOURS[1])
    if density is not None:
        axes.fill_between(at, density, color=style.CLASS_COLOURS[1], alpha=0.3)
        axes.plot(at, density, color=style.CLASS_COLOURS[1])
    ticks = [10.0 ** math.ceil(math.log10(at[0])), 1, 10.0 ** math.floor(math.log10(at[-1]))]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()


def _draw_weight(axes: Axes, combinations: Combinations, row: int, column: int) -> None:
    """Draw the density of a weight, and write the number of cells."""
    records = combinations.records.get((row, column), ())
    if not records:
        style.draw_empty(axes, combinations.absence(row, column))
        return
    cell = records[0].cell
    axes.set(xlim=(WEIGHTS[0], WEIGHTS[-1]), xticks=[-5, 0, 5])
    if not getattr(cell.prior, "is_proper", cell.has_scale):
        densities = [np.full(WEIGHTS.shape, 0.05)]  # improper: level, at no height in particular
    else:
        densities = weight_densities(cell.prior, cell.hyperprior, WEIGHTS)
    if not densities:
        style.draw_empty(axes, "no formula")
        return
    axes.set(yscale="log", ylim=DENSITY)
    axes.set_yticks([1e-4, 1e-2, 1], ["0.0001", "0.01", "1"] if column == 0 else [])
    axes.set_yticks([], minor=True)
    colour, number = style.CLASS_COLOURS[0], len(densities)
    for density in densities:
        axes.plot(WEIGHTS, density, color=colour, linewidth=1.3 / number + 0.3)
        fill = {"color": colour, "alpha": 0.25 / number, "linewidth": 0}
        axes.fill_between(WEIGHTS, DENSITY[0], density, **fill)
    text = f"{len(records)} cell{'s' if len(records) > 1 else ''}"
    text += ", no scale" if row in combinations.without_scale else ""
    place = {"ha": "right", "va": "top", "transform": axes.transAxes}
    axes.text(0.97, 0.95, text, fontsize=style.TICK_SIZE, color=style.GREY, **place)


# Densities before anything is seen


def fixed_scales(hyperprior: Hyperprior) -> list[float]:
    """Scales that a fixed one stands for: one, those of its layers, or its candidates.

    There are none if it is learned, or matched on the data.
    """
    if not isinstance(hyperprior, Fixed):
        return []
    of_layers = hyperprior.scale if isinstance(hyperprior.scale, tuple) else ()
    return list(hyperprior.scales or dict.fromkeys(of_layers))


def log_scale_density(hyperprior: Hyperprior, scale: np.ndarray) -> np.ndarray | None:
    """Density of the logarithm of a learned scale; None if there is no formula here.

    Whether the hyperprior is that of the scale or of its square is taken into account.
    """
    law = _law(hyperprior)
    if law is None:
        return None
    power = 2 if hyperprior.on == "variance" else 1
    return power * scale**power * law.pdf(scale**power)


def weight_densities(prior: Prior, hyperprior: Hyperprior, weight: np.ndarray) -> list[np.ndarray]:
    """Density of one weight under every fixed scale, or with a learned one averaged out.

    The list is empty if there is no formula here. The fan-in rule is left out.
    """
    averaged = _averaged_density(prior)
    density = None if averaged else _standard_density(prior)
    if _law(hyperprior) is None:
        scales = [np.full((QUANTILES if averaged else 1, 1), s) for s in fixed_scales(hyperprior)]
    else:
        scales = [_scales_at(hyperprior, (np.arange(QUANTILES) + 0.5) / QUANTILES)[:, None]]
    if averaged:
        return [averaged(prior, of_weight, weight) for of_weight in scales]
    if density is None:
        return []
    return [np.mean(density(weight / s) / s, axis=0) for s in scales]


def _scales_at(hyperprior: Hyperprior, probability: np.ndarray) -> np.ndarray:
    """Quantiles of a learned scale; those of a vague hyperprior may be infinite."""
    with np.errstate(all="ignore"):
        values = _law(hyperprior).ppf(probability)
    return np.sqrt(values) if hyperprior.on == "variance" else values


def _averaged_density(prior: Prior) -> Callable[[Prior, np.ndarray, np.ndarray], np.ndarray] | None:
    """Density that is a mean over variables of the prior; None if it has none of these."""
    if getattr(prior, "slab_scale", None) is not None:
        return _with_slab
    is_learned = prior.kind == "scale_mixture" and prior.learned
    return _with_learned_mixture if is_learned else None


def _with_learned_mixture(prior: Prior, scale: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Density of one weight of the learned scale mixture; arguments as `_with_slab`."""
    from scipy import special, stats

    points = stats.qmc.Halton(3, scramble=False).random(len(scale) + 1)[1:]
    logit, log_1, log_2 = prior.spread * stats.norm.ppf(points.T)[:, :, None]
    share = special.expit(special.logit(prior.proportion) + logit)
    wide, narrow = (
        stats.norm.pdf(weight, scale=scale * sigma * np.exp(log))
        for sigma, log in ((prior.sigma_1, log_1), (prior.sigma_2, log_2))
    )
    return (share * wide + (1 - share) * narrow).mean(axis=0)


def _with_slab(prior: Prior, scale: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Density of one weight of the regularised horseshoe, by its local scale and its slab.

    A mean of normal densities over quantiles of both, paired with the scales by a low-discrepancy
    sequence (Hammersley's points, where scales are quantiles).

    Parameters
    ----------
    scale
        One for each point, ``(point, 1)``.
    weight
        Where the density is computed.
    """
    from scipy import stats

    points = stats.qmc.Halton(2, scramble=False).random(len(scale) + 1)[1:]
    local = stats.halfcauchy.ppf(points[:, :1]) * scale
    half = prior.slab_df / 2
    slab = np.sqrt(stats.invgamma.ppf(points[:, 1:], half, scale=half * prior.slab_scale**2))
    return stats.norm.pdf(weight, scale=local / np.sqrt(1 + (local / slab) ** 2)).mean(axis=0)


def _law(hyperprior: Hyperprior):
    """Distribution of a learned scale, or of its square, in SciPy; None if there is none here."""
    from scipy import stats

    laws = {
        "half_normal": lambda h: stats.halfnorm(scale=h.sigma),
        "half_cauchy": lambda h: stats.halfcauchy(scale=h.beta),
        "inverse_gamma": lambda h: stats.invgamma(h.alpha, scale=h.beta),
    }
    law = laws.get(hyperprior.kind)
    return None if law is None else law(hyperprior)


def _standard_density(prior: Prior) -> Callable[[np.ndarray], np.ndarray] | None:
    """Density of a weight whose scale is 1; None if there is no formula here."""
    from scipy import stats

    densities = {
        "normal": lambda p: stats.norm.pdf,
        "correlated_normal": lambda p: stats.norm.pdf,
        "matrix_normal": lambda p: stats.norm.pdf,
        "laplace": lambda p: stats.laplace.pdf,
        "cauchy": lambda p: stats.cauchy.pdf,
        "student_t": lambda p: stats.t(p.nu).pdf,
        "multivariate_t": lambda p: stats.t(p.nu).pdf,
        "scale_mixture": _mixture,
        "trainable_mean": lambda p: stats.norm(scale=np.hypot(1.0, p.spread)).pdf,
        "horseshoe": lambda p: _horseshoe,
        "pymc": _of_pymc,
    }
    density = densities.get(prior.kind)
    return None if density is None else density(prior)


def _mixture(prior: Prior) -> Callable[[np.ndarray], np.ndarray]:
    from scipy.stats import norm

    share, wide, narrow = prior.proportion, prior.sigma_1, prior.sigma_2
    return lambda x: share * norm.pdf(x, scale=wide) + (1 - share) * norm.pdf(x, scale=narrow)


def _of_pymc(prior: Prior) -> Callable[[np.ndarray], np.ndarray]:
    import pymc as pm

    distribution = getattr(pm, prior.dist).dist(**as_constants(prior.given))
    return lambda x: np.exp(pm.logp(distribution, x).eval(mode="FAST_COMPILE"))


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


@style.with_sizes
def plot_accuracy_overview(combinations: Combinations, title: str) -> Figure:
    """Mean accuracy over data seeds ± standard error, one line a combination.

    For synthetic data the best possible accuracy is marked, and a second panel shows the
    excess error: how much more often than the best classifier the fit errs on fresh points.
    """
    lines = _lines(combinations)
    excess = [combinations.score(*line.place, "excess_error")[0] for line in lines]
    synthetic = any(map(math.isfinite, excess))
    height = LINE * (lines[-1].height + 2) + 1.3
    figure = style.new_figure(10.5 if synthetic else 7.5, max(2.6, height))
    panels = figure.subplots(1, 2 if synthetic else 1, sharey=True, squeeze=False)[0]
    _draw_scores(panels[0], combinations, lines, "accuracy")
    panels[0].set_xlabel("test accuracy")
    names = [_line_name(combinations, line) for line in lines]
    panels[0].set_yticks([line.height for line in lines], names)
    panels[0].set_ylim(lines[-1].height + 0.8, -0.8)
    _mark_best(figure, panels[0], combinations, lines)
    if synthetic:
        _draw_scores(panels[1], combinations, lines, "excess_error")
        panels[1].set_xlabel("excess error over the best possible")
        panels[1].axvline(0.0, color=style.GREY, linestyle="--", linewidth=1)
    notes = [title, _error_note(combinations), combinations.mark_notes]
    style.set_title(figure, "\n".join(filter(None, notes)))
    return figure


def _lines(combinations: Combinations) -> list[Line]:
    """Lines from the top down; a prior without scale has one only."""
    lines: list[Line] = []
    height = 0.0
    for row, column in np.ndindex(combinations.shape):
        height += GAP if row and column == 0 else 0
        no_scale = row in combinations.without_scale
        if no_scale and (row, column) not in combinations.records:
            continue
        colour = style.CLASS_COLOURS[column % len(style.CLASS_COLOURS)]
        marker = style.MARKERS[column % len(style.MARKERS)]
        lines.append(Line((row, column), height, style.GREY if no_scale else colour, marker))
        height += 1
    return lines


def _draw_scores(axes: Axes, combinations: Combinations, lines: list[Line], name: str) -> None:
    """Draw means with error bars, or write why there are none."""
    for line in lines:
        mean, error = _score(combinations, line.place, name)
        if math.isfinite(mean):
            bar = error if math.isfinite(error) else None
            axes.errorbar(
                mean, line.height, xerr=bar, color=line.colour, marker=line.marker,
                markersize=6, capsize=3, linestyle="none",
            )  # fmt: skip
        else:
            look = {"color": style.GREY, "fontsize": style.TICK_SIZE, "va": "center"}
            reason, transform = combinations.absence(*line.place), axes.get_yaxis_transform()
            axes.text(0.02, line.height, reason, transform=transform, **look)
    axes.grid(axis="x", color="#DDDDDD")
    axes.set_axisbelow(True)
    axes.margins(x=0.08)
    axes.tick_params(axis="y", length=0)


def _line_name(combinations: Combinations, line: Line) -> str:
    """Prior and hyperprior of a line, how many cells failed or seeds it lacks, and its marks."""
    row, column = line.place
    scale = "no scale" if row in combinations.without_scale else combinations.columns[column]
    finished = combinations.finished(row, column)
    done, every = len(finished), len(combinations.records.get(line.place, ()))
    seeds, of_all = len({record.cell.data_seed for record in finished}), combinations.seeds
    failed = f" ({every - done} failed)" if 0 < done < every else ""
    if 0 < seeds < of_all and not failed:
        failed = f" ({seeds} of {of_all} data seeds)"
    return f"{combinations.rows[row]}, {scale}{failed} {combinations.marks(row, column)}".rstrip()


def _mark_best(figure: Figure, axes: Axes, combinations: Combinations, lines: list[Line]) -> None:
    """Draw a line at the best possible accuracy, where the data's distribution is known."""
    scores = [combinations.score(*line.place, "best_accuracy")[0] for line in lines]
    best = next(filter(math.isfinite, scores), None)
    if best is not None:
        label = f"best possible, {best:.3f}"
        axes.axvline(best, color="black", linestyle="--", linewidth=1.2, label=label)
        figure.legend(*axes.get_legend_handles_labels(), **style.BELOW)


# The repair ladder: distance from the posterior against what a fit costs


WIDTH, HEIGHT = 4.6, 4.0
"""Size of a panel, in inches."""

WORDS = {"best": "", "equal": ", pooled", "elbo": ", by ELBO", "stacked": ", stacked", "chains": ""}
"""Words that follow a guide's name, by the mixture of its restarts."""


@style.with_sizes
def plot_ladder(table: pd.DataFrame, title: str) -> Figure:
    """Total variation from the posterior against cost, a panel a data set.

    A large marker is a rung's mean over posteriors, small ones are single posteriors; the dashed
    line is near enough, and the reference lies at its own floor.

    Parameters
    ----------
    table
        As `pmbnn.compare.agreement.ladder_table` makes it; not empty.
    """
    datasets = table.filter(regex=r"^dataset\.").rename(
        columns=lambda n: n.removeprefix("dataset.")
    )
    names = [dataset_row_label(row) for row in datasets.to_dict("records")]
    panels = list(table.groupby(pd.Series(names, index=table.index), sort=False))
    guides, mixtures = (list(table[name].unique()) for name in ("guide", "mixture"))
    colours = dict(zip(guides, cycle(style.CLASS_COLOURS), strict=False))
    markers = dict(zip(mixtures, cycle(style.MARKERS), strict=False))
    figure = style.new_figure(WIDTH * len(panels), HEIGHT + 1.2)
    drawn = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (name, rows) in zip(drawn, panels, strict=True):
        _draw_panel(axes, rows, colours, markers)
        axes.set_title(name)
        axes.set_xlabel("time of a cell, share of the reference's")
    drawn[0].set_ylabel("total variation from the posterior")
    pairs = [pair for axes in drawn for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
    handles = {label: handle for handle, label in reversed(pairs)}
    figure.legend(handles.values(), handles, ncols=3 * len(panels), **style.BELOW)
    style.set_title(figure, title)
    return figure


def _draw_panel(
    axes: Axes, rows: pd.DataFrame, colours: Mapping[str, str], markers: Mapping[str, str]
) -> None:
    for (guide, mixture), rung in rows.groupby(["guide", "mixture"], sort=False):
        look = {"color": colours[guide], "marker": markers[mixture], "linestyle": "none"}
        cost, distance = rung["cost"], rung["total_variation"]
        axes.plot(cost, distance, markersize=3, alpha=0.45, **look)
        label = guide.replace("_", " ") + WORDS.get(mixture, "")
        edge = {"markeredgecolor": "black", "markeredgewidth": 0.7}
        axes.plot(cost.mean(), distance.mean(), markersize=9, label=label, **edge, **look)
    axes.axhline(rows["target"].iloc[0], color=style.GREY, linestyle="--", linewidth=1)
    axes.set(xscale="log", yscale="log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(color="#DDDDDD", linewidth=0.6, which="both")
    axes.set_axisbelow(True)
