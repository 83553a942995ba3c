"""Draw seven images for the out-of-domain figure: four digits and three that are none.

``python experiments/draw_images.py FOLDER`` writes 2, 3, 7 and 9, a house, a face and a
scribble as PNG files: foreground of several colours on light, unevenly lit paper, with the tremor
of a hand and the noise of a camera. Equal seeds give equal images.
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.ndimage import gaussian_filter, map_coordinates

SIDE = 360
"""Height and width of an image in pixels."""

# Every stroke is a chain of cubic Bézier curves in a square of side 1 whose rows run downwards:
# a starting point, then two control points and an end point for each curve.
CIRCLE = 0.5523
"""Length of a control arm, in radii, with which four curves make a circle."""


def circle(x: float, y: float, r: float) -> list[tuple[float, float]]:
    """A stroke once around, and a little further than a ruler would."""
    k = CIRCLE * r
    return [
        (x + 0.2 * r, y - r),
        *((x - k, y - 1.05 * r), (x - r, y - k), (x - r, y)),
        *((x - r, y + k), (x - k, y + r), (x, y + r)),
        *((x + k, y + r), (x + r, y + k), (x + r, y)),
        *((x + r, y - k), (x + k, y - 0.95 * r), (x - 0.15 * r, y - 0.93 * r)),
    ]


def line(*points: tuple[float, float]) -> list[tuple[float, float]]:
    """A stroke straight from point to point."""
    stroke = [points[0]]
    for a, b in zip(points, points[1:], strict=False):
        third = ((b[0] - a[0]) / 3, (b[1] - a[1]) / 3)
        stroke += [(a[0] + third[0], a[1] + third[1]), (b[0] - third[0], b[1] - third[1]), b]
    return stroke


DRAWINGS = {
    "digit_2": [
        [(0.33, 0.34), (0.34, 0.19), (0.63, 0.13), (0.66, 0.31)]
        + [(0.68, 0.47), (0.46, 0.60), (0.31, 0.77)]
        + [(0.42, 0.70), (0.52, 0.80), (0.71, 0.73)],
    ],
    "digit_3": [
        [(0.34, 0.26), (0.42, 0.15), (0.67, 0.16), (0.64, 0.32)]
        + [(0.62, 0.42), (0.53, 0.46), (0.45, 0.47)]
        + [(0.60, 0.46), (0.70, 0.55), (0.66, 0.68)]
        + [(0.61, 0.84), (0.40, 0.83), (0.32, 0.72)],
    ],
    "digit_7": [
        [(0.31, 0.26), (0.42, 0.23), (0.55, 0.25), (0.69, 0.22)]
        + [(0.62, 0.40), (0.52, 0.58), (0.47, 0.80)],
    ],
    "digit_9": [
        [(0.62, 0.27), (0.54, 0.16), (0.36, 0.22), (0.36, 0.36)]
        + [(0.36, 0.52), (0.57, 0.50), (0.62, 0.30)]
        + [(0.63, 0.47), (0.60, 0.64), (0.55, 0.82)],
    ],
    "house": [
        line((0.30, 0.80), (0.31, 0.46), (0.52, 0.22), (0.72, 0.47), (0.71, 0.79), (0.29, 0.80)),
        line((0.28, 0.47), (0.75, 0.46)),
        line((0.45, 0.79), (0.46, 0.60), (0.57, 0.60), (0.57, 0.80)),
    ],
    "face": [
        circle(0.5, 0.5, 0.30),
        circle(0.40, 0.43, 0.025),
        circle(0.60, 0.42, 0.025),
        [(0.36, 0.59), (0.42, 0.72), (0.58, 0.72), (0.65, 0.58)],
    ],
    "scribble": [
        [(0.20, 0.62), (0.26, 0.30), (0.38, 0.24), (0.36, 0.52)]
        + [(0.34, 0.76), (0.28, 0.70), (0.40, 0.50)]
        + [(0.48, 0.34), (0.54, 0.36), (0.52, 0.54)]
        + [(0.50, 0.74), (0.46, 0.68), (0.57, 0.50)]
        + [(0.66, 0.34), (0.70, 0.40), (0.66, 0.55)]
        + [(0.62, 0.72), (0.70, 0.72), (0.82, 0.44)],
    ],
}

INKS = ((24, 44, 120), (30, 30, 36), (150, 28, 40), (20, 92, 60))
"""Blue, black, red and green, in RGB."""


def pen_path(stroke: list[tuple[float, float]], rng: np.random.Generator) -> np.ndarray:
    """Points along a stroke with a trembling hand, ``(point, 2)``, in pixels."""
    control = np.array(stroke) + rng.normal(scale=0.008, size=(len(stroke), 2))
    t = np.linspace(0, 1, 240)[:, None]
    weights = np.hstack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3])
    curves = [weights @ control[i : i + 4] for i in range(0, len(control) - 1, 3)]
    path = np.concatenate(curves)
    tremor = gaussian_filter(rng.normal(size=path.shape), (25, 0)) * 0.02
    return (path + tremor) * SIDE


def draw_foreground(name: str, rng: np.random.Generator) -> np.ndarray:
    """How much foreground lies on each pixel, 0 to 1, ``(row, column)``."""
    foreground = np.zeros((SIDE, SIDE))
    row, column = np.indices(foreground.shape)
    for stroke in DRAWINGS[name]:
        path = pen_path(stroke, rng)
        pressure = 1 + 2.5 * gaussian_filter(rng.normal(size=len(path)), 40)
        radius = (0.030 if name.startswith("digit") else 0.020) * SIDE * pressure.clip(0.6, 1.4)
        for (x, y), r in zip(path[::2], radius[::2], strict=True):
            low, high = (int(max(0, c)) for c in (y - r - 2, x - r - 2))
            part = np.s_[low : int(y + r + 3), high : int(x + r + 3)]
            distance = np.hypot(row[part] - y, column[part] - x)
            foreground[part] = np.maximum(foreground[part], (r - distance + 0.5).clip(0, 1))
    # A felt-tip's foreground is a little uneven.
    return foreground * (0.86 + 0.5 * gaussian_filter(rng.normal(size=foreground.shape), 3)).clip(
        0.7, 1
    )


def photograph(foreground: np.ndarray, colour: tuple[int, int, int], rng: np.random.Generator):
    """A photograph of the drawing, uint8, ``(row, column, 3)``."""
    paper = np.array([238, 232, 216]) + rng.normal(scale=4, size=3)
    image = paper + foreground[..., None] * (np.array(colour) - paper)
    row, column = np.indices(foreground.shape) / SIDE - 0.5
    tilt = rng.uniform(-0.12, 0.12, size=2)
    light = 0.94 + tilt[0] * row + tilt[1] * column - 0.10 * (row**2 + column**2)
    fibres = gaussian_filter(rng.normal(size=foreground.shape), 1.5) * 6
    image = image * light[..., None] + fibres[..., None]
    image = turned(image, angle=rng.uniform(-4, 4))
    image = gaussian_filter(image, (0.8, 0.8, 0)) + rng.normal(scale=4, size=image.shape)
    return image.clip(0, 255).round().astype(np.uint8)


def turned(image: np.ndarray, angle: float) -> np.ndarray:
    """The image as a camera sees it that is not held quite straight."""
    row, column = np.indices(image.shape[:2]) - SIDE / 2
    a = np.deg2rad(angle)
    at = [np.cos(a) * row - np.sin(a) * column, np.sin(a) * row + np.cos(a) * column]
    at = np.stack(at) + SIDE / 2
    channels = [map_coordinates(c, at, order=1, mode="nearest") for c in np.moveaxis(image, 2, 0)]
    return np.stack(channels, axis=2)


def draw_images(folder: Path, random_seed: int = 0) -> list[Path]:
    """Paths of the seven images, written into a folder that is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number, name in enumerate(DRAWINGS):
        rng = np.random.default_rng([random_seed, number])
        image = photograph(draw_foreground(name, rng), INKS[number % len(INKS)], rng)
        path = folder / f"{number + 1}_{name}.png"
        Image.fromarray(image).save(path)
        written.append(path)
    return written


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder for the PNG files")
    parser.add_argument("--seed", type=int, default=0, help="of the hand, the light and the noise")
    arguments = parser.parse_args()
    for path in draw_images(arguments.folder, arguments.seed):
        print(path)
