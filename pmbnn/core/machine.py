"""The machine: compute devices, memory, cores and speed.

On a processor small networks are fitted in groups that fit its cache, in a process for each core;
on a GPU hundreds at once, in one process. No other module distinguishes the two.
"""

import functools
import os
import platform
import sys
import timeit
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

from pmbnn.core.errors import UserError

CHOICES = ("auto", "cpu", "gpu")
"""Values of ``--device``; ``auto`` is every GPU that JAX finds, or else the processor."""

NO_BACKEND = "JAX has no GPU backend installed"

REMEDY = (
    "install JAX's own backend, pip install '.[cuda]' in a copy of the repository, on a machine "
    "with an NVIDIA GPU"
)


class DeviceError(UserError):
    """A device that is not available; the message has the choices and the remedy."""


class Traits(NamedTuple):
    """Limits and options of programs for a kind of device.

    Attributes
    ----------
    replicas
        Largest number of fits of small networks in one program.
    rows
        Largest number of rows that all fits of a program together use at a step.
    exact_products
        Whether JAX must be told to multiply in single precision: on a GPU it uses 10 bits of
        mantissa (TF32) otherwise, and a fit would differ from that of a processor.
    compiler_options
        Options of XLA.
    brief_options
        Options of XLA for programs that run for less time than they compile.
    """

    replicas: int
    rows: int
    exact_products: bool
    compiler_options: Mapping[str, int]
    brief_options: Mapping[str, int]


TRAITS = {
    # On a processor wider groups were no faster a fit. Of more rows, what a layer makes falls out
    # of its cache: at 22,400 rows 4 fits at once take 8.8 ns a row and fit, 16 take 12.9; at 175
    # rows 16 take 11.7 (one core; `benchmarks/growth.py` has the curve). And XLA would use half of
    # what AVX-512 offers; other processors keep to what they have. At LLVM's first level draws of
    # weights compile in 0.6 of the time, a log-prior in 0.3 to 0.5, and 2,000,000 numbers are drawn
    # in 1.15 of it; a loop of steps compiles no quicker, and a step takes 1.4 times as long.
    "cpu": Traits(
        16,
        100_000,
        False,
        {"xla_cpu_prefer_vector_width": 512},
        {"xla_backend_optimization_level": 1},
    ),
    # On one H200 (`benchmarks/accelerator.txt`) a step of 256 fits of 2-5-5-2 at 700 rows takes 1.4
    # times as long as one of 64, and one of 1,024, to which smaller groups would be filled up, 2.9
    # times. A hundred units at a million rows, ten arrays each, take 4 GB.
    "gpu": Traits(256, 1_000_000, True, {}, {}),
}


@dataclass(frozen=True)
class Device:
    """One device.

    Attributes
    ----------
    kind
        ``cpu`` or ``gpu``: how programs are written and grouped.
    number
        Number among those of its platform; None is the first one, and all cores of a processor.
    name
        Its maker's name of the model; empty for a processor.
    platform
        JAX's name of the backend; by default that of the kind. Tests run a GPU's programs on a
        processor, as ``Device("gpu", 1, platform="cpu")`` where ``XLA_FLAGS`` has
        ``--xla_force_host_platform_device_count``.
    """

    kind: Literal["cpu", "gpu"] = "cpu"
    number: int | None = None
    name: str = ""
    platform: str = field(default="", compare=False)

    @property
    def traits(self) -> Traits:
        """Limits and options of programs for it."""
        return TRAITS[self.kind]

    @property
    def is_accelerator(self) -> bool:
        """Whether it is not the processor."""
        return self.kind != "cpu"

    def decides(self, width: int) -> dict[str, object]:
        """Part of the identity of numbers that a program of ``width`` replicas computes.

        It is empty for a processor, whose groups have never changed.
        """
        return {"device": self.kind, "width": width} if self.is_accelerator else {}


CPU = Device()


def find_devices(asked: str = "auto") -> tuple[Device, ...]:
    """Devices of one kind to run programs on; JAX is not loaded into this process.

    Parameters
    ----------
    asked
        One of `CHOICES`.

    Raises
    ------
    DeviceError
        If there is no such choice, or no such device here.
    """
    _check_choice(asked)
    if asked == "cpu":
        return (CPU,)
    names, why = gpu_names()
    if not names and asked == "gpu":
        raise _no_gpu(why)
    return tuple(Device("gpu", number, name) for number, name in enumerate(names)) or (CPU,)


def _check_choice(asked: str) -> None:
    if asked not in CHOICES:
        raise DeviceError(f"`--device` must be one of {', '.join(CHOICES)}, got {asked!r}.")


def _no_gpu(why: str) -> DeviceError:
    return DeviceError(
        f"`--device` must be auto or cpu here, got 'gpu': {why}. For a GPU, {REMEDY}."
    )


