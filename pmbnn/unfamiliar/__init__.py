"""Pictures that a digit classifier has never seen, by the name an experiment file calls them."""

from typing import Annotated

from pydantic import Field

from pmbnn.specification import registry
from pmbnn.unfamiliar.base import UnfamiliarSpec
from pmbnn.unfamiliar.fashion import Fashion
from pmbnn.unfamiliar.letters import Letters
from pmbnn.unfamiliar.noise import NormalNoise, UniformNoise
from pmbnn.unfamiliar.rotated import Rotated

AnyUnfamiliar = Annotated[
    NormalNoise | UniformNoise | Rotated | Letters | Fashion,
    Field(discriminator="kind"),
]

UNFAMILIAR = registry(NormalNoise, UniformNoise, Rotated, Letters, Fashion)

__all__ = [
    "UNFAMILIAR",
    "AnyUnfamiliar",
    "Fashion",
    "Letters",
    "NormalNoise",
    "Rotated",
    "UnfamiliarSpec",
    "UniformNoise",
]
