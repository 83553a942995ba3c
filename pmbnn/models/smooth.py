"""Models whose log-density has a curvature everywhere, and a sensible Laplace approximation."""

from pmbnn.models.layers import AveragePool, Convolution, DenseLayer, Flatten, GlobalAveragePool
from pmbnn.models.likelihoods import Bernoulli, Categorical, Likelihood, Normal
from pmbnn.models.networks import Composed, Network
from pmbnn.models.priors import PRIORS, Fixed, Hyperprior, Prior

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


def what_is_not_smooth(prior: Prior, network: Network) -> str | None:
    """What may keep a log-density from two derivatives everywhere, in words; None if nothing does.

    At kinks the curvature of single draws lacks what that of their average has.
    """
    if not prior.is_smooth:
        return f"prior {prior.kind}"
    if not isinstance(network, Composed):
        return f"network {network.kind}"
    for layer in network.composition:
        is_linear = isinstance(layer, Flatten | AveragePool | GlobalAveragePool)
        weighted = isinstance(layer, Convolution | DenseLayer)
        if not is_linear and not (weighted and layer.activation != "relu"):
            return "rectified units or maxima"
    return None
