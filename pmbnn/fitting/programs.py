"""Compiled programs of a group of cells, which all cells of the group share."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pymc as pm

from pmbnn.core.stages import staged
from pmbnn.data.arrays import Rows
from pmbnn.experiment.cells import Cell
from pmbnn.inference.engines import engine_of
from pmbnn.inference.flat import ModelGraphs, model_graphs
from pmbnn.inference.log_density import LogDensity, build_log_density
from pmbnn.inference.samplers.run import build_sampler
from pmbnn.models.build import build_model
from pmbnn.models.matching import any_scales
from pmbnn.prediction.predictor import Predictor, tempering
from pmbnn.results.record import LearningRateSearch


@dataclass(frozen=True)
class GroupPrograms:
    """Programs, models and searches of a group of cells, each made once, when first needed.

    All cells of a group have one graph: the first that needs a program builds it for all.

    Attributes
    ----------
    group
        Name of the group.
    width
        Replicas that a program fits at once.
    """

    group: str
    width: int
    _built: dict[object, object] = field(default_factory=dict, init=False, repr=False)

    def program(self, cell: Cell, rows: Rows, max_rows: int | None = None):
        """The program that fits or samples the group's cells on these rows.

        Parameters
        ----------
        max_rows
            Number of rows of the largest fits of the group, if there are smaller ones: one program
            runs all of them, if the model allows it.
        """
        if max_rows is not None:
            shared = self._once(
                ("program", max_rows, "fewer rows"),
                lambda: self._build(cell, rows, max_rows, allow_fewer_rows=True),
            )
            if shared.supports(len(rows)):
                return shared
        return self._once(("program", len(rows)), lambda: self._build(cell, rows, len(rows)))

    @staged("build")
    def _build(self, cell: Cell, rows: Rows, count: int, **how):
        graphs = self._graphs(cell, rows)
        if cell.is_sampled:
            further = tempering(cell.temperature, cell.prior)
            density = build_log_density(graphs, count, further=further)
            return build_sampler(density, cell.inference)
        build_program = engine_of(cell.inference).build_program
        return build_program(graphs, cell.inference, count, self.width, **how)

    def density(self, cell: Cell, rows: Rows) -> LogDensity:
        """Log-density of the group's model on as many rows, in double precision."""

        @staged("build")
        def build():
            return build_log_density(self._graphs(cell, rows), len(rows), "float64")

        return self._once(("density", len(rows)), build)

    def predictor(self, cell: Cell, rows: Rows, dtype: str = "float32") -> Predictor:
        """The predictor of the group's model; in single precision, probabilities round to one."""

        @staged("build")
        def build():
            return Predictor(self._graphs(cell, rows), cell.likelihood, dtype)

        return self._once(("predictor", dtype), build)

    def other(self, group: str, width: int) -> "GroupPrograms":
        """Programs of another group, kept as long as these."""
        return self._once(("other", group), lambda: GroupPrograms(group, width))

    def search(self, find: Callable[[], LearningRateSearch]) -> LearningRateSearch:
        """The group's search for a learning rate, which the first job makes."""
        return self._once("search", find)

    def model(self, cell: Cell, rows: Rows) -> pm.Model:
        """The group's model on one row, with the names of these rows' features and outputs.

        Its values belong to no cell: data sets and scales of a group differ in values alone.
        """
        names = rows.features, rows.classes, rows.target_names
        return self._once(("model", *names), lambda: graph_model(cell, rows))

    def _graphs(self, cell: Cell, rows: Rows) -> ModelGraphs:
        """Graphs of the group's model, from which all of its programs are made."""
        return self._once("graphs", lambda: model_graphs(self.model(cell, rows)))

    def _once(self, key: object, build: Callable[[], object]):
        if key not in self._built:
            self._built[key] = build()
        return self._built[key]


def graph_model(cell: Cell, rows: Rows) -> pm.Model:
    """A cell's model on one row, for its graph: the data of a fit are handed in separately."""
    hyperprior = any_scales(cell.hyperprior.candidates[0], cell.network, rows.input_shape)
    return build_model(cell.network, cell.prior, hyperprior, cell.likelihood, rows.take([0]))
