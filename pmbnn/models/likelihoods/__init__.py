"""Likelihoods: how the outputs of a network turn into the distribution of what is observed."""

from pmbnn.models.likelihoods.base import (
    TARGET_NAME,
    ClassLikelihood,
    DensityLikelihood,
    Likelihood,
    distribution_parameters,
)
from pmbnn.models.likelihoods.classes import Bernoulli, Categorical
from pmbnn.models.likelihoods.components import Components, NormalComponents, StudentTComponents
from pmbnn.models.likelihoods.noise import (
    NOISE,
    SMALLEST_SD,
    Heteroscedastic,
    NumberLikelihood,
    PointNoise,
)
from pmbnn.models.likelihoods.numbers import Gamma, Normal, StudentT
from pmbnn.spec import registry

LIKELIHOODS: dict[str, type[Likelihood]] = registry(Categorical, Bernoulli, Normal, StudentT)

__all__ = [
    "LIKELIHOODS",
    "NOISE",
    "SMALLEST_SD",
    "TARGET_NAME",
    "Bernoulli",
    "Categorical",
    "ClassLikelihood",
    "Components",
    "DensityLikelihood",
    "Gamma",
    "Heteroscedastic",
    "Likelihood",
    "Normal",
    "NormalComponents",
    "NumberLikelihood",
    "PointNoise",
    "StudentT",
    "StudentTComponents",
    "distribution_parameters",
]
