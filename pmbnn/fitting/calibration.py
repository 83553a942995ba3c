"""Simulation-based calibration of one combination: truths, data sets, fits, ranks.

A truth is a vector of the model's free variables, drawn from the prior or from the posterior given
the observed data. Targets are simulated from it at the training inputs, the combination is fitted
to them as a sweep would fit it, or sampled, and what the truth says ranked among posterior draws.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pmbnn.core.stages import stage
from pmbnn.data.arrays import Dataset, Rows
from pmbnn.experiment.cells import Cell
from pmbnn.experiment.plan import group_key, settings_digest, width
from pmbnn.fitting.job import load_dataset, raise_fault, reason_of
from pmbnn.fitting.programs import GroupPrograms, graph_model
from pmbnn.fitting.sampling import sample_job
from pmbnn.fitting.selection import best_restart
from pmbnn.fitting.tasks import Calibrated, CalibrationTask
from pmbnn.inference.engines import ENGINES
from pmbnn.inference.result import PrngKeys, Replica, derive_keys
from pmbnn.inference.samplers.run import sample_posterior
from pmbnn.models.build import model_data
from pmbnn.prediction.calibration import FAILED, fixed_inputs, ranks_among
from pmbnn.prediction.compared import functions_of
from pmbnn.prediction.predictor import Predictor
from pmbnn.prediction.prior_draws import seeded_prior_draws
from pmbnn.results.ranks import StoredRanks, load_ranks, save_ranks
from pmbnn.results.store import Results
from pmbnn.results.weights import scale_draws


@dataclass(frozen=True)
class Simulated:
    """A truth, and data simulated from it.

    Attributes
    ----------
    number
        Of the simulation: with the combination, it decides every random number.
    truth
        Flat vector, ``(size,)``.
    rows
        What is fitted: the training inputs with simulated targets; the observed rows and the
        simulated ones where truths are from the posterior.
    data
        Values of the model's data variables for them, by name.
    """

    number: int
    truth: np.ndarray
    rows: Rows
    data: Mapping[str, np.ndarray]


class Reference(NamedTuple):
    """What truths are drawn from, as `StoredRanks` has it."""

    words: str
    effective_draws: float


PRIOR = Reference("", float("nan"))
"""Of truths from the prior, which are independent."""

Infer = Callable[[Sequence[Simulated]], list[np.ndarray | None]]
"""Posterior draws of the flat vector given each simulated data set, ``(draw, size)``; None where
there are none."""

Quantities = Callable[[Mapping[str, np.ndarray], np.ndarray], dict[str, np.ndarray]]
"""Test quantities by name, ``(draw,)`` each, of a model's data and draws of its flat vector."""


def run_calibration(
    task: CalibrationTask,
    folder: Path,
    stored: Callable[[Calibrated], None],
    programs: GroupPrograms | None = None,
) -> GroupPrograms:
    """Simulate what a combination lacks, storing ranks as they come; `stored` is called at the end.

    Arguments are those of `run_job`.
    """
    if programs is None or (programs.group, programs.width) != (task.group, task.width):
        programs = GroupPrograms(task.group, task.width)
    results = Results(folder)
    try:
        _simulate_missing(task, results, programs)
        stored(Calibrated(task.name))
    except Exception as error:
        raise_fault(error, results)
        stored(Calibrated(task.name, reason_of(error)))
    return programs


def _simulate_missing(task: CalibrationTask, results: Results, programs: GroupPrograms) -> None:
    found, start = load_ranks(results, task.name), time.monotonic()
    missing = list(range(task.simulations)) if found is None else found.missing(task.simulations)
    if not missing:
        return
    calibration = Calibration(task, load_dataset(task), programs)
    truths, reference = calibration.truths(missing)
    with stage("simulate", task.simulations) as went_on:
        went_on(task.simulations - len(missing))
        for first in range(0, len(missing), task.width):
            numbers = missing[first : first + task.width]
            simulated = calibration.simulate(numbers, truths[first : first + task.width])
            names, ranks = simulated_ranks(
                simulated, calibration.infer, calibration.quantities, calibration.keys
            )
            if found is None:
                found = calibration.without_ranks(names, reference)
            now = time.monotonic()
            found, start = found.followed_by(np.array(numbers), ranks, now - start), now
            save_ranks(results, found)
            went_on(len(found.numbers))


