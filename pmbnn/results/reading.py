"""Parts of stored traces; files derived from cells; the check that stored files are whole."""

import hashlib
import json
import math
import os
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import netCDF4
import numpy as np
import xarray as xr

from pmbnn.data.arrays import Standardisation, identity_standardisation
from pmbnn.models.likelihoods import NOISE, TARGET_NAME
from pmbnn.results.present import (
    MOST_PIXELS,
    ResultsError,
    check_fits,
    checkpoint_name,
    is_finished,
    present_list,
    present_records,
    read_json_text,
    reading_netcdf,
    storing,
    superseded_names,
)
from pmbnn.results.record import CellRecord, OtherFormatError
from pmbnn.results.store import BROKEN, PRIORS, RECORD, Results, remove, sha256, writing

PHOTOGRAPHS = "photographs"
"""Attribute of groups whose images are shown without inverting them."""


def load_groups(results: Results, name: str, groups: Sequence[str]) -> xr.DataTree:
    """Groups of the trace of cell ``name``, those that it has, in memory.

    Raises
    ------
    FileNotFoundError
        If the cell has no trace.
    OSError
        If it cannot be read.
    """
    return load_arrays(results, name, dict.fromkeys(groups, ".*"))


def load_arrays(results: Results, name: str, wanted: Mapping[str, str]) -> xr.DataTree:
    """Arrays of groups of the trace of cell ``name``, those that it has, in memory.

    It takes a fraction of the time of xarray, which reads every array of a group several times.

    Parameters
    ----------
    results, name
        The results folder and the name of the cell.
    wanted
        Groups, each with a regular expression that the names of arrays must match. The coordinates
        of these arrays come with them.

    Raises
    ------
    FileNotFoundError
        If the cell has no trace.
    OSError
        If it cannot be read.
    """
    path = results.cells / name / "trace.nc"
    with reading_netcdf(path), netCDF4.Dataset(path) as file:
        groups = {name: file.groups[name] for name in wanted if name in file.groups}
        check_fits(sum(map(_bytes, groups.values())), path)
        arrays = {f"/{name}": _arrays(group, wanted[name]) for name, group in groups.items()}
    return xr.DataTree.from_dict(arrays)


def load_netcdf(path: Path) -> xr.Dataset:
    """The one group of a netCDF file, in memory.

    Raises
    ------
    OSError, ValueError
        If it cannot be read.
    """
    with reading_netcdf(path), xr.open_dataset(path, engine="netcdf4") as opened:
        check_fits(opened.nbytes, path)
        return opened.load()


def stored_variables(results: Results, name: str) -> dict[str, frozenset[str]]:
    """Names of the arrays of every group of a stored trace."""
    path = results.cells / name / "trace.nc"
    with reading_netcdf(path), netCDF4.Dataset(path) as file:
        return {name: frozenset(group.variables) for name, group in file.groups.items()}


def target_standardisation(trace: xr.DataTree) -> Standardisation:
    """The map from targets in their own units to those that were fitted."""
    kept = trace["constant_data"].dataset
    if "target_sd" not in kept:
        return identity_standardisation()
    return Standardisation(kept["target_mean"].values, kept["target_sd"].values)


def by_target(trace: xr.DataTree) -> dict[str, xr.DataTree]:
    """Traces of single targets, by their names; with one target the trace itself, by ``""``."""
    groups = {f"/{name}": group.dataset for name, group in trace.children.items()}
    labels = [group[TARGET_NAME].values for group in groups.values() if TARGET_NAME in group.coords]
    if not labels:
        return {"": trace}

    def alone(i: int) -> xr.DataTree:
        one = {TARGET_NAME: i}
        parts = {p: g.isel(one, drop=True, missing_dims="ignore") for p, g in groups.items()}
        return xr.DataTree.from_dict(parts)

    return {str(name): alone(i) for i, name in enumerate(labels[0])}


def _arrays(group: netCDF4.Group, pattern: str) -> xr.Dataset:
    """The arrays of a group whose names match, as xarray would read them."""
    stored = group.variables
    # Images may have a dim of their own name; labels of a dim have it alone.
    labels = {name for name in stored if stored[name].dimensions == (name,)}
    names = [name for name in stored if re.fullmatch(pattern, name) and name not in labels]
    arrays = {name: (stored[name].dimensions, _values(stored[name])) for name in names}
    dims = {dim for axes, _ in arrays.values() for dim in axes}
    coords = {dim: (dim, _values(stored[dim])) for dim in dims & labels}
    return xr.Dataset(arrays, coords, {name: group.getncattr(name) for name in group.ncattrs()})


