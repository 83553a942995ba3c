"""Capital letters, set in the faces that matplotlib ships and laid out as digits are."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from pmbnn.data.digit_format import as_digit
from pmbnn.data.ood.base import OodSpec

if TYPE_CHECKING:
    import numpy as np

    from pmbnn.data.ood.arrays import Digits, OodImages

FACES = (
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSans-Oblique",
    "DejaVuSans-BoldOblique",
    "DejaVuSansMono",
    "DejaVuSansMono-Bold",
    "DejaVuSansMono-Oblique",
    "DejaVuSansMono-BoldOblique",
    "DejaVuSerif",
    "DejaVuSerif-Bold",
    "DejaVuSerif-Italic",
    "DejaVuSerif-BoldItalic",
    "STIXGeneral",
    "STIXGeneralBol",
    "STIXGeneralItalic",
    "STIXGeneralBolIta",
    "cmb10",
    "cmmi10",
    "cmr10",
    "cmss10",
    "cmsy10",
    "cmti10",
    "cmtt10",
)
"""Every face of matplotlib's that has capitals: upright, slanted, bold, and one calligraphic.
Their strokes are 1 to 5 pixels wide in the end, as those of the digits are."""

FONT_SIZE = 200
"""Size in pixels at which letters are drawn: about seven times what becomes of them, so that
scaling down gives smooth edges."""


class Letters(OodSpec):
    """Capital letters, each in 23 faces, white on black.

    Their foreground is scaled into a box of 20 × 20 pixels and placed by its centre of mass, which
    is how the digits of MNIST were made. ``letters`` says which ones, ``A`` to ``Z`` by default.
    """

    kind: Literal["letters"] = "letters"
    letters: Annotated[str, Field(pattern="^[A-Z]+$")] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

    def load(self, digits: "Digits") -> "OodImages":
        """Letters in the order of their names, face after face; the digits are not needed."""
        import matplotlib
        import numpy as np
        from PIL import ImageFont

        from pmbnn.data.ood.arrays import OodImages

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
