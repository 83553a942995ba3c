"""Package versions that affect results, and the machine, for reports of problems."""

import os
import platform
from collections.abc import Iterable
from importlib.metadata import version

from pmbnn import __version__
from pmbnn.core.machine import cores, device_text, find_devices, total_memory

DECISIVE = ("pmbnn", "pymc", "pytensor", "jax", "jaxlib", "optax", "numpy")
"""Packages whose versions can change the numbers of a cell."""

RECORDED = (*DECISIVE, "scipy", "scikit-learn", "mlxtend", "arviz", "xarray", "matplotlib")


def installed_versions(names: Iterable[str]) -> dict[str, str]:
    """Versions of packages, by name; this one need not be installed, only importable."""
    return {name: __version__ if name == "pmbnn" else version(name) for name in names}


def decisive_versions() -> dict[str, str]:
    """Installed versions of the packages that can change the numbers of a cell."""
    return installed_versions(DECISIVE)


def show_versions() -> None:
    """Print the versions of this package and of what it stands on, and the machine."""
    memory = total_memory()
    versions = installed_versions(RECORDED)
    lines = {
        "pmbnn": versions.pop("pmbnn"),
        "python": platform.python_version(),
        **versions,
        "system": platform.platform(),
        "processor": platform.machine(),
        "cores": f"{cores()} of {os.cpu_count()}",
        "memory": "unknown" if memory is None else f"{memory / 1e9:.1f} GB",
        "devices": device_text(find_devices("auto")),
    }
    width = max(map(len, lines))
    print("\n".join(f"{name:{width}}  {value}" for name, value in lines.items()))
