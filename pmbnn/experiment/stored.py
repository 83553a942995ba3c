"""Cells as their results keep them: specifications made of stored settings, without any plugin."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic import ConfigDict, ValidationError

from pmbnn.experiment.cells import SOURCES, Cell
from pmbnn.spec import Registry, Specification
from pmbnn.spec.origins import digests_of


class Unknown(Specification):
    """Part of a stored cell whose class is not available, with its settings as attributes.

    Its class is that of a plugin that this process has not run, or of another version of this
    package. It can be listed, named and grouped, and nothing else.
    """

    model_config = ConfigDict(extra="allow")

    def __hash__(self) -> int:
        return hash(json.dumps(self.model_dump(mode="json"), sort_keys=True))


def stored_cell(
    sweep: str, settings: Mapping[str, Mapping[str, Any]], plugins: Mapping[str, frozenset[str]]
) -> Cell:
    """Cell of stored settings, to be listed, named and grouped.

    Parameters
    ----------
    sweep
        Name of its sweep.
    settings
        Specifications by section, as a record has them.
    plugins
        SHA-256 of the sources of the user that a section is made of, by the section.
    """
    texts = {section: json.dumps(settings.get(section, {})) for section in SOURCES}
    parts = {
        # What is registered may change, the package does not.
        section: stored_specification(section, text, plugins[section])
        if section in plugins
        else _of_package(section, text)
        for section, text in texts.items()
    }
    return Cell(sweep, **parts)


@lru_cache(maxsize=1024)  # cells share their specifications
def _of_package(section: str, text: str) -> Specification:
    return stored_specification(section, text)


def stored_specification(
    section: str, text: str, plugins: frozenset[str] = frozenset()
) -> Specification:
    """Specification of a section's stored JSON.

    It is `Unknown` unless the classes registered in this process are of exactly the sources whose
    SHA-256 are given.
    """
    source = SOURCES[section]
    try:
        cls = source.class_of(json.loads(text)) if isinstance(source, Registry) else source
        spec = cls.model_validate_json(text)
    except (KeyError, TypeError, ValidationError):
        return Unknown.model_validate_json(text)
    return spec if digests_of(spec) == plugins else Unknown.model_validate_json(text)
