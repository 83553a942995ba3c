"""A user's own image file, read and laid out as a digit classifier expects it."""

import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pmbnn.data.base import DataError
from pmbnn.data.digit_format import SIDE, as_digit
from pmbnn.data.foreground import find_foreground, thicken

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

MOST_PIXELS = 50_000_000
"""Larger files are rejected before they are decoded: a few kilobytes can claim gigabytes."""

DISPLAY_SIDE = 1_600
"""Longer side that is kept of an image: more than a figure shows."""


class ImageError(DataError):
    """An image file that cannot be used; the message names it."""


@dataclass(frozen=True)
class OwnImage:
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
    original: "np.ndarray"
    grey: "np.ndarray"
    inverted: bool
    digit: "np.ndarray"


def read_image(path: Path | str, whole: bool = False, invert: bool | None = None) -> OwnImage:
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
    import numpy as np

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
    return OwnImage(path, np.asarray(image), grey, inverted, digit / digit.max())


# Images as they are


def read_size(file: BinaryIO, name: str) -> tuple[int, int]:
    """Height and width of an image, the right way up.

    Raises
    ------
    ImageError
        It is none, or damaged; the message has its name.
    """
    from PIL import Image, ImageOps

    with _reasons(name), Image.open(file) as image:
        _check_size(image, name)
        width, height = ImageOps.exif_transpose(image).size
        return height, width


def decode(
    file: BinaryIO, name: str, size: tuple[int, int], colour: bool, scaled: bool
) -> "np.ndarray":
    """Pixels of an image, ``(channel, row, column)``, uint8; grey ones have one channel.

    Transparent parts are filled as `read_image` does. Of another size, an image is ``scaled``, or
    an error.

    Raises
    ------
    ImageError
        It is none, damaged, or too large; the message has its name.
    """
    import numpy as np
    from PIL import Image, ImageOps

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


def _check_size(image: "Image", name: object) -> None:
    width, height = image.size
    if width * height > MOST_PIXELS:
        raise ImageError(
            f"{name} is too large: must have at most {MOST_PIXELS:,} pixels, "
            f"got {width} × {height}."
        )


# Reading


def _upright(path: Path) -> "Image":
    """First frame in grey or colour (8 bits), the right way up, of moderate size."""
    from PIL import Image, ImageOps

    with _reasons(path), Image.open(path) as image:
        _check_size(image, path)
        image.load()
        image = _in_8_bits(ImageOps.exif_transpose(image))
        image.thumbnail((DISPLAY_SIDE, DISPLAY_SIDE))
        return _on_paper(image) if image.mode == "RGBA" else image


@contextmanager
def _reasons(path: Path | str):
    """Turn whatever Pillow raises over a file into one line that names it."""
    from PIL import Image, UnidentifiedImageError

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


def _in_8_bits(image: "Image") -> "Image":
    """Image in grey (``L``), colour (``RGB``), or colour with transparency (``RGBA``)."""
    import numpy as np
    from PIL import Image

    if image.mode.startswith(("I", "F")):  # more than 8 bits a pixel
        values = np.nan_to_num(np.asarray(image, np.float32))
        top = 65_535 if image.mode.startswith("I;16") else max(values.max(), 1.0)
        return Image.fromarray((255 * (values / top).clip(0, 1)).round().astype(np.uint8))
    if image.has_transparency_data:
        return image.convert("RGBA")
    return image.convert("L" if image.mode in ("1", "L") else "RGB")


def _on_paper(image: "Image") -> "Image":
    """Image with its transparent parts filled so that the rest can be seen."""
    import numpy as np
    from PIL import Image

    brightness = np.asarray(image.convert("RGB").convert("L"), np.float64)
    opacity = np.asarray(image.getchannel("A"), np.float64)
    light = (brightness * opacity).sum() > 127.5 * opacity.sum()
    see_through = bool((opacity < 255).any())
    paper = Image.new("RGBA", image.size, "black" if light and see_through else "white")
    return Image.alpha_composite(paper, image).convert("RGB")


# Sizes and shades


def _stretched(grey: "np.ndarray") -> "np.ndarray":
    low, high = grey.min(), grey.max()
    return (grey - low) / (high - low) if high > low else grey


def _shrunk(foreground: "np.ndarray") -> "np.ndarray":
    """The whole drawing in 28 × 28 pixels, its sides scaled each on its own."""
    import numpy as np
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(foreground, dtype=np.float32))
    return np.asarray(image.resize((SIDE, SIDE), Image.Resampling.HAMMING))
