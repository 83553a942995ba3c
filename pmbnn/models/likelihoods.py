"""Likelihoods: how the outputs of a network turn into the distribution of what is observed."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from pmbnn.core.spec import Positive, Specification, registry
from pmbnn.models.components import Components, NormalComponents, StudentTComponents
from pmbnn.models.hyperpriors import HalfCauchy, Hierarchical
from pmbnn.models.noise import NOISE, Heteroscedastic, PointNoise, Scale

if TYPE_CHECKING:
    import numpy as np
    from pytensor.tensor import TensorVariable


NUMBER = "y"
"""Name of the network output that is the mean of a single numeric target."""

TARGET_NAME = "target_name"
"""Dim of variables with one value per target; its coordinates are the names of the targets."""


class Likelihood(Specification, ABC):
    """A likelihood as an experiment file names it.

    It defines the observed variable, the parameters that predictions need, and the kind of
    predictions. Subclasses are for class labels (`ClassLikelihood`), for numbers
    (`DensityLikelihood`), or define another kind of prediction.
    """

    kind: str

    task: ClassVar[str]
    """``classification`` or ``regression``, as data sets name it."""

    predictive: ClassVar[str]
    """Kind of its predictions: a key of `pmbnn.prediction.PREDICTIVES`."""

    takes_several: ClassVar[bool] = False
    """Whether it takes several targets per row, ``(observation, target)``."""

    @classmethod
    def takes(cls, n_classes: int | None) -> bool:
        """Whether it is for labels of this number of classes, or for numbers if that is None."""
        return ("regression" if n_classes is None else "classification") == cls.task

    @classmethod
    def observes(cls, n_classes: int | None, n_targets: int) -> bool:
        """Whether it is for this number of targets per row, of the type that `takes` checks."""
        return cls.takes(n_classes) and (cls.takes_several or n_targets == 1)

    def outputs(self, classes: Sequence) -> tuple:
        """Names of the outputs that a network must have, from the names of the classes.

        One for each class, or for each of several targets by their names; for a single numeric
        target, which has no name, its mean.
        """
        return tuple(classes) or (NUMBER,)

    def n_outputs(self, n_classes: int | None, n_targets: int = 1) -> int:
        """Number of outputs that a network must have; `n_classes` is None for numbers."""
        return len(self.outputs(range(n_classes or (n_targets if n_targets > 1 else 0))))

    is_point: ClassVar[bool] = False
    """Whether some of its parameters are point parameters, which are maximised."""

    has_quantiles: ClassVar[bool] = True
    """Whether the quantile functions of all its variables are known, as tempered SMC needs."""

    @property
    def constants(self) -> Mapping[str, float]:
        """Names and values of the constants that a model holds as data."""
        return {}

    @property
    def n_free(self) -> int:
        """Number of free scalars per target."""
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
            Outputs of the network, ``(observation, output)``.
        data
            ``target``, ``(observation,)``, and the constants by name. With several targets,
            ``target`` and the observed variable are ``(observation, target)``; the last dim is
            `TARGET_NAME`.
        """

    @abstractmethod
    def parameters(self, observed: "TensorVariable") -> "dict[str, TensorVariable]":
        """Parameters of the observed variable that predictions need, as graphs by name.

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
            By name, ``(draw, observation, ...)``; scalars are ``(draw, 1)``.
        """


class ClassLikelihood(Likelihood):
    """A likelihood of class labels, whose one parameter is ``probability``."""

    task: ClassVar[str] = "classification"
    predictive: ClassVar[str] = "class_probabilities"

    def sample(self, parameters, rng):  # noqa: D102
        p = parameters["probability"]
        uniform = rng.random(p.shape[:-1])[..., None]
        kind = "i1" if p.shape[-1] <= 128 else "i4"  # a byte holds labels up to 127
        return (p.cumsum(axis=-1)[..., :-1] < uniform).sum(axis=-1).astype(kind)


class DensityLikelihood(Likelihood):
    """A likelihood of numbers with a density."""

    task: ClassVar[str] = "regression"
    predictive: ClassVar[str] = "density"

    @abstractmethod
    def components(self, parameters: "Mapping[str, np.ndarray]") -> Components:
        """Distributions of the target at draws of the parameters; arrays as in `sample`."""

    def by_target(self, parameters: "Mapping[str, np.ndarray]") -> "list[Mapping[str, np.ndarray]]":
        """Parameters of each target; the only entry is `parameters` if there is one target."""
        return [parameters]

    def sample(self, parameters, rng):  # noqa: D102
        return self.components(parameters).rvs(random_state=rng).astype("f4")


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


# Likelihoods of class labels


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


# Likelihoods of numbers: the network's output plus noise


