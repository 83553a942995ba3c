"""Models that have a sensible Laplace approximation, whose predictions are known to be good."""

from pmbnn.models.hyperpriors import Fixed, Hyperprior
from pmbnn.models.likelihoods import Bernoulli, Categorical, Likelihood, Normal
from pmbnn.models.prior_base import Prior
from pmbnn.models.priors import PRIORS

SMOOTH_LIKELIHOODS = (Bernoulli, Categorical, Normal)
"""Likelihoods whose parameters are outputs of the network, or their softmax."""


def why_not_smooth(
    prior: Prior, hyperprior: Hyperprior, likelihood: Likelihood
) -> tuple[str, str, str] | None:
    """What keeps a network from a Laplace approximation; None if nothing does.

    Returns
    -------
    tuple
        The section that is at fault, what it must be, and its kind.
    """
    if not prior.is_smooth:
        smooth = " or ".join(sorted(kind for kind, cls in PRIORS.items() if cls.is_smooth))
        rule = f"must be {smooth} with guide laplace, which needs two derivatives of its density"
        return "prior", rule, prior.kind
    if not isinstance(hyperprior, Fixed):
        rule = (
            "must be fixed with guide laplace: the mode of weights and learned scales together is "
            "far from their mass"
        )
        return "hyperprior", rule, hyperprior.kind
    if isinstance(likelihood, SMOOTH_LIKELIHOODS) and getattr(likelihood, "is_known", True):
        return None
    rule = "must be bernoulli, categorical, or normal with a known `sd` with guide laplace"
    return "likelihood", rule, likelihood.kind