def _bytes(group: netCDF4.Group) -> float:
    """Bytes of the arrays of a group; those of text as eight a word."""
    return sum(
        math.prod(map(float, variable.shape)) * getattr(variable.dtype, "itemsize", 8)
        for variable in group.variables.values()
    )


def _values(variable: netCDF4.Variable) -> np.ndarray:
    variable.set_auto_mask(False)
    values = variable[...]
    return values.astype(str) if values.dtype == object else values


def group_of(trace: xr.DataTree, name: str) -> xr.Dataset:
    """One group of a trace.

    Raises
    ------
    ValueError
        If the trace does not have it.
    """
    if name not in trace.children:
        names = ", ".join(sorted(trace.children)) or "none"
        raise ValueError(f"The trace must have a group `{name}`, got {names}.")
    return trace[name].dataset


def values_of(trace: xr.DataTree, group: str, name: str, *axes: Hashable) -> np.ndarray:
    """One array of a group, its axes in the given order, or as they are if none is given.

    Raises
    ------
    ValueError
        If the trace does not have the group, or the group not the array.
    """
    arrays = group_of(trace, group)
    if name not in arrays:
        raise ValueError(f"The group `{group}` must have `{name}`.")
    return arrays[name].transpose(*axes).values if axes else arrays[name].values


def images_of(trace: xr.DataTree, group: str, name: str, axis: Hashable) -> np.ndarray:
    """Images of a group for figures, ``(image, row, column)``, colours last; bytes.

    Photographs are as they are; images that are bright on black, as digits, are inverted.

    Raises
    ------
    ValueError
        As `values_of`.
    """
    pixels = values_of(trace, group, name, axis, "row", "column", ...)
    is_foreground = pixels.ndim == 3 and not group_of(trace, group).attrs.get(PHOTOGRAPHS, 0)
    return 255 - pixels if is_foreground else pixels


# Maps of a classifier over the plane, from stored traces


class PlaneMap(NamedTuple):
    """Posterior over the plane.

    ``probability`` and ``sd`` are mean and standard deviation over posterior draws of the
    first class's probability, ``(x1, x2)``; ``x1``, ``x2`` are raw coordinates, of the
    ``features`` of these names.
    """

    x1: np.ndarray
    x2: np.ndarray
    probability: np.ndarray
    sd: np.ndarray
    first_class: str
    features: tuple[str, str] = ("x1", "x2")


def plane_map(trace: xr.DataTree) -> PlaneMap:
    """Map of the first class that a trace holds.

    Raises
    ------
    ValueError
        If the trace has no group ``predictions``.
    """
    group = group_of(trace, "predictions")
    first = group.isel(output=0)
    probability, sd = (first[name].transpose("x1", "x2").values for name in ("probability", "sd"))
    name = str(first["output"].item())
    coordinates = group["x1"].values, group["x2"].values
    return PlaneMap(*coordinates, probability, sd, name, plane_features(trace))


def plane_features(trace: xr.DataTree) -> tuple[str, str]:
    """Names of the two inputs that a trace's map is over."""
    kept = group_of(trace, "predictions").attrs.get("features", '["x1", "x2"]')
    first, second = json.loads(kept)
    return first, second


# Summaries of posterior draws of the weights of a layer and of learned scales
#
# A weight is *away from zero* where the central 90 % of its draws leave zero out. It is *narrow
# about zero* where the central 90 % of its draws lie within half the layer's own scale on either
# side of zero; that scale is the root of the mean square over all draws of all weights of the
# layer. Neither changes when every weight of a layer is multiplied by the same number. A weight can
# be neither: its draws then reach past zero, and far.


COVERAGE = 0.9
"""Share of the draws that an interval holds."""

NARROW = 0.5
"""Reach of a narrow interval on either side of zero, in units of the layer's own scale."""

WEIGHT = re.compile(r"weight_(\d+)")
SCALE = re.compile(r"(?:layer_\d+|network)_scale")
LEARNED = re.compile(rf"{SCALE.pattern}|{NOISE}|mixture_sigma_\d")
"""Names of learned scales: those of priors, and the noise."""


def best_restart(trace: xr.DataTree) -> int:
    """Number of the best restart, by the coordinate ``restart``."""
    return int(trace["fit"].dataset.attrs["best"])


