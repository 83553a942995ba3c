"""Origins of user-defined parts."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pmbnn.spec.base import Specification

SESSION = "this session"
"""Name of the source of classes that were typed into a notebook."""


@dataclass(frozen=True)
class Origin:
    """Origin of a registered part.

    Attributes
    ----------
    file
        The file, or `SESSION`.
    digest
        SHA-256 of the source.
    name
        The file as an experiment file writes it, the module, or `SESSION`.
    """

    file: str
    digest: str
    name: str


ORIGINS: dict[Any, Origin] = {}
"""Origins of classes and metrics that are not part of the package."""


def digests_of(spec: Specification) -> set[str]:
    """SHA-256 of every user-defined source of a specification and its parts."""
    return digests_among(classes_of(spec))


def digests_among(parts: Iterable[Any]) -> set[str]:
    """SHA-256 of every user-defined source of the parts."""
    return {ORIGINS[part].digest for part in parts if part in ORIGINS}


@functools.cache  # cells share their specifications
def classes_of(spec: Specification) -> frozenset[type]:
    """Class of a specification and its base classes, and those of all specifications in it."""
    classes = set(type(spec).__mro__)
    for name in type(spec).model_fields:
        value = getattr(spec, name)
        for entry in value if isinstance(value, tuple) else (value,):
            if isinstance(entry, Specification):
                classes |= classes_of(entry)
    return frozenset(classes)
