"""Synthetic data: classes in the plane, curves, and two clusters that a file holds.

The densities of two moons and two circles are known, and so are the true class probabilities, and
with them the best accuracy and the lowest negative log-likelihood (NLL) that any classifier can
reach.
"""

import math
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field

from pmbnn.core.spec import added
from pmbnn.data.base import (
    VARIABLE,
    Calibration,
    DataError,
    DatasetSpec,
    calibration_rows,
    local_folder,
    read_columns,
)

if TYPE_CHECKING:
    import numpy as np

    from pmbnn.data.arrays import Dataset, Line

TEST_ROWS = 500
"""Test rows of a curve, evenly over the range of the training inputs."""

CURVE_POINTS = 501
"""Points of a curve: odd, so that the middle of a range is one of them."""

GENERATED = "generated"
"""Source of rows from a formula."""

Size = Annotated[int, Field(ge=10)]

NODES = 40
"""Gauss-Legendre nodes on a window of the arc; the log-density is then good to about 1e-12."""

WINDOW = 40.0
"""The arc is left out where the integrand is below exp(-40), about 4e-18, of its peak."""

POINTS_AT_ONCE = 8192
"""Points integrated together: 8192 × 40 nodes in float64 are 2.6 MB an array."""


SAME_DENSITIES = {"seed": 0, "train": 700, "test": 300, "calibration": 0.0}
"""Settings that the true densities do not depend on."""


class Bounds(NamedTuple):
    """Best accuracy, and lowest NLL in nats per observation, that a classifier can reach."""

    best_accuracy: float
    lowest_nll: float


