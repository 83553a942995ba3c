"""The reference engine: the same fits through PyMC's own ``pm.fit``.

Slow (a step costs tens of times more, and each fit builds its own function), double precision,
full batch. It is there to check the compiled engine against, and takes the same settings.
"""

from collections.abc import Sequence

import numpy as np
import pymc as pm
import pytensor

from pmbnn.inference.checkpoint import Checkpoints
from pmbnn.inference.convergence import final_mean, verdict
from pmbnn.inference.fit import Fit, History, Member, Progress
from pmbnn.inference.flat import FlatModel, flatten_model
from pmbnn.inference.guides import MeanField, softplus
from pmbnn.inference.initial import initial_means
from pmbnn.inference.optimisers import relative_rate
from pmbnn.inference.settings import Inference

WINDOWS = 200
"""Points of the ELBO history, as many as the compiled engine keeps."""


class PymcEngine:
    """Mean-field ADVI by ``pm.fit``, one member after the other.

    `width` is accepted for the sake of one interface and has no effect. The guide's scales
    are not capped under an improper prior: PyMC's guide has no such limit.
    """

    def __init__(self, model: pm.Model, settings: Inference, rows: int, width: int = 1) -> None:
        self.model, self.settings, self.width = model, settings, width
        self.steps = settings.total_steps(rows)
        self.flat: FlatModel = flatten_model(model, rows)
        self.guide = MeanField(self.flat.size)
        relative = relative_rate(settings, np.arange(self.steps), self.steps)
        self.relative_rates = np.asarray(relative, np.float64)

    def fit(
        self,
        members: Sequence[Member],
        progress: Progress | None = None,
        checkpoints: Checkpoints | None = None,
        steps: int | None = None,
        snapshots: Sequence[int] = (),
    ) -> list[Fit]:
        """Fit every member; one that diverges does not stop the others.

        `checkpoints`, `steps` and `snapshots` are for the sake of one interface: ``pm.fit``
        can neither leave off, nor be a short try, nor be looked at on its way.
        """
        return [self._fit_one(member, progress) for member in members]

    def _fit_one(self, member: Member, progress: Progress | None) -> Fit:
        seed, rates = int(member.streams.noise[0]), self._rate(member) * self.relative_rates
        with pytensor.config.change_flags(floatX="float64"), self.model:
            pm.set_data(dict(member.data))
            advi = pm.ADVI(random_seed=seed)
            self._start(advi.approx, member)
            rate = pytensor.shared(rates[0], "learning_rate")
            losses: list[float] = []
            try:
                pm.fit(
                    self.steps,
                    method=advi,
                    obj_optimizer=pm.adam(learning_rate=rate),
                    callbacks=[self._callback(member, rate, rates, losses, progress)],
                    progressbar=False,
                    backend="c" if pytensor.config.cxx else None,
                )
            except FloatingPointError:  # PyMC's way to say that the loss is not a number
                losses.append(np.nan)
        return self._result(advi.approx, losses, member)

    def _rate(self, member: Member) -> float:
        given = member.learning_rate
        return float(self.settings.learning_rate if given is None else given)

    def _callback(self, member, rate, rates, losses: list[float], progress: Progress | None):
        """Follow the schedule and keep the losses."""

        def callback(approx, history, step):
            losses.append(history[-1])
            rate.set_value(rates[min(step, self.steps - 1)])
            if progress is not None and step % max(1, self.steps // WINDOWS) == 0:
                elbo = -float(history[-1])
                progress(step, self.steps, elbo, lambda: self._result(approx, losses, member))

        return callback

    def _start(self, approx, member: Member) -> None:
        rng = np.random.default_rng(member.streams.initial)
        means = initial_means(self.flat.slots, self.settings, rng)
        start = self.guide.initial(means, self.settings.initial_scale, rng)
        group = approx.groups[0]
        for shared, ours in zip(_shared(group), start.values(), strict=True):
            theirs = shared.get_value()
            for slot, place in self._places(group):
                theirs[place] = ours[slot.start : slot.stop]
            shared.set_value(theirs)

    def _places(self, group):
        """Each of our slots and where PyMC's guide keeps the same variable."""
        ordering = group.ordering
        return [(slot, ordering[slot.name][1]) for slot in self.flat.slots]

    def _result(self, approx, losses: list[float], member: Member) -> Fit:
        group = approx.groups[0]
        loc, rho = (
            np.concatenate([s.get_value()[place] for _, place in self._places(group)])
            for s in _shared(group)
        )
        length = max(1, -(-self.steps // WINDOWS))
        starts = np.arange(0, len(losses), length)
        elbo = -np.array([np.mean(losses[s : s + length]) for s in starts])
        step = np.minimum(starts + length, len(losses))
        natural = {"loc": loc, "scale": softplus(rho)}
        way = np.add.reduceat(self.relative_rates[: len(losses)], starts)
        is_finite = all(np.isfinite(array).all() for array in natural.values())
        status, reason = verdict(elbo, step, way, is_finite, self.flat.improper)
        # PyMC tells the whole only, not its parts.
        unknown = np.full(len(elbo), np.nan)
        return Fit(
            natural=natural,
            scale=natural["scale"],
            history=History(step, elbo, unknown, unknown),
            elbo=final_mean(elbo),
            status=status,
            reason=reason,
            streams=member.streams,
            learning_rate=self._rate(member),
            kl_forms=dict.fromkeys((slot.name for slot in self.flat.slots), "monte_carlo"),
        )


def _shared(group) -> tuple:
    """Means and unconstrained scales, as the compiled engine's guide orders them."""
    return group.params_dict["mu"], group.params_dict["rho"]