def best_draws(trace: xr.DataTree) -> xr.Dataset:
    """Draws of the best restart alone, whatever mixture the cell predicts with.

    Weights of different restarts are of different modes: taken together they say little. Of a
    sampler they are those of all chains, whose modes are the posterior's.

    Raises
    ------
    ValueError
        If the trace has neither of the groups ``restarts`` and ``posterior``.
    """
    if "restarts" in trace.children:
        return group_of(trace, "restarts").sel(restart=best_restart(trace))
    posterior = group_of(trace, "posterior")
    if posterior.sizes["chain"] == 1:
        return posterior.isel(chain=0)
    return (
        posterior.stack(every=("chain", "draw"))
        .drop_vars(["every", "chain", "draw"])
        .rename(every="draw")
    )


def last_layer(trace: xr.DataTree) -> np.ndarray:
    """Draws of the last layer's weights under the best restart, ``(draw, weight)``.

    Parameters
    ----------
    trace
        Trace with the groups ``posterior`` and ``fit``, and ``restarts`` if it has several.

    Raises
    ------
    ValueError
        If the posterior holds no weights.
    """
    weights = _weights(trace)
    if not weights:
        raise ValueError("The group `posterior` must have weights: weight_1, ...")
    draws = weights[max(weights)].values.astype(np.float64)
    return draws.reshape(len(draws), -1)


def switched_off(trace: xr.DataTree) -> tuple[int, int] | None:
    """Hidden units of a dense network that are switched off under the best restart, and all units.

    A unit is off where none of the weights that leave it is away from zero. None where some layer
    is not dense, or not kept.
    """
    weights, off, units = _weights(trace), 0, 0
    if 1 not in weights or len(weights) < 2:
        return None
    for number in sorted(weights)[1:]:
        draws = weights[number].values.astype(np.float64)
        if draws.ndim != 3:
            return None
        leaving = away_from_zero(draws.reshape(len(draws), -1)).reshape(draws.shape[1:])
        off += int((~leaving.any(axis=1)).sum())
        units += len(leaving)
    return off, units


def _weights(trace: xr.DataTree) -> dict[int, xr.DataArray]:
    """Draws of the weights of each layer under the best restart, by its number, draws first."""
    posterior = best_draws(trace)
    return {
        int(match[1]): array.transpose("draw", ...)
        for name, array in posterior.items()
        if (match := WEIGHT.fullmatch(str(name)))
    }


def learned_scales(trace: xr.DataTree) -> dict[str, float]:
    """Posterior median of every learned scale under the best restart, by name.

    The scales of a layer's units are brought together by their geometric mean. Fixed scales are
    not in a trace.
    """
    posterior = best_draws(trace)
    names = sorted(str(name) for name in posterior if SCALE.fullmatch(str(name)))
    medians = {name: posterior[name].median("draw").values for name in names}
    return {name: float(np.exp(np.log(median).mean())) for name, median in medians.items()}


