"""Curves to be found from a few noisy values: one input, one number to predict."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from pmbnn.data.base import DatasetSpec

if TYPE_CHECKING:
    import numpy as np

    from pmbnn.data.arrays import Dataset, Line

TEST_ROWS = 500
"""Evenly over the range of the training inputs, for metrics."""

CURVE_POINTS = 501
"""Points of a curve: odd, so that the middle of a range is one of them."""

GENERATED = "generated"
"""Source of rows that a formula gives."""


class Regression(DatasetSpec):
    """Values of a known function with Gaussian noise of standard deviation ``noise``.

    Neither inputs nor targets are standardised. Test rows have noise of their own.
    """

    noise: Annotated[float, Field(ge=0)]

    n_features: ClassVar[int] = 1

    ranges: ClassVar[tuple[tuple[float, float], ...]]
    """Ranges of the input that curves are drawn on: that of the training rows, then beyond."""

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
        """Rows from the formula, the same whenever the seed is."""
        import numpy as np

        from pmbnn.data.arrays import Dataset
        from pmbnn.data.standardisation import fit_standardisation

        x = self.inputs()
        x_test = np.linspace(*self.ranges[0], TEST_ROWS)
        targets = [self._noisy(part, number) for number, part in enumerate((x, x_test))]
        return Dataset(
            x_train=x[:, None],
            y_train=targets[0],
            x_test=x_test[:, None],
            y_test=targets[1],
            features=("x",),
            classes=(),
            standardisation=fit_standardisation(x[:, None], "none"),
            source=GENERATED,
        )

    def lines(self) -> "tuple[Line, ...]":
        """The ranges that curves are drawn on."""
        import numpy as np

        from pmbnn.data.arrays import Line

        positions = [np.linspace(*ends, CURVE_POINTS) for ends in self.ranges]
        return tuple(Line(x, np.ones(1), self.truth(x)) for x in positions)

    @property
    def line_points(self) -> int:
        """Points of all of `lines`."""
        return CURVE_POINTS * len(self.ranges)

    def _noisy(self, x: "np.ndarray", stream: int) -> "np.ndarray":
        import numpy as np

        rng = np.random.default_rng([self.seed, stream])
        return self.truth(x) + self.noise * rng.standard_normal(len(x))


class Sine(Regression):
    """One period of a sine: y = 10 · sin(2πx) plus noise, x evenly from −0.5 to 0.5.

    The defaults are those of TensorFlow Probability's regression write-up.
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
    """Six points on y = −x⁴ + 3x² + 1, without noise unless asked for.

    Without noise all seeds give the same rows, and fits that differ in their own noise only.
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
