"""The original MNIST files: four IDX files in a folder, unpacked or gzipped, and checked."""

import hashlib
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pmbnn.data.base import DataError

if TYPE_CHECKING:
    import numpy as np

CHECKSUMS = {
    "train-images": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels": "a25bea736e30d166cdddb491f175f624",
    "t10k-images": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels": "27ae3e4e09519cfbb04c329615203637",
}
"""MD5 of each unpacked original file, in hexadecimal."""

HEADERS = {"images": (2051, 3), "labels": (2049, 1)}
"""Magic number and number of dimensions: 8 is unsigned bytes, then the dimensions."""


LONGEST_HEADER = 16
"""Bytes: the magic number and three dimensions."""


def read_folder(
    folder: Path, checksums: Mapping[str, str] = CHECKSUMS
) -> tuple["np.ndarray", "np.ndarray", "np.ndarray", "np.ndarray"]:
    """Training images and labels, test images and labels, each uint8.

    Images have shape ``(observation, 784)`` and hold values from 0 to 255; labels have shape
    ``(observation,)``.

    Parameters
    ----------
    folder
        Folder of the four files; they may also lie in its subfolder ``mnist``.
    checksums
        MD5 of each unpacked file, by its name up to ``-idx``.

    Raises
    ------
    DataError
        A file is missing, truncated, of another format, or not the one its checksum names.
    """
    train_x, train_y, test_x, test_y = (
        read_idx(find_idx(folder, name), name.split("-")[1], checksum)
        for name, checksum in checksums.items()
    )
    return train_x.reshape(len(train_x), -1), train_y, test_x.reshape(len(test_x), -1), test_y


def find_idx(folder: Path, name: str) -> Path:
    """Path of the file called ``name`` (such as ``train-images``) in a folder."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder.")
    dimensions = HEADERS[name.split("-")[1]][1]
    for place in (folder, folder / "mnist"):
        for dash in ("-", "."):
            for suffix in ("", ".gz"):
                path = place / f"{name}{dash}idx{dimensions}-ubyte{suffix}"
                if path.is_file():
                    return path
    raise DataError(f"{name}-idx{dimensions}-ubyte (or .gz) is missing from {folder}.")


def read_idx(
    path: Path, what: str, checksum: str | None = None, title: str = "MNIST"
) -> "np.ndarray":
    """Contents of one IDX file, uint8, in the shape its header gives.

    Parameters
    ----------
    path
        The file; it is unpacked first if its name ends in ``.gz``.
    what
        ``images`` or ``labels``.
    checksum
        MD5 of the unpacked file, in hexadecimal; any file will do unless given.
    title
        The data set it belongs to, for messages.

    Raises
    ------
    DataError
        The file is truncated, of another format, or not the one the checksum names.
    """
    import numpy as np

    content = _read_bytes(path)
    shape, header = _shape(path, content, what)
    size = header + math.prod(shape)
    if len(content) != size:
        raise DataError(f"{path} has the wrong size: must be {size} bytes, got {len(content)}.")
    # MD5 tells damage and mistaken identity apart from the real thing; it is no defence.
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if checksum is not None and digest != checksum:
        raise DataError(f"{path} is not the original {title} file: its MD5 must be {checksum}.")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


def read_shape(path: Path, what: str) -> tuple[int, ...]:
    """Shape of one IDX file, from its header alone.

    Raises
    ------
    DataError
        The file is truncated, or of another format.
    """
    return _shape(path, _read_bytes(path, LONGEST_HEADER), what)[0]


def _shape(path: Path, content: bytes, what: str) -> tuple[tuple[int, ...], int]:
    """Shape that a header gives, and the header's length."""
    magic, dimensions = HEADERS[what]
    found = int.from_bytes(content[:4])
    if found != magic:
        raise DataError(f"{path} is no IDX file of {what}: magic must be {magic}, got {found}.")
    header = 4 * (1 + dimensions)
    if len(content) < header:
        raise DataError(f"{path} is truncated.")
    shape = (int.from_bytes(content[at : at + 4]) for at in range(4, header, 4))
    return tuple(shape), header


def _read_bytes(path: Path, size: int = -1) -> bytes:
    """Contents of a file, unpacked, or as many bytes of it as asked for."""
    try:
        if path.suffix == ".gz":
            import gzip

            with gzip.open(path) as file:
                return file.read(size)
        with path.open("rb") as file:
            return file.read(size)
    except EOFError as error:
        raise DataError(f"{path} is truncated.") from error
    except (OSError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}.") from error
