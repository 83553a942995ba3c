"""How to sample the posterior itself, as an experiment file says it."""

from typing import Annotated, Literal

from pydantic import Field

from pmbnn.spec import Positive, Specification

Count = Annotated[int, Field(ge=1)]


class Sampling(Specification):
    """What all samplers are told.

    Parameters
    ----------
    chains
        Independent chains, each from a start of its own.
    draws
        Of each chain that are kept, at first; they double, up to eight times as many, until the
        chains agree on what is predicted.
    seed
        Decides starts and moves.
    validation
        Share of the training rows held out where a scale is tuned; nothing else is chosen by them.
    """

    chains: Annotated[int, Field(ge=2, le=10_000)] = 16
    draws: Annotated[int, Field(ge=4)] = 400
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    validation: Annotated[float, Field(ge=0, le=0.5)] = 0.2


class Mclmc(Sampling):
    """Microcanonical Langevin Monte Carlo: how a chain starts, is tuned and moves.

    Parameters
    ----------
    spread
        Starts are drawn from normals of this standard deviation on the unconstrained variables,
        wider than most posteriors.
    descent, descent_rate
        Steps of Adam uphill from there, and their learning rate, which bring a chain near where
        the posterior is.
    tuning
        Steps that step size and decoherence length are tuned in.
    shares
        Of those: for the step size alone, for step size and variances, and for autocorrelations.
    energy_variance
        Variance of the energy error of a step for each dimension that the step size is tuned to.
        Draws of a network's function are within Monte-Carlo error of unbiased at 5e-4; at 0.1 their
        standard deviations are 4 % too large.
    thin
        Steps for each draw that is kept.
    """

    engine: Literal["mclmc"] = "mclmc"
    spread: Positive = 2.0
    descent: Annotated[int, Field(ge=0)] = 500
    descent_rate: Positive = 0.02
    tuning: Annotated[int, Field(ge=10)] = 5_000
    shares: tuple[Positive, Positive, Positive] = (0.6, 0.3, 0.1)
    energy_variance: Positive = 5e-4
    thin: Count = 20

    @property
    def gradients(self) -> int:
        """Gradients of a chain, two a step, its draws not doubled."""
        return self.descent + 2 * (self.tuning + self.draws * self.thin)


SAMPLING: dict[str, type[Sampling]] = {"mclmc": Mclmc}
"""Settings of every sampler by its engine's name."""
