"""Splits of the rows of a data set into training and test rows."""

import math
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from pmbnn.core.spec import Specification, renamed_values
from pmbnn.data.base import DataError, DataSettingError, NamesFiles, find, one_line, read_archive

if TYPE_CHECKING:
    import numpy as np

    from pmbnn.data.raw import RawRows

    Parts = tuple[np.ndarray, np.ndarray]
    """Row numbers of the training and of the test rows."""

SEED = "{seed}"
"""Placeholder of the data seed in a name."""

BY_CHANCE = 1e-5
"""Probability at most with which test rows that were drawn at random count as others."""

TESTED_ROWS = 10_000
"""Training rows, at most, that test rows are tested against."""


class Split(Specification):
    """Training and test rows, by their numbers."""

    kind: str

    resplits: ClassVar[bool] = True
    """Whether data seeds split the same rows anew, so that their results are correlated."""

    def parts(self, raw: "RawRows", seed: int) -> "Parts":
        """Training and test rows, ascending.

        Raises
        ------
        DataError
            The rows cannot be split so.
        """
        raise NotImplementedError

    def overlap(self, train: "np.ndarray", test: "np.ndarray") -> float:
        """Test rows for each training row, where data seeds split the same rows anew, else 0.

        Parameters
        ----------
        train, test
            Inputs of both parts, ``(observation, feature)`` each.
        """
        return len(test) / len(train) if self.resplits else 0.0


class RandomSplit(Split):
    """Test rows drawn at random by the data seed; of classes, the same share of each.

    Parameters
    ----------
    test_size
        Share of the rows that are test rows, between 0 and 1; with ``group``, share of the groups.
    group
        Column whose values are groups: all rows of a group are training rows, or all are test
        rows. Classes then keep their proportions only as far as groups happen to. By default,
        rows are drawn one by one.
    """

    kind: Annotated[Literal["random"], renamed_values(random="share")] = "random"
    test_size: Annotated[float, Field(gt=0, lt=1, serialization_alias="test")] = 0.2
    group: str | None = None

    def parts(self, raw: "RawRows", seed: int) -> "Parts":  # noqa: D102
        from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit, StratifiedShuffleSplit

        if self.group is not None:
            _check_groups(raw, 2)
            splitter = GroupShuffleSplit
        elif raw.classes:
            _check_classes(raw, 2)
            splitter = StratifiedShuffleSplit
        else:
            splitter = ShuffleSplit
        return _split(splitter(1, test_size=self.test_size, random_state=seed), raw, 0)


class Folds(Split):
    """Cross-validation: the rows in several parts, each of which has the test rows in turn.

    Parameters
    ----------
    folds
        Number of parts.
    fold
        Part with the test rows, counted from 0; the data seed then shuffles the rows. By default,
        data seeds are folds: of five folds, seeds 0 to 4 are those of one shuffle, seeds 5 to 9
        those of the next.
    group
        Column whose values are groups: all rows of a group are in one part. By default, rows are
        distributed one by one.
    """

    kind: Literal["folds"] = "folds"
    folds: Annotated[int, Field(ge=2)] = 5
    fold: Annotated[int, Field(ge=0)] | None = None
    group: str | None = None

    @model_validator(mode="after")
    def _one_of_them(self):
        if self.fold is not None and self.fold >= self.folds:
            raise ValueError(f"must have fold < folds, got {self.fold} and {self.folds}")
        return self

    def parts(self, raw: "RawRows", seed: int) -> "Parts":  # noqa: D102
        from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold

        shuffle, fold = divmod(seed, self.folds) if self.fold is None else (seed, self.fold)
        if self.group is not None:
            _check_groups(raw, self.folds)
            splitter = StratifiedGroupKFold if raw.classes else GroupKFold
        elif raw.classes:
            _check_classes(raw, self.folds)
            splitter = StratifiedKFold
        else:
            splitter = KFold
        return _split(splitter(self.folds, shuffle=True, random_state=shuffle), raw, fold)


