"""Models whose free variables all have a quantile function, as tempered SMC needs."""

import functools

from pmbnn.core.spec import ORIGINS, digests_of
from pmbnn.models.hyperpriors import HYPERPRIORS, Fixed, Hyperprior
from pmbnn.models.likelihoods import LIKELIHOODS, Likelihood, StudentT
from pmbnn.models.likelihoods import Normal as NormalNoise
from pmbnn.models.networks import Dense
from pmbnn.models.prior_base import Prior
from pmbnn.models.priors import PRIORS, Normal
from pmbnn.models.pymc_distributions import WITH_QUANTILES, PyMCDistribution

type Part = Prior | Hyperprior | Likelihood


def has_quantiles(part: Part) -> bool:
    """Whether the quantile functions of all variables of a part of a model are known.

    Parts of the package say so themselves. Of user-defined ones, a small model is built.
    """
    return part.has_quantiles and (not digests_of(part) or _variables_have_quantiles(part))


def why_no_quantiles(part: Part) -> tuple[str, str, str] | None:
    """What keeps a part of a model from having quantile functions; None if nothing does.

    Returns
    -------
    tuple
        The field that is at fault, what it must be, and its value in words.
    """
    if has_quantiles(part):
        return None
    if isinstance(part, PyMCDistribution):
        return "dist", f"must be {' or '.join(WITH_QUANTILES)}", part.dist
    if isinstance(part, StudentT):
        return "nu", "must be a number", part.nu.kind
    registries = {Prior: PRIORS, Hyperprior: HYPERPRIORS, Likelihood: LIKELIHOODS}
    registry = next(registry for base, registry in registries.items() if isinstance(part, base))
    kinds = sorted(
        kind
        for kind, cls in registry.items()
        if cls.has_quantiles and cls not in ORIGINS
        # Another likelihood must observe the same targets.
        if not isinstance(part, Likelihood) or cls.task == part.task
    )
    return "kind", f"must be {' or '.join(kinds)}", part.kind


@functools.cache  # cells share their parts
def _variables_have_quantiles(part: Part) -> bool:
    """Whether JAX has the quantile function of every free variable of a small model with a part.

    The variables are looked up: a quantile function that is compiled starts JAX in a process that
    only starts others, and may take the memory of an accelerator from them.
    """
    import numpy as np
    import pymc as pm

    from pmbnn.data.arrays import Rows
    from pmbnn.models.build import build_model

    prior = part if isinstance(part, Prior) else Normal()
    hyperprior = part.candidates[0] if isinstance(part, Hyperprior) else Fixed()
    likelihood = part if isinstance(part, Likelihood) else NormalNoise(sd=1.0)
    classes = () if likelihood.task == "regression" else ("a", "b")
    rows = Rows(np.zeros((2, 1)), np.arange(2), ("x",), classes)
    try:
        model = build_model(Dense(hidden=(1,)), prior, hyperprior, likelihood, rows)
    except Exception:
        return True  # no model at all: every fit fails, and says why
    known = {getattr(pm, dist).rv_type for dist in WITH_QUANTILES}
    transforms = [model.rvs_to_transforms[v] for v in model.free_RVs]
    return all(type(v.owner.op) in known for v in model.free_RVs) and all(
        transform is None or getattr(transform, "ndim_supp", None) == 0 for transform in transforms
    )
