"""What sets records apart, and what is said of them wherever it is unusual."""

import pytest

from pmbnn.results.names import families
from pmbnn.results.record import CellRecord


def record(sweep="tempered", **inference):
    settings = {"dataset": {"kind": "moons", "seed": 0}, "network": {"kind": "dense"}}
    settings |= {"prior": {"kind": "normal"}, "hyperprior": {"kind": "half_normal"}}
    if inference:
        settings["inference"] = inference
    return CellRecord(sweep=sweep, name="cell", status="converged", settings=settings)


def words(*records):
    return [variant.words for family in families(records) for variant in family]


@pytest.mark.parametrize(
    ("inference", "expected"),
    [
        ({}, ()),
        ({"steps": 100, "kl_weight": 1.0, "kl_scaling": "sum"}, ()),
        ({"steps": 100, "kl_weight": 1}, ()),
        ({"steps": 100, "kl_weight": 0.1, "kl_scaling": "sum"}, ("KL weight 0.1",)),
        ({"kl_weight": 0.0}, ("KL weight 0",)),
        (
            {"kl_weight": 0.001, "kl_scaling": "first_dimension"},
            ("KL weight 0.001", "KL by first dimension"),
        ),
    ],
)
def test_another_objective_is_named_where_it_is_that_of_the_whole_sweep(inference, expected):
    assert words(record(**inference)) == [expected]


def test_a_weight_of_one_is_named_beside_others():
    found = words(*(record(kl_weight=weight, steps=100) for weight in (1.0, 0.1)))
    assert found == [("KL weight 1",), ("KL weight 0.1",)]


def test_what_differs_is_named_beside_what_is_always_named():
    found = words(*(record(kl_weight=0.1, steps=steps) for steps in (100, 200)))
    assert found == [("KL weight 0.1", "steps 100"), ("KL weight 0.1", "steps 200")]


def test_sweeps_are_no_variants_of_each_other():
    found = words(record("proper", kl_weight=1.0), record("tempered", kl_weight=0.1))
    assert found == [(), ("KL weight 0.1",)]
