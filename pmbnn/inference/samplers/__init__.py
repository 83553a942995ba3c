"""Samplers of the posterior itself, as a reference for what guides approximate it by.

``mclmc`` has one chain: its state, its kernel, and both over all chains as compiled programs;
``convergence`` judges chains by functions of their draws; ``run`` draws until that is content.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submod_attrs={
        "convergence": ["Convergence", "function_rhat"],
        "mclmc": ["Mclmc", "build_sampler"],
        "run": ["Chains", "Samples", "sample_posterior"],
    },
)
