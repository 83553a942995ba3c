"""Likelihoods: densities against SciPy, and what they can meet."""

import numpy as np
import pytest
import yaml
from scipy import stats

from pmbnn.data import Moons, Sine
from pmbnn.experiment.checks import free_scalars
from pmbnn.experiment.errors import ConfigError
from pmbnn.experiment.load import load_experiment, resolved_text
from pmbnn.experiment.names import cell_label
from pmbnn.experiment.plan import group_key
from pmbnn.inference.flat import at_flat_inputs, flatten_model
from pmbnn.models.build import build_model, model_data
from pmbnn.models.likelihoods import Categorical, Normal
from pmbnn.models.networks import Dense
from pmbnn.models.priors import Fixed, HalfCauchy, HalfNormal, InverseGamma
from pmbnn.models.priors import Normal as NormalPrior

ROWS = Sine(train=5).load().training
LINE = {"weight_1": np.array([[2.0]]), "bias_1": np.array([0.5])}
LEARNED = {
    "half_normal": (HalfNormal(sigma=0.7), stats.halfnorm(scale=0.7)),
    "half_cauchy": (HalfCauchy(beta=0.7), stats.halfcauchy(scale=0.7)),
    "inverse_gamma": (InverseGamma(alpha=2.0, beta=0.7), stats.invgamma(2.0, scale=0.7)),
}


def build(sd):
    return build_model(Dense(hidden=()), NormalPrior(), Fixed(), Normal(sd=sd), ROWS)


def log_likelihood(model, evaluate, **values):
    given = {model.rvs_to_values[model[name]]: value for name, value in values.items()}
    return evaluate([model.logp(vars=model["y"], sum=False)[0]], given)[0]


def expected(sd):
    return stats.norm(2.0 * ROWS.x[:, 0] + 0.5, sd).logpdf(ROWS.y)


def test_known_noise_is_data(evaluate):
    model = build(0.3)
    np.testing.assert_allclose(log_likelihood(model, evaluate, **LINE), expected(0.3), rtol=1e-12)
    assert [v.name for v in model.free_RVs] == ["weight_1", "bias_1"]
    assert model["noise_sd"].get_value() == 0.3
    assert model_data(Fixed(), ROWS, Normal(sd=0.3))["noise_sd"] == 0.3


@pytest.mark.parametrize("kind", LEARNED)
def test_learned_noise_has_its_hyperprior(kind, evaluate):
    hyperprior, reference = LEARNED[kind]
    model, sd = build(hyperprior), 0.4
    found = log_likelihood(model, evaluate, **LINE, noise=np.log(sd))
    np.testing.assert_allclose(found, expected(sd), rtol=1e-12)
    value = {model.rvs_to_values[model["noise"]]: np.log(sd)}
    (density,) = evaluate([model.logp(vars=model["noise"], jacobian=False)], value)
    np.testing.assert_allclose(density, reference.logpdf(sd), rtol=1e-7)


@pytest.mark.parametrize("sd", [0.3, HalfNormal(), InverseGamma(on="variance")])
def test_free_scalars_are_counted_before_there_is_a_model(sd):
    counted = free_scalars(
        Dense(hidden=()).parameters(ROWS.input_shape, 1), NormalPrior(), Fixed(), Normal(sd=sd)
    )
    assert flatten_model(build(sd), rows=5).size == counted


def test_a_hyperprior_on_the_variance(evaluate):
    model, sd = build(InverseGamma(on="variance")), 0.4
    found = log_likelihood(model, evaluate, **LINE, noise_variance=np.log(sd**2))
    np.testing.assert_allclose(found, expected(sd), rtol=1e-12)
    assert "noise" in {v.name for v in model.deterministics}


def test_parameters_are_mean_and_noise(evaluate):
    model = build(HalfNormal())
    flat = flatten_model(model, rows=5)
    values = LINE | {"noise_log__": np.log(0.4)}
    given = {flat.free[name]: values[name] for name in flat.free}
    given |= {flat.data["x"]: ROWS.x}
    parameters = Normal().parameters(model["y"])
    assert list(parameters) == ["mu", "sigma"]
    mean, sd = evaluate(at_flat_inputs(model, flat, parameters).values(), given)
    np.testing.assert_allclose(mean, 2.0 * ROWS.x[:, 0] + 0.5)
    assert sd.shape == () and sd == pytest.approx(0.4)
    assert "noise" in flat.posterior


