"""MNIST, its kin and any table from OpenML through scikit-learn, cached once they check out."""

import gzip
import hashlib
import json
import os
import re
import socket
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib import request
from urllib.error import HTTPError

from pmbnn.data.base import DataError
from pmbnn.data.local_files import located

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

HOME = "https://www.openml.org"

REACH_SECONDS = 3.0
"""How long to wait for the first answer, name look-up included."""

READ_SECONDS = 30.0
"""How long the download may stand still; OpenML often takes ten seconds to start."""

SHAPE = (70_000, 784)
"""Rows and pixels: the 60,000 training images, then the 10,000 test images."""


class OpenMLSource(NamedTuple):
    """A data set of 70,000 images in ten classes, as OpenML keeps it.

    ``name`` and ``version`` are OpenML's; ``title`` and ``remedy`` are for messages; ``file`` is
    its name in the cache.
    """

    name: str
    version: int
    file: str
    title: str
    remedy: str


MNIST = OpenMLSource(
    name="mnist_784",
    version=1,
    file="mnist_784.npz",
    title="MNIST",
    remedy="set PMBNN_DATA to a folder of its IDX files, or use source: embedded",
)


def load_openml(source: OpenMLSource = MNIST) -> tuple["np.ndarray", "np.ndarray"]:
    """All pixels ``(observation, 784)`` and labels ``(observation,)``, uint8.

    The first 60,000 rows are the original training images. They come from the cache if it
    holds them, and without contact to the network.

    Raises
    ------
    DataError
        OpenML cannot be reached, or what it sent cannot be the data set.
    """
    path = cache_folder() / source.file
    try:
        return _read_cache(located(source.file, path) or path)
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error):
        pass  # No cache yet, or a damaged one: it is written anew.
    try:
        pixels, labels = _download(source)
    # Scikit-learn and its ARFF reader raise a dozen unrelated types over a broken answer.
    except Exception as error:
        raise DataError(
            f"{source.title} is unavailable from OpenML ({_reason(error)}): {source.remedy}."
        ) from error
    _write_cache(path, pixels, labels)
    located(source.file, path)  # workers of a cluster are sent what was just downloaded
    return pixels, labels


def load_frame(named: "Named") -> "OpenMLFrame":
    """Any data set of OpenML as a frame, from the cache if it holds it whole.

    Raises
    ------
    DataError
        OpenML cannot be reached, has no such data set, or sent something else than a table.
    """
    path = cache_folder() / named.file
    try:
        return _read_frame(path)
    except (OSError, EOFError, ValueError, KeyError, zlib.error):
        pass  # No cache yet, or a damaged one: it is written anew.
    try:
        found = _download_frame(named)
    # Scikit-learn and its ARFF reader raise a dozen unrelated types over a broken answer.
    except Exception as error:
        raise DataError(
            f"{named.title} is unavailable from OpenML ({_reason(error).rstrip('.')})."
        ) from error
    _write_frame(path, found)
    return found


class Named(NamedTuple):
    """A data set by its number, or by its name and version."""

    id: int | None
    name: str | None
    version: int | None

    @property
    def title(self) -> str:
        """What it is called in messages."""
        return (
            f"data set {self.id}" if self.name is None else f"{self.name}, version {self.version}"
        )

    @property
    def file(self) -> str:
        """Its name in the cache."""
        name = "" if self.name is None else re.sub(r"[^A-Za-z0-9_-]+", "-", self.name)
        return f"{self.id}.json.gz" if self.name is None else f"{name}_{self.version}.json.gz"


class OpenMLFrame(NamedTuple):
    """Rows with every column, those that OpenML calls nominal as text, and its own target."""

    frame: "pd.DataFrame"
    target: str | None


def _download_frame(named: Named) -> OpenMLFrame:
    from sklearn.datasets import fetch_openml

    _check_reachable()
    by = {"data_id": named.id} if named.name is None else named._asdict()
    by.pop("id", None)
    with tempfile.TemporaryDirectory() as folder, _socket_timeout(READ_SECONDS):
        bunch = fetch_openml(**by, as_frame=True, parser="liac-arff", n_retries=0, data_home=folder)
    frame = bunch.frame.copy()
    for name in _nominal(frame):
        frame[name] = _as_nominal(frame[name])
    targets = list(bunch.target_names)
    return OpenMLFrame(frame, targets[0] if len(targets) == 1 else None)


