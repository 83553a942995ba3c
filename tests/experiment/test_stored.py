"""Cells made of stored settings: typed where their classes are available, listed elsewhere too."""

import pickle

import pytest
from makers import changed, line_record, record

from pmbnn.core.spec import Tune
from pmbnn.data import Moons
from pmbnn.experiment.cells import Unknown
from pmbnn.models.hyperpriors import HalfNormal
from pmbnn.results.record import CellRecord, StoredPlugin


def with_settings(**sections):
    one = record()
    return changed(one, settings=one.settings | sections)


def test_a_record_has_a_typed_cell():
    cell = record(dataset={"kind": "moons", "seed": 3, "noise": 0.2}).cell
    assert cell.dataset == Moons(seed=3, noise=0.2)
    assert cell.hyperprior == HalfNormal(sigma=1.0)
    assert (cell.sweep, cell.data_seed) == ("toy", 3)


def test_stored_specifications_have_the_text_that_was_stored():
    one = line_record("cell", "mclmc")
    dumped = {name: spec.model_dump(mode="json") for name, spec in one.cell.settings.items()}
    assert dumped == one.settings


@pytest.mark.parametrize(
    ("hyperprior", "scale", "has_scale"),
    [
        ({"kind": "fixed", "scale": 0.5}, 0.5, True),
        ({"kind": "fixed", "scale": None}, None, False),
        ({"kind": "fixed", "scale": {"log": [0.1, 10.0, 3]}}, Tune(log=(0.1, 10.0, 3)), True),
        ({"kind": "half_cauchy"}, None, True),
    ],
)
def test_scales_are_fixed_tuned_learned_or_none(hyperprior, scale, has_scale):
    cell = with_settings(hyperprior=hyperprior).cell
    assert (cell.scale, cell.has_scale) == (scale, has_scale)


@pytest.mark.parametrize(
    ("inference", "sampled", "point", "tempered"),
    [
        ({}, False, False, False),
        ({"guide": "map"}, False, True, False),
        ({"kl_weight": 0.5}, False, False, True),
        ({"kl_scaling": "first_dimension"}, False, False, True),
        ({"engine": "nuts"}, True, False, False),
        # Of another version of the package.
        ({"engine": "nuts", "gone": 1}, True, False, False),
        ({"guide": "map", "gone": 1}, False, True, False),
        ({"kl_weight": 0.5, "gone": 1}, False, False, True),
    ],
)
def test_how_a_cell_is_fitted(inference, sampled, point, tempered):
    cell = with_settings(inference=inference).cell
    assert isinstance(cell.inference, Unknown) == ("gone" in inference)
    assert (cell.is_sampled, cell.is_point, cell.is_tempered) == (sampled, point, tempered)


@pytest.mark.parametrize(
    "prior", [{"kind": "nobody", "width": 2.0}, {"kind": "normal", "gone": 1}, {"kind": ["normal"]}]
)
def test_what_is_not_known_keeps_its_settings(prior):
    cell, other = (with_settings(prior=prior).cell for _ in range(2))
    assert isinstance(cell.prior, Unknown)
    assert cell.prior.model_dump(mode="json") == prior
    assert cell == other and hash(cell) == hash(other)
    assert cell != record().cell


def test_a_section_of_a_plugin_is_none_of_the_package():
    plugin = StoredPlugin(name="own.py", sha256="0" * 64, sections=("prior",))
    cell = changed(record(), plugins=(plugin,)).cell
    assert isinstance(cell.prior, Unknown)
    assert cell.prior.kind == "normal"


def test_seeds_alone_make_repetitions():
    first, second = (
        with_settings(dataset={"kind": "moons", "seed": s}, inference={"seed": 2 * s}).cell
        for s in range(2)
    )
    assert first != second
    assert first.without_seeds == second.without_seeds == first
    one, other = (with_settings(dataset={"kind": "mine", "seed": s}).cell for s in (1, 2))
    assert one != other and one.without_seeds == other.without_seeds


def test_copies_and_other_processes_make_the_cell_anew():
    one = record()
    assert one.cell is one.cell
    other = changed(one, settings=one.settings | {"prior": {"kind": "laplace"}})
    assert other.cell.prior.kind == "laplace"
    moved = pickle.loads(pickle.dumps(one))
    assert moved == one and "cell" not in vars(moved)


def test_a_record_without_settings_has_a_cell():
    cell = CellRecord(sweep="s", name="n", status="error", settings={}).cell
    assert isinstance(cell.dataset, Unknown)
    assert cell.data_seed == 0
