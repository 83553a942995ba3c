"""Samplers of the posterior itself, as a reference for what guides approximate it by.

``settings`` is what an experiment file says of each; ``mclmc``, ``nuts`` and ``smc`` are an engine
each: a chain's state and kernel, and all chains as compiled programs; ``starts`` is where chains
start; ``chains`` holds what any engine gives and judges it by functions of the draws; ``run`` draws
until chains agree, and keeps them on their way.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "chains": ["Chains", "Evidence", "Sampler", "Samples", "Convergence", "function_rhat"],
        "run": ["build_sampler", "sample_posterior"],
        "settings": ["SAMPLING", "Mclmc", "Nuts", "Sampling", "Smc"],
    },
)
