"""Simulations of one combination: draw truths, simulate data, fit or sample them, rank the truths.

A truth is a vector of the model's free variables, drawn from the prior or from the posterior given
the observed data. Targets are simulated from it at the training inputs, the combination is fitted
to them as a sweep would fit it, or sampled, and functions of the truth are ranked among the same
functions of posterior draws.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pmbnn.calibration.ranks import FAILED, ranks_among
from pmbnn.calibration.store import (
    StoredRanks,
    check_quantities,
    load_ranks,
    missing_simulations,
    save_ranks,
)
from pmbnn.core.errors import reason_of
from pmbnn.core.stages import stage
from pmbnn.data.arrays import Dataset, Rows
from pmbnn.experiment.plan import group_key, settings_digest, width
from pmbnn.fitting.job import load_dataset, raise_fault
from pmbnn.fitting.programs import GroupPrograms, graph_model
from pmbnn.fitting.sampling import sample_job
from pmbnn.fitting.select import best_restart, candidates_of
from pmbnn.inference.engines import ENGINES
from pmbnn.inference.guides import Guide
from pmbnn.inference.result import Fit, PrngKeys, Replica, derive_keys
from pmbnn.inference.samplers.run import sample_posterior
from pmbnn.models.build import model_data
from pmbnn.prediction.draws import GuideDraws
from pmbnn.prediction.predictor import Predictor, functions_of, spread_rows
from pmbnn.prior_predictive.evaluate import seeded_prior_draws
from pmbnn.results.reading import scale_draws
from pmbnn.results.store import Results

if TYPE_CHECKING:
    from pmbnn.calibration.plan import CalibrationTask


@dataclass(frozen=True)
class Simulated:
    """A truth, and data simulated from it.

    Attributes
    ----------
    number
        Number of the simulation: with the combination, it decides every random number.
    truth
        Flat vector, ``(size,)``.
    rows
        Rows that are fitted: the training inputs with simulated targets; the observed rows and the
        simulated ones where truths are from the posterior.
    data
        Values of the model's data variables for them, by name.
    """

    number: int
    truth: np.ndarray
    rows: Rows
    data: Mapping[str, np.ndarray]


def run_calibration(
    task: "CalibrationTask",
    folder: Path,
    stored: Callable[[str | None], None],
    programs: GroupPrograms | None = None,
) -> GroupPrograms:
    """Simulate what a combination lacks, storing ranks as they come.

    Parameters
    ----------
    stored
        Called at the end, with the reason if some ranks are missing.
    task, folder, programs
        Those of `run_job`.
    """
    if programs is None or (programs.group, programs.width) != (task.group, task.width):
        programs = GroupPrograms(task.group, task.width)
    results, reason = Results(folder), None
    try:
        _simulate_missing(task, results, programs)
    except Exception as error:
        raise_fault(error, results)
        reason = reason_of(error)
    stored(reason)
    return programs


def _simulate_missing(task: "CalibrationTask", results: Results, programs: GroupPrograms) -> None:
    stored, start = load_ranks(results, task.name), time.monotonic()
    missing = missing_simulations(stored, task.simulations)
    if not missing:
        return
    calibration = Calibration(task, load_dataset(task), programs)
    if stored is not None:
        check_quantities(results, stored, calibration.names)
    truths, reference, effective_draws = calibration.truths(missing)
    with stage("simulate", task.simulations) as update:
        update(task.simulations - len(missing))
        for first in range(0, len(missing), task.width):
            numbers = missing[first : first + task.width]
            simulated = calibration.simulate(numbers, truths[first : first + task.width])
            quantities, ranks = calibration.ranks(simulated)
            now = time.monotonic()
            new = StoredRanks(
                name=task.name,
                cell=task.cell,
                truths=task.truths,
                reference=reference,
                effective_draws=effective_draws,
                draws=task.draws,
                restarts=task.restarts,
                quantities=quantities,
                inputs=calibration.inputs,
                numbers=np.array(numbers),
                ranks=ranks,
                seconds=now - start,
            )
            start = now
            stored = new if stored is None else stored.followed_by(new)
            save_ranks(results, stored)
            update(len(stored.numbers))


class Calibration:
    """The steps of a calibration, with what they share.

    Parameters
    ----------
    task, dataset
        The combination, and its data.
    programs
        Compiled programs of its group.

    Attributes
    ----------
    cell
        The cell that is calibrated, with the numbers of scales that are matched.
    rows
        The training rows as they were observed.
    inputs
        Inputs at which functions are evaluated, ``(input, feature)``.
    predictor
        Computes quantities of draws.
    """

    def __init__(self, task: "CalibrationTask", dataset: Dataset, programs: GroupPrograms) -> None:
        self.task, self.dataset, self.programs = task, dataset, programs
        self.rows = dataset.training
        self.cell = replace(task.cell, hyperprior=candidates_of(task.cell, self.rows)[0])
        self.inputs = fixed_inputs(np.asarray(self.rows.x, np.float64))
        self.predictor: Predictor = programs.predictor(self.cell, self.rows, "float64")
        self._digest = settings_digest(task.cell)

    def keys(self, name: str) -> PrngKeys:
        """PRNG keys of one purpose, as ``truth/<simulation>``."""
        return derive_keys(self._text(name))

    def _text(self, name: str) -> str:
        """Text that random numbers of one purpose are derived from."""
        return f"{self._digest}/calibration/{self.task.truths}/{name}"

    # Truths, and data simulated from them

    def truths(self, numbers: Sequence[int]) -> tuple[np.ndarray, str, float]:
        """Flat vectors of the simulations, ``(simulation, size)``.

        And ``reference`` and ``effective_draws``, as `StoredRanks` has them.
        """
        if self.task.truths == "posterior":
            return self._posterior_draws(numbers)
        model = graph_model(self.cell, self.rows)
        seeds = [self.keys(f"truth/{n}").initial for n in numbers]
        return seeded_prior_draws(model, seeds), "", float("nan")

    def _posterior_draws(self, numbers: Sequence[int]) -> tuple[np.ndarray, str, float]:
        """Draws of the posterior given the observed rows, by a sampler: a guide's might be off.

        References
        ----------
        Säilynoja, Schmitt, Bürkner and Vehtari (2025), Posterior SBC: Simulation-Based Calibration
        Checking Conditional on Data.
        """
        cell, programs = self.task.sampled, self.programs
        if cell is not self.task.cell:
            programs = programs.other(group_key(cell), width(cell))
        (sampled,) = sample_job([cell], {cell.dataset: self.dataset}, programs)
        samples = sampled.samples
        if sampled.best is None:
            raise ValueError(f"the posterior cannot be drawn from: {samples.reason}")
        values = samples.chains.merged
        order = np.random.default_rng(self.keys("truth").initial).permutation(len(values))
        reference = f"{cell.inference.engine.upper()}, {samples.status}"
        effective_draws = self._effective_draws(samples.chains.values)
        return values[order[list(numbers)]].astype(np.float64), reference, effective_draws

    def _effective_draws(self, chains: np.ndarray) -> float:
        """Effective sample size of chains ``(chain, draw, size)``, by the worst quantity.

        Dependent truths widen the scatter of their ranks: with as many effective draws as
        simulations, the variance of a mean of ranks is up to twice that of independent ones.
        """
        from arviz_stats.base import array_stats

        observed = self._data(self.rows)
        by_chain = [self.quantities(observed, chain) for chain in chains.astype(np.float64)]
        arrays = (np.stack([chain[name] for chain in by_chain]) for name in by_chain[0])
        return float(np.min([array_stats.ess(a, chain_axis=0, draw_axis=1) for a in arrays]))

    def simulate(self, numbers: Sequence[int], truths: np.ndarray) -> list[Simulated]:
        """Data sets simulated from truths, ``(simulation, size)``."""
        likelihood, rows = self.cell.likelihood, self.rows
        observed = self._data(rows)
        parameters = self.predictor.parameters(observed, truths, rows.x)
        simulated = []
        for i, number in enumerate(numbers):
            rng = np.random.default_rng(self.keys(f"targets/{number}").draws)
            single = {name: array[i : i + 1] for name, array in parameters.items()}
            target = likelihood.sample(single, rng)[0].astype(rows.y.dtype)
            fitted = self._fitted_rows(target)
            data = self._data(fitted)
            simulated.append(Simulated(number, truths[i], fitted, data))
        return simulated

    def _data(self, rows: Rows) -> dict[str, np.ndarray]:
        """Values of the model's data variables for some rows."""
        cell = self.cell
        return model_data(cell.hyperprior, rows, cell.likelihood, cell.prior)

    def _fitted_rows(self, target: np.ndarray) -> Rows:
        """The rows that are fitted, for simulated targets."""
        if self.task.truths == "prior":
            return replace(self.rows, y=target)
        x, y = self.rows.x, self.rows.y
        return replace(self.rows, x=np.concatenate([x, x]), y=np.concatenate([y, target]))

    # Posterior draws, and the ranks of truths among them

    def ranks(self, simulated: Sequence[Simulated]) -> tuple[tuple[str, ...], np.ndarray]:
        """Names of the test quantities, and ranks of truths, ``(simulation, quantity)``.

        Where there are no draws, or some quantity is not a number, ranks are `FAILED`.
        """
        names: tuple[str, ...] = ()
        ranks = []
        for one, draws in zip(simulated, self.infer(simulated), strict=True):
            values = one.truth[None] if draws is None else np.concatenate([one.truth[None], draws])
            quantities = self.quantities(one.data, values)
            names, stacked = tuple(quantities), np.stack(list(quantities.values()), axis=1)
            if draws is None or np.isnan(stacked).any():
                ranks.append(np.full(len(names), FAILED))
                continue
            rng = np.random.default_rng(self.keys(f"ties/{one.number}").draws)
            ranks.append(ranks_among(stacked[0], stacked[1:], rng))
        return names, np.stack(ranks)

    def infer(self, simulated: Sequence[Simulated]) -> list[np.ndarray | None]:
        """Posterior draws of the flat vector given each simulated data set, ``(draw, size)``.

        They are those of the best restart's guide, or of a sampler; None where there are none.
        """
        if self.cell.is_sampled:
            return [self._sampled(one) for one in simulated]
        inference, restarts = self.cell.inference, self.task.restarts
        replicas = [
            Replica(one.data, self.keys(f"fit/{one.number}/{restart}"), inference.learning_rate)
            for one in simulated
            for restart in range(restarts)
        ]
        program = self.programs.program(self.cell, simulated[0].rows)
        fits = ENGINES[inference.engine].fit(program, replicas)
        return [
            self._draws_of_best(program.guide, fits[first : first + restarts])
            for first in range(0, len(fits), restarts)
        ]

    def _draws_of_best(self, guide: Guide, fits: Sequence[Fit]) -> np.ndarray | None:
        """Draws of the guide of the best restart; None if every one diverged."""
        best = best_restart(fits, None)
        if best is None:
            return None
        return self.predictor.values(GuideDraws.from_fit(guide, fits[best]), self.task.draws)

    def _sampled(self, one: Simulated) -> np.ndarray | None:
        """Draws of a sampler's chains, evenly spread."""
        samples = sample_posterior(
            self.programs.program(self.cell, one.rows),
            one.data,
            functions_of(self.programs.predictor(self.cell, one.rows), one.data),
            identity=self._text(f"sample/{one.number}"),
        )
        if samples.chains.broken.any():
            return None
        return spread_rows(samples.chains.merged, self.task.draws).astype(np.float64)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the test quantities."""
        observed = self._data(self.rows)
        return tuple(self.quantities(observed, np.zeros((1, self.predictor.flat.size))))

    def quantities(
        self, data: Mapping[str, np.ndarray], values: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Test quantities by name, ``(draw,)`` each, of a model's data and draws of its vector.

        They are functions at fixed inputs, learned scales, and the log-likelihood. A model's single
        weights are left out: a network has symmetries that exchange them.
        """
        functions = self.predictor.parameters(data, values, self.inputs)
        named = self.predictor.posterior(data, values)
        log_likelihood, _ = self.predictor.log_joint(data, values)
        # Several targets; or classes without the last one, which has what the others leave.
        outputs = self.rows.target_names or self.rows.classes[:-1]
        return {
            **_function_values(functions, len(self.inputs), outputs),
            **scale_draws(named),
            "log-likelihood": log_likelihood.sum(axis=1),
        }


