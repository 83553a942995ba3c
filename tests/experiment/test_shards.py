"""Fixed parts of an experiment: all of it, once, in the jobs of the full plan."""

import pytest

from pmbnn.core.errors import ConfigError
from pmbnn.core.machine import CPU, Device
from pmbnn.experiment.load import load_experiment
from pmbnn.experiment.plan import Shard, default_folder, in_shard, jobs, read_shard

TEXT = """
name: toy
sweeps:
  - name: toy
    dataset: {kind: moons, noise: 0.3, train: 20, test: 10, seed: [0, 1, 2, 3, 4]}
    network: {kind: dense, hidden: [[2], [3]]}
    prior: [normal, laplace]
    inference: {steps: 10, restarts: 8}
"""


@pytest.fixture
def experiment(tmp_path):
    (tmp_path / "toy.yaml").write_text(TEXT)
    return load_experiment(tmp_path / "toy.yaml")


@pytest.mark.parametrize("device", [CPU, Device("gpu", 0)])
@pytest.mark.parametrize("of", [1, 3, 8, 100])
def test_shards_are_the_whole_plan_once_in_its_own_jobs(experiment, of, device):
    cells = list(experiment.cells)
    shards = [in_shard(experiment, cells, Shard(n + 1, of), [device]) for n in range(of)]
    assert sorted(map(cells.index, sum(shards, []))) == list(range(len(cells)))
    whole = [job.cells for job in jobs(cells, device=device)]
    parts = [job.cells for shard in shards for job in jobs(cells, shard, device)]
    assert sorted(map(str, parts)) == sorted(map(str, whole))
    counts = [len(jobs(cells, shard, device)) for shard in shards]
    assert max(counts) - min(counts) <= 1


def test_a_shard_of_a_selection_is_that_part_of_the_shard(experiment):
    cells = list(experiment.cells)
    some = [cell for cell in cells if cell.dataset.seed == 1]
    shard = Shard(2, 3)
    found = in_shard(experiment, some, shard)
    assert found == [cell for cell in in_shard(experiment, cells, shard) if cell in some]
    assert in_shard(experiment, some, None) == some


@pytest.mark.parametrize("said", ["3/8", " 3/8 ", (3, 8), [3, 8]])
def test_a_shard_is_read(said):
    assert read_shard(said) == Shard(3, 8)


@pytest.mark.parametrize(
    "said",
    ["0/8", "9/8", "x", "", "3", "3/0", "-1/8", "3/8/2", "1e3/8", (0, 8), (3, 8, 1), (1.0, 2)],
)
def test_what_is_no_shard_is_rejected(said):
    with pytest.raises(ConfigError, match=r"`--shard` must be one of so many parts, such as 3/8"):
        read_shard(said)


def test_every_shard_has_a_folder_of_its_own():
    assert default_folder("toy").as_posix() == "results/toy"
    assert default_folder("toy", Shard(3, 8)).as_posix() == "results/toy-shard-3-of-8"
