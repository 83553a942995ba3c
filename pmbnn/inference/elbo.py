"""The evidence lower bound, as a PyTensor graph with its noise as inputs.

One graph serves every backend, and the same noise gives the same number everywhere. Higher
is better; what an optimiser minimises is its negative.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor import TensorVariable

from pmbnn.inference.divergence import Form, build_divergence
from pmbnn.inference.estimators import REWRITES, Noise, rewrite_likelihood
from pmbnn.inference.flat import FlatModel
from pmbnn.inference.guides import Guide
from pmbnn.inference.pieces import piece_lengths
from pmbnn.inference.products import depends_on
from pmbnn.inference.settings import Inference
from pmbnn.inference.xla_forms import materialised


@dataclass(frozen=True)
class Objective:
    """The two parts of the ELBO and what they are graphs of.

    The ELBO is ``log_likelihood - kl``; with a KL weight β, a fit maximises
    ``log_likelihood - β · kl``.

    Attributes
    ----------
    parameters
        Inputs: the guide's unconstrained parameters, by name.
    frozen
        Inputs for the same numbers, which a gradient takes as constants; empty unless the
        estimator is the path derivative.
    noise
        Inputs for the noise, by name.
    data
        Inputs for the model's data variables, by name.
    log_likelihood
        Log-probability of all observations of the data set, in nats.
    kl
        Divergence of the guide from the prior, in nats.
    kl_forms
        How the expectation of each free variable's log-prior is taken.
    has_noisy_kl
        Whether the divergence depends on the noise.
    pieces
        Lengths of the pieces into which a loop cuts flat vectors.
    """

    parameters: dict[str, TensorVariable]
    frozen: dict[str, TensorVariable]
    noise: dict[str, Noise]
    data: dict[str, TensorVariable]
    log_likelihood: TensorVariable
    kl: TensorVariable
    kl_forms: Mapping[str, Form]
    has_noisy_kl: bool
    pieces: tuple[int, ...]


def build_objective(
    flat: FlatModel, guide: Guide, settings: Inference, rows: int, batch: int, padding: int = 0
) -> Objective:
    """One-draw estimate of the ELBO's two parts, summed over all observations.

    Parameters
    ----------
    rows, batch
        Number of rows of the data set, and of those that a step sees: the likelihood of a
        minibatch stands for that of all rows, while the prior is counted once.
    padding
        Number of rows after those, which do not count.

    Raises
    ------
    ValueError
        If the estimator cannot rewrite the model.

    References
    ----------
    Kucukelbir et al. (2017), Automatic Differentiation Variational Inference, equation 4;
    the minibatch weight is that of Hoffman et al. (2013), Stochastic Variational Inference.
    """
    parameters = _inputs(guide.shapes, "")
    frozen = _inputs(guide.shapes, "frozen_") if settings.estimator == "path_derivative" else {}
    noise = {name: Noise(variable, "normal") for name, variable in _inputs(guide.noise, "").items()}
    natural = guide.natural(parameters)
    if settings.estimator not in REWRITES:
        # XLA would compute scales anew for weights, gradients and divergence; rewrites of the
        # likelihood square them, and are faster when it does.
        natural = {name: materialised(v) if v.owner else v for name, v in natural.items()}
    draw = guide.draw(natural, {name: n.variable for name, n in noise.items()})
    likelihood = rewrite_likelihood(flat, natural, settings.estimator)
    divergence = build_divergence(
        flat, guide, settings, natural, guide.natural(frozen) if frozen else natural, draw, rows
    )
    observations = likelihood.log_likelihood
    if padding:
        observations = observations * np.repeat([1.0, 0.0], [batch, padding])
    log_likelihood, kl = flat.at(draw, [observations.sum() * (rows / batch), divergence.value])
    drawn = noise | likelihood.noise
    return Objective(
        parameters=parameters,
        frozen=frozen,
        noise=drawn,
        data=flat.data,
        log_likelihood=log_likelihood,
        kl=kl,
        kl_forms=divergence.forms,
        has_noisy_kl=depends_on([kl], [n.variable for n in drawn.values()]),
        pieces=piece_lengths(flat.slots),
    )


def _inputs(shapes: Mapping[str, tuple[int, ...]], prefix: str) -> dict[str, TensorVariable]:
    return {
        name: pt.tensor(prefix + name, dtype="float64", shape=shape)
        for name, shape in shapes.items()
    }
