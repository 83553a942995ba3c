"""Fitting any PyMC model with continuous free variables.

A model becomes graphs of one flat vector, an ELBO with its noise as inputs, and a compiled loop of
gradient steps that a group of replicas shares. Nothing here knows how a model was made.

Names are imported when they are first used: settings are read where JAX is not loaded.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    submodules={"advi", "samplers"},
    submod_attrs={
        "advi": ["Program", "build_program"],
        "engines": ["ENGINES", "fit_model"],
        "flat": ["FlatModel", "flat_vector", "flatten_model", "Layout", "Slot"],
        "groups": ["fit", "Checkpoints"],
        "guides": ["Guide", "build_guide"],
        "log_density": ["LogDensity", "build_log_density"],
        "result": [
            "Fit",
            "History",
            "PrngKeys",
            "Progress",
            "Replica",
            "Snapshot",
            "derive_keys",
        ],
        "settings": ["Inference"],
    },
)
