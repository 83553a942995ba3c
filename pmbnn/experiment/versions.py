"""Package versions that affect results, and the machine, for reports of problems."""

import os
import platform
from importlib.metadata import version

from pmbnn.core.machine import cores, device_text, find_devices, total_memory

DECISIVE = ("pmbnn", "pymc", "pytensor", "jax", "jaxlib", "optax", "numpy")
"""Packages whose versions can change the numbers of a cell."""

RECORDED = (*DECISIVE, "scipy", "scikit-learn", "mlxtend", "arviz", "xarray", "matplotlib")


def decisive_versions() -> dict[str, str]:
    """Installed versions of the packages that can change the numbers of a cell."""
    return {name: version(name) for name in DECISIVE}


def show_versions() -> None:
    """Print the versions of this package and of what it stands on, and the machine."""
    memory = total_memory()
    lines = {
        "pmbnn": version("pmbnn"),
        "python": platform.python_version(),
        **{name: version(name) for name in RECORDED if name != "pmbnn"},
        "system": platform.platform(),
        "processor": platform.machine(),
        "cores": f"{cores()} of {os.cpu_count()}",
        "memory": "unknown" if memory is None else f"{memory / 1e9:.1f} GB",
        "devices": device_text(find_devices("auto")),
    }
    width = max(map(len, lines))
    print("\n".join(f"{name:{width}}  {value}" for name, value in lines.items()))
