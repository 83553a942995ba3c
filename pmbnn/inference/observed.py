"""Log-probability of what a model observes, in the form that XLA runs fast."""

import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.discrete import Categorical
from pytensor.tensor import TensorVariable
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.special import Softmax, log_softmax


def elementwise_logp(model: pm.Model) -> TensorVariable:
    """Log-probability of each observation, ``(observation,)``, on the value variables.

    A categorical likelihood is written as the contraction of log-probabilities with one-hot
    labels: equal to PyMC's own, which gathers, and several times faster with its gradient.
    """
    observed = _only_observed(model)
    if not isinstance(observed.owner.op, type(Categorical.rv_op)):
        return model.logp(vars=[observed], sum=False)[0]
    labels = model.rvs_to_values[observed]
    log_p = _log_probabilities_first(likelihood_probabilities(model))
    classes = pt.arange(_n_classes(model))[:, None]
    return pt.sum(pt.eq(labels[None, :], classes) * log_p, axis=0)


def likelihood_probabilities(model: pm.Model) -> TensorVariable:
    """Class probabilities of a categorical model, ``(observation, class)``."""
    (probabilities,) = _only_observed(model).owner.op.dist_params(_only_observed(model).owner)
    return model.replace_rvs_by_values([probabilities])[0]


def _only_observed(model: pm.Model) -> TensorVariable:
    if len(model.observed_RVs) != 1:
        names = [v.name for v in model.observed_RVs]
        raise ValueError(f"A model must have exactly one observed variable, got {names}.")
    return model.observed_RVs[0]


def _n_classes(model: pm.Model) -> int:
    return len(model.coords["output"])


def _log_probabilities_first(probabilities: TensorVariable) -> TensorVariable:
    """Log-probabilities with classes on the first axis, stable where they are a softmax."""
    node = probabilities.owner
    if node is None or not isinstance(node.op, Softmax):
        return pt.log(probabilities).T
    outputs = node.inputs[0]
    # A transposition of a transposition would stay in the graph as two copies.
    if outputs.owner is not None and isinstance(outputs.owner.op, DimShuffle):
        if outputs.owner.op.new_order == (1, 0):
            return log_softmax(outputs.owner.inputs[0], axis=0)
    return log_softmax(outputs.T, axis=0)
