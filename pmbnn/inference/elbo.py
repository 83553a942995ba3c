"""The evidence lower bound, as a PyTensor graph with its noise as inputs.

One graph serves every backend, and the same noise gives the same number everywhere. Higher is
better; an optimiser minimises its negative.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Literal

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.continuous import Flat, HalfNormal, InverseGamma, Laplace, Normal
from pymc.logprob.transforms import LogTransform
from pytensor.gradient import disconnected_grad
from pytensor.tensor import TensorVariable

from pmbnn.inference.dropout import drop_inputs, expected_log_prior
from pmbnn.inference.estimators import REWRITES, Noise, depends_on, rewrite_likelihood
from pmbnn.inference.flat import (
    FlatModel,
    Slot,
    as_scalar,
    have_equal_parameters,
    split_vector,
)
from pmbnn.inference.guides import LOG_2PI, Arrays, Dropout, Guide
from pmbnn.inference.settings import Inference
from pmbnn.inference.xla.rewrites import leaf_lengths, materialised
from pmbnn.models.point import PointRV

# The divergence of a guide from the prior: exact where both allow it, at the draw elsewhere
#
# KL(q ‖ p) = −entropy of q − E_q[log p]. The entropy of a normal guide is always known; the
# expected log-density of a free variable is known for the priors listed in `EXPECTED`.


type Form = Literal["exact", "monte_carlo"]


def build_divergence(
    flat: FlatModel,
    guide: Guide,
    settings: Inference,
    constrained: Arrays,
    draw: TensorVariable,
    rows: int | TensorVariable,
) -> tuple[TensorVariable, dict[str, Form]]:
    """Divergence of `guide` from the prior in nats, and how each expectation is computed.

    The value is exact or an unbiased estimate. For a point guide it is the negative log-prior at
    the point (``map``) or 0 (``maximum_likelihood``), and there is no expectation. For dropout it
    is the negative expected log-prior.

    Parameters
    ----------
    constrained
        The guide's constrained parameters.
    draw
        A draw from the guide, ``(size,)``.
    rows
        Number of rows of the data set; for the scaling ``first_dimension`` only.

    References
    ----------
    The path derivative omits the score of log q, whose expectation is zero: Roeder, Wu
    and Duvenaud (2017), Sticking the Landing, equation 8.
    """
    if settings.guide == "maximum_likelihood":
        return pt.constant(np.float64(0.0)), {}
    if guide.is_point:
        return -flat.log_prior, {}
    if isinstance(guide, Dropout):
        return -expected_log_prior(flat, guide, constrained), dict.fromkeys(
            flat.log_priors, "exact"
        )
    if settings.estimator == "path_derivative":
        at_draw = dict.fromkeys(flat.log_priors, "monte_carlo")
        fixed = {name: disconnected_grad(value) for name, value in constrained.items()}
        return guide.log_density(fixed, draw) - flat.log_prior, at_draw
    runs = _runs(flat, guide, settings)
    forms: dict[str, Form] = {
        slot.name: "monte_carlo" if formula is None else "exact"
        for run, formula in runs
        for slot in run
    }
    by_tensor = settings.kl_scaling == "first_dimension"
    if by_tensor:
        runs = [([slot], formula) for run, formula in runs for slot in run]
    terms = _expected(runs, flat, guide, constrained)
    if by_tensor:
        return _by_first_dimension(runs, terms, constrained, rows, flat.points), forms
    return -guide.entropy(constrained) - sum(terms), forms


def _runs(flat: FlatModel, guide: Guide, settings: Inference) -> list[tuple[list[Slot], Callable]]:
    """Neighbouring free variables with the same prior, and the formula of its expectation.

    The formula is None if the expectation is not known. For a small network, starting an operation
    takes longer than its arithmetic: one operation per run saves time.
    """
    runs: list[tuple[list[Slot], Callable | None]] = []
    previous = None
    for slot in flat.layout.slots:
        prior = flat.distributions[slot.name]
        formula = EXPECTED.get((prior.kind, type(prior.transform)))
        # A formula also holds given a draw of an independent variable, such as a learned scale.
        dependent = [flat.free[slot.name]] if guide.is_factorised else list(flat.free.values())
        if settings.kl == "monte_carlo" or depends_on(prior.parameters, dependent):
            formula = None
        if (
            formula is not None
            and previous is not None
            and runs[-1][1] is formula
            and have_equal_parameters(previous.parameters, prior.parameters)
        ):
            runs[-1][0].append(slot)
        else:
            runs.append(([slot], formula))
        previous = prior
    return runs


def _expected(runs, flat: FlatModel, guide: Guide, constrained: Arrays) -> list[TensorVariable]:
    """Expected log-density of each run, summed, or its log-density at the draw."""
    lengths = [run[-1].stop - run[0].start for run, _ in runs]
    means = split_vector(constrained["loc"], lengths)
    scales = split_vector(guide.marginal_scale(constrained), lengths)
    return [
        sum(flat.log_priors[slot.name] for slot in run)
        if formula is None
        else formula(*_arguments(run, flat, mean, scale)).sum()
        for (run, formula), mean, scale in zip(runs, means, scales, strict=True)
    ]


def _arguments(run: list[Slot], flat: FlatModel, mean, scale):
    """Parameters of a run's prior, and means and scales in a shape that broadcasts with them."""
    parameters = flat.distributions[run[0].name].parameters
    scalars = [as_scalar(p) for p in parameters]
    if all(p is not None for p in scalars):
        return scalars, mean, scale
    return parameters, mean.reshape(run[0].shape), scale.reshape(run[0].shape)


