"""Arrays that a network is fitted on and evaluated on."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from pmbnn.core.display import Summarised
from pmbnn.data.base import DataError, Standardise, Task, calibration_rows
from pmbnn.data.raw import (
    Arrays,
    Categories,
    Encoder,
    RawRows,
    RowSettings,
    is_constant,
    rows_from_arrays,
)
from pmbnn.data.splits import checked_parts

if TYPE_CHECKING:
    import pandas as pd

    from pmbnn.data.images import Mnist, UserImages

Part = tuple[np.ndarray, np.ndarray]
"""Inputs and targets."""

AT_ONCE = 4_096
"""Images standardised together: in double precision all of them would take a gigabyte."""


@dataclass(frozen=True, repr=False)
class Standardisation(Summarised):
    """Affine map ``(x - mean) / sd``, fitted on training rows only.

    ``mean`` and ``sd`` have shape ``(feature,)``, in the units of the raw inputs; of targets,
    ``(target,)``.
    """

    mean: np.ndarray
    sd: np.ndarray

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Standardised copy of raw inputs ``(observation, feature)``."""
        return (x - self.mean) / self.sd

    def undo(self, x: np.ndarray) -> np.ndarray:
        """Raw inputs of standardised ones, ``(observation, feature)``."""
        return x * self.sd + self.mean

    @property
    def log_scale(self) -> float:
        """Sum of the logarithms of ``sd``, by which standardising raises a row's log-density."""
        return float(np.log(self.sd).sum())

    @property
    def is_identity(self) -> bool:
        """Whether it leaves everything as it is."""
        return not self.mean.any() and bool((self.sd == 1).all())


def identity_standardisation(features: int = 1) -> Standardisation:
    """The standardisation that leaves columns as they are."""
    return Standardisation(np.zeros(features), np.ones(features))


def fit_standardisation(x: np.ndarray, how: Standardise) -> Standardisation:
    """Standardisation of training inputs ``(observation, feature)``.

    ``feature`` uses one mean and standard deviation a column, ``global`` one for all columns
    together, ``none`` leaves the inputs as they are. A column that `is_constant` keeps its scale.
    """
    features = x.shape[1]
    if how == "none":
        return identity_standardisation(features)
    axis = 0 if how == "feature" else None
    mean = np.broadcast_to(x.mean(axis=axis), features).astype(np.float64)
    sd = np.broadcast_to(x.std(axis=axis), features).astype(np.float64)
    return Standardisation(mean, np.where(is_constant(x, axis), 1.0, sd))


