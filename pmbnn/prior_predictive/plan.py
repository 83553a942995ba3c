"""Plan of prior predictive checks: which priors of an experiment are drawn from."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from pmbnn.core.errors import ConfigError
from pmbnn.data import DataError
from pmbnn.data.base import DatasetSpec
from pmbnn.experiment.cells import Cell, Experiment, cell_label
from pmbnn.experiment.load import DataSource, data_source
from pmbnn.experiment.plan import decisive_versions, identity, settings_digest
from pmbnn.experiment.plugins import experiment_parts
from pmbnn.inference.settings import Inference
from pmbnn.models.hyperpriors import Hyperprior
from pmbnn.prediction.settings import Predict

if TYPE_CHECKING:
    from pmbnn.prior_predictive.evaluate import Programs


@dataclass(frozen=True)
class Combination:
    """A data set, network, prior, hyperprior and likelihood.

    Attributes
    ----------
    cell
        A cell with these settings, its map, and defaults for the rest. A tuned scale is one of its
        candidates, the data seed the first of those that the experiment has.
    tuned
        Hyperprior of the experiment where its scale is tuned, else None.
    """

    cell: Cell
    tuned: Hyperprior | None

    @property
    def label(self) -> str:
        """Settings in words."""
        return cell_label(self.cell)

    @property
    def random_seed(self) -> int:
        """Seed of the draws: it depends on these settings alone, not on the grid around them."""
        return int(settings_digest(self.cell)[:8], 16)


@dataclass(frozen=True)
class PriorTask(Combination):
    """A combination whose prior a worker can evaluate.

    Attributes
    ----------
    name
        Name of its files.
    fingerprint
        Fingerprint of its data.
    """

    name: str
    fingerprint: str

    @property
    def group(self) -> str:
        """Tasks of one network and likelihood share compiled programs, whatever their prior."""
        return f"{self.cell.network!r} {self.cell.likelihood!r}"

    def run(
        self,
        folder: Path,
        stored: Callable[[str | None], None],
        programs: "Programs | None" = None,
    ) -> "Programs":
        """Draw functions and store what they have in common; see `run_prior`."""
        from pmbnn.prior_predictive.evaluate import run_prior

        return run_prior(self, folder, stored, programs)


@dataclass(frozen=True)
class Plan:
    """Combinations to draw functions for, and why cells are left out, a line for each reason."""

    combinations: tuple[Combination, ...]
    left_out: tuple[str, ...]


def plan_priors(experiment: Experiment, cells: Sequence[Cell]) -> Plan:
    """Plan prior predictive checks of some cells of an experiment; no data are loaded.

    Raises
    ------
    ConfigError
        If no cell has a prior that can be drawn from.
    """
    left_out = tuple(dict.fromkeys(filter(None, map(why_left_out, cells))))
    chosen = combinations(experiment.cells, cells)
    if not chosen:
        raise ConfigError(f"There must be a prior to draw from: {'; '.join(left_out)}.")
    return Plan(tuple(chosen), left_out)


def why_left_out(cell: Cell) -> str | None:
    """Why nothing can be drawn from the prior of a cell; None if something can."""
    if not cell.prior.is_proper:
        return f"prior {cell.prior.kind}: improper, nothing can be drawn from it"
    if cell.has_points:
        return "point parameters: they are maximised, nothing can be drawn from them"
    return None


def combinations(cells: Sequence[Cell], wanted: Sequence[Cell]) -> list[Combination]:
    """Combinations of the wanted cells, each once, and each candidate of a tuned scale.

    Data sets that differ in their seed and sweeps with equal settings share a combination: that of
    the first among all `cells`.
    """
    first: dict[tuple, Combination] = {}
    for cell in cells:
        for key, combination in _keyed(cell):
            first.setdefault(key, combination)
    keys = dict.fromkeys(key for cell in wanted for key, _ in _keyed(cell))
    return [first[key] for key in keys]


def _keyed(cell: Cell) -> Iterator[tuple[tuple, Combination]]:
    """Combinations of one cell, each with what it shares with equal ones."""
    if why_left_out(cell) is not None:
        return
    candidates = cell.hyperprior.candidates
    tuned = None if candidates == (cell.hyperprior,) else cell.hyperprior
    place = cell.predict.map.model_copy(update={"draws": None})
    seedless = cell.dataset.model_copy(update={"seed": 0})
    plain = replace(cell, inference=Inference(), predict=Predict(map=place))
    for hyperprior in candidates:
        candidate = replace(plain, hyperprior=hyperprior)
        key = (tuned, *replace(candidate, dataset=seedless).settings.values())
        yield key, Combination(candidate, tuned)


def prior_tasks(
    experiment: Experiment, sources: Mapping[DatasetSpec, DataSource]
) -> dict[Combination, PriorTask]:
    """Tasks of all combinations of an experiment, as far as their data are available.

    Parameters
    ----------
    sources
        Digests of data sets that were loaded already.
    """
    planned, loaded = combinations(experiment.cells, experiment.cells), dict(sources)
    for spec in {combination.cell.dataset for combination in planned}.difference(loaded):
        with suppress(DataError):
            loaded[spec] = data_source(spec)
    tasks, versions = {}, decisive_versions()
    with experiment_parts(experiment.plugins):
        for combination in planned:
            cell, tuned = combination.cell, combination.tuned
            if (data := loaded.get(cell.dataset)) is None:
                continue
            # What is stored has names and coordinates of the data in their own units.
            digest = identity(cell, f"{data.fingerprint} {data.encoding}", versions)
            name = f"{combination.label}-{digest}"
            if tuned is not None:
                # A candidate's figure shows the posterior of the tuned scale, not of a fixed one.
                name += f"-candidate-{sha256(tuned.model_dump_json().encode()).hexdigest()[:6]}"
            tasks[combination] = PriorTask(cell, tuned, name, data.fingerprint)
    return tasks


def plan_lines(experiment: Experiment, plan: Plan) -> list[str]:
    """The plan in words."""
    lines = [f"{experiment.name}: {len(plan.combinations)} combinations, nothing is fitted"]
    lines += [f"  {combination.label}" for combination in plan.combinations]
    return [*lines, *(f"  left out: {line}" for line in plan.left_out)]
