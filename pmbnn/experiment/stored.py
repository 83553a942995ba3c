"""Cells as their results keep them: specifications made of stored settings, without any plugin."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic import ConfigDict, ValidationError

from pmbnn.experiment.cells import SOURCES, Cell
from pmbnn.experiment.plugins import digests_of
from pmbnn.spec import Registry, Specification

NO_PLUGINS: frozenset[str] = frozenset()


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
    """Cell of stored settings.

    Parameters
    ----------
    sweep
        Name of its sweep.
    settings
        Specifications by section, as a record has them.
    plugins
        SHA-256 of the sources of the user that a section is made of, by the section. Unless the
        classes registered in this process are of exactly these sources, the section is `Unknown`.
    """
    parts = {section: _part(section, settings, plugins) for section in SOURCES}
    return Cell(sweep, **parts)


def _part(
    section: str,
    settings: Mapping[str, Mapping[str, Any]],
    plugins: Mapping[str, frozenset[str]],
) -> Specification:
    text, digests = json.dumps(settings.get(section, {})), plugins.get(section, NO_PLUGINS)
    # Cells share their specifications. What is registered may change, the package does not.
    return _specification(section, text, digests) if digests else _of_package(section, text)


@lru_cache(maxsize=1024)
def _of_package(section: str, text: str) -> Specification:
    return _specification(section, text, NO_PLUGINS)


def _specification(section: str, text: str, digests: frozenset[str]) -> Specification:
    source = SOURCES[section]
    try:
        cls = source.class_of(json.loads(text)) if isinstance(source, Registry) else source
        spec = cls.model_validate_json(text)
    except (KeyError, TypeError, ValidationError):
        return Unknown.model_validate_json(text)
    return spec if digests_of(spec) == digests else Unknown.model_validate_json(text)
