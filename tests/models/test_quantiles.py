"""Quantile functions of priors, hyperpriors and likelihoods: what is said is so, and is checked."""

import numpy as np
import pymc as pm
import pytest
import yaml
from posteriors import has_quantiles
from scipy import stats
from typer.testing import CliRunner

import pmbnn as pb
from pmbnn.cli import app
from pmbnn.core.errors import ConfigError
from pmbnn.data.arrays import Rows
from pmbnn.inference.flat import flat_vector, flatten_model
from pmbnn.inference.log_density import place_of
from pmbnn.models.build import build_model
from pmbnn.models.hyperpriors import HYPERPRIORS, Fixed, InverseGamma
from pmbnn.models.likelihoods import Gamma, Normal, StudentT
from pmbnn.models.networks import Dense
from pmbnn.models.noise import Heteroscedastic
from pmbnn.models.priors import PRIORS, Horseshoe, ScaleMixture, TrainableMean
from pmbnn.models.pymc_distributions import WITH_QUANTILES

RNG = np.random.default_rng(3)
ROWS = Rows(RNG.normal(size=(12, 2)), RNG.normal(size=12), ("a", "b"), ())


def network(prior="normal", hyperprior="fixed", likelihood=None):
    return build_model(Dense(hidden=(3,)), prior, hyperprior, likelihood or Normal(sd=0.5), ROWS)


OTHERS = (Horseshoe(per="unit"), Horseshoe(slab_scale=2.0), ScaleMixture(learned=True))
ENTRIES = (*(cls() for kind, cls in PRIORS.items() if kind not in ("cell", "pymc")), *OTHERS)


@pytest.mark.parametrize("prior", ENTRIES, ids=str)
def test_priors(prior):
    hyperprior = Fixed() if prior.has_scale else Fixed(scale=None)
    assert has_quantiles(network(prior, hyperprior)) == prior.has_quantiles


@pytest.mark.parametrize(
    "hyperprior",
    [
        *(cls() for kind, cls in HYPERPRIORS.items() if kind != "pymc" and not cls.is_point),
        InverseGamma(on="variance", per="unit"),
    ],
    ids=str,
)
def test_hyperpriors(hyperprior):
    assert has_quantiles(network(hyperprior=hyperprior)) == hyperprior.has_quantiles


@pytest.mark.parametrize(
    "likelihood",
    [Normal(), Normal(sd=Heteroscedastic()), StudentT(), StudentT(nu=Gamma()), StudentT(nu=3.0)],
    ids=str,
)
def test_likelihoods(likelihood):
    assert has_quantiles(network(likelihood=likelihood)) == likelihood.has_quantiles


def test_weights_with_learned_means_have_their_scale_and_mean(evaluate):
    """weight = scale · (spread · z' + z), variable by variable."""
    flat = flatten_model(network(TrainableMean(spread=3.0), Fixed(scale=0.5)), len(ROWS.y))
    z = RNG.standard_normal(flat.size)
    coordinates = flat_vector(flat)
    given = {coordinates: z, flat.data["prior_scale"]: np.float64(0.5)}
    (vector,) = evaluate([place_of(flat, coordinates)], given)
    value = flat.layout.unravel(vector)
    parts = flat.layout.unravel(z)
    np.testing.assert_allclose(value["weight_1_mean"], 3.0 * parts["weight_1_mean"])
    expected = 0.5 * (3.0 * parts["weight_1_mean"] + parts["weight_1"])
    np.testing.assert_allclose(value["weight_1"], expected)


def test_standard_normal_coordinates_of_a_law(evaluate):
    """The quantile function at Φ(z), against SciPy."""
    with pm.Model() as model:
        pm.Gumbel("a", np.float64(0.3), np.float64(0.7), shape=3)
    flat = flatten_model(model, len(ROWS.y))
    coordinates = flat_vector(flat)
    z = np.array([-1.5, 0.0, 2.0])
    (value,) = evaluate([place_of(flat, coordinates)], {coordinates: z})
    np.testing.assert_allclose(value, stats.gumbel_r(0.3, 0.7).ppf(stats.norm.cdf(z)), rtol=1e-6)


# What an experiment refuses

