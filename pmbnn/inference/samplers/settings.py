"""Settings of samplers, as in experiment files."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from pmbnn.core.spec import Positive, Specification, added, renamed_values

TRAJECTORY = 300
"""Approximate number of gradients of a trajectory of NUTS, for a small network under a normal
prior; three times as many under a Cauchy prior (benchmarks/samplers.txt)."""

STEPS = 20
"""Approximate number of steps of a trajectory of MAMS, for the same network."""

TEMPERATURES = 18
"""Approximate number of temperatures of a run of tempered SMC, for the same network."""

LEAST_STACKED = 25
"""Draws of a member that its leave-one-out densities need: a tail of five."""

Count = Annotated[int, Field(ge=1)]


class Sampling(Specification):
    """Settings that all samplers have.

    Parameters
    ----------
    chains
        Number of independent chains, with independent starts.
    draws
        Number of draws of each chain at first.
    doublings
        Largest number of times that the draws double: they do until the chains agree on
        predictions.
    seed
        Seed of starts and moves.
    validation
        Share of the training rows held out if a scale is tuned; they choose nothing else.
    """

    is_ensemble: ClassVar[bool] = False
    """Whether every chain keeps to a mode of its own: they are no draws of the posterior."""

    needs_quantiles: ClassVar[bool] = False
    """Whether it needs the quantile functions of all free variables."""

    chains: Annotated[int, Field(ge=2, le=10_000)] = 16
    draws: Annotated[int, Field(ge=4)] = 400
    doublings: Annotated[int, Field(ge=0, le=10)] = added(3)
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    validation: Annotated[float, Field(ge=0, le=0.5)] = 0.2


class Started(Sampling):
    """Chains that start uphill from random points.

    Parameters
    ----------
    start
        ``dispersed``: points more dispersed than the posterior, moved a little way up the
        log-density; if chains from there agree, there is no other part of the posterior nearby.
        ``map``: modes, from points near zero; ``fit``: draws of a mean-field normal guide each,
        fitted from points near zero. Networks of hundreds of weights and more need these; the mode
        of many weights is far from the bulk, and from there a learned scale may shrink to zero.
    spread
        Standard deviation of the normals from which the first points are drawn, on the
        unconstrained variables. By default 2, wider than most posteriors, if dispersed; otherwise
        0.1.
    descent
        Number of steps of Adam uphill from there: on the log-density, or on the ELBO of a guide, a
        tenth of `spread` wide at first. By default 500 if dispersed, otherwise 2,000.
    descent_rate
        Learning rate of these steps.
    temperature
        Temperature T of the posterior of a network: likelihood and prior of the weights are raised
        to 1/T, priors of scales and of noise are not. Cells at different temperatures are never
        ranked with each other.
    """

    where_mass_is: ClassVar[dict[str, float]] = {"spread": 0.1, "descent": 2_000}
    """Defaults of chains that do not start dispersed."""

    temperature: Positive = added(1.0)
    start: Annotated[
        Literal["dispersed", "map", "fit"], renamed_values(dispersed="density", fit="elbo")
    ] = added("dispersed", serialization_alias="uphill")
    spread: Positive = 2.0
    descent: Annotated[int, Field(ge=0)] = 500
    descent_rate: Positive = 0.02

    @model_validator(mode="before")
    @classmethod
    def _near_zero(cls, values):
        if not isinstance(values, dict):
            return values
        start = values.get("start", cls.model_fields["start"].default)
        return values if start == "dispersed" else cls.where_mass_is | values


class Microcanonical(Started):
    """Settings of chains of microcanonical Langevin Monte Carlo.

    Parameters
    ----------
    tuning
        Number of steps of the warm-up, in which all chains together find step size and
        decoherence length.
    energy_variance
        Target variance of the energy error of a step per dimension, to which the step size is
        tuned. At 5e-4 the bias of a small network's predictions is within Monte-Carlo error; at 0.1
        their standard deviations are 4 % too large. A network of several layers may need less:
        compare with `Mams` or with half the value.
    largest_error
        Largest energy error of a step that is taken, in units of the root of its target variance;
        the chain turns round at others. By default 20 for chains that start at modes or guides;
        dispersed ones, which have large errors on their way, have no limit. On 784-64-64-10 under
        a half-normal scale the error of most steps is below that root, now and then 10 to 27 times
        as large; from there to weights of zero the log-density falls by 1,700 of them.
    thin
        Number of steps per draw.
    retries
        How often draws whose energy error is far beyond its target are thrown away and the step
        size is tuned anew, before such draws are kept, and are no result.
    """

    where_mass_is: ClassVar[dict[str, float]] = Started.where_mass_is | {"largest_error": 20.0}

    tuning: Annotated[int, Field(ge=10)] = 2_000
    energy_variance: Positive = 5e-4
    largest_error: Annotated[float, Field(gt=1)] | None = added(None)
    thin: Count = 10
    retries: Annotated[int, Field(ge=0, le=100)] = 4

    @property
    def gradients(self) -> int:
        """Number of gradients of a chain, two per step, if its draws do not double."""
        return self.descent + 2 * (self.tuning + self.draws * self.thin)


class Mclmc(Microcanonical):
    """Settings of microcanonical Langevin Monte Carlo."""

    engine: Literal["mclmc"] = "mclmc"


class Mams(Started):
    """Settings of the Metropolis-adjusted microcanonical sampler (MAMS).

    Parameters
    ----------
    tuning
        Number of trajectories of the warm-up, in which all chains together find step size and
        length; they are no draws.
    target_acceptance
        Mean acceptance probability to which the step size is tuned.
    retries
        How often draws of which more than four times as many are rejected are thrown away and the
        step size is tuned anew.

    References
    ----------
    Robnik, Cohn-Gordon and Seljak (2025), Metropolis adjusted microcanonical Hamiltonian Monte
    Carlo, arXiv 2503.01707.
    """

    thin: ClassVar[int] = 1

    engine: Literal["mams"] = "mams"
    retries: Annotated[int, Field(ge=0, le=100)] = 4
    tuning: Annotated[int, Field(ge=10)] = 400
    target_acceptance: Annotated[float, Field(gt=0, lt=1)] = 0.9

    @property
    def gradients(self) -> int:
        """Approximate number of gradients of a chain, if its draws do not double."""
        return self.descent + 2 * STEPS * (self.tuning + self.draws)


class Mile(Microcanonical):
    """Settings of a microcanonical Langevin ensemble (MILE): members that keep to their modes.

    Every chain starts at a mode of its own, and its draws are of the posterior nearby. It has a
    step size of its own, as modes differ in width. All chains together are an ensemble, not draws
    of the posterior, however long they are; they are never doubled, and the status of the cell is
    ``ensemble``.

    Parameters
    ----------
    chains
        Number of members.
    draws
        Number of draws of each member.
    doublings
        Members are not doubled.
    start
        ``map``: modes, from points near zero; ``fit``: draws of a mean-field normal guide each,
        fitted from points near zero.
    energy_variance
        Target variance of the energy error of a step per dimension. At 0.1, standard deviations of
        predictions are a few per cent too large.
    decoherence
        Momentum decoherence length, in units of the square root of the number of scalars. At a
        longer one, chains reach lower log-densities in as many steps (benchmarks/README.md).
    pooling
        Weights of the members in predictions: ``equal``, or ``stacked``, those of highest
        leave-one-out log score on the training rows.

    References
    ----------
    Sommer et al. (2025), Microcanonical Langevin ensembles; Yao, Vehtari and Gelman (2022),
    Stacking for non-mixing Bayesian computations.
    """

    is_ensemble: ClassVar[bool] = True

    engine: Literal["mile"] = "mile"
    chains: Annotated[int, Field(ge=2, le=10_000)] = 10
    draws: Annotated[int, Field(ge=4)] = 200
    doublings: Literal[0] = added(0)
    start: Literal["map", "fit"] = "map"
    spread: Positive = 0.1
    descent: Annotated[int, Field(ge=0)] = 2_000
    tuning: Annotated[int, Field(ge=10)] = 5_000
    energy_variance: Positive = 0.1
    decoherence: Positive = 0.2
    thin: Count = 50
    pooling: Literal["equal", "stacked"] = "equal"

    @model_validator(mode="after")
    def _has_tail(self):
        if self.pooling == "stacked" and self.draws < LEAST_STACKED:
            raise ValueError(
                f"must have `draws` >= {LEAST_STACKED} to be stacked, got {self.draws}: "
                "leave-one-out densities take a fifth of them as their tail"
            )
        return self


class Nuts(Started):
    """Settings of the No-U-Turn Sampler.

    Parameters
    ----------
    tuning
        Number of trajectories of the warm-up, in which step size and a diagonal mass matrix adapt
        in Stan's windows; they are no draws.
    target_acceptance
        Mean acceptance probability to which the step size adapts.
    max_treedepth
        Largest number of doublings of a trajectory.
    """

    engine: Literal["nuts"] = "nuts"
    chains: Annotated[int, Field(ge=2, le=10_000)] = 8
    draws: Annotated[int, Field(ge=4)] = 500
    tuning: Annotated[int, Field(ge=20)] = 500
    target_acceptance: Annotated[float, Field(gt=0, lt=1)] = 0.8
    max_treedepth: Annotated[int, Field(ge=1, le=20)] = 10

    @property
    def gradients(self) -> int:
        """Approximate number of gradients of a chain, if its draws do not double."""
        return self.descent + (self.tuning + self.draws) * TRAJECTORY


class Smc(Sampling):
    """Settings of tempered sequential Monte Carlo.

    A chain is an independent run, and its draws are the particles of the run. If draws double,
    further runs follow.

    Parameters
    ----------
    target_ess
        Effective sample size at the next temperature, as a share of the particles.
    moves
        Number of trajectories of Hamiltonian Monte Carlo at each temperature.
    leapfrogs
        Smallest and largest number of steps of a trajectory; the number is drawn between them.
    step_size
        First step size, in units of the particles' standard deviations.
    target_acceptance
        Mean acceptance probability to which the step size adapts, from move to move.
    """

    needs_quantiles: ClassVar[bool] = True

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
        """Approximate number of gradients of a chain, if its draws do not double."""
        return self.draws * TEMPERATURES * self.moves * (1 + sum(self.leapfrogs) // 2)


SAMPLING: dict[str, type[Sampling]] = {
    "mclmc": Mclmc,
    "mams": Mams,
    "mile": Mile,
    "nuts": Nuts,
    "smc": Smc,
}
"""Settings of every sampler by its engine's name."""
