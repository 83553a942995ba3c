"""Images that a digit classifier has never seen, by the name an experiment file calls them."""

import json
from typing import Annotated, Any

from pydantic import BeforeValidator, SerializeAsAny, ValidationInfo

from pmbnn.data.ood.base import OodSpec
from pmbnn.data.ood.fashion import Fashion
from pmbnn.data.ood.letters import Letters
from pmbnn.data.ood.noise import NormalNoise, UniformNoise
from pmbnn.data.ood.rotated import Rotated
from pmbnn.spec import named, registry

OOD: dict[str, type[OodSpec]] = registry(NormalNoise, UniformNoise, Rotated, Letters, Fashion)


def _of_its_kind(value: Any, info: ValidationInfo) -> Any:
    """A name or a mapping as the specification that its kind names; anything else as it is."""
    if info.mode == "json" and isinstance(value, dict) and value.get("kind") in OOD:
        return OOD[value["kind"]].model_validate_json(json.dumps(value))  # whose lists are tuples
    return named(value, OOD, "ood", OodSpec) if isinstance(value, str | dict) else value


AnyOod = Annotated[SerializeAsAny[OodSpec], BeforeValidator(_of_its_kind)]
"""Out-of-distribution images of any registered kind, also one that is registered later."""

__all__ = [
    "OOD",
    "AnyOod",
    "Fashion",
    "Letters",
    "NormalNoise",
    "Rotated",
    "OodSpec",
    "UniformNoise",
]
