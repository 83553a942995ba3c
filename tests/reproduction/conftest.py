"""The study's plugin, imported as a package: what it registers is for experiments that name it."""

import pytest

from pmbnn.experiment.plugins import ORIGINS, OUTPUTS
from pmbnn.results.loading import ExperimentResults

before = {kind: dict(functions) for kind, functions in OUTPUTS.items()}

import study  # noqa: E402

for functions in OUTPUTS.values():
    for part in functions.values():
        if part.__module__ == study.__name__:
            del ORIGINS[part]
for kind, functions in before.items():
    OUTPUTS[kind].clear()
    OUTPUTS[kind].update(functions)


@pytest.fixture(scope="session")
def results_of():
    """Results of an experiment that has some stored cells."""
    return lambda store, records: ExperimentResults("toy", store, tuple(records), {}, ())
