"""Arrays that a network is fitted on and judged by."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pmbnn.data.base import DataError, Standardise, Targets
from pmbnn.data.raw import Given, RawRows, raw_of_arrays
from pmbnn.data.splits import Share, Split
from pmbnn.data.standardisation import (
    Standardisation,
    fit_standardisation,
    identity_standardisation,
    is_constant,
)
from pmbnn.spec.display import Summarised

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Rows(Summarised):
    """Rows with their targets: what a model is built on.

    ``x`` has shape ``(observation, feature)``; ``y`` holds class indices, ``(observation,)``,
    or numbers where there are no ``classes``: ``(observation, target)`` of several targets, whose
    names are ``target_names``, of which a single one has none.
    ``input_shape`` is what one row stands for: ``(channel, row, column)`` of an image, whose
    columns are fastest among the features; or ``(feature,)``, as it is unless said.
    """

    x: np.ndarray
    y: np.ndarray
    features: tuple[str, ...]
    classes: tuple[str, ...]
    input_shape: tuple[int, ...] = ()
    target_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "input_shape", _checked_shape(self.input_shape, self.features))

    def __len__(self) -> int:
        """Return the number of observations."""
        return len(self.y)

    @property
    def targets(self) -> Targets:
        """What the targets are."""
        return "classes" if self.classes else "numbers"

    @property
    def n_classes(self) -> int | None:
        """Number of classes; None where the targets are numbers."""
        return len(self.classes) or None

    @property
    def n_targets(self) -> int:
        """Number of targets a row."""
        return len(self.target_names) or 1

    def split(self, fraction: float, random_seed: int) -> "tuple[Rows, Rows]":
        """Shuffled split into ``1 - fraction`` and ``fraction`` of the rows, alike in classes."""
        from sklearn.model_selection import train_test_split

        kept, held_out = train_test_split(
            np.arange(len(self)),
            test_size=fraction,
            random_state=random_seed,
            stratify=self.y if self.classes else None,
        )
        return self.take(kept), self.take(held_out)

    def take(self, rows: np.ndarray | list[int]) -> "Rows":
        """Rows of the given numbers, in their order."""
        return replace(self, x=self.x[rows], y=self.y[rows])


def _checked_shape(shape: tuple[int, ...], features: tuple[str, ...]) -> tuple[int, ...]:
    """The shape of one row; one axis of features unless given."""
    if shape and math.prod(shape) != len(features):
        raise ValueError(
            f"`input_shape` must have one entry for each of {len(features)} features, got {shape}."
        )
    return shape or (len(features),)


@dataclass(frozen=True, repr=False)
class Line(Summarised):
    """A line through the origin of the raw inputs, on which predictions are looked at.

    Attributes
    ----------
    position
        Where its points are on it, ascending, ``(point,)``.
    direction
        Raw inputs are positions times this vector of length 1, ``(feature,)``.
    truth
        The function without noise at its points, ``(point,)``; None where nobody knows it.
    name
        What a position is called.
    gap
        A position between training rows that lie to both its sides, where there is one: what is
        known of the function is least there.
    """

    position: np.ndarray
    direction: np.ndarray
    truth: np.ndarray | None = None
    name: str = "x"
    gap: float | None = None

    @property
    def inputs(self) -> np.ndarray:
        """Raw inputs of its points, ``(point, feature)``."""
        return self.position[:, None] * self.direction


@dataclass(frozen=True, eq=False, repr=False)
class Origin(Summarised):
    """What a data set was made of in memory, so that its rows can be stored as an archive.

    Attributes
    ----------
    given
        The rows.
    settings
        Those of ``kind: npz``, by their names; the split and its seed among them.
    name
        What the rows are called.
    """

    given: Given
    settings: dict[str, Any]
    name: str


@dataclass(frozen=True, repr=False)
class Dataset(Summarised):
    """Training and test rows, standardised, with what is needed to undo or repeat that.

    Attributes
    ----------
    x_train, x_test
        Standardised inputs, ``(observation, feature)``, float64 for small data and float32
        for images.
    y_train, y_test
        Class indices, ``(observation,)``, int64; or numbers, float64, standardised by
        `target_standardisation`: ``(observation, target)`` of several targets.
    features, classes
        Names of the input features and of the classes; no classes where targets are numbers.
    standardisation
        The map from raw to standardised inputs.
    source
        Where the rows came from, in words (``scikit-learn``, ``local``, ``embedded``, ...).
    input_shape
        What one row stands for, as in `Rows`.
    x_validation, y_validation
        Training rows that nothing is fitted on, to set thresholds by and to follow a fit with;
        none unless asked for.
    overlap
        Test rows for each training row, where data seeds split the same rows anew, so that what
        they say is related; 0 where every data seed has rows of its own.
    target_standardisation
        The map from targets in the units of the data to those that are fitted, where they are
        numbers: ``mean`` and ``sd`` of shape ``(target,)``. It leaves them as they are unless said.
        Models speak of the latter; predictions and metrics of the former.
    target_names
        Of several targets; none of a single one.
    origin
        What `from_arrays` or `from_frame` made it of, which `pmbnn.run` stores.
    """

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    features: tuple[str, ...]
    classes: tuple[str, ...]
    standardisation: Standardisation
    source: str
    input_shape: tuple[int, ...] = ()
    x_validation: np.ndarray | None = None
    y_validation: np.ndarray | None = None
    overlap: float = 0.0
    target_standardisation: Standardisation = field(default_factory=identity_standardisation)
    target_names: tuple[str, ...] = ()
    origin: Origin | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "input_shape", _checked_shape(self.input_shape, self.features))

    @classmethod
    def from_arrays(
        cls,
        x: np.ndarray,
        y: Sequence | np.ndarray,
        *,
        features: Sequence[str] = (),
        target_names: Sequence[str] = (),
        groups: Sequence | np.ndarray | None = None,
        target_is: Targets | None = None,
        split: Split | None = None,
        seed: int = 0,
        standardise: Standardise = "feature",
        standardise_target: bool = True,
        missing: Literal["refuse", "mean", "drop"] = "refuse",
        redundant: Literal["refuse", "drop", "keep"] = "refuse",
        name: str = "arrays",
    ) -> "Dataset":
        """Data set of arrays, checked, split and standardised as an experiment file has it.

        Parameters
        ----------
        x
            Inputs ``(observation, feature)``, or images ``(observation, row, column)`` or
            ``(observation, channel, row, column)`` of values from 0 to 1, or bytes.
        y
            Targets, ``(observation,)``: names of classes, truth values, or numbers; several
            numbers a row, ``(observation, target)``.
        features, target_names
            Names of the inputs, ``x1``, ``x2``, ... unless given; and of several targets, ``y1``,
            ``y2``, ...
        groups
            To which group a row belongs, ``(observation,)``, where the split keeps them together.
        target_is
            ``classes`` or ``numbers``, where `y` does not tell (see ``Table``).
        split, seed
            Which rows are test rows: a fifth, drawn by the seed, unless said.
        standardise, standardise_target
            Of inputs, and whether of targets that are numbers; both fitted on training rows.
        missing, redundant
            What is done about missing values, and about columns that say nothing new.
        name
            What results call the rows.

        Raises
        ------
        DataError
            The arrays are not as they must be.
        """
        given = Given(
            np.asarray(x),
            np.asarray(y),
            tuple(features),
            None if groups is None else np.asarray(groups),
            target_names=tuple(target_names),
        )
        settings = {
            "target_is": target_is,
            "split": split or Share(),
            "seed": seed,
            "standardise": standardise,
            "standardise_target": standardise_target,
            "missing": missing,
            "redundant": redundant,
        }
        return dataset_of(Origin(given, settings, name), "x", "y", "arrays")

    @classmethod
    def from_frame(
        cls,
        frame: "pd.DataFrame",
        target: str | Sequence[str],
        *,
        features: Sequence[str] = (),
        without: Sequence[str] = (),
        categorical: Sequence[str] = (),
        target_is: Targets | None = None,
        split: Split | None = None,
        seed: int = 0,
        standardise: Standardise = "feature",
        standardise_target: bool = True,
        missing: Literal["refuse", "mean", "drop"] = "refuse",
        redundant: Literal["refuse", "drop", "keep"] = "refuse",
        name: str = "frame",
    ) -> "Dataset":
        """Data set of a pandas frame, as ``kind: table`` of an experiment file makes it of a file.

        Parameters
        ----------
        frame
            A row for each observation.
        target
            Name of the column to be predicted, or of several of numbers.
        features, without, categorical
            Names of columns, as those of ``Table``.
        target_is, split, seed, standardise, standardise_target, missing, redundant
            As those of `from_arrays`.
        name
            What results call the rows.

        Raises
        ------
        DataError
            The frame is not as it must be.
        """
        from pmbnn.data.frames import Columns, given_of_frame

        split = split or Share()
        target = target if isinstance(target, str) else tuple(target)
        columns = Columns(target, tuple(features), tuple(without), tuple(categorical), split.group)
        settings = {
            "target_is": target_is,
            "split": split,
            "seed": seed,
            "standardise": standardise,
            "standardise_target": standardise_target,
            "missing": missing,
            "redundant": redundant,
        }
        given = given_of_frame(frame, columns, target_is, missing, "frame")
        return dataset_of(Origin(given, settings, name), "frame", columns.targets[0], "frame")

    @property
    def training(self) -> Rows:
        """The training rows."""
        return Rows(
            self.x_train,
            self.y_train,
            self.features,
            self.classes,
            self.input_shape,
            self.target_names,
        )

    def raw_targets(self, y: np.ndarray) -> np.ndarray:
        """Targets in their own units, of those that are fitted; shaped as these are."""
        how = self.target_standardisation
        return y if how.is_identity else how.undo(y)

    @property
    def fingerprint(self) -> str:
        """SHA-256 over every array, in hexadecimal."""
        digest = hashlib.sha256()
        arrays = [self.x_train, self.y_train, self.x_test, self.y_test]
        if self.x_validation is not None:
            arrays += [self.x_validation, self.y_validation]
        for array in arrays:
            digest.update(f"{array.shape}{array.dtype.str}".encode())
            digest.update(array.tobytes())
        if not self.target_standardisation.is_identity:
            # The same numbers in other units are other data: a density has their units.
            for array in (self.target_standardisation.mean, self.target_standardisation.sd):
                digest.update(np.float64(array).tobytes())
        return digest.hexdigest()


def split_dataset(
    raw: RawRows,
    split: Split,
    seed: int,
    standardise: Standardise,
    standardise_target: bool,
    source: str,
) -> Dataset:
    """Data set of the rows, in two parts, standardised by the training rows.

    Missing inputs become the mean of the training rows.

    Raises
    ------
    DataError
        The rows cannot be split so.
    """
    train, test = split.parts(raw, seed)
    x_train, x_test = _filled(raw, train, test)
    standardisation = fit_standardisation(x_train, standardise)
    of_target = identity_standardisation(len(raw.target_names) or 1)
    if not raw.classes and standardise_target:
        of_target = _target_standardisation(raw, raw.y[train])
    y_train, y_test = raw.y[train], raw.y[test]
    if not of_target.is_identity:
        y_train, y_test = of_target(y_train), of_target(y_test)
    return Dataset(
        x_train=standardisation(x_train),
        y_train=y_train,
        x_test=standardisation(x_test),
        y_test=y_test,
        features=raw.features,
        classes=raw.classes,
        standardisation=standardisation,
        source=source,
        input_shape=raw.input_shape,
        overlap=len(test) / len(train) if split.resplits else 0.0,
        target_standardisation=of_target,
        target_names=raw.target_names,
    )


def _filled(raw: RawRows, train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Inputs of both parts, missing ones the mean of the training rows."""
    x_train, x_test = raw.x[train], raw.x[test]
    gaps = np.isnan(x_train)
    if not gaps.any() and not np.isnan(x_test).any():
        return x_train, x_test
    if (empty := gaps.all(axis=0)).any():
        name = raw.features[int(np.argmax(empty))]
        raise DataError(f"{raw.title}: column `{name}` has no value in any training row.")
    mean = np.nanmean(x_train, axis=0)
    return np.where(gaps, mean, x_train), np.where(np.isnan(x_test), mean, x_test)


def _target_standardisation(raw: RawRows, y: np.ndarray) -> Standardisation:
    columns = y.reshape(len(y), -1)
    for column, name in zip(columns.T, raw.target_names or ("",), strict=True):
        if is_constant(column):
            words = f"target `{name}`" if name else "the target"
            raise DataError(f"{raw.title}: {words} has one value only in the training rows.")
    return fit_standardisation(columns, "feature")


def dataset_of(origin: Origin, title: str, target: str, source: str) -> Dataset:
    """Data set of rows in memory, with what it was made of.

    Raises
    ------
    DataError
        The rows are not as they must be, or cannot be split so.
    """
    settings = origin.settings
    checks = (settings[name] for name in ("target_is", "missing", "redundant"))
    raw = raw_of_arrays(origin.given, *checks, title, target)
    how = (settings[name] for name in ("split", "seed", "standardise", "standardise_target"))
    return replace(split_dataset(raw, *how, source), origin=origin)
