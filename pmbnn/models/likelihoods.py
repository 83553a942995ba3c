"""Likelihoods: how the outputs of a network turn into the distribution of what is observed."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from pydantic import model_validator

from pmbnn.models.priors import HalfCauchy, HalfNormal, InverseGamma
from pmbnn.spec import Positive, Specification, registry

if TYPE_CHECKING:
    import numpy as np
    from pytensor.tensor import TensorVariable

    from pmbnn.data.arrays import Rows

NOISE = "noise"
"""Name of a learned standard deviation of the noise, and start of the names of its constants."""


class Components(Protocol):
    """Distributions of numbers, one for each draw and observation, as SciPy freezes them.

    Every method returns ``(draw, observation)``, or ``(draw, 1)`` where all observations share
    what it says; arguments broadcast against that.
    """

    def mean(self) -> "np.ndarray":
        """Means."""

    def std(self) -> "np.ndarray":
        """Standard deviations."""

    def logpdf(self, x: "np.ndarray") -> "np.ndarray":
        """Log-densities, in nats."""

    def cdf(self, x: "np.ndarray") -> "np.ndarray":
        """Probabilities of less than `x`."""

    def ppf(self, q: float) -> "np.ndarray":
        """Quantiles."""

    def rvs(self, *, random_state: "np.random.Generator") -> "np.ndarray":
        """One draw of each."""


class Likelihood(Specification, ABC):
    """A likelihood as an experiment file names it, which owns its task.

    It says what is observed under it, what its predictions are made of, and what kind they are
    of. A subclass is of classes (`ClassLikelihood`), of numbers (`DensityLikelihood`), or brings
    a kind of prediction of its own.
    """

    kind: str

    targets: ClassVar[str]
    """What it observes: ``classes`` or ``numbers``, as data sets name it."""

    predictive: ClassVar[str]
    """Key of the kind of its predictions, one of `pmbnn.prediction.PREDICTIVES`."""

    def fits(self, rows: "Rows") -> bool:
        """Whether the rows hold what it observes."""
        return rows.targets == self.targets

    @property
    def constants(self) -> Mapping[str, float]:
        """Names and values of the constants that a model holds as data."""
        return {}

    @property
    def n_free(self) -> int:
        """Number of free scalars."""
        return 0

    @property
    def structure(self) -> Mapping[str, object]:
        """Everything but the constants: what decides the shape of the model's graph."""
        return self.model_dump(mode="json")

    @abstractmethod
    def observe(
        self, name: str, outputs: "TensorVariable", data: Mapping[str, "TensorVariable"]
    ) -> "TensorVariable":
        """Observed variable ``name`` of the current model, with dims ``("observation",)``.

        Parameters
        ----------
        outputs
            Of the network, ``(observation, output)``.
        data
            ``target``, ``(observation,)``, and the constants by name.
        """

    @abstractmethod
    def parameters(self, observed: "TensorVariable") -> "dict[str, TensorVariable]":
        """Graphs by name that predictions are made of, read off the observed variable.

        Scalars, or with observations on the first axis.

        Raises
        ------
        ValueError
            If the variable was observed under another likelihood.
        """

    @abstractmethod
    def sample(
        self, parameters: "Mapping[str, np.ndarray]", rng: "np.random.Generator"
    ) -> "np.ndarray":
        """Targets drawn at draws of the parameters, ``(draw, observation)``.

        Parameters
        ----------
        parameters
            By name, ``(draw, observation, ...)``; ``(draw, 1)`` of scalars.
        """


class ClassLikelihood(Likelihood):
    """A likelihood of class labels, whose one parameter is ``probability``."""

    targets: ClassVar[str] = "classes"
    predictive: ClassVar[str] = "class_probabilities"

    def sample(self, parameters, rng):  # noqa: D102
        p = parameters["probability"]
        uniform = rng.random(p.shape[:-1])[..., None]
        return (p.cumsum(axis=-1)[..., :-1] < uniform).sum(axis=-1).astype("i1")


class DensityLikelihood(Likelihood):
    """A likelihood of numbers with a density."""

    targets: ClassVar[str] = "numbers"
    predictive: ClassVar[str] = "density"

    @abstractmethod
    def components(self, parameters: "Mapping[str, np.ndarray]") -> Components:
        """Distributions of what is observed, at draws of the parameters; arrays as in `sample`."""

    def sample(self, parameters, rng):  # noqa: D102
        return self.components(parameters).rvs(random_state=rng).astype("f4")


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