def _function_values(
    parameters: Mapping[str, np.ndarray], n_inputs: int, outputs: Sequence[str]
) -> dict[str, np.ndarray]:
    """Parameters of a likelihood at each input, of each output where there are several."""
    values = {}
    for name, array in parameters.items():
        if array.shape[1] != n_inputs:  # one value for all inputs: a scale
            continue
        for i in range(n_inputs):
            if array.ndim == 2:
                values[f"{name} at input {i + 1}"] = array[:, i]
                continue
            for k, output in enumerate(outputs):
                values[f"{name} of {output} at input {i + 1}"] = array[:, i, k]
    return values


def fixed_inputs(x: np.ndarray) -> np.ndarray:
    """Four inputs at which functions are evaluated, ``(input, feature)``.

    The row nearest to the mean, the row furthest from it, the row furthest from both, and, outside
    the data, a point twice as far from the mean as the second.

    Parameters
    ----------
    x
        Inputs, ``(observation, feature)``.
    """
    centre = x.mean(axis=0)
    near = x[_distances(x, [centre]).argmin()]
    far = x[_distances(x, [centre]).argmax()]
    third = x[_distances(x, [near, far]).argmax()]
    return np.stack([near, far, third, centre + 2 * (far - centre)])


def _distances(x: np.ndarray, points: Sequence[np.ndarray]) -> np.ndarray:
    """Distance of each row from the nearest of some points, ``(observation,)``."""
    return np.min([np.linalg.norm(x - point, axis=1) for point in points], axis=0)