@dataclass(frozen=True, repr=False)
class Rows(Summarised):
    """Rows with their targets, on which a model is built.

    ``x`` has shape ``(observation, feature)``; ``y`` holds class indices, ``(observation,)``,
    or numbers where there are no ``classes``: ``(observation, target)`` for several targets, which
    ``target_names`` names.
    ``input_shape`` is the shape of one row: ``(channel, row, column)`` of an image, whose
    columns are fastest among the features; or ``(feature,)`` by default.
    ``standardisation`` and ``target_standardisation`` are the maps that made them, where known.
    """

    x: np.ndarray
    y: np.ndarray
    features: tuple[str, ...]
    classes: tuple[str, ...]
    input_shape: tuple[int, ...] = ()
    target_names: tuple[str, ...] = ()
    standardisation: Standardisation | None = None
    target_standardisation: Standardisation | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "input_shape", _checked_shape(self.input_shape, self.features))

    def __len__(self) -> int:
        """Return the number of observations."""
        return len(self.y)

    @property
    def task(self) -> Task:
        """``classification`` where targets are class labels, else ``regression``."""
        return "classification" if self.classes else "regression"

    @property
    def n_classes(self) -> int | None:
        """Number of classes; None where the targets are numbers."""
        return len(self.classes) or None

    @property
    def n_targets(self) -> int:
        """Number of targets a row."""
        return len(self.target_names) or 1

    def split(self, fraction: float, random_seed: int) -> "tuple[Rows, Rows]":
        """Shuffled split into ``1 - fraction`` and ``fraction`` of the rows, by class."""
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
    """A line through the origin of the raw inputs, along which predictions are evaluated.

    Attributes
    ----------
    position
        Positions of its points, ascending, ``(point,)``.
    direction
        Raw inputs are positions times this vector of length 1, ``(feature,)``.
    truth
        The function without noise at its points, ``(point,)``; None where it is not known.
    name
        Name of the positions.
    gap
        A position with training rows to both its sides and none near, where there is one: the
        function is most uncertain there.
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
    """Rows in memory that a data set was made from, so that they can be stored as an archive.

    Attributes
    ----------
    arrays
        The rows.
    settings
        How they were checked, split and standardised.
    name
        Name of the rows.
    """

    arrays: Arrays
    settings: RowSettings
    name: str


@dataclass(frozen=True, repr=False)
class Dataset(Summarised):
    """Training and test rows, standardised, with the maps that undo it.

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
        Where the rows came from (``scikit-learn``, ``local``, ``embedded``, ...).
    input_shape
        Shape of one row, as in `Rows`.
    x_validation, y_validation
        Training rows that nothing is fitted on, to set thresholds, to calibrate conformal intervals
        and to monitor a fit; None by default.
    overlap
        Test rows for each training row, where data seeds split the same rows anew, so that their
        results are correlated; 0 where every data seed has rows of its own, and infinity where a
        file lists test rows that were not drawn at random (`Indices`).
    target_standardisation
        The map from numeric targets in the units of the data to those that are fitted: ``mean`` and
        ``sd`` of shape ``(target,)``; the identity by default. Models use the fitted units;
        predictions and metrics those of the data.
    target_names
        Names of several targets; none for a single one.
    categories, fill
        How columns of a table became inputs; see `Encoder`.
    origin
        Rows that `from_arrays` or `from_frame` made it from, which `pmbnn.run` stores.
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
    categories: Categories = ()
    fill: np.ndarray | None = None
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
        name: str = "arrays",
        **settings: Any,
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
            Names of the inputs, ``x1``, ``x2``, ... by default; and of several targets, ``y1``,
            ``y2``, ...
        groups
            Group of each row, ``(observation,)``, where the split keeps groups together.
        name
            Name of the rows in results.
        task
            ``classification`` or ``regression``, where `y` leaves it open (see ``Table``).
        split, seed
            Which rows are test rows: by default a fifth, drawn by the seed 0.
        calibration
            Share of the training rows to set aside for conformal intervals; none by default.
        standardise
            Standardise inputs per ``feature``, which is the default, ``global`` or not at all
            (``none``), fitted on training rows.
        standardise_target
            Whether numeric targets are standardised, fitted on training rows; True by default.
        missing
            Treatment of missing values: ``error``, which is the default, ``mean`` or ``drop``.
        redundant
            Treatment of constant and repeated columns: ``error``, which is the default, ``drop``
            or ``keep``.

        Raises
        ------
        DataError
            The arrays cannot be used.
        ConfigError
            A setting is not valid.
        """
        arrays = Arrays(
            np.asarray(x),
            _as_array(y),
            tuple(features),
            tuple(target_names),
            groups=None if groups is None else _as_array(groups),
        )
        return _in_memory(Origin(arrays, RowSettings(**settings), name), "x", "y", "arrays")

    @classmethod
    def from_frame(
        cls,
        frame: "pd.DataFrame",
        target: str | Sequence[str],
        *,
        name: str = "frame",
        **settings: Any,
    ) -> "Dataset":
        """Data set of a pandas frame, as ``kind: table`` of an experiment file makes it of a file.

        Parameters
        ----------
        frame
            A row for each observation.
        target
            Name of the column to be predicted, or of several of numbers.
        name
            Name of the rows in results.
        features, without, categorical
            Names of columns, as those of ``Table``.
        task, split, seed, calibration, standardise, standardise_target, missing, redundant
            As those of `from_arrays`.

        Raises
        ------
        DataError
            The frame cannot be used.
        ConfigError
            A setting is not valid.
        TypeError
            It is no pandas frame.
        """
        import pandas as pd

        from pmbnn.data.frames import FrameSettings, arrays_from_frame, names_of_targets

        if not isinstance(frame, pd.DataFrame):
            kind = f"{type(frame).__module__.partition('.')[0]}.{type(frame).__name__}"
            remedy = ": call its `to_pandas()`" if hasattr(frame, "to_pandas") else ""
            raise TypeError(f"`frame` must be a pandas DataFrame, got {kind}{remedy}.")
        checked = FrameSettings(target=target, **settings)
        origin = Origin(arrays_from_frame(frame, checked, "frame"), checked, name)
        return _in_memory(origin, "frame", names_of_targets(checked)[0], "frame")

    @property
    def encoder(self) -> Encoder:
        """How columns of a table become inputs."""
        return Encoder(self.features, self.categories, self.fill)

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
            self.standardisation,
            self.target_standardisation,
        )

    def raw_targets(self, y: np.ndarray) -> np.ndarray:
        """Fitted targets in the units of the data, in the same shape."""
        standardisation = self.target_standardisation
        return y if standardisation.is_identity else standardisation.undo(y)

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

    @property
    def encoding(self) -> str:
        """SHA-256 over names and units, by which new rows are encoded, in hexadecimal.

        Equal arrays may come from columns of other names or in other units.
        """
        names = (self.features, self.categories, self.classes, self.target_names)
        digest = hashlib.sha256(repr(names).encode())
        for array in (self.standardisation.mean, self.standardisation.sd, self.fill):
            if array is not None:
                digest.update(np.float64(array).tobytes())
        return digest.hexdigest()


def standardised_dataset(
    train: Part,
    test: Part,
    standardise: Standardise,
    calibration: Part | None = None,
    **others: Any,
) -> Dataset:
    """Data set of its parts, inputs standardised by the training rows, and its other fields."""
    standardisation = fit_standardisation(train[0], standardise)
    if calibration is not None:
        x, others["y_validation"] = calibration
        others["x_validation"] = standardisation(x)
    return Dataset(
        standardisation(train[0]),
        train[1],
        standardisation(test[0]),
        test[1],
        standardisation=standardisation,
        **others,
    )


def set_aside(
    y: np.ndarray, rows: int, random_seed: int, is_class: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the rows that are left, and of as many that are set aside, both ascending.

    They are drawn at random; of classes ``(observation,)``, the same share of each.
    """
    order = stratified_order(y if is_class else np.zeros(len(y)), random_seed)
    left, aside = np.split(order, [len(y) - rows])
    return np.sort(left), np.sort(aside)


