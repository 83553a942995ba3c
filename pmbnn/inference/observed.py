"""Log-probability of what a model observes, in the form that XLA runs fast."""

import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.continuous import Normal
from pymc.distributions.discrete import Categorical
from pytensor.tensor import TensorVariable
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.special import Softmax, log_softmax, softmax


def elementwise_logp(model: pm.Model) -> TensorVariable:
    """Log-probability of each observation, ``(observation,)``, on the value variables.

    A categorical likelihood is written as the contraction of log-probabilities with one-hot
    labels: equal to PyMC's own, which gathers, and several times faster with its gradient.
    """
    observed = _only_observed(model)
    probabilities = _class_probabilities(model)
    if probabilities is None:
        return model.logp(vars=[observed], sum=False)[0]
    classes = pt.arange(_n_classes(model, probabilities))[:, None]
    one_hot = pt.eq(model.rvs_to_values[observed][None, :], classes).astype("float64")
    outputs = _outputs_first(probabilities)
    if outputs is None:
        # The label's probability first, its logarithm then: 0 · log(0) would not be a number.
        return pt.log(pt.sum(one_hot * probabilities.T, axis=0))
    return pt.sum(one_hot * log_softmax(outputs, axis=0), axis=0)


def likelihood_probabilities(model: pm.Model) -> TensorVariable | None:
    """Class probabilities of a categorical model, ``(observation, class)``; None of others.

    A softmax is taken with observations on the last axis: over a last axis of a few classes
    it is several times slower under XLA.
    """
    probabilities = _class_probabilities(model)
    outputs = None if probabilities is None else _outputs_first(probabilities)
    return probabilities if outputs is None else softmax(outputs, axis=0).T


def normal_parameters(model: pm.Model) -> tuple[TensorVariable, TensorVariable] | None:
    """Mean ``(observation,)`` and standard deviation of a normal model; None of others."""
    node = _only_observed(model).owner
    if not isinstance(node.op, type(Normal.rv_op)):
        return None
    mean, sd = model.replace_rvs_by_values(node.op.dist_params(node))
    return mean, pt.squeeze(sd)  # PyMC gives a scalar an axis of length 1 for the observations


def _class_probabilities(model: pm.Model) -> TensorVariable | None:
    """Class probabilities as the model has them."""
    node = _only_observed(model).owner
    if not isinstance(node.op, type(Categorical.rv_op)):
        return None
    (probabilities,) = node.op.dist_params(node)
    return model.replace_rvs_by_values([probabilities])[0]


def _only_observed(model: pm.Model) -> TensorVariable:
    if len(model.observed_RVs) != 1:
        names = [v.name for v in model.observed_RVs]
        raise ValueError(f"A model must have exactly one observed variable, got {names}.")
    return model.observed_RVs[0]


def _n_classes(model: pm.Model, probabilities: TensorVariable) -> int:
    static = probabilities.type.shape[-1]
    if static is not None:
        return static
    if "output" in model.coords:
        return len(model.coords["output"])
    return int(probabilities.shape[-1].eval())


def _outputs_first(probabilities: TensorVariable) -> TensorVariable | None:
    """Find what the softmax over classes is of, classes first; None if it is something else."""
    node = probabilities.owner
    if node is None or not isinstance(node.op, Softmax) or node.op.axis != (1,):
        return None
    outputs = node.inputs[0]
    # A transposition of a transposition would stay in the graph as two copies.
    op = outputs.owner.op if outputs.owner is not None else None
    transposed = isinstance(op, DimShuffle) and op.new_order == (1, 0)
    return outputs.owner.inputs[0] if transposed else outputs.T
