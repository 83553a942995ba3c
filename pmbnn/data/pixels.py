"""Images as bytes, and the data set of as many of them as are asked for."""

from typing import Literal, NamedTuple, Protocol

import numpy as np

from pmbnn.data.arrays import Dataset
from pmbnn.data.base import DataError, Standardise
from pmbnn.data.standardisation import Standardisation, fit_standardisation

AT_ONCE = 4_096
"""Images standardised together: in double precision all of them would take a gigabyte."""


class RawImages(NamedTuple):
    """Pixels ``(observation, pixel)`` and labels ``(observation,)``, uint8, and their source."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    source: str


class SizedImages(Protocol):
    """Data set of images that asks for a number of them: see `Mnist`."""

    train: int | None
    test: int | None
    validation: int | None
    seed: int
    standardise: Standardise

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Channels, rows and columns."""


def images_dataset(
    spec: SizedImages, raw: RawImages, classes: tuple[str, ...], resplit: bool
) -> Dataset:
    """Rows scaled to [0, 1], then standardised, in float32.

    Parameters
    ----------
    resplit
        Whether data seeds split the same images anew.

    Raises
    ------
    DataError
        There are too few images.
    """
    train, validation = _training_rows(spec, raw)
    x_train, y_train = raw.x_train[train] / 255.0, raw.y_train[train]
    test = _subset(spec, "test", raw.y_test, raw.source)
    standardisation = fit_standardisation(x_train, spec.standardise)
    held_out = {}
    if spec.validation is not None:
        held_out["x_validation"] = _apply(standardisation, raw.x_train[validation] / 255.0)
        held_out["y_validation"] = raw.y_train[validation].astype(np.int64)
    y_test = raw.y_test[test].astype(np.int64)
    return Dataset(
        x_train=_apply(standardisation, x_train),
        y_train=y_train.astype(np.int64),
        x_test=_apply(standardisation, raw.x_test[test] / 255.0),
        y_test=y_test,
        features=tuple(f"pixel_{pixel}" for pixel in range(x_train.shape[1])),
        classes=classes,
        standardisation=standardisation,
        source=raw.source,
        input_shape=spec.input_shape,
        overlap=len(y_test) / len(y_train) if resplit else 0.0,
        **held_out,
    )


def _training_rows(
    spec: SizedImages, raw: RawImages
) -> tuple[np.ndarray | slice, np.ndarray | slice]:
    """Numbers of the training images that are fitted, and of those that are set aside."""
    if spec.validation is None:
        return _subset(spec, "train", raw.y_train, raw.source), slice(0)
    rows = len(raw.y_train)
    left = rows - spec.validation
    if left < (spec.train or 10):
        raise DataError(
            f"`validation` and `train` must be at most {rows} together for source "
            f"{raw.source}, got {spec.validation} and {spec.train or 'at least 10'}."
        )
    order = stratified_order(raw.y_train, spec.seed)
    # From the end: a smaller training set is part of a larger one then.
    return order[: spec.train or left], order[left:]


def _subset(
    spec: SizedImages, part: Literal["train", "test"], y: np.ndarray, source: str
) -> np.ndarray | slice:
    """Numbers of as many rows of one part as asked for, in every class's proportion."""
    size = getattr(spec, part)
    if size is None:
        return slice(None)
    if size > len(y):
        raise DataError(f"`{part}` must be at most {len(y)} for source {source}, got {size}.")
    return stratified_order(y, spec.seed)[:size]


def stratified_order(y: np.ndarray, random_seed: int) -> np.ndarray:
    """Shuffled row numbers of which every first ``n`` keep the proportions of the classes.

    Within its class a row is placed at random; the classes are then dealt out evenly, so that
    each count is within one of its share. A smaller subset is part of a larger one.
    """
    order = np.random.default_rng(random_seed).permutation(len(y))
    share = np.empty(len(y))
    for label in np.unique(y):
        places = np.flatnonzero(y[order] == label)
        share[places] = (np.arange(len(places)) + 0.5) / len(places)
    return order[np.argsort(share, kind="stable")]


def _apply(standardisation: Standardisation, x: np.ndarray) -> np.ndarray:
    """Standardised inputs as float32, which is what images are computed in."""
    found = np.empty(x.shape, np.float32)
    for start in range(0, len(x), AT_ONCE):
        found[start : start + AT_ONCE] = standardisation(x[start : start + AT_ONCE])
    return found


def sizes(spec: SizedImages, train: int, test: int) -> tuple[int, int]:
    """Numbers of training and test rows, of so many that there are."""
    left = max(1, train - (spec.validation or 0))
    return spec.train or left, spec.test or test
