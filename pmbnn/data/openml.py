"""MNIST, Fashion-MNIST and any table from OpenML through scikit-learn, checked and cached."""

import gzip
import json
import os
import re
import socket
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple
from urllib import request
from urllib.error import HTTPError

from pydantic import Field, model_validator

from pmbnn.data.base import (
    DataError,
    DataSettingError,
    Missing,
    Redundant,
    Standardise,
    located,
    one_line,
)
from pmbnn.data.tabular import SplitRows, TaskSetting

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from pmbnn.data.raw import RawRows

HOME = "https://www.openml.org"

REACH_SECONDS = 3.0
"""How long to wait for the first answer, name look-up included."""

READ_SECONDS = 30.0
"""How long the download may stand still; OpenML often takes ten seconds to start."""

SHAPE = (70_000, 784)
"""Rows and pixels: the 60,000 training images, then the 10,000 test images."""

DAMAGED = (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error)
"""What reading raises where there is no cache yet, or a damaged one: it is written anew."""

Number = Annotated[int, Field(ge=1)]


class OpenML(SplitRows):
    """A table of OpenML, by its ``id`` or by ``name`` and ``version``, downloaded once.

    What OpenML calls nominal is text, ``target`` is its own unless given, and the rest is as with
    `Table`. The rows are kept in the user's cache; without a network, rows that are not in it are
    given up within seconds.
    """

    kind: Literal["openml"] = "openml"
    id: Number | None = None
    name: str | None = None
    version: Number | None = None
    target: str | tuple[str, ...] | None = None
    features: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    task: TaskSetting = None
    missing: Missing = "error"
    redundant: Redundant = "error"
    standardise: Standardise = "feature"
    standardise_target: bool = True

    source: ClassVar[str] = "openml"

    @model_validator(mode="after")
    def _named_once(self):
        by_name = (self.name is not None, self.version is not None)
        if by_name != ((True, True) if self.id is None else (False, False)):
            raise ValueError("must have either `id`, or `name` and `version`")
        return self

    @property
    def title(self) -> str:
        """Name in messages."""
        return (
            f"data set {self.id}" if self.name is None else f"{self.name}, version {self.version}"
        )

    def read(self, stamp: None) -> "RawRows":  # noqa: D102
        from pmbnn.data.frames import rows_from_frame

        table, spec = load_frame(self), self
        if self.target is None:
            if table.target is None:
                rule = f"must be given: OpenML names none, or several, of {self.title}"
                raise DataSettingError("target", rule)
            spec = self.model_copy(update={"target": table.target})
        return rows_from_frame(table.frame, spec, self.title)


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


class OpenMLFrame(NamedTuple):
    """Rows with every column, nominal ones as text, and the target that OpenML names."""

    frame: "pd.DataFrame"
    target: str | None


def load_images(source: OpenMLSource = MNIST) -> tuple["np.ndarray", "np.ndarray"]:
    """All pixels ``(observation, 784)`` and labels ``(observation,)``, uint8.

    The first 60,000 rows are the original training images. They come from the cache if it
    holds them, and without contact to the network.

    Raises
    ------
    DataError
        OpenML cannot be reached, or its answer cannot be the data set.
    """
    import numpy as np

    path = cache_folder() / source.file
    with suppress(*DAMAGED):
        return _read_images(located(source.file, path) or path)
    with _unavailable(source.title, f": {source.remedy}"):
        pixels, labels = _download(source)
    _write(path, lambda part: np.savez_compressed(part, pixels=pixels, labels=labels))
    located(source.file, path)  # workers of a cluster are sent what was just downloaded
    return pixels, labels


def load_frame(spec: OpenML) -> OpenMLFrame:
    """Any data set of OpenML as a frame, from the cache if it holds it whole.

    Raises
    ------
    DataError
        OpenML cannot be reached, has no such data set, or sent something else than a table.
    """
    name = spec.id if spec.name is None else f"{spec.name}_{spec.version}"
    path = cache_folder() / f"{re.sub(r'[^A-Za-z0-9_-]+', '-', str(name))}.json.gz"
    with suppress(*DAMAGED):
        return _read_frame(path)
    with _unavailable(spec.title):
        downloaded = _download_frame(spec)
    _write(path, lambda part: part.write_bytes(_packed(downloaded)))
    return downloaded


