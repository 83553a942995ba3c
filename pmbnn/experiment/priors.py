"""The priors of an experiment, each once: what there is to draw functions from."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pmbnn.data.base import DatasetSpec
from pmbnn.experiment.cells import Cell, Experiment
from pmbnn.experiment.errors import ConfigError
from pmbnn.experiment.plan import cell_label, settings_digest
from pmbnn.inference.settings import Inference
from pmbnn.models.priors import Hyperprior
from pmbnn.prediction.settings import Predict


@dataclass(frozen=True)
class Combination:
    """A prior over functions on a data set: what cells say before they are fitted.

    Attributes
    ----------
    cell
        Data set, network, prior, hyperprior and likelihood, with nothing said of fitting; a
        tuned scale is one of its candidates, the data seed the first of those there are.
    tuned
        The hyperprior as the experiment has it, where its scale is a candidate.
    """

    cell: Cell
    tuned: Hyperprior | None

    @property
    def random_seed(self) -> int:
        """Decides the draws: of its own settings, whatever else there is."""
        return int(settings_digest(self.cell)[:8], 16)


def combinations(every: Sequence[Cell], wanted: Sequence[Cell]) -> list[Combination]:
    """Every proper prior of the wanted cells once, each candidate of a tuned scale by itself.

    Data sets that differ in their seed have the same prior but for where it is looked at: the
    first among `every` cell stands for all.
    """
    first: dict[DatasetSpec, DatasetSpec] = {}
    for cell in every:
        first.setdefault(_without_seed(cell.dataset), cell.dataset)
    found: dict[tuple, Combination] = {}
    for cell in wanted:
        if not cell.prior.has_scale:
            continue
        dataset, places = first[_without_seed(cell.dataset)], Predict(map=cell.predict.map)
        here = replace(cell, dataset=dataset, inference=Inference(), predict=places)
        tuned = None if cell.hyperprior.candidates == (cell.hyperprior,) else cell.hyperprior
        for hyperprior in cell.hyperprior.candidates:
            one = Combination(replace(here, hyperprior=hyperprior), tuned)
            found.setdefault((tuned, *one.cell.settings.values()), one)
    return list(found.values())


def _without_seed(dataset: DatasetSpec) -> DatasetSpec:
    return dataset.model_copy(update={"seed": 0})


def left_out(cells: Sequence[Cell]) -> list[str]:
    """What nothing can be drawn from, and why, one line each."""
    improper = dict.fromkeys(cell.prior.kind for cell in cells if not cell.prior.has_scale)
    return [f"prior {kind}: improper, nothing can be drawn from it" for kind in improper]


def checked_combinations(every: Sequence[Cell], wanted: Sequence[Cell]) -> list[Combination]:
    """The same.

    Raises
    ------
    ConfigError
        If there is none.
    """
    found = combinations(every, wanted)
    if not found:
        kinds = ", ".join(dict.fromkeys(cell.prior.kind for cell in wanted))
        raise ConfigError(
            f"`--prior-only` must have a proper prior, got {kinds} only, which nothing can be "
            "drawn from."
        )
    return found


def prior_lines(experiment: Experiment, cells: Sequence[Cell]) -> list[str]:
    """The plan in words."""
    found = checked_combinations(experiment.cells, cells)
    lines = [f"{experiment.name}: {len(found)} combinations, nothing is fitted"]
    lines += [f"  {cell_label(one.cell)}" for one in found]
    return [*lines, *(f"  left out: {line}" for line in left_out(cells))]
