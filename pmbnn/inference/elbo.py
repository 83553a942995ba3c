"""The evidence lower bound, as a PyTensor graph with its noise as inputs.

One graph serves every backend, and the same noise gives the same number everywhere. Higher is
better; an optimiser minimises its negative.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor import TensorVariable

from pmbnn.inference.estimators import REWRITES, Noise, rewrite_likelihood
from pmbnn.inference.flat import FlatModel
from pmbnn.inference.guides import Guide
from pmbnn.inference.kl import Form, build_divergence
from pmbnn.inference.products import depends_on
from pmbnn.inference.settings import Inference
from pmbnn.inference.xla.partition import leaf_lengths
from pmbnn.inference.xla.rewrites import materialised

ROW_WEIGHTS = "row weights"
"""Name of the input that `build_objective` adds if the number of rows is data."""


@dataclass(frozen=True)
class Objective:
    """The two parts of the ELBO as graphs, and the inputs of these.

    The ELBO is ``log_likelihood - kl``; with a KL weight β, a fit maximises
    ``log_likelihood - β · kl``.

    Attributes
    ----------
    parameters
        Inputs: the guide's unconstrained parameters, by name.
    noise
        Inputs for the noise, by name.
    data
        Inputs for the model's data variables, by name; and `ROW_WEIGHTS` if the number of rows is
        data.
    row_data
        Names of the data variables with one row per observation.
    log_likelihood
        Log-probability of all observations of the data set and the model's potentials, in nats.
    kl
        Divergence of the guide from the prior, in nats.
    kl_forms
        How the expectation of each free variable's log-prior is taken.
    has_noisy_kl
        Whether the divergence depends on the noise.
    leaves
        Lengths of the leaves into which a loop divides flat vectors.
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
    allow_fewer_rows: bool = False,
) -> Objective:
    """One-draw estimate of the ELBO's two parts, summed over all observations.

    Parameters
    ----------
    rows, batch
        Number of rows of the data set, and of the rows that a step sees. The likelihood of a
        minibatch is scaled to all rows; the prior, and terms that depend on no row, are not.
    padding
        Number of further rows with weight 0.
    allow_fewer_rows
        Whether the number of rows is data: an input `ROW_WEIGHTS`, ``(batch + padding,)``, made by
        `row_weights` for at most this number of rows.

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
        # XLA would compute scales again for weights, gradients and divergence. The rewrites of the
        # likelihood square them, and are faster if it does.
        constrained = {name: materialised(v) if v.owner else v for name, v in constrained.items()}
    draw = guide.draw(constrained, {name: n.variable for name, n in noise.items()})
    *terms, likelihood_noise = rewrite_likelihood(flat, constrained, settings.estimator)
    noise |= likelihood_noise
    weights: np.ndarray | TensorVariable = row_weights(rows, batch, padding)
    data, n_rows = flat.data, rows
    if allow_fewer_rows:
        weights = pt.tensor(ROW_WEIGHTS, dtype="float64", shape=weights.shape)
        data, n_rows = data | {ROW_WEIGHTS: weights}, weights.sum()
    divergence, forms = build_divergence(flat, guide, settings, constrained, draw, n_rows)
    total = total_log_likelihood(*terms, flat.rows, weights)
    log_likelihood, kl = flat.at(draw, [total, divergence])
    return Objective(
        parameters=parameters,
        noise=noise,
        data=data,
        row_data=flat.row_data,
        log_likelihood=log_likelihood,
        kl=kl,
        kl_forms=forms,
        has_noisy_kl=depends_on([kl], [n.variable for n in noise.values()]),
        leaves=leaf_lengths(flat.layout),
    )


def total_log_likelihood(
    log_likelihoods: Iterable[TensorVariable],
    potentials: Iterable[TensorVariable],
    row_data: Sequence[TensorVariable],
    weights: np.ndarray | TensorVariable,
) -> TensorVariable:
    """Log-probability of all observations, and potentials; a scalar, in nats.

    Parameters
    ----------
    row_data
        Inputs with one row per observation.
    weights
        Weights of the rows of a step for the terms that depend on `row_data`; see `row_weights`.
    """
    are_equal = isinstance(weights, np.ndarray) and np.ptp(weights) == 0
    terms = []
    for log_likelihood in log_likelihoods:
        if not depends_on([log_likelihood], row_data):
            terms.append(log_likelihood.sum())
        elif are_equal:
            terms.append(log_likelihood.sum() * weights[0])
        else:
            other_dims = ("x",) * (log_likelihood.type.ndim - 1)
            by_row = pt.as_tensor_variable(weights).dimshuffle(0, *other_dims)
            terms.append((log_likelihood * by_row).sum())
    terms += potentials
    return sum(terms[1:], terms[0]) if terms else pt.constant(np.float64(0.0))


def row_weights(rows: int, batch: int, padding: int) -> np.ndarray:
    """Weight of each row of a step, in rows of the data set, ``(batch + padding,)``.

    Parameters
    ----------
    rows, batch
        Number of rows of the data set, and of the rows that a step sees.
    padding
        Number of further rows with weight 0.
    """
    return np.repeat([rows / batch, 0.0], [batch, padding])


def _inputs(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, TensorVariable]:
    return {name: pt.tensor(name, dtype="float64", shape=shape) for name, shape in shapes.items()}
