"""The plan of an experiment: names of cells, groups that share a program, and jobs.

Cells that differ in values only (rows, scales, seeds) share a *group*, which is compiled once.
A *job* is a part of a group that is fitted together. Jobs are cut from the full plan, so that
a cell sits at the same place of the same job whatever part of the plan is run: its numbers
depend on the shape of its job in the last bits.
"""

import functools
import hashlib
import itertools
import json
import os
import platform
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from pmbnn import __version__
from pmbnn.core.errors import must
from pmbnn.core.machine import (
    CPU,
    Device,
    cores,
    device_text,
    find_devices,
    processes,
    slowness,
    total_memory,
)
from pmbnn.core.spec import Specification, Tune
from pmbnn.data.base import DatasetSpec
from pmbnn.experiment.cells import Cell, Experiment, model_words, spec_label
from pmbnn.experiment.cost import (
    Work,
    assumed_rows,
    is_large,
    memory_line,
    network_size,
    takes_all_cores,
    too_large_lines,
    total_work,
)
from pmbnn.experiment.expand import Sweep
from pmbnn.experiment.load import check_data
from pmbnn.experiment.overrides import folder_suffix
from pmbnn.experiment.plugins import sources_of
from pmbnn.experiment.selection import select_cells
from pmbnn.inference.samplers.settings import Sampling
from pmbnn.inference.settings import Inference
from pmbnn.models.hyperpriors import Hyperprior
from pmbnn.models.likelihoods import Likelihood

STARTING = 5.0
"""Seconds from the command to the first step, beside compiling: imports there and in workers."""

COMPILING, COMPILING_CHAINS = 2.5, 6.0
"""Seconds of one core for the programs of a group of fits, and of one of chains: 3 (SMC) to 10
(MCLMC) s (benchmarks/end_to_end.txt)."""

CHAINS_VARY = 2
"""How many times longer or shorter chains may take until they agree; see `CHAIN_LENGTH` of
`pmbnn.experiment.cost`."""

CLOSING = 0.1
"""Seconds a cell for tables and figures after the last fit."""

SHOWN_GROUPS = 50
"""Groups that the printed plan has a line for: more than anyone reads."""


@dataclass(frozen=True)
class Job:
    """Cells that are fitted together.

    Attributes
    ----------
    group
        Key of the group; jobs of one group share their compiled programs.
    width
        Fits that the program runs at once.
    cells
        The cells in their places; None where a cell of the full plan is not wanted.
    """

    group: str
    width: int
    cells: tuple[Cell | None, ...]

    @property
    def wanted(self) -> tuple[Cell, ...]:
        """The cells that are to be fitted."""
        return tuple(cell for cell in self.cells if cell is not None)


def settings_digest(cell: Cell) -> str:
    """SHA-256, in hexadecimal, of the settings that decide one fit of a cell.

    Neither the number of restarts nor what is predicted is among them, so that asking for
    more of either leaves the fits as they were.
    """
    settings = cell.settings
    del settings["predict"]
    return hashlib.sha256(_settings_text(settings, {"inference": "restarts"}).encode()).hexdigest()


def content_digest(cell: Cell) -> str:
    """First 12 hexadecimal digits of a SHA-256 over all settings of a cell.

    It is `identity` without data, plugins, versions and device, and needs none of them.
    """
    return hashlib.sha256(_settings_text(cell.settings).encode()).hexdigest()[:12]