def scale_draws(draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Draws of every learned scale by name, those of units one by one, ``(draw,)`` each."""
    scales = {}
    for name, array in draws.items():
        if not LEARNED.fullmatch(name):
            continue
        for index in np.ndindex(array.shape[1:]):
            place = f"[{', '.join(map(str, index))}]" if index else ""
            scales[f"{name}{place}"] = array[(slice(None), *index)].astype(np.float64)
    return scales


def central_interval(draws: np.ndarray, coverage: float = COVERAGE) -> tuple[np.ndarray, ...]:
    """Both ends of the central interval of each weight's draws, ``(draw, weight)``."""
    tail = (1 - coverage) / 2
    low, high = np.quantile(draws, [tail, 1 - tail], axis=0)
    return low, high


def away_from_zero(draws: np.ndarray) -> np.ndarray:
    """Whether each weight is away from zero; see above."""
    low, high = central_interval(draws)
    return (low > 0) | (high < 0)


def narrow_about_zero(draws: np.ndarray) -> np.ndarray:
    """Whether each weight is narrow about zero; see above."""
    low, high = central_interval(draws)
    reach = NARROW * np.sqrt(np.mean(draws**2))
    return (low < 0) & (high > 0) & (np.maximum(-low, high) <= reach)


def excess_kurtosis(values: np.ndarray) -> float:
    """Fourth standardised moment less 3: 0 for a normal distribution; NaN for equal values.

    With ``n`` values it is at most ``n - 2 + 1 / (n - 1) - 3``, where one stands out from equals.
    """
    from scipy import stats

    return float(stats.kurtosis(values)) if np.ptp(values) > 0 else float("nan")


def hoyer_sparsity(values: np.ndarray) -> float:
    """Hoyer's measure: 0 if all are equally large, 1 if one alone is not zero.

    References
    ----------
    Hoyer (2004), Non-negative matrix factorization with sparseness constraints, section 3.1.
    """
    size, largest = values.size, np.max(np.abs(values))
    if size < 2 or largest == 0:
        return float("nan")
    scaled = np.abs(values) / largest
    ratio = scaled.sum() / np.sqrt(np.sum(scaled**2))
    return float((np.sqrt(size) - ratio) / (np.sqrt(size) - 1))


# Tables and figures of a results folder, and the cells that each was made of
#
# ``derived.json`` has for each file a digest of the cells that it was made of, and one of the file.
# A
# file is *current* while both hold; times do not matter, because copying a folder changes them.
# Other
# files are *stale*: they are shown nowhere, and the next sweep sets them aside.


FILE = "derived.json"
"""File of a results folder with the digests of the other files and of their cells."""

STALE = "stale"
"""Folder, in a results folder, of the tables that were set aside."""

TABLES = ("metrics.csv", "summary.csv", "ood.csv", "agreement.csv", "ladder.csv")
"""Tables that every sweep makes anew. Rows of ``sensitivity.csv`` are kept by the names of cells,
and so by the digests of all that decides them: a sweep drops those of other cells."""

INDEX = "index.html"
"""Page that every sweep makes anew."""

COMMANDS = {
    "baselines.csv": "baselines",
    "paired_baselines.csv": "baselines",
    "compare.csv": "compare",
    "evidence.csv": "compare",
    "regret.csv": "compare",
    "claims.csv": "claims",
    "report.html": "report",
}
"""Other files, and the command that makes each."""


def cells_digest(records: Iterable[CellRecord]) -> str:
    """Digest of the records of some cells, in any order."""
    digest = hashlib.sha256()
    for text in sorted(record.model_dump_json() for record in records):
        digest.update(hashlib.sha256(text.encode()).digest())
    return digest.hexdigest()[:16]


def note_files(
    results: Results,
    files: Iterable[str],
    digest: str,
    command: str | None = None,
    plugin: str | None = None,
) -> None:
    """Note that existing files of a results folder were made of the cells of a digest.

    Parameters
    ----------
    command
        Command that makes a figure, unless a sweep does.
    plugin
        Registered figure or table that was written to the files, and the version of its code.
    """
    entries = _entries(results)
    for file in files:
        if (results.folder / file).is_file():
            entry = {"cells": digest, "sha256": sha256(results.folder / file)}
            entry |= {"command": command, "plugin": plugin}
            entries[file] = {key: text for key, text in entry.items() if text is not None}
    existing = {file: entries[file] for file in sorted(entries) if (results.folder / file).exists()}
    results.write_json(FILE, existing)


def is_current(results: Results, file: str, digest: str) -> bool:
    """Whether a file is unchanged and was made of the cells of a digest."""
    return bool(current_files(results, [file], digest))


def current_files(results: Results, files: Iterable[str], digest: str) -> list[str]:
    """Files that are unchanged and were made of the cells of a digest."""
    entries = _entries(results)
    return [
        file
        for file in files
        if (results.folder / file).is_file()
        and (entry := entries.get(file))
        and (entry.get("cells"), entry.get("sha256")) == (digest, sha256(results.folder / file))
    ]


def overview_files(results: Results) -> list[str]:
    """Overviews in a results folder, of any cells."""
    return [f"{results.figures.name}/{path.name}" for path in sorted(results.figures.glob("*.png"))]


def files_of_plugins(results: Results) -> dict[str, str]:
    """Figures and tables of plugins: the plugin's figure or table, by the file."""
    files = {*overview_files(results), *(path.name for path in results.folder.glob("*.csv"))}
    plugins = {file: entry.get("plugin") for file, entry in _entries(results).items()}
    return {f: plugins[f] for f in sorted(files & plugins.keys()) if isinstance(plugins[f], str)}


def stale_files(results: Results, digest: str) -> list[str]:
    """Existing tables and figures that are not current for the cells of a digest.

    A figure that is not noted is the user's.
    """
    entries = _entries(results)
    figures = (file for file in overview_files(results) if file in entries)
    every = dict.fromkeys([*TABLES, INDEX, *COMMANDS, *figures, *files_of_plugins(results)])
    current = set(current_files(results, every, digest))
    return [file for file in every if (results.folder / file).is_file() and file not in current]


def set_aside_stale(results: Results, digest: str) -> dict[str, str]:
    """Move stale files aside, and remove those that every sweep makes anew.

    Returns
    -------
    dict
        Commands that make them anew, by the files that were moved, into the folder ``stale``.
    """
    entries, moved = _entries(results), {}
    for file in stale_files(results, digest):
        command = COMMANDS.get(file) or entries.get(file, {}).get("command")
        if command is None:
            remove(results.folder / file)
            continue
        path = results.folder / STALE / file
        with storing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            os.replace(results.folder / file, path)
        moved[file] = command
    return moved


def stale_line(files: Mapping[str, str]) -> str:
    """Line on stale tables and figures, with the commands that make them anew."""
    commands = ", ".join(f"`pmbnn {command}`" for command in dict.fromkeys(files.values()))
    return f"of other cells than the present ones: {', '.join(files)} (made anew by {commands})"


def _entries(results: Results) -> dict[str, Any]:
    """Entries of the file; none where it cannot be read, so that files are made again."""
    try:
        content = json.loads(read_json_text(results.folder / FILE))
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    entries = content.items() if isinstance(content, dict) else ()
    return {file: entry for file, entry in entries if isinstance(entry, dict)}


# Superseded cells, and the files that were made of them, are removed


class Superseded(NamedTuple):
    """A file or folder that `prune` removes, with its size in bytes and the reason."""

    path: Path
    size: int
    reason: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.path} ({self.size:,} bytes): {self.reason}"


