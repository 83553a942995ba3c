"""Images of one's own: a folder or a zip archive with a subfolder for each class."""

import io
import zipfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import Field

from pmbnn.data.base import DataError, DataSettingError
from pmbnn.data.local_files import Stamp, find, stamp_of
from pmbnn.data.own_pixels import OwnImages
from pmbnn.data.splits import AnySplit, Share

if TYPE_CHECKING:
    import numpy as np

    from pmbnn.data.pixels import RawImages

PARTS = ("train", "test")

THREADS, AT_ONCE, WAITING = 4, 64, 8
"""Decoders release Python's lock; images that a thread takes at a time, and how many times that
are read ahead: photographs take megabytes each."""

Side = Annotated[int, Field(ge=1)]


class ImageFile(NamedTuple):
    """An image: whether it is for training or testing, its class, and where it is."""

    part: str
    label: str
    name: str


class Images(OwnImages):
    """Images of any format that Pillow reads, of one class in a folder of its name.

    ``path`` names a folder or a zip archive with ``CLASS/…``, which ``split`` divides, or with
    ``train/CLASS/…`` and ``test/CLASS/…``. ``classes`` chooses some of the classes, in that order.
    Images are grey unless ``colour`` is true; where they differ in size, ``size``, their height and
    width, must say what all of them are scaled to.
    """

    kind: Literal["images"] = "images"
    classes: tuple[str, ...] = ()
    colour: bool = False
    size: Annotated[tuple[Side, ...], Field(max_length=2)] = ()
    split: AnySplit | None = None

    @property
    def channels(self) -> int:
        """Colours of an image: 1 or 3."""
        return 3 if self.colour else 1

    @property
    def image_shape(self) -> tuple[int, int]:
        """Height and width of an image."""
        if self.size:
            if len(self.size) != 2:
                raise DataSettingError(
                    "size", f"must be a height and a width, got {list(self.size)}"
                )
            return self.size
        path, files = self._listed()
        return _size(stamp_of(path), files[0].name)

    @property
    def resplits(self) -> bool:
        """Whether data seeds split the same images anew."""
        return not self._is_given() and self._split().resplits

    def names(self) -> tuple[str, ...]:  # noqa: D102
        return self.classes or tuple(sorted({file.label for file in self._listed()[1]}))

    def counts(self) -> tuple[int, int]:  # noqa: D102
        _, files = self._listed()
        if self._is_given():
            test = sum(file.part == "test" for file in files)
            return len(files) - test, test
        return _counts(self, files)

    def images(self) -> "RawImages":  # noqa: D102
        import numpy as np

        from pmbnn.data.pixels import RawImages

        path, files = self._listed()
        read = stamp_of(path)
        # What is written into a folder's files does not change the folder.
        stamps = () if path.is_file() else tuple(stamp_of(path / file.name) for file in files)
        wanted = (self.image_shape, self.colour, bool(self.size))
        pixels = _pixels(read, stamps, self.path, files, *wanted)
        labels = _labels(files, self.names()).astype(np.uint8 if len(self.names()) < 256 else "i8")
        train, test = self._parts(files)
        return RawImages(pixels[train], labels[train], pixels[test], labels[test], "local")

    def check(self) -> None:  # noqa: D102
        super().check()
        if self._is_given() and self.split is not None:
            raise DataSettingError(
                "split", f"must be left out: {self.path} has the folders train and test itself"
            )

    def _listed(self) -> tuple[Path, tuple[ImageFile, ...]]:
        """Where the images are, and those of the chosen classes."""
        path = find(self.path, self._folders, "path")
        files = _list(_stamps(path), self.path)
        there = {file.label for file in files}
        for name in self.classes:
            if name not in there:
                from pmbnn.data.raw import show_names

                choices = show_names(sorted(there))
                raise DataSettingError(
                    "classes", f"must be some of {choices} of {self.path}, got {name!r}"
                )
        if self.classes:
            files = tuple(file for file in files if file.label in self.classes)
        return path, files

    def _is_given(self) -> bool:
        return bool(self._listed()[1][0].part)

    def _split(self):
        return self.split or Share()

    def _parts(self, files: tuple[ImageFile, ...]) -> "tuple[np.ndarray, np.ndarray]":
        """Numbers of the training and of the test images."""
        import numpy as np

        if self._is_given():
            of_test = np.array([file.part == "test" for file in files])
            return np.flatnonzero(~of_test), np.flatnonzero(of_test)
        from pmbnn.data.raw import RawRows

        labels = _labels(files, self.names())
        numbers = np.arange(len(files))
        raw = RawRows(
            numbers[:, None], labels, ("number",), self.names(), numbers, len(files), self.path
        )
        return self._split().parts(raw, self.seed)


def _labels(files: tuple[ImageFile, ...], names: tuple[str, ...]) -> "np.ndarray":
    import numpy as np

    number = {name: i for i, name in enumerate(names)}
    return np.array([number[file.label] for file in files])