class NumberLikelihood(DensityLikelihood):
    """A likelihood of numbers: the network's first output is the mean, the noise has a scale.

    The scale is known; or the variable ``noise``, learned under a hyperprior or maximised; or a
    function of the inputs, by a second output. Several targets are independent given the network,
    whose first outputs are their means, and each target has its own scale.
    """

    takes_several: ClassVar[bool] = True

    scale_field: ClassVar[str]
    """Name of the field that has the scale."""

    @property
    def scale_of_noise(self) -> "float | tuple[float, ...] | Specification":
        """The scale where it is known, or one per target; otherwise its hyperprior."""
        return getattr(self, self.scale_field)

    @model_validator(mode="after")
    def _one_noise(self):
        name = self.scale_field
        for field in ("per", "centred") if self.is_learned else ():
            value = getattr(self.scale_of_noise, field)
            if value != type(self.scale_of_noise).model_fields[field].default:
                raise ValueError(
                    f"must leave out `{name}.{field}`: there is one standard deviation, of no "
                    f"layer, got {value}"
                )
        return self

    @property
    def is_known(self) -> bool:
        """Whether the scale is given as a number, or a number for each target."""
        return not isinstance(self.scale_of_noise, Specification)

    @property
    def is_learned(self) -> bool:
        """Whether the scale is one number a target, learned under a hyperprior."""
        return isinstance(self.scale_of_noise, Hierarchical)

    def rule_of_known(self, n_targets: int) -> str | None:
        """What the known scale must be for this number of targets; None if it is right."""
        scale = self.scale_of_noise
        if not isinstance(scale, tuple) or len(scale) == n_targets > 1:
            return None
        several = f", or {n_targets} of them, one for each target" if n_targets > 1 else ""
        return f"must be a number{several}"

    def outputs(self, classes):
        """The mean of each target; and the scales, where those depend on the inputs."""
        if not isinstance(self.scale_of_noise, Heteroscedastic):
            return tuple(classes) or (NUMBER,)
        return (*classes, *(f"{NOISE}_{name}" for name in classes)) or (NUMBER, NOISE)

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
        scale = self.scale_of_noise
        if self.is_known:
            # The graph depends on the number of known scales, not on their values.
            structure = ["known"] * len(scale) if isinstance(scale, tuple) else "known"
        elif self.is_learned:
            structure = dict(scale.structure)
        else:
            structure = scale.model_dump(mode="json")
        return {"kind": self.kind, self.scale_field: structure}

    def _mean_and_scale(self, outputs, data) -> "tuple[TensorVariable, TensorVariable]":
        """Mean and scale of the noise of the current model, ``(observation,)`` or scalars.

        With several targets ``(observation, target)``, or scales ``(target,)``.
        """
        import pymc as pm
        import pytensor.tensor as pt

        from pmbnn.models.point import positive_point

        dims, scale = target_dims(data), self.scale_of_noise
        depends_on_inputs = isinstance(scale, Heteroscedastic)
        n_targets = len(pm.modelcontext(None).coords[TARGET_NAME]) if dims else 1
        parts = pt.split(outputs, [n_targets] * 2, axis=1) if depends_on_inputs else [outputs]
        # Flattened or split: PyMC would carry an index into the product that the output comes
        # from, where estimators look for whole matrices of weights.
        mean, *rest = parts if dims else [part.flatten() for part in parts]
        if depends_on_inputs:
            return mean, scale.scale(rest[0])
        if self.is_known:
            return mean, data[f"{NOISE}_{self.scale_field}"]
        if self.is_point:
            return mean, positive_point(NOISE, dims)
        constants = {name: data[f"{NOISE}_{name}"] for name in scale.constants}
        return mean, scale.learned(NOISE, f"{NOISE}_variance", constants, dims)

    def by_target(self, parameters):  # noqa: D102
        shape = parameters["mu"].shape
        if len(shape) == 2:
            return [parameters]
        # Arrays that all targets share have a last axis of length 1.
        return [
            {name: array[..., min(i, array.shape[-1] - 1)] for name, array in parameters.items()}
            for i in range(shape[2])
        ]


def target_dims(data: Mapping[str, "TensorVariable"]) -> tuple[str, ...]:
    """Dims of a variable with one value per target of the current model; none with one target."""
    return (TARGET_NAME,) if data["target"].type.ndim > 1 else ()


def shaped(parameter: "TensorVariable", mean: "TensorVariable") -> "TensorVariable":
    """A parameter that broadcasts with the mean; with one target without the axis PyMC adds."""
    import pytensor.tensor as pt

    return pt.squeeze(parameter) if mean.type.ndim == 1 else parameter


DEGREES = "degrees_of_freedom"
"""Name of learned degrees of freedom; names of their constants start with it."""

LEAST_DEGREES = 2.0
"""Degrees of freedom above which a Student's t distribution has a variance."""


