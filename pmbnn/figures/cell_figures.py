"""Figures of one cell: what each needs of the trace, and so whether it can be drawn."""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from matplotlib.figure import Figure
from xarray import DataTree

from pmbnn.figures.classes import plot_class_pairs
from pmbnn.figures.confident_mistakes import plot_confident_mistakes
from pmbnn.figures.gallery import plot_gallery
from pmbnn.figures.least_confident import plot_least_confident
from pmbnn.figures.letters import plot_letters
from pmbnn.figures.network import plot_network
from pmbnn.figures.points import plot_points
from pmbnn.figures.risk_coverage import plot_risk_coverage
from pmbnn.figures.samples import plot_samples
from pmbnn.figures.snapshot_examples import plot_snapshot_examples
from pmbnn.figures.training import plot_training
from pmbnn.figures.uncertainty import plot_uncertainty
from pmbnn.figures.unfamiliar import plot_unfamiliar
from pmbnn.figures.unfamiliar_examples import plot_unfamiliar_examples
from pmbnn.figures.weights import plot_weights

Plot = Callable[[DataTree, str], Figure]


class CellFigure(NamedTuple):
    """One kind of figure.

    Attributes
    ----------
    file
        End of the name of its file.
    plot
        Draws it from a trace with the groups below.
    needs
        Groups, which may be patterns, each with an array it must hold for this to be drawn.
    uses
        Further groups that are taken where the trace has them.
    """

    file: str
    plot: Plot
    needs: tuple[tuple[str, str], ...]
    uses: tuple[str, ...] = ()

    def groups(self, held: Mapping[str, frozenset[str]]) -> list[str]:
        """Groups to load of a trace that holds these arrays; none if it cannot be drawn."""
        found = []
        for pattern, name in self.needs:
            fitting = [g for g, names in held.items() if fnmatchcase(g, pattern) and name in names]
            if not fitting:
                return []
            found += fitting
        return list(dict.fromkeys([*found, *(group for group in self.uses if group in held)]))


PICTURES = (("test_predictions", "image"),)
VALIDATION = ("validation_predictions",)

# Points of a plane are those that a map was drawn of.
PLANAR = (("constant_data", "x"), ("observed_data", "y"), ("predictions", "x1"))

CELL_FIGURES = (
    CellFigure("points", plot_points, PLANAR),
    CellFigure("samples", plot_samples, PICTURES),
    CellFigure("training", plot_training, (("fit", "snapshot_accuracy"),)),
    CellFigure("classes", plot_class_pairs, PICTURES),
    CellFigure("gallery", plot_gallery, PICTURES),
    CellFigure("uncertainty", plot_uncertainty, PICTURES, VALIDATION),
    CellFigure("confident-mistakes", plot_confident_mistakes, PICTURES, VALIDATION),
    CellFigure("least-confident", plot_least_confident, PICTURES, VALIDATION),
    CellFigure("risk-coverage", plot_risk_coverage, PICTURES),
    CellFigure(
        "unfamiliar",
        plot_unfamiliar,
        (("test_predictions", "sd"), ("unfamiliar_*", "sd")),
        VALIDATION,
    ),
    CellFigure(
        "unfamiliar-examples",
        plot_unfamiliar_examples,
        (("test_predictions", "sd"), ("unfamiliar_*", "example_image")),
        VALIDATION,
    ),
    CellFigure(
        "letters",
        plot_letters,
        (("test_predictions", "image"), ("unfamiliar_letters", "example_image")),
        VALIDATION,
    ),
    CellFigure(
        "weights", plot_weights, (("fit", "snapshot_mean_density"),), ("snapshot_examples",)
    ),
    CellFigure("network", plot_network, (("posterior", "weight_1"), ("fit", "elbo"))),
    CellFigure("examples", plot_snapshot_examples, (("snapshot_examples", "probability"),)),
)
"""In the order in which a page shows them."""
