"""Checks of one's own parts: what is right passes, and each way to be wrong is named."""

from typing import ClassVar, Literal

import numpy as np
import pytest
from tiers import slow_but

from pmbnn.core.spec import Positive
from pmbnn.data import Circles, DatasetSpec, Moons
from pmbnn.data.arrays import Dataset, fit_standardisation
from pmbnn.experiment.plugins import register
from pmbnn.models.hyperpriors import Fixed, HalfNormal, Hierarchical
from pmbnn.models.likelihoods import Categorical
from pmbnn.models.likelihoods import Normal as NormalLikelihood
from pmbnn.models.networks import Convolution, Dense, Flatten, Layered, Lenet5
from pmbnn.models.prior_base import Prior
from pmbnn.models.priors import Flat, Horseshoe
from pmbnn.testing import (
    check_dataset,
    check_hyperprior,
    check_likelihood,
    check_network,
    check_prior,
)

pytestmark = pytest.mark.usefixtures("registries")


# Parts of one's own


class Logistic(Prior):
    """Logistic prior."""

    kind: Literal["logistic"] = "logistic"
    factor: Positive = 1.0

    def variable(self, name, scale, dims, shared):
        import pymc as pm

        return pm.Logistic(name, 0.0, np.float64(self.factor) * scale, dims=dims)


class Exponential(Hierarchical):
    """Exponential distribution on the scale."""

    kind: Literal["exponential"] = "exponential"
    rate: Positive = 1.0
    _parameters: ClassVar[frozenset[str]] = frozenset({"rate"})

    def variable(self, name, constants, dims):
        import pymc as pm

        return pm.Exponential(name, constants["hyperprior_rate"], dims=dims)


class Student(NormalLikelihood):
    """Numbers with noise of heavy tails and known scale."""

    kind: Literal["student"] = "student"
    sd: Positive = 1.0

    def observe(self, name, outputs, data):
        import pymc as pm

        mu, sigma = outputs.flatten(), data["noise_sd"]
        return pm.StudentT(
            name, nu=4, mu=mu, sigma=sigma, observed=data["target"], dims="observation"
        )


class Widening(Dense):
    """A dense network of twice the units it is asked for."""

    kind: Literal["widening"] = "widening"

    def parameters(self, input_shape, n_outputs):
        return self._twice.parameters(input_shape, n_outputs)

    def forward(self, x, values, input_shape):
        return self._twice.forward(x, values, input_shape)

    @property
    def _twice(self):
        return Dense(hidden=tuple(2 * width for width in self.hidden), activation=self.activation)


class Stripes(DatasetSpec):
    """Two classes in turns along a line."""

    kind: Literal["stripes"] = "stripes"
    noise: float = 0.1

    n_features: ClassVar[int] = 1
    n_classes: ClassVar[int] = 2
    rows: ClassVar[tuple[int, int]] = (20, 10)

    def load(self):
        rng = np.random.default_rng(self.seed)
        x = rng.uniform(size=(30, 1))
        y = (np.floor(4 * x[:, 0] + self.noise * rng.normal(size=30)) % 2).astype(np.int64)
        return self._dataset(x, y)

    def _dataset(self, x, y):
        same = fit_standardisation(x, "none")
        return Dataset(x[:20], y[:20], x[20:], y[20:], ("x",), ("a", "b"), same, "generated")


# Each is its own class: what the registries hold is that very class.


@pytest.fixture(params=slow_but(["few"], ["few", "every"]))
def counterparts(request, monkeypatch):
    """Parts that another one meets: two of a kind, which differ the most, or every one."""
    few = {
        "PRIORS": {"horseshoe": Horseshoe, "flat": Flat},
        "HYPERPRIORS": {"fixed": Fixed, "half_normal": HalfNormal},
        "LIKELIHOODS": {"categorical": Categorical},
    }
    for name, parts in few.items() if request.param == "few" else ():
        monkeypatch.setattr(f"pmbnn.testing.parts.{name}", parts)


def test_a_prior_of_ones_own_passes(counterparts):
    check_prior(register(Logistic))


def test_a_hyperprior_of_ones_own_passes(counterparts):
    check_hyperprior(register(Exponential)(per="unit"))


def test_a_likelihood_of_ones_own_passes(counterparts):
    check_likelihood(register(Student))


def test_networks_pass():
    check_network(register(Widening)(hidden=(2,)))
    check_network(Layered(layers=(Convolution(filters=2, size=3), Flatten())), (1, 4, 4))


def test_data_sets_pass():
    check_dataset(register(Stripes))
    check_dataset(Circles(noise=0.1, train=20, test=10))


# What is wrong


def wrong(cls, **members):
    """A registered class that differs from a right one in some members."""
    kind = f"wrong_{cls.__name__.lower()}"
    body = {"kind": kind, "__annotations__": {"kind": Literal[kind]}, "__module__": __name__}
    return register(type(f"Wrong{cls.__name__}", (cls,), body | members))


def rejects(check, part, message):
    with pytest.raises(AssertionError, match=message):
        check(part)


def logistic_of(scale_of, name_of=str):
    """A prior's `variable` whose scale, or name, is another."""

    def variable(self, name, scale, dims, shared):
        import pymc as pm

        return pm.Logistic(name_of(name), 0.0, scale_of(scale), dims=dims)

    return variable


def test_a_prior_that_is_not_registered():
    rejects(check_prior, Logistic, "`Logistic` must be registered as `logistic`: put `@pmbnn.reg")


def test_another_base():
    rejects(check_prior, HalfNormal, "must be derived from Prior, got <class")


