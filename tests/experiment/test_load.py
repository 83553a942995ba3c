"""Experiment files: what they stand for, and one clear line for each way to get them wrong."""

from pathlib import Path

import pytest
import yaml

from pmbnn.core.spec import Tune
from pmbnn.data import Circles, Moons
from pmbnn.experiment.load import ConfigError, load_experiment, resolved_text
from pmbnn.experiment.yaml_file import flow_text, parse_yaml, read_yaml, yaml_text
from pmbnn.inference.settings import Inference
from pmbnn.models.hyperpriors import Fixed, HalfNormal
from pmbnn.models.networks import Dense
from pmbnn.models.priors import Cauchy, Flat, Laplace, Normal
from pmbnn.prediction.settings import Fresh, Map, Predict

EXPERIMENTS = Path(__file__).parents[2] / "experiments"

DOCUMENTED = """
name: priors
sweeps:
  - name: synthetic
    dataset:
      - {kind: moons,   noise: 0.4, train: 700, test: 300, seed: [0, 1, 2, 3, 4]}
      - {kind: circles, noise: 0.35, factor: 0.5, train: 700, test: 300, seed: [0, 1, 2, 3, 4]}
    network: {kind: dense, hidden: [[5, 5]], activation: tanh}
    prior: [normal, laplace, cauchy, flat]
    hyperprior: [fixed, half_normal, half_cauchy, inverse_gamma]
    inference: {guide: mean_field, steps: 10000, learning_rate: 0.02, restarts: 3}
    predict: {draws: 1000, map: {resolution: 100}}
"""

SECTIONS = {
    "dataset": "{kind: moons, noise: 0.4}",
    "network": "dense",
    "prior": "normal",
}


@pytest.fixture
def load(tmp_path):
    """Experiment of a YAML text."""

    def load_text(text):
        path = tmp_path / "experiment.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_experiment(path)

    return load_text


def one_sweep(name="one", **sections):
    """Text of a sweep with the given sections; ``None`` leaves one out."""
    lines = {"name": name, **SECTIONS, **sections}
    return "".join(f"\n    {key}: {text}" for key, text in lines.items() if text is not None)


def experiment(*sweeps, **sections):
    """Text of an experiment with one sweep, or with those given."""
    listed = sweeps or (one_sweep(**sections),)
    return "name: test\nsweeps:" + "".join(f"\n  -{sweep}" for sweep in listed)


# What a file stands for


def test_documented_grid(load):
    (sweep,) = load(DOCUMENTED).sweeps
    assert len(sweep.cells) == 130
    assert len({cell.dataset for cell in sweep.cells}) == 10
    assert len({(cell.prior, cell.hyperprior) for cell in sweep.cells}) == 13
    assert list(sweep.left_out) == [
        "prior flat with half_normal, half_cauchy, inverse_gamma: "
        "`flat` has no scale to put a hyperprior on"
    ]


def test_defaults(load):
    (cell,) = load(experiment()).cells
    assert cell.sweep == "one"
    assert cell.dataset == Moons(noise=0.4)
    assert (cell.network, cell.prior, cell.hyperprior) == (Dense(), Normal(), Fixed())
    assert (cell.inference, cell.predict) == (Inference(), Predict())


def test_datasets_vary_slowest_in_the_order_of_the_file(load):
    text = experiment(
        dataset="[{kind: circles, noise: [0.3, 0.1], seed: [7, 1]}, {kind: moons, noise: 1}]",
        prior="[normal, laplace]",
    )
    cells = load(text).cells
    circles = [Circles(noise=n, seed=s) for n in (0.3, 0.1) for s in (7, 1)]
    expected = [(d, p) for d in [*circles, Moons(noise=1)] for p in (Normal(), Laplace())]
    assert [(cell.dataset, cell.prior) for cell in cells] == expected


@pytest.mark.parametrize(
    ("hidden", "expected"),
    [
        ("[[5, 5]]", [(5, 5)]),
        ("[[]]", [()]),
        ("[[5, 5], [10], []]", [(5, 5), (10,), ()]),
    ],
)
def test_a_value_that_is_a_list_is_written_as_a_list_of_lists(load, hidden, expected):
    cells = load(experiment(network=f"{{kind: dense, hidden: {hidden}}}")).cells
    assert [cell.network.hidden for cell in cells] == expected


def test_scales_are_an_axis_but_a_tuned_scale_is_one_cell(load):
    text = "[{kind: fixed, scale: [0.1, 1, {tune: {log: [0.1, 10, 7]}}]}]"
    cells = load(experiment(hyperprior=text)).cells
    assert [c.hyperprior.scale for c in cells] == [0.1, 1.0, Tune(log=(0.1, 10.0, 7))]


