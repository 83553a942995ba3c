"""The makers of records, traces and results folders that figures are tested with."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

MAKERS = Path(__file__).parents[1] / "figures" / "conftest.py"


@pytest.fixture(scope="session")
def made():
    """Everything in the figures' makers."""
    spec = importlib.util.spec_from_file_location("makers_of_results", MAKERS)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return SimpleNamespace(**vars(module))
