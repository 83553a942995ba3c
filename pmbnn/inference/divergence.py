"""The divergence of a guide from the prior: exact where both allow it, at the draw elsewhere.

KL(q ‖ p) = −entropy of q − E_q[log p]. The entropy of a normal guide is always known; the
expected log-density of a free variable is known for the priors listed in `EXPECTED`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.continuous import Flat, HalfNormal, InverseGamma, Laplace, Normal
from pymc.logprob.transforms import LogTransform
from pytensor.graph.basic import Constant
from pytensor.tensor import TensorVariable

from pmbnn.inference.flat import Distribution, FlatModel, Slot
from pmbnn.inference.guides import LOG_2PI, Arrays, Guide
from pmbnn.inference.products import depends_on
from pmbnn.inference.settings import Inference

type Form = Literal["exact", "monte_carlo"]


@dataclass(frozen=True)
class Divergence:
    """The divergence in nats, and how the expectation is taken for each free variable."""

    value: TensorVariable
    forms: dict[str, Form]


def build_divergence(
    flat: FlatModel,
    guide: Guide,
    settings: Inference,
    natural: Arrays,
    frozen: Arrays,
    draw: TensorVariable,
    rows: int,
) -> Divergence:
    """Divergence of `guide` from the prior, or an unbiased estimate of it, in nats.

    Of a point guide, the negative log-prior at the point (``map``) or 0
    (``maximum_likelihood``).

    Parameters
    ----------
    natural, frozen
        The guide's natural parameters, and the same numbers taken as constants.
    draw
        A draw from the guide, ``(size,)``.
    rows
        Of the data set; used by the scaling ``first_dimension`` only.

    References
    ----------
    The path derivative leaves out the score of log q, whose expectation is zero: Roeder, Wu
    and Duvenaud (2017), Sticking the Landing, equation 8.
    """
    at_draw = dict.fromkeys(flat.log_priors, "monte_carlo")
    if settings.guide == "maximum_likelihood":
        return Divergence(pt.constant(np.float64(0.0)), {})
    if guide.is_point:
        return Divergence(-flat.log_prior, at_draw)
    if settings.estimator == "path_derivative":
        return Divergence(guide.log_density(frozen, draw) - flat.log_prior, at_draw)
    terms, forms = {}, {}
    for slot in flat.slots:
        exact = None if settings.kl == "monte_carlo" else _expected(slot, flat, guide, natural)
        terms[slot] = flat.log_priors[slot.name] if exact is None else exact
        forms[slot.name] = "monte_carlo" if exact is None else "exact"
    if settings.kl_scaling == "first_dimension":
        return Divergence(_by_first_dimension(terms, natural, rows), forms)
    return Divergence(-guide.entropy(natural) - sum(terms.values()), forms)


def _expected(slot: Slot, flat: FlatModel, guide: Guide, natural: Arrays) -> TensorVariable | None:
    """Expected log-density of one free variable, summed; None where it is not known."""
    distribution = flat.distributions[slot.name]
    formula = EXPECTED.get(distribution.kind)
    # Given a draw of what it is independent of, such as a learned scale, the formula holds too.
    own = [flat.free[slot.name]] if guide.is_factorised else list(flat.free.values())
    if formula is None or depends_on(distribution.parameters, own):
        return None
    scale = slot.of(guide.marginal_scale(natural))
    found = formula(distribution, slot.of(natural["loc"]), scale)
    return None if found is None else found.sum()


def _by_first_dimension(terms: Mapping[Slot, TensorVariable], natural: Arrays, rows: int):
    """Sum over tensors of their divergence over their first dimension, times the rows.

    This is what reproduces the printed divergence of one published variational network (26.4
    at its start, where the sum over its weights is about 10,180).
    """
    total = 0.0
    for slot, term in terms.items():
        entropy = (pt.log(slot.of(natural["scale"])) + 0.5 * (1 + LOG_2PI)).sum()
        total = total - (entropy + term) * (rows / (slot.shape[0] if slot.shape else 1))
    return total


# Expected log-densities under a normal distribution of the unconstrained variable, elementwise


def _normal(distribution: Distribution, loc, scale):
    mu, sigma = distribution.parameters
    distance = ((loc - mu) ** 2 + scale**2) / sigma**2
    return -0.5 * (distance + LOG_2PI) - pt.log(sigma) * pt.ones_like(loc)


def _laplace(distribution: Distribution, loc, scale):
    """By the mean of a folded normal variable (Leone, Nelson and Nottingham 1961)."""
    mu, b = distribution.parameters
    step = loc - mu
    standard = step / scale
    folded = scale * np.sqrt(2 / np.pi) * pt.exp(-0.5 * standard**2)
    absolute = folded + step * pt.erf(standard / np.sqrt(2))
    return -absolute / b - pt.log(2 * b)


def _flat(distribution: Distribution, loc, scale):
    return pt.zeros_like(loc)


def _half_normal(distribution: Distribution, loc, scale):
    """The variable is log-normal: its square has mean exp(2 loc + 2 scale²)."""
    mu, sigma = distribution.parameters
    if not (isinstance(mu, Constant) and np.all(mu.data == 0)):
        return None
    square = pt.exp(2 * loc + 2 * scale**2)
    return 0.5 * np.log(2 / np.pi) - pt.log(sigma) - 0.5 * square / sigma**2 + loc


def _inverse_gamma(distribution: Distribution, loc, scale):
    """The variable is log-normal: its inverse has mean exp(scale² / 2 − loc)."""
    alpha, beta = distribution.parameters
    inverse = pt.exp(0.5 * scale**2 - loc)
    return alpha * pt.log(beta) - pt.gammaln(alpha) - alpha * loc - beta * inverse


def _untransformed(formula: Callable) -> Callable:
    return lambda d, loc, scale: formula(d, loc, scale) if d.transform is None else None


def _of_logarithm(formula: Callable) -> Callable:
    return lambda d, loc, scale: (
        formula(d, loc, scale) if isinstance(d.transform, LogTransform) else None
    )


EXPECTED: dict[type, Callable] = {
    type(Normal.rv_op): _untransformed(_normal),
    type(Laplace.rv_op): _untransformed(_laplace),
    type(Flat.rv_op): _untransformed(_flat),
    type(HalfNormal.rv_op): _of_logarithm(_half_normal),
    type(InverseGamma.rv_op): _of_logarithm(_inverse_gamma),
}
"""Formulas by the type of PyMC's random variable."""