@lru_cache(maxsize=4096)  # a plan asks several times of each of its data seeds
def _counts(spec: Images, files: tuple[ImageFile, ...]) -> tuple[int, int]:
    train, test = spec._parts(files)
    return len(train), len(test)


# Names


def _stamps(path: Path) -> tuple[Stamp, ...]:
    """Stamps of an archive, or of a folder and those in it, which change as files come and go."""
    if path.is_file():
        return (stamp_of(path),)
    below = [p for pattern in ("*", "*/*") for p in path.glob(pattern) if p.is_dir()]
    return tuple(stamp_of(p) for p in (path, *sorted(below)))


@lru_cache(maxsize=8)
def _list(stamps: tuple[Stamp, ...], title: str) -> tuple[ImageFile, ...]:
    """Images of a folder or archive, in the order of their part, class and name.

    Raises
    ------
    DataError
        It is neither, holds none, or some lie in no class's folder.
    """
    path = Path(stamps[0][0])
    names = sorted(name for name in _names(path, title) if not _is_hidden(name))
    if not names:
        raise DataError(f"{title}: holds no images.")
    split = [PurePosixPath(name).parts for name in names]
    # An archive often has all in one folder of its own name.
    start = 0
    while len({parts[start] for parts in split}) == 1 and min(map(len, split)) > start + 2:
        start += 1
    given = {parts[start] for parts in split} == set(PARTS) and min(map(len, split)) > start + 2
    found = [
        _image_file(title, name, parts[start:], given)
        for name, parts in zip(names, split, strict=True)
    ]
    classes = {part: {f.label for f in found if f.part == part} for part in PARTS}
    if given and (strange := sorted(classes["test"] ^ classes["train"])):
        raise DataError(f"{title}: class `{strange[0]}` must be in both train and test.")
    return tuple(sorted(found))


def _image_file(title: str, name: str, parts: tuple[str, ...], given: bool) -> ImageFile:
    if len(parts) < 2:
        raise DataError(f"{title}: {name} must lie in a folder named after its class.")
    return ImageFile(parts[0], parts[1], name) if given else ImageFile("", parts[0], name)


def _names(path: Path, title: str) -> list[str]:
    if path.is_dir():
        return [p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file()]
    with _archive(path, title) as archive:
        return [name for name in archive.namelist() if not name.endswith("/")]


def _is_hidden(name: str) -> bool:
    return any(part.startswith((".", "__MACOSX")) for part in PurePosixPath(name).parts)


@contextmanager
def _archive(path: Path, title: str) -> Iterator[zipfile.ZipFile]:
    try:
        archive = zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{title}: must be a folder or a zip archive of images.") from error
    with archive:
        yield archive


# Pixels


@contextmanager
def _reader(path: Path, title: str) -> Iterator[Callable[[str], bytes]]:
    """What gives the bytes of an image of a folder or archive by its name."""
    if path.is_dir():
        yield lambda name: (path / name).read_bytes()
        return
    with _archive(path, title) as archive:

        def read(name: str) -> bytes:
            try:
                return archive.read(name)
            except (zipfile.BadZipFile, OSError, EOFError) as error:
                raise DataError(f"{title}: {name} is damaged: {error}.") from error

        yield read


@lru_cache(maxsize=8)
def _size(stamp: Stamp, name: str) -> tuple[int, int]:
    """Height and width of one image."""
    from pmbnn.data.own_images import read_size

    path = Path(stamp[0])
    with _reader(path, path.name) as read:
        return read_size(io.BytesIO(read(name)), f"{path.name}: {name}")


@lru_cache(maxsize=1)  # hundreds of megabytes; data seeds of one set follow each other
def _pixels(
    stamp: Stamp,
    _: tuple[Stamp, ...],
    title: str,
    files: tuple[ImageFile, ...],
    size: tuple[int, int],
    colour: bool,
    scaled: bool,
) -> "np.ndarray":
    """Bytes ``(image, pixel)``: channels, rows and columns, these the fastest."""
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np

    from pmbnn.data.own_images import decode

    height, width = size
    found = np.empty((len(files), 3 if colour else 1, height, width), np.uint8)

    def fill(start: int, contents: list[bytes]) -> None:
        for number, content in enumerate(contents, start):
            words = f"{title}: {files[number].name}"
            found[number] = decode(io.BytesIO(content), words, size, colour, scaled)

    with _reader(Path(stamp[0]), title) as read, ThreadPoolExecutor(THREADS) as pool:
        # An archive is read by one thread, in its order.
        tasks = deque()
        for start in range(0, len(files), AT_ONCE):
            contents = [read(file.name) for file in files[start : start + AT_ONCE]]
            tasks.append(pool.submit(fill, start, contents))
            if len(tasks) > WAITING:
                tasks.popleft().result()
        for task in tasks:
            task.result()
    return found.reshape(len(files), -1)
