"""Likelihoods: densities against SciPy, and what they can meet."""

import re

import numpy as np
import pytest
import yaml
from scipy import stats

from pmbnn.core.errors import ConfigError
from pmbnn.data import Moons, Sine
from pmbnn.data.arrays import Rows
from pmbnn.experiment.cells import cell_label
from pmbnn.experiment.checks import free_scalars
from pmbnn.experiment.load import load_experiment, resolved_text
from pmbnn.experiment.plan import group_key
from pmbnn.inference.flat import at_flat_inputs, flatten_model
from pmbnn.models.build import build_model, model_data
from pmbnn.models.hyperpriors import Fixed, HalfCauchy, HalfNormal, InverseGamma
from pmbnn.models.likelihoods import LIKELIHOODS, Bernoulli, Categorical, Gamma, Normal, StudentT
from pmbnn.models.networks import Dense
from pmbnn.models.noise import SMALLEST_SD, Heteroscedastic, PointNoise
from pmbnn.models.priors import Normal as NormalPrior
from pmbnn.testing.models import check_model

ROWS = Sine(train=5).load().training
LINE = {"weight_1": np.array([[2.0]]), "bias_1": np.array([0.5])}
LEARNED = {
    "half_normal": (HalfNormal(sigma=0.7), stats.halfnorm(scale=0.7)),
    "half_cauchy": (HalfCauchy(beta=0.7), stats.halfcauchy(scale=0.7)),
    "inverse_gamma": (InverseGamma(alpha=2.0, beta=0.7), stats.invgamma(2.0, scale=0.7)),
}


def build(sd):
    return build_with(Normal(sd=sd))


def build_with(likelihood, rows=ROWS):
    return build_model(Dense(hidden=()), NormalPrior(), Fixed(), likelihood, rows)


def log_likelihood(model, evaluate, **values):
    given = {model.rvs_to_values[model[name]]: value for name, value in values.items()}
    return evaluate([model.logp(vars=model["y"], sum=False)[0]], given)[0]


def expected(sd):
    return stats.norm(2.0 * ROWS.x[:, 0] + 0.5, sd).logpdf(ROWS.y)


PAIRS = Rows(ROWS.x, np.stack([ROWS.y, 3 - ROWS.y**2], axis=1), ("x",), (), (), ("a", "b"))
"""Two targets a row."""


def two_means(outputs=2):
    """Values of a linear network, and the means of both targets."""
    slope, start = np.array([2.0, -1.0, 0.3, 0.7])[:outputs], np.array([0.5, 1, 0, -0.2])[:outputs]
    heads = ROWS.x * slope + start
    return {"weight_1": slope[None], "bias_1": start}, heads


def test_known_noise_of_two_targets(evaluate):
    values, means = two_means()
    for sd in (0.3, (0.3, 0.9)):
        model = build_with(Normal(sd=sd), PAIRS)
        found = log_likelihood(model, evaluate, **values)
        np.testing.assert_allclose(found, stats.norm(means, sd).logpdf(PAIRS.y), rtol=1e-12)
    assert model.named_vars_to_dims["y"] == ("observation", "target_name")
    assert list(model.coords["output"]) == list(model.coords["target_name"]) == ["a", "b"]
    # Fits, draws and leave-one-out see a row as one observation.
    (by_row,) = flatten_model(model, rows=None).log_likelihoods.values()
    assert by_row.type.ndim == 1


def test_learned_noise_of_two_targets_is_one_for_each(evaluate):
    values, means = two_means()
    model = build_with(StudentT(scale=HalfNormal(sigma=0.7)), PAIRS)
    given = {"noise": np.log([0.3, 0.9]), "degrees_of_freedom_above_2": np.log([1.0, 5.0])}
    found = log_likelihood(model, evaluate, **values, **given)
    expected = stats.t([3.0, 7.0], means, [0.3, 0.9]).logpdf(PAIRS.y)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert model.named_vars_to_dims["noise"] == ("target_name",)


def test_noise_of_two_targets_by_outputs_of_their_own(evaluate):
    values, heads = two_means(4)
    model = build_with(Normal(sd=Heteroscedastic(link="exp")), PAIRS)
    found = log_likelihood(model, evaluate, **values)
    expected = stats.norm(heads[:, :2], np.exp(heads[:, 2:]) + SMALLEST_SD).logpdf(PAIRS.y)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert list(model.coords["output"]) == ["a", "b", "noise_a", "noise_b"]


@pytest.mark.parametrize(
    "likelihood",
    [Normal(sd=(0.3, 0.9)), Normal(sd=PointNoise()), StudentT(scale=Heteroscedastic())],
)
def test_models_of_two_targets_are_as_any_model(likelihood):
    """Names, dims, free scalars as declared, finite gradients."""
    check_model(Dense(hidden=(2,)), NormalPrior(), Fixed(), likelihood, PAIRS, offsets=(0.1,))


