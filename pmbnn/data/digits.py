"""A user's image file, read and laid out as the digits of MNIST are."""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
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

DISPLAY_SIDE = 1_600
"""Longer side that is kept of an image: more than a figure shows."""

FOREGROUND_SIDE = 400
"""Longer side at which foreground is separated from paper: twenty times `BOX`, and small enough to
average a camera's noise away."""

LEAST_CONTRAST = 0.08
"""Difference in brightness, from 0 to 1, below which there is no foreground but shades of paper."""

NOISE_SDS, LEAST_NOISE = 3, 0.01
"""Standard deviations of the paper's brightness that count as paper, and the difference that does
in any case: two or three of 255 steps."""

STROKE, EDGE = 0.2, 0.1
"""Darkness, from paper 0 to foreground 1, from which a pixel is part of a stroke; and that of the
faintest pixel that counts for the box, which gives every digit of MNIST its own longer side."""

SPECK, LEAST_SPOT = 0.02, 8
"""Spots below this share of the largest are dust, and so is a largest one of fewer pixels."""

THINNEST = 2.0
"""Width in pixels, where the longer side of the foreground is 20, up to which strokes are
thickened: nine of ten digits of MNIST have wider ones (median 2.7), a ball pen's are half as
wide."""


WHITE = (1, 255, 65_535, 2**31)
"""Brightness of white of images in single precision or 32 bits, which do not say it."""


class ImageError(DataError):
    """An image file that cannot be used; the message names it."""


@dataclass(frozen=True)
class UserImage:
    """An image file and the digit that a classifier sees.

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
        Whether it shows dark foreground on light paper, which is inverted.
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
    with pillow_warnings(), _image_errors(path), Image.open(path) as file:
        image = _upright(file)
        image.thumbnail((DISPLAY_SIDE, DISPLAY_SIDE))
    brightness = np.asarray(image.convert("L"), np.float32) / 255
    low, high = brightness.min(), brightness.max()
    try:
        foreground, inverted = _find_foreground(brightness, invert)
    except ValueError as error:
        raise ImageError(f"{path} {error}.") from error
    digit = _resized(foreground, SIDE, SIDE) if whole else as_digit(_thickened(foreground))
    return UserImage(
        path,
        np.asarray(image),
        (brightness - low) / (high - low),
        inverted,
        # Strokes thinner than a pixel come out pale; those of MNIST reach full white.
        digit / digit.max(),
    )


# Images as they are


def as_it_is(image: UserImage, scaled: bool) -> UserImage:
    """The image as a data set of the user's images has it: neither cut out nor inverted.

    Its ``digit`` has the pixels of `decode` from 0 to 1. An image that is not of 28 × 28 pixels is
    ``scaled``, or an error.

    Raises
    ------
    ImageError
        As `decode` does.
    """
    with pillow_warnings(), image.path.open("rb") as file:
        pixels = decode(file, str(image.path), (SIDE, SIDE), colour=False, scaled=scaled)
    return replace(image, inverted=False, digit=pixels[0].astype(np.float32) / 255)


def read_size(file: BinaryIO, name: str) -> tuple[int, int]:
    """Height and width of an image, the right way up.

    Raises
    ------
    ImageError
        It is no image, or damaged; the message has its name.
    """
    with pillow_warnings(), _image_errors(name), Image.open(file) as image:
        width, height = ImageOps.exif_transpose(image).size
        return height, width


def decode(
    file: BinaryIO, name: str, size: tuple[int, int], colour: bool, scaled: bool
) -> np.ndarray:
    """Pixels of an image, ``(channel, row, column)``, uint8; grey ones have one channel.

    Transparent parts are filled as `read_image` does. An image of another size is ``scaled``, or
    an error. Call it within `pillow_warnings`, which several threads cannot each enter.

    Raises
    ------
    ImageError
        It is no image, damaged, or too large; the message has its name.
    """
    height, width = size
    with _image_errors(name), Image.open(file) as opened:
        image = _upright(opened).convert("RGB" if colour else "L")
        if image.size != (width, height):
            if not scaled:
                rule = f"must have {height} × {width} pixels like the others"
                size_text = f"{image.height} × {image.width}: give `size` to scale all"
                raise ImageError(f"{name} {rule}, got {size_text}.")
            image = image.resize((width, height), Image.Resampling.BILINEAR)
        pixels = np.asarray(image)
    return pixels.transpose(2, 0, 1) if colour else pixels[None]


@contextmanager
def pillow_warnings() -> Iterator[None]:
    """Ignore Pillow's warnings of damaged metadata, and raise those of huge images."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


@contextmanager
def _image_errors(name: Path | str) -> Iterator[None]:
    """Turn whatever Pillow raises over a file into one line that names it."""
    try:
        yield
    except ImageError:
        raise
    except UnidentifiedImageError as error:
        raise ImageError(f"{name} is no image, or of a format that is not known.") from error
    # Its decoders raise a dozen unrelated types over damaged files.
    except Exception as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split()).rstrip(".")
        raise ImageError(f"{name} cannot be read: {reason or type(error).__name__}.") from error


def _upright(image: Image.Image) -> Image.Image:
    """First frame in grey (``L``) or colour (``RGB``), the right way up, on opaque paper."""
    image.load()
    # Most files have no such note, and looking for it twice takes as long as decoding.
    if image.getexif():
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith(("I", "F")):  # more than 8 bits a pixel
        values = np.nan_to_num(np.asarray(image, np.float32))
        # A scale for each image would take its brightness away.
        sixteen = image.mode.startswith("I;16")
        # Interpolation goes a little beyond white.
        fits = (white for white in WHITE if values.max() < 2 * white)
        top = 65_535 if sixteen else next(fits, values.max())
        return Image.fromarray((255 * (values / top).clip(0, 1)).round().astype(np.uint8))
    if image.has_transparency_data:
        return _on_paper(image.convert("RGBA"))
    return image.convert("L" if image.mode in ("1", "L") else "RGB")


