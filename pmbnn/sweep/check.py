"""References for what is finished: its posteriors sampled, in the same results folder."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pmbnn.core.machine import CPU, Device
from pmbnn.experiment.cells import Cell, Experiment
from pmbnn.experiment.load import (
    as_written,
    check_data,
    experiment_of,
    load_experiment,
    resolved,
)
from pmbnn.experiment.plan import wanted_cells
from pmbnn.inference.samplers.settings import Sampling
from pmbnn.models.quantiles import has_quantiles
from pmbnn.results.present import CellList, counted, present_list
from pmbnn.results.store import ResultsError
from pmbnn.sweep.cells import Run, prepare


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
    """

    experiment: Experiment
    cells: tuple[Cell, ...]
    left_out: tuple[str, ...]


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
        Settings of the sampler.
    only
        Fitted cells to sample the posteriors of, as ``["prior=laplace"]``; all unless given.
    devices
        Devices that fits ran on.

    Raises
    ------
    ResultsError
        If the folder is none or of an older format, or nothing in it is finished.
    ConfigError
        If the sampler does not fit the experiment, or `only` no cell.
    """
    before = experiment_of_folder(folder)
    present = present_list(folder)  # an older format is an error
    chosen = [cell for cell in wanted_cells(before, only) if not cell.samples_posterior]
    run = prepare(before, folder, devices)
    names = {cell: run.tasks[cell].name for cell in chosen}
    stored = [cell for cell, name in names.items() if run.results.is_finished(name)]
    finished = [cell for cell in stored if run.results.load_record(names[cell]).results]
    changed = _changed(run, present)
    if not finished:
        kind = f" of device {devices[0].kind}" if devices[0].is_accelerator else ""
        rule = f"has no finished fit{kind} to hold against the posterior"
        raise ResultsError(f"`{folder}` {rule}{''.join(f' ({line})' for line in changed)}.")
    lacking = without_quantiles(before) if settings.needs_quantiles else {}
    after = with_sampler(before, settings, folder, lacking)
    check_data(after)
    posteriors = {c.posterior for c in finished if c.prior.is_proper and not c.is_tempered}
    cells = [c for c in after.cells if c.inference == settings and c.posterior in posteriors]
    left_out = (*changed, *_left_out(finished, settings, lacking))
    return References(after, tuple(cells), left_out)


def experiment_of_folder(folder: Path) -> Experiment:
    """The experiment that a results folder was written for.

    Raises
    ------
    ResultsError
        If there is none.
    """
    file = folder / "experiment.yaml"
    if not file.is_file():
        raise ResultsError(f"`{folder}` must be a results folder of a sweep, with experiment.yaml.")
    return load_experiment(file)


def without_quantiles(experiment: Experiment) -> dict[str, list[str]]:
    """Sections and kinds of sweeps whose quantile functions are not known, by the sweeps' names."""
    lacking: dict[str, list[str]] = {}
    for sweep in experiment.sweeps:
        for section in ("prior", "hyperprior", "likelihood"):
            for part in sweep.sections[section]:
                if not has_quantiles(part):
                    lacking.setdefault(sweep.name, []).append(f"{section} {part.kind}")
    return lacking


def with_sampler(
    experiment: Experiment, settings: Sampling, folder: Path, lacking: Container[str] = ()
) -> Experiment:
    """The experiment with a sampler beside its ways to fit, in every sweep that it can take.

    Those are sweeps without point parameters, whose names are not among those `lacking` something.
    """
    content = resolved(experiment, folder)
    for sweep, planned in zip(content["sweeps"], experiment.sweeps, strict=True):
        if planned.name in lacking or any(cell.has_points for cell in planned.cells):
            continue
        if as_written(settings) not in sweep["inference"]:
            sweep["inference"] = [*sweep["inference"], as_written(settings)]
    return experiment_of(content, folder)


def _changed(run: Run, present: CellList) -> list[str]:
    """How many finished cells have other names than the experiment's have here: none or a line."""
    known = {*present.references, *(task.name for task in run.tasks.values())}
    changed = [name for name in present.cells.keys() - known if run.results.is_finished(name)]
    reason = (
        "of other data, plugins or versions of packages, or of another device, than here; the "
        "same `pmbnn sweep` command fits them anew"
    )
    return [f"{counted(len(changed), 'cell')}: {reason}"] if changed else []


def _left_out(
    cells: Sequence[Cell], settings: Sampling, lacking: Mapping[str, Sequence[str]]
) -> list[str]:
    """Why some cells have no reference, each reason once."""
    lines = []
    improper = {cell.prior.kind for cell in cells if not cell.prior.is_proper}
    lines += [f"prior {k}: improper, there may be no posterior to sample" for k in sorted(improper)]
    points = {cell.sweep for cell in cells if cell.has_points}
    lines += [f"sweep {name}: has point parameters, which are maximised" for name in sorted(points)]
    lines += [
        f"sweep {name}: {', '.join(dict.fromkeys(kinds))}: no quantile function is known, which "
        f"engine {settings.engine} needs"
        for name, kinds in lacking.items()
        if name in {cell.sweep for cell in cells}
    ]
    if any(cell.is_tempered for cell in cells):
        lines.append("fits with another KL than the ELBO's: they are of no posterior of the model")
    return lines
