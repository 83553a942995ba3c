"""Out-of-distribution images for classifiers of digits, by their names in experiment files."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationInfo

from pmbnn.core.display import Summarised
from pmbnn.core.spec import Specification, named, registry
from pmbnn.data.base import SIDE, DataError, Seed, local_folder, located, read_idx_folder
from pmbnn.data.images import ORIGINAL_ROWS

if TYPE_CHECKING:
    import numpy as np

    from pmbnn.data.arrays import Dataset

Size = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, repr=False)
class Digits(Summarised):
    """Test digits that a kind may use.

    ``x`` holds raw pixels in [0, 1], ``(observation, 784)``; ``labels`` names each digit.
    """

    x: "np.ndarray"
    labels: tuple[str, ...]


def no_digits() -> Digits:
    """No digits, for kinds that use none."""
    import numpy as np

    return Digits(np.empty((0, SIDE * SIDE), np.float32), ())


def raw_test_digits(dataset: "Dataset") -> Digits:
    """Raw test digits of a data set of images, standardisation undone."""
    pixels = dataset.standardisation.undo(dataset.x_test).clip(0, 1)
    labels = tuple(dataset.classes[label] for label in dataset.y_test)
    return Digits(pixels.astype("float32"), labels)


@dataclass(frozen=True, repr=False)
class OodImages(Summarised):
    """Images of another distribution than a classifier's training rows.

    Attributes
    ----------
    name
        The kind, with the setting that distinguishes it from others (``rotated_90``).
    x
        Raw pixels, float32, ``(observation, 784)``; 0 is black paper, 1 is white foreground, and
        only noise goes beyond.
    labels
        Name of the object in each image; empty for noise.
    source
        Where the images came from.
    """

    name: str
    x: "np.ndarray"
    labels: tuple[str, ...]
    source: str

    def __post_init__(self) -> None:
        """Raise DataError unless there is a label an image."""
        if len(self.labels) != len(self.x):
            rule = f"must have as many labels as images ({len(self.x)}), got {len(self.labels)}"
            raise DataError(f"{self.name} {rule}.")

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.x)


class OodSpec(Specification):
    """A kind of out-of-distribution images of an experiment file."""

    kind: str

    @property
    def name(self) -> str:
        """The kind, with the setting that distinguishes it from others."""
        return self.kind

    def load(self, digits: Digits) -> OodImages:
        """Make or load the images, which may be made of the test digits."""
        raise NotImplementedError


class Noise(OodSpec):
    """Images whose pixels are drawn independently.

    Parameters
    ----------
    size
        Number of images.
    seed
        Seed of the pixels.
    """

    size: Size = 1000
    seed: Seed = 0

    def load(self, digits: Digits) -> OodImages:
        """Random images; the digits are not used."""
        import numpy as np

        x = self._draw(np.random.default_rng(self.seed), (self.size, SIDE * SIDE))
        return OodImages(self.name, x, ("",) * self.size, f"drawn from seed {self.seed}")

    def _draw(self, rng: "np.random.Generator", shape: tuple[int, int]) -> "np.ndarray":
        raise NotImplementedError


class NormalNoise(Noise):
    """Pixels drawn from the standard normal distribution: many are outside [0, 1].

    The scale is that of pixels in [0, 1], before a network standardises them.
    """

    kind: Literal["normal_noise"] = "normal_noise"

    def _draw(self, rng, shape):
        return rng.standard_normal(shape, dtype="float32")


class UniformNoise(Noise):
    """Pixels drawn evenly from [0, 1]."""

    kind: Literal["uniform_noise"] = "uniform_noise"

    def _draw(self, rng, shape):
        return rng.random(shape, dtype="float32")


class Rotated(OodSpec):
    """Test digits, turned anticlockwise about the middle of the image.

    Pixels beyond the border are lost, and new ones are black.

    Parameters
    ----------
    angle
        Angle in degrees.
    size
        Number of test digits, the first ones. By default, all.
    """

    kind: Literal["rotated"] = "rotated"
    angle: Annotated[float, Field(ge=-360, le=360)] = 90.0
    size: Size | None = None

    @property
    def name(self) -> str:
        """The kind and the angle."""
        return f"{self.kind}_{self.angle:g}"

    def load(self, digits: Digits) -> OodImages:
        """Turned digits, labelled by what they are.

        Raises
        ------
        DataError
            There are fewer digits than `size`.
        """
        import numpy as np
        from scipy.ndimage import rotate

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


FACES = (
    "DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique",
    "DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique",
    "DejaVuSansMono-BoldOblique", "DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic",
    "DejaVuSerif-BoldItalic", "STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic",
    "STIXGeneralBolIta", "cmb10", "cmmi10", "cmr10", "cmss10", "cmsy10", "cmti10", "cmtt10",
)  # fmt: skip
"""Every face of matplotlib that has capitals: upright, slanted, bold, and one calligraphic. Their
strokes become 1 to 5 pixels wide, like those of the digits."""

FONT_SIZE = 200
"""Size in pixels at which letters are drawn: about seven times their final size, so that scaling
down gives smooth edges."""


class Letters(OodSpec):
    """Capital letters, each in 23 faces, white on black.

    Their foreground is scaled into a box of 20 × 20 pixels and placed by its centre of mass, as
    the digits of MNIST were.

    Parameters
    ----------
    letters
        The letters, as one word of capitals.
    """

    kind: Literal["letters"] = "letters"
    letters: Annotated[str, Field(pattern="^[A-Z]+$")] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

    def load(self, digits: Digits) -> OodImages:
        """Letters in alphabetical order, face after face; the digits are not used."""
        import matplotlib
        import numpy as np
        from PIL import ImageFont

        from pmbnn.data.digits import as_digit

        fonts = Path(matplotlib.get_data_path(), "fonts", "ttf")
        images = []
        for face in FACES:
            font = ImageFont.truetype(str(fonts / f"{face}.ttf"), FONT_SIZE)
            images += [as_digit(_drawn(letter, font)).ravel() for letter in self.letters]
        return OodImages(
            name=self.name,
            x=np.stack(images),
            labels=tuple(self.letters) * len(FACES),
            source=f"matplotlib's fonts, {len(FACES)} faces",
        )


def _drawn(letter: str, font) -> "np.ndarray":
    """Foreground of one letter, 0 to 1, with room on every side."""
    import numpy as np
    from PIL import Image, ImageDraw

    image = Image.new("L", (3 * FONT_SIZE, 3 * FONT_SIZE))
    ImageDraw.Draw(image).text((FONT_SIZE, FONT_SIZE), letter, font=font, fill=255)
    return np.asarray(image, np.float32) / 255


CLOTHES = (
    "T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag",
    "ankle boot",
)  # fmt: skip
"""Names of the labels 0 to 9 of Fashion-MNIST."""

FASHION_CHECKSUMS = {
    "t10k-images": "8181f5470baa50b63fa0f6fddb340f0a",
    "t10k-labels": "15d484375f8d13e6eb1aabb0c3f46965",
}
"""MD5 of each unpacked original file, in hexadecimal."""


class Fashion(OodSpec):
    """The 10,000 test images of Fashion-MNIST, or some of them in equal parts of each class.

    They are read from IDX files in the folder ``fashion-mnist`` within the one that the
    environment variable ``PMBNN_DATA`` names, or else downloaded once from OpenML and kept in the
    user's cache.

    Parameters
    ----------
    size
        Number of images. By default, all 10,000.
    seed
        Seed by which they are chosen, if ``size`` is given.

    References
    ----------
    Xiao, Rasul and Vollgraf (2017), Fashion-MNIST: a novel image dataset for benchmarking
    machine learning algorithms.
    """

    kind: Literal["fashion"] = "fashion"
    size: Annotated[int, Field(ge=1, le=ORIGINAL_ROWS[1])] | None = None
    seed: Seed = 0

    def load(self, digits: Digits) -> OodImages:
        """Images of clothes; the digits are not used.

        Raises
        ------
        DataError
            The files are missing or damaged, and OpenML cannot be reached.
        """
        import numpy as np

        from pmbnn.data.arrays import stratified_order

        x, y, source = _read_fashion()
        rows = slice(None) if self.size is None else stratified_order(y, self.seed)[: self.size]
        labels = tuple(CLOTHES[label] for label in y[rows])
        return OodImages(self.name, (x[rows] / 255.0).astype(np.float32), labels, source)


def _read_fashion() -> "tuple[np.ndarray, np.ndarray, str]":
    """Pixels and labels, uint8, and their source."""
    # In a folder of their own, because the files have the names of those of MNIST.
    name = "fashion-mnist"
    data = local_folder()
    if folder := located(name, *([data / name] if data else [])):
        return *read_idx_folder(folder, FASHION_CHECKSUMS, "Fashion-MNIST"), "local"
    from pmbnn.data.openml import OpenMLSource, load_images

    remedy = f"set PMBNN_DATA to a folder with its IDX files in {name}/"
    x, y = load_images(OpenMLSource("Fashion-MNIST", 1, "Fashion-MNIST", remedy))
    test = slice(ORIGINAL_ROWS[0], None)
    return x[test], y[test], "openml"


OOD: dict[str, type[OodSpec]] = registry(NormalNoise, UniformNoise, Rotated, Letters, Fashion)


def _of_its_kind(value: Any, info: ValidationInfo) -> Any:
    """The specification of a name or a mapping; anything else unchanged."""
    if info.mode == "json" and isinstance(value, dict) and value.get("kind") in OOD:
        return OOD[value["kind"]].model_validate_json(json.dumps(value))  # whose lists are tuples
    return named(value, OOD, "ood", OodSpec) if isinstance(value, str | dict) else value


AnyOod = Annotated[SerializeAsAny[OodSpec], BeforeValidator(_of_its_kind)]
"""Out-of-distribution images of any registered kind, also of one that is registered later."""

__all__ = [
    "OOD",
    "AnyOod",
    "Fashion",
    "Letters",
    "NormalNoise",
    "OodSpec",
    "Rotated",
    "UniformNoise",
]
