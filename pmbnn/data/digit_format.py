"""Any drawing laid out as the digits of MNIST are."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

SIDE = 28
"""Height and width of an image."""

BOX = 20
"""Longer side of the foreground: that of every digit of MNIST."""

CENTRE = 14
"""Row and column that the centre of mass is nearest to, counted from 0. In MNIST it lies evenly
between 13.5 and 14.5, for digits were moved by whole pixels."""


def as_digit(foreground: "np.ndarray") -> "np.ndarray":
    """Image ``(28, 28)``, float32, of foreground ``(row, column)`` of any size.

    What is not zero is cut out, scaled so that its longer side is 20 pixels, and moved by whole
    pixels until its centre of mass is in the middle, but never beyond an edge.

    Raises
    ------
    ValueError
        If there is no foreground.

    References
    ----------
    LeCun et al. (1998), Gradient-based learning applied to document recognition, section III.A.
    """
    import numpy as np

    cut = resize(cut_out(foreground), BOX)
    mass = cut.sum()
    start = []
    for length, weights in zip(cut.shape, (cut.sum(axis=1), cut.sum(axis=0)), strict=True):
        centre = float(weights @ np.arange(length) / mass)
        start.append(min(max(round(CENTRE - centre), 0), SIDE - length))
    image = np.zeros((SIDE, SIDE), np.float32)
    image[start[0] : start[0] + cut.shape[0], start[1] : start[1] + cut.shape[1]] = cut
    return image


def cut_out(foreground: "np.ndarray") -> "np.ndarray":
    """The smallest rectangle with all that is not zero."""
    import numpy as np

    rows, columns = (np.flatnonzero(foreground.any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        raise ValueError("There is no foreground in the drawing.")
    return foreground[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def resize(array: "np.ndarray", side: int) -> "np.ndarray":
    """Array scaled so that its longer side has that length; averaged where it shrinks."""
    import numpy as np
    from PIL import Image

    height, width = array.shape
    longer = max(height, width)
    shape = [max(1, round(side * length / longer)) for length in (width, height)]
    image = Image.fromarray(np.ascontiguousarray(array, dtype=np.float32))
    # Its kernel never goes below zero, so values stay in their range.
    return np.asarray(image.resize(shape, Image.Resampling.HAMMING))