def _on_paper(image: Image.Image) -> Image.Image:
    """Image with its transparent parts filled so that the rest can be seen."""
    brightness = np.asarray(image.convert("RGB").convert("L"), np.float64)
    opacity = np.asarray(image.getchannel("A"), np.float64)
    light = (brightness * opacity).sum() > 127.5 * opacity.sum()
    is_transparent = bool((opacity < 255).any())
    paper = Image.new("RGBA", image.size, "black" if light and is_transparent else "white")
    return Image.alpha_composite(paper, image).convert("RGB")


# Foreground


def _find_foreground(grey: np.ndarray, dark: bool | None) -> tuple[np.ndarray, bool]:
    """Foreground from 0 to 1, ``(row, column)``, and whether it is darker than the paper.

    The longer side is at most `FOREGROUND_SIDE` pixels. A ValueError says why there is none; the
    caller names the file.
    """
    if max(grey.shape) > FOREGROUND_SIDE:
        grey = _fitted(grey, FOREGROUND_SIDE)
    relief = _above_paper(grey)
    if dark is None:
        # Squares let a few strokes outweigh the noise of much paper.
        dark = bool((relief.clip(max=0) ** 2).sum() > (relief.clip(min=0) ** 2).sum())
    return _without_dust((-relief if dark else relief).clip(min=0)), dark


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
    for _ in range(3):  # each time without outliers: foreground that touches the border
        slope, *_ = np.linalg.lstsq(plane[kept], grey[kept])
        relief = grey - plane @ slope
        spread = 1.4826 * float(np.median(np.abs(relief[kept] - np.median(relief[kept]))))
        kept = border & (np.abs(relief - np.median(relief[kept])) <= max(3 * spread, 1e-3))
        if kept.sum() < border.sum() / 2:
            break
    noise = max(NOISE_SDS * spread, LEAST_NOISE)
    return np.sign(relief) * np.maximum(np.abs(relief) - noise, 0)


def _without_dust(relief: np.ndarray) -> np.ndarray:
    """Foreground from 0 to 1, without small spots."""
    # Half the largest value separates strokes from shades; their upper quartile is robust.
    strokes = relief[relief > relief.max() / 2]
    level = float(np.percentile(strokes, 75)) if len(strokes) else 0.0
    foreground = (relief / level).clip(0, 1) if level > 0 else relief
    spots, _ = label(foreground > STROKE, np.ones((3, 3)))
    sizes = np.bincount(spots.ravel())
    sizes[0] = 0
    if level < LEAST_CONTRAST or sizes.max() < LEAST_SPOT:
        raise ValueError("shows no foreground: nothing stands out from the paper")
    strokes = (sizes >= SPECK * sizes.max())[spots] & (spots > 0)
    # The soft edge of a stroke belongs to it, but not the artefacts that JPEG adds around.
    near = binary_dilation(strokes, np.ones((3, 3)), 1 + max(foreground.shape) // 200)
    rows, columns = np.nonzero(near & (foreground > EDGE))
    box = np.s_[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
    kept = np.zeros_like(foreground)
    kept[box] = np.where(near, foreground, 0)[box]
    return kept


def _thickened(foreground: np.ndarray) -> np.ndarray:
    """Foreground whose strokes are at least two pixels wide once it is scaled into its box."""
    strokes = foreground > foreground.max() / 2
    outline = strokes & ~binary_erosion(strokes)
    width = 2 * strokes.sum() / outline.sum()
    missing = THINNEST * max(_cut_out(foreground).shape) / BOX - width
    if missing <= 0:
        return foreground
    wider = np.pad(strokes, math.ceil(missing))
    around = (missing / 2 + 0.5 - distance_transform_edt(~wider)).clip(0, 1)
    return np.maximum(around, np.pad(foreground, math.ceil(missing)))


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
    cut = _fitted(_cut_out(foreground), BOX)
    mass = cut.sum()
    start = []
    for length, weights in zip(cut.shape, (cut.sum(axis=1), cut.sum(axis=0)), strict=True):
        centre = float(weights @ np.arange(length) / mass)
        start.append(min(max(round(CENTRE - centre), 0), SIDE - length))
    image = np.zeros((SIDE, SIDE), np.float32)
    image[start[0] : start[0] + cut.shape[0], start[1] : start[1] + cut.shape[1]] = cut
    return image


def _cut_out(foreground: np.ndarray) -> np.ndarray:
    """The smallest rectangle with all that is not zero."""
    rows, columns = (np.flatnonzero(foreground.any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        raise ValueError("There is no foreground in the drawing.")
    return foreground[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _fitted(array: np.ndarray, side: int) -> np.ndarray:
    """Array scaled so that its longer side has that length."""
    return _resized(array, *(max(1, round(side * n / max(array.shape))) for n in array.shape))


def _resized(array: np.ndarray, height: int, width: int) -> np.ndarray:
    """Array of another size, averaged where it shrinks."""
    image = Image.fromarray(np.ascontiguousarray(array, dtype=np.float32))
    # Its kernel never goes below zero, so values stay in their range.
    return np.asarray(image.resize((width, height), Image.Resampling.HAMMING))