class Normal(NumberLikelihood):
    """Numbers: the network's output plus Gaussian noise.

    Parameters
    ----------
    sd
        Standard deviation of the noise, in the units of the targets that are fitted: a number
        where it is known, or a list of one for each of several targets; a hyperprior, under which
        the variable ``noise`` is learned; ``point``, maximised without a hyperprior; or
        ``heteroscedastic``, a function of the inputs. The default is the half-Cauchy distribution
        that Gelman (2006), Prior distributions for variance parameters, section 7, recommends for
        a scale of which little is known. A mean-field guide of a wide network may learn too large
        a noise: give the noise where it is known.
    """

    kind: Literal["normal"] = "normal"
    sd: Scale = HalfCauchy()
    scale_field: ClassVar[str] = "sd"

    def observe(self, name, outputs, data):  # noqa: D102
        import pymc as pm

        mu, sd = self._mean_and_scale(outputs, data)
        dims = ("observation", *target_dims(data))
        return pm.Normal(name, mu, sd, observed=data["target"], dims=dims)

    def parameters(self, observed):  # noqa: D102
        import pymc as pm

        mu, sigma = distribution_parameters(observed, pm.Normal, self.kind)
        return {"mu": mu, "sigma": shaped(sigma, mu)}

    def components(self, parameters):  # noqa: D102
        return NormalComponents(parameters["mu"], parameters["sigma"])


class Gamma(Specification):
    """Gamma distribution with shape ``alpha`` and rate ``beta``, shifted to a lower bound.

    Parameters
    ----------
    alpha
        Shape.
    beta
        Rate, per degree of freedom: the mean is ``alpha`` / ``beta``.
    """

    kind: Literal["gamma"] = "gamma"
    alpha: Positive = 2.0
    beta: Positive = 0.1


class StudentT(NumberLikelihood):
    """Numbers: the network's output plus Student's t noise, which leaves room for outliers.

    Parameters
    ----------
    nu
        Degrees of freedom, above 2, so that there is a variance: a number where they are known;
        or ``gamma``, the prior of their excess over 2. Learned ones are the variable
        ``degrees_of_freedom``, one for each target. The default is that of Juárez and Steel (2010),
        Model-based clustering of non-Gaussian panel data based on skew-t distributions, section 3,
        shifted by the bound.
    scale
        Scale of the noise, set as the standard deviation of `Normal` is. The standard deviation is
        ``scale`` times √(nu / (nu - 2)).
    """

    kind: Literal["student_t"] = "student_t"
    nu: Annotated[float, Field(gt=LEAST_DEGREES)] | Gamma = Gamma()
    scale: Scale = HalfCauchy()
    scale_field: ClassVar[str] = "scale"

    @property
    def constants(self) -> Mapping[str, float]:  # noqa: D102
        degrees = self.nu.model_dump(exclude={"kind"}) if self._learns_nu else {"nu": self.nu}
        return super().constants | {f"{DEGREES}_{name}": value for name, value in degrees.items()}

    @property
    def n_free(self) -> int:  # noqa: D102
        return super().n_free + int(self._learns_nu)

    @property
    def structure(self) -> Mapping[str, object]:  # noqa: D102
        return {**super().structure, "nu": self.nu.kind if self._learns_nu else "known"}

    @property
    def has_quantiles(self) -> bool:
        """Whether the degrees of freedom are known: a gamma distribution's quantiles are not."""
        return not self._learns_nu

    @property
    def _learns_nu(self) -> bool:
        return isinstance(self.nu, Gamma)

    def observe(self, name, outputs, data):  # noqa: D102
        import pymc as pm

        mu, sigma = self._mean_and_scale(outputs, data)
        dims = ("observation", *target_dims(data))
        nu = self._degrees(data)
        return pm.StudentT(name, nu=nu, mu=mu, sigma=sigma, observed=data["target"], dims=dims)

    def _degrees(self, data) -> "TensorVariable":
        import numpy as np
        import pymc as pm

        if not self._learns_nu:
            return data[f"{DEGREES}_nu"]
        alpha, beta = (data[f"{DEGREES}_{name}"] for name in ("alpha", "beta"))
        dims, name = target_dims(data), f"{DEGREES}_above_{LEAST_DEGREES:g}"
        above = pm.Gamma(name, alpha=alpha, beta=beta, dims=dims)
        return pm.Deterministic(DEGREES, np.float64(LEAST_DEGREES) + above, dims=dims)

    def parameters(self, observed):  # noqa: D102
        import pymc as pm

        nu, mu, sigma = distribution_parameters(observed, pm.StudentT, self.kind)
        return {"nu": shaped(nu, mu), "mu": mu, "sigma": shaped(sigma, mu)}

    def components(self, parameters):  # noqa: D102
        return StudentTComponents(*(parameters[name] for name in ("nu", "mu", "sigma")))


LIKELIHOODS: dict[str, type[Likelihood]] = registry(Categorical, Bernoulli, Normal, StudentT)

__all__ = [
    "LIKELIHOODS",
    "TARGET_NAME",
    "Bernoulli",
    "Categorical",
    "ClassLikelihood",
    "Components",
    "DensityLikelihood",
    "Gamma",
    "Heteroscedastic",
    "Likelihood",
    "Normal",
    "NormalComponents",
    "NumberLikelihood",
    "PointNoise",
    "StudentT",
    "StudentTComponents",
    "distribution_parameters",
]
