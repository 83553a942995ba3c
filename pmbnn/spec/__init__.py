"""Specifications of the named parts of an experiment file, and errors of settings.

The same classes read a file and take arguments from Python: `base` has them and turns arguments
into plain values; `errors` has the wording of messages.
"""

from pmbnn.spec.base import (
    METRICS,
    Positive,
    Registry,
    Specification,
    Tune,
    added,
    are_kinds,
    named,
    only_part,
    plain,
    registry,
    renamed_values,
    specification_classes,
    union_parts,
    validated,
    with_new_names,
)

__all__ = [
    "METRICS",
    "Positive",
    "Registry",
    "Specification",
    "Tune",
    "added",
    "are_kinds",
    "named",
    "only_part",
    "plain",
    "registry",
    "renamed_values",
    "specification_classes",
    "union_parts",
    "validated",
    "with_new_names",
]
