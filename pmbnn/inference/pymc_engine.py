"""The reference engine: the same fits through PyMC's own ``pm.fit``.

It serves to check the compiled engine and takes the same settings, in double precision and full
batch. A step takes tens of times longer, and each fit compiles its own function. The scales of the
guide are not capped under an improper prior, as PyMC's guide has no such limit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor

from pmbnn.core.display import Summarised
from pmbnn.core.stages import stage
from pmbnn.inference.convergence import final_mean, verdict
from pmbnn.inference.flat import FlatModel, ModelGraphs, model_graphs
from pmbnn.inference.groups import Checkpoints
from pmbnn.inference.guides import MeanField, initial_means, softplus
from pmbnn.inference.program import relative_rate
from pmbnn.inference.result import Fit, History, Progress, Replica
from pmbnn.inference.settings import Inference

WINDOWS = 200
"""Number of points of the ELBO history, as in the compiled engine."""


@dataclass(frozen=True, eq=False, repr=False)
class PymcProgram(Summarised):
    """Program that the fits of one model share; `build_program` makes one.

    ``relative_rates`` are the learning rates of the steps, relative to the highest.
    """

    model: pm.Model
    settings: Inference
    width: int
    steps: int
    flat: FlatModel
    guide: MeanField
    relative_rates: np.ndarray

    def supports(self, n_rows: int) -> bool:
        """Whether it runs fits of this number of rows: of any number."""
        return True


def build_program(
    model: pm.Model | ModelGraphs,
    settings: Inference,
    rows: int,
    width: int = 1,
    dtype: str = "float64",
    allow_fewer_rows: bool = False,
) -> PymcProgram:
    """The program of mean-field ADVI by ``pm.fit``, one replica after the other.

    `width`, `dtype` and `allow_fewer_rows` belong to the interface of engines and have no effect.
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
    """Fits of every replica; a fit that diverges does not affect the others.

    `checkpoints`, `steps` and `snapshots` belong to the interface of engines and have no effect.
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

            def callback(approx, history, step):
                losses.append(history[-1])
                rate.set_value(rates[min(step, program.steps - 1)])
                if step % max(1, program.steps // WINDOWS) == 0:
                    elbo, note = -float(history[-1]), None
                    if progress is not None:
                        note = progress(step, program.steps, elbo, current)
                    words = ", ".join(filter(None, [f"ELBO {elbo:,.1f}", note]))
                    report_progress(step, words=words)

            try:
                pm.fit(
                    program.steps,
                    method=advi,
                    obj_optimizer=pm.adam(learning_rate=rate),
                    callbacks=[callback],
                    progressbar=False,
                    backend="c" if pytensor.config.cxx else None,
                )
            except FloatingPointError:  # PyMC raises it if the loss is NaN
                losses.append(np.nan)
    return current()


def _start(program: PymcProgram, group, replica: Replica) -> None:
    """Set the parameters of PyMC's guide to those of the compiled engine's initial guide."""
    layout, settings = program.flat.layout, program.settings
    rng = np.random.default_rng(replica.keys.initial)
    means = initial_means(layout, settings, rng)
    start = program.guide.initial(means, settings.initial_scale, rng)
    for name, shared in zip(start, _shared(group), strict=True):
        vector = shared.get_value()
        for variable, part in layout.unravel(start[name]).items():
            vector[group.ordering[variable][1]] = part.ravel()
        shared.set_value(vector)


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
    # PyMC has the ELBO only, not its parts.
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
    """Means and unconstrained scales, in the order of the compiled engine's guide."""
    return group.params_dict["mu"], group.params_dict["rho"]
