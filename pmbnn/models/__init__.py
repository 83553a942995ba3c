"""Network, prior, hyperprior and likelihood put together: plain PyMC models."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules={"hyperpriors", "likelihoods", "networks", "priors"},
    submod_attrs={
        "build": ["build_model", "dense_classifier", "model_data"],
        "hyperpriors": ["HYPERPRIORS", "Hyperprior"],
        "likelihoods": ["LIKELIHOODS", "ClassLikelihood", "DensityLikelihood", "Likelihood"],
        "networks": ["NETWORKS", "Network"],
        "prior_base": ["Prior"],
        "priors": ["PRIORS"],
    },
)
