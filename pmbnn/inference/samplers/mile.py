"""Microcanonical Langevin ensembles (MILE): chains of MCLMC that keep to modes of their own.

They differ from MCLMC in their settings (`Mile`): where chains start, a larger energy error, and
weights of the members in predictions. Each member has a step size of its own: with one for all,
those in narrow modes of high density are heated until they leave. They are never doubled, and never
said to converge.

References
----------
Sommer et al. (2025), Microcanonical Langevin ensembles: advancing the sampling of Bayesian neural
networks.
"""

from pmbnn.inference.samplers.mclmc import build_sampler

__all__ = ["build_sampler"]
