"""Learning-rate schedules and the optimiser."""

import optax

from pmbnn.inference.settings import Inference

WARM_UP = 0.1
"""Share of the steps in which a one-cycle schedule rises."""
START = 25.0
"""By how much a one-cycle schedule starts below its highest rate (Smith and Topin 2018)."""


def build_schedule(settings: Inference, steps: int) -> optax.Schedule:
    """Learning rate as a function of the step, over a fit of that many steps."""
    rate = settings.learning_rate
    if settings.schedule == "one_cycle":
        warm_up = max(1, round(WARM_UP * steps))
        return optax.warmup_cosine_decay_schedule(rate / START, rate, warm_up, max(steps, 2))
    if settings.schedule == "cosine":
        return optax.cosine_decay_schedule(rate, steps)
    return optax.constant_schedule(rate)


def build_optimiser(settings: Inference, steps: int) -> optax.GradientTransformation:
    """Adam with the schedule of the settings (Kingma and Ba 2015)."""
    return optax.adam(build_schedule(settings, steps))