def prune(folder: Path | str, dry_run: bool = False, wait: bool = False) -> list[Superseded]:
    """Remove superseded cells from a results folder, and the files that were made of them.

    These are stored cells that the experiment no longer has, because its data, plugins or settings
    have changed; cells that were set aside as broken, once they are fitted again or superseded;
    checkpoints of cells that are finished or superseded; tables and figures of other cells than the
    present ones; and priors that the experiment no longer has. Present cells stay, also failed
    ones.

    Parameters
    ----------
    folder
        Results folder.
    dry_run
        Whether to remove nothing.
    wait
        Whether to wait where another process writes the folder.

    Returns
    -------
    list of Superseded
        Removed files and folders; in a dry run, those that would be.

    Raises
    ------
    ResultsError
        If the folder is none, is of an older format, or has a present cell that is broken.
    FolderBusyError
        If another process writes the folder, and `wait` is false.
    """
    results = Results(Path(folder))
    if not results.cells.is_dir():
        raise ResultsError(f"`{folder}` must be a results folder: it has no folder `cells`.")
    with nullcontext() if dry_run else writing(results.folder, wait):
        superseded = [Superseded(p, _size(p), reason) for p, reason in _superseded(results)]
        for entry in () if dry_run else superseded:
            remove(entry.path)
    return superseded


def _superseded(results: Results) -> Iterator[tuple[Path, str]]:
    """Files and folders to remove, and why."""
    folder, present = results.folder, present_list(results.folder).cells
    for name in superseded_names(folder):
        yield results.cells / name, "a superseded cell"
    for path in sorted(results.cells.glob(f"{BROKEN}*")):
        name = path.name.removeprefix(BROKEN)
        if name not in present or is_finished(folder, name):
            yield path, "a broken cell that was fitted again or is superseded"
    for path in _checkpoints(results):
        yield path, "checkpoints of cells that are finished or superseded"
    for file in stale_files(results, cells_digest(present_records(results))):
        yield folder / file, "of other cells than the present ones"
    if (folder / STALE).is_dir():
        yield folder / STALE, "tables that were set aside"
    priors = set(results.names_in_table(PRIORS))
    for path in sorted(results.priors.glob("*")):
        if path.stem not in priors:
            yield path, "a prior that the experiment no longer has"


def _checkpoints(results: Results) -> list[Path]:
    """Folders of checkpoints that no job with unfinished cells has."""
    present = present_list(results.folder)
    unfinished = {name for name in present.cells if not is_finished(results.folder, name)}
    jobs = [
        j for j in present.jobs if unfinished.intersection(j) and present.cells.keys() >= set(j)
    ]
    used = set(map(checkpoint_name, [*jobs, *([name] for name in unfinished)]))
    return [path for path in sorted(results.checkpoints("").glob("*")) if path.name not in used]