def simulated_ranks(
    simulated: Sequence[Simulated],
    infer: Infer,
    quantities: Quantities,
    keys: Callable[[str], PrngKeys],
) -> tuple[tuple[str, ...], np.ndarray]:
    """Names of the test quantities, and ranks of truths, ``(simulation, quantity)``.

    Where there are no draws, or what they say is not a number, ranks are `FAILED`.

    Parameters
    ----------
    keys
        PRNG keys by what they are for: those of ``ties/<number>`` decide between equals.
    """
    names: tuple[str, ...] = ()
    found = []
    for one, draws in zip(simulated, infer(simulated), strict=True):
        values = one.truth[None] if draws is None else np.concatenate([one.truth[None], draws])
        of_all = quantities(one.data, values)
        names = tuple(of_all)
        stacked = np.stack(list(of_all.values()), axis=1)
        if draws is None or np.isnan(stacked).any():
            found.append(np.full(len(names), FAILED))
            continue
        rng = np.random.default_rng(keys(f"ties/{one.number}").draws)
        found.append(ranks_among(stacked[0], stacked[1:], rng))
    return names, np.stack(found)


@dataclass(frozen=True, eq=False)
class Calibration:
    """The steps of a calibration, with what they share.

    Attributes
    ----------
    task, dataset
        What is calibrated, and its data.
    programs
        What is compiled for its group.
    """

    task: CalibrationTask
    dataset: Dataset
    programs: GroupPrograms

    @property
    def cell(self) -> Cell:
        """The combination, with its data set."""
        return self.task.cell

    @property
    def rows(self) -> Rows:
        """The training rows as they were observed."""
        return self.dataset.training

    @cached_property
    def inputs(self) -> np.ndarray:
        """Inputs that functions are looked at, ``(input, feature)``."""
        return fixed_inputs(np.asarray(self.rows.x, np.float64))

    @property
    def _told_apart(self) -> Sequence[str]:
        """Several targets, or classes without the last one, which has what others leave."""
        return self.rows.target_names or self.rows.classes[:-1]

    @cached_property
    def predictor(self) -> Predictor:
        """What reads quantities off draws."""
        return self.programs.predictor(self.cell, self.rows, "float64")

    def keys(self, name: str) -> PrngKeys:
        """PRNG keys of one purpose, as ``truth/<simulation>``."""
        return derive_keys(f"{self._digest}/calibration/{self.task.truths}/{name}")

    @cached_property
    def _digest(self) -> str:
        return settings_digest(self.cell)

    def without_ranks(self, names: tuple[str, ...], reference: Reference) -> StoredRanks:
        """What is stored before the first simulation."""
        task = self.task
        settings = {k: spec.model_dump(mode="json") for k, spec in self.cell.settings.items()}
        return StoredRanks(
            name=task.name,
            identity=task.identity,
            sweep=self.cell.sweep,
            settings=settings,
            truths=task.truths,
            reference=reference.words,
            effective_draws=reference.effective_draws,
            draws=task.draws,
            restarts=task.restarts,
            quantities=names,
            inputs=self.inputs,
            numbers=np.empty(0, np.int32),
            ranks=np.empty((0, len(names)), np.int32),
            seconds=0.0,
        )

    # Truths, and data simulated from them

    def truths(self, numbers: Sequence[int]) -> tuple[np.ndarray, Reference]:
        """Flat vectors of the simulations, ``(simulation, size)``, and what they are draws of."""
        if self.task.truths == "posterior":
            return self._posterior_draws(numbers)
        model = graph_model(self.cell, self.rows)
        seeds = [self.keys(f"truth/{n}").initial for n in numbers]
        return seeded_prior_draws(model, seeds), PRIOR

    def _posterior_draws(self, numbers: Sequence[int]) -> tuple[np.ndarray, Reference]:
        """Draws of the posterior given the observed rows, by a sampler: a guide's might be off.

        References
        ----------
        Säilynoja, Schmitt, Bürkner and Vehtari (2025), Posterior SBC: Simulation-Based Calibration
        Checking Conditional on Data.
        """
        cell, programs = self.task.sampled, self.programs
        if cell is not self.cell:
            programs = programs.other(group_key(cell), width(cell))
        (sampled,) = sample_job([cell], {cell.dataset: self.dataset}, programs)
        values = sampled.samples.chains.merged
        if sampled.best is None:
            raise ValueError(f"the posterior cannot be drawn from: {sampled.samples.reason}")
        order = np.random.default_rng(self.keys("truth").initial).permutation(len(values))
        words = f"{cell.inference.engine.upper()}, {sampled.samples.status}"
        reference = Reference(words, self._effective_draws(sampled.samples.chains.values))
        return values[order[list(numbers)]].astype(np.float64), reference

    def _effective_draws(self, chains: np.ndarray) -> float:
        """Independent draws that chains ``(chain, draw, size)`` are worth, by the worst quantity.

        Truths that hang together widen what their ranks scatter by: with as many effective draws
        as simulations, the variance of a mean of ranks is up to twice that of independent ones.
        """
        from arviz_stats.base import array_stats

        observed = model_data(self.cell.hyperprior, self.rows, self.cell.likelihood)
        every = [self.quantities(observed, chain) for chain in chains.astype(np.float64)]
        arrays = (np.stack([of_one[name] for of_one in every]) for name in every[0])
        return float(np.min([array_stats.ess(a, chain_axis=0, draw_axis=1) for a in arrays]))

    def simulate(self, numbers: Sequence[int], truths: np.ndarray) -> list[Simulated]:
        """Data sets simulated from truths, ``(simulation, size)``."""
        likelihood, rows = self.cell.likelihood, self.rows
        observed = model_data(self.cell.hyperprior, rows, likelihood)
        parameters = self.predictor.parameters(observed, truths, rows.x)
        found = []
        for i, number in enumerate(numbers):
            rng = np.random.default_rng(self.keys(f"targets/{number}").draws)
            own = {name: array[i : i + 1] for name, array in parameters.items()}
            target = likelihood.sample(own, rng)[0].astype(rows.y.dtype)
            fitted = self._fitted(target)
            data = model_data(self.cell.hyperprior, fitted, likelihood)
            found.append(Simulated(number, truths[i], fitted, data))
        return found

    def _fitted(self, target: np.ndarray) -> Rows:
        """The rows that are fitted, for simulated targets."""
        simulated = replace(self.rows, y=target)
        if self.task.truths == "prior":
            return simulated
        return replace(
            simulated,
            x=np.concatenate([self.rows.x, simulated.x]),
            y=np.concatenate([self.rows.y, target]),
        )

    # Posterior draws, and what is read off them

    def infer(self, simulated: Sequence[Simulated]) -> list[np.ndarray | None]:
        """As `Infer`: draws of the best restart's guide, or of a sampler."""
        if self.cell.is_sampled:
            return [self._sampled(one) for one in simulated]
        cell, restarts = self.cell, self.task.restarts
        replicas = [
            Replica(
                one.data,
                self.keys(f"fit/{one.number}/{restart}"),
                cell.inference.learning_rate,
            )
            for one in simulated
            for restart in range(restarts)
        ]
        program = self.programs.program(cell, simulated[0].rows)
        fits = ENGINES[cell.inference.engine].fit(program, replicas)
        found: list[np.ndarray | None] = []
        for first in range(0, len(fits), restarts):
            own = fits[first : first + restarts]
            best = best_restart(own, None)
            drawn = None if best is None else self.predictor.values(own[best], self.task.draws)
            found.append(drawn)
        return found

    def _sampled(self, one: Simulated) -> np.ndarray | None:
        """Draws of a sampler's chains, as far from each other as they are many enough to be."""
        samples = sample_posterior(
            self.programs.program(self.cell, one.rows),
            one.data,
            functions_of(self.programs.predictor(self.cell, one.rows), one.data),
            identity=f"{self._digest}/calibration/{self.task.truths}/sample/{one.number}",
        )
        if samples.chains.broken.any():
            return None
        values = samples.chains.merged
        spread = np.linspace(0, len(values) - 1, self.task.draws).round().astype(int)
        return values[spread].astype(np.float64)

    def quantities(
        self, data: Mapping[str, np.ndarray], values: np.ndarray
    ) -> dict[str, np.ndarray]:
        """As `Quantities`: functions at fixed inputs, learned scales, and the log-likelihood.

        A model's single weights are left out: a network has symmetries that exchange them.
        """
        functions = self.predictor.parameters(data, values, self.inputs)
        named = self.predictor.posterior(data, values)
        log_likelihood, _ = self.predictor.log_joint(data, values)
        return {
            **_function_values(functions, len(self.inputs), self._told_apart),
            **scale_draws(named),
            "log-likelihood": log_likelihood.sum(axis=1),
        }


def _function_values(
    parameters: Mapping[str, np.ndarray], n_inputs: int, names: Sequence[str]
) -> dict[str, np.ndarray]:
    """What a likelihood says at each input, of each of the names where there are several."""
    found = {}
    for name, array in parameters.items():
        if array.shape[1] != n_inputs:  # one value for all inputs: a scale
            continue
        for i in range(n_inputs):
            if array.ndim == 2:
                found[f"{name} at input {i + 1}"] = array[:, i]
                continue
            for k, own in enumerate(names):
                found[f"{name} of {own} at input {i + 1}"] = array[:, i, k]
    return found