def split_dataset(raw: RawRows, settings: RowSettings, source: str) -> Dataset:
    """Data set of the rows, in its parts, standardised by the training rows.

    Missing inputs become the mean of the training rows.

    Raises
    ------
    DataError
        The rows cannot be split so.
    """
    train, test = settings.split.parts(raw, settings.seed)
    rows = calibration_rows(len(train), settings.calibration, settings.split.group)
    left, aside = set_aside(raw.y[train], rows, settings.seed, bool(raw.classes))
    parts = [*checked_parts(raw, train[left], test), train[aside]]
    x, y, fill = [raw.x[part] for part in parts], [raw.y[part] for part in parts], None
    if settings.missing == "mean":
        fill = _means(raw, x[0])
        x = [np.where(np.isnan(one), fill, one) for one in x]
    target_standardisation = identity_standardisation(len(raw.target_names) or 1)
    if not raw.classes and settings.standardise_target:
        target_standardisation = _target_standardisation(raw, y[0])
        y = list(map(target_standardisation, y))
    training, testing, calibration = zip(x, y, strict=True)
    return standardised_dataset(
        training,
        testing,
        settings.standardise,
        calibration if rows else None,
        features=raw.features,
        classes=raw.classes,
        source=source,
        input_shape=raw.input_shape,
        overlap=settings.split.overlap(x[0], x[1]),
        target_standardisation=target_standardisation,
        target_names=raw.target_names,
        categories=raw.categories,
        fill=fill,
    )