# The cache


def cache_folder() -> Path:
    """Folder below the user's cache where downloaded data is kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pmbnn" / "openml"


def _write(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file of the cache completely, or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            part = Path(folder) / path.name
            write(part)
            os.replace(part, path)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {one_line(error)}.") from error


def _read_images(path: Path) -> tuple["np.ndarray", "np.ndarray"]:
    import numpy as np

    # Opened here, because NumPy leaves a file open whose archive is damaged.
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return _checked(arrays["pixels"], arrays["labels"])


def _checked(pixels: "np.ndarray", labels: "np.ndarray") -> tuple["np.ndarray", "np.ndarray"]:
    """Both arrays as uint8, if they can be such images."""
    import numpy as np

    if pixels.shape != SHAPE or labels.shape != SHAPE[:1]:
        raise ValueError(f"must be {SHAPE[0]} rows of {SHAPE[1]} pixels, got {pixels.shape}")
    if set(np.unique(labels).tolist()) not in (set(range(10)), set("0123456789")):
        raise ValueError("labels must be 0 to 9")
    if not (pixels.min() >= 0 and pixels.max() <= 255):
        raise ValueError("pixels must be 0 to 255")
    return pixels.astype(np.uint8), labels.astype(np.uint8)


def _read_frame(path: Path) -> OpenMLFrame:
    import pandas as pd

    # Gzip has a checksum of its own.
    content = json.loads(gzip.decompress(path.read_bytes()))
    frame = _with_categories(pd.DataFrame(content["rows"]), content["nominal"])
    return OpenMLFrame(frame, content["target"])


def _packed(table: OpenMLFrame) -> bytes:
    # As Python writes numbers, which reads back as the same ones.
    content = {
        "target": table.target,
        "nominal": list(table.frame.select_dtypes("category")),
        "rows": {str(name): table.frame[name].tolist() for name in table.frame},
    }
    return gzip.compress(json.dumps(content).encode(), mtime=0)


def _with_categories(frame: "pd.DataFrame", nominal: list[str]) -> "pd.DataFrame":
    """A frame in which some columns are categories by their names, which may look like numbers."""
    frame = frame.copy()
    for name in nominal:
        frame[name] = frame[name].astype(object).map(str, na_action="ignore").astype("category")
    return frame


# The network


def _download(source: OpenMLSource) -> tuple["np.ndarray", "np.ndarray"]:
    bunch = _fetch(name=source.name, version=source.version, as_frame=False)
    return _checked(bunch.data, bunch.target)


def _download_frame(spec: OpenML) -> OpenMLFrame:
    by_name = {"name": spec.name, "version": spec.version}
    bunch = _fetch(**({"data_id": spec.id} if spec.name is None else by_name), as_frame=True)
    frame = _with_categories(bunch.frame, list(bunch.frame.select_dtypes("category")))
    return OpenMLFrame(frame, bunch.target_names[0] if len(bunch.target_names) == 1 else None)


def _fetch(**settings: Any) -> Any:
    """Download of scikit-learn, in a temporary folder: none of it is read again."""
    from sklearn.datasets import fetch_openml

    _check_reachable()
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(READ_SECONDS)  # scikit-learn sets none
    try:
        with tempfile.TemporaryDirectory() as folder:
            return fetch_openml(**settings, parser="liac-arff", n_retries=0, data_home=folder)
    finally:
        socket.setdefaulttimeout(before)


@contextmanager
def _unavailable(title: str, remedy: str = "") -> Iterator[None]:
    """Raise DataError where a download fails."""
    try:
        yield
    # Scikit-learn and its ARFF reader raise a dozen unrelated types over a broken answer.
    except Exception as error:
        reason = one_line(error)
        raise DataError(f"{title} is unavailable from OpenML ({reason}){remedy}.") from error


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