class Normal(DensityLikelihood):
    """Numbers: the network's one output plus Gaussian noise, the same everywhere.

    Parameters
    ----------
    sd
        Standard deviation of the noise, in the units of the targets: a number where it is
        known, or the hyperprior it is learned under. Learned, it is the variable ``noise``. The
        default is half-Cauchy, as Gelman (2006), Prior distributions for variance parameters,
        section 7, has it for a scale of which little is known. A mean-field guide pays dearly
        for each weight of a wide network, and may put down to noise what such a network could
        explain: where the noise is known, say so.
    """

    kind: Literal["normal"] = "normal"
    sd: Positive | HalfNormal | HalfCauchy | InverseGamma = HalfCauchy()

    @model_validator(mode="after")
    def _one_noise(self):
        for name in ("per", "centred") if self.is_learned else ():
            if getattr(self.sd, name) != type(self.sd).model_fields[name].default:
                raise ValueError(
                    f"must leave out `sd.{name}`: there is one standard deviation, of no layer, "
                    f"got {getattr(self.sd, name)}"
                )
        return self

    @property
    def is_learned(self) -> bool:
        """Whether the standard deviation is learned."""
        return isinstance(self.sd, Specification)

    @property
    def constants(self) -> Mapping[str, float]:  # noqa: D102
        if not self.is_learned:
            return {f"{NOISE}_sd": self.sd}
        return {f"{NOISE}_{name}": value for name, value in self.sd.constants.items()}

    @property
    def n_free(self) -> int:  # noqa: D102
        return int(self.is_learned)

    @property
    def structure(self) -> Mapping[str, object]:  # noqa: D102
        return {"kind": self.kind, "sd": dict(self.sd.structure) if self.is_learned else "known"}

    def observe(self, name, outputs, data):  # noqa: D102
        import pymc as pm

        sd = self._learned(data) if self.is_learned else data[f"{NOISE}_sd"]
        # Flattened: PyMC would carry an index into the product that the output comes from, where
        # estimators look for whole matrices of weights.
        mu = outputs.flatten()
        return pm.Normal(name, mu, sd, observed=data["target"], dims="observation")

    def parameters(self, observed):  # noqa: D102
        import pymc as pm
        import pytensor.tensor as pt

        mu, sigma = distribution_parameters(observed, pm.Normal, self.kind)
        # PyMC gives a scalar an axis of length 1 for the observations.
        return {"mu": mu, "sigma": pt.squeeze(sigma)}

    def components(self, parameters):  # noqa: D102
        return NormalComponents(parameters["mu"], parameters["sigma"])

    def _learned(self, data) -> "TensorVariable":
        import pymc as pm
        import pytensor.tensor as pt

        constants = {name: data[f"{NOISE}_{name}"] for name in self.sd.constants}
        if self.sd.on == "scale":
            return self.sd.variable(NOISE, constants, ())
        return pm.Deterministic(
            NOISE, pt.sqrt(self.sd.variable(f"{NOISE}_variance", constants, ()))
        )


@dataclass(frozen=True)
class NormalComponents:
    """Normal distributions, as `Components`.

    SciPy's own check and mask every argument, which takes several times as long.

    Attributes
    ----------
    mu, sigma
        Mean and standard deviation, ``(draw, observation)`` or ``(draw, 1)``.
    """

    mu: "np.ndarray"
    sigma: "np.ndarray"

    def mean(self) -> "np.ndarray":
        """Means."""
        return self.mu

    def std(self) -> "np.ndarray":
        """Standard deviations."""
        return self.sigma

    def logpdf(self, x: "np.ndarray") -> "np.ndarray":
        """Log-densities, in nats."""
        import numpy as np

        return -0.5 * self._standardised(x) ** 2 - (np.log(self.sigma) + 0.5 * np.log(2 * np.pi))

    def cdf(self, x: "np.ndarray") -> "np.ndarray":
        """Probabilities of less than `x`."""
        from scipy.special import ndtr

        return ndtr(self._standardised(x))

    def ppf(self, q: float) -> "np.ndarray":
        """Quantiles."""
        from scipy.special import ndtri

        return self.mu + ndtri(q) * self.sigma

    def rvs(self, *, random_state: "np.random.Generator") -> "np.ndarray":
        """One draw of each."""
        return self.mu + self.sigma * random_state.standard_normal(self.mu.shape)

    def _standardised(self, x: "np.ndarray") -> "np.ndarray":
        return (x - self.mu) / self.sigma


def distribution_parameters(
    observed: "TensorVariable", distribution: type, kind: str
) -> "list[TensorVariable]":
    """Parameters of an observed variable, as PyMC orders them.

    Raises
    ------
    ValueError
        If it is drawn from another distribution.
    """
    node = observed.owner
    if not isinstance(node.op, type(distribution.rv_op)):
        raise ValueError(
            f"`likelihood` must be that of the model, whose `{observed.name}` is drawn from "
            f"`{node.op.name}`, got `{kind}`."
        )
    return node.op.dist_params(node)


LIKELIHOODS: dict[str, type[Likelihood]] = registry(Categorical, Normal)
