"""Microcanonical Langevin ensembles (MILE): chains of MCLMC that keep to modes of their own.

They differ from MCLMC in their settings (`Mile`): where chains start, a larger energy error, and
weights of the members in predictions. Each member has a step size of its own: with one for all,
those in narrow modes of high density are heated until they leave. They are never doubled, and never
said to converge.

References
----------
Sommer et al. (2025), Microcanonical Langevin ensembles: advancing the sampling of Bayesian neural
networks.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pmbnn.inference.samplers.mclmc import MclmcSampler
from pmbnn.inference.samplers.settings import Mile


@dataclass(frozen=True, eq=False)
class MileSampler(MclmcSampler):
    """Chains of MILE as two compiled programs; `build` makes one.

    Attributes
    ----------
    longest_window
        A member that comes to a narrower part of its mode needs shorter steps there.
    """

    name: ClassVar[str] = "mile"
    shares_step_size: ClassVar[bool] = False
    longest_window: ClassVar[int | None] = 500

    settings: Mile

    def of_all(self, not_finite: np.ndarray, excess: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Whether steps are too long, and the error over its target, ``(chain,)`` each."""
        return not_finite, excess

    def length(self, wanted: float, step_size: np.ndarray) -> float:
        """Decoherence length: that of the settings, as variances over members say little."""
        return self.settings.decoherence * float(np.sqrt(self.density.size))


build_sampler = MileSampler.build