class Synthetic(DatasetSpec):
    """Two classes in the plane, equally likely, drawn around curves with Gaussian noise.

    Parameters
    ----------
    noise
        Standard deviation of the noise in each coordinate, where the half-circles and the outer
        circle have radius 1.
    train
        Number of training rows.
    test
        Number of test rows.
    calibration
        Share of the training rows to set aside, the same of each class: nothing is fitted on them,
        and they decide conformal sets of the test rows. By default none.
    """

    noise: float = Field(gt=0)
    train: Size = 700
    test: Size = 300
    calibration: Calibration = added(0.0)

    n_features: ClassVar[int] = 2
    n_classes: ClassVar[int] = 2

    @property
    def is_planar(self) -> bool:
        """True: the inputs are points of a plane."""
        return True

    @property
    def rows(self) -> tuple[int, int]:
        """Numbers of training and test rows."""
        return self.train - calibration_rows(self.train, self.calibration), self.test

    def check(self) -> None:
        """Raise DataError where as many rows cannot be set aside."""
        _ = self.rows

    def load(self) -> "Dataset":
        """Rows from scikit-learn's generator, split by class and standardised per feature."""
        import numpy as np
        from sklearn.model_selection import train_test_split

        from pmbnn.data.arrays import set_aside, standardised_dataset

        x, y = self._generate(self.train + self.test)
        x_train, x_test, y_train, y_test = train_test_split(
            x,
            y.astype(np.int64),
            train_size=self.train,
            test_size=self.test,
            stratify=y,
            random_state=self.seed,
        )
        names = {"features": ("x1", "x2"), "classes": ("0", "1"), "source": "scikit-learn"}
        numbers = set_aside(y_train, self.train - self.rows[0], self.seed, is_class=True)
        kept, aside = ((x_train[rows], y_train[rows]) for rows in numbers)
        calibration = aside if self.calibration else None
        return standardised_dataset(kept, (x_test, y_test), "feature", calibration, **names)

    def sample(self, size: int, random_seed: int) -> tuple["np.ndarray", "np.ndarray"]:
        """Fresh independent rows: raw inputs ``(size, 2)`` and classes ``(size,)``.

        Angles are drawn uniformly, where scikit-learn spaces them evenly, so that the rows
        come from exactly the densities of `class_probabilities`.
        """
        import numpy as np

        rng = np.random.default_rng(random_seed)
        y = rng.integers(2, size=size)
        x = self._centres(rng.random(size), y) + self.noise * rng.standard_normal((size, 2))
        return x, y

    def spread(self, size: int, random_seed: int) -> "np.ndarray":
        """Raw inputs ``(size, 2)`` spread evenly over the distribution, to take means over it.

        They are made of a scrambled Sobol sequence, each point of it for both classes in turn; a
        mean over 8,192 of them is at least as close as one over 50,000 random rows.

        References
        ----------
        Owen (1998), Scrambling Sobol' and Niederreiter-Xing points.
        """
        import numpy as np
        from scipy.special import ndtri
        from scipy.stats.qmc import Sobol

        pairs = -(-size // 2)
        sequence = Sobol(3, rng=np.random.default_rng(random_seed))
        # A power of two of them, then cut; the middles of its cells, unlike their edges, are never
        # zero.
        points = sequence.random_base2((pairs - 1).bit_length())[:pairs] + 2.0**-31
        turn, *noise = points.T
        each = np.repeat(turn, 2), np.tile([0, 1], pairs)
        x = self._centres(*each) + self.noise * np.repeat(ndtri(np.column_stack(noise)), 2, axis=0)
        return x[:size]

    def class_probabilities(self, x_raw: "np.ndarray") -> "np.ndarray":
        """Probability of each class, ``(observation, class)``, under the true densities.

        Parameters
        ----------
        x_raw
            Raw inputs, not standardised, ``(observation, 2)``.
        """
        import numpy as np
        from scipy.special import expit

        log_odds = np.subtract(*self._log_densities(np.asarray(x_raw, dtype=np.float64)))
        return np.column_stack([expit(log_odds), expit(-log_odds)])

    def bounds(self) -> Bounds:
        """Best accuracy and lowest NLL under the true densities, good to 1e-5 or better."""
        return _bounds(self.model_copy(update=SAME_DENSITIES))

    def _grid(self) -> tuple["np.ndarray", "np.ndarray | float"]:
        """Points that stand for the plane in an integral, and the area of each."""
        raise NotImplementedError

    def _generate(self, size: int) -> tuple["np.ndarray", "np.ndarray"]:
        """Scikit-learn's rows."""
        raise NotImplementedError

    def _centres(self, turn: "np.ndarray", y: "np.ndarray") -> "np.ndarray":
        """Noise-free points, ``turn`` in [0, 1] along the curve of class ``y``."""
        raise NotImplementedError

    def _log_densities(self, x: "np.ndarray") -> tuple["np.ndarray", "np.ndarray"]:
        """Log-density of each class, both up to the same constant."""
        raise NotImplementedError


class Moons(Synthetic):
    """Two interleaved half-circles of radius 1: class 0 the outer, class 1 the inner."""

    kind: Literal["moons"] = "moons"

    def _generate(self, size: int) -> tuple["np.ndarray", "np.ndarray"]:
        from sklearn.datasets import make_moons

        return make_moons(size, noise=self.noise, random_state=self.seed)

    def _centres(self, turn: "np.ndarray", y: "np.ndarray") -> "np.ndarray":
        import numpy as np

        outer = np.column_stack([np.cos(np.pi * turn), np.sin(np.pi * turn)])
        return np.where(y[:, None] == 0, outer, _swap_moons(outer))

    def _log_densities(self, x: "np.ndarray") -> tuple["np.ndarray", "np.ndarray"]:
        return log_half_circle(x, self.noise), log_half_circle(_swap_moons(x), self.noise)

    def _grid(self) -> tuple["np.ndarray", "np.ndarray | float"]:
        import numpy as np

        # Half the plane, as the moons are symmetric. Twelve points a standard deviation; below 0.1
        # the moons hardly overlap and there is nothing finer to resolve. Seven standard deviations
        # leave out less than 1e-10.
        step, margin = max(self.noise, 0.1) / 12, 7 * self.noise
        x1 = np.arange(0.5 - step / 2, -1 - margin, -step)
        x2 = np.arange(-0.5 - margin, 1 + margin, step) + step / 2
        return np.stack(np.meshgrid(x1, x2), axis=-1).reshape(-1, 2), 2 * step**2


class Circles(Synthetic):
    """Two concentric circles: class 0 of radius 1, class 1 of radius ``factor``.

    Parameters
    ----------
    factor
        Radius of the inner circle; that of the outer circle is 1.
    """

    kind: Literal["circles"] = "circles"
    factor: float = Field(default=0.5, gt=0, lt=1)

    def _generate(self, size: int) -> tuple["np.ndarray", "np.ndarray"]:
        from sklearn.datasets import make_circles

        return make_circles(size, noise=self.noise, factor=self.factor, random_state=self.seed)

    def _centres(self, turn: "np.ndarray", y: "np.ndarray") -> "np.ndarray":
        import numpy as np

        circle = np.column_stack([np.cos(2 * np.pi * turn), np.sin(2 * np.pi * turn)])
        return circle * np.where(y == 0, 1.0, self.factor)[:, None]

    def _log_densities(self, x: "np.ndarray") -> tuple["np.ndarray", "np.ndarray"]:
        import numpy as np

        distance = np.hypot(x[:, 0], x[:, 1])
        return (
            log_circle(distance, 1.0, self.noise),
            log_circle(distance, self.factor, self.noise),
        )

    def _grid(self) -> tuple["np.ndarray", "np.ndarray | float"]:
        import numpy as np

        points = 50_000
        step = (1 + 9 * self.noise) / points
        distance = step * (np.arange(points) + 0.5)
        return np.column_stack([distance, np.zeros(points)]), 2 * np.pi * distance * step


def log_circle(distance: "np.ndarray", radius: float, sigma: float) -> "np.ndarray":
    r"""Log-density in the plane of a circle blurred by Gaussian noise of scale ``sigma``.

    At distance :math:`r` from the centre, with the Bessel function :math:`I_0`, the density is
    :math:`\exp(-(r^2 + R^2) / 2\sigma^2) \, I_0(r R / \sigma^2) / 2\pi\sigma^2`.
    """
    import numpy as np
    from scipy.special import i0e

    # i0e(z) = exp(-z) I0(z): it neither overflows nor, unlike ive(0, z), gives up at large z.
    return (
        -((distance - radius) ** 2) / (2 * sigma**2)
        + np.log(i0e(distance * radius / sigma**2))
        - math.log(2 * math.pi * sigma**2)
    )


def log_half_circle(x: "np.ndarray", sigma: float) -> "np.ndarray":
    r"""Log-density at ``x`` (observation, 2) of the upper unit half-circle, blurred by noise.

    The density is :math:`\frac{1}{\pi} \int_0^\pi N(x; (\cos t, \sin t), \sigma^2 I) \, dt`.
    The arc is cut at its top: each point then has one nearest place on each quarter, and the
    integrand one peak there.
    """
    import numpy as np

    result = np.empty(len(x))
    for start in range(0, len(x), POINTS_AT_ONCE):
        x1, x2 = x[start : start + POINTS_AT_ONCE].T
        right, left = _log_quarter(x1, x2, sigma), _log_quarter(-x1, x2, sigma)
        result[start : start + POINTS_AT_ONCE] = np.logaddexp(right, left)
    return result - math.log(2 * math.pi**2 * sigma**2)


def _log_quarter(x1: "np.ndarray", x2: "np.ndarray", sigma: float) -> "np.ndarray":
    """Log of the integral of exp(-|x - (cos t, sin t)|² / 2σ²) over t from 0 to π/2."""
    import numpy as np

    # At distance r and angle u from a place on the arc, |x - place|² = (r - 1)² + 4 r sin²(u/2).
    # Angles are measured from the quarter's middle, on the side where the point lies.
    quarter = np.pi / 4
    distance = np.hypot(x1, x2)
    angle = np.abs(np.arctan2(x2 - x1, x2 + x1))
    rate = 2 * distance / sigma**2
    nearest = np.sin(np.maximum(angle - quarter, 0.0) / 2) ** 2
    cut = np.minimum(nearest + WINDOW / np.maximum(rate, WINDOW), 1.0)
    reach = np.where(cut < 1, 2 * np.arcsin(np.sqrt(cut)), np.inf)
    low, high = np.maximum(angle - reach, -quarter), np.minimum(angle + reach, quarter)

    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    half = (high - low) / 2
    gap = angle[:, None] - (low + half)[:, None] - half[:, None] * nodes
    below_peak = rate[:, None] * (nearest[:, None] - np.sin(gap / 2) ** 2)
    total = np.exp(np.minimum(below_peak, 0.0)) @ weights
    # Very far away the window is narrower than the spacing of floating-point numbers, and the
    # total may be zero; the distance to the arc then decides alone.
    total = np.maximum(half * total, np.finfo(np.float64).tiny)
    return np.log(total) - rate * nearest - (distance - 1) ** 2 / (2 * sigma**2)


def _swap_moons(x: "np.ndarray") -> "np.ndarray":
    """Half-turn about (0.5, 0.25), which carries each moon onto the other."""
    return (1.0, 0.5) - x


@lru_cache(maxsize=256)
def _bounds(spec: Synthetic) -> Bounds:
    """Bounds by the midpoint rule.

    The integrands, min(p, q) and p log(1 + q/p) + q log(1 + p/q), live where the classes
    overlap only.
    """
    import numpy as np

    x, area = spec._grid()
    first, second = spec._log_densities(x)
    error = np.exp(np.minimum(first, second))
    log_both = np.logaddexp(first, second)
    nll = np.exp(first) * (log_both - first) + np.exp(second) * (log_both - second)
    return Bounds(1 - float(np.sum(area * error)) / 2, float(np.sum(area * nll)) / 2)


# Curves


class Regression(DatasetSpec):
    """Values of a known function with Gaussian noise.

    Neither inputs nor targets are standardised. Test rows have noise of their own.

    Parameters
    ----------
    noise
        Standard deviation of the noise, in the units of the targets.
    """

    noise: Annotated[float, Field(ge=0)]

    n_features: ClassVar[int] = 1

    ranges: ClassVar[tuple[tuple[float, float], ...]]
    """Ranges of the input over which curves are drawn: that of the training rows, then beyond."""

    @property
    def rows(self) -> tuple[int, int]:
        """Numbers of training and test rows."""
        raise NotImplementedError

    def inputs(self) -> "np.ndarray":
        """Raw training inputs, ``(observation,)``."""
        raise NotImplementedError

    def truth(self, x_raw: "np.ndarray") -> "np.ndarray":
        """The function without noise, at raw inputs of any shape."""
        raise NotImplementedError

    def load(self) -> "Dataset":
        """Rows from the formula, the same for equal seeds."""
        import numpy as np

        from pmbnn.data.arrays import standardised_dataset

        x, x_test = self.inputs(), np.linspace(*self.ranges[0], TEST_ROWS)
        return standardised_dataset(
            (x[:, None], self._noisy(x, 0)),
            (x_test[:, None], self._noisy(x_test, 1)),
            "none",
            features=("x",),
            classes=(),
            source=GENERATED,
        )

    def lines(self) -> "tuple[Line, ...]":
        """The ranges over which curves are drawn."""
        import numpy as np

        from pmbnn.data.arrays import Line

        positions = [np.linspace(*ends, CURVE_POINTS) for ends in self.ranges]
        return tuple(Line(x, np.ones(1), self.truth(x)) for x in positions)

    @property
    def line_points(self) -> int:
        """Number of points of all `lines`."""
        return CURVE_POINTS * len(self.ranges)

    def _noisy(self, x: "np.ndarray", stream: int) -> "np.ndarray":
        import numpy as np

        rng = np.random.default_rng([self.seed, stream])
        return self.truth(x) + self.noise * rng.standard_normal(len(x))


class Sine(Regression):
    """One period of a sine: y = 10 · sin(2πx) plus noise, x evenly from −0.5 to 0.5.

    The defaults are those of TensorFlow Probability's regression write-up.

    Parameters
    ----------
    train
        Number of training rows, evenly spaced in x. There are always 500 test rows.
    """

    kind: Literal["sine"] = "sine"
    noise: Annotated[float, Field(ge=0)] = 1.0
    train: Annotated[int, Field(ge=4)] = 32

    ranges: ClassVar = ((-0.5, 0.5), (-1.5, 1.5))

    @property
    def rows(self) -> tuple[int, int]:
        """Numbers of training and test rows."""
        return self.train, TEST_ROWS

    def inputs(self):  # noqa: D102
        import numpy as np

        return np.linspace(*self.ranges[0], self.train)

    def truth(self, x_raw):  # noqa: D102
        import numpy as np

        return 10 * np.sin(2 * np.pi * x_raw)


class Quartic(Regression):
    """Six points on y = −x⁴ + 3x² + 1, without noise by default.

    Without noise all seeds give the same rows, and fits differ only in their random numbers.
    """

    kind: Literal["quartic"] = "quartic"
    noise: Annotated[float, Field(ge=0)] = 0.0

    ranges: ClassVar = ((-2.0, 2.0), (-5.0, 5.0), (-100.0, 100.0))
    points: ClassVar = (-2.0, -1.8, -1.0, 1.0, 1.8, 2.0)

    @property
    def rows(self) -> tuple[int, int]:
        """Numbers of training and test rows."""
        return len(self.points), TEST_ROWS

    def inputs(self):  # noqa: D102
        import numpy as np

        return np.array(self.points)

    def truth(self, x_raw):  # noqa: D102
        return -(x_raw**4) + 3 * x_raw**2 + 1


# Two clusters


class InBetween(DatasetSpec):
    """100 values of a function of two inputs in two clusters, with a gap between them.

    They are read from ``in_between/origin.csv`` or ``in_between/axis.csv``, and not standardised.
    Predictions are evaluated along the diagonal, where no truth is known: there are no test rows.
    The training rows take their place, so that a test metric is one of the fit.

    Parameters
    ----------
    points
        Which clusters: the line between those of ``origin`` runs along the diagonal, through the
        origin; that of ``axis`` crosses the diagonal.
    folder
        Folder that has the files. By default, that of the environment variable ``PMBNN_DATA``.

    References
    ----------
    Foong, Burt, Li and Turner (2020), On the Expressiveness of Approximate Inference in Bayesian
    Neural Networks, section 3 and appendix.
    """

    kind: Literal["in_between"] = "in_between"
    points: Literal["origin", "axis"] = "origin"
    folder: str | None = None

    n_features: ClassVar[int] = 2
    rows: ClassVar[tuple[int, int]] = (100, 100)

    columns: ClassVar = ("x1", "x2", "y")
    """Columns of the files."""

    line_points: ClassVar[int] = 500
    """Number of points of the line."""

    def load(self) -> "Dataset":
        """Rows of the file.

        Raises
        ------
        DataError
            The file is missing or damaged.
        """
        from pmbnn.data.arrays import standardised_dataset

        path = self._find()
        values = read_columns(path, self.columns)
        if len(values) != self.rows[0]:
            raise DataError(f"{path} must have {self.rows[0]} rows, got {len(values)}.")
        part = values[:, :2].copy(), values[:, 2].copy()
        names = {"features": self.columns[:2], "classes": (), "source": "local"}
        return standardised_dataset(part, part, "none", **names)

    def lines(self) -> "tuple[Line, ...]":
        """The diagonal, x1 = x2 = λ / √2, over the range of the published posterior."""
        import numpy as np

        from pmbnn.data.arrays import Line

        position = np.linspace(-2 * math.sqrt(2), 2 * math.sqrt(2), self.line_points)
        return (Line(position, np.full(2, 1 / math.sqrt(2)), name="λ", gap=0.0),)

    def _find(self) -> Path:
        name, folder = f"{self.points}.csv", local_folder(self.folder)
        paths = [folder / "in_between" / name, folder / name] if folder else []
        path = next(filter(Path.is_file, paths), None)
        if path is None:
            place = paths[0] if paths else f"in_between/{name}"
            raise DataError(
                f"{place} is missing: give its `folder`, or set {VARIABLE}; the repository of "
                "Foong et al. (2020) has it, with the columns x1, x2 and y and one line a point."
            )
        return path
