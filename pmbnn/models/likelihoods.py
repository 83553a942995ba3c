"""Likelihoods: how the outputs of a network turn into the distribution of what is observed."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Protocol

from pydantic import Field, model_validator

from pmbnn.models.priors import HalfCauchy, HalfNormal, Hierarchical, InverseGamma
from pmbnn.spec import Positive, Specification, registry

if TYPE_CHECKING:
    import numpy as np
    from pytensor.tensor import TensorVariable

    from pmbnn.data.arrays import Rows

NOISE = "noise"
"""Name of a learned standard deviation of the noise, and start of the names of its constants."""

NUMBER = "y"
"""What a network's output is called that is the mean of a number."""

DEGREES = "degrees_of_freedom"
"""Name of learned degrees of freedom, and start of the names of their constants."""

LEAST_DEGREES = 2.0
"""Degrees of freedom above which a Student's t distribution has a variance."""

SMALLEST_SD = 1e-6
"""Added to a standard deviation that is an output, whose logarithm stays finite where that
underflows."""


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

    @classmethod
    def takes(cls, n_classes: int | None) -> bool:
        """Whether it observes labels of so many classes; numbers, of None."""
        return ("numbers" if n_classes is None else "classes") == cls.targets

    def fits(self, rows: "Rows") -> bool:
        """Whether the rows hold what it observes."""
        return self.takes(rows.n_classes)

    def outputs(self, classes: Sequence) -> tuple:
        """Names of the outputs that a network must have, by those of the classes.

        One for each class; for a number, which has no classes, its mean.
        """
        return tuple(classes) or (NUMBER,)

    def n_outputs(self, n_classes: int | None) -> int:
        """Number of the outputs that a network must have; for numbers, of None."""
        return len(self.outputs(range(n_classes or 0)))

    is_point: ClassVar[bool] = False
    """Whether it has parameters that are points, which no guide is spread about."""

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
        # One less a probability near 1 would round to zero, the sigmoid of the other sign does not.
        logit = probability.owner.inputs[0]
        return {"probability": pt.stack([pt.sigmoid(-logit), probability], axis=-1)}


class Heteroscedastic(Specification):
    """A scale of the noise that depends on the inputs: a second output of the network gives it.

    Parameters
    ----------
    link
        The scale is the ``softplus`` or the ``exp`` of the output.

    References
    ----------
    Nix and Weigend (1994), Estimating the mean and variance of the target probability
    distribution, where the output gives the logarithm of the variance.
    """

    kind: Literal["heteroscedastic"] = "heteroscedastic"
    link: Literal["softplus", "exp"] = "softplus"

    def scale(self, output: "TensorVariable") -> "TensorVariable":
        """Scale of the noise, positive, of any output."""
        import pytensor.tensor as pt

        return {"softplus": pt.softplus, "exp": pt.exp}[self.link](output) + SMALLEST_SD


class PointNoise(Specification):
    """A scale of the noise without a hyperprior: a free parameter, which is maximised."""

    kind: Literal["point"] = "point"


