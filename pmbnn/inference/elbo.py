"""The evidence lower bound, as a PyTensor graph with its noise as inputs.

One graph serves every backend, and the same noise gives the same number everywhere. Higher
is better; what an optimiser minimises is its negative.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor import TensorVariable

from pmbnn.inference.estimators import REWRITES, Noise, Rewritten, rewrite_likelihood
from pmbnn.inference.flat import FlatModel
from pmbnn.inference.guides import Guide
from pmbnn.inference.kl import Form, build_divergence
from pmbnn.inference.products import depends_on
from pmbnn.inference.settings import Inference
from pmbnn.inference.xla.partition import leaf_lengths
from pmbnn.inference.xla.rewrites import materialised

ROW_WEIGHTS = "row weights"
"""Name of the input that `build_objective` makes where the number of rows is data."""


@dataclass(frozen=True)
class Objective:
    """The two parts of the ELBO and what they are graphs of.

    The ELBO is ``log_likelihood - kl``; with a KL weight β, a fit maximises
    ``log_likelihood - β · kl``.

    Attributes
    ----------
    parameters
        Inputs: the guide's unconstrained parameters, by name.
    noise
        Inputs for the noise, by name.
    data
        Inputs for the model's data variables, by name; and, where the number of rows is data,
        `ROW_WEIGHTS`.
    row_data
        Names of those with one row an observation.
    log_likelihood
        Log-probability of all observations of the data set and the model's potentials, in nats.
    kl
        Divergence of the guide from the prior, in nats.
    kl_forms
        How the expectation of each free variable's log-prior is taken.
    has_noisy_kl
        Whether the divergence depends on the noise.
    leaves
        Lengths of the leaves into which a loop cuts flat vectors.
    """

    parameters: dict[str, TensorVariable]
    noise: dict[str, Noise]
    data: dict[str, TensorVariable]
    row_data: tuple[str, ...]
    log_likelihood: TensorVariable
    kl: TensorVariable
    kl_forms: Mapping[str, Form]
    has_noisy_kl: bool
    leaves: tuple[int, ...]


def build_objective(
    flat: FlatModel,
    guide: Guide,
    settings: Inference,
    rows: int,
    batch: int,
    padding: int = 0,
    *,
    fewer: bool = False,
) -> Objective:
    """One-draw estimate of the ELBO's two parts, summed over all observations.

    Parameters
    ----------
    rows, batch
        Number of rows of the data set, and of those that a step sees: the likelihood of a
        minibatch stands for that of all rows, while the prior is counted once, and so is what
        depends on no row.
    padding
        Number of rows after those, which do not count.
    fewer
        Whether how many rows there are is data: an input `ROW_WEIGHTS`, ``(batch + padding,)``,
        as `row_weights` makes it, of at most so many rows.

    Raises
    ------
    ValueError
        If the estimator cannot rewrite the model.

    References
    ----------
    Kucukelbir et al. (2017), Automatic Differentiation Variational Inference, equation 4;
    the minibatch weight is that of Hoffman et al. (2013), Stochastic Variational Inference.
    """
    parameters = _inputs(guide.shapes)
    noise = {name: Noise(variable, "normal") for name, variable in _inputs(guide.noise).items()}
    constrained = guide.constrained(parameters)
    if settings.estimator not in REWRITES:
        # XLA would compute scales anew for weights, gradients and divergence; rewrites of the
        # likelihood square them, and are faster when it does.
        constrained = {name: materialised(v) if v.owner else v for name, v in constrained.items()}
    draw = guide.draw(constrained, {name: n.variable for name, n in noise.items()})
    likelihood = rewrite_likelihood(flat, constrained, settings.estimator)
    weights: np.ndarray | TensorVariable = row_weights(rows, batch, padding)
    data = flat.data
    if fewer:
        weights = pt.tensor(ROW_WEIGHTS, dtype="float64", shape=weights.shape)
        data = data | {ROW_WEIGHTS: weights}
    divergence = build_divergence(
        flat,
        guide,
        settings,
        constrained,
        draw,
        weights.sum() if fewer else rows,
    )
    total = total_log_likelihood(likelihood, flat.rows, weights)
    log_likelihood, kl = flat.at(draw, [total, divergence.value])
    drawn = noise | likelihood.noise
    return Objective(
        parameters=parameters,
        noise=drawn,
        data=data,
        row_data=flat.row_data,
        log_likelihood=log_likelihood,
        kl=kl,
        kl_forms=divergence.forms,
        has_noisy_kl=depends_on([kl], [n.variable for n in drawn.values()]),
        leaves=leaf_lengths(flat.layout),
    )


def total_log_likelihood(
    rewritten: Rewritten,
    row_data: Sequence[TensorVariable],
    weights: np.ndarray | TensorVariable,
) -> TensorVariable:
    """Log-probability of everything observed, and potentials; a scalar, in nats.

    Parameters
    ----------
    row_data
        Inputs with one row an observation.
    weights
        Of what depends on them, for each row of a step; see `row_weights`.
    """
    # Where all rows weigh the same, one factor does.
    alike = isinstance(weights, np.ndarray) and np.ptp(weights) == 0
    terms = []
    for log_likelihood in rewritten.log_likelihoods.values():
        if not depends_on([log_likelihood], row_data):
            terms.append(log_likelihood.sum())
            continue
        if alike:
            terms.append(log_likelihood.sum() * weights[0])
            continue
        others = ("x",) * (log_likelihood.type.ndim - 1)
        of_rows = pt.as_tensor_variable(weights).dimshuffle(0, *others)
        terms.append((log_likelihood * of_rows).sum())
    terms += rewritten.potentials.values()
    return sum(terms[1:], terms[0]) if terms else pt.constant(np.float64(0.0))


def row_weights(rows: int, batch: int, padding: int) -> np.ndarray:
    """How many rows of the data set each row of a step stands for, ``(batch + padding,)``.

    Parameters
    ----------
    rows, batch
        Number of rows of the data set, and of those that a step sees.
    padding
        Number of rows after those, which do not count.
    """
    return np.repeat([rows / batch, 0.0], [batch, padding])


def _inputs(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, TensorVariable]:
    return {name: pt.tensor(name, dtype="float64", shape=shape) for name, shape in shapes.items()}
