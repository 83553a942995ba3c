"""Fixed parts of an experiment, one for each task of a job array."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pmbnn.core.device import CPU, Device
from pmbnn.experiment.cells import Cell, Experiment
from pmbnn.experiment.plan import jobs
from pmbnn.spec.errors import must


class Shard(NamedTuple):
    """The part ``number``, from 1, of ``of`` parts of an experiment."""

    number: int
    of: int


def read_shard(said: str | Sequence[int], place: str = "--shard") -> Shard:
    """A shard as ``3/8`` or ``(3, 8)`` says it.

    Raises
    ------
    ConfigError
        If it says none.
    """
    if isinstance(said, str):
        match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", said.strip())
        numbers = tuple(map(int, match.groups())) if match else ()
    else:
        numbers = tuple(said)
    whole = len(numbers) == 2 and all(type(number) is int for number in numbers)
    if not whole or not 1 <= numbers[0] <= numbers[1]:
        raise must(place, "must be one of so many parts, such as 3/8: from 1/8 to 8/8", said)
    return Shard(*numbers)


def in_shard(
    experiment: Experiment,
    wanted: Sequence[Cell],
    shard: Shard | None,
    devices: Sequence[Device] = (CPU,),
) -> list[Cell]:
    """Those of the wanted cells that a shard has; all without one.

    What it has depends on the experiment and the kind of device alone. Jobs are dealt one by one,
    as they are cut from the full plan: each cell stays at its place of its job, and so keeps every
    digit, and shards take about equally long.
    """
    if shard is None:
        return list(wanted)
    dealt = jobs(experiment.cells, device=devices[0])[shard.number - 1 :: shard.of]
    chosen = {cell for job in dealt for cell in job.wanted}
    return [cell for cell in wanted if cell in chosen]


def default_folder(name: str, shard: Shard | None = None) -> Path:
    """Where results of an experiment go unless told; no two shards write the same folder."""
    part = "" if shard is None else f"-shard-{shard.number}-of-{shard.of}"
    return Path("results") / f"{name}{part}"
