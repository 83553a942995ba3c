"""Images of noise, as a Bayesian and a deterministic network classify them."""

import math
from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from pmbnn.figures import sheets, style
from pmbnn.figures.classification import predictions_of, rows_name
from pmbnn.figures.image_sheets import draw_probabilities
from pmbnn.prediction.class_probabilities import HELD_OUT, PERCENTILE, rejection_threshold
from pmbnn.results.loading import ExperimentResults
from pmbnn.results.names import cell_title
from pmbnn.results.reading import images_of, load_groups, stored_variables, values_of
from pmbnn.results.record import CellRecord
from pmbnn.results.store import Results

NOISE = "ood_normal_noise"
BLOCKS = 2
"""Images beside each other."""

MOST = 8


def noise_figures(results: ExperimentResults) -> dict[str, Figure]:
    """A figure for each set of cells with a fit that was shown noise, as a point fit was."""
    figures = {}
    for sheet in sheets(results.records):
        other = sheet.finished and _deterministic(results.results, sheet.shown, results.records)
        if other:
            figures[sheet.file] = _draw_noise(results.results, sheet.shown, other)
    return figures


def _deterministic(
    results: Results, shown: CellRecord, records: Sequence[CellRecord]
) -> CellRecord | None:
    """The first point fit to the same data that was shown noise, as the given fit was."""

    def was_shown_noise(record: CellRecord) -> bool:
        return "example_image" in stored_variables(results, record.name).get(NOISE, ())

    if shown.predictive != "class_probabilities" or shown.cell.is_point:
        return None
    if not was_shown_noise(shown):
        return None
    points = (r for r in records if r.results and r.cell.is_point)
    same_data = (r for r in points if r.cell.dataset == shown.cell.dataset)
    return next((r for r in same_data if was_shown_noise(r)), None)


def _draw_noise(results: Results, shown: CellRecord, other: CellRecord) -> Figure:
    traces = [load_groups(results, record.name, [NOISE, *HELD_OUT]) for record in (shown, other)]
    return plot_compared_noise(*traces, f"{cell_title(shown)}, beside {cell_title(other)}")


def plot_compared_noise(
    bayesian: xr.DataTree, deterministic: xr.DataTree, title: str, group: str = NOISE
) -> Figure:
    """Eight images of a set with both networks' class probabilities.

    The title gives the mean predictive entropy of the whole set, which is what tells the
    networks apart.

    Parameters
    ----------
    bayesian, deterministic
        Traces of two cells that were shown the same images.
    title
        What the figure is about.
    group
        Which images.

    Raises
    ------
    ValueError
        If a trace does not have the group, or both keep different images of it.
    """
    traces = (bayesian, deterministic)
    images, other = (images_of(trace, group, "example_image", "example") for trace in traces)
    if not np.array_equal(images, other):
        raise ValueError(f"Both traces must keep the same images of `{group}`.")
    predictions = [
        predictions_of(trace, group).take(values_of(trace, group, "example_index")[:MOST])
        for trace in traces
    ]
    shown = len(predictions[0].sd)
    is_held_out = any(name in bayesian.children for name in HELD_OUT)
    threshold = rejection_threshold(bayesian, PERCENTILE) if is_held_out else None
    rows = math.ceil(shown / BLOCKS)
    figure = style.new_figure(13.0, 1.75 * rows + 1.0)
    panels = figure.subplots(rows, 3 * BLOCKS, squeeze=False, width_ratios=(1, 1.9, 1.9) * BLOCKS)
    for block in panels.reshape(rows * BLOCKS, 3)[shown:]:
        for axes in block:
            axes.set_axis_off()
    for row, (block, image) in enumerate(zip(panels.reshape(-1, 3), images[:shown], strict=False)):
        style.draw_pixels(block[0], image)
        draw_probabilities(block[1:], predictions, row, threshold)
    style.set_title(figure, f"{title}\n{_note(traces, group)}")
    return figure


def _note(traces: tuple[xr.DataTree, ...], group: str) -> str:
    means = [values_of(trace, group, "entropy").mean() / math.log(2) for trace in traces]
    images = f"{traces[0][group].sizes['ood_observation']} images of {rows_name(group)}"
    return f"mean entropy over {images}: {means[0]:.3f} bits against {means[1]:.3f}"
