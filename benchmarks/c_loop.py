"""The step of benchmarks/jax_loop.py as a loop in C: what one core can do.

``c_loop.c`` says how; here it is compiled for this machine and checked against the loss of
``jax_loop.py``, which is differentiated by JAX.

Run: ``uv run python benchmarks/c_loop.py``; it needs a C compiler called ``cc``.
"""

import ctypes
import functools
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

SOURCE = Path(__file__).with_suffix(".c")
# -ffast-math lets the compiler add up a loop's vector lanes in any order and call libmvec.
FLAGS = [
    *("-std=c99", "-O3", "-march=native", "-mprefer-vector-width=512"),
    *("-ffast-math", "-fopenmp-simd", "-shared", "-fPIC"),
]
SIZE = 57
LEARNING_RATE = 0.02

Floats = np.ctypeslib.ndpointer(np.float32, flags="C_CONTIGUOUS")


@functools.cache
def _library() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "c_loop.so"
        subprocess.run(["cc", *FLAGS, "-o", built, SOURCE, "-lm"], check=True)
        library = ctypes.CDLL(str(built))  # stays loaded when its file is gone
    library.fit.argtypes = [ctypes.c_int, ctypes.c_float, ctypes.c_uint32, Floats, Floats, Floats]
    library.fit.restype = ctypes.c_float
    library.loss_and_gradient.argtypes = [Floats] * 5
    library.loss_and_gradient.restype = ctypes.c_float
    library.ascend.argtypes = [ctypes.c_int, ctypes.c_float, Floats, Floats, Floats]
    library.ascend.restype = ctypes.c_float
    return library


def c_loop_seconds(steps, x, y, loc, rho) -> float:
    """Seconds of a whole fit of `steps` steps, from `loc` and `rho`, ``(57,)`` each.

    `x` is ``(700, 2)``, `y` the 0 or 1 of each point.
    """
    guide = _guide(loc, rho)
    points, sign = _data(x, y)
    fit = _library().fit
    start = time.perf_counter()
    elbo = fit(steps, LEARNING_RATE, 1, points, sign, guide)
    spent = time.perf_counter() - start
    if not np.isfinite([elbo, *guide.flat]).all():
        raise FloatingPointError("The loop in C diverged.")
    return spent


def c_loss_and_gradient(x, y, loc, rho, noise) -> tuple[float, np.ndarray]:
    """Negative ELBO in nats at given noise, and its gradient by `loc` and `rho`, ``(2, 57)``."""
    gradient = np.empty((2, SIZE), np.float32)
    noise = np.ascontiguousarray(noise, np.float32)
    loss = _library().loss_and_gradient(*_data(x, y), _guide(loc, rho), noise, gradient)
    return loss, gradient


def c_ascent(steps, rate, x, y, z) -> np.ndarray:
    """Weights ``(57,)`` after gradient ascent on their log-density under an N(0, 1) prior."""
    z = np.array(z, np.float32)
    if not np.isfinite(_library().ascend(steps, rate, *_data(x, y), z)):
        raise FloatingPointError("The ascent in C diverged.")
    return z


def check(x, y, loc, rho, noise, tolerance: float = 1e-4) -> None:
    """Raise unless loss and gradient equal those of ``jax_loop.py`` to a relative `tolerance`."""
    import jax
    import jax.numpy as jnp
    from jax_loop import hand_written_loss

    one_hot = jnp.eye(2)[np.asarray(y)].T
    points = jnp.asarray(np.asarray(x).T, jnp.float32)
    parameters = tuple(jnp.asarray(p, jnp.float32) for p in (loc, rho))
    draw = jnp.asarray(noise, jnp.float32)
    expected = jax.value_and_grad(hand_written_loss)(parameters, draw, points, one_hot)
    loss, gradient = c_loss_and_gradient(x, y, loc, rho, noise)
    np.testing.assert_allclose(loss, expected[0], rtol=tolerance)
    # Sums of 700 terms that cancel are compared at the size of the largest.
    scale = float(np.abs(expected[1]).max())
    np.testing.assert_allclose(gradient, np.stack(expected[1]), atol=tolerance * scale)


def _data(x, y) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(x, np.float32), np.asarray(y)
    if x.shape != (700, 2) or not np.isin(y, (0, 1)).all():
        raise ValueError(f"The loop in C is for 700 points of two classes, got {x.shape}.")
    return np.ascontiguousarray(x.T), np.where(y == 1, 1.0, -1.0).astype(np.float32)


def _guide(loc, rho) -> np.ndarray:
    return np.stack([np.asarray(loc, np.float32), np.asarray(rho, np.float32)])


def main():
    import statistics

    from pmbnn.data import Moons
    from pmbnn.inference.xla.compile import precision

    rows = Moons(noise=0.4).load().training
    rng = np.random.default_rng(0)
    loc, noise = 0.5 * rng.standard_normal((2, SIZE))
    rho = rng.uniform(-4, 1, SIZE)
    with precision("float32"):
        check(rows.x, rows.y, loc, rho, noise)
    start = np.full(SIZE, -3.0)
    times = [c_loop_seconds(10_000, rows.x, rows.y, loc, start) / 10_000 for _ in range(5)]
    print(f"loop in C: {1e6 * statistics.median(times):.2f} us a step")


if __name__ == "__main__":
    main()
