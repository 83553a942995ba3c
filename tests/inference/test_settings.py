"""Lengths of fits, and settings that exclude each other."""

import pytest
from pydantic import ValidationError

from pmbnn.inference.settings import Inference


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({}, 10_000),
        ({"steps": 7}, 7),
        ({"steps": 7, "batch": 20}, 7),
        ({"epochs": 5.0}, 5),
        ({"epochs": 5.0, "batch": 20}, 25),
        ({"epochs": 0.5, "batch": 20}, 2),
        ({"epochs": 0.001, "batch": 20}, 1),
        ({"epochs": 3.0, "batch": 1000}, 3),
    ],
)
def test_total_steps(settings, steps):
    """On 100 rows."""
    assert Inference(**settings).total_steps(100) == steps


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 10, "epochs": 1.0}, "must set `steps` or `epochs`, not both"),
        ({"engine": "pymc", "batch": 10}, "must leave out `batch` with engine `pymc`"),
    ],
)
def test_settings_that_exclude_each_other(settings, message):
    with pytest.raises(ValidationError, match=message):
        Inference(**settings)