def test_a_prior_whose_scale_is_none():
    prior = wrong(Logistic, variable=logistic_of(lambda scale: 1.0 + 0 * scale))
    rejects(check_prior, prior, "must have the density of its standard draws over the scale 0.1")


def test_a_prior_that_squares_its_scale():
    prior = wrong(Logistic, variable=logistic_of(lambda scale: scale**2))
    rejects(check_prior, prior, "must have the density of its standard draws")


def test_a_prior_that_names_its_variable_otherwise():
    prior = wrong(Logistic, variable=logistic_of(lambda scale: scale, "the_{}".format))
    rejects(check_prior, prior, "`variable` must name its variable `w`, got `the_w`")


def test_a_prior_with_another_number_of_free_scalars():
    prior = wrong(Logistic, n_free=lambda self, weights: weights + 1)
    rejects(check_prior, prior, "there are as many free scalars as declared, 22, got 21")


def test_a_prior_without_a_density():
    prior = wrong(Logistic, variable=logistic_of(lambda scale: -scale))
    rejects(check_prior, prior, "`wrong_logistic` has no density: ParameterValueError: s > 0")


def test_a_hyperprior_that_is_not_positive():
    def variable(self, name, constants, dims):
        import pymc as pm

        return pm.Normal(name, 0.0, constants["hyperprior_rate"], dims=dims)

    rejects(check_hyperprior, wrong(Exponential, variable=variable), "`layer_1_scale` is positive")


def test_a_hyperprior_whose_constant_is_no_data():
    hyperprior = wrong(Exponential, constants=property(lambda self: {}))
    rejects(check_hyperprior, hyperprior, "cannot be built: KeyError: 'hyperprior_rate'")


def test_a_hyperprior_whose_structure_holds_a_constant():
    hyperprior = wrong(Exponential, structure=property(lambda self: self.model_dump()))
    rejects(check_hyperprior, hyperprior, r"`structure` must not hold the constants \['rate'\]")


def test_a_hyperprior_with_another_number_of_scales():
    hyperprior = wrong(Exponential, n_scales=lambda self, units: 1)
    rejects(check_hyperprior, hyperprior, "as many free scalars as declared, 22, got 23")


def test_a_likelihood_that_observes_the_sum():
    def observe(self, name, outputs, data):
        import pymc as pm

        return pm.Normal(name, outputs.sum(), data["noise_sd"], observed=data["target"].sum())

    rejects(check_likelihood, wrong(Student, observe=observe), r"dims \('observation',\), got \(\)")


def test_a_likelihood_that_names_what_it_observes_otherwise():
    def observe(self, name, outputs, data):
        return Student.observe(self, "z", outputs, data)

    rejects(check_likelihood, wrong(Student, observe=observe), r"variable `y`, got \['z'\]")


def test_a_network_whose_rows_meet():
    def forward(self, x, values, input_shape):
        outputs = Dense.forward(self, x, values, input_shape)
        return outputs - outputs.mean(axis=0)

    rejects(check_network, wrong(Dense, forward=forward), "must depend on its row alone")


def test_a_network_whose_outputs_are_transposed():
    def forward(self, x, values, input_shape):
        return Dense.forward(self, x, values, input_shape).T

    rejects(
        check_network,
        wrong(Dense, forward=forward),
        r"`forward` must give shape \(4, 3\), got \(3, 4\)",
    )


def test_a_network_that_leaves_a_parameter_unused():
    def forward(self, x, values, input_shape):
        return Dense.forward(self, x, values | {"bias_1": 0 * values["bias_1"]}, input_shape)

    rejects(check_network, wrong(Dense, forward=forward), "`forward` must make use of `bias_1`")


def test_a_network_that_declares_a_parameter_twice():
    def parameters(self, input_shape, n_outputs):
        return 2 * Dense.parameters(self, input_shape, n_outputs)

    rejects(check_network, wrong(Dense, parameters=parameters), "must have names of their own")


def test_a_network_that_takes_no_such_rows():
    with pytest.raises(AssertionError, match=r"`lenet5` must take the shape \(2,\): "):
        check_network(Lenet5)


def stripes(**changes):
    """Data that are not what they should be."""

    def load(self):
        loaded = Stripes.load(self)
        return Dataset(**vars(loaded) | {k: f(vars(loaded)[k]) for k, f in changes.items()})

    return load


def other_each_time(x, rng=np.random.default_rng(0)):  # noqa: B008
    return x + rng.normal(size=x.shape)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"load": stripes(x_train=other_each_time)}, "must load the same rows each time"),
        ({"rows": (21, 10)}, r"`rows` must be what is loaded, \(20, 10\), got \(21, 10\)"),
        ({"n_features": 2}, r"`input_shape` must be \(1,\), got \(2,\)"),
        ({"n_classes": 3}, "`n_classes` must be 2, got 3"),
        ({"load": stripes(y_test=lambda y: y + 1)}, "`y_test` must hold class indices from 0 to 1"),
        ({"load": stripes(x_test=lambda x: x / 0 * 0)}, "`x_test` must be finite"),
        ({"load": stripes(x_train=lambda x: x[:3])}, r"`x_train` must have shape \(20, 1\)"),
    ],
)
@pytest.mark.filterwarnings("ignore:(divide by zero|invalid value) encountered:RuntimeWarning")
def test_data_that_are_not_what_they_should_be(members, message):
    rejects(check_dataset, wrong(Stripes, **members), message)


def test_settings_that_cannot_be_a_key():
    class Listed(Moons):
        kind: Literal["listed"] = "listed"
        noise: float = 0.1
        ranges: list[float] = [1.0]

    message = "`Listed` must be hashable: TypeError: unhashable type: 'list'"
    rejects(check_dataset, register(Listed), message)
