"""Kinds of figures of one cell, with the groups of a trace that each needs to be drawn."""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from itertools import chain
from typing import NamedTuple

from matplotlib.figure import Figure
from xarray import DataTree

from pmbnn.figures.classification import (
    plot_class_pairs,
    plot_reliability,
    plot_risk_coverage,
    plot_uncertainty,
)
from pmbnn.figures.image_sheets import (
    plot_confident_mistakes,
    plot_least_confident,
    plot_most_uncertain,
    plot_points,
    plot_samples,
    plot_snapshot_examples,
)
from pmbnn.figures.maps import plot_plane, plot_surface
from pmbnn.figures.ood import plot_letters, plot_ood, plot_ood_examples
from pmbnn.figures.regression import plot_curves, plot_pit, plot_predicted_observed
from pmbnn.figures.training import plot_training
from pmbnn.figures.weights import plot_network, plot_weights
from pmbnn.results.names import cell_title
from pmbnn.results.reading import load_arrays
from pmbnn.results.record import CellRecord
from pmbnn.results.store import Results


class CellFigure(NamedTuple):
    """One kind of figure.

    Attributes
    ----------
    file
        End of the name of its file.
    plot
        Function of a trace, with the groups below, and a title that draws it.
    needs
        Groups, which may be patterns, each with an array it must hold for this to be drawn.
    uses
        Further groups that are read where the trace has them.
    arrays
        Regular expression of the arrays of these groups that are read.
    """

    file: str
    plot: Callable[[DataTree, str], Figure]
    needs: tuple[tuple[str, str], ...]
    uses: tuple[str, ...] = ()
    arrays: str = ".*"

    def groups(self, stored: Mapping[str, frozenset[str]]) -> list[str]:
        """Groups to load of a trace that holds these arrays; none if it cannot be drawn."""
        needed = [
            [g for g, arrays in stored.items() if fnmatchcase(g, pattern) and name in arrays]
            for pattern, name in self.needs
        ]
        if not all(needed):
            return []
        used = [group for group in self.uses if group in stored]
        return list(dict.fromkeys(chain(*needed, used)))


def draw_cell(
    results: Results, record: CellRecord, figure: CellFigure, groups: list[str], which: str = ""
) -> Figure:
    """Figure of a stored cell from these groups of its trace; its title ends in `which`."""
    trace = load_arrays(results, record.name, dict.fromkeys(groups, figure.arrays))
    return figure.plot(trace, f"{cell_title(record)}{which}")


TEST = "test_predictions"
IMAGES = ((TEST, "image"),)
VALIDATION = ("validation_predictions",)
ROWS = (("constant_data", "x"), ("observed_data", "y"))

MAP = CellFigure(
    "map", plot_plane, (("predictions", "x1"),), (TEST,), arrays="probability|sd|x|label"
)
CURVES = CellFigure("curves", plot_curves, (("curve_*", "mean"), *ROWS))

SURFACE = CellFigure(
    "map",
    plot_surface,
    (("predictions", "mean"), (TEST, "target")),
    arrays="mean|epistemic_sd|x|target",
)

OF_DENSITIES = (
    CURVES,
    SURFACE,
    CellFigure(
        "predicted-observed",
        plot_predicted_observed,
        ((TEST, "total_interval"), (TEST, "target")),
        arrays="mean|target|total_interval",
    ),
    CellFigure("pit", plot_pit, ((TEST, "pit"),), arrays="pit"),
)
"""In the order in which a page shows them."""

OF_CLASS_PROBABILITIES = (
    # Points of a plane are those that a map was drawn of.
    CellFigure("points", plot_points, (*ROWS, ("predictions", "x1"))),
    CellFigure("samples", plot_samples, IMAGES),
    CellFigure("training", plot_training, (("fit", "snapshot_accuracy"),)),
    CellFigure("classes", plot_class_pairs, IMAGES),
    CellFigure("gallery", plot_most_uncertain, IMAGES),
    CellFigure("uncertainty", plot_uncertainty, IMAGES, VALIDATION),
    CellFigure("confident-mistakes", plot_confident_mistakes, IMAGES, VALIDATION),
    CellFigure("least-confident", plot_least_confident, IMAGES, VALIDATION),
    CellFigure(
        "reliability",
        plot_reliability,
        ((TEST, "probability"), (TEST, "label")),
        arrays="probability|sd|label",
    ),
    CellFigure("risk-coverage", plot_risk_coverage, IMAGES),
    CellFigure("ood", plot_ood, ((TEST, "sd"), ("ood_*", "sd")), VALIDATION),
    CellFigure(
        "ood-examples", plot_ood_examples, ((TEST, "sd"), ("ood_*", "example_image")), VALIDATION
    ),
    CellFigure("letters", plot_letters, (*IMAGES, ("ood_letters", "example_image")), VALIDATION),
    CellFigure(
        "weights", plot_weights, (("fit", "snapshot_mean_density"),), ("snapshot_examples",)
    ),
    CellFigure(
        "network", plot_network, (("posterior", "weight_1"), ("fit", "elbo")), ("restarts",)
    ),
    CellFigure("examples", plot_snapshot_examples, (("snapshot_examples", "probability"),)),
)
"""In the order in which a page shows them."""