def test_what_does_not_fit_several_targets():
    message = "`likelihood.sd` must be a number, or 2 of them, one for each target, got [0.1]."
    with pytest.raises(ValueError, match=re.escape(message)):
        build_with(Normal(sd=(0.1,)), PAIRS)
    with pytest.raises(ValueError, match=r"`likelihood.sd` must be a number, got \[0.1, 0.2\]"):
        build_with(Normal(sd=(0.1, 0.2)))
    with pytest.raises(
        ValueError, match="must be for regression, as the targets are numbers, 2 a row, got"
    ):
        build_with(Categorical(), PAIRS)


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


OF_NUMBERS = [
    Normal(sd=0.3),
    Normal(sd=HalfNormal()),
    Normal(sd=InverseGamma(on="variance")),
    Normal(sd=Heteroscedastic()),
    StudentT(nu=4.0, scale=0.3),
    StudentT(),
    StudentT(scale=Heteroscedastic(link="exp")),
]


@pytest.mark.parametrize("likelihood", OF_NUMBERS, ids=repr)
def test_free_scalars_are_counted_before_there_is_a_model(likelihood):
    parameters = Dense(hidden=()).parameters(ROWS.input_shape, likelihood.n_outputs(None))
    counted = free_scalars(parameters, NormalPrior(), Fixed(), likelihood)
    assert flatten_model(build_with(likelihood), rows=5).size == counted


TWO = {"weight_1": np.array([[2.0, -1.5]]), "bias_1": np.array([0.5, 0.3])}
"""Weights of two outputs: the mean, and what the scale is made of."""


@pytest.mark.parametrize(
    ("link", "of"), [("exp", np.exp), ("softplus", lambda v: np.log1p(np.exp(v)))]
)
@pytest.mark.parametrize("heavy", [False, True], ids=["normal", "student_t"])
def test_noise_of_a_second_output(link, of, heavy, evaluate):
    noise = Heteroscedastic(link=link)
    likelihood = StudentT(nu=3.0, scale=noise) if heavy else Normal(sd=noise)
    model = build_with(likelihood)
    mean, sd = 2.0 * ROWS.x[:, 0] + 0.5, of(-1.5 * ROWS.x[:, 0] + 0.3) + SMALLEST_SD
    reference = stats.t(3.0, mean, sd) if heavy else stats.norm(mean, sd)
    found = log_likelihood(model, evaluate, **TWO)
    np.testing.assert_allclose(found, reference.logpdf(ROWS.y), rtol=1e-10)
    assert list(model.coords["output"]) == ["y", "noise"]


def test_known_degrees_of_freedom_are_data(evaluate):
    model = build_with(StudentT(nu=3.0, scale=0.4))
    mean = 2.0 * ROWS.x[:, 0] + 0.5
    found = log_likelihood(model, evaluate, **LINE)
    np.testing.assert_allclose(found, stats.t(3.0, mean, 0.4).logpdf(ROWS.y), rtol=1e-10)
    assert model["degrees_of_freedom_nu"].get_value() == 3.0
    assert model["noise_scale"].get_value() == 0.4


def test_learned_degrees_of_freedom_exceed_two_by_a_gamma_variable(evaluate):
    model = build_with(StudentT(nu=Gamma(alpha=3.0, beta=0.2), scale=0.4))
    above = {"degrees_of_freedom_above_2": np.log(1.7)}
    mean = 2.0 * ROWS.x[:, 0] + 0.5
    found = log_likelihood(model, evaluate, **LINE, **above)
    np.testing.assert_allclose(found, stats.t(3.7, mean, 0.4).logpdf(ROWS.y), rtol=1e-10)
    (name,) = above
    value = {model.rvs_to_values[model[name]]: above[name]}
    (density,) = evaluate([model.logp(vars=model[name], jacobian=False)], value)
    np.testing.assert_allclose(density, stats.gamma(3.0, scale=5.0).logpdf(1.7), rtol=1e-7)


@pytest.mark.parametrize(("classes", "kind"), [(128, "int8"), (300, "int32")])
def test_drawn_labels_are_those_of_many_classes(classes, kind):
    certain = np.eye(classes)[None, [0, 127, classes - 1]]
    found = Categorical().sample({"probability": certain}, np.random.default_rng(0))
    assert found.tolist() == [[0, 127, classes - 1]]
    assert found.dtype == kind


LABELLED = Moons(noise=0.3, train=10, test=10).load().training