def _size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files if not file.is_dir())


# Checks of stored cells: sizes of files at every start, digests on request


class Problem(NamedTuple):
    """A file or cell in a results folder that has changed since it was written.

    ``cell`` is the name of the cell's folder; None for a figure outside cells.
    """

    path: Path
    cell: str | None
    reason: str

    def __str__(self) -> str:
        """One line."""
        return f"`{self.path}`: {self.reason}"


def set_aside_broken(results: Results, names: Iterable[str] | None = None) -> list[Problem]:
    """Move cells aside whose record cannot be read or whose files have another size.

    They are kept as ``cells/.broken-<name>`` and will be fitted again. All stored cells are checked
    unless `names` are given.
    """
    problems = list(broken_cells(results, names=names))
    for problem in problems:
        _set_aside(results, problem.cell)
    return problems


def broken_cells(
    results: Results, digests: bool = False, names: Iterable[str] | None = None
) -> Iterator[Problem]:
    """The first problem of each broken cell.

    Parameters
    ----------
    digests
        Whether to read the files whole and compare their SHA-256; sizes alone otherwise.
    names
        Cells to check, if they are stored; all unless given.
    """
    stored = results.cell_names()
    for name in stored if names is None else sorted(set(stored).intersection(names)):
        problem = checked_record(results, name, digests)
        if isinstance(problem, Problem):
            yield problem


def _set_aside(results: Results, name: str) -> None:
    """Move a cell aside, in place of an earlier broken one of its name."""
    aside = results.cells / f"{BROKEN}{name}"
    results.remove(aside.name)
    with storing(aside):
        os.replace(results.cells / name, aside)


def verify(folder: Path, repair: bool = False) -> list[Problem]:
    """Check all files of a results folder.

    Data files are compared with the digests in their cell's record, the record with its own;
    files of priors and ranks are read, figures are decoded.

    Parameters
    ----------
    repair
        Whether to set broken cells aside and remove other broken files, so that the next sweep of
        the folder fits and draws them again.

    Returns
    -------
    list of Problem
        Cells and files that have changed since they were written.

    Raises
    ------
    ResultsError
        If there is no results folder.
    """
    results = Results(folder)
    if not results.cells.is_dir():
        raise ResultsError(f"`{folder}` must be a results folder: it has no folder `cells`.")
    problems = [
        *broken_cells(results, digests=True),
        *_broken_files(results),
        *_broken_figures(results),
    ]
    for problem in problems if repair else ():
        if problem.cell is None:
            remove(problem.path)
        else:
            _set_aside(results, problem.cell)
    return problems


def checked_record(results: Results, name: str, digests: bool = False) -> CellRecord | Problem:
    """Record of a whole stored cell, or its first problem; see `broken_cells`."""
    folder = results.cells / name
    if not (folder / RECORD).is_file():
        return Problem(folder, name, f"has no `{RECORD}`")
    try:
        record = results.load_record(name)
    except ResultsError as error:
        if isinstance(error.__cause__, OtherFormatError):
            raise
        return Problem(folder / RECORD, name, str(error.__cause__))
    for file, expected in record.files.items():
        path = folder / file
        if not path.is_file():
            return Problem(path, name, "is missing")
        size = path.stat().st_size
        if size != expected.size:
            return Problem(path, name, f"has {size} bytes, {expected.size} were written")
        if digests and sha256(path) != expected.sha256:
            return Problem(path, name, "is not what was written: its SHA-256 differs")
    return record


def _broken_files(results: Results) -> Iterator[Problem]:
    """Priors and ranks that cannot be read."""
    for folder in (results.priors, results.calibration):
        for path in sorted(folder.glob("*.nc")):
            try:
                load_netcdf(path)
            except (OSError, ValueError) as error:
                yield Problem(path, None, f"cannot be read: {error.__cause__ or error}")


def _broken_figures(results: Results) -> Iterator[Problem]:
    """Figures that cannot be decoded; PNG carries checksums of its own."""
    from PIL import Image

    folders = (results.cells.glob("[!.]*"), [results.figures], [results.priors])
    for path in sorted(path for one in chain(*folders) for path in one.glob("*.png")):
        try:
            with Image.open(path) as image:
                if image.width * image.height > MOST_PIXELS:
                    raise ValueError(f"it has more than {MOST_PIXELS:,} pixels")
                image.verify()
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            yield Problem(path, None, f"cannot be decoded: {error}")
