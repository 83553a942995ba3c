"""Weight priors and the hyperpriors on their scale: one registry of each, one class an entry.

Every weight prior has location 0. A hyperprior is what stands in the place of its scale: a
constant (``fixed``) or a positive distribution, learned with the weights.
"""

from pmbnn.models.priors.hyperpriors import (
    HYPERPRIORS,
    Fixed,
    HalfCauchy,
    HalfNormal,
    Hierarchical,
    Hyperprior,
    InverseGamma,
    PointScale,
)
from pmbnn.models.priors.weights import (
    PRIORS,
    STANDARD,
    Cauchy,
    Flat,
    Horseshoe,
    Laplace,
    Normal,
    Prior,
    ScaleMixture,
    StudentT,
    TrainableMean,
)
from pmbnn.spec import Tune

__all__ = [
    "HYPERPRIORS",
    "PRIORS",
    "STANDARD",
    "Cauchy",
    "Fixed",
    "Flat",
    "HalfCauchy",
    "HalfNormal",
    "Hierarchical",
    "Horseshoe",
    "Hyperprior",
    "InverseGamma",
    "Laplace",
    "Normal",
    "PointScale",
    "Prior",
    "ScaleMixture",
    "StudentT",
    "TrainableMean",
    "Tune",
]
