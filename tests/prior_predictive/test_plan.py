"""The priors of an experiment, each once."""

import pytest
import yaml

from pmbnn.core.errors import ConfigError
from pmbnn.experiment.load import DataSource, load_experiment
from pmbnn.experiment.selection import select_cells
from pmbnn.prior_predictive.plan import combinations, plan_lines, plan_priors, prior_tasks

TEXT = """
name: toy
sweeps:
  - name: toy
    dataset:
      - {kind: moons, noise: 0.3, seed: [4, 1]}
      - {kind: circles, noise: 0.3}
    network: {kind: dense, hidden: [[2]]}
    prior: [normal, flat]
    hyperprior: [{kind: fixed, scale: {tune: {log: [0.1, 10, 3]}}}, half_normal]
    inference: [{steps: 60, kl_weight: [1, 0.1]}, mclmc]
    predict: {draws: 10, map: {resolution: 4}}
"""

POINTS = TEXT.replace("half_normal]", "half_normal, point]").replace(", mclmc]", "]")


@pytest.fixture
def load(tmp_path):
    def of(text=TEXT):
        (tmp_path / "toy.yaml").write_text(text)
        return load_experiment(tmp_path / "toy.yaml")

    return of


def test_seeds_fits_and_predictions_make_no_other_prior(load):
    """Candidates of a tuned scale do."""
    cells = load().cells
    found = combinations(cells, cells)
    expected = [(data, scale) for data in (4, 0) for scale in (0.1, 1.0, 10.0, None)]
    assert [
        (one.cell.dataset.seed, getattr(one.cell.hyperprior, "scale", None)) for one in found
    ] == [(seed, pytest.approx(scale) if scale else None) for seed, scale in expected]
    assert [one.tuned is not None for one in found] == [True, True, True, False] * 2
    assert {one.cell.prior.kind for one in found} == {"normal"}
    assert {one.cell.predict.map.resolution for one in found} == {4}
    assert len({one.random_seed for one in found}) == len(found)


def test_the_first_data_seed_of_all_stands_for_the_wanted(load):
    cells = load().cells
    wanted = select_cells(list(cells), ["dataset.seed=1", "hyperprior=half_normal"])
    (one,) = combinations(cells, wanted)
    assert one.cell.dataset.seed == 4
    assert one in combinations(cells, cells)


def test_sweeps_with_the_same_prior_share_it(load):
    """What is asked for of the second is what there is of the first."""
    content = yaml.safe_load(TEXT)
    (first,) = content["sweeps"]
    content["sweeps"].append(first | {"name": "again", "inference": {"steps": 70}})
    cells = load(yaml.safe_dump(content)).cells
    wanted = select_cells(list(cells), ["sweep=again"])
    assert combinations(cells, wanted) == combinations(cells, cells)


def test_a_seed_depends_on_neither_grid_nor_predictions(load):
    """Neither on the grid nor on what is predicted."""
    cells = load().cells
    before = {one.cell.hyperprior: one.random_seed for one in combinations(cells, cells[-1:])}
    text = TEXT.replace("resolution: 4", "resolution: 5").replace("seed: [4, 1]", "seed: 2")
    after = load(text).cells
    found = {one.cell.hyperprior: one.random_seed for one in combinations(after, after)[-4:]}
    assert before.items() <= found.items()


def test_an_improper_prior_is_left_out_and_named(load):
    experiment = load()
    plan = plan_priors(experiment, experiment.cells)
    assert plan.left_out == ("prior flat: improper, nothing can be drawn from it",)
    lines = plan_lines(experiment, plan)
    assert lines[0].startswith("toy: 8 combinations")
    assert "left out: prior flat" in lines[-1]
    improper = select_cells(list(experiment.cells), ["prior=flat"])
    with pytest.raises(ConfigError, match="There must be a prior to draw from: prior flat"):
        plan_priors(experiment, improper)


def test_a_point_hyperprior_is_left_out_and_named(load):
    """Before anything is drawn: its scale is maximised."""
    experiment = load(POINTS)
    plan = plan_priors(experiment, experiment.cells)
    assert "point parameters: they are maximised, nothing can be drawn from them" in plan.left_out
    assert len(plan.combinations) == 8


def test_data_of_other_names_or_units_are_drawn_for_anew(load):
    """Figures and tables have both."""
    experiment = load()
    specs = {cell.dataset for cell in experiment.cells}
    first, same, other = (
        prior_tasks(experiment, dict.fromkeys(specs, DataSource("abc", encoding, "here")))
        for encoding in ("names", "names", "other names")
    )
    assert first == same
    assert first.keys() == other.keys()
    assert not {task.name for task in first.values()} & {task.name for task in other.values()}
