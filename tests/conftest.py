"""Fixtures that several test files use."""

import gc
import os
import sys
from pathlib import Path

# Idle threads of OpenBLAS wait for work in a loop, beside as many workers as there are cores.
# NumPy, which the makers import, reads it once.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import makers  # noqa: E402
import pytest  # noqa: E402

# Looking for garbage among the nodes of graphs takes a tenth of the time.
gc.set_threshold(50_000, 20, 100)

# Most of the suite is compilation: what one worker, tier or run has compiled, the next one loads,
# as commands do (`use_compilation_cache`). A second run takes half as long.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pmbnn" / "xla"
os.environ |= {
    "JAX_COMPILATION_CACHE_DIR": str(CACHE),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
# Nodes of graphs keep no record of where they were made: it takes a tenth of the time.
FLAGS = os.environ.get("PYTENSOR_FLAGS")
os.environ["PYTENSOR_FLAGS"] = ",".join(["traceback__limit=0", *([FLAGS] if FLAGS else [])])


UNOPTIMISED = (
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_cpu_parallel_codegen_split_count=1",
)
"""Flags of XLA with which programs compile in half of the time."""


def pytest_configure(config):
    """Let XLA optimise nothing in the quick tier, whose programs run for a moment only."""
    if config.option.markexpr == "not slow":
        flags = filter(None, [os.environ.get("XLA_FLAGS"), *UNOPTIMISED])
        os.environ["XLA_FLAGS"] = " ".join(dict.fromkeys(" ".join(flags).split()))


def pytest_collection_finish():
    """Do not look for garbage in what was imported."""
    gc.freeze()


@pytest.fixture(scope="session")
def evaluate():
    """Values of PyTensor graphs, interpreted: a compilation costs more than most tests."""
    from pmbnn.testing import evaluate

    return evaluate


@pytest.fixture
def registries():
    """A test begins with what comes with the package; what it registers is forgotten after it."""
    from pmbnn.core.spec import METRICS
    from pmbnn.experiment import plugins
    from pmbnn.experiment.cells import REGISTRIES

    choices = [*REGISTRIES.values(), *METRICS.values(), *plugins.OUTPUTS.values()]
    kept = [*choices, METRICS, plugins.ORIGINS, plugins._SOURCES]
    before, modules = [dict(one) for one in kept], _pop_plugins()
    for one in choices:
        for name in [name for name, part in one.items() if part in plugins.ORIGINS]:
            del one[name]
    for one in kept[len(choices) :]:
        one.clear()
    yield
    for one, content in zip(kept, before, strict=True):
        one.clear()
        one.update(content)
    _pop_plugins()
    sys.modules.update(modules)
    plugins._import_installed.cache_clear()


def _pop_plugins():
    """Modules of plugins, which no import finds any more."""
    names = [name for name in sys.modules if name.startswith("pmbnn_plugin_")]
    return {name: sys.modules.pop(name) for name in names}


@pytest.fixture
def scripted(registries):
    """Class of jobs that do what they are told to."""
    import clusters

    return clusters.scripted_job()


@pytest.fixture(scope="session")
def made():
    """Makers of records, traces and results folders, and settings for them: ``makers.py``."""
    return makers


@pytest.fixture(scope="session")
def full():
    """Trace with every group a cell on digits can have."""
    return makers.digit_trace()


@pytest.fixture(scope="session")
def words():
    """Every text drawn in a figure, each on one line; numbers at ticks may be others than shown."""

    def of(figure):
        from matplotlib.text import Text

        # Where texts stand takes more than half of the time, and says nothing of what they are.
        layout = figure.get_layout_engine()
        figure.set_layout_engine("none")
        figure.draw_without_rendering()
        figure.set_layout_engine(layout)
        found = (text.get_text() for text in figure.findobj(Text) if text.get_visible())
        return [" ".join(text.split()) for text in found if text.strip()]

    return of