SWEEP = {
    "name": "toy",
    "dataset": {"kind": "moons", "noise": 0.3, "train": 60, "test": 40},
    "network": {"kind": "dense", "hidden": [[2]]},
    "prior": "normal",
    "inference": ["mclmc", {"engine": "smc"}],
}
AT = "sweeps[0]"
REASON = (
    f"with engine smc (`{AT}.inference[1].engine`), which needs quantile functions that JAX "
    "computes, got"
)
SMC_PRIORS = (
    "must be cauchy or cell or correlated_normal or horseshoe or laplace or multivariate_t or "
    "normal or pymc or trainable_mean"
)
MISTAKES = {
    "prior": ({"prior": ["normal", "student_t"]}, f"`{AT}.prior[1]` {SMC_PRIORS} {REASON} 'stu"),
    "mixture": ({"prior": "scale_mixture"}, f"`{AT}.prior` {SMC_PRIORS} {REASON} 'scale_mixture'."),
    "flat": ({"prior": "flat"}, f"`{AT}.prior` {SMC_PRIORS} {REASON} 'flat'."),
    "distribution": (
        {"prior": {"kind": "pymc", "dist": "StudentT", "nu": 4}},
        f"`{AT}.prior.dist` must be {' or '.join(WITH_QUANTILES)} {REASON} 'StudentT'.",
    ),
    "hyperprior": (
        {"hyperprior": {"kind": "pymc", "dist": "Gamma", "alpha": 2, "beta": 1}},
        f"`{AT}.hyperprior.dist` must be {' or '.join(WITH_QUANTILES)} {REASON} 'Gamma'.",
    ),
    "noise": (
        {"dataset": {"kind": "sine"}, "likelihood": "student_t"},
        f"`{AT}.likelihood.nu` must be a number {REASON} 'gamma'.",
    ),
}


@pytest.fixture
def refused(tmp_path, monkeypatch):
    """Check that the command and `pb.run` refuse a sweep, and that other samplers take it."""
    monkeypatch.chdir(tmp_path)

    def check(changes, message, plugins=()):
        content = {"name": "test", "plugins": [*plugins], "sweeps": [SWEEP | changes]}
        (file := tmp_path / "test.yaml").write_text(yaml.safe_dump(content))
        done = CliRunner().invoke(app, ["sweep", str(file), "--out", str(tmp_path / "out")])
        assert done.exit_code == 2
        assert message.replace(" ", "") in "".join(done.output.split())
        with pytest.raises(ConfigError) as caught:
            pb.run(content, out=tmp_path / "out", quiet=True)
        assert message in str(caught.value)
        assert not list(tmp_path.glob("out/cells/*"))
        content["sweeps"][0]["inference"] = ["mclmc", "nuts"]
        file.write_text(yaml.safe_dump(content))
        assert pb.load_experiment(file).cells

    return check


@pytest.mark.parametrize("name", MISTAKES)
def test_what_smc_cannot_sample_is_refused_before_anything_is_fitted(name, refused):
    refused(*MISTAKES[name])


PLUGIN = """
from typing import ClassVar, Literal

import numpy as np
import pmbnn as pb
import pymc as pm


@pb.register
class Heavy(pb.Prior):
    kind: Literal["heavy"] = "heavy"

    def variable(self, name, scale, dims, shared):
        return pm.StudentT(name, nu=np.float64(3.0), mu=0.0, sigma=scale, dims=dims)


@pb.register
class Ordered(pb.Prior):
    kind: Literal["ordered"] = "ordered"

    def variable(self, name, scale, dims, shared):
        ordered = pm.distributions.transforms.ordered
        return pm.Normal(name, 0.0, scale, dims=dims, default_transform=ordered)


@pb.register
class Logistic(pb.Prior):
    kind: Literal["logistic"] = "logistic"
    distribution = "Logistic"


@pb.register
class Wide(pb.Hierarchical):
    kind: Literal["wide"] = "wide"
    alpha: pb.Positive = 2.0
    beta: pb.Positive = 1.0
    _parameters: ClassVar[tuple[str, ...]] = ("alpha", "beta")
    distribution = "Gamma"


@pb.register
class LogNormal(pb.Hierarchical):
    kind: Literal["log_normal"] = "log_normal"
    sigma: pb.Positive = 1.0
    _parameters: ClassVar[tuple[str, ...]] = ("sigma",)
    distribution = "LogNormal"


@pb.register
class Noisy(pb.likelihoods.Normal):
    kind: Literal["noisy"] = "noisy"

    @property
    def n_free(self):
        return 2

    def observe(self, name, outputs, data):
        pm.Gamma("extra", np.float64(2.0), np.float64(1.0))
        return super().observe(name, outputs, data)
"""

SMC_HYPERPRIORS = "must be fixed or half_cauchy or half_normal or inverse_gamma or pymc"
OWN_MISTAKES = {
    "heavy": ({"prior": ["logistic", "heavy"]}, f"`{AT}.prior[1]` {SMC_PRIORS} {REASON} 'heavy'."),
    "ordered": ({"prior": "ordered"}, f"`{AT}.prior` {SMC_PRIORS} {REASON} 'ordered'."),
    "wide": (
        {"hyperprior": ["log_normal", "wide"]},
        f"`{AT}.hyperprior[1]` {SMC_HYPERPRIORS} {REASON} 'wide'.",
    ),
    "noisy": (
        {"dataset": {"kind": "sine"}, "likelihood": "noisy"},
        f"`{AT}.likelihood` must be normal or student_t {REASON} 'noisy'.",
    ),
}


@pytest.mark.parametrize("name", OWN_MISTAKES)
def test_parts_of_plugins_whose_variables_have_no_quantiles_are_refused(
    name, refused, registries, tmp_path
):
    (tmp_path / "own.py").write_text(PLUGIN)
    refused(*OWN_MISTAKES[name], ["own.py"])