def test_nested_settings_expand(load):
    text = "{fresh: {size: 10}, map: [{resolution: [50, 60]}, {margin: 0.5}]}"
    cells = load(experiment(predict=text)).cells
    maps = [Map(resolution=50), Map(resolution=60), Map(margin=0.5)]
    assert [c.predict for c in cells] == [Predict(fresh=Fresh(size=10), map=m) for m in maps]


def test_kinds_are_an_axis(load):
    text = "{kind: [normal, cauchy], fan_in: [false, true]}"
    cells = load(experiment(prior=text)).cells
    expected = [cls(fan_in=f) for cls in (Normal, Cauchy) for f in (False, True)]
    assert [cell.prior for cell in cells] == expected


def test_flat_is_one_cell_whatever_the_scales(load):
    text = experiment(
        prior="[flat, normal]", hyperprior="[half_normal, {kind: fixed, scale: [0.1, 1]}]"
    )
    pairs = [(cell.prior, cell.hyperprior) for cell in load(text).cells]
    assert pairs == [
        (Flat(), Fixed(scale=None)),
        (Normal(), HalfNormal()),
        (Normal(), Fixed(scale=0.1)),
        (Normal(), Fixed(scale=1.0)),
    ]


def test_scalars_follow_yaml_1_2(load):
    text = experiment(
        dataset="{kind: moons, noise: 1e-3, seed: 010}",
        hyperprior="{kind: half_normal, on: variance}",
        inference="{learning_rate: 1E-2}",
    )
    (cell,) = load(text).cells
    assert (cell.dataset.noise, cell.dataset.seed) == (1e-3, 10)
    assert cell.hyperprior == HalfNormal(on="variance")
    assert cell.inference.learning_rate == 0.01


def test_anchors_and_merges(load):
    data = "&base {kind: moons, noise: 0.4}"
    (_, other) = load(
        experiment(dataset=f"[{data}, {{<<: *base, noise: 0.2}}]"),
    ).cells
    assert other.dataset == Moons(noise=0.2)


ROUND_TRIPS = {
    "documented": DOCUMENTED,
    "flat only": experiment(prior="flat", hyperprior="[half_normal, fixed]"),
    "tuned": experiment(hyperprior="{kind: fixed, scale: [{tune: {log: [1e-7, 1, 3]}}, 1e-9]}"),
    "lists": experiment(network="{kind: dense, hidden: [[], [3], [4, 5]]}"),
    "text like a number": experiment(dataset="{kind: mnist, folder: ['1e-3', 'on', 'null', '']}"),
    "two sweeps": experiment(one_sweep("a"), one_sweep("b", prior="flat")),
    "name like a number": "name: '1e3'\nsweeps: [{name: '1'," + ", ".join(
        f"{key}: {text}" for key, text in SECTIONS.items()
    ) + "}]",
}  # fmt: skip


@pytest.mark.parametrize("text", ROUND_TRIPS.values(), ids=ROUND_TRIPS)
def test_resolved_experiment_reads_back(load, text):
    first = load(text)
    again = load(resolved_text(first))
    assert again == first
    assert resolved_text(again) == resolved_text(first)


def test_resolved_experiment_has_every_default(load):
    (sweep,) = yaml.safe_load(resolved_text(load(experiment())))["sweeps"]
    assert sweep["hyperprior"] == [{"kind": "fixed", "scale": 1.0}]
    assert set(sweep["inference"][0]) == set(Inference.model_fields)
    assert sweep["network"][0]["hidden"] == [[5, 5]]


# Files that cannot be read


def test_missing_file(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml cannot be read: No such file"):
        load_experiment(tmp_path / "none.yaml")


def test_folder_in_place_of_a_file(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_experiment(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"name: \xff", r"experiment\.yaml is not UTF-8 text \(byte 6\)\."),
        ("name: a\nsweeps: [1", r"yaml, line 2, column 11: expected ',' or '\]'"),
        ("name: a\nsweeps: \x01", r"yaml, line 2, column 9: special characters"),
        ("name: a\nsweeps: 1\nname: b", r"line 3, column 1: key `name` appears twice\."),
        ("name: a\n---\nname: b", r"line 2, column 1: but found another document"),
        ("[1]: 2", r"line 1, column 1: found unhashable key"),
        ("name: " + 5000 * "1", r"experiment\.yaml: Exceeds the limit"),
        ("- 1", "must hold a mapping with `name` and `sweeps`"),
        ("", r"experiment\.yaml is empty\."),
        ("# nothing", r"experiment\.yaml is empty\."),
    ],
)
def test_unreadable_file(load, text, message):
    with pytest.raises(ConfigError, match=message) as caught:
        load(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        51 * "[" + 51 * "]",
        3_000 * "[" + 3_000 * "]",
        51 * "{a: " + 51 * "}",
        "\n" + 51 * "- " + "a",
        "\n" + 3_000 * "- " + "a",
    ],
    ids=["51 lists", "3,000 lists", "51 mappings", "51 items", "3,000 items"],
)
def test_nested_too_deeply(load, text):
    with pytest.raises(ConfigError, match="values and 50 levels, aliases written out"):
        load(f"name: {text}")


