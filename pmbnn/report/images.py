"""Pictures inside the page: drawn or read, made small, written as data addresses."""

import base64
import io
from pathlib import Path

import numpy as np
from matplotlib.colors import Colormap
from PIL import Image

from pmbnn.figures.plane import PlaneMap
from pmbnn.storage import ResultsError

COLOURS = 256
"""Colours of a figure: lines stay sharp and shades even, and it takes a third of the room."""

SHADES = 255
"""Shades of a map; the last colour of its palette is that of the line."""

WIDEST = 1400
"""Pixels across a figure: more than a page shows at twice the usual density."""

THUMBNAIL = 320
"""Pixels across a small picture that stands for a large one."""

MAP_SCALE = 2
"""Pixels a point of the map: the line of even odds is then one in two of them."""


def figure_address(path: Path, widest: int = WIDEST) -> tuple[str, int, int]:
    """A picture file as a data address, its width and its height.

    Raises
    ------
    ResultsError
        If it is no picture.
    """
    try:
        with Image.open(path) as image:
            picture = _on_white(image)
    except OSError as error:
        raise ResultsError(f"The picture `{path}` cannot be read: {error}.") from error
    if picture.width > widest:
        height = max(1, round(picture.height * widest / picture.width))
        picture = picture.resize((widest, height), Image.Resampling.LANCZOS)
    return _address(picture.quantize(COLOURS, dither=Image.Dither.NONE)), *picture.size


def map_address(plane: PlaneMap, values: np.ndarray, colours: Colormap, highest: float) -> str:
    """Map of ``values`` over the plane with its line of even odds, as a data address.

    ``x1`` goes to the right and ``x2`` up.
    """
    shade = np.rint(np.clip(values / highest, 0, 1) * (SHADES - 1)).astype(np.uint8)
    shade = shade.repeat(MAP_SCALE, axis=0).repeat(MAP_SCALE, axis=1)
    shade[_even_odds(plane.probability)] = SHADES
    image = Image.fromarray(np.ascontiguousarray(shade.T[::-1]), "L")
    palette = np.zeros((SHADES + 1, 3), np.uint8)
    palette[:SHADES] = colours(np.linspace(0, 1, SHADES), bytes=True)[:, :3]
    image.putpalette(palette.tobytes())
    return _address(image)


def _even_odds(probability: np.ndarray) -> np.ndarray:
    """Pixels where the first class begins to have a probability above one half."""
    first = (probability > 0.5).repeat(MAP_SCALE, axis=0).repeat(MAP_SCALE, axis=1)
    edge = np.zeros_like(first)
    edge[1:] |= first[1:] != first[:-1]
    edge[:, 1:] |= first[:, 1:] != first[:, :-1]
    return edge


def _on_white(image: Image.Image) -> Image.Image:
    """A picture without transparency."""
    rgba = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba).convert("RGB")


def _address(image: Image.Image) -> str:
    data = io.BytesIO()
    image.save(data, "PNG")
    return f"data:image/png;base64,{base64.b64encode(data.getvalue()).decode('ascii')}"