@pytest.mark.parametrize(
    ("likelihood", "rows"),
    [(Categorical(), ROWS), (Normal(), Moons(noise=0.3, train=20, test=10).load().training)],
    ids=["classes", "numbers"],
)
def test_a_model_of_other_targets_is_rejected(likelihood, rows):
    with pytest.raises(ValueError, match="`likelihood` must be one of .* for these rows"):
        build_model(Dense(hidden=()), NormalPrior(), Fixed(), likelihood, rows)


# --- experiment files ---------------------------------------------------------------------


@pytest.fixture
def load(tmp_path):
    def read(**sections):
        sweep = {"name": "one", "dataset": "sine", "network": "dense", "prior": "normal"}
        file = tmp_path / "experiment.yaml"
        file.write_text(yaml.safe_dump({"name": "test", "sweeps": [sweep | sections]}))
        return load_experiment(file)

    return read


MOONS = {"kind": "moons", "noise": 0.3}


def test_the_default_follows_the_data(load):
    assert load().cells[0].likelihood == Normal(sd=HalfCauchy(beta=1.0))
    assert load(dataset=MOONS).cells[0].likelihood == Categorical()


def test_noise_is_an_axis_regression_and_hyperpriors(load, tmp_path):
    sd = [0.5, "half_normal", {"kind": "inverse_gamma", "alpha": [1, 3]}]
    experiment = load(likelihood={"kind": "normal", "sd": sd})
    found = [cell.likelihood.sd for cell in experiment.cells]
    assert found == [0.5, HalfNormal(), InverseGamma(alpha=1.0), InverseGamma(alpha=3.0)]
    again = tmp_path / "again.yaml"
    again.write_text(resolved_text(experiment))
    assert load_experiment(again).cells == experiment.cells
    assert len({cell_label(cell) for cell in experiment.cells}) == 4


def test_values_share_a_program_and_kinds_do_not(load):
    sd = [0.5, 1.0, "half_normal", {"kind": "half_normal", "sigma": 2}, "half_cauchy"]
    keys = [group_key(cell) for cell in load(likelihood={"kind": "normal", "sd": sd}).cells]
    assert keys[0] == keys[1] and keys[2] == keys[3]
    assert len(set(keys)) == 3


PLACE = "`sweeps[0].likelihood"
MISTAKES = {
    "classes for numbers": (
        {"likelihood": "categorical"},
        f"{PLACE}` must be normal with data set `sine` (`sweeps[0].dataset`), whose targets are "
        "numbers, got 'categorical'.",
    ),
    "numbers for classes": (
        {"dataset": MOONS, "likelihood": "normal"},
        f"{PLACE}` must be categorical with data set `moons` (`sweeps[0].dataset`), whose "
        "targets are classes, got 'normal'.",
    ),
    "both in one sweep": (
        {"dataset": ["sine", MOONS]},
        f"{PLACE}` must be categorical with data set `moons` (`sweeps[0].dataset[1]`), whose "
        "targets are classes, got 'normal'.",
    ),
    "no noise": (
        {"likelihood": {"kind": "normal", "sd": 0}},
        f"{PLACE}.sd` must be > 0, got 0.",
    ),
    "unknown hyperprior": (
        {"likelihood": {"kind": "normal", "sd": "gamma"}},
        f"{PLACE}.sd` must be one of half_cauchy, half_normal, inverse_gamma, got 'gamma'",
    ),
    "a noise of every unit": (
        {"likelihood": {"kind": "normal", "sd": {"kind": "half_normal", "per": "unit"}}},
        f"{PLACE}` must leave out `sd.per`: there is one standard deviation, of no layer, got "
        "unit.",
    ),
    "snapshots of a regression": (
        {"predict": {"diagnostics": {"steps": [[0, 10]]}}},
        "`sweeps[0].predict.diagnostics.steps` must be empty with data set `sine` "
        "(`sweeps[0].dataset`): snapshots are of classifiers only, got [0, 10].",
    ),
    "negative noise of the data": (
        {"dataset": {"kind": "sine", "noise": -1}},
        "`sweeps[0].dataset.noise` must be >= 0, got -1.",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake(name, load):
    sections, message = MISTAKES[name]
    with pytest.raises(ConfigError) as error:
        load(**sections)
    assert str(error.value).startswith(message)
