"""Foreground told from paper in a photograph or a drawing."""

import math
from typing import TYPE_CHECKING

from pmbnn.data.digit_format import BOX, cut_out, resize

if TYPE_CHECKING:
    import numpy as np

FOREGROUND_SIDE = 400
"""Longer side at which foreground is told from paper: twenty times what is left of it in the end,
and small enough to average a camera's noise away."""

LEAST_CONTRAST = 0.08
"""Difference in brightness, from 0 to 1, below which there is no foreground but shades of paper."""

NOISE_SDS = 3
"""Standard deviations of the paper's brightness that count as paper."""

LEAST_NOISE = 0.01
"""Difference in brightness that counts as paper in any case: two or three of 255 steps."""

STROKE = 0.2
"""Darkness from which a pixel is part of a stroke, where paper is 0 and foreground is 1."""

EDGE = 0.1
"""Darkness of the faintest pixel that the box of all foreground reaches to. It gives every digit of
MNIST the longer side that it has."""

SPECK = 0.02
"""Spots below this share of the largest are dust."""

LEAST_SPOT = 8
"""Pixels that the largest spot must have not to be dust itself."""

THINNEST = 2.0
"""Width in pixels, where the longer side of all foreground is 20, up to which strokes are
thickened: nine of ten digits of MNIST have wider ones (median 2.7), a ball pen's are half as
wide."""


def find_foreground(grey: "np.ndarray", dark: bool | None = None) -> tuple["np.ndarray", bool]:
    """Foreground from 0 to 1, ``(row, column)``, and whether it is darker than the paper.

    The paper's brightness is that along the border of the image, which may change evenly from
    one side to the other. What stands out from it by more than its noise is foreground; what does
    in small spots only is dust. The longer side of what comes back is at most 400 pixels.

    Parameters
    ----------
    grey
        Brightness from 0 to 1, ``(row, column)``.
    dark
        Whether foreground is darker than paper; by default, whichever of the two stands out more.

    Raises
    ------
    ValueError
        If there is no foreground, or the image is too small to tell; the message lacks its
        subject, which the caller knows.
    """
    relief = _above_paper(
        resize(grey, FOREGROUND_SIDE) if max(grey.shape) > FOREGROUND_SIDE else grey
    )
    if dark is None:
        # Squares let a few strokes outweigh the noise of much paper.
        dark = bool((relief.clip(max=0) ** 2).sum() > (relief.clip(min=0) ** 2).sum())
    return _without_dust((-relief if dark else relief).clip(min=0)), dark


def thicken(foreground: "np.ndarray") -> "np.ndarray":
    """Foreground whose strokes are at least two pixels wide once it is scaled into its box."""
    import numpy as np
    from scipy.ndimage import binary_erosion, distance_transform_edt

    strokes = foreground > foreground.max() / 2
    outline = strokes & ~binary_erosion(strokes)
    width = 2 * strokes.sum() / outline.sum()
    missing = THINNEST * max(cut_out(foreground).shape) / BOX - width
    if missing <= 0:
        return foreground
    wider = np.pad(strokes, math.ceil(missing))
    around = (missing / 2 + 0.5 - distance_transform_edt(~wider)).clip(0, 1)
    return np.maximum(around, np.pad(foreground, math.ceil(missing)))


def _above_paper(grey: "np.ndarray") -> "np.ndarray":
    """Brightness above that of the paper; within the paper's noise, zero."""
    import numpy as np

    height, width = grey.shape
    if min(height, width) < 3:
        raise ValueError("is too small: must be at least 3 pixels high and wide")
    border = np.ones(grey.shape, bool)
    band = max(1, min(height, width) // 20)
    border[band:-band, band:-band] = False
    row, column = np.indices(grey.shape) / max(height, width)
    plane = np.stack([np.ones(grey.shape), row, column], axis=-1)
    kept = border
    for _ in range(3):  # each time without what stands out: foreground that touches the border
        slope, *_ = np.linalg.lstsq(plane[kept], grey[kept])
        relief = grey - plane @ slope
        spread = 1.4826 * float(np.median(np.abs(relief[kept] - np.median(relief[kept]))))
        kept = border & (np.abs(relief - np.median(relief[kept])) <= max(3 * spread, 1e-3))
        if kept.sum() < border.sum() / 2:
            break
    noise = max(NOISE_SDS * spread, LEAST_NOISE)
    return np.sign(relief) * np.maximum(np.abs(relief) - noise, 0)


def _without_dust(relief: "np.ndarray") -> "np.ndarray":
    """Foreground from 0 to 1, from how far it stands out."""
    import numpy as np
    from scipy.ndimage import binary_dilation, label

    level = _stroke_level(relief)
    foreground = (relief / level).clip(0, 1) if level > 0 else relief
    spots, _ = label(foreground > STROKE, np.ones((3, 3)))
    sizes = np.bincount(spots.ravel())
    sizes[0] = 0
    if level < LEAST_CONTRAST or sizes.max() < LEAST_SPOT:
        raise ValueError("shows no foreground: nothing stands out from the paper")
    strokes = (sizes >= SPECK * sizes.max())[spots] & (spots > 0)
    # The soft edge of a stroke belongs to it, but not what JPEG adds around.
    near = binary_dilation(strokes, np.ones((3, 3)), 1 + max(foreground.shape) // 200)
    rows, columns = np.nonzero(near & (foreground > EDGE))
    box = np.s_[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
    kept = np.zeros_like(foreground)
    kept[box] = np.where(near, foreground, 0)[box]
    return kept


def _stroke_level(relief: "np.ndarray") -> float:
    """How far the darkest strokes stand out.

    Half the largest value tells strokes from shades; their upper quartile is robust.
    """
    import numpy as np

    strokes = relief[relief > relief.max() / 2]
    return float(np.percentile(strokes, 75)) if len(strokes) else 0.0
