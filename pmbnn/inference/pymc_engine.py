"""The reference engine: the same fits through PyMC's own ``pm.fit``.

Slow (a step costs tens of times more, and each fit builds its own function), double precision,
full batch. It is there to check the compiled engine against, and takes the same settings. The
guide's scales are not capped under an improper prior: PyMC's guide has no such limit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor

from pmbnn.core.stages import stage
from pmbnn.inference.checkpoint import Checkpoints
from pmbnn.inference.convergence import final_mean, verdict
from pmbnn.inference.flat import FlatModel, ModelGraphs, model_graphs
from pmbnn.inference.guides import MeanField, initial_means, softplus
from pmbnn.inference.optimisers import relative_rate
from pmbnn.inference.result import Fit, History, Progress, Replica
from pmbnn.inference.settings import Inference
from pmbnn.spec.display import Summarised

WINDOWS = 200
"""Points of the ELBO history, as many as the compiled engine keeps."""


@dataclass(frozen=True, eq=False, repr=False)
class PymcProgram(Summarised):
    """What the fits of one model share; `build_program` makes one.

    ``relative_rates`` are the learning rates of every step in units of the highest.
    """

    model: pm.Model
    settings: Inference
    width: int
    steps: int
    flat: FlatModel
    guide: MeanField
    relative_rates: np.ndarray

    def takes(self, rows: int) -> bool:
        """Whether it runs fits of so many rows: of any, as their length does not depend on them."""
        return True


def build_program(
    model: pm.Model | ModelGraphs,
    settings: Inference,
    rows: int,
    width: int = 1,
    dtype: str = "float64",
    fewer: bool = False,
) -> PymcProgram:
    """The program of mean-field ADVI by ``pm.fit``, one replica after the other.

    `width`, `dtype` and `fewer` are for the sake of one interface, and have no effect.
    """
    graphs, steps = model_graphs(model), settings.total_steps(rows)
    flat = graphs.flatten(rows)
    rates = np.asarray(relative_rate(settings, np.arange(steps), steps), np.float64)
    return PymcProgram(graphs.model, settings, width, steps, flat, MeanField(flat.size), rates)


def fit(
    program: PymcProgram,
    replicas: Sequence[Replica],
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
    steps: int | None = None,
    snapshots: Sequence[int] = (),
) -> list[Fit]:
    """Fits of every replica; one that diverges does not stop the others.

    `checkpoints`, `steps` and `snapshots` are for the sake of one interface: ``pm.fit``
    can neither be interrupted, nor be a short try, nor keep snapshots.
    """
    return [_fit_one(program, replica, i, progress) for i, replica in enumerate(replicas)]


def _fit_one(program: PymcProgram, replica: Replica, i: int, progress: Progress | None) -> Fit:
    program.flat.check_labels(replica.data)
    seed, losses = int(replica.keys.noise[0]), []
    rates = replica.highest_rate(program.settings) * program.relative_rates
    with pytensor.config.change_flags(floatX="float64"), program.model:
        pm.set_data(dict(replica.data))
        advi = pm.ADVI(random_seed=seed)
        _start(program, advi.approx.groups[0], replica)
        rate = pytensor.shared(rates[0], "learning_rate")

        def current() -> Fit:
            return _result(program, advi.approx.groups[0], losses, replica, i)

        with stage("fit", program.steps, "step") as report_progress:

            def told(step: int, elbo: float) -> None:
                said = None if progress is None else progress(step, program.steps, elbo, current)
                report_progress(step, words=", ".join(filter(None, [f"ELBO {elbo:,.1f}", said])))

            try:
                pm.fit(
                    program.steps,
                    method=advi,
                    obj_optimizer=pm.adam(learning_rate=rate),
                    callbacks=[_callback(program, rate, rates, losses, told)],
                    progressbar=False,
                    backend="c" if pytensor.config.cxx else None,
                )
            except FloatingPointError:  # PyMC's way to say that the loss is not a number
                losses.append(np.nan)
    return current()


def _callback(program, rate, rates, losses: list[float], told: Callable[[int, float], None]):
    """What follows the schedule and keeps the losses."""
    steps = program.steps

    def callback(approx, history, step):
        losses.append(history[-1])
        rate.set_value(rates[min(step, steps - 1)])
        if step % max(1, steps // WINDOWS) == 0:
            told(step, -float(history[-1]))

    return callback


def _start(program: PymcProgram, group, replica: Replica) -> None:
    """Put PyMC's guide where ours starts."""
    layout, settings = program.flat.layout, program.settings
    rng = np.random.default_rng(replica.keys.initial)
    means = initial_means(layout, settings, rng)
    start = program.guide.initial(means, settings.initial_scale, rng)
    for name, shared in zip(start, _shared(group), strict=True):
        theirs = shared.get_value()
        for variable, part in layout.unravel(start[name]).items():
            theirs[group.ordering[variable][1]] = part.ravel()
        shared.set_value(theirs)


def _result(program: PymcProgram, group, losses: list[float], replica: Replica, i: int) -> Fit:
    layout = program.flat.layout
    loc, rho = (
        layout.ravel({s.name: vector[group.ordering[s.name][1]] for s in layout.slots})
        for vector in (shared.get_value() for shared in _shared(group))
    )
    length = max(1, -(-program.steps // WINDOWS))
    starts = np.arange(0, len(losses), length)
    elbo = -np.array([np.mean(losses[s : s + length]) for s in starts])
    step = np.minimum(starts + length, len(losses))
    constrained = {"loc": loc, "scale": softplus(rho)}
    rates = np.add.reduceat(program.relative_rates[: len(losses)], starts)
    is_finite = all(np.isfinite(array).all() for array in constrained.values())
    status, reason = verdict(elbo, step, rates, is_finite, program.flat.improper)
    # PyMC tells the whole only, not its parts.
    unknown = np.full(len(elbo), np.nan)
    return Fit(
        constrained=constrained,
        scale=constrained["scale"],
        history=History(step, elbo, unknown, unknown),
        elbo=final_mean(elbo),
        status=status,
        reason=reason,
        keys=replica.keys,
        learning_rate=replica.highest_rate(program.settings),
        kl_forms=dict.fromkeys((slot.name for slot in layout.slots), "monte_carlo"),
        replica=i,
    )


def _shared(group) -> tuple:
    """Means and unconstrained scales, as the compiled engine's guide orders them."""
    return group.params_dict["mu"], group.params_dict["rho"]
