"""Digits turned out of their upright position."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from pmbnn.data.base import DataError
from pmbnn.data.ood.base import OodSpec, Size

if TYPE_CHECKING:
    from pmbnn.data.ood.arrays import Digits, OodImages


class Rotated(OodSpec):
    """Test digits, turned anticlockwise by ``angle`` degrees about the middle of the image.

    ``size`` asks for the first so many of them; by default all are used. What leaves the
    image is lost, and black comes in.
    """

    kind: Literal["rotated"] = "rotated"
    angle: Annotated[float, Field(ge=-360, le=360)] = 90.0
    size: Size | None = None

    @property
    def name(self) -> str:
        """The kind and the angle."""
        return f"{self.kind}_{self.angle:g}"

    def load(self, digits: "Digits") -> "OodImages":
        """Turned digits, labelled by what they are.

        Raises
        ------
        DataError
            There are fewer digits than asked for.
        """
        import numpy as np
        from scipy.ndimage import rotate

        from pmbnn.data.digit_format import SIDE
        from pmbnn.data.ood.arrays import OodImages

        available = len(digits.x)
        if self.size is not None and self.size > available:
            raise DataError(f"`size` must be at most {available} for rotated, got {self.size}.")
        images = np.asarray(digits.x[: self.size], np.float32).reshape(-1, SIDE, SIDE)
        # Linear interpolation keeps pixels between 0 and 1.
        turned = rotate(images, self.angle, axes=(2, 1), reshape=False, order=1)
        return OodImages(
            name=self.name,
            x=turned.reshape(len(images), -1),
            labels=tuple(digits.labels[: self.size]),
            source=f"test digits turned by {self.angle:g} degrees",
        )