class Indices(NamesFiles, Split):
    """Test rows whose numbers, from 0, a file lists; the other rows are training rows.

    Parameters
    ----------
    file
        Text file with one row number a line, or ``.npz`` archive. ``{seed}`` in the name stands
        for the data seed.
    test
        Name of the array of row numbers in an ``.npz`` archive, in which ``{seed}`` stands for the
        data seed: ``test_{seed}`` makes seeds 0 to 19 the splits ``test_0`` to ``test_19``. By
        default there is none, as for a text file.
    """

    kind: Literal["indices"] = "indices"
    file: str
    test: str | None = None

    group: ClassVar[None] = None

    @property
    def resplits(self) -> bool:  # noqa: D102
        return SEED in f"{self.file}{self.test}"

    def overlap(self, train: "np.ndarray", test: "np.ndarray") -> float:
        """As that of other splits, and infinity where test rows were not drawn at random."""
        drawn = not self.resplits or unlike_input(test, train, BY_CHANCE) is None
        return super().overlap(train, test) if drawn else math.inf

    def parts(self, raw: "RawRows", seed: int) -> "Parts":  # noqa: D102
        import numpy as np

        title = self.file.replace(SEED, str(seed))
        path = find(title, self._folders, "split.file")
        listed = self._read(path, title, seed)
        if listed.ndim != 1 or listed.dtype.kind not in "iu" or not listed.size:
            raise DataError(f"{title}: must list row numbers, whole numbers from 0.")
        last = raw.read - 1
        if listed.min() < 0 or listed.max() > last:
            wrong = listed[(listed < 0) | (listed > last)][0]
            rule = f"must list row numbers from 0 to {last} of {raw.title}"
            raise DataError(f"{title}: {rule}, got {wrong}.")
        if len(np.unique(listed)) < len(listed):
            twice = np.flatnonzero(np.bincount(listed) > 1)[0]
            raise DataError(f"{title}: must list every row once, got {twice} twice.")
        is_test = np.isin(raw.numbers, listed)
        return checked_parts(raw, np.flatnonzero(~is_test), np.flatnonzero(is_test))

    def _read(self, path: Path, title: str, seed: int) -> "np.ndarray":
        import numpy as np

        if path.suffix != ".npz":
            if self.test is not None:
                rule = f"must be left out with a text file, got {self.test!r}"
                raise DataSettingError("split.test", rule)
            try:
                lines = path.read_text(encoding="utf-8-sig").split()
                return np.array([int(line) for line in lines], dtype=np.int64)
            except (OSError, ValueError) as error:
                rule = "must be text with a row number a line"
                raise DataError(f"{title}: {rule}: {error}.") from error
        if self.test is None:
            raise DataSettingError("split.test", f"must name an array of {title}, got null")
        name = self.test.replace(SEED, str(seed))
        return read_archive(path, title, {"split.test": name})["split.test"]


AnySplit = RandomSplit | Folds | Indices


def unlike_input(test: "np.ndarray", others: "np.ndarray", by_chance: float) -> int | None:
    """An input whose distribution is another in test rows than in other rows; None without one.

    By the Kolmogorov-Smirnov test of each input, at a level that is divided by the number of inputs
    (Bonferroni). It tells splits that leave out a part of the range of an input, such as gap
    splits, if test rows are 50 or more.

    Parameters
    ----------
    test, others
        Inputs, ``(observation, feature)`` each; what is not finite does not count.
    by_chance
        Probability at most with which there is one though all rows were drawn at random.
    """
    import numpy as np
    from scipy import stats

    if len(others) > TESTED_ROWS:
        others = np.random.default_rng(0).choice(others, TESTED_ROWS, replace=False)
    for column in range(test.shape[1]):
        pair = [x[:, column][np.isfinite(x[:, column])] for x in (test, others)]
        if min(map(len, pair)):
            p_value = stats.ks_2samp(*pair, method="asymp").pvalue
            if p_value < by_chance / test.shape[1]:
                return column
    return None


def _split(splitter: Any, raw: "RawRows", number: int) -> "Parts":
    """Training and test rows of the split of a number that a splitter of scikit-learn makes."""
    import numpy as np

    try:
        train, test = next(islice(splitter.split(raw.x, raw.y, raw.groups), number, None))
    except ValueError as error:  # too few rows for so small a share
        raise DataError(f"{raw.title}: cannot be split: {one_line(error)}.") from error
    # A data set does not depend on the splitter's own order.
    return checked_parts(raw, np.sort(train), np.sort(test))


def checked_parts(raw: "RawRows", train: "np.ndarray", test: "np.ndarray") -> "Parts":
    """The parts, if both have rows and the training rows every class."""
    import numpy as np

    if len(train) < 2 or not len(test):
        rule = "must leave at least 2 training rows and 1 test row"
        raise DataError(f"{raw.title}: {rule}, got {len(train)} and {len(test)}.")
    counts = np.bincount(raw.y[train], minlength=len(raw.classes)) if raw.classes else np.ones(1)
    if not counts.all():
        name = raw.classes[int(np.argmin(counts))]
        raise DataError(f"{raw.title}: class `{name}` has no training row in this split.")
    return train, test


def _check_classes(raw: "RawRows", least: int) -> None:
    """Raise DataError where a class has too few rows to be in every part."""
    import numpy as np

    counts = np.bincount(raw.y, minlength=len(raw.classes))
    fewest = int(counts.argmin())
    if counts[fewest] < least:
        rule = f"must have at least {least} rows for this split, got {counts[fewest]}"
        raise DataError(f"{raw.title}: class `{raw.classes[fewest]}` {rule}.")


def _check_groups(raw: "RawRows", least: int) -> None:
    """Raise DataError where there are no groups, or fewer than parts."""
    import numpy as np

    if raw.groups is None:
        raise DataSettingError("split.group", f"must be left out: {raw.title} has no groups")
    groups = len(np.unique(raw.groups))
    if groups < least:
        raise DataError(f"{raw.title}: must have at least {least} groups, got {groups}.")
