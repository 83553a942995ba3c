"""Figures of functions drawn from a prior, and of the posterior beside them."""

from collections.abc import Sequence
from functools import partial
from itertools import product

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.figures.maps import (
    HIGHEST_SD,
    draw_decision_boundary,
    draw_probability,
    draw_uncertainty,
    probability_label,
)
from pmbnn.figures.overviews import load_map
from pmbnn.figures.regression import (
    MARGIN,
    MEAN,
    TRUTH,
    add_legend,
    curve_names,
    draw_curve,
    limits,
    position_name,
    positions_on,
    range_words,
)
from pmbnn.figures.stage import Drawing
from pmbnn.prior_predictive.process import GROUP, KINDS
from pmbnn.prior_predictive.store import (
    StoredPrior,
    data_path,
    figure_path,
    load_functions,
    match_path,
    posterior_beside,
    stored_priors,
)
from pmbnn.results.derived import cells_digest, is_current
from pmbnn.results.names import combination_title, dataset_title, method_name
from pmbnn.results.reading import (
    PlaneMap,
    by_target,
    load_groups,
    plane_map,
    shape_of,
    stored_variables,
)
from pmbnn.results.record import CellRecord
from pmbnn.results.store import Results, sha256

WIDTH = 2.0
"""Width of a map, in inches."""

MOMENTS = ("prior mean", "prior sd", "posterior mean", "posterior sd")
COLUMNS = len(MOMENTS)
"""Maps beside each other: means and deviations take one row."""

ABSENT, OTHER = "no cell here yet", "another scale\nwas chosen"
"""What stands in the place of a posterior."""

SHOWN_RANGE = (0.02, 0.98)
"""Quantiles of drawn functions that a panel reaches to: heavy tails have no end."""

FAR = 10
"""Times the largest target beyond which functions are shown on a logarithmic axis."""


@style.with_sizes
def plot_prior_maps(
    prior: xr.DataTree, posterior: PlaneMap | None, title: str, absence: str = ABSENT
) -> Figure:
    """Functions drawn from the prior over the plane; below, their mean and sd and the posterior's.

    The prior's mean has no decision boundary: before any data, all classes are equally probable.

    Parameters
    ----------
    prior
        Group ``predictions`` with the prior's ``probability`` and ``sd``, and ``function``, single
        ones.
    posterior
        The posterior's map; None where there is none.
    absence
        Why there is none.
    """
    plane = plane_map(prior)
    functions = prior["predictions"]["function"].isel(output=0)
    functions = functions.transpose("function", "x1", "x2").values
    figure, grid = _panels(len(functions), shape_of(plane))
    for axes, function in zip(grid[:-1].flat, functions, strict=False):
        probability = draw_probability(axes, plane._replace(probability=function))
        draw_decision_boundary(axes, plane._replace(probability=function), width=0.8)
    highest = style.upper_limit([p.sd for p in (plane, posterior) if p is not None], HIGHEST_SD)
    draw_probability(grid[-1, 0], plane)
    sd = draw_uncertainty(grid[-1, 1], plane, highest)
    if posterior is None:
        for axes in grid[-1, 2:]:
            style.draw_empty(axes, absence)
            axes.set_box_aspect(shape_of(plane))
    else:
        draw_probability(grid[-1, 2], posterior)
        draw_uncertainty(grid[-1, 3], posterior, highest)
        for axes in grid[-1, 2:]:
            draw_decision_boundary(axes, posterior, width=0.8)
    label = probability_label(plane)
    figure.colorbar(probability, ax=list(grid[:-1].flat), label=label, shrink=0.8)
    figure.colorbar(sd, ax=list(grid[-1]), label="sd of that probability", aspect=12)
    style.set_title(figure, title)
    return figure


