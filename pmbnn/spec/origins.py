"""Where parts come from that do not come with the package."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pmbnn.spec.base import Specification

SESSION = "this session"
"""Name of the source of classes that were typed into a notebook."""


@dataclass(frozen=True)
class Origin:
    """Where a registered part comes from.

    Attributes
    ----------
    file
        The file, or `SESSION`.
    digest
        SHA-256 of what it is written in.
    name
        The file as an experiment file writes it, the module, or `SESSION`.
    """

    file: str
    digest: str
    name: str


ORIGINS: dict[Any, Origin] = {}
"""Origin of every class and metric that is not part of the package."""


def digests_of(spec: Specification) -> set[str]:
    """SHA-256 of every source of one's own that a specification is made of."""
    return digests_among(classes_of(spec))


def digests_among(parts: Iterable[Any]) -> set[str]:
    """SHA-256 of every source that some of the parts come from."""
    return {ORIGINS[part].digest for part in parts if part in ORIGINS}


@functools.cache  # cells share their specifications
def classes_of(spec: Specification) -> frozenset[type]:
    """Class of a specification, with those it is derived from, and of all within it."""
    found = set(type(spec).__mro__)
    for name in type(spec).model_fields:
        value = getattr(spec, name)
        for entry in value if isinstance(value, tuple) else (value,):
            if isinstance(entry, Specification):
                found |= classes_of(entry)
    return frozenset(found)
