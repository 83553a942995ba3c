"""Two clusters of points in the plane, and nothing between them."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from pmbnn.data.base import DataError, DatasetSpec
from pmbnn.data.local_files import VARIABLE, local_folder, read_columns

if TYPE_CHECKING:
    from pmbnn.data.arrays import Dataset, Line

FOLDER = "in_between"
"""Where the files lie beneath the folder of data."""

COLUMNS = ("x1", "x2", "y")

ROWS = 100

SLICE_END, SLICE_POINTS = 2 * math.sqrt(2), 500
"""Positions reach from minus the first to it, as those of the published posterior do."""


class InBetween(DatasetSpec):
    """100 values of a function of two inputs, in two clusters that a network has to tell between.

    They are read as they are, and nothing is standardised, from ``in_between/origin.csv`` or
    ``axis.csv`` in ``folder`` or in the folder that the environment variable ``PMBNN_DATA``
    names. The line between the clusters of ``origin`` passes through the origin, along the
    diagonal; that of ``axis`` crosses it.

    What a network says is looked at along that diagonal, where nothing is known to be true: there
    are no test rows. The training rows stand in their place, so that what is called a test metric
    is one of the fit.

    References
    ----------
    Foong, Burt, Li and Turner (2020), On the Expressiveness of Approximate Inference in Bayesian
    Neural Networks, section 3 and appendix.
    """

    kind: Literal["in_between"] = "in_between"
    points: Literal["origin", "axis"] = "origin"
    folder: str | None = None

    n_features: ClassVar[int] = 2
    rows: ClassVar[tuple[int, int]] = (ROWS, ROWS)

    def load(self) -> "Dataset":
        """Rows of the file.

        Raises
        ------
        DataError
            The file is missing or damaged.
        """
        from pmbnn.data.arrays import Dataset
        from pmbnn.data.standardisation import fit_standardisation

        path = self._find()
        values = read_columns(path, COLUMNS)
        if len(values) != ROWS:
            raise DataError(f"{path} must have {ROWS} rows, got {len(values)}.")
        x, y = values[:, :2].copy(), values[:, 2].copy()
        return Dataset(
            x_train=x,
            y_train=y,
            x_test=x,
            y_test=y,
            features=COLUMNS[:2],
            classes=(),
            standardisation=fit_standardisation(x, "none"),
            source="local",
        )

    def lines(self) -> "tuple[Line, ...]":
        """The diagonal, x1 = x2 = λ / √2."""
        import numpy as np

        from pmbnn.data.arrays import Line

        position = np.linspace(-SLICE_END, SLICE_END, SLICE_POINTS)
        return (Line(position, np.full(2, 1 / math.sqrt(2)), name="λ", gap=0.0),)

    @property
    def line_points(self) -> int:
        """Points of the line."""
        return SLICE_POINTS

    def _find(self) -> Path:
        name, folder = f"{self.points}.csv", local_folder(self.folder)
        remedy = (
            f"it is in the repository of Foong et al. (2020), On the Expressiveness of Approximate "
            f"Inference in Bayesian Neural Networks; put it there with the columns "
            f"{', '.join(COLUMNS)} and one line a point."
        )
        if folder is None:
            raise DataError(
                f"{FOLDER}/{name} needs a folder: give `folder` or set {VARIABLE}; {remedy}"
            )
        for path in (folder / FOLDER / name, folder / name):
            if path.is_file():
                return path
        raise DataError(f"{folder / FOLDER / name} is missing: {remedy}")
