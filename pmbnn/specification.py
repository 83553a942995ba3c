"""What every named part of an experiment file has in common."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Specification(BaseModel):
    """Frozen, strictly typed description of one part of an experiment.

    A specification holds settings only. What it needs of PyMC, JAX or scikit-learn is
    imported inside its methods, so that reading and planning an experiment stays quick.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True
    )

    expands: ClassVar[bool] = True
    """Whether a list in the place of one of its scalars is an axis of the grid."""


def registry[S: Specification](*classes: type[S]) -> dict[str, type[S]]:
    """Specification classes by the name an experiment file calls them (their ``kind``)."""
    return {cls.model_fields["kind"].default: cls for cls in classes}
