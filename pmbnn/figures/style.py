"""What all figures share: colours, sizes of letters, and how a figure becomes a file."""

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage
from matplotlib.text import Text
from PIL import Image as Raster

from pmbnn.fitting.helpers import deferred_interrupts

CLASS_COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#F0E442",
    "#000000",
)
"""Okabe and Ito's eight colours, which the colour-blind can tell apart."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
"""A second way to tell apart what colours tell apart."""

PROBABILITY = LinearSegmentedColormap.from_list(
    "class_probability", ["#DF8340", "#F3C7A6", "#F7F7F7", "#A3CBE3", "#4095C5"]
)
"""From the second class's colour to the first's, both lightened so that points stand out."""

UNCERTAINTY = colormaps["cividis"]
VALUES = ACCURACY = colormaps["viridis"]
DIFFERENCE = colormaps["RdBu_r"]
COUNTS = LinearSegmentedColormap.from_list("counts", colormaps["Blues"](np.linspace(0.2, 1, 64)))
"""Starts at a blue that a single mistake can be seen by."""

ACCEPTED, REJECTED = CLASS_COLOURS[:2]
"""Colours of predictions that are certain enough, and of the others."""

TITLE_SIZE = 11
TITLE_HEIGHT = 1.2 * TITLE_SIZE / 72
"""Height of a line of a title, in inches."""

LABEL_SIZE = 9
TICK_SIZE = 8
DPI = 110

COLOURS = 256
"""Colours of a file: lines stay sharp and shades even, and it takes a third of the room."""

GREY = "#666666"
EMPTY = "#F2F2F2"
"""Background of a panel with nothing to show."""

SIZES = {
    "axes.labelsize": LABEL_SIZE,
    "axes.titlesize": LABEL_SIZE,
    "xtick.labelsize": TICK_SIZE,
    "ytick.labelsize": TICK_SIZE,
    "legend.fontsize": TICK_SIZE,
    "legend.title_fontsize": TICK_SIZE,
    "grid.color": "#E5E5E5",
}
"""Settings of matplotlib that every figure here is drawn with."""


def with_sizes[**P, R](draw: Callable[P, R]) -> Callable[P, R]:
    """Decorator of a function that draws a figure: `SIZES` hold while it runs.

    Names of the user's data stand there as they are: between two signs of a dollar, matplotlib
    would read them as a formula.
    """

    @wraps(draw)
    def drawn(*args: P.args, **settings: P.kwargs) -> R:
        with rc_context(SIZES):
            figure = draw(*args, **settings)
        for text in figure.findobj(Text) if isinstance(figure, Figure) else ():
            # Numbers at ticks, whose powers are formulas, are made later.
            if text.get_text():
                text.set_parse_math(False)
        return figure

    return drawn


BELOW = {"loc": "outside lower center", "frameon": False}
"""Settings of a legend below all panels of a figure."""


class DrawnFigure(Figure):
    """A figure that belongs to no window, and is a picture in a notebook whatever the backend.

    IPython shows figures of matplotlib once a backend of notebooks is at work, which using
    `matplotlib.pyplot` starts; a figure that is drawn without that would be a line of text.
    """

    draw = rc_context(SIZES)(Figure.draw)  # matplotlib makes the labels of ticks as it draws

    def _repr_png_(self) -> bytes:
        canvas, file = self.canvas, BytesIO()
        try:
            save_figure(self, file)
        finally:
            self.set_canvas(canvas)
        return file.getvalue()

    def show(self, warn: bool = True) -> None:
        """Show the figure as ``matplotlib.pyplot.show`` does: in a window where there are some."""
        import matplotlib.pyplot as plt

        plt.figure(self)
        plt.show()


def new_figure(width: float, height: float) -> Figure:
    """Empty figure of that size in inches, whose panels matplotlib keeps apart."""
    return DrawnFigure(figsize=(width, height), layout="constrained", facecolor="white")


def fixed_figure(width: float, height: float) -> Figure:
    """Empty figure of that size in inches, whose panels `add_panel` places.

    Keeping panels apart is half of the time of a figure: where many are of one kind, their places
    are better known.
    """
    return DrawnFigure(figsize=(width, height), facecolor="white")


def add_panel(
    figure: Figure | SubFigure, left: float, bottom: float, width: float, height: float
) -> Axes:
    """Panel of that size in inches, so far from the lower left corner of a figure or a part."""
    across, up = figure.bbox.size / figure.get_dpi()
    return figure.add_axes((left / across, bottom / up, width / across, height / up))


def add_paper(figure: Figure) -> Axes:
    """Panel over a whole figure without a frame, in inches from its lower left corner.

    For many small images, each of which would take ten times as long as a panel of its own.
    """
    across, up = figure.get_size_inches()
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, across), ylim=(0, up), autoscale_on=False)
    axes.set_axis_off()
    return axes


def title_lines(title: str, width: float, size: float = TITLE_SIZE) -> list[str]:
    """Lines of a title that fit a figure, or a panel, of that width in inches."""
    # A letter is about 0.55 times as wide as its size; a point is 1/72 inch.
    letters = int(width * 72 / (0.55 * size))
    filled = [textwrap.fill(line, letters) for line in title.splitlines()]
    return "\n".join(filled).splitlines()


def text_width(text: str, size: float) -> float:
    """Width of a line of text of that size in points, in inches."""
    return 0.55 * size / 72 * len(text)


def legend_columns(words: Sequence[str], width: float) -> int:
    """Entries that stand beside each other in a legend so many inches wide."""
    widest = max(text_width(entry, TICK_SIZE) for entry in words) + 0.5
    return max(1, min(len(words), int(width / widest)))


def name_columns(axes: Axes, names: Sequence[str], width: float) -> None:
    """Name the columns of a panel, each so many inches wide: on end where a name is wider."""
    on_end = max(text_width(name, TICK_SIZE) for name in names) > width
    axes.set_xticks(range(len(names)), names, rotation=90 if on_end else 0)


def set_title(figure: Figure, title: str) -> None:
    """Write the title above everything, broken into lines at the width of the figure."""
    lines = title_lines(title, figure.get_figwidth())
    figure.suptitle("\n".join(lines), fontsize=TITLE_SIZE, parse_math=False)


def draw_texts(axes: Axes, image: AxesImage, texts: Sequence[Sequence[str]], size: float) -> None:
    """Write a text into each cell of an image, dark on light colours and light on dark ones."""
    colours = image.cmap(image.norm(image.get_array()))
    for row, line in enumerate(texts):
        for column, text in enumerate(line):
            if text:
                colour = readable_on(colours[row, column])
                axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=size)


def readable_on(rgba: Sequence[float]) -> str:
    """Black or white, whichever reads better on a colour; transparent counts as white."""
    red, green, blue, opacity = rgba
    # Luma weights of ITU-R BT.601; half way is where black and white read equally well.
    luma = opacity * (0.299 * red + 0.587 * green + 0.114 * blue) + 1 - opacity
    return "black" if luma > 0.5 else "white"


def class_look(index: int) -> dict[str, str]:
    """Colour and marker of a class; no two of 64 have both in common."""
    marker = (index + index // len(CLASS_COLOURS)) % len(MARKERS)
    return {"color": CLASS_COLOURS[index % len(CLASS_COLOURS)], "marker": MARKERS[marker]}


def draw_empty(axes: Axes, reason: str) -> None:
    """Turn a panel into an empty one that says why there is nothing in it."""
    axes.set(xticks=[], yticks=[], facecolor=EMPTY)
    for spine in axes.spines.values():
        spine.set_edgecolor("#CCCCCC")
    middle = {"ha": "center", "va": "center", "transform": axes.transAxes}
    axes.text(0.5, 0.5, reason, color=GREY, fontsize=LABEL_SIZE, **middle)


PIXELS = {"cmap": "gray", "vmin": 0, "vmax": 255, "interpolation": "nearest"}
"""How bytes, grey or in colours on a last axis, are shown."""


def draw_pixels(axes: Axes, pixels: np.ndarray) -> None:
    """Draw an image of bytes, ``(row, column)`` or ``(row, column, channel)``, without a frame."""
    axes.imshow(pixels, **PIXELS)
    axes.set_axis_off()


def place_pixels(paper: Axes, pixels: np.ndarray, left: float, bottom: float, side: float) -> None:
    """Draw an image as `draw_pixels` does, in the middle of a square of a paper, in inches."""
    shape = pixels.shape[:2]
    rows, columns = (side * length / max(shape) for length in shape)
    left, bottom = left + (side - columns) / 2, bottom + (side - rows) / 2
    extent = (left, left + columns, bottom, bottom + rows)
    paper.imshow(pixels, extent=extent, aspect="auto", **PIXELS)


def upper_limit(arrays: Iterable[np.ndarray], most: float) -> float:
    """Round number just above the largest finite value, and at most ``most``."""
    largest = max((float(np.max(a, where=np.isfinite(a), initial=0.0)) for a in arrays), default=0)
    if largest <= 0:
        return most
    step = 10.0 ** math.floor(math.log10(largest)) / 2
    # Rounded, for the product of two floats can end up a hair beside the number meant.
    return min(most, float(f"{math.ceil(largest / step) * step:.12g}"))


def save_figure(figure: Figure, path: str | Path | BinaryIO) -> None:
    """Write a figure as a PNG file; equal figures give equal bytes."""
    # The canvas itself, for `savefig` draws every figure twice, and names matplotlib's version.
    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    # Letters look alike at this size, and take two thirds of the time, half of which they are.
    # Matplotlib's C++ code turns an interrupt into another error.
    with rc_context({"text.hinting": "none"}), deferred_interrupts():
        canvas.draw()
    reduce_colours(np.asarray(canvas.buffer_rgba())[..., :3]).save(path, "PNG")


def reduce_colours(pixels: np.ndarray) -> Raster.Image:
    """Image of ``pixels``, ``(row, column, 3)`` of 0 to 255, in at most `COLOURS` colours."""
    opaque = np.dstack([pixels, np.full(pixels.shape[:2], 255, np.uint8)])
    every = opaque.view(np.uint32).ravel()
    # Sorting is what takes time: of equal neighbours it sees the first.
    first = np.flatnonzero(np.diff(every, prepend=~every[0]))
    lengths = np.diff(first, append=len(every))
    colours, index = np.unique(every[first], return_inverse=True)
    # By the number of its pixels a colour of a bar would be lost beside those of the map.
    shares = np.ceil(np.sqrt(np.bincount(index, weights=lengths))).astype(int)
    sample = np.repeat(colours, shares).view(np.uint8).reshape(1, -1, 4)
    settings = {"colors": COLOURS, "kmeans": 1, "dither": Raster.Dither.NONE}
    quantised = Raster.fromarray(sample).convert("RGB").quantize(**settings)
    numbers = np.asarray(quantised)[0, np.cumsum(shares) - 1]
    image = Raster.fromarray(np.repeat(numbers[index], lengths).reshape(pixels.shape[:2]))
    image.putpalette(quantised.getpalette())
    return image
