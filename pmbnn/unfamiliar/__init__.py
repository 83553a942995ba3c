"""Pictures that a digit classifier has never seen, by the name an experiment file calls them."""

from pmbnn.specification import registry
from pmbnn.unfamiliar.base import Digits, Pictures, UnfamiliarSpec, digits_of
from pmbnn.unfamiliar.fashion import Fashion
from pmbnn.unfamiliar.letters import Letters
from pmbnn.unfamiliar.noise import NormalNoise, UniformNoise
from pmbnn.unfamiliar.rotated import Rotated

UNFAMILIAR = registry(NormalNoise, UniformNoise, Rotated, Letters, Fashion)

__all__ = [
    "UNFAMILIAR",
    "Digits",
    "Fashion",
    "Letters",
    "NormalNoise",
    "Pictures",
    "Rotated",
    "UnfamiliarSpec",
    "UniformNoise",
    "digits_of",
]
