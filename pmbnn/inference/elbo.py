"""The evidence lower bound, as a PyTensor graph with its noise as an input.

One graph serves every backend, and the same noise gives the same number everywhere. Higher
is better; what an optimiser minimises is its negative.
"""

from dataclasses import dataclass

import pytensor.tensor as pt
from pytensor.graph.replace import graph_replace
from pytensor.tensor import TensorVariable

from pmbnn.inference.flat import FlatModel
from pmbnn.inference.guides import MeanField, MeanFieldParameters


@dataclass(frozen=True)
class Objective:
    """The ELBO and its inputs: guide parameters, noise ``(size,)``, data by name."""

    parameters: MeanFieldParameters
    noise: TensorVariable
    data: dict[str, TensorVariable]
    elbo: TensorVariable


def build_elbo(flat: FlatModel, guide: MeanField, likelihood_weight: float) -> Objective:
    """One-draw estimate of the ELBO, in nats, summed over all observations.

    Parameters
    ----------
    likelihood_weight
        Number of rows of the data set over the number of rows a step sees: the likelihood of
        a minibatch stands for that of all rows, while the prior is counted once.

    References
    ----------
    Kucukelbir et al. (2017), Automatic Differentiation Variational Inference, equation 4;
    the minibatch weight is that of Hoffman et al. (2013), Stochastic Variational Inference.
    """
    parameters = guide.parameters()
    noise = pt.tensor("noise", dtype="float64", shape=(guide.size,))
    log_joint = flat.log_prior + likelihood_weight * flat.log_likelihood.sum()
    draw = guide.draw(parameters, noise)
    at_draw = graph_replace([log_joint], {flat.values: draw})[0]
    return Objective(parameters, noise, flat.data, at_draw + guide.entropy(parameters))