def _by_first_dimension(
    runs, terms, constrained: Arrays, rows: int | TensorVariable, points: Sequence[str]
) -> TensorVariable:
    """Sum over tensors of their divergence divided by their first dimension, times the rows.

    It reproduces the printed divergence of one published variational network (26.4 at its start,
    where the sum over its weights is about 10,180).
    """
    total = 0.0
    for ([slot], _), term in zip(runs, terms, strict=True):
        if slot.name in points:
            continue
        entropy = (pt.log(slot.of(constrained["scale"])) + 0.5 * (1 + LOG_2PI)).sum()
        total = total - (entropy + term) * (rows / (slot.shape[0] if slot.shape else 1))
    return total


# Expected log-densities under a normal distribution of the unconstrained variable, elementwise


def _normal(parameters, loc, scale):
    mu, sigma = parameters
    distance = ((loc - mu) ** 2 + scale**2) / sigma**2
    return -0.5 * (distance + LOG_2PI) - pt.log(sigma)


def _laplace(parameters, loc, scale):
    """By the mean of a folded normal variable (Leone, Nelson and Nottingham 1961)."""
    mu, b = parameters
    step = loc - mu
    standard = step / scale
    folded = scale * np.sqrt(2 / np.pi) * pt.exp(-0.5 * standard**2)
    absolute = folded + step * pt.erf(standard / np.sqrt(2))
    return -absolute / b - pt.log(2 * b)


def _flat(parameters, loc, scale):
    return pt.zeros_like(loc)


def _half_normal(parameters, loc, scale):
    """The variable is log-normal: its square has mean exp(2 loc + 2 scale²)."""
    _, sigma = parameters
    square = pt.exp(2 * loc + 2 * scale**2)
    return 0.5 * np.log(2 / np.pi) - pt.log(sigma) - 0.5 * square / sigma**2 + loc


def _inverse_gamma(parameters, loc, scale):
    """The variable is log-normal: its inverse has mean exp(scale² / 2 − loc)."""
    alpha, beta = parameters
    inverse = pt.exp(0.5 * scale**2 - loc)
    # The formula has a value at a negative shape; of a negative scale, as of those of other priors,
    # it has none.
    alpha = pt.switch(alpha > 0, alpha, np.nan)
    return alpha * pt.log(beta) - pt.gammaln(alpha) - alpha * loc - beta * inverse


EXPECTED: dict[tuple[type, type], Callable] = {
    (type(Normal.rv_op), NoneType): _normal,
    (type(Laplace.rv_op), NoneType): _laplace,
    (type(Flat.rv_op), NoneType): _flat,
    (PointRV, NoneType): _flat,
    # PyMC's half-normal has no location but zero.
    (type(HalfNormal.rv_op), LogTransform): _half_normal,
    (type(InverseGamma.rv_op), LogTransform): _inverse_gamma,
}
"""Formulas by the types of PyMC's random variable and its transformation; they take parameters,
means and scales."""


ROW_WEIGHTS = "row weights"
"""Name of the input that `build_objective` adds if the number of rows is data."""


@dataclass(frozen=True)
class Objective:
    """The two parts of the ELBO as graphs, and the inputs of these.

    The ELBO is ``log_likelihood - kl``; with a KL weight β, a fit maximises
    ``log_likelihood - β · kl``.

    Attributes
    ----------
    parameters
        Inputs: the guide's unconstrained parameters, by name.
    noise
        Inputs for the noise, by name.
    data
        Inputs for the model's data variables, by name; and `ROW_WEIGHTS` if the number of rows is
        data.
    row_data
        Names of the data variables with one row per observation.
    log_likelihood
        Log-probability of all observations of the data set and the model's potentials, in nats.
    kl
        Divergence of the guide from the prior, in nats.
    kl_forms
        How the expectation of each free variable's log-prior is taken.
    has_noisy_kl
        Whether the divergence depends on the noise.
    leaves
        Lengths of the leaves into which a loop divides flat vectors.
    """

    parameters: dict[str, TensorVariable]
    noise: dict[str, Noise]
    data: dict[str, TensorVariable]
    row_data: tuple[str, ...]
    log_likelihood: TensorVariable
    kl: TensorVariable
    kl_forms: Mapping[str, Form]
    has_noisy_kl: bool
    leaves: tuple[int, ...]


