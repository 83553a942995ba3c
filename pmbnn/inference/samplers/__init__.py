"""Samplers of the posterior itself, as a reference for what guides approximate it by.

``settings`` is what an experiment file says of each; ``mclmc``, ``nuts`` and ``smc`` are an engine
each: a chain's state and kernel, and all chains as compiled programs; ``starts`` is where chains
start; ``chains`` holds what any engine gives; ``convergence`` judges chains by functions of their
draws; ``checkpoint`` keeps chains on their way; ``run`` draws until their agreement is content.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "chains": ["Chains", "Evidence", "Sampler", "Samples"],
        "convergence": ["Convergence", "function_rhat"],
        "run": ["build_sampler", "sample_posterior"],
        "settings": ["SAMPLING", "Mclmc", "Nuts", "Sampling", "Smc"],
    },
)
