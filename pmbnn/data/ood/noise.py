"""Images of nothing: every pixel drawn on its own."""

from typing import TYPE_CHECKING, Literal

from pmbnn.data.base import Seed
from pmbnn.data.ood.base import OodSpec, Size

if TYPE_CHECKING:
    import numpy as np

    from pmbnn.data.ood.arrays import Digits, OodImages


class Noise(OodSpec):
    """``size`` images whose pixels are drawn independently."""

    size: Size = 1000
    seed: Seed = 0

    def load(self, digits: "Digits") -> "OodImages":
        """Freshly drawn images; the digits are not needed."""
        import numpy as np

        from pmbnn.data.ood.arrays import PIXELS, OodImages

        x = self._draw(np.random.default_rng(self.seed), (self.size, PIXELS))
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
