"""What the priors of an experiment say before anything is fitted: ``prior.csv`` and its figures."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pmbnn.core.device import CPU, claim, running_on
from pmbnn.data import DataError
from pmbnn.data.arrays import Dataset
from pmbnn.data.base import DatasetSpec
from pmbnn.experiment.cells import Cell, Experiment
from pmbnn.experiment.load import load_dataset
from pmbnn.experiment.machine import cores
from pmbnn.experiment.plan import cell_label, identity, is_large
from pmbnn.experiment.plugins import experiment_parts
from pmbnn.experiment.priors import Combination, checked_combinations, combinations, left_out
from pmbnn.experiment.versions import decisive_versions
from pmbnn.figures.priors import outdated_priors
from pmbnn.figures.stage import draw_files
from pmbnn.models.priors import Hyperprior
from pmbnn.prediction.progress import duration
from pmbnn.processes.helpers import Helpers
from pmbnn.results.lock import writing
from pmbnn.results.names import OF_POSTERIOR
from pmbnn.results.present import present_list, present_records
from pmbnn.results.priors import (
    FILE,
    StoredPrior,
    data_path,
    is_stored,
    save_prior,
    stored_priors,
    write_priors,
)
from pmbnn.results.store import Results

if TYPE_CHECKING:
    from pmbnn.prediction.prior_functions import PriorFunctions


def run_priors(
    experiment: Experiment,
    cells: Sequence[Cell],
    folder: Path,
    console: Console,
    workers: int | None = None,
    fresh: bool = False,
    wait: bool = False,
    quiet: bool = False,
) -> list[StoredPrior]:
    """Draw functions from the priors of some cells, as far as that was not done.

    Nothing is fitted. What was done before an interruption stays.

    Parameters
    ----------
    experiment
        All that the table is of.
    cells
        Those whose priors are wanted.
    folder
        Of results; cells of the same prior, where it has some, are shown beside it.
    workers
        Processes that draw figures; one for each core unless given.
    fresh, wait, quiet
        As `pmbnn.run` has them.

    Returns
    -------
    list of StoredPrior
        All that are stored of the experiment.

    Raises
    ------
    ConfigError
        If no prior can be drawn from.
    DataError
        If a data set is unavailable.
    FolderBusyError
        If another process writes the folder, and `wait` is false.
    """
    every = experiment.cells
    wanted = checked_combinations(every, cells)
    loaded = {spec: load_dataset(spec) for spec in {one.cell.dataset for one in wanted}}
    names = _names(experiment, {spec: data.fingerprint for spec, data in loaded.items()})
    results = Results(folder)
    with writing(folder, wait):
        results.prepare()
        present_list(folder)  # an older format is an error before anything is drawn
        for line in left_out(cells):
            console.print(f"left out: {line}", soft_wrap=True, highlight=False, markup=False)
        if fresh:
            for one in wanted:
                data_path(results, names[one]).unlink(missing_ok=True)
        missing = [one for one in wanted if not is_stored(results, names[one])]
        if not quiet:
            stored = len(wanted) - len(missing)
            words = f"{len(wanted)} priors, {stored} stored already, {len(missing)} to draw from"
            console.print(words, highlight=False)
        _draw_missing(results, missing, names, loaded, console, quiet)
        write_priors(results, list(names.values()))
        due = outdated_priors(results, present_records(results))
        with Helpers(workers or cores(), len(due)) as helpers:
            draw_files(due, results, helpers)
        return stored_priors(results)


def keep_present_priors(
    results: Results, experiment: Experiment, fingerprints: Mapping[DatasetSpec, str]
) -> None:
    """Leave priors that the experiment no longer has out of the table, if there is one."""
    if (results.folder / FILE).is_file():
        write_priors(results, list(_names(experiment, fingerprints).values()))


def _names(experiment: Experiment, loaded: Mapping[DatasetSpec, str]) -> dict[Combination, str]:
    """Names of the files of all combinations; of those whose data are unavailable, none."""
    with experiment_parts(experiment.plugins):
        return _names_of(combinations(experiment.cells, experiment.cells), loaded)


def _names_of(
    found: Sequence[Combination], loaded: Mapping[DatasetSpec, str]
) -> dict[Combination, str]:
    versions, names, others = decisive_versions(), {}, {}
    for one in found:
        spec = one.cell.dataset
        if spec not in loaded and spec not in others:
            with suppress(DataError):
                others[spec] = load_dataset(spec).fingerprint
        known = loaded.get(spec, others.get(spec))
        if known is not None:
            name = f"{cell_label(one.cell)}-{identity(one.cell, known, versions)}"
            # A candidate has a figure of its own: the posterior beside it is another.
            names[one] = name if one.tuned is None else f"{name}-candidate-{_digest(one.tuned)}"
    return names


def _digest(tuned: Hyperprior) -> str:
    """Tells a grid of scales from others that have some of them too."""
    return hashlib.sha256(tuned.model_dump_json().encode()).hexdigest()[:6]


def _draw_missing(
    results: Results,
    missing: Sequence[Combination],
    names: dict[Combination, str],
    datasets: dict[DatasetSpec, Dataset],
    console: Console,
    quiet: bool,
) -> None:
    """Evaluate combinations one after the other, storing each at once."""
    from pmbnn.fitting.prior_evaluation import NotDrawnError, evaluate_prior
    from pmbnn.inference.xla.compile import use_compilation_cache

    use_compilation_cache()
    programs: dict[tuple, PriorFunctions] = {}
    # In double precision, which GPUs are slow at: whatever fits run on, the processor draws.
    with running_on(claim(CPU)), _shown(console, len(missing), quiet) as report:
        for one in missing:
            start, label, dataset = monotonic(), cell_label(one.cell), datasets[one.cell.dataset]
            try:
                functions = _functions(one.cell, dataset, programs)
                found = evaluate_prior(one.cell, dataset, functions, one.random_seed)
            except NotDrawnError as error:
                report(label)
                words = f"left out: {label}, {error}"
                console.print(words, soft_wrap=True, highlight=False, markup=False)
                continue
            save_prior(results, _stored(one, names[one], found.numbers), found.groups)
            report(f"{label} ({duration(monotonic() - start)})")


def _stored(one: Combination, name: str, numbers: dict[str, float]) -> StoredPrior:
    """A combination with its numbers, as a results folder has it."""
    settings = {s: one.cell.settings[s].model_dump(mode="json") for s in OF_POSTERIOR}
    settings["map"] = one.cell.predict.map.model_dump(mode="json")
    tuned = None if one.tuned is None else one.tuned.model_dump(mode="json")
    return StoredPrior(name, one.cell.sweep, settings, tuned, numbers)


def _functions(cell: Cell, dataset: Dataset, programs: "dict[tuple, PriorFunctions]"):
    """What is compiled for a network, whatever its prior."""
    from pmbnn.prediction.prior_functions import PriorFunctions

    rows = dataset.training
    key = (cell.network, cell.likelihood, rows.input_shape, rows.n_classes, rows.n_targets)
    if key not in programs:
        # Heavy tails need the range of double precision; a large network the memory.
        dtype = "float32" if is_large(cell) else "float64"
        programs[key] = PriorFunctions(cell.network, cell.likelihood, rows, dtype)
    return programs[key]


@contextmanager
def _shown(console: Console, total: int, quiet: bool) -> Iterator[Callable[[str], None]]:
    """What is called with a line on each combination: a bar on a terminal, lines in a log."""
    done = 0

    def line(words: str) -> None:
        nonlocal done
        done += 1
        if not quiet:
            console.print(
                f"[{done}/{total}] {words}", soft_wrap=True, highlight=False, markup=False
            )

    if quiet or not console.is_terminal or not total:
        yield line
        return
    columns = (TextColumn("priors"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=console) as bar:
        task = bar.add_task("", total=total)
        yield lambda words: bar.update(task, advance=1, description=words)
