"""Plan of a calibration: which cells are calibrated, which are left out, and the expected time."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pmbnn.core.errors import ConfigError
from pmbnn.core.machine import CPU, Device, slowness
from pmbnn.core.spec import Tune
from pmbnn.experiment.cells import Cell, Experiment, cell_label
from pmbnn.experiment.cost import cell_work
from pmbnn.experiment.load import data_source
from pmbnn.experiment.plan import (
    decisive_versions,
    group_key,
    job_label,
    settings_digest,
    wanted_cells,
    width,
)
from pmbnn.experiment.plugins import experiment_parts, sources_of
from pmbnn.inference.samplers.settings import Mclmc
from pmbnn.prediction.progress import duration

if TYPE_CHECKING:
    from pmbnn.fitting.programs import GroupPrograms

type Truths = Literal["prior", "posterior"]


@dataclass(frozen=True)
class CalibrationTask:
    """A cell to calibrate, which a worker can run.

    Attributes
    ----------
    name, identity
        Name of its file of ranks, and digest of everything that decides a rank.
    fingerprint
        Fingerprint of its data.
    group, width
        Group whose compiled programs it shares, and simulations times restarts in one program.
    simulations
        Number of simulated data sets.
    draws, restarts, truths
        As those of `StoredRanks`.
    """

    cell: Cell
    name: str
    identity: str
    fingerprint: str
    group: str
    width: int
    simulations: int
    draws: int
    restarts: int
    truths: Truths

    @property
    def label(self) -> str:
        """The cell in words."""
        return job_label([self.cell])

    @property
    def sampled(self) -> Cell:
        """The cell whose sampler draws truths around the data: itself, or with MCLMC."""
        return self.cell if self.cell.samples_posterior else replace(self.cell, inference=Mclmc())

    @property
    def seconds_per_simulation(self) -> float:
        """Rough time of fitting one simulated data set on one core."""
        cell = self.cell
        if not cell.is_sampled:
            changes = {"restarts": self.restarts, "validation": 0}
            cell = replace(cell, inference=cell.inference.model_copy(update=changes))
        rows = 2 if self.truths == "posterior" else 1
        return slowness() * rows * cell_work(cell).fitting

    def run(
        self,
        folder: Path,
        stored: Callable[[str | None], None],
        programs: "GroupPrograms | None" = None,
    ) -> "GroupPrograms":
        """Simulate what is missing; see `run_calibration`."""
        from pmbnn.calibration.simulate import run_calibration

        return run_calibration(self, folder, stored, programs)


@dataclass(frozen=True)
class Plan:
    """Cells to calibrate.

    Attributes
    ----------
    tasks
        One for each combination of settings.
    left_out
        Why other cells are left out, a line for each reason.
    """

    tasks: tuple[CalibrationTask, ...]
    left_out: tuple[str, ...]


def plan_calibration(
    experiment: Experiment,
    only: Sequence[str] = (),
    simulations: int = 500,
    draws: int = 99,
    restarts: int | None = None,
    truths: Truths = "prior",
    devices: Sequence[Device] = (CPU,),
) -> Plan:
    """Plan the calibration of an experiment's cells.

    Parameters
    ----------
    only
        Cells to calibrate, as ``["prior=laplace"]``; all unless given.
    simulations
        Simulated data sets of each combination.
    draws
        Posterior draws that a truth has its rank among.
    restarts
        Fits of each simulated data set; those of the cell unless given.
    truths
        Distribution that truths are drawn from.
    devices
        Devices that fits run on.

    Raises
    ------
    ConfigError
        If the experiment does not fit its data, `only` matches no cell, no cell that it matches
        can be calibrated, or truths are drawn from a posterior of which fewer draws are sampled
        than there are simulations.
    DataError
        If some data set is unavailable.
    """
    reasons = {cell: why_left_out(cell, draws) for cell in wanted_cells(experiment, only)}
    left_out = tuple(dict.fromkeys(filter(None, reasons.values())))
    chosen = [cell for cell, reason in reasons.items() if reason is None]
    if not chosen:
        raise ConfigError(f"There must be something to calibrate: {'; '.join(left_out)}.")
    fingerprints = {
        spec: data_source(spec).fingerprint for spec in {cell.dataset for cell in chosen}
    }
    settings = (simulations, draws, restarts, truths, devices[0])
    # Cells that differ in what is predicted are fitted alike: the first stands for them.
    tasks: dict[str, CalibrationTask] = {}
    with experiment_parts(experiment.plugins):
        for cell in chosen:
            task = calibration_task(cell, fingerprints[cell.dataset], *settings)
            tasks.setdefault(task.identity, task)
    for task in tasks.values():
        sampler = task.sampled.inference
        most = sampler.chains * sampler.draws
        if truths == "posterior" and simulations > most:
            raise ConfigError(
                f"`--simulations` must be at most {most} around the data, which is how many draws "
                f"of the posterior there are ({task.label}); got {simulations}."
            )
    return Plan(tuple(tasks.values()), left_out)


def why_left_out(cell: Cell, draws: int) -> str | None:
    """Why a cell cannot be calibrated; None if it can."""
    prior, inference = cell.prior, cell.inference
    if not prior.is_proper:
        return f"prior {prior.kind}: improper, no truth can be drawn from it"
    if cell.has_points:
        return "point parameters: they are maximised, no truth can be drawn from them"
    if len(cell.hyperprior.candidates) > 1:
        return "tuned scales: give a fixed one, or a hyperprior"
    if cell.is_sampled:
        if inference.chains * inference.draws < draws:
            return f"{inference.engine} with fewer than {draws} draws of all chains"
        return None
    if inference.is_point:
        return f"guide {inference.guide}: a point has no draws to rank a truth among"
    if cell.is_dropout:
        return "guide dropout: biases and scales have no draws to rank a truth among"
    if cell.is_laplace:
        return "guide laplace: it predicts by another network than that of its draws"
    if isinstance(inference.learning_rate, Tune):
        return "learning rates to be searched for: give a number"
    return None


def calibration_task(
    cell: Cell,
    fingerprint: str,
    simulations: int,
    draws: int,
    restarts: int | None,
    truths: Truths,
    device: Device,
) -> CalibrationTask:
    """The task of a cell, with its name; parts of plugins must be registered."""
    if cell.is_sampled:
        restarts = 1
    elif restarts is None:
        restarts = cell.inference.restarts
    content = [
        settings_digest(cell),
        fingerprint,
        decisive_versions(),
        {"draws": draws, "restarts": restarts, "truths": truths},
        sorted(sources_of(cell)),
        *filter(None, [device.decides(width(cell, device))]),
    ]
    identity = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
    return CalibrationTask(
        cell=cell,
        name=f"{cell_label(cell)}-{truths}-{identity}",
        identity=identity,
        fingerprint=fingerprint,
        group=group_key(cell),
        width=width(cell, device),
        simulations=simulations,
        draws=draws,
        restarts=restarts,
        truths=truths,
    )


def plan_lines(plan: Plan, workers: int, devices: Sequence[Device] = (CPU,)) -> list[str]:
    """The plan in words, with a rough time on that many workers."""
    lines, seconds = [f"left out: {line}" for line in plan.left_out], 0.0
    for task in plan.tasks:
        expected = task.simulations * task.seconds_per_simulation
        lines.append(f"{task.simulations} simulations, {duration(expected)}: {task.label}")
        seconds += expected
    total = f"in all: {duration(seconds)} of fitting on one core"
    if not devices[0].is_accelerator and (used := min(workers, len(plan.tasks))) > 1:
        total += f", about {duration(seconds / used)} with {used} workers"
    return [*lines, total]
