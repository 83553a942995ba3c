"""Plugins as they were read: a Python file, or a folder that is a package.

Their text is imported, here and in workers, even where the files have changed since.
"""

import functools
import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType

from pmbnn.core.errors import ConfigError, must

KEPT = "plugins"
"""Folder of a results folder with the plugins of its cells, named by their SHA-256."""


INIT = "__init__.py"
"""File that makes a package of a folder."""


FILE_OR_PACKAGE = f"must be a Python file or a folder with `{INIT}`"


MODULES = "pmbnn_plugin_"
"""Start of the names of modules that plugins are imported as."""


@dataclass(frozen=True)
class Source:
    """A plugin as it was read: workers import this text, here and on other machines.

    Attributes
    ----------
    name
        Its path as the experiment file writes it; that of a package ends in ``/``.
    path
        Where it was read.
    files
        Contents of its files, by their paths within the package; that of a single file by its name.
    """

    name: str
    path: str = field(compare=False)
    files: Mapping[str, bytes] = field(repr=False, hash=False)

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of a file's text, in hexadecimal; of a package, that of the list of its files."""
        if not is_package(self.name):
            (text,) = self.files.values()
            return hashlib.sha256(text).hexdigest()
        digests = {name: hashlib.sha256(text).hexdigest() for name, text in self.files.items()}
        listed = "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))
        return hashlib.sha256(listed.encode()).hexdigest()

    @property
    def kept_files(self) -> dict[str, bytes]:
        """Contents of its copy in a results folder, by paths within that folder."""
        kept = kept_name(self.name, self.digest)
        if is_package(self.name):
            return {f"{kept}{name}": text for name, text in self.files.items()}
        return dict.fromkeys([kept], *self.files.values())

    @property
    def as_written(self) -> dict[str, str]:
        """Its entry in the experiment file of a results folder."""
        return {"file": self.name, "sha256": self.digest}

    def place(self, file: str) -> str:
        """Path where one of its files was read."""
        return os.path.join(self.path, file) if is_package(self.name) else self.path

    def module_file(self, parts: Sequence[str]) -> str | None:
        """The file of a module by its dotted name within the package; None if there is none."""
        if not is_package(self.name):
            return None if parts else next(iter(self.files))
        choices = ["/".join([*parts, INIT]), "/".join(parts) + ".py"]
        return next((file for file in choices if file in self.files), None)


def is_package(name: str) -> bool:
    """Whether the name of a plugin is that of a folder."""
    return name.endswith("/")


def is_plugin_name(name: str) -> bool:
    """Whether the name of a source is that of a plugin, not of an installed module."""
    return name.endswith((".py", "/"))


def as_plugin_name(name: object, place: str) -> str:
    """Name of a plugin of an entry of an experiment file."""
    if not isinstance(name, str) or not name:
        raise must(place, FILE_OR_PACKAGE, name)
    return name if is_plugin_name(name) else f"{name}/"


def kept_name(name: str, digest: str) -> str:
    """Path of a plugin's copy in a results folder."""
    return f"{KEPT}/{digest}" + ("/" if is_package(name) else ".py")


def is_there(name: str, path: Path) -> bool:
    """Whether the plugin of a name lies at a path."""
    return (path / INIT if is_package(name) else path).is_file()


def read_source(name: str, path: Path, user: str) -> Source:
    """The plugin at a path.

    Raises
    ------
    ConfigError
        There is none, or it cannot be read; `user` says in the message what names it.
    """
    if not is_package(name):
        return Source(name, str(path), {Path(name).name: _read(path, user)})
    if path.exists() and not is_there(name, path):
        raise ConfigError(f"{user} {FILE_OR_PACKAGE}, got {path}.")
    _read(path / INIT, user, path)
    files = {
        file.relative_to(path).as_posix(): _read(file, user)
        for file in sorted(path.rglob("*"))
        if file.is_file() and _is_source(file.relative_to(path))
    }
    return Source(name, str(path), files)


def _is_source(file: Path) -> bool:
    """Whether a file of a package was written by its author, not by an editor or Python."""
    return not any(part.startswith(".") or part == "__pycache__" for part in file.parts)


def _read(file: Path, user: str, path: Path | None = None) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{user} names {path or file}: {error.strerror}.") from None


IMPORTED: dict[str, Source] = {}
"""Plugins by the names of the modules that they are imported as."""


class _Loader(SourceLoader):
    """Loads a module of a plugin."""

    def __init__(self, source: Source, file: str) -> None:
        self.source, self.file = source, file

    def get_filename(self, fullname: str) -> str:
        return self.source.place(self.file)

    def get_data(self, path: str | bytes) -> bytes:
        """A file of the plugin, by the path where it was read."""
        texts = {self.source.place(file): text for file, text in self.source.files.items()}
        if path not in texts:
            raise FileNotFoundError(f"The plugin {self.source.name} has no file {path}.")
        return texts[path]


class Finder(MetaPathFinder):
    """Finds modules of plugins in their text as read; the files may have changed."""

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where the module of that name comes from; None if it is not of a plugin."""
        top, *parts = fullname.split(".")
        source = IMPORTED.get(top)
        file = source and source.module_file(parts)
        if not file:
            return None
        spec = spec_from_loader(fullname, _Loader(source, file))
        if spec.submodule_search_locations:
            spec.submodule_search_locations = []
        return spec


def source_of(module: ModuleType) -> Source | None:
    """Plugin of a module, if it has one."""
    loader = getattr(module, "__loader__", None)
    return loader.source if isinstance(loader, _Loader) else None


sys.meta_path.append(Finder())
