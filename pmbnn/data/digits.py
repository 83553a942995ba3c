"""A user's image file, read and laid out as the digits of MNIST are."""

import math
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError
from scipy.ndimage import binary_dilation, binary_erosion, distance_transform_edt, label

from pmbnn.data.base import SIDE, DataError

BOX = 20
"""Longer side of the foreground: that of every digit of MNIST."""

CENTRE = 14
"""Row and column that the centre of mass is nearest to, counted from 0. In MNIST it lies evenly
between 13.5 and 14.5, for digits were moved by whole pixels."""

MOST_PIXELS = 50_000_000
"""Larger files are rejected before they are decoded: a few kilobytes can claim gigabytes."""

DISPLAY_SIDE = 1_600
"""Longer side that is kept of an image: more than a figure shows."""

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


class ImageError(DataError):
    """An image file that cannot be used; the message names it."""


@dataclass(frozen=True)
class UserImage:
    """An image file and what a digit classifier gets to see of it.

    Attributes
    ----------
    path
        The file.
    original
        As read, upright: ``(row, column, 3)``, uint8, or ``(row, column)`` if it has no
        colours. The longer side is at most 1,600 pixels.
    grey
        Its brightness, stretched from 0 (the darkest) to 1, float32, ``(row, column)``.
    inverted
        Whether it shows dark foreground on light paper, which is turned round.
    digit
        Light foreground on black, 0 to 1, float32, ``(28, 28)``.
    """

    path: Path
    original: np.ndarray
    grey: np.ndarray
    inverted: bool
    digit: np.ndarray


def read_image(path: Path | str, whole: bool = False, invert: bool | None = None) -> UserImage:
    """An image file in the form of the digits of MNIST.

    The paper's brightness is that along the border of the image, which may change evenly from
    one side to the other; what stands out from it is foreground. Foreground is stretched to black
    and white, dust is removed, thin strokes are thickened, and the rest is cut out, scaled into a
    box of 20 × 20 pixels and placed by its centre of mass in 28 × 28.

    Parameters
    ----------
    path
        Any format that Pillow reads; the first frame if there are several. Transparent parts
        are white, or black where light strokes would vanish on white.
    whole
        Scale the whole image to 28 × 28 pixels instead, wherever and however thin its foreground
        is.
    invert
        Whether foreground is darker than paper; by default, whichever of the two stands out more.

    Raises
    ------
    ImageError
        The file is missing, no image, damaged, too large, or shows no foreground.
    """
    path = Path(path)
    image = _upright(path)
    flat = image if image.mode == "L" else image.convert("L")
    grey = _stretched(np.asarray(flat, np.float32) / 255)
    try:
        foreground, inverted = find_foreground(np.asarray(flat, np.float32) / 255, invert)
    except ValueError as error:
        raise ImageError(f"{path} {error}.") from error
    digit = _shrunk(foreground) if whole else as_digit(thicken(foreground))
    # Strokes thinner than a pixel come out pale; those of MNIST reach full white.
    return UserImage(path, np.asarray(image), grey, inverted, digit / digit.max())


# Images as they are


def read_size(file: BinaryIO, name: str) -> tuple[int, int]:
    """Height and width of an image, the right way up.

    Raises
    ------
    ImageError
        It is none, or damaged; the message has its name.
    """
    with _reasons(name), Image.open(file) as image:
        _check_size(image, name)
        width, height = ImageOps.exif_transpose(image).size
        return height, width


def decode(
    file: BinaryIO, name: str, size: tuple[int, int], colour: bool, scaled: bool
) -> np.ndarray:
    """Pixels of an image, ``(channel, row, column)``, uint8; grey ones have one channel.

    Transparent parts are filled as `read_image` does. Of another size, an image is ``scaled``, or
    an error.

    Raises
    ------
    ImageError
        It is none, damaged, or too large; the message has its name.
    """
    with _reasons(name), Image.open(file) as opened:
        _check_size(opened, name)
        image = opened
        if image.mode not in ("L", "RGB"):
            opened.load()
            image = _in_8_bits(opened)
            image = _on_paper(image) if image.mode == "RGBA" else image
        # Most files have no such note, and looking for it twice takes as long as decoding.
        if opened.getexif():
            image = ImageOps.exif_transpose(image)
        image = image.convert("RGB" if colour else "L")
        height, width = size
        if image.size != (width, height):
            if not scaled:
                found = f"{image.height} × {image.width}"
                raise ImageError(
                    f"{name} must have {height} × {width} pixels like the others, got {found}: "
                    "give `size` to scale all."
                )
            image = image.resize((width, height), Image.Resampling.BILINEAR)
        pixels = np.asarray(image)
    return pixels.transpose(2, 0, 1) if colour else pixels[None]


def _check_size(image: Image.Image, name: object) -> None:
    width, height = image.size
    if width * height > MOST_PIXELS:
        raise ImageError(
            f"{name} is too large: must have at most {MOST_PIXELS:,} pixels, "
            f"got {width} × {height}."
        )


# Reading


def _upright(path: Path) -> Image.Image:
    """First frame in grey or colour (8 bits), the right way up, of moderate size."""
    with _reasons(path), Image.open(path) as image:
        _check_size(image, path)
        image.load()
        image = _in_8_bits(ImageOps.exif_transpose(image))
        image.thumbnail((DISPLAY_SIDE, DISPLAY_SIDE))
        return _on_paper(image) if image.mode == "RGBA" else image


