"""Posterior draws of a fit, what they predict, and how good that is.

A `Posterior` is what users have of a fit or of chains. A likelihood names the kind of its
predictions, `ClassProbabilities` or `Density`; a `Predictor` makes them from a model and sources of
draws; `metrics_of` scores them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "class_probabilities": ["ClassProbabilities", "Predictive", "rejection_threshold"],
        "density": ["Density"],
        "draws": ["DrawSource", "GuideDraws", "KeptDraws"],
        "metrics": ["metrics_of"],
        "posterior": ["Posterior"],
        "predictor": ["PREDICTIVES", "Predictor"],
        "settings": ["Predict"],
    },
)