def test_a_list_within_itself(load):
    with pytest.raises(ConfigError, match=r"line 7, column 12: found unconstructable recursive"):
        load(experiment(prior="&a [*a]"))


# Experiments that are not valid

FIXED_NULL = "{kind: fixed, scale: null}"
TUNED = "{kind: fixed, scale: {tune: {log: [0.1, 10, 3]}}}"

MISTAKES = [
    # the outline
    ("sweeps: [{}]", "`name` is missing."),
    ("name: a", "`sweeps` must be a list with at least one sweep, got null."),
    ("name: a\nsweeps: []", "`sweeps` must be a list with at least one sweep, got []."),
    ("name: a\nsweeps: [x]", "`sweeps[0]` must be a mapping, got 'x'."),
    (
        "name: a\nsweep: []",
        "The experiment file has no key `sweep`; did you mean `sweeps`? "
        "Choices: contrasts, data_folder, margin, name, overrides, plugins, published, sweeps.",
    ),
    (
        "name: a/b\nsweeps: []",
        "`name` must be text of at most 80 letters, digits, `-` and `_`, got 'a/b'.",
    ),
    (
        experiment(name=7),
        "`sweeps[0].name` must be text of at most 80 letters, digits, `-` and `_`, got 7.",
    ),
    (
        experiment(one_sweep("a"), one_sweep("a")),
        "`sweeps[1].name` must not repeat `sweeps[0].name`, got 'a'.",
    ),
    (
        experiment(one_sweep("a"), one_sweep("b")),
        "`sweeps[1]` repeats a cell of sweep `a`: moons, dense, normal, fixed.",
    ),
    (
        experiment(priors="normal"),
        "`sweeps[0]` has no key `priors`; did you mean `prior`? Choices: dataset, hyperprior, "
        "inference, likelihood, name, network, predict, prior.",
    ),
    (experiment(network=None), "`sweeps[0].network` is missing."),
    # sections
    (
        experiment(prior="[normal, laplace, gaussian]"),
        "`sweeps[0].prior[2]` must be one of cauchy, cell, correlated_normal, flat, "
        "horseshoe, laplace, matrix_normal, multivariate_t, normal, pymc, "
        "r2d2, scale_mixture, student_t, trainable_mean, got 'gaussian'.",
    ),
    (
        experiment(prior="{kind: [normal, laplase]}"),
        "`sweeps[0].prior.kind[1]` must be one of cauchy, cell, correlated_normal, flat, "
        "horseshoe, laplace, matrix_normal, multivariate_t, normal, pymc, "
        "r2d2, scale_mixture, student_t, trainable_mean, got 'laplase'; did you mean `laplace`?",
    ),
    (
        experiment(prior="3"),
        "`sweeps[0].prior` must be a name, a mapping or a list of those, got 3.",
    ),
    (
        experiment(prior="null"),
        "`sweeps[0].prior` must be a name, a mapping or a list of those, got null.",
    ),
    (experiment(prior="[]"), "`sweeps[0].prior` must not be empty."),
    (
        experiment(prior="{fan_in: true}"),
        "`sweeps[0].prior.kind` is missing. Choices: cauchy, cell, correlated_normal, flat, "
        "horseshoe, laplace, matrix_normal, multivariate_t, normal, pymc, "
        "r2d2, scale_mixture, student_t, trainable_mean.",
    ),
    (
        experiment(prior="[normal, normal]"),
        "`sweeps[0].prior[1]` must not repeat `sweeps[0].prior[0]`, got 'normal'.",
    ),
    (
        experiment(prior="[normal, {kind: normal, fan_in: false}]"),
        "`sweeps[0].prior[1]` repeats a choice that `sweeps[0].prior[0]` has made.",
    ),
    (
        experiment(inference="fast"),
        "`sweeps[0].inference` must be one of compiled, mams, mclmc, mile, nuts, pymc, smc, "
        "got 'fast'.",
    ),
    (
        experiment(dataset="[{kind: moons, nosie: 1}]"),
        "`sweeps[0].dataset[0]` has no key `nosie`; did you mean `noise`? "
        "Choices: calibration, kind, noise, seed, test, train.",
    ),
    (
        experiment(dataset="{kind: table, path: houses.csv}"),
        "`sweeps[0].dataset` has no key `path`; did you mean `file`? Choices: calibration, "
        "categorical, decimal, encoding, features, file, kind, missing, redundant, seed, "
        "separator, split, standardise, standardise_target, target, task, thousands, without.",
    ),
    (
        experiment(hyperprior="{kind: half_normal, 3: 1}"),
        "`sweeps[0].hyperprior` has no key `3`. Choices: centred, kind, on, per, sigma.",
    ),
    # values
    (experiment(dataset="moons"), "`sweeps[0].dataset.noise` is missing."),
    (
        experiment(dataset="[{kind: moons, noise: 1}, {kind: moons, noise: -1}]"),
        "`sweeps[0].dataset[1].noise` must be > 0, got -1.",
    ),
    (
        experiment(dataset="{kind: moons, noise: abc}"),
        "`sweeps[0].dataset.noise` must be a number, got 'abc'.",
    ),
    (
        experiment(dataset="{kind: moons, noise: true}"),
        "`sweeps[0].dataset.noise` must be a number, got true.",
    ),
    (
        experiment(dataset="{kind: moons, noise: null}"),
        "`sweeps[0].dataset.noise` must be a number, got null.",
    ),
    (
        experiment(dataset="{kind: moons, noise: .nan}"),
        "`sweeps[0].dataset.noise` must be a finite number, got nan.",
    ),
    (
        experiment(dataset="{kind: moons, noise: [0.1, .inf]}"),
        "`sweeps[0].dataset.noise[1]` must be a finite number, got inf.",
    ),
    (
        experiment(dataset="{kind: moons, noise: [[0.1]]}"),
        "`sweeps[0].dataset.noise[0]` must be a number, got [0.1].",
    ),
    (
        experiment(dataset="{kind: moons, noise: []}"),
        "`sweeps[0].dataset.noise` must not be empty.",
    ),
    (
        experiment(dataset="{kind: moons, noise: 1, seed: [0, 3, 3]}"),
        "`sweeps[0].dataset.seed[2]` must not repeat `sweeps[0].dataset.seed[1]`, got 3.",
    ),
    (
        experiment(dataset="{kind: moons, noise: [1, 1.0]}"),
        "`sweeps[0].dataset.noise[1]` must not repeat `sweeps[0].dataset.noise[0]`, got 1.0.",
    ),
    (
        experiment(dataset="{kind: moons, noise: 1, seed: 4294967296}"),
        "`sweeps[0].dataset.seed` must be < 4294967296, got 4294967296.",
    ),
    (
        experiment(dataset="{kind: moons, noise: 1, train: 1e2}"),
        "`sweeps[0].dataset.train` must be a whole number, got 100.0.",
    ),
    (
        experiment(dataset="{kind: moons, noise: 1, train: 9}"),
        "`sweeps[0].dataset.train` must be >= 10, got 9.",
    ),
    (
        experiment(dataset="{kind: mnist, folder: 3}"),
        "`sweeps[0].dataset.folder` must be text, got 3.",
    ),
    (
        experiment(prior="{kind: normal, fan_in: yes}"),
        "`sweeps[0].prior.fan_in` must be true or false, got 'yes'.",
    ),
    (
        experiment(network="{kind: dense, activation: [tanh, rely]}"),
        "`sweeps[0].network.activation[1]` must be one of relu, sigmoid, tanh, got 'rely'; "
        "did you mean `relu`?",
    ),
    (
        experiment(inference="{validation: 0.6}"),
        "`sweeps[0].inference.validation` must be <= 0.5, got 0.6.",
    ),
    (
        experiment(inference="{steps: 10, epochs: 2}"),
        "`sweeps[0].inference` must set `steps` or `epochs`, not both.",
    ),
    (
        experiment(predict="{map: null}"),
        "`sweeps[0].predict.map` must be a mapping, got null.",
    ),
    (
        experiment(predict="{map: [{resolution: 5}, {resolution: [6, 1]}]}"),
        "`sweeps[0].predict.map[1].resolution[1]` must be >= 2, got 1.",
    ),
    # lists as values
    (
        experiment(network="{kind: dense, hidden: [5, 5]}"),
        "`sweeps[0].network.hidden` must be a list of lists, because a list alone is an axis of "
        "the grid: write [[5, 5]], got [5, 5].",
    ),
    (
        experiment(network="{kind: dense, hidden: []}"),
        "`sweeps[0].network.hidden` must be a list of lists, because a list alone is an axis of "
        "the grid: write [[]], got [].",
    ),
    (
        experiment(network="{kind: dense, hidden: 5}"),
        "`sweeps[0].network.hidden` must be a list of lists, because a list alone is an axis of "
        "the grid: write [[5]], got 5.",
    ),
    (
        experiment(network="{kind: dense, hidden: [[5], 6]}"),
        "`sweeps[0].network.hidden[1]` must be a list, like the other values of its axis, got 6.",
    ),
    (
        experiment(network="{kind: dense, hidden: [[5], [5, 0]]}"),
        "`sweeps[0].network.hidden[1][1]` must be >= 1, got 0.",
    ),
    (
        experiment(network=f"{{kind: dense, hidden: [{[1] * 101}]}}"),
        "`sweeps[0].network.hidden[0]` must have at most 100 entries, got [1, 1, 1, 1, 1, 1, 1, "
        "1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1….",
    ),
    # scales
    (
        experiment(hyperprior="[{kind: fixed, scale: [1, 0]}]"),
        "`sweeps[0].hyperprior[0].scale[1]` must be > 0, got 0.",
    ),
    (
        experiment(hyperprior="{kind: fixed, scale: wide}"),
        "`sweeps[0].hyperprior.scale` must be a number, got 'wide'.",
    ),
    (
        experiment(hyperprior="{kind: fixed, scale: {tun: 1}}"),
        "`sweeps[0].hyperprior.scale` has no key `tun`; did you mean `tune`? Choices: match, tune.",
    ),
    (
        experiment(hyperprior="{kind: fixed, scale: {}}"),
        "`sweeps[0].hyperprior.scale` must have one of the keys match, tune, got {}.",
    ),
    (
        experiment(hyperprior="{kind: fixed, scale: {match: 3}}"),
        "`sweeps[0].hyperprior.scale.match` must be a mapping, got 3.",
    ),
    (
        experiment(hyperprior="{kind: fixed, scale: {match: {kernel: matern}}}"),
        "`sweeps[0].hyperprior.scale.match.kernel` must be one of matern12, matern32, matern52, "
        "rbf, got 'matern'; did you mean `matern52`?",
    ),
    (
        experiment(hyperprior="{kind: fixed, scale: [1, {match: {amplitude: 0}}]}"),
        "`sweeps[0].hyperprior.scale[1].match.amplitude` must be > 0, got 0.",
    ),
    (
        experiment(network="{kind: dense, hidden: [[5, 5]]}",
                   hyperprior="{kind: fixed, scale: [1, [1, 0.5]]}"),
        "`sweeps[0].hyperprior.scale[1]` must have 3 scales, one for each layer of network "
        "`dense`, got 2 (`sweeps[0].network`).",
    ),
    (
        experiment(hyperprior="{kind: fixed, scale: [[1, -0.5]]}"),
        "`sweeps[0].hyperprior.scale[0][1]` must be > 0, got -0.5.",
    ),
    (
        experiment(prior="{kind: horseshoe, slab_scale: 1}",
                   hyperprior="{kind: fixed, scale: {match: {}}}"),
        "`sweeps[0].hyperprior.scale` must not be matched with prior `horseshoe`, whose weights "
        "are not the scale times those of scale 1, as with a slab (`sweeps[0].network`).",
    ),
    (
        experiment(hyperprior="{kind: fixed, scale: {tune: {lin: [1, 2, 3]}}}"),
        "`sweeps[0].hyperprior.scale.tune` has no key `lin`. Choices: log.",
    ),
    (
        experiment(hyperprior="{kind: fixed, scale: {tune: {log: 5}}}"),
        "`sweeps[0].hyperprior.scale.tune.log` must be a list, got 5.",
    ),
    (
        experiment(hyperprior="{kind: fixed, scale: {tune: {log: [1, 2]}}}"),
        "`sweeps[0].hyperprior.scale.tune.log[2]` is missing.",
    ),
    (
        experiment(hyperprior="{kind: fixed, scale: {tune: {log: [10, 1, 3]}}}"),
        "`sweeps[0].hyperprior.scale.tune` must have low < high in `log`, got 10 and 1.",
    ),
    (
        experiment(prior="{kind: student_t, nu: [3, 0]}"),
        "`sweeps[0].prior.nu[1]` must be > 0, got 0.",
    ),
    (
        experiment(prior="{kind: scale_mixture, proportion: 1}"),
        "`sweeps[0].prior.proportion` must be < 1, got 1.",
    ),
    (
        experiment(prior="[normal, {kind: scale_mixture, sigma_2: [0.1, 2]}]"),
        "`sweeps[0].prior[1]` must have `sigma_1` >= `sigma_2`, which tells the components "
        "apart, got 1 and 2.",
    ),
    (
        experiment(prior="[normal, {kind: pymc, dist: Logistic, s: [1, 0]}]"),
        "`sweeps[0].prior[1].s[1]` must have s > 0 in pm.Logistic, got s 0.",
    ),
    (
        experiment(prior="{kind: pymc, dist: [Logistic, Gumbl]}"),
        "`sweeps[0].prior.dist[1]` must be one of AsymmetricLaplace, Beta, Cauchy, ChiSquared, "
        "Exponential, Gamma, Gumbel, HalfCauchy, HalfNormal, HalfStudentT, InverseGamma, "
        "Kumaraswamy, Laplace, LogNormal, Logistic, Moyal, Normal, Pareto, SkewStudentT, StudentT, "
        "Triangular, TruncatedNormal, Uniform, Wald, Weibull, got 'Gumbl'; did you mean `Gumbel`?",
    ),
    (
        experiment(hyperprior="{kind: pymc, dist: Uniform, lower: -1}"),
        "`sweeps[0].hyperprior.lower` must leave pm.Uniform no negative numbers, got lower -1.",
    ),
    (
        experiment(prior="{kind: scale_mixture, spread: 0.5}"),
        "`sweeps[0].prior` must have `learned: true` to set `spread`, got 0.5.",
    ),
    (
        experiment(inference="{guide: map}", predict="{mixture: [best, stacked]}"),
        "`sweeps[0].predict.mixture[1]` must not be stacked with guide map "
        "(`sweeps[0].inference.guide`), a point, got 'stacked'.",
    ),
    (
        experiment(network="{kind: dense, hidden: [[50, 50]]}", predict="{mixture: stacked}"),
        "`sweeps[0].predict.mixture` must be best, elbo or equal with `sweeps[0].network`: "
        "restarts are stacked by their draws at every training row, of networks up to 2,000 "
        "multiply-adds a row, and it has 2,802, got 'stacked'.",
    ),
    (
        experiment(prior="{kind: [normal, flat], bias_scale: 2}"),
        "`sweeps[0].prior` must leave out `bias_scale` with prior `flat`, which has no scale, "
        "got 2.",
    ),
    (
        experiment(prior="{kind: [normal, flat], fan_in: true}"),
        "`sweeps[0].prior.fan_in` must be false with prior `flat`, which has no scale.",
    ),
    (
        experiment(prior="{kind: normal, bias_scale: 0}"),
        "`sweeps[0].prior.bias_scale` must be > 0, got 0.",
    ),
    # combinations
    (
        experiment(
            prior="[normal, horseshoe]",
            hyperprior="[fixed, {kind: half_cauchy, centred: [false, true]}]",
        ),
        "`sweeps[0].hyperprior[1].centred[1]` must be false with prior `horseshoe` "
        "(`sweeps[0].prior[1]`), whose weights are always scaled from standard draws, got true.",
    ),
    (
        experiment(prior="[normal, horseshoe]",
                   inference="{engine: mclmc, temperature: [1, 0.5]}"),
        "`sweeps[0].inference.temperature[1]` must be 1 with prior `horseshoe` "
        "(`sweeps[0].prior[1]`), some of whose variables are positive or in an interval, got 0.5.",
    ),
    (
        experiment(prior="{kind: pymc, dist: HalfNormal}",
                   inference="{guide: dropout, dropout_rate: 0.1}"),
        "`sweeps[0].inference.guide` must not be dropout with prior `pymc` (`sweeps[0].prior`), "
        "whose weights are positive or in an interval, got 'dropout'.",
    ),
    (
        experiment(prior="[flat, normal]", hyperprior=f"[{FIXED_NULL}]"),
        "`sweeps[0].hyperprior[0].scale` must be a number with prior `normal`, got null.",
    ),
    (
        experiment(prior="[normal, flat]", hyperprior="half_normal"),
        "`sweeps[0].hyperprior` must include fixed for prior `flat` (`sweeps[0].prior[1]`), "
        "which has no scale to put a hyperprior on.",
    ),
    (
        experiment(hyperprior=TUNED, inference="{validation: [0.2, 0]}"),
        "`sweeps[0].inference.validation[1]` must be > 0 to tune `sweeps[0].hyperprior.scale` "
        "by held-out rows (with guide laplace, 0 tunes it by the evidence), got 0.0.",
    ),
    (
        experiment(prior="flat", inference="{validation: 0, restarts: 2}"),
        "`sweeps[0].inference.validation` must be > 0 with prior `flat` (`sweeps[0].prior`), "
        "whose restarts are chosen by validation NLL, got 0.0.",
    ),
    (
        experiment(inference="{batch: [560, 561]}"),
        "`sweeps[0].inference.batch[1]` must be <= 560, the rows of `sweeps[0].dataset` not held "
        "out for validation, got 561.",
    ),
    (
        experiment(
            dataset=f"{{kind: moons, noise: {list(range(400))}, seed: {list(range(400))}}}",
        ),
        "`sweeps[0].dataset` must stand for at most 100000 combinations, got 160000.",
    ),
    (
        experiment(
            dataset=f"{{kind: moons, noise: 1, seed: {list(range(400))}}}",
            inference=f"{{seed: {list(range(400))}}}",
        ),
        "`sweeps[0]` must stand for at most 100000 combinations, got 160000.",
    ),
    (
        experiment(
            dataset="mnist",
            network="[dense, report_conv]",
            inference="{estimator: [flipout, local_reparameterisation]}",
        ),
        "`sweeps[0].inference.estimator[1]` must be flipout, path_derivative or "
        "reparameterisation with network `report_conv` (`sweeps[0].network[1]`), whose "
        "`weight_1` is used at 576 places of an observation, got 'local_reparameterisation'.",
    ),
    (
        experiment(
            dataset="mnist",
            network="{kind: layers, layers: [[{kind: convolution, filters: 2, size: 27}, "
            "flatten]]}",
            inference="[{steps: 1}, {estimator: local_reparameterisation}]",
        ),
        "`sweeps[0].inference[1].estimator` must be flipout, path_derivative or "
        "reparameterisation with network `layers` (`sweeps[0].network`), whose `weight_1` is "
        "used at 4 places of an observation, got 'local_reparameterisation'.",
    ),
    (
        experiment(predict="{ood: [[], [normal_noise, {kind: rotated, angle: 90}]]}"),
        "`sweeps[0].predict.ood[1]` must be empty with data set `moons` "
        "(`sweeps[0].dataset`), whose rows are not images of 28 × 28 pixels, "
        "got ['normal_noise', 'rotated_90'].",
    ),
    (
        experiment(
            dataset="[mnist, {kind: circles, noise: 0.1}]", predict="{ood: [[letters]]}"
        ),
        "`sweeps[0].predict.ood[0]` must be empty with data set `circles` "
        "(`sweeps[0].dataset[1]`), whose rows are not images of 28 × 28 pixels, "
        "got ['letters'].",
    ),
    (
        experiment(
            inference="{engine: [compiled, pymc]}", predict="{diagnostics: {steps: [[0, 10]]}}"
        ),
        "`sweeps[0].predict.diagnostics.steps` must be empty with engine pymc "
        "(`sweeps[0].inference.engine[1]`), which keeps nothing on its way, got [0, 10].",
    ),
    (
        experiment(predict="{diagnostics: {steps: [0, 10]}}"),
        "`sweeps[0].predict.diagnostics.steps` must be a list of lists, because a list alone is "
        "an axis of the grid: write [[0, 10]], got [0, 10].",
    ),
    (
        experiment(predict="{diagnostics: {steps: [[10, 0, 10]]}}"),
        "`sweeps[0].predict.diagnostics` must have ascending `steps`, got [10, 0, 10].",
    ),
    (
        experiment(predict="{diagnostics: {steps: [[0, -1]]}}"),
        "`sweeps[0].predict.diagnostics.steps[0][1]` must be >= 0, got -1.",
    ),
    (
        experiment(predict=f"{{diagnostics: {{steps: [{list(range(101))}]}}}}"),
        "`sweeps[0].predict.diagnostics.steps[0]` must have at most 100 entries, "
        "got [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, ….",
    ),
    (
        experiment(predict="{diagnostics: {draws: 1}}"),
        "`sweeps[0].predict.diagnostics.draws` must be >= 2, got 1.",
    ),
    (
        experiment(predict="{diagnostics: {rows: 0}}"),
        "`sweeps[0].predict.diagnostics.rows` must be >= 1, got 0.",
    ),
    (
        experiment(predict="{ood: [[lettres]]}"),
        "`sweeps[0].predict.ood[0][0]` must be one of fashion, letters, normal_noise, "
        "rotated, uniform_noise, got 'lettres'; did you mean `letters`?",
    ),
    (
        experiment(dataset="mnist", predict="{ood: [[rotated, letters, rotated]]}"),
        "`sweeps[0].predict` must not repeat a kind in `ood`, got rotated_90, letters, "
        "rotated_90.",
    ),
    (
        experiment(predict="{confidence_threshold: [0.2, 0]}"),
        "`sweeps[0].predict.confidence_threshold[1]` must be > 0, got 0.",
    ),
    (
        experiment(predict="{confidence_threshold: 1.5}"),
        "`sweeps[0].predict.confidence_threshold` must be <= 1, got 1.5.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), MISTAKES, ids=[m for _, m in MISTAKES])
def test_mistake(load, text, message):
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert str(caught.value) == message


def test_flat_alone_and_no_choosing(load):
    (cell,) = load(experiment(prior="flat", inference="{validation: 0}")).cells
    assert cell.hyperprior == Fixed(scale=None)


@pytest.mark.parametrize(
    "layers", ["[max_pool, flatten]", "[{kind: convolution, filters: 2, size: 28}, flatten]"]
)
def test_kernels_at_one_place_take_local_noise(load, layers):
    """Pooling has no weights, and a kernel as large as the image is used once."""
    network = f"{{kind: layers, layers: [{layers}]}}"
    text = experiment(
        dataset="mnist", network=network, inference="{estimator: local_reparameterisation}"
    )
    (cell,) = load(text).cells
    assert cell.inference.estimator == "local_reparameterisation"


def test_snapshots_and_ood_images(load):
    text = "{diagnostics: {steps: [[0, 10]], draws: [5, 6]}, confidence_threshold: 0.5, ood: %s}"
    sets = "[[normal_noise, {kind: rotated, angle: [45, 90]}], []]"
    found = load(experiment(dataset="mnist", predict=text % sets))
    predicts = [cell.predict for cell in found.cells]
    assert [(p.diagnostics.steps, p.diagnostics.draws) for p in predicts[::3]] == [
        ((0, 10), 5),
        ((0, 10), 6),
    ]
    names = [[spec.name for spec in p.ood] for p in predicts[:3]]
    assert names == [["normal_noise", "rotated_45"], ["normal_noise", "rotated_90"], []]
    assert {p.confidence_threshold for p in predicts} == {0.5}
    again = load(resolved_text(found))
    assert again.cells == found.cells


def test_what_snapshots_and_ood_images_leave_alone(load):
    """The reference engine without snapshots, and points that are shown none."""
    text = experiment(inference="{engine: pymc}", predict="{diagnostics: {draws: 5}}")
    (cell,) = load(text).cells
    assert cell.predict.diagnostics.steps == cell.predict.ood == ()


def test_batch_of_unknown_rows_is_not_checked(load):
    (cell,) = load(experiment(dataset="mnist", inference="{batch: 50000}")).cells
    assert cell.inference.batch == 50_000


def test_a_sampler_has_one_cell_whatever_the_mixtures(load):
    text = experiment(inference="[{steps: 10}, mclmc]", predict="{mixture: [stacked, equal]}")
    found = [(c.is_sampled, c.predict.mixture) for c in load(text).cells]
    assert found == [(False, "stacked"), (False, "equal"), (True, "best")]


# Files of strangers


def test_references_that_stand_for_too_much_are_rejected(tmp_path):
    """A few lines, each ten times the one before."""
    lines = ["&a0 [1]", *(f"&a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12))]
    file = tmp_path / "many.yaml"
    file.write_text(f"name: many\nsweeps: [{', '.join(lines)}]\n")
    with pytest.raises(ConfigError, match="must have at most 1,000,000 values and 50"):
        load_experiment(file)
    lines = ["&a0 [1]", *(f"&a{i} [*a{i - 1}]" for i in range(1, 60))]
    file.write_text(f"name: deep\nsweeps: [{', '.join(lines)}]\n")
    with pytest.raises(ConfigError, match="50 levels, aliases written out"):
        load_experiment(file)


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    file = tmp_path / "large.yaml"
    with file.open("wb") as sparse:
        sparse.truncate(4_000_001)
    with pytest.raises(ConfigError, match="is too large: must have at most 4,000,000 bytes"):
        load_experiment(file)


# Other readers of YAML


CHANGED = ["on", "off", "yes", "no", "y", "N", "010", "0o17", "0x1F", "1_000", "1:30", "1e3", "=",
           "2024-01-31", "~", "null", "true", ".inf", "<<", "1e-3", "-1", ""]  # fmt: skip


@pytest.mark.parametrize("text", CHANGED)
def test_text_is_written_so_that_every_reader_takes_it_for_text(text):
    for write in (yaml_text, flow_text):
        written = write({text: [text]})
        assert yaml.safe_load(written) == parse_yaml(written, "text") == {text: [text]}
        assert text.upper() not in ("Y", "N") or f"'{text}'" in written


@pytest.mark.parametrize("value", [1e-05, 1e16, 1.5, 0.001, -3, 10**9, True, None, 1e300])
def test_numbers_are_written_so_that_every_reader_takes_them_for_numbers(value):
    written = yaml_text({"value": value})
    for found in (yaml.safe_load(written), parse_yaml(written, "text")):
        assert found["value"] == value and type(found["value"]) is type(value)


def test_the_experiment_of_a_results_folder_is_read_alike_by_others(tmp_path):
    file = tmp_path / "experiment.yaml"
    file.write_text(
        "name: file\n"
        "sweeps:\n"
        "  - name: 010\n"
        "    dataset: {kind: moons, noise: 1e-3}\n"
        "    network: {kind: dense, hidden: [[2]]}\n"
        "    prior: laplace\n"
        "    hyperprior: [{kind: half_normal, on: variance}, inverse_gamma]\n"
        "    inference: {learning_rate: 1e-5, steps: 10}\n".replace("010", "no")
    )
    text = resolved_text(load_experiment(file))
    assert yaml.safe_load(text) == parse_yaml(text, "text")
    assert "'on': variance" in text


@pytest.mark.parametrize("file", sorted(EXPERIMENTS.rglob("*.yaml")), ids=lambda file: file.stem)
def test_shipped_files_are_read_alike_by_others(file):
    assert yaml.safe_load(file.read_text(encoding="utf-8")) == read_yaml(file)


def test_a_number_that_pyyaml_reads_as_text_is_named(tmp_path):
    file = tmp_path / "file.yaml"
    text = DOCUMENTED.replace("learning_rate: 0.02", "learning_rate: '2e-2'")
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_experiment(file)
    assert str(caught.value) == (
        "`sweeps[0].inference.learning_rate` must be a number and not text (PyYAML reads 1e-3 as "
        "text: write 1.0e-3), got '2e-2'."
    )