def _write_frame(path: Path, found: OpenMLFrame) -> None:
    """Keep a frame under ``path`` with the SHA-256 of its rows."""
    # As Python writes numbers, which reads back as the same ones.
    rows = json.dumps({str(name): found.frame[name].tolist() for name in found.frame})
    content = json.dumps(
        {
            "sha256": hashlib.sha256(rows.encode()).hexdigest(),
            "target": found.target,
            "nominal": _nominal(found.frame),
            "rows": rows,
        }
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            whole = Path(folder) / path.name
            whole.write_bytes(gzip.compress(content.encode(), mtime=0))
            os.replace(whole, path)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {_reason(error)}.") from error


def _nominal(frame: "pd.DataFrame") -> list[str]:
    """Columns of categories."""
    import pandas as pd

    return [name for name in frame if isinstance(frame[name].dtype, pd.CategoricalDtype)]


def _as_nominal(column: "pd.Series") -> "pd.Series":
    """Categories by their names, which may look like numbers."""
    return column.astype(object).map(str, na_action="ignore").astype("category")


def _read_frame(path: Path) -> OpenMLFrame:
    import pandas as pd

    content = json.loads(gzip.decompress(path.read_bytes()))
    rows = content["rows"]
    if hashlib.sha256(rows.encode()).hexdigest() != content["sha256"]:
        raise ValueError("the rows are not those that were downloaded")
    frame = pd.DataFrame(json.loads(rows))
    for name in content["nominal"]:
        frame[name] = _as_nominal(frame[name])
    return OpenMLFrame(frame, content["target"])


def cache_folder() -> Path:
    """Folder below the user's cache where downloaded data is kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pmbnn" / "openml"


def _download(source: OpenMLSource) -> tuple["np.ndarray", "np.ndarray"]:
    from sklearn.datasets import fetch_openml

    _check_reachable()
    # A cache of scikit-learn's own would be read again after a broken download; this one goes.
    with tempfile.TemporaryDirectory() as folder, _socket_timeout(READ_SECONDS):
        bunch = fetch_openml(
            source.name,
            version=source.version,
            as_frame=False,
            parser="liac-arff",
            n_retries=0,
            data_home=folder,
        )
    return _check(bunch.data, bunch.target)


def _check(pixels: "np.ndarray", labels: "np.ndarray") -> tuple["np.ndarray", "np.ndarray"]:
    """Both arrays as uint8, if they can be such images."""
    import numpy as np

    if pixels.shape != SHAPE or labels.shape != SHAPE[:1]:
        raise ValueError(f"must be {SHAPE[0]} rows of {SHAPE[1]} pixels, got {pixels.shape}")
    if set(np.unique(labels).tolist()) not in (set(range(10)), set("0123456789")):
        raise ValueError("labels must be 0 to 9")
    if not (pixels.min() >= 0 and pixels.max() <= 255):
        raise ValueError("pixels must be 0 to 255")
    return pixels.astype(np.uint8), labels.astype(np.uint8)


def _read_cache(path: Path) -> tuple["np.ndarray", "np.ndarray"]:
    import numpy as np

    # Opened here, because NumPy leaves a file open whose archive is damaged.
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return _check(arrays["pixels"], arrays["labels"])


def _write_cache(path: Path, pixels: "np.ndarray", labels: "np.ndarray") -> None:
    """Keep the arrays under ``path``, which holds all of them or does not change."""
    import numpy as np

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            whole = Path(folder) / path.name
            np.savez_compressed(whole, pixels=pixels, labels=labels)
            os.replace(whole, path)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {_reason(error)}.") from error


def _check_reachable() -> None:
    """Raise OSError unless OpenML answers within the deadline, through a proxy if there is one.

    A socket's timeout does not cover the look-up of its name, which can hang for a minute
    without a network; so the attempt is made in a thread that is left behind.
    """
    outcome: list[OSError | None] = []

    def ask() -> None:
        try:
            request.urlopen(request.Request(HOME, method="HEAD"), timeout=REACH_SECONDS).close()
            outcome.append(None)
        except HTTPError:  # an answer all the same
            outcome.append(None)
        except OSError as error:
            outcome.append(getattr(error, "reason", None) or error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(REACH_SECONDS)
    error = outcome[0] if outcome else TimeoutError(f"no answer within {REACH_SECONDS:g} s")
    if error is not None:
        raise OSError(str(error)) from None


@contextmanager
def _socket_timeout(seconds: float) -> Iterator[None]:
    """Timeout for sockets made within the block: scikit-learn's loader sets none."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _reason(error: Exception) -> str:
    """Message of an error on one line."""
    return " ".join(str(error).split()) or type(error).__name__
