"""Likelihoods of class labels."""

from typing import Literal

from pmbnn.models.likelihoods.base import ClassLikelihood, distribution_parameters


class Categorical(ClassLikelihood):
    """Class labels; the class probabilities are the softmax of the outputs."""

    kind: Literal["categorical"] = "categorical"

    def observe(self, name, outputs, data):  # noqa: D102
        import pymc as pm
        import pytensor.tensor as pt

        probabilities = pt.special.softmax(outputs, axis=-1)
        return pm.Categorical(name, p=probabilities, observed=data["target"], dims="observation")

    def parameters(self, observed):  # noqa: D102
        import pymc as pm

        (probability,) = distribution_parameters(observed, pm.Categorical, self.kind)
        return {"probability": probability}


class Bernoulli(ClassLikelihood):
    """Labels of two classes; the network's one output is the logit of the second's probability."""

    kind: Literal["bernoulli"] = "bernoulli"

    @classmethod
    def takes(cls, n_classes):  # noqa: D102
        return n_classes == 2

    def outputs(self, classes):
        """The logit of the second class."""
        return tuple(classes[1:])

    def observe(self, name, outputs, data):  # noqa: D102
        import pymc as pm

        # Flattened, not indexed: see `NumberLikelihood`.
        logit = outputs.flatten()
        return pm.Bernoulli(name, logit_p=logit, observed=data["target"], dims="observation")

    def parameters(self, observed):  # noqa: D102
        import pymc as pm
        import pytensor.tensor as pt

        (probability,) = distribution_parameters(observed, pm.Bernoulli, self.kind)
        # One minus a probability near 1 would round to zero; the sigmoid of -logit does not.
        logit = probability.owner.inputs[0]
        return {"probability": pt.stack([pt.sigmoid(-logit), probability], axis=-1)}
