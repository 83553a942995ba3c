"""NumPy archives (``.npz``)."""

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pmbnn.data.base import DataError, DataSettingError
from pmbnn.data.raw import show_names


def read_archive(path: Path, title: str, names: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Arrays of an archive by the settings that name them; objects are never unpickled.

    Raises
    ------
    DataError
        It is no archive, or lacks an array.
    """
    try:
        # Opened here, because NumPy leaves a file open whose archive is damaged.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            if not hasattr(arrays, "files"):
                raise DataError(f"{title}: must be an .npz archive, got a single array.")
            for setting, name in names.items():
                if name not in arrays.files:
                    there = show_names(sorted(arrays.files))
                    raise DataSettingError(
                        setting, f"must be one of {there} of {title}, got {name!r}"
                    )
            return {setting: arrays[name] for setting, name in names.items()}
    except DataError:
        raise
    except (OSError, EOFError, ValueError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        if "allow_pickle" in reason or "pickle" in reason.lower():
            reason = "it is no archive, or holds Python objects, which are never unpickled"
        raise DataError(f"{title}: cannot be read: {reason}.") from error
