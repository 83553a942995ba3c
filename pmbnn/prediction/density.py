"""Predicted densities of numbers: a mixture with one component for each posterior draw.

Everything here is exact for the given draws, or a quadrature where no closed form is known;
nothing further is drawn.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import singledispatch
from typing import ClassVar

import numpy as np

from pmbnn.core.display import Summarised
from pmbnn.data.arrays import Standardisation
from pmbnn.models.components import Components, NormalComponents, StudentTComponents
from pmbnn.prediction import metrics
from pmbnn.prediction.class_probabilities import Predictive, Weights, by_part

LEVEL = 0.95
"""Probability of the central intervals that are kept."""

BISECTIONS = 26
"""Halvings at least of the range that a quantile lies in: 1e-8 of it is left, less than the draws
are kept to."""

MOST_BISECTIONS, UNRESOLVED = 150, 1e-6
"""Halvings at most, and the probability that may lie in what is left of the range. One component
that is a million times as wide as the others makes 1e-8 of the range wider than these."""

PAIRED = 200
"""Components that the closed form of the ranked probability score, whose work grows with their
square, looks at."""

NODES, TAIL = 100, 1e-7
"""Where that score has no closed form: nodes of the quadrature on either side of the target, and
the probability that is left out at either end of every component."""


FAR_TAIL = 1e-10
"""The same of Student's t distributions with few degrees of freedom, whose tails are long."""


@dataclass(frozen=True, repr=False)
class Mixture(Summarised):
    """A mixture of distributions at each observation.

    Attributes
    ----------
    components
        One for each draw and observation, ``(draw, observation)``.
    weight
        Their weights, of sum 1, ``(draw,)``.
    """

    components: Components
    weight: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """Mean of the components' means, and of what is observed, ``(observation,)``."""
        return self.weight @ self.components.mean()

    @property
    def epistemic_sd(self) -> np.ndarray:
        """Standard deviation of the components' means over draws, ``(observation,)``."""
        return np.sqrt(self.weight @ (self.components.mean() - self.mean) ** 2)

    @property
    def total_sd(self) -> np.ndarray:
        """Standard deviation of what is observed, noise included, ``(observation,)``."""
        noise = self.components.std()
        # One sum where all observations have the same noise.
        noise = noise[:, 0] if noise.shape[1] == 1 else noise
        return np.sqrt(self.epistemic_sd**2 + self.weight @ noise**2)

    def cdf(self, target: np.ndarray) -> np.ndarray:
        """Probability that less than `target` is observed, ``(observation,)``."""
        return self.weight @ self.components.cdf(target)

    def log_density(self, target: np.ndarray) -> np.ndarray:
        """Log-density of `target`, ``(observation,)``, in nats."""
        from scipy.special import logsumexp

        return logsumexp(self.components.logpdf(target), axis=0, b=self.weight[:, None])

    def crps(self, target: np.ndarray) -> np.ndarray:
        """Continuous ranked probability score, ``(observation,)``, in the targets' units."""
        return mixture_crps(self.components, self.weight, target)

    def output_interval(self, level: float = LEVEL) -> np.ndarray:
        """Central interval of the components' means over draws, ``(bound, observation)``."""
        tails = [(1 - level) / 2, (1 + level) / 2]
        mean = self.components.mean()
        return np.quantile(mean, tails, axis=0, method="inverted_cdf", weights=self.weight)

    def total_interval(self, level: float = LEVEL) -> np.ndarray:
        """Central interval of what is observed, ``(bound, observation)``."""
        return np.stack([self._quantile(p) for p in ((1 - level) / 2, (1 + level) / 2)])

    def _quantile(self, probability: float) -> np.ndarray:
        """By bisection: a quantile lies between the smallest and largest of the components."""
        of_each = self.components.ppf(probability)
        low, high = of_each.min(axis=0), of_each.max(axis=0)
        for halving in range(MOST_BISECTIONS):
            # Not a number where a component is infinitely wide: nothing is to be gained there.
            if halving >= BISECTIONS and not (self.cdf(high) - self.cdf(low) > UNRESOLVED).any():
                break
            middle = (low + high) / 2
            below = self.cdf(middle) < probability
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return (low + high) / 2


