"""Memory of cells against what was measured of them, and how it adds up."""

from dataclasses import replace

import pytest

from pmbnn.core import machine
from pmbnn.core.machine import _control_group_limits, total_memory
from pmbnn.data import Mnist, Moons
from pmbnn.experiment.cells import Cell
from pmbnn.experiment.cost import cell_memory, largest_network, most_memory, network_size
from pmbnn.inference.samplers.settings import Mclmc
from pmbnn.inference.settings import Inference
from pmbnn.models.hyperpriors import Fixed
from pmbnn.models.likelihoods import Categorical
from pmbnn.models.networks import Dense
from pmbnn.models.priors import Normal
from pmbnn.prediction.settings import Predict

DIGITS = Mnist(source="embedded")


def cell(units, dataset=DIGITS, inference=None):
    """A cell of a network with two layers of so many units."""
    return Cell(
        sweep="sweep",
        dataset=dataset,
        network=Dense(hidden=(units, units)),
        prior=Normal(),
        hyperprior=Fixed(),
        likelihood=Categorical(),
        inference=inference or Inference(restarts=1),
        predict=Predict(),
    )


@pytest.mark.parametrize(("units", "gigabytes"), [(660, 0.63), (2_780, 1.83), (6_700, 4.81)])
def test_large_networks_take_what_was_measured(units, gigabytes):
    """Or up to 0.7 GB more: every worker is taken for one that has fitted a large one."""
    assert gigabytes - 0.1 < cell_memory(cell(units)) / 1e9 < gigabytes + 0.7


def test_the_largest_network_takes_all_there_is():
    size = largest_network(24e9)
    units = int((size + 397**2) ** 0.5 - 397)
    found = cell(units)
    assert network_size(found) == pytest.approx(size, rel=1e-3)
    assert most_memory([found], 2) == pytest.approx(24e9, rel=0.02)
    assert largest_network(1e9) == 0


def test_richer_guides_and_more_draws_take_more():
    def bytes_of(**settings):
        return cell_memory(cell(500, inference=Inference(restarts=1, **settings)))

    point, mean_field, low_rank = (bytes_of(guide=g) for g in ("map", "mean_field", "low_rank"))
    assert point < mean_field < low_rank
    few, many = (cell_memory(cell(64, inference=Mclmc(draws=n))) for n in (400, 4_000))
    assert many > few + 12 * 16 * 3_600 * 55_000


def test_small_cells_run_beside_each_other_and_the_largest_alone():
    small, large = cell(5, Moons(noise=0.4)), cell(1_000)
    of_one = cell_memory(small)
    assert most_memory([small], 2) - most_memory([small] * 3, 2) == -of_one
    assert most_memory([small] * 9, 2) == most_memory([small] * 2, 2)
    assert most_memory([small, large], 1) - most_memory([large], 1) == 0
    assert most_memory([replace(large, sweep="other"), large], 2) == most_memory([large], 2)


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("0::/job/step", "job/{}/memory.max"),
        ("4:cpu,memory:/job/step", "memory/job/{}/memory.limit_in_bytes"),
    ],
    ids=["version 2", "version 1"],
)
def test_limits_of_a_container_or_job_are_read(tmp_path, line, file):
    """Those of the groups about it as well; "max" is none."""
    own = tmp_path / "own"
    own.write_text(f"9:pids:/else\n{line}\n")
    for where, limit in ((".", "4000"), ("step", "max"), ("..", "5000")):
        path = tmp_path / file.format(where)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{limit}\n")
    assert sorted(_control_group_limits(own, tmp_path)) == [4000.0, 5000.0]
    assert _control_group_limits(tmp_path / "none", tmp_path) == []


@pytest.mark.parametrize(("limits", "less"), [([3e8, 2e8], 2e8), ([1e18], None), ([], None)])
def test_the_least_limit_is_what_there_is(monkeypatch, limits, less):
    monkeypatch.setattr(machine, "_control_group_limits", lambda *_: [])
    whole = total_memory()
    monkeypatch.setattr(machine, "_control_group_limits", lambda *_: limits)
    assert total_memory() == (less or whole)
