"""Parameters without a prior, which are maximised: their guide is a point, whatever that of others.

Under a variational guide of everything else they maximise the ELBO, which is maximum marginal
likelihood (type II, empirical Bayes) as far as the bound is tight.
"""

import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.distribution import Continuous
from pymc.distributions.shape_utils import rv_size_is_none
from pytensor.tensor import TensorVariable
from pytensor.tensor.random.op import RandomVariable


class PointRV(RandomVariable):
    """Nothing that can be drawn: a model says where a parameter is, and no more of it."""

    name = "point"
    signature = "->()"
    dtype = "floatX"
    _print_name = ("Point", "\\operatorname{Point}")

    @classmethod
    def rng_fn(cls, rng, size):
        """Raise NotImplementedError, as PyMC's flat distributions do."""
        raise NotImplementedError("Cannot sample from a point parameter")


class Point(Continuous):
    """A real parameter without a prior, whose log-density counts as 0."""

    rv_op = PointRV()

    @classmethod
    def dist(cls, **kwargs):
        """The variable, of no parameters."""
        return super().dist([], **kwargs)

    def support_point(rv, size):  # noqa: D102, N805
        return pt.zeros(() if rv_size_is_none(size) else size)

    def logp(value):  # noqa: D102, N805
        return pt.zeros_like(value)


LOG = "_log"
"""Ending of the names of logarithms that are points."""


def positive_point(name: str, dims: tuple[str, ...] = ()) -> TensorVariable:
    """Positive parameter ``name`` of the current model, maximised by its logarithm."""
    # No transformation, whose Jacobian would count as a prior.
    return pm.Deterministic(name, pt.exp(Point(name + LOG, dims=dims)), dims=dims)