class NumberLikelihood(DensityLikelihood):
    """A likelihood of numbers about the network's first output, with a scale of the noise.

    The scale is known; or learned under a hyperprior, as the variable ``noise``; or maximised, of
    that name too; or a function of the inputs, by a second output.
    """

    scale_field: ClassVar[str]
    """Name of the field that has the scale."""

    @property
    def scale_of_noise(self) -> "float | Specification":
        """The scale where it is known, else what it is learned by."""
        return getattr(self, self.scale_field)

    @model_validator(mode="after")
    def _one_noise(self):
        name = self.scale_field
        for field in ("per", "centred") if self.is_learned else ():
            found = getattr(self.scale_of_noise, field)
            if found != type(self.scale_of_noise).model_fields[field].default:
                raise ValueError(
                    f"must leave out `{name}.{field}`: there is one standard deviation, of no "
                    f"layer, got {found}"
                )
        return self

    @property
    def is_known(self) -> bool:
        """Whether the scale is given as a number."""
        return not isinstance(self.scale_of_noise, Specification)

    @property
    def is_learned(self) -> bool:
        """Whether the scale is one number, learned under a hyperprior."""
        return isinstance(self.scale_of_noise, Hierarchical)

    def outputs(self, classes):
        """The mean; and the scale, where that depends on the inputs."""
        by_input = isinstance(self.scale_of_noise, Heteroscedastic)
        return (NUMBER, NOISE) if by_input else (NUMBER,)

    @property
    def constants(self) -> Mapping[str, float]:  # noqa: D102
        if self.is_known:
            return {f"{NOISE}_{self.scale_field}": self.scale_of_noise}
        if self.is_learned:
            constants = self.scale_of_noise.constants
            return {f"{NOISE}_{name}": value for name, value in constants.items()}
        return {}

    @property
    def is_point(self) -> bool:
        """Whether the scale is maximised."""
        return isinstance(self.scale_of_noise, PointNoise)

    @property
    def n_free(self) -> int:  # noqa: D102
        return int(self.is_learned or self.is_point)

    @property
    def structure(self) -> Mapping[str, object]:  # noqa: D102
        return {"kind": self.kind, self.scale_field: self._structure_of_scale()}

    def _structure_of_scale(self) -> object:
        if self.is_known:
            return "known"
        if self.is_learned:
            return dict(self.scale_of_noise.structure)
        return self.scale_of_noise.model_dump(mode="json")

    def _mean_and_scale(self, outputs, data) -> "tuple[TensorVariable, TensorVariable]":
        """Mean and scale of the noise of the current model, ``(observation,)`` or scalars."""
        import pytensor.tensor as pt

        # Flattened or split: PyMC would carry an index into the product that the output comes
        # from, where estimators look for whole matrices of weights.
        if self.is_known:
            return outputs.flatten(), data[f"{NOISE}_{self.scale_field}"]
        if self.is_learned:
            return outputs.flatten(), self._learned(data)
        if self.is_point:
            return outputs.flatten(), _maximised(NOISE)
        mean, of_scale = (part.flatten() for part in pt.split(outputs, [1, 1], axis=1))
        return mean, self.scale_of_noise.scale(of_scale)

    def _learned(self, data) -> "TensorVariable":
        import pymc as pm
        import pytensor.tensor as pt

        hyperprior = self.scale_of_noise
        constants = {name: data[f"{NOISE}_{name}"] for name in hyperprior.constants}
        if hyperprior.on == "scale":
            return hyperprior.variable(NOISE, constants, ())
        variance = hyperprior.variable(f"{NOISE}_variance", constants, ())
        return pm.Deterministic(NOISE, pt.sqrt(variance))


def _maximised(name: str) -> "TensorVariable":
    from pmbnn.models.point import positive_point

    return positive_point(name)


class Normal(NumberLikelihood):
    """Numbers: the network's output plus Gaussian noise.

    Parameters
    ----------
    sd
        Standard deviation of the noise, in the units of the targets that are fitted: a number
        where it is known; the hyperprior it is learned under, as the variable ``noise``;
        ``point``, without a hyperprior, which is maximised; or ``heteroscedastic``, a function of
        the inputs. The default is half-Cauchy, as Gelman (2006), Prior distributions for variance
        parameters, section 7, has it for a scale of which little is known. A mean-field guide pays
        dearly for each weight of a wide network, and may put down to noise what such a network
        could explain: where the noise is known, say so.
    """

    kind: Literal["normal"] = "normal"
    sd: Positive | HalfNormal | HalfCauchy | InverseGamma | PointNoise | Heteroscedastic = (
        HalfCauchy()
    )
    scale_field: ClassVar[str] = "sd"

    def observe(self, name, outputs, data):  # noqa: D102
        import pymc as pm

        mu, sd = self._mean_and_scale(outputs, data)
        return pm.Normal(name, mu, sd, observed=data["target"], dims="observation")

    def parameters(self, observed):  # noqa: D102
        import pymc as pm
        import pytensor.tensor as pt

        mu, sigma = distribution_parameters(observed, pm.Normal, self.kind)
        # PyMC gives a scalar an axis of length 1 for the observations.
        return {"mu": mu, "sigma": pt.squeeze(sigma)}

    def components(self, parameters):  # noqa: D102
        return NormalComponents(parameters["mu"], parameters["sigma"])


class Gamma(Specification):
    """Gamma distribution with shape ``alpha`` and rate ``beta``, of what lies above a bound."""

    kind: Literal["gamma"] = "gamma"
    alpha: Positive = 2.0
    beta: Positive = 0.1