def _panels(functions: int, shape: float) -> tuple[Figure, np.ndarray]:
    """Empty figure with a panel for each function, and a row for means and deviations below."""
    rows = -(-functions // COLUMNS) + 1
    figure = style.new_figure(COLUMNS * WIDTH + 1.6, rows * (WIDTH * shape + 0.15) + 1.0)
    grid = figure.subplots(rows, COLUMNS, squeeze=False)
    for axes in grid.flat:
        axes.set(xticks=[], yticks=[])
    for axes in grid[:-1].flat[functions:]:
        axes.set_axis_off()
    grid[0, 0].set_title("functions drawn from the prior", fontsize=style.LABEL_SIZE, loc="left")
    for axes, moment in zip(grid[-1], MOMENTS, strict=True):
        axes.set_title(moment, fontsize=style.LABEL_SIZE)
    return figure, grid


@style.with_sizes
def plot_prior_curves(
    prior: xr.DataTree, posterior: xr.DataTree | None, title: str, absence: str = ABSENT
) -> Figure:
    """Functions drawn from the prior over each range; below, what the posterior says there.

    Parameters
    ----------
    prior
        Groups ``curve_1``, ... with single functions and their interval, and ``rows``.
    posterior
        Curves of the posterior; None where there are none.
    absence
        Why there are none.
    """
    priors, posteriors = by_target(prior), {} if posterior is None else by_target(posterior)
    columns = list(product(priors, curve_names(prior)))
    figure = style.new_figure(4.2 * len(columns) + 0.8, 6.6)
    panels = figure.subplots(2, len(columns), squeeze=False, sharex="col")
    for (above, below), (target, name) in zip(panels.T, columns, strict=True):
        _draw_functions(above, priors[target], name)
        heading = f"{target}, " * bool(target) + range_words(prior, name)
        above.set_title(heading, fontsize=style.LABEL_SIZE)
        if posterior is None:
            style.draw_empty(below, absence)
            continue
        draw_curve(below, posteriors[target], name)
        below.set_ylim(limits([posteriors[target]], name))
        below.set_xlabel(position_name(prior, name), fontsize=style.LABEL_SIZE)
    for axes, kind in zip(panels[:, 0], ("prior", "posterior"), strict=True):
        axes.set_ylabel(f"y, {kind}", fontsize=style.LABEL_SIZE)
    add_legend(figure, panels[:, 0], most=6)
    style.set_title(figure, title)
    return figure


def _draw_functions(axes: Axes, prior: xr.DataTree, name: str) -> None:
    """Functions drawn, their central interval at each input, and the training rows."""
    curve, rows = prior[name].dataset, prior["rows"].dataset
    x, functions = curve["x"].values, curve["function"].transpose("function", "point").values
    low, high = curve["interval"].transpose("bound", "point").values
    level = f"{100 * curve.attrs['level']:.0f} %"
    axes.fill_between(x, low, high, color=MEAN, alpha=0.12, linewidth=0, label=f"{level} of them")
    for number, function in enumerate(functions):
        label = "functions" if number == 0 else None
        axes.plot(x, function, color=MEAN, linewidth=0.7, alpha=0.7, label=label)
    if "truth" in curve:
        axes.plot(x, curve["truth"].values, color=TRUTH, linewidth=1.2, label="truth")
    at = positions_on(curve, rows["x"].transpose("observation", "feature").values)
    axes.plot(at, rows["y"].values, "o", color="black", markersize=3)
    axes.set_xlim(x[0], x[-1])
    _scale_y(axes, rows["y"].values, functions)


def _scale_y(axes: Axes, targets: np.ndarray, functions: np.ndarray) -> None:
    """Limits that hold the targets and most of the functions; logarithms where these are far."""
    shown = np.concatenate([targets, np.quantile(functions, SHOWN_RANGE)])
    bottom, top = float(shown.min()), float(shown.max())
    reach = float(np.abs(targets).max()) or 1.0
    if max(-bottom, top) > FAR * reach:
        axes.set_yscale("symlog", linthresh=reach)
        axes.set_ylim(min(bottom, -reach) * 1.5, max(top, reach) * 1.5)
        return
    margin = MARGIN * (top - bottom) or 1.0
    axes.set_ylim(bottom - margin, top + margin)


@style.with_sizes
def plot_match(match: xr.Dataset, title: str) -> Figure:
    """Functions with scale 1, with matched scales and of the process; spreads of increments.

    Parameters
    ----------
    match
        As `match_functions` returns it.
    """
    figure = style.new_figure(13.2, 3.4)
    *panels, spreads = figure.subplots(1, len(KINDS) + 1)
    headings = {
        "scale 1": f"scale 1, distance {match.attrs['match_before']:.3g}",
        "matched": f"matched, distance {match.attrs['match_after']:.3g}",
        "process": "Gaussian process",
    }
    shown = match["function"].transpose("kind", "function", "point")
    reach = 1.15 * float(np.abs(shown.sel(kind=["matched", "process"])).max())
    for axes, kind, colour in zip(panels, KINDS, style.CLASS_COLOURS, strict=False):
        functions = shown.sel(kind=kind).values
        axes.plot(match["position"].values, functions.T, color=colour, linewidth=0.8)
        axes.set_title(headings[kind], fontsize=style.LABEL_SIZE)
        own = 1.15 * float(np.abs(functions).max())
        axes.set_ylim(-max(own, reach), max(own, reach))
        axes.set_xlabel("distance along a line of inputs", fontsize=style.LABEL_SIZE)
        spread = match["spread"].sel(kind=kind).values
        place = {"color": colour, "markersize": 2, "alpha": 0.5, "label": kind}
        spreads.plot(match["distance"].values, spread, "o", markeredgewidth=0, **place)
    panels[0].set_ylabel("output of the network", fontsize=style.LABEL_SIZE)
    spreads.set(yscale="log")
    spreads.set_title("spread of increments (half of 68 %)", fontsize=style.LABEL_SIZE)
    spreads.set_xlabel("distance of two training inputs", fontsize=style.LABEL_SIZE)
    spreads.legend(frameon=False, markerscale=3)
    style.set_title(figure, f"{title}; {_scale_words(match)}")
    return figure


def _scale_words(match: xr.Dataset) -> str:
    scales = [v for name, v in match.attrs.items() if name.startswith("prior_scale_")]
    return f"scales of layers {', '.join(f'{scale:.3g}' for scale in scales)}"


# Of a results folder


def outdated_priors(results: Results, records: Sequence[CellRecord]) -> list[Drawing]:
    """Figures of the folder's priors that are missing, or made of other cells.

    There is none of images: their table says all.
    """
    due = []
    for prior in stored_priors(results):
        if GROUP in prior.groups:
            path, digest = match_path(results, prior.name), sha256(data_path(results, prior.name))
            if not is_current(results, f"{results.priors.name}/{path.name}", digest):
                due.append(Drawing(path, partial(draw_match, results, prior), digest))
        if not set(prior.groups) - {GROUP}:
            continue
        fitted = [r for r in records if r.results and prior.is_among(r)]
        path = figure_path(results, prior.name)
        digest = sha256(data_path(results, prior.name))[:16] + cells_digest(fitted)
        if not is_current(results, f"{results.priors.name}/{path.name}", digest):
            record, absence = posterior_beside(prior, fitted), OTHER if fitted else ABSENT
            due.append(Drawing(path, partial(draw_prior, results, prior, record, absence), digest))
    return due


def draw_match(results: Results, prior: StoredPrior) -> Figure:
    """The figure of one combination whose scales were matched."""
    title = f"{dataset_title(prior.cell.dataset)}: {combination_title(prior.cell)}"
    return plot_match(load_functions(results, prior.name)[GROUP].dataset, title)


def draw_prior(
    results: Results, prior: StoredPrior, record: CellRecord | None, absence: str = ABSENT
) -> Figure:
    """The figure of one combination, with the posterior of a cell beside it if there is one."""
    functions = load_functions(results, prior.name)
    title = f"{dataset_title(prior.cell.dataset)}: {combination_title(prior.cell)}"
    if record is not None:
        title += f"; posterior by {_how(record)}"
    if "predictions" in functions.children:
        plane = None if record is None else load_map(results, record.name)
        return plot_prior_maps(functions, plane, title, absence)
    curves = None
    if record is not None:
        lines = [g for g in stored_variables(results, record.name) if g.startswith("curve_")]
        groups = ["constant_data", "observed_data", *lines]
        curves = load_groups(results, record.name, groups)
    return plot_prior_curves(functions, curves, title, absence)


def _how(record: CellRecord) -> str:
    """What a posterior was fitted or sampled by, in words."""
    method = method_name(record.cell.inference)
    if record.cell.is_sampled:
        return f"{method.upper()}, {record.status}"
    if record.cell.is_laplace:
        return "Laplace's approximation"
    return f"ADVI, {method.replace('_', ' ')}"
