"""How to sample the posterior itself, as an experiment file says it."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pmbnn.spec import Positive, Specification, added

TRAJECTORY = 300
"""Gradients of a trajectory of NUTS, about: those of a small network under a normal prior; three
times as many under a Cauchy prior (benchmarks/samplers.txt)."""

TEMPERATURES = 18
"""Temperatures of a run of tempered SMC, about: those of the same network."""

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


class Dispersed(Sampling):
    """Chains that start at points wider apart than the posterior is.

    Parameters
    ----------
    spread
        Starts are drawn from normals of this standard deviation on the unconstrained variables,
        wider than most posteriors.
    descent, descent_rate
        Steps of Adam uphill from there, and their learning rate, which bring a chain near where
        the posterior is.
    uphill
        What these steps raise: the log-density; or the ELBO of a mean-field normal guide, a tenth
        of `spread` wide at first, from which the start is then drawn. The mode of many weights is
        far from where their mass is, and from there a learned scale may shrink to nothing.
    """

    spread: Positive = 2.0
    descent: Annotated[int, Field(ge=0)] = 500
    descent_rate: Positive = 0.02
    uphill: Literal["density", "elbo"] = added("density")


class Mclmc(Dispersed):
    """Microcanonical Langevin Monte Carlo: how a chain is tuned and moves.

    Parameters
    ----------
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
    tuning: Annotated[int, Field(ge=10)] = 5_000
    shares: tuple[Positive, Positive, Positive] = (0.6, 0.3, 0.1)
    energy_variance: Positive = 5e-4
    thin: Count = 20

    @property
    def gradients(self) -> int:
        """Gradients of a chain, two a step, its draws not doubled."""
        return self.descent + 2 * (self.tuning + self.draws * self.thin)


class Nuts(Dispersed):
    """The No-U-Turn Sampler: how a chain is tuned and moves.

    Parameters
    ----------
    tuning
        Trajectories of the warm-up, in which step size and a diagonal mass matrix are adapted in
        Stan's windows; they are not kept.
    target_acceptance
        Mean acceptance probability that the step size is adapted to.
    max_treedepth
        A trajectory doubles at most so many times.
    """

    engine: Literal["nuts"] = "nuts"
    chains: Annotated[int, Field(ge=2, le=10_000)] = 8
    draws: Annotated[int, Field(ge=4)] = 500
    tuning: Annotated[int, Field(ge=20)] = 500
    target_acceptance: Annotated[float, Field(gt=0, lt=1)] = 0.8
    max_treedepth: Annotated[int, Field(ge=1, le=20)] = 10

    @property
    def gradients(self) -> int:
        """Gradients of a chain to be expected, its draws not doubled; trajectories differ."""
        return self.descent + (self.tuning + self.draws) * TRAJECTORY


class Smc(Sampling):
    """Tempered sequential Monte Carlo: how particles get from the prior to the posterior.

    A chain is an independent run, and its draws are the run's particles: `draws` is their number.
    Where draws double, further runs follow.

    Parameters
    ----------
    target_ess
        Share of the particles that is left as effective sample size by the next temperature.
    moves
        Trajectories of Hamiltonian Monte Carlo at each temperature.
    leapfrogs
        Fewest and most steps of a trajectory, whose length is drawn from between.
    step_size
        The first one, in units of the particles' standard deviations.
    target_acceptance
        Mean acceptance probability that the step size is adapted to, from move to move.
    """

    engine: Literal["smc"] = "smc"
    chains: Annotated[int, Field(ge=2, le=10_000)] = 4
    draws: Annotated[int, Field(ge=4)] = 512
    target_ess: Annotated[float, Field(gt=0, lt=1)] = 0.7
    moves: Count = 5
    leapfrogs: tuple[Count, Count] = (16, 32)
    step_size: Positive = 0.2
    target_acceptance: Annotated[float, Field(gt=0, lt=1)] = 0.8

    @model_validator(mode="after")
    def _ordered(self):
        fewest, most = self.leapfrogs
        if fewest > most:
            raise ValueError(f"must have fewest <= most in `leapfrogs`, got {fewest} and {most}")
        return self

    @property
    def gradients(self) -> int:
        """Gradients of a chain to be expected, its draws not doubled; temperatures differ."""
        return self.draws * TEMPERATURES * self.moves * (1 + sum(self.leapfrogs) // 2)


SAMPLING: dict[str, type[Sampling]] = {"mclmc": Mclmc, "nuts": Nuts, "smc": Smc}
"""Settings of every sampler by its engine's name."""
