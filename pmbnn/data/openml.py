"""MNIST, Fashion-MNIST and any table from OpenML through scikit-learn, checked and cached."""

import os
import re
import socket
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Iterator
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
    from sklearn.utils import Bunch

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

    Columns that OpenML calls nominal are text. The files are kept in the user's cache; without a
    network, those that are not in it are given up within seconds.

    Parameters
    ----------
    id
        Number of the data set. By default, ``name`` and ``version`` identify it.
    name
        Name of the data set, with ``version``. By default, ``id`` identifies it.
    version
        Version of the data set, with ``name``. By default, ``id`` identifies it.
    target
        Column to predict; or several columns of numbers, ``[[height, weight]]``. By default, the
        target that OpenML names.
    features
        Columns to predict from, as a list of lists. By default, all but the target
        and the column of groups.
    without
        Columns to leave out of the features, as a list of lists. By default none.
    categorical
        Columns of numbers to encode as categories, as a list of lists. By default none.
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

        table, spec = load_table(self), self
        if self.target is None:
            if len(table.target_names) != 1:
                rule = f"must be given: OpenML names none, or several, of {self.title}"
                raise DataSettingError("target", rule)
            spec = self.model_copy(update={"target": table.target_names[0]})
        return rows_from_frame(table.frame, spec, self.title)


class OpenMLSource(NamedTuple):
    """A data set of 70,000 images in ten classes, as OpenML keeps it.

    ``name`` and ``version`` are OpenML's; ``title`` and ``remedy`` are for messages.
    """

    name: str
    version: int
    title: str
    remedy: str


MNIST = OpenMLSource(
    name="mnist_784",
    version=1,
    title="MNIST",
    remedy="set PMBNN_DATA to a folder of its IDX files, or use source: embedded",
)


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

    file = f"{source.name.lower()}.npz"
    path = cache_folder() / file
    with suppress(*DAMAGED):
        return _read_images(located(file, path) or path)
    # Arrays are read in a hundredth of the time: the files of scikit-learn are not kept.
    with _unavailable(source.title, f": {source.remedy}"), tempfile.TemporaryDirectory() as folder:
        asked = {"name": source.name, "version": source.version, "as_frame": False}
        bunch = _fetch(Path(folder) / "openml", **asked)
        pixels, labels = _checked(bunch.data, bunch.target)
    try:
        with _moved_to(path) as part:
            np.savez_compressed(part, pixels=pixels, labels=labels)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {one_line(error)}.") from error
    located(file, path)  # workers of a cluster are sent what was just downloaded
    return pixels, labels


def load_table(spec: OpenML) -> "Bunch":
    """Any table of OpenML: its ``frame``, and the ``target_names`` that OpenML gives it.

    The files are kept as scikit-learn keeps them, in a folder for each table, and are checked
    against OpenML's checksum whenever they are read.

    Raises
    ------
    DataError
        OpenML cannot be reached, has no such data set, or sent something else than a table.
    """
    asked: dict[str, Any] = {"data_id": spec.id, "as_frame": True}
    name = str(spec.id)
    if spec.name is not None:
        asked = {"name": spec.name, "version": spec.version, "as_frame": True}
        name = f"{spec.name}_{spec.version}"
    folder = cache_folder() / re.sub(r"[^A-Za-z0-9_-]+", "-", name)
    with _unavailable(spec.title):
        if not folder.is_dir():
            with _moved_to(folder) as part:
                _fetch(part, **asked)
        return _fetch(folder, **asked)


# The cache


def cache_folder() -> Path:
    """Folder below the user's cache where downloaded data is kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pmbnn" / "openml"


@contextmanager
def _moved_to(path: Path) -> Iterator[Path]:
    """A place for a file or folder of the cache, which is put there once it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        part = Path(folder) / path.name
        yield part
        try:
            os.replace(part, path)
        except OSError:
            if not path.is_dir():  # another process was faster
                raise


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


# The network


def _fetch(folder: Path, **settings: Any) -> "Bunch":
    """Data set of OpenML, in a folder of scikit-learn's; downloaded where that is not there."""
    from sklearn.datasets import fetch_openml

    if not folder.is_dir():
        _check_reachable()
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(READ_SECONDS)  # scikit-learn sets none
    try:
        return fetch_openml(**settings, parser="liac-arff", n_retries=1, data_home=folder)
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
    outcome: list[OSError] = [TimeoutError(f"no answer within {REACH_SECONDS:g} s")]

    def ask() -> None:
        try:
            request.urlopen(request.Request(HOME, method="HEAD"), timeout=REACH_SECONDS).close()
            outcome.clear()
        except HTTPError:  # an answer all the same
            outcome.clear()
        except OSError as error:
            outcome[:] = [getattr(error, "reason", None) or error]

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(REACH_SECONDS)
    if outcome:
        raise OSError(str(outcome[0])) from None
