"""Where PyTensor graphs become JAX functions: the only file that knows about both."""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import jax
import pytensor.link.jax.dispatch  # noqa: F401  (sets JAX's 64-bit flag, once, at import)
from pymc.logprob.utils import CheckParameterValue
from pytensor.compile.mode import JAX
from pytensor.graph.fg import FunctionGraph
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.tensor import TensorVariable


@contextmanager
def precision(dtype: str) -> Iterator[None]:
    """Trace, compile and run in ``float32`` or ``float64``, whatever PyTensor set globally."""
    with jax.enable_x64(dtype == "float64"), warnings.catch_warnings():
        # Graphs are written in double precision; JAX says at each cast that it narrows.
        warnings.filterwarnings("ignore", message="Explicitly requested dtype", module="jax")
        yield


def jax_function(
    inputs: Sequence[TensorVariable], outputs: Sequence[TensorVariable]
) -> Callable[..., tuple]:
    """JAX function of a PyTensor graph; call it within `precision`.

    Checks of parameter values are left out: they cannot raise under JAX, and every constant
    was validated before.
    """
    graph = FunctionGraph(list(inputs), list(outputs), clone=True)
    for node in graph.toposort():
        if isinstance(node.op, CheckParameterValue):
            graph.replace(node.outputs[0], node.inputs[0], import_missing=True)
    JAX.optimizer.rewrite(graph)
    return jax_funcify(graph)


def use_compilation_cache() -> None:
    """Keep compiled programs in the user's cache folder, for the next run of the same shape."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pmbnn" / "xla"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
