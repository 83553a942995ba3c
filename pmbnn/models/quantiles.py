"""Models whose free variables all have a quantile function, as tempered SMC needs."""

from pmbnn.models.hyperpriors import Hyperprior
from pmbnn.models.likelihoods import Likelihood
from pmbnn.models.prior_base import Prior
from pmbnn.models.priors import PRIORS
from pmbnn.models.pymc_distributions import WITH_QUANTILES, PyMCDistribution


def why_no_quantiles(part: Prior | Hyperprior | Likelihood) -> tuple[str, str, str] | None:
    """What keeps a part of a model from having quantile functions; None if nothing does.

    Returns
    -------
    tuple
        The field that is at fault, what it must be, and its value in words.
    """
    if part.has_quantiles:
        return None
    if isinstance(part, PyMCDistribution):
        return "dist", f"must be {' or '.join(WITH_QUANTILES)}", part.dist
    if isinstance(part, Likelihood):
        return "nu", "must be a number", part.nu.kind
    kinds = sorted(kind for kind, cls in PRIORS.items() if cls.has_quantiles)
    return "kind", f"must be {' or '.join(kinds)}", part.kind