def gpu_names() -> tuple[tuple[str, ...], str]:
    """Names of the GPUs that JAX finds, and why there are none.

    A separate process finds them: it holds most of their memory until it ends.
    """
    # Backends are installed into this package.
    if find_spec("jax_plugins") is None:
        return (), NO_BACKEND
    import subprocess

    code = "import jax\nfor device in jax.devices('gpu'): print(device.device_kind)"
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return tuple(done.stdout.splitlines()), ""
    last = done.stderr.strip().splitlines()[-1:] or ["no reason given"]
    return (), f"JAX finds no GPU ({last[0].rstrip('.')})"


def processes(workers: int, devices: Sequence[Device]) -> int:
    """Number of processes that run programs at the same time: at most one an accelerator."""
    return min(workers, len(devices)) if devices[0].is_accelerator else workers


def device_text(devices: Sequence[Device]) -> str:
    """Text for devices: ``cpu``; ``gpu, 2 × NVIDIA H100``."""
    first = devices[0]
    return f"{first.kind}, {len(devices)} × {first.name}" if first.name else first.kind


# Within a process


_RUNNING_ON: ContextVar[Device | None] = ContextVar("device", default=None)


def current_device() -> Device:
    """The device that programs are built for and run on: that of `running_on`, or JAX's first."""
    if (device := _RUNNING_ON.get()) is not None:
        return device
    import jax

    platform = jax.default_backend()
    return CPU if platform == "cpu" else Device("gpu", platform=platform)


def device_here(asked: str = "auto") -> Device:
    """The device that a call from Python runs on, one of those that this process sees.

    Parameters
    ----------
    asked
        One of `CHOICES`; ``auto`` is the current device, ``gpu`` the first GPU.

    Raises
    ------
    DeviceError
        As `find_devices`.
    """
    _check_choice(asked)
    if asked == "auto":
        return current_device()
    if asked == "cpu":
        return CPU
    import jax

    try:
        first = jax.devices("gpu")[0]
    except RuntimeError as error:
        has_backend = find_spec("jax_plugins") is not None
        raise _no_gpu(f"JAX finds no GPU ({error})" if has_backend else NO_BACKEND) from error
    return Device("gpu", 0, first.device_kind)


def claim(device: Device) -> Device:
    """Restrict this whole process to one device, and return the device as the process sees it.

    It comes before anything else that asks JAX for a device: JAX looks once, and reserves most of
    the memory of every GPU that it sees.
    """
    import jax

    if (device.platform or device.kind) == "cpu":
        jax.config.update("jax_platforms", "cpu")
        return device
    if device.number is None:
        return device
    jax.config.update("jax_cuda_visible_devices", str(device.number))
    return replace(device, number=0)


@contextmanager
def running_on(device: Device) -> Iterator[None]:
    """Build and run programs on one of the devices that this process sees."""
    import jax

    place = jax.devices(device.platform or device.kind)[device.number or 0]
    token = _RUNNING_ON.set(device)
    try:
        with jax.default_device(place):
            yield
    finally:
        _RUNNING_ON.reset(token)


def exact_products() -> AbstractContextManager[None]:
    """Context in which matrix products have single precision on every device."""
    if not current_device().traits.exact_products:
        return nullcontext()
    import jax

    return jax.default_matmul_precision("highest")


# Memory of the machine, and whether arrays of a file fit into it


LARGEST_TRACE = 64e9
"""Bytes of arrays where the memory of the machine is not known."""


def check_fits(size: float, path: Path, error: type[ValueError] = ValueError) -> None:
    """Raise an error unless arrays of that many bytes fit into memory.

    Compressed, they can lie in a small file.
    """
    memory = total_memory() or LARGEST_TRACE
    if size > memory:
        raise error(
            f"`{path}` holds arrays of {size / 1e9:,.1f} GB: must be at most the memory here, "
            f"{memory / 1e9:,.1f} GB."
        )


def total_memory() -> float | None:
    """Bytes of memory of the machine, or of the container or job; None where it is not known."""
    try:
        memory = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # not on Windows
        return None
    return min([memory, *_control_group_limits(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))])


def _control_group_limits(own: Path, root: Path) -> list[float]:
    """Limits of memory of the control groups of Linux that a process is in, of both versions.

    Those of a container often lie at the root, above which it sees nothing.
    """
    limits = []
    for line in own.read_text().splitlines() if own.is_file() else []:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            top, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        inner = PurePosixPath(path.lstrip("/"))
        for group in (inner, *inner.parents):
            with suppress(OSError, ValueError):  # "max" is none
                limits.append(float(int((top / group / name).read_text())))
    return limits


# Kind, number and speed of the cores


LOOP = "total = 0\nfor number in range(20_000):\n    total += number"

REFERENCE = 0.42e-3
"""Seconds of that loop on the machine of the constants of `pmbnn.experiment.cost`."""


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def machine_kind() -> str:
    """Model of the processor, which decides the last digits of numbers."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return ", ".join(filter(None, [platform.machine(), *models[:1]]))


@functools.cache
def slowness() -> float:
    """Time of a core relative to the reference machine.

    A loop of Python measures it in some milliseconds, for compiled steps within a third.
    """
    return min(timeit.repeat(LOOP, number=1, repeat=25)) / REFERENCE