class StudentT(NumberLikelihood):
    """Numbers: the network's output plus Student's t noise, which leaves room for outliers.

    Parameters
    ----------
    nu
        Degrees of freedom, above 2, so that there is a variance: a number where they are known;
        or ``gamma``, the distribution that what they exceed 2 by is learned under. They are the
        variable ``degrees_of_freedom`` then. The default is that of Juárez and Steel (2010),
        Model-based clustering of non-Gaussian panel data based on skew-t distributions, section
        3, but for the bound.
    scale
        Scale of the noise, as `Normal` has its standard deviation, which here is ``scale`` times
        √(nu / (nu - 2)).
    """

    kind: Literal["student_t"] = "student_t"
    nu: Annotated[float, Field(gt=LEAST_DEGREES)] | Gamma = Gamma()
    scale: Positive | HalfNormal | HalfCauchy | InverseGamma | PointNoise | Heteroscedastic = (
        HalfCauchy()
    )
    scale_field: ClassVar[str] = "scale"

    @property
    def constants(self) -> Mapping[str, float]:  # noqa: D102
        of_nu = {"nu": self.nu} if not self._learns_nu else self.nu.model_dump(exclude={"kind"})
        return super().constants | {f"{DEGREES}_{name}": value for name, value in of_nu.items()}

    @property
    def n_free(self) -> int:  # noqa: D102
        return super().n_free + int(self._learns_nu)

    @property
    def structure(self) -> Mapping[str, object]:  # noqa: D102
        return {**super().structure, "nu": self.nu.kind if self._learns_nu else "known"}

    @property
    def _learns_nu(self) -> bool:
        return isinstance(self.nu, Gamma)

    def observe(self, name, outputs, data):  # noqa: D102
        import pymc as pm

        mu, sigma = self._mean_and_scale(outputs, data)
        given = {"observed": data["target"], "dims": "observation"}
        return pm.StudentT(name, nu=self._degrees(data), mu=mu, sigma=sigma, **given)

    def _degrees(self, data) -> "TensorVariable":
        import numpy as np
        import pymc as pm

        if not self._learns_nu:
            return data[f"{DEGREES}_nu"]
        alpha, beta = (data[f"{DEGREES}_{name}"] for name in ("alpha", "beta"))
        above = pm.Gamma(f"{DEGREES}_above_{LEAST_DEGREES:g}", alpha=alpha, beta=beta)
        return pm.Deterministic(DEGREES, np.float64(LEAST_DEGREES) + above)

    def parameters(self, observed):  # noqa: D102
        import pymc as pm
        import pytensor.tensor as pt

        nu, mu, sigma = distribution_parameters(observed, pm.StudentT, self.kind)
        return {"nu": pt.squeeze(nu), "mu": mu, "sigma": pt.squeeze(sigma)}

    def components(self, parameters):  # noqa: D102
        return StudentTComponents(*(parameters[name] for name in ("nu", "mu", "sigma")))


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


@dataclass(frozen=True)
class StudentTComponents:
    """Student's t distributions with more than two degrees of freedom, as `Components`.

    Attributes
    ----------
    nu, mu, sigma
        Degrees of freedom, mean and scale, ``(draw, observation)`` or ``(draw, 1)``.
    """

    nu: "np.ndarray"
    mu: "np.ndarray"
    sigma: "np.ndarray"

    def mean(self) -> "np.ndarray":
        """Means."""
        return self.mu

    def std(self) -> "np.ndarray":
        """Standard deviations."""
        import numpy as np

        return self.sigma * np.sqrt(self.nu / (self.nu - 2))

    def logpdf(self, x: "np.ndarray") -> "np.ndarray":
        """Log-densities, in nats."""
        import numpy as np
        from scipy.special import gammaln

        nu, half = self.nu, 0.5 * (self.nu + 1)
        constant = gammaln(half) - gammaln(0.5 * nu) - 0.5 * np.log(np.pi * nu)
        squares = self._standardised(x) ** 2
        return constant - np.log(self.sigma) - half * np.log1p(squares / nu)

    def cdf(self, x: "np.ndarray") -> "np.ndarray":
        """Probabilities of less than `x`."""
        from scipy.special import stdtr

        return stdtr(self.nu, self._standardised(x))

    def ppf(self, q: float) -> "np.ndarray":
        """Quantiles."""
        from scipy.special import stdtrit

        return self.mu + stdtrit(self.nu, q) * self.sigma

    def rvs(self, *, random_state: "np.random.Generator") -> "np.ndarray":
        """One draw of each."""
        return self.mu + self.sigma * random_state.standard_t(self.nu, size=self.mu.shape)

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


LIKELIHOODS: dict[str, type[Likelihood]] = registry(Categorical, Bernoulli, Normal, StudentT)