def identity(
    cell: Cell,
    fingerprint: str,
    versions: Mapping[str, str],
    search_cell: tuple[Cell, str] | None = None,
    device: Device = CPU,
) -> str:
    """First 12 hexadecimal digits of a SHA-256 over everything that decides a cell's result.

    Parameters
    ----------
    fingerprint
        Of the loaded data.
    versions
        Of the packages that can change the numbers.
    search_cell
        The cell that the learning rate is searched on, and the fingerprint of its data.
    device
        That it is fitted on: another kind of device, or another number of replicas in a program
        of it, has other last digits.
    """
    content: list[object] = [fingerprint, dict(versions)]
    if decisive := device.decides(width(cell, device)):
        content.append(decisive)
    if search_cell is not None:
        content += [settings_digest(search_cell[0]), search_cell[1]]
    if sources := sorted(sources_of(cell)):
        content.append({"sources": sources})
    text = f"[{','.join([_settings_text(cell.settings), *map(_canonical, content)])}]"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def width(cell: Cell, device: Device = CPU) -> int:
    """Fits that the program of a cell runs at once: one of large networks, and all its chains.

    Of small networks as many as restarts of whole cells fill, so that no place stays empty; where
    one cell has more, parts of it that are as long as each other.
    """
    if is_large(cell) or cell.is_sampled:
        return 1
    settings, rows = cell.inference, assumed_rows(cell.dataset)[0]
    at_once = device.traits.rows // min(settings.batch or rows, rows)
    most = min(device.traits.replicas, max(1, at_once))
    if settings.restarts <= most:
        return most // settings.restarts * settings.restarts
    return -(-settings.restarts // -(-settings.restarts // most))


def group_key(cell: Cell) -> str:
    """Everything that decides the compiled program, as text: no mere values."""
    return "\n".join(map(_program_text, cell.settings.values()))


@functools.cache  # cells share their specifications
def _program_text(spec: Specification) -> str:
    """What a specification decides of the compiled program."""
    match spec:
        case DatasetSpec() if spec.rows is not None:
            return repr((spec.rows, spec.input_shape, spec.n_classes, spec.n_targets))
        case Hyperprior() | Likelihood():
            return repr(dict(spec.structure))
        case Sampling():
            return spec.model_dump_json(exclude={"seed"})
        case Inference():
            values = {"seed", "restarts"}
            if not isinstance(spec.learning_rate, Tune):
                values.add("learning_rate")
            return spec.model_dump_json(exclude=values)
    return spec.model_dump_json()


def searches_learning_rate(cell: Cell) -> bool:
    """Whether a cell's learning rate is to be searched for."""
    return not cell.is_sampled and isinstance(cell.inference.learning_rate, Tune)


def search_cells(cells: Sequence[Cell]) -> dict[Cell, Cell]:
    """The cell on which the learning rate of each cell is searched, where it is searched.

    It is the first of its group in the full plan, whatever part of the plan is run.
    """
    first: dict[str, Cell] = {}
    searched = [cell for cell in cells if searches_learning_rate(cell)]
    return {cell: first.setdefault(group_key(cell), cell) for cell in searched}


def jobs(
    cells: Sequence[Cell], wanted: Collection[Cell] | None = None, device: Device = CPU
) -> list[Job]:
    """Jobs with the wanted cells, each at the place it has in the full plan.

    Parameters
    ----------
    cells
        Every cell of the plan: jobs are cut from these.
    wanted
        The cells to fit; all unless given. Jobs with none of them are dropped.
    device
        That they are fitted on.
    """
    kept = set(cells if wanted is None else wanted)
    # Cells of one job have equally many restarts, so that each job has room for its fits.
    parts: dict[tuple[str, int], list[Cell]] = {}
    for cell in cells:
        restarts = 1 if cell.is_sampled else cell.inference.restarts
        parts.setdefault((group_key(cell), restarts), []).append(cell)
    widths = {key: width(part[0], device) for key, part in parts.items()}
    cut = [
        Job(group, widths[group, restarts], tuple(c if c in kept else None for c in piece))
        for (group, restarts), part in parts.items()
        for piece in itertools.batched(part, max(1, widths[group, restarts] // restarts))
    ]
    return [job for job in cut if job.wanted]


def job_label(cells: Sequence[Cell]) -> str:
    """Text for the cells of a job: prior × hyperprior of the first one, then the rest of it."""
    first, *more = cells
    network, prior, hyperprior, *others = model_words(first)
    words = f"{prior} × {hyperprior}, {' '.join([spec_label(first.dataset), network, *others])}"
    return f"{words} and {len(more)} more" if more else words


def plan_lines(
    experiment: Experiment,
    wanted: Collection[Cell] | None = None,
    workers: int = 2,
    devices: Sequence[Device] = (CPU,),
    verbose: bool = False,
) -> list[str]:
    """Lines of the plan: cells per sweep, what is left out, groups, work, time and memory.

    Verbose ones have the number of multiply-adds too, and the largest network that fits in memory.
    """
    cells = experiment.cells
    chosen = list(cells if wanted is None else wanted)
    groups: dict[str, list[Job]] = {}
    for job in jobs(cells, chosen, devices[0]):
        groups.setdefault(job.group, []).append(job)
    lines = [f"{experiment.name}: {_part(len(chosen), len(cells))} cells"]
    for sweep in experiment.sweeps:
        lines += _sweep_lines(sweep, chosen)
    lines += ["", *_group_lines(list(groups.values())), ""]
    if devices[0].is_accelerator:
        time = f"in an unknown time on {device_text(devices)}: core times are a processor's"
    else:
        seconds = slowness() * wall_seconds(list(groups.values()), workers)
        used = "1 worker" if workers == 1 else f"{workers} workers"
        about = f"about {_duration(seconds)}"
        if any(cell.is_sampled and cell.inference.doublings for cell in chosen):
            about = f"{_duration(seconds / CHAINS_VARY)} to {_duration(seconds * CHAINS_VARY)}"
        time = f"{about} on this machine with {used}, compiling included"
    lines.append(f"in all: {_work_text(total_work(chosen), verbose)}, {time}")
    memory = memory_line(chosen, processes(workers, devices), verbose)
    return [*lines, memory, *too_large_lines(chosen)]


def print_plan(
    experiment: Experiment,
    wanted: Collection[Cell] | None = None,
    workers: int = 2,
    devices: Sequence[Device] = (CPU,),
    verbose: bool = False,
) -> None:
    """Print the plan; see `plan_lines`."""
    print("\n".join(plan_lines(experiment, wanted, workers, devices, verbose)))


def wall_seconds(groups: Sequence[Sequence[Job]], workers: int) -> float:
    """Estimated seconds of jobs, by group, from the command to its end.

    It is that of the machine of `pmbnn.experiment.cost`. Jobs that take all cores run one after
    the other; of the rest, workers share all but the longest job and its compiling.
    """
    alone, shared, longest, n_cells = 0.0, 0.0, 0.0, 0
    for group in groups:
        first = group[0].wanted[0]
        compiling = COMPILING_CHAINS if first.is_sampled else COMPILING
        seconds = []
        for job in group:
            work = total_work(job.wanted)
            # Empty places of its program take as long as others.
            places = -(-work.final_fits // job.width) * job.width
            seconds.append(work.fitting * places / work.final_fits + work.evaluating)
            n_cells += len(job.wanted)
        if takes_all_cores(first):
            alone += compiling + sum(seconds) / cores()
        else:
            shared += compiling + sum(seconds)
            longest = max(longest, compiling + max(seconds))
    return STARTING + alone + max(shared / workers, longest) + CLOSING * n_cells


def _settings_text(
    settings: Mapping[str, Specification], leave_out: Mapping[str, str] | None = None
) -> str:
    """Canonical JSON of settings by section; `leave_out` names a field of a section."""
    left = leave_out or {}
    parts = (f'"{name}":{_spec_text(settings[name], left.get(name))}' for name in sorted(settings))
    return f"{{{','.join(parts)}}}"


@functools.cache  # cells share their specifications
def _spec_text(spec: Specification, leave_out: str | None) -> str:
    # By alias, the name that a field had first: PRNG keys derive from digests of this text, and a
    # rename must not move every number.
    left_out = dict(getattr(spec, "locations", {}))
    if leave_out:
        left_out[leave_out] = True
    return _canonical(spec.model_dump(mode="json", by_alias=True, exclude=left_out or None))


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _sweep_lines(sweep: Sweep, chosen: Collection[Cell]) -> list[str]:
    """Cells of a sweep as a product of its sections, and what was left out of it."""
    lengths = {name: len(specs) for name, specs in sweep.sections.items()}
    del lengths["prior"], lengths["hyperprior"]
    n_pairs = len({(cell.prior, cell.hyperprior) for cell in sweep.cells})
    factors = [f"{count} {name}" for name, count in lengths.items() if count > 1]
    factors.append(f"{n_pairs} prior × hyperprior")
    part = _part(sum(cell.sweep == sweep.name for cell in chosen), len(sweep.cells))
    lines = [f"  {sweep.name}: {part} cells = {' × '.join(factors)}"]
    return lines + [f"    left out: {left_out}" for left_out in sweep.left_out]


def _part(number: int, total: int) -> str:
    return str(total) if number == total else f"{number} of {total}"


def _group_lines(groups: Sequence[Sequence[Job]]) -> list[str]:
    """A table of what is compiled together: numbers to the right, text to the left."""
    rows = [("group", "cells", "jobs", "fits", "parameters", "core time", "what")]
    for number, group in enumerate(groups[:SHOWN_GROUPS], 1):
        cells = [cell for job in group for cell in job.wanted]
        work = total_work(cells)
        data = "+".join(dict.fromkeys(cell.dataset.kind for cell in cells))
        counts = (number, len(cells), len(group), work.fits, f"{network_size(cells[0]):,}")
        what = f"{data} {' '.join(model_words(cells[0], scale=False))}"
        rows.append((*map(str, counts), _duration(slowness() * work.seconds), what))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["compiled together:"]
    for *numbers, what in rows:
        aligned = [text.rjust(width) for text, width in zip(numbers, widths, strict=False)]
        lines.append("  ".join(["", *aligned, what]))
    more = len(groups) - SHOWN_GROUPS
    return [*lines, f"  and {more:,} more groups"] if more > 0 else lines


def _work_text(work: Work, verbose: bool) -> str:
    choosing = f" ({work.choosing_fits} to choose by)" if work.choosing_fits else ""
    text = f"{work.fits} fits{choosing}, {work.steps:,} gradient steps"
    return f"{text}, {work.operations:.1e} step × row × multiply-add" if verbose else text


def _duration(seconds: float) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(1, round(seconds))} s"


# Package versions that affect results, and the machine, for reports of problems


DECISIVE = ("pmbnn", "pymc", "pytensor", "jax", "jaxlib", "optax", "numpy")
"""Packages whose versions can change the numbers of a cell."""

RECORDED = (*DECISIVE, "scipy", "scikit-learn", "mlxtend", "arviz", "xarray", "matplotlib")


def installed_versions(names: Iterable[str]) -> dict[str, str]:
    """Versions of packages, by name; this one need not be installed, only importable."""
    return {name: __version__ if name == "pmbnn" else version(name) for name in names}


def decisive_versions() -> dict[str, str]:
    """Installed versions of the packages that can change the numbers of a cell."""
    return installed_versions(DECISIVE)


def show_versions() -> None:
    """Print the versions of this package and of what it stands on, and the machine."""
    memory = total_memory()
    versions = installed_versions(RECORDED)
    lines = {
        "pmbnn": versions.pop("pmbnn"),
        "python": platform.python_version(),
        **versions,
        "system": platform.platform(),
        "processor": platform.machine(),
        "cores": f"{cores()} of {os.cpu_count()}",
        "memory": "unknown" if memory is None else f"{memory / 1e9:.1f} GB",
        "devices": device_text(find_devices("auto")),
    }
    width = max(map(len, lines))
    print("\n".join(f"{name:{width}}  {value}" for name, value in lines.items()))


# Fixed parts of an experiment, one for each task of a job array


class Shard(NamedTuple):
    """The part ``number``, from 1, of ``of`` parts of an experiment."""

    number: int
    of: int


def read_shard(value: str | Sequence[int], place: str = "--shard") -> Shard:
    """Shard of ``3/8`` or ``(3, 8)``.

    Raises
    ------
    ConfigError
        If the value is no shard.
    """
    if isinstance(value, str):
        match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", value.strip())
        numbers = tuple(map(int, match.groups())) if match else ()
    else:
        numbers = tuple(value)
    whole = len(numbers) == 2 and all(type(number) is int for number in numbers)
    if not whole or not 1 <= numbers[0] <= numbers[1]:
        raise must(place, "must be one of so many parts, such as 3/8: from 1/8 to 8/8", value)
    return Shard(*numbers)


def in_shard(
    experiment: Experiment,
    wanted: Sequence[Cell],
    shard: Shard | None,
    devices: Sequence[Device] = (CPU,),
) -> list[Cell]:
    """Wanted cells of a shard; all without one.

    They depend on the experiment and the kind of device alone. Jobs are dealt one by one,
    as they are cut from the full plan: each cell stays at its place of its job, and so keeps every
    digit, and shards take about equally long.
    """
    if shard is None:
        return list(wanted)
    dealt = jobs(experiment.cells, device=devices[0])[shard.number - 1 :: shard.of]
    chosen = {cell for job in dealt for cell in job.wanted}
    return [cell for cell in wanted if cell in chosen]


def wanted_cells(
    experiment: Experiment,
    only: Sequence[str] = (),
    shard: Shard | None = None,
    devices: Sequence[Device] = (CPU,),
) -> list[Cell]:
    """Cells of an experiment that meet some conditions and are in a shard; data are checked first.

    Parameters are those of `select_cells` and `in_shard`, which raise ConfigError, and so does
    `check_data`.
    """
    check_data(experiment)
    return in_shard(experiment, select_cells(list(experiment.cells), only), shard, devices)


def default_folder(name: str, shard: Shard | None = None, overrides: Sequence[str] = ()) -> Path:
    """Default results folder of an experiment: other overrides and other shards have another."""
    changed = f"-{folder_suffix(overrides)}" if overrides else ""
    part = "" if shard is None else f"-shard-{shard.number}-of-{shard.of}"
    return Path("results") / f"{name}{changed}{part}"
