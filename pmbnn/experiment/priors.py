"""The priors of an experiment, each once: what there is to draw functions from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pmbnn.data.base import DatasetSpec
from pmbnn.experiment.cells import Cell, Experiment
from pmbnn.experiment.plan import cell_label, settings_digest
from pmbnn.inference.settings import Inference
from pmbnn.models.priors import Hyperprior
from pmbnn.prediction.settings import Predict
from pmbnn.spec.errors import ConfigError


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

    Data sets that differ in their seed have the same prior but for where it is looked at, and
    sweeps may share a prior: the first among `every` cell stands for all.
    """
    found: dict[tuple, Combination] = {}
    for cell in every:
        for key, one in _keyed(cell):
            found.setdefault(key, one)
    asked = dict.fromkeys(key for cell in wanted for key, _ in _keyed(cell))
    return [found[key] for key in asked]


def _keyed(cell: Cell) -> Iterator[tuple[tuple, Combination]]:
    """What there is to draw from of one cell, each with what it has in common with others."""
    if not cell.prior.has_scale:
        return
    place = cell.predict.map.model_copy(update={"draws": None})
    here = replace(cell, inference=Inference(), predict=Predict(map=place))
    tuned = None if cell.hyperprior.candidates == (cell.hyperprior,) else cell.hyperprior
    for hyperprior in cell.hyperprior.candidates:
        one = replace(here, hyperprior=hyperprior)
        alike = replace(one, dataset=_without_seed(cell.dataset))
        yield (tuned, *alike.settings.values()), Combination(one, tuned)


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