def build_objective(
    flat: FlatModel,
    guide: Guide,
    settings: Inference,
    rows: int,
    batch: int,
    padding: int = 0,
    *,
    allow_fewer_rows: bool = False,
) -> Objective:
    """One-draw estimate of the ELBO's two parts, summed over all observations.

    Parameters
    ----------
    rows, batch
        Number of rows of the data set, and of the rows that a step sees. The likelihood of a
        minibatch is scaled to all rows; the prior, and terms that depend on no row, are not.
    padding
        Number of further rows with weight 0.
    allow_fewer_rows
        Whether the number of rows is data: an input `ROW_WEIGHTS`, ``(batch + padding,)``, made by
        `row_weights` for at most this number of rows.

    Raises
    ------
    ValueError
        If the estimator cannot rewrite the model.

    References
    ----------
    Kucukelbir et al. (2017), Automatic Differentiation Variational Inference, equation 4;
    the minibatch weight is that of Hoffman et al. (2013), Stochastic Variational Inference.
    """
    parameters = _inputs(guide.shapes)
    is_dropout = isinstance(guide, Dropout)
    # Masks are of the inputs of each row: fits with dropout draw no vector.
    inputs = {} if is_dropout else _inputs(guide.noise)
    noise = {name: Noise(variable, "normal") for name, variable in inputs.items()}
    constrained = guide.constrained(parameters)
    if settings.estimator not in REWRITES:
        # XLA would compute scales again for weights, gradients and divergence. The rewrites of the
        # likelihood square them, and are faster if it does.
        constrained = {name: materialised(v) if v.owner else v for name, v in constrained.items()}
    if is_dropout:
        draw = constrained["loc"]
        *terms, likelihood_noise = drop_inputs(flat, guide.rate)
    else:
        draw = guide.draw(constrained, {name: n.variable for name, n in noise.items()})
        *terms, likelihood_noise = rewrite_likelihood(flat, constrained, settings.estimator)
    noise |= likelihood_noise
    weights: np.ndarray | TensorVariable = row_weights(rows, batch, padding)
    data, n_rows = flat.data, rows
    if allow_fewer_rows:
        weights = pt.tensor(ROW_WEIGHTS, dtype="float64", shape=weights.shape)
        data, n_rows = data | {ROW_WEIGHTS: weights}, weights.sum()
    divergence, forms = build_divergence(flat, guide, settings, constrained, draw, n_rows)
    total = total_log_likelihood(*terms, flat.rows, weights, flat.has_bounds)
    log_likelihood, kl = flat.at(draw, [total, divergence])
    return Objective(
        parameters=parameters,
        noise=noise,
        data=data,
        row_data=flat.row_data,
        log_likelihood=log_likelihood,
        kl=kl,
        kl_forms=forms,
        has_noisy_kl=depends_on([kl], [n.variable for n in noise.values()]),
        leaves=leaf_lengths(flat.layout),
    )


def total_log_likelihood(
    log_likelihoods: Iterable[TensorVariable],
    potentials: Iterable[TensorVariable],
    row_data: Sequence[TensorVariable],
    weights: np.ndarray | TensorVariable,
    may_be_zero: bool,
) -> TensorVariable:
    """Log-probability of all observations, and potentials; a scalar, in nats.

    Parameters
    ----------
    row_data
        Inputs with one row per observation.
    weights
        Weights of the rows of a step for the terms that depend on `row_data`; see `row_weights`.
    may_be_zero
        Whether a probability may be zero: of a row without weight, its logarithm must not count.
    """
    are_equal = isinstance(weights, np.ndarray) and np.ptp(weights) == 0
    terms = []
    for log_likelihood in log_likelihoods:
        if not depends_on([log_likelihood], row_data):
            terms.append(log_likelihood.sum())
        elif are_equal:
            terms.append(log_likelihood.sum() * weights[0])
        else:
            other_dims = ("x",) * (log_likelihood.type.ndim - 1)
            by_row = pt.as_tensor_variable(weights).dimshuffle(0, *other_dims)
            if may_be_zero:
                log_likelihood = pt.switch(pt.gt(by_row, 0), log_likelihood, 0.0)
            terms.append((log_likelihood * by_row).sum())
    terms += potentials
    return sum(terms[1:], terms[0]) if terms else pt.constant(np.float64(0.0))


def row_weights(rows: int, batch: int, padding: int) -> np.ndarray:
    """Weight of each row of a step, in rows of the data set, ``(batch + padding,)``.

    Parameters
    ----------
    rows, batch
        Number of rows of the data set, and of the rows that a step sees.
    padding
        Number of further rows with weight 0.
    """
    return np.repeat([rows / batch, 0.0], [batch, padding])


def _inputs(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, TensorVariable]:
    return {name: pt.tensor(name, dtype="float64", shape=shape) for name, shape in shapes.items()}