def test_two_classes_by_one_logit(evaluate):
    """Far into both tails, where the probability itself is 0 or 1."""
    model = build_with(Bernoulli(), LABELLED)
    flat = flatten_model(model, rows=10)
    weights = {"weight_1": np.array([[900.0], [-40.0]]), "bias_1": np.array([0.5])}
    given = {flat.free[name]: weights[name] for name in flat.free}
    given |= {flat.data["x"]: LABELLED.x, flat.data["target"]: LABELLED.y.astype("int32")}
    logit = LABELLED.x @ [900.0, -40.0] + 0.5
    expected = -np.logaddexp(0, np.where(LABELLED.y == 1, -logit, logit))
    assert expected.min() < -800
    found, probability = evaluate(
        [
            flat.log_likelihoods["y"],
            at_flat_inputs(model, flat, Bernoulli().parameters(model["y"]))["probability"],
        ],
        given,
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    both = np.exp([-np.logaddexp(0, logit), -np.logaddexp(0, -logit)]).T
    np.testing.assert_allclose(probability, both, rtol=1e-12)
    assert list(model.coords["output"]) == ["1"]


@pytest.mark.parametrize(
    ("likelihood", "n_classes", "n_outputs"),
    [
        (Categorical(), 3, 3),
        (Bernoulli(), 2, 1),
        (Normal(), None, 1),
        (Normal(sd=Heteroscedastic()), None, 2),
        (StudentT(scale=Heteroscedastic()), None, 2),
    ],
)
def test_outputs_come_from_the_likelihood_and_the_classes(likelihood, n_classes, n_outputs):
    assert likelihood.n_outputs(n_classes) == n_outputs
    assert [k for k, cls in LIKELIHOODS.items() if cls.takes(7)] == ["categorical"]


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
    with pytest.raises(
        ValueError, match="`likelihood` must be for (classification|regression), as"
    ):
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


def test_every_setting_reads_back(load, tmp_path):
    scales = [0.5, "heteroscedastic", {"kind": "heteroscedastic", "link": "exp"}, "half_normal"]
    student = {
        "kind": "student_t",
        "nu": [4, "gamma", {"kind": "gamma", "beta": 1}],
        "scale": scales,
    }
    experiment = load(likelihood=[student, {"kind": "normal", "sd": scales}])
    found = [cell.likelihood for cell in experiment.cells]
    assert len(found) == 16 and StudentT(nu=Gamma(beta=1.0), scale=0.5) in found
    assert Normal(sd=Heteroscedastic(link="exp")) in found
    again = tmp_path / "again.yaml"
    again.write_text(resolved_text(experiment))
    assert load_experiment(again).cells == experiment.cells
    assert len({cell_label(cell) for cell in experiment.cells}) == 16
    # Numbers are data: what is known of them, and not what they are, decides the program.
    assert len({group_key(cell) for cell in experiment.cells}) == 12


def test_outputs_of_a_cell(load):
    (cell,) = load(likelihood={"kind": "normal", "sd": "heteroscedastic"}).cells
    assert cell.n_outputs == 2
    (cell,) = load(dataset=MOONS, likelihood="bernoulli").cells
    assert cell.n_outputs == 1


PLACE = "`sweeps[0].likelihood"
MISTAKES = {
    "classes for numbers": (
        {"likelihood": "categorical"},
        f"{PLACE}` must be normal or student_t with data set `sine` (`sweeps[0].dataset`), whose "
        "targets are numbers, got 'categorical'.",
    ),
    "numbers for classes": (
        {"dataset": MOONS, "likelihood": "normal"},
        f"{PLACE}` must be bernoulli or categorical with data set `moons` (`sweeps[0].dataset`), "
        "whose targets are 2 classes, got 'normal'.",
    ),
    "both in one sweep": (
        {"dataset": ["sine", MOONS]},
        f"{PLACE}` must be bernoulli or categorical with data set `moons` "
        "(`sweeps[0].dataset[1]`), whose targets are 2 classes, got 'normal'.",
    ),
    "a logit for ten classes": (
        {"dataset": "mnist", "likelihood": "bernoulli"},
        f"{PLACE}` must be categorical with data set `mnist` (`sweeps[0].dataset`), whose targets "
        "are 10 classes, got 'bernoulli'.",
    ),
    "degrees of freedom without a variance": (
        {"likelihood": {"kind": "student_t", "nu": 2}},
        f"{PLACE}.nu` must be > 2, got 2.",
    ),
    "a link that there is not": (
        {"likelihood": {"kind": "normal", "sd": {"kind": "heteroscedastic", "link": "log"}}},
        f"{PLACE}.sd.link` must be one of exp, softplus, got 'log'",
    ),
    "no noise": (
        {"likelihood": {"kind": "normal", "sd": 0}},
        f"{PLACE}.sd` must be > 0, got 0.",
    ),
    "unknown hyperprior": (
        {"likelihood": {"kind": "normal", "sd": "gamma"}},
        f"{PLACE}.sd` must be one of half_cauchy, half_normal, heteroscedastic, "
        "inverse_gamma, point, got 'gamma'",
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