@singledispatch
def mixture_crps(components: Components, weight: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Continuous ranked probability score of a mixture, ``(observation,)``, in target units.

    The integral of the squared difference of the mixture's distribution function from a step at
    the target, by quadrature; kinds of components with a closed form register theirs.

    References
    ----------
    Gneiting and Raftery (2007), Strictly Proper Scoring Rules, Prediction, and Estimation,
    equation 20.
    """
    nodes, shares = np.polynomial.legendre.leggauss(NODES)
    low = np.minimum(components.ppf(TAIL).min(axis=0), target)
    high = np.maximum(components.ppf(1 - TAIL).max(axis=0), target)
    score = np.zeros(np.shape(target))
    for start, stop, step in ((low, target, 0.0), (target, high, 1.0)):
        for node, share in zip(nodes, shares, strict=True):
            at = start + (stop - start) * (node + 1) / 2
            score += share * (stop - start) / 2 * (weight @ components.cdf(at) - step) ** 2
    return score


@mixture_crps.register
def _normal_crps(
    components: NormalComponents, weight: np.ndarray, target: np.ndarray
) -> np.ndarray:
    """In closed form; of many components, at most `PAIRED` evenly chosen ones count.

    References
    ----------
    Grimit, Gneiting, Berrocal and Johnson (2006), The continuous ranked probability score
    for circular variables, section 2, for a mixture of normals.
    """
    chosen, weight = _evenly_chosen(weight)
    mu, sigma = components.mu[chosen], components.sigma[chosen]
    score = weight @ _mean_distance(target - mu, sigma) - weight**2 @ sigma / np.sqrt(np.pi)
    for number, (own, sd, share) in enumerate(zip(mu, sigma, weight, strict=True), start=1):
        # The distance of two components counts once for both, and is half the work so.
        distance = _mean_distance(own - mu[number:], np.hypot(sd, sigma[number:]))
        score -= share * (weight[number:] @ distance)
    return score


@mixture_crps.register
def _student_t_crps(
    components: StudentTComponents, weight: np.ndarray, target: np.ndarray
) -> np.ndarray:
    """Mean distance from the target in closed form, half of that between two draws by quadrature.

    The latter is the integral of F · (1 - F), which is smooth, over a hyperbolic sine of evenly
    spread nodes: tails reach far. Of many components, at most `PAIRED` evenly chosen ones count.

    References
    ----------
    Jordan, Krüger and Lerch (2019), Evaluating Probabilistic Forecasts with scoringRules, appendix
    A, for one Student's t distribution.
    """
    from scipy.special import stdtr

    chosen, weight = _evenly_chosen(weight)
    parts = (components.nu, components.mu, components.sigma)
    nu, mu, sigma = (part[chosen] for part in parts)
    few = StudentTComponents(nu, mu, sigma)
    z = (target - mu) / sigma
    log_density = few.logpdf(target) + np.log(sigma)
    distance = z * (2 * stdtr(nu, z) - 1) + 2 * np.exp(log_density) * (nu + z**2) / (nu - 1)
    centre, unit = weight @ mu, np.min(sigma, axis=0)
    ends = [
        np.arcsinh((bound - centre) / unit)
        for bound in (few.ppf(FAR_TAIL).min(axis=0), few.ppf(1 - FAR_TAIL).max(axis=0))
    ]
    nodes, shares = np.polynomial.legendre.leggauss(2 * NODES)
    between = np.zeros(np.shape(target))
    for node, share in zip(nodes, shares, strict=True):
        u = ends[0] + (ends[1] - ends[0]) * (node + 1) / 2
        below = weight @ few.cdf(centre + unit * np.sinh(u))
        between += share * (ends[1] - ends[0]) / 2 * unit * np.cosh(u) * below * (1 - below)
    return weight @ (sigma * distance) - between


def _evenly_chosen(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of at most `PAIRED` components, more where weights are large, and their weights."""
    if len(weight) <= PAIRED:
        return np.arange(len(weight)), weight
    below = np.cumsum(weight) - weight[0]
    at = np.linspace(0, below[-1], PAIRED)
    chosen = np.interp(at, below, np.arange(len(weight))).astype(int)
    return chosen, np.full(PAIRED, 1 / PAIRED)


def _mean_distance(mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Mean absolute value of a normal variable."""
    from scipy.special import ndtr

    standard = mean / sd
    return sd * np.sqrt(2 / np.pi) * np.exp(-0.5 * standard**2) + mean * (2 * ndtr(standard) - 1)


@dataclass(frozen=True, repr=False)
class Density(Summarised, Predictive):
    """Summary of a predicted density at each observation, and how it fits targets.

    Of several targets, everything has a further, last axis for them, but the log-density, which is
    that of a row of targets.

    Attributes
    ----------
    mean, epistemic_sd, total_sd
        ``(observation,)``; without and with the noise.
    output_interval, total_interval
        Central intervals of probability `LEVEL`, ``(bound, observation)``.
    log_density, cdf, crps
        Of the targets, ``(observation,)``: nats, probability of less, ranked probability score.
        Not a number where there are no targets.
    """

    key: ClassVar[str] = "density"
    block: ClassVar[int] = 256

    mean: np.ndarray
    epistemic_sd: np.ndarray
    total_sd: np.ndarray
    output_interval: np.ndarray
    total_interval: np.ndarray
    log_density: np.ndarray
    cdf: np.ndarray
    crps: np.ndarray

    def log_score(self, target: np.ndarray) -> np.ndarray:  # noqa: D102
        return self.log_density

    def uncertainty(self) -> dict[str, np.ndarray]:  # noqa: D102
        return by_part(self.total_sd**2, self.epistemic_sd**2)

    def of_target(self, i: int) -> "Density":
        """The density of one of several targets, without its log-density, which is not kept."""
        names = [field.name for field in fields(self) if field.name != "log_density"]
        parts = {name: getattr(self, name)[..., i] for name in names}
        return Density(**parts, log_density=np.full(len(self.mean), np.nan))

    def in_units_of(self, standardisation: Standardisation) -> "Density":  # noqa: D102
        if standardisation.is_identity:
            return self
        undo, sd = standardisation.undo, standardisation.sd
        return Density(
            mean=undo(self.mean),
            epistemic_sd=sd * self.epistemic_sd,
            total_sd=sd * self.total_sd,
            output_interval=undo(self.output_interval),
            total_interval=undo(self.total_interval),
            # A density over a unit that is sd times as large.
            log_density=self.log_density - np.log(sd).sum(),
            cdf=self.cdf,
            crps=sd * self.crps,
        )

    @classmethod
    def of_mixtures(cls, predictor, sources, mixtures, data, x, draws, target):  # noqa: D102
        blocks = []
        for rows, parameters in _blocks(predictor, sources, data, x, draws):
            observed = None if target is None else target[rows]
            by_target = [target_mixtures(predictor.likelihood, parameters, w) for w in mixtures]
            blocks.append([summarise_all(mixture, observed) for mixture in by_target])
        return [join(parts) for parts in zip(*blocks, strict=True)]

    @classmethod
    def nll(cls, predictor, source, data, rows, draws):  # noqa: D102
        by_row = row_log_density(predictor, [source], [1.0], data, rows.x, rows.y, draws)
        return float(-np.mean(by_row))


def _blocks(
    predictor, sources: Sequence, data, x: np.ndarray, draws: int
) -> Iterator[tuple[slice, list[dict[str, np.ndarray]]]]:
    """Consecutive blocks of rows, and the likelihood's parameters there at draws of each source."""
    for start in range(0, len(x), Density.block):
        rows = slice(start, start + Density.block)
        yield rows, [predictor.single_draws(of, data, x[rows], draws) for of in sources]


@dataclass(frozen=True)
class Moments:
    """Moments of predicted numbers, ``(observation,)``, of several targets on a further, last axis.

    They cost a fraction of a `Density`, whose intervals are searched for.
    """

    mean: np.ndarray
    epistemic_sd: np.ndarray
    total_sd: np.ndarray

    def in_units_of(self, standardisation: Standardisation) -> "Moments":
        """The same in the units that targets had before they were standardised."""
        sd = standardisation.sd
        return Moments(standardisation.undo(self.mean), sd * self.epistemic_sd, sd * self.total_sd)


def predict_moments(
    predictor, sources: Sequence, weights: Weights, data, x: np.ndarray, draws: int
) -> Moments:
    """Moments of a mixture of sources at standardised inputs ``(observation, feature)``."""
    used = [(source, weight) for source, weight in zip(sources, weights, strict=True) if weight > 0]
    sources, weights = zip(*used, strict=True)
    names, blocks = [field.name for field in fields(Moments)], []
    for _, parameters in _blocks(predictor, sources, data, x, draws):
        mixtures = target_mixtures(predictor.likelihood, parameters, weights)
        blocks.append([np.stack([getattr(m, n) for m in mixtures], axis=-1) for n in names])
    moments = [np.concatenate(parts) for parts in zip(*blocks, strict=True)]
    return Moments(*(array[:, 0] if array.shape[1] == 1 else array for array in moments))


def mixture(
    likelihood, parameters: Sequence[Mapping[str, np.ndarray]], weights: Weights
) -> Mixture:
    """The mixture of `target_mixtures` for a single target."""
    (only,) = target_mixtures(likelihood, parameters, weights)
    return only


def target_mixtures(
    likelihood, parameters: Sequence[Mapping[str, np.ndarray]], weights: Weights
) -> list[Mixture]:
    """Mixtures of the distributions at the draws of several sources, one for each target.

    Parameters
    ----------
    parameters
        Parameters of the likelihood by name, for each source: `Predictor.single_draws`.
    weights
        Weights of the sources; the draws of a source share its weight.
    """
    used = [i for i, weight in enumerate(weights) if weight > 0]
    together = {
        name: np.concatenate([parameters[i][name] for i in used]).astype(np.float64)
        for name in parameters[0]
    }
    draws = len(next(iter(parameters[0].values())))
    weight = np.repeat(np.array([weights[i] for i in used]) / draws, draws)
    return [Mixture(likelihood.components(p), weight) for p in likelihood.by_target(together)]


def joint_log_density(mixtures: Sequence[Mixture], target: np.ndarray) -> np.ndarray:
    """Log-density of rows of targets that are independent at each draw, ``(observation,)``, nats.

    Parameters
    ----------
    mixtures
        One for each target; their components belong to the same draws.
    target
        ``(observation, target)``, or ``(observation,)`` of one.
    """
    from scipy.special import logsumexp

    columns = target.reshape(len(target), -1).T
    by_draw = sum(m.components.logpdf(y) for m, y in zip(mixtures, columns, strict=True))
    return logsumexp(by_draw, axis=0, b=mixtures[0].weight[:, None])


def row_log_density(
    predictor,
    sources: Sequence,
    weights: Weights,
    data,
    x: np.ndarray,
    target: np.ndarray,
    draws: int,
) -> np.ndarray:
    """Log-density of the targets of rows under a mixture of sources, ``(observation,)``, in nats.

    It costs a fraction of a `Density`, whose intervals are searched for. Of several targets it is
    that of a row of targets.

    Parameters
    ----------
    x, target
        In the units of the model.
    """
    used = [(source, weight) for source, weight in zip(sources, weights, strict=True) if weight > 0]
    sources, weights = zip(*used, strict=True)
    blocks = [
        joint_log_density(target_mixtures(predictor.likelihood, parameters, weights), target[rows])
        for rows, parameters in _blocks(predictor, sources, data, x, draws)
    ]
    return np.concatenate(blocks)


def summarise_all(mixtures: Sequence[Mixture], target: np.ndarray | None = None) -> Density:
    """As `summarise`, of one mixture for each target and targets ``(observation, target)``."""
    if len(mixtures) == 1:
        return summarise(mixtures[0], target)
    columns = [None] * len(mixtures) if target is None else target.T
    parts = [summarise(m, y) for m, y in zip(mixtures, columns, strict=True)]
    arrays = {
        field.name: np.stack([getattr(part, field.name) for part in parts], axis=-1)
        for field in fields(Density)
    }
    # Draws tie the targets together: their joint density is no product of those of each.
    joint = parts[0].log_density if target is None else joint_log_density(mixtures, target)
    return Density(**arrays | {"log_density": joint})


def summarise(draws: Mixture, target: np.ndarray | None = None) -> Density:
    """Summary of a mixture, scored by the targets if there are any."""
    scores = ("log_density", "cdf", "crps")
    mean = draws.mean
    unknown = np.full(len(mean), np.nan)
    return Density(
        mean=mean,
        epistemic_sd=draws.epistemic_sd,
        total_sd=draws.total_sd,
        output_interval=draws.output_interval(),
        total_interval=draws.total_interval(),
        **{name: unknown if target is None else getattr(draws, name)(target) for name in scores},
    )


def join(parts: Sequence[Density]) -> Density:
    """Densities of consecutive runs of rows as one."""
    # Bounds come before observations.
    axes = {field.name: int(field.name.endswith("interval")) for field in fields(Density)}
    return Density(
        *(np.concatenate([getattr(p, name) for p in parts], axis) for name, axis in axes.items())
    )


@metrics.metrics_of.register
def _density_metrics(predictive: Density, target: np.ndarray) -> dict[str, float]:
    """Metrics by name; of several targets those that do not depend on the targets' units."""
    if predictive.mean.ndim > 1:
        nll = float(-np.mean(predictive.log_density))
        return {"nll": nll} | metrics.coverages(predictive.cdf)
    scores = (predictive.log_density, predictive.cdf, predictive.crps)
    moments = predictive.mean, predictive.total_sd
    return metrics.regression_metrics(predictive.mean, target, *scores) | {
        "normal_nll": metrics.normal_nll(*moments, target),
        "mean_epistemic_sd": float(predictive.epistemic_sd.mean()),
        "mean_total_sd": float(predictive.total_sd.mean()),
    }
