"""Samplers of the exact posterior, as a reference for guides.

``settings`` has the settings of each sampler; modules with the name of an engine are one each:
the state and kernel of a chain, and all chains as compiled programs; ``starts`` finds the starts of
chains; ``chains`` has draws, their convergence and the base class of samplers; ``run`` draws until
chains agree, and stores checkpoints.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "chains": ["Chains", "Evidence", "Sampler", "Samples", "Convergence", "function_rhat"],
        "run": ["build_sampler", "sample_posterior"],
        "settings": ["SAMPLING", "Mams", "Mclmc", "Mile", "Nuts", "Sampling", "Smc"],
    },
)
