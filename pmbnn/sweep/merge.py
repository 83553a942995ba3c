"""Results folders of one experiment joined: whole cells copied, then tables, figures and page."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from pmbnn.core.machine import CPU, Device
from pmbnn.experiment.load import Experiment, check_data
from pmbnn.experiment.plan import decisive_versions
from pmbnn.fitting.progress import RunOptions
from pmbnn.results.integrity import broken_cells
from pmbnn.results.present import present_list, present_records, storing
from pmbnn.results.store import Results, ResultsError, writing
from pmbnn.sweep.cells import Run, list_cells, prepare, update_stored, write_header
from pmbnn.sweep.check import experiment_of_folder
from pmbnn.sweep.in_memory import FOLDER as STORED_ROWS
from pmbnn.sweep.outputs import following
from pmbnn.sweep.stages import write_what_follows

PROVENANCE = "provenance.json"


@dataclass(frozen=True)
class Merged:
    """How many cells were copied, were there already, are of no cell of the plan, are missing."""

    copied: int
    there: int
    left_out: int
    missing: int


def merge(
    folders: Sequence[Path], out: Path, console: Console, wait: bool = False, quiet: bool = False
) -> Merged:
    """Join results folders of one experiment, such as those of its shards, in `out`.

    A cell that is there already is not copied again, unless it has failed and a fit of it is found.
    Everything is checked before anything is written.

    Raises
    ------
    ResultsError
        If a folder is none, or is of another experiment, data, versions or device than the first;
        if a cell is broken.
    ConfigError, DataError
        If the experiment of the folders cannot be loaded here.
    """
    sources = list(dict.fromkeys(folders))
    experiment, device = _common(sources, out)
    check_data(experiment)
    run = prepare(experiment, out, (device,))
    planned = {task.name for task in run.tasks.values()}
    sampled = dict.fromkeys(n for folder in sources for n in present_list(folder).references)
    copied, there, left_out = 0, set(), set()
    with writing(out, wait):
        run.results.prepare()
        for source in map(Results, sources):
            _copy_stored_rows(source, run.results)
            present = planned | (present_list(source.folder).cells.keys() & sampled.keys())
            for name in source.cell_names():
                if name not in present:
                    left_out.add(name)
                elif _is_wanted(run, source, name):
                    run.results.copy_cell(source.cells / name)
                    copied += 1
                else:
                    there.add(name)
        for problem in update_stored(run, [*sampled]):
            console.print(f"set aside, to be fitted again: {problem}")
        write_header(run, list_cells(run, sampled=sampled))
        run.results.write_json(PROVENANCE, _provenance(sources))
        records = present_records(run.results)
        with following(console, quiet):
            write_what_follows(run, records, RunOptions(console, wait=wait, quiet=quiet))
    missing = sum(not run.results.is_finished(name) for name in planned)
    return Merged(copied, len(there), len(left_out), missing)


def _common(folders: Sequence[Path], out: Path) -> tuple[Experiment, Device]:
    """The experiment of all folders, and what they were fitted on."""
    first, devices = folders[0], set()
    experiment = experiment_of_folder(first)
    data = _data(_read(first / PROVENANCE))
    there = [out] if (out / "experiment.yaml").is_file() else []
    for folder in dict.fromkeys([*folders, *there]):
        if experiment_of_folder(folder) != experiment:
            raise ResultsError(f"`{folder}` must be of the same experiment as `{first}`.")
        provenance = _read(folder / PROVENANCE)
        _check_versions(folder, provenance)
        if _data(provenance) != data:
            raise ResultsError(f"`{folder}` must be of the same data as `{first}`.")
        present = present_list(folder).cells
        for problem in broken_cells(Results(folder), digests=True, names=present):
            raise ResultsError(
                f"A cell is broken: {problem}. `pmbnn verify --repair` sets it aside."
            )
        devices |= {record.device for record in present_records(Results(folder))}
    if len(devices) > 1:
        kinds = " and ".join(sorted(devices))
        raise ResultsError(f"All folders must be fitted on one kind of device, got {kinds}.")
    kind = next(iter(devices), CPU.kind)
    return experiment, CPU if kind == CPU.kind else Device(kind, 0)


def _data(provenance: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Data sets with their fingerprints; machines may have the same rows from other sources."""
    return [
        {key: value for key, value in entry.items() if key != "source"}
        for entry in provenance.get("data", ())
    ]


def _check_versions(folder: Path, provenance: Mapping[str, Any]) -> None:
    """Raise ResultsError where cells are of versions that give other numbers than those here."""
    written = provenance.get("versions", {})
    for name, here in decisive_versions().items():
        if (there := written.get(name)) != here:
            raise ResultsError(
                f"`{folder}` was fitted with {name} {there}, here is {here}, whose numbers may be "
                "others: merge where the installed versions are the same."
            )


def _read(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError) as error:
        raise ResultsError(f"`{file}` cannot be read: {error}.") from error


def _is_wanted(run: Run, source: Results, name: str) -> bool:
    """Whether a cell is to be copied: it is not there, or has failed there and not here."""
    if not run.results.is_finished(name):
        return True
    return run.results.load_record(name).failed and not source.load_record(name).failed


def _copy_stored_rows(source: Results, target: Results) -> None:
    """Copy rows that Python code handed over; the names of their files tell their content."""
    for file in sorted((source.folder / STORED_ROWS).glob("*.npz")):
        name = f"{STORED_ROWS}/{file.name}"
        if not (target.folder / name).is_file():
            with storing(target.folder / name):
                content = file.read_bytes()
            target.write_file(name, lambda path, content=content: path.write_bytes(content))


def _provenance(folders: Sequence[Path]) -> dict[str, Any]:
    """Provenance of the first folder, with the date and the machine of each."""
    provenances = [_read(folder / PROVENANCE) for folder in folders]
    merged = [
        {"folder": folder.name, "written": one.get("written"), "machine": one.get("machine")}
        for folder, one in zip(folders, provenances, strict=True)
    ]
    return provenances[0] | {"merged": merged}