@contextmanager
def _reasons(path: Path | str):
    """Turn whatever Pillow raises over a file into one line that names it."""
    try:
        with warnings.catch_warnings():
            # Pillow warns of huge files, and of damaged metadata that does not matter here.
            warnings.simplefilter("ignore")
            yield
    except ImageError:
        raise
    except FileNotFoundError as error:
        raise ImageError(f"{path} does not exist.") from error
    except UnidentifiedImageError as error:
        raise ImageError(f"{path} is no image, or of a format that is not known.") from error
    except Image.DecompressionBombError as error:
        raise ImageError(
            f"{path} is too large: must have at most {MOST_PIXELS:,} pixels."
        ) from error
    # Its decoders raise a dozen unrelated types over damaged files.
    except Exception as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise ImageError(f"{path} cannot be read: {reason or type(error).__name__}.") from error


def _in_8_bits(image: Image.Image) -> Image.Image:
    """Image in grey (``L``), colour (``RGB``), or colour with transparency (``RGBA``)."""
    if image.mode.startswith(("I", "F")):  # more than 8 bits a pixel
        values = np.nan_to_num(np.asarray(image, np.float32))
        top = 65_535 if image.mode.startswith("I;16") else max(values.max(), 1.0)
        return Image.fromarray((255 * (values / top).clip(0, 1)).round().astype(np.uint8))
    if image.has_transparency_data:
        return image.convert("RGBA")
    return image.convert("L" if image.mode in ("1", "L") else "RGB")


def _on_paper(image: Image.Image) -> Image.Image:
    """Image with its transparent parts filled so that the rest can be seen."""
    brightness = np.asarray(image.convert("RGB").convert("L"), np.float64)
    opacity = np.asarray(image.getchannel("A"), np.float64)
    light = (brightness * opacity).sum() > 127.5 * opacity.sum()
    see_through = bool((opacity < 255).any())
    paper = Image.new("RGBA", image.size, "black" if light and see_through else "white")
    return Image.alpha_composite(paper, image).convert("RGB")


# Sizes and shades


def _stretched(grey: np.ndarray) -> np.ndarray:
    low, high = grey.min(), grey.max()
    return (grey - low) / (high - low) if high > low else grey


def _shrunk(foreground: np.ndarray) -> np.ndarray:
    """The whole drawing in 28 × 28 pixels, its sides scaled each on its own."""
    image = Image.fromarray(np.ascontiguousarray(foreground, dtype=np.float32))
    return np.asarray(image.resize((SIDE, SIDE), Image.Resampling.HAMMING))


# Foreground told from paper


def find_foreground(grey: np.ndarray, dark: bool | None = None) -> tuple[np.ndarray, bool]:
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


def thicken(foreground: np.ndarray) -> np.ndarray:
    """Foreground whose strokes are at least two pixels wide once it is scaled into its box."""
    strokes = foreground > foreground.max() / 2
    outline = strokes & ~binary_erosion(strokes)
    width = 2 * strokes.sum() / outline.sum()
    missing = THINNEST * max(cut_out(foreground).shape) / BOX - width
    if missing <= 0:
        return foreground
    wider = np.pad(strokes, math.ceil(missing))
    around = (missing / 2 + 0.5 - distance_transform_edt(~wider)).clip(0, 1)
    return np.maximum(around, np.pad(foreground, math.ceil(missing)))


def _above_paper(grey: np.ndarray) -> np.ndarray:
    """Brightness above that of the paper; within the paper's noise, zero."""
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


def _without_dust(relief: np.ndarray) -> np.ndarray:
    """Foreground from 0 to 1, from how far it stands out."""
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


def _stroke_level(relief: np.ndarray) -> float:
    """How far the darkest strokes stand out.

    Half the largest value tells strokes from shades; their upper quartile is robust.
    """
    strokes = relief[relief > relief.max() / 2]
    return float(np.percentile(strokes, 75)) if len(strokes) else 0.0


# Layout


def as_digit(foreground: np.ndarray) -> np.ndarray:
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
    cut = resize(cut_out(foreground), BOX)
    mass = cut.sum()
    start = []
    for length, weights in zip(cut.shape, (cut.sum(axis=1), cut.sum(axis=0)), strict=True):
        centre = float(weights @ np.arange(length) / mass)
        start.append(min(max(round(CENTRE - centre), 0), SIDE - length))
    image = np.zeros((SIDE, SIDE), np.float32)
    image[start[0] : start[0] + cut.shape[0], start[1] : start[1] + cut.shape[1]] = cut
    return image


def cut_out(foreground: np.ndarray) -> np.ndarray:
    """The smallest rectangle with all that is not zero."""
    rows, columns = (np.flatnonzero(foreground.any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        raise ValueError("There is no foreground in the drawing.")
    return foreground[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def resize(array: np.ndarray, side: int) -> np.ndarray:
    """Array scaled so that its longer side has that length; averaged where it shrinks."""
    height, width = array.shape
    longer = max(height, width)
    shape = [max(1, round(side * length / longer)) for length in (width, height)]
    image = Image.fromarray(np.ascontiguousarray(array, dtype=np.float32))
    # Its kernel never goes below zero, so values stay in their range.
    return np.asarray(image.resize(shape, Image.Resampling.HAMMING))