def _means(raw: RawRows, x: np.ndarray) -> np.ndarray:
    """Mean of each input over the training rows that have it."""
    if (empty := np.isnan(x).all(axis=0)).any():
        name = raw.features[int(np.argmax(empty))]
        raise DataError(f"{raw.title}: column `{name}` has no value in any training row.")
    return np.nanmean(x, axis=0)


def _target_standardisation(raw: RawRows, y: np.ndarray) -> Standardisation:
    columns = y.reshape(len(y), -1)
    for column, name in zip(columns.T, raw.target_names or ("",), strict=True):
        if is_constant(column):
            place = f"target `{name}`" if name else "the target"
            raise DataError(f"{raw.title}: {place} has one value only in the training rows.")
    return fit_standardisation(columns, "feature")


def _as_array(values: Sequence | np.ndarray) -> np.ndarray:
    """Array of values; of objects where NumPy makes words of a list's missing values.

    Objects that are all numbers, as columns of ``frame.to_numpy()`` are beside text, are numbers.
    """
    import pandas as pd

    array = np.asarray(values)
    if array.dtype.kind == "O" and array.ndim == 1:
        return pd.Series(array).infer_objects().to_numpy()
    if array.dtype.kind != "U" or isinstance(values, np.ndarray):
        return array
    objects = np.array(values, dtype=object)
    return objects if pd.isna(objects).any() else array


def _in_memory(origin: Origin, title: str, target: str, source: str) -> Dataset:
    raw = rows_from_arrays(origin.arrays, origin.settings, title, target)
    return replace(split_dataset(raw, origin.settings, source), origin=origin)


# Images


class RawImages(NamedTuple):
    """Pixels ``(observation, pixel)`` and labels ``(observation,)``, uint8, and their source."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    source: str


def images_dataset(
    spec: "Mnist | UserImages", raw: RawImages, classes: tuple[str, ...], resplit: bool
) -> Dataset:
    """Rows scaled to [0, 1], then standardised, in float32.

    Parameters
    ----------
    resplit
        Whether data seeds split the same images anew.
    """
    train, validation = _training_rows(spec, raw)
    x_train, y_train = raw.x_train[train] / 255.0, raw.y_train[train].astype(np.int64)
    test = _subset(spec, "test", raw.y_test)
    standardisation = fit_standardisation(x_train, spec.standardise)
    held_out = {}
    if spec.validation is not None:
        held_out["x_validation"] = _apply(standardisation, raw.x_train[validation] / 255.0)
        held_out["y_validation"] = raw.y_train[validation].astype(np.int64)
    y_test = raw.y_test[test].astype(np.int64)
    return Dataset(
        x_train=_apply(standardisation, x_train),
        y_train=y_train,
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
    spec: "Mnist | UserImages", raw: RawImages
) -> tuple[np.ndarray | slice, np.ndarray | slice]:
    """Numbers of the training images that are fitted, and of those that are set aside."""
    if spec.validation is None:
        return _subset(spec, "train", raw.y_train), slice(0)
    left = len(raw.y_train) - spec.validation
    order = stratified_order(raw.y_train, spec.seed)
    # From the end: a smaller training set is part of a larger one then.
    return order[: spec.train or left], order[left:]


def _subset(
    spec: "Mnist | UserImages", part: Literal["train", "test"], y: np.ndarray
) -> np.ndarray | slice:
    """Numbers of the rows of one part to use, in the proportions of the classes."""
    size = getattr(spec, part)
    return slice(None) if size is None else stratified_order(y, spec.seed)[:size]


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
    standardised = np.empty(x.shape, np.float32)
    for start in range(0, len(x), AT_ONCE):
        standardised[start : start + AT_ONCE] = standardisation(x[start : start + AT_ONCE])
    return standardised
