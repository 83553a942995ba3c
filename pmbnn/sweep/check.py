"""References for what is finished: its posteriors sampled, in the same results folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from pmbnn.core.machine import CPU, Device
from pmbnn.experiment.cells import Cell, Experiment
from pmbnn.experiment.load import as_written, experiment_of, load_experiment, resolved
from pmbnn.experiment.selection import select_cells
from pmbnn.inference.samplers.settings import Sampling
from pmbnn.results.present import present_list
from pmbnn.results.store import ResultsError
from pmbnn.sweep.cells import prepare
from pmbnn.sweep.stages import Outcome, run_experiment


@dataclass(frozen=True)
class References:
    """What is to be sampled for a results folder.

    Attributes
    ----------
    experiment
        That of the folder, with the sampler beside its ways to fit.
    cells
        Its sampled cells whose fitted counterpart is finished.
    left_out
        Finished cells that no reference can be had for, and why, one line each.
    devices
        What fits ran on, and chains are to.
    """

    experiment: Experiment
    cells: tuple[Cell, ...]
    left_out: tuple[str, ...]
    devices: tuple[Device, ...] = (CPU,)


def references(
    folder: Path,
    settings: Sampling,
    only: Sequence[str] = (),
    devices: tuple[Device, ...] = (CPU,),
) -> References:
    """What is to be sampled, so that every finished cell of a folder has a reference.

    Parameters
    ----------
    folder
        Results folder of a sweep.
    settings
        Of the sampler.
    only
        Fitted cells to look at, as ``["prior=laplace"]``; all unless given.
    devices
        What fits ran on, and chains are to.

    Raises
    ------
    ResultsError
        If the folder is none or of an older format, or nothing in it is finished.
    ConfigError
        If the sampler does not fit the experiment, or `only` no cell.
    """
    file = folder / "experiment.yaml"
    if not file.is_file():
        raise ResultsError(f"`{folder}` must be a results folder of a sweep, with experiment.yaml.")
    before = load_experiment(file)
    present_list(folder)
    one = prepare(before, folder, devices)
    chosen = [c for c in select_cells(list(before.cells), list(only)) if not c.is_sampled]
    names = {cell: one.tasks[cell].name for cell in chosen}
    stored = [c for c in chosen if one.results.is_finished(names[c])]
    finished = [c for c in stored if one.results.load_record(names[c]).results]
    if not finished:
        kind = f" of device {devices[0].kind}" if devices[0].is_accelerator else ""
        raise ResultsError(f"`{folder}` has no finished fit{kind} to hold against the posterior.")
    after = with_sampler(before, settings, folder)
    proper = [cell for cell in finished if cell.prior.has_scale]
    wanted = {cell.posterior for cell in proper if not cell.is_tempered}
    cells = [c for c in after.cells if c.inference == settings and c.posterior in wanted]
    return References(after, tuple(cells), tuple(_left_out(finished)), devices)


def with_sampler(experiment: Experiment, settings: Sampling, folder: Path) -> Experiment:
    """The experiment with a sampler beside its ways to fit, in every sweep without points."""
    content = resolved(experiment, folder)
    for sweep, planned in zip(content["sweeps"], experiment.sweeps, strict=True):
        if any(cell.has_points for cell in planned.cells):
            continue
        if as_written(settings) not in sweep["inference"]:
            sweep["inference"] = [*sweep["inference"], as_written(settings)]
    return experiment_of(content, folder)


def check_folder(
    folder: Path,
    wanted: References,
    console: Console,
    workers: int | None = None,
    wait: bool = False,
    quiet: bool = False,
) -> Outcome:
    """Sample what is wanted and missing, and write every table and figure of the folder."""
    return run_experiment(
        wanted.experiment,
        wanted.cells,
        folder,
        console,
        workers,
        wait=wait,
        quiet=quiet,
        devices=wanted.devices,
        references=wanted.cells,
    )


def _left_out(cells: Sequence[Cell]) -> list[str]:
    """Why some cells have no reference, each reason once."""
    lines = []
    improper = {cell.prior.kind for cell in cells if not cell.prior.has_scale}
    lines += [f"prior {kind}: improper, there may be no posterior to sample" for kind in improper]
    points = {cell.sweep for cell in cells if cell.has_points}
    lines += [f"sweep {name}: has point parameters, which are maximised" for name in sorted(points)]
    if any(cell.is_tempered for cell in cells):
        lines.append("fits with another KL than the ELBO's: they are of no posterior of the model")
    return lines
