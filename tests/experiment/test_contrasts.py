"""Contrasts of an experiment file: what they select, and one clear line for each mistake."""

import pytest

from pmbnn.core.errors import ConfigError
from pmbnn.experiment.cells import MARGIN, stored_cell
from pmbnn.experiment.contrasts import pairs, selects
from pmbnn.experiment.load import load_experiment, resolved_text
from pmbnn.experiment.plan import identity

SWEEP = """
sweeps:
  - name: one
    dataset: {kind: moons, noise: 0.4, seed: [0, 1]}
    network: {kind: dense, hidden: [[5, 5], [3]]}
    prior: [normal, laplace]
    hyperprior: [{kind: fixed, scale: [0.1, 1]}, {kind: fixed, scale: {tune: {log: [0.1, 10, 3]}}},
      half_normal]
"""
FIXED = "{kind: fixed, scale: 1}"
GOOD = f"{{prior: normal, hyperprior: {FIXED}}}"


@pytest.fixture
def load(tmp_path):
    def load_text(head):
        path = tmp_path / "experiment.yaml"
        path.write_text(f"name: test\n{head}{SWEEP}")
        return load_experiment(path)

    return load_text


def one(first, second=GOOD, name="a"):
    return f"contrasts: [{{name: {name}, first: {first}, second: {second}}}]"


def found(experiment):
    """Cells of the pairs of the first contrast."""
    cells = experiment.cells
    (contrast,) = experiment.contrasts.listed
    return [(cells[i], cells[j]) for i, j in pairs(contrast, cells)]


def test_pairs_agree_in_everything_that_is_not_named(load):
    paired = found(load(one("{prior: normal, hyperprior: half_normal}")))
    assert len(paired) == 4
    for first, second in paired:
        assert (first.hyperprior.kind, second.hyperprior.scale) == ("half_normal", 1.0)
        assert (first.dataset, first.network) == (second.dataset, second.network)


def test_a_contrast_of_priors_pairs_every_hyperprior(load):
    paired = found(load(one("{prior: laplace}", "{prior: normal}")))
    assert len(paired) == 16
    assert all(first.hyperprior == second.hyperprior for first, second in paired)


def test_a_data_set_leaves_others_out_and_a_network_is_compared(load):
    side = "{dataset: {seed: 1}, network: {hidden: %s}, prior: normal, hyperprior: half_normal}"
    ((first, second),) = found(load(one(side % "[5, 5]", side % "[3]")))
    assert first.dataset == second.dataset and first.dataset.seed == 1
    assert (first.network.hidden, second.network.hidden) == ((5, 5), (3,))


@pytest.mark.parametrize("scale", ["tune", "{tune: {log: [0.1, 10, 3]}}"])
def test_a_tuned_scale_is_selected(load, scale):
    paired = found(load(one(f"{{prior: normal, hyperprior: {{scale: {scale}}}}}")))
    assert {first.hyperprior.scale.log for first, _ in paired} == {(0.1, 10.0, 3)}


def test_true_is_not_one():
    cell = stored_cell("one", {"prior": {"kind": "normal", "fan_in": True}}, {})
    assert selects({"prior": {"fan_in": True}}, cell)
    assert not selects({"prior": {"fan_in": 1}}, cell)


def test_contrasts_are_stored_and_read_back(load, tmp_path):
    first = load(f"margin: 0.002\n{one('{prior: laplace, hyperprior: half_normal}')}")
    (tmp_path / "again.yaml").write_text(resolved_text(first))
    again = load_experiment(tmp_path / "again.yaml")
    assert again == first
    assert again.contrasts.margin == 0.002
    assert again.contrasts.listed[0].first["prior"] == {"kind": "laplace"}


def test_a_file_without_contrasts_is_stored_as_before(load):
    experiment = load("")
    assert experiment.contrasts.margin == MARGIN
    assert {"contrasts", "margin"}.isdisjoint(resolved_text(experiment).split())
    assert "contrasts" not in resolved_text(experiment)


def test_contrasts_are_no_part_of_a_cell(load):
    with_them = load(f"margin: 0.002\n{one('{prior: laplace, hyperprior: half_normal}')}")
    assert [identity(cell, "f", {}) for cell in with_them.cells] == [
        identity(cell, "f", {}) for cell in load("").cells
    ]


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("margin: 0", "`margin` must be a number > 0, got 0."),
        ("margin: true", "`margin` must be a number > 0, got true."),
        ("contrasts: {}", "`contrasts` must be a list, got {}."),
        (
            "contrasts: [x]",
            "`contrasts[0]` must be a mapping with name, first and second, got 'x'.",
        ),
        ("contrasts: [{name: a, first: {prior: normal}}]", "`contrasts[0].second` is missing."),
        (
            "contrasts: [{name: a, frist: {}}]",
            "`contrasts[0]` has no key `frist`; did you mean `first`? "
            "Choices: first, name, second.",
        ),
        (one(GOOD, name="7"), "`contrasts[0].name` must be text on one line, got 7."),
        (one("{}"), "`contrasts[0].first` must be a mapping of sections, got {}."),
        (
            one("{priors: normal}"),
            "`contrasts[0].first` has no key `priors`; did you mean `prior`? "
            "Choices: dataset, hyperprior, network, prior.",
        ),
        (
            one("{prior: 3}"),
            "`contrasts[0].first.prior` must be a kind or a mapping of fields, got 3.",
        ),
        (
            one("{hyperprior: half_norml}"),
            "`contrasts[0].first.hyperprior` must be one of fixed, half_cauchy, half_normal, "
            "inverse_gamma, point, pymc, got 'half_norml'; did you mean `half_normal`?",
        ),
        (
            one("{hyperprior: {kind: fixed, scal: 1}}"),
            "`contrasts[0].first.hyperprior` has no key `scal`; did you mean `scale`? "
            "Choices: kind, scale.",
        ),
        (
            one("{prior: cauchy}"),
            "`contrasts[0].first` must match a cell of the plan, got {prior: {kind: 'cauchy'}}.",
        ),
        (
            one("{dataset: {seed: 0}, prior: normal}", "{dataset: {seed: 1}, prior: laplace}"),
            "`contrasts[0]` must match a pair of cells that differ only in what it names "
            "(dataset, prior), got none for 'a'.",
        ),
        (
            one("{prior: normal, hyperprior: fixed}", "{prior: normal, hyperprior: half_normal}"),
            "`contrasts[0]` must name one cell a pair, but `first` matches 3 that differ in "
            "hyperprior.scale: 0.1, 1.0, {log: [0.1, 10.0, 3]}.",
        ),
        (
            one(GOOD),
            "`contrasts[0]` must not hold a cell against itself: `first` and `second` overlap.",
        ),
        (
            "contrasts: [{name: a, first: {prior: laplace}, second: {prior: normal}}, "
            "{name: a, first: {prior: normal}, second: {prior: laplace}}]",
            "`contrasts[1].name` must not repeat `contrasts[0].name`, got 'a'.",
        ),
    ],
)
def test_mistakes_are_one_line(load, head, message):
    with pytest.raises(ConfigError) as error:
        load(head)
    assert str(error.value) == message


def test_a_field_that_records_leave_out_is_its_default():
    """As fields do that were added after the records were written."""
    settings = {"dataset": {"kind": "moons", "noise": 0.4}, "prior": {"kind": "mine"}}
    cell = stored_cell("one", settings, {})
    assert selects({"dataset": {"train": 700}}, cell)
    assert not selects({"dataset": {"train": 70}}, cell)
    assert not selects({"prior": {"scale": 1}}, cell)
