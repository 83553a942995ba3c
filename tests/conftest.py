"""Fixtures that several test files use."""

import pytest


@pytest.fixture(scope="session")
def evaluate():
    """Values of PyTensor graphs, interpreted: a compilation costs more than most tests."""
    import pytensor
    from pytensor.compile.mode import Mode

    mode = Mode(linker="py", optimizer=None)

    def values(graphs, given):
        function = pytensor.function(list(given), graphs, mode=mode, on_unused_input="ignore")
        return function(*given.values())

    return values
