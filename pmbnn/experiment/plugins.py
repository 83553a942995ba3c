"""Parts of one's own: registered by a decorator, in a file beside the experiment or installed.

An experiment file names its files under ``plugins``; an installed package names modules under
the entry-point group ``pmbnn.plugins``. What they register can be named like what comes with
the package.
"""

import functools
import hashlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from pmbnn.experiment.cells import REGISTRIES, Cell
from pmbnn.experiment.errors import ConfigError, must
from pmbnn.experiment.yaml_file import read_yaml
from pmbnn.spec import METRICS, Specification

GROUP = "pmbnn.plugins"
"""Entry points of installed packages that register something when they are imported."""

KIND = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class _Origin:
    """Where a registered part comes from, and the SHA-256 of what it is written in."""

    file: str
    digest: str


@dataclass(frozen=True)
class Source:
    """A plugin file as it was read: another machine runs it under the same path."""

    path: str
    text: bytes


_ORIGINS: dict[Any, _Origin] = {}
"""Origin of every class and metric that is not part of the package."""


def register[Part: Callable](part: Part) -> Part:
    """The same class or function, which experiment files now know: a decorator.

    Parameters
    ----------
    part
        A subclass of `Prior`, `Hyperprior`, `Likelihood`, `Network`, `DatasetSpec` or `OodSpec`,
        which an experiment file names by its field ``kind``. Or a metric: a function of a
        prediction and the targets that returns a number, reported under the function's name;
        its first parameter is annotated with the kind of prediction it is of.

    Raises
    ------
    TypeError
        It is neither, or a class without a ``kind``.
    ValueError
        The name is taken.

    Examples
    --------
    >>> @register
    ... class Logistic(Prior):
    ...     kind: Literal["logistic"] = "logistic"
    ...
    ...     def variable(self, name, scale, dims, shared):
    ...         import pymc as pm
    ...
    ...         return pm.Logistic(name, 0.0, scale, dims=dims)  # doctest: +SKIP
    """
    if inspect.isfunction(part):
        kind, choices, what = part.__name__, METRICS.setdefault(_predictive(part), {}), "metric"
    else:
        base = _base(part)
        kind, choices, what = _kind(part), REGISTRIES[base], base.__name__
    taken = choices.get(kind)
    if taken is not None and not _is_newer(part, taken):
        raise ValueError(
            f"{what} `{kind}` is there already: {_place(taken)}; name the one at {_place(part)} "
            "otherwise."
        )
    # An earlier part of that name keeps its origin: there may be cells that are made of it.
    _ORIGINS[part] = _origin(part)
    choices[kind] = part
    return part


def load_plugins(named: object, folder: Path) -> tuple[str, ...]:
    """Absolute paths of plugin files, imported; what is installed is imported as well.

    Parameters
    ----------
    named
        What an experiment file says under ``plugins``: a list of Python files.
    folder
        What their paths are relative to.

    Raises
    ------
    ConfigError
        A file is missing, or raises something; the message names its line.
    """
    if not isinstance(named, Sequence) or isinstance(named, str):
        raise must("plugins", "must be a list of Python files", named)
    paths = []
    for index, name in enumerate(named):
        place = f"plugins[{index}]"
        if not isinstance(name, str) or not name.endswith(".py"):
            raise must(place, "must be a Python file", name)
        path = (folder / name).resolve()
        _import_file(path, place)
        paths.append(str(path))
    _import_installed()
    return tuple(paths)


def read_sources(paths: Sequence[str]) -> tuple[Source, ...]:
    """What plugin files hold, for a machine that does not see them."""
    return tuple(Source(path, Path(path).read_bytes()) for path in paths)


def load_sources(sources: Sequence[Source]) -> None:
    """Import plugin files that may lie on another machine, and what is installed.

    Raises
    ------
    ConfigError
        One raises something.
    """
    for index, source in enumerate(sources):
        _run(Path(source.path), source.text, f"plugins[{index}]")
    _import_installed()


def load_stored_plugins(folder: Path) -> None:
    """Import what the experiment of a results folder names under ``plugins``.

    Raises
    ------
    ConfigError
        A file is missing, or raises something.
    """
    file = folder / "experiment.yaml"
    if file.is_file():
        load_plugins(read_yaml(file).get("plugins", []), folder)


def own_sources(cell: Cell) -> list[str]:
    """Sorted SHA-256 of every source of one's own that decides a cell's result.

    Empty for a cell of nothing but what comes with the package.
    """
    if not _ORIGINS:
        return []
    # The metrics of its predictions are part of the result as well.
    metrics = METRICS.get(cell.likelihood.predictive, {}).values()
    parts = {cls for spec in cell.settings.values() for cls in _classes(spec)}.union(metrics)
    return sorted({_ORIGINS[part].digest for part in parts if part in _ORIGINS})


@functools.cache  # cells share their specifications
def _classes(spec: Specification) -> frozenset[type]:
    """Class of a specification, with those it is derived from, and of all within it."""
    found = set(type(spec).__mro__)
    for name in type(spec).model_fields:
        value = getattr(spec, name)
        for entry in value if isinstance(value, tuple) else (value,):
            if isinstance(entry, Specification):
                found |= _classes(entry)
    return frozenset(found)


def _base(part: object) -> type[Specification]:
    for base in REGISTRIES:
        if isinstance(part, type) and issubclass(part, base) and part is not base:
            return base
    bases = ", ".join(sorted(base.__name__ for base in REGISTRIES))
    raise TypeError(
        f"`register` takes a metric (a function) or a subclass of one of {bases}, got {part!r}."
    )


def _kind(cls: type[Specification]) -> str:
    kind = cls.model_fields["kind"].default
    if not isinstance(kind, str) or not KIND.fullmatch(kind):
        raise TypeError(
            f"`{cls.__name__}` must have a name for experiment files, of small letters, digits and "
            f'`_`: write `kind: Literal["my_name"] = "my_name"` into the class.'
        )
    return kind


def _predictive(metric: Callable) -> str:
    """Key of the kind of prediction that a metric is of: its class in small letters."""
    first, *others = inspect.signature(metric).parameters.values()
    cls = first.annotation
    if cls is inspect.Parameter.empty or len(others) != 1:
        raise TypeError(
            f"The metric `{metric.__name__}` must be a function of a prediction, annotated with "
            "its kind, and the targets: write `(predictive: ClassProbabilities, target)`."
        )
    name = cls.rpartition(".")[2] if isinstance(cls, str) else cls.__name__
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _is_newer(part: Any, taken: Any) -> bool:
    """Whether a part is another version of the one of its name: a file or notebook run again.

    A file may be imported under its own name as well, by the script that sweeps.
    """
    if taken not in _ORIGINS or part.__qualname__ != taken.__qualname__:
        return False
    same_file = _origin(part).file == _ORIGINS[taken].file
    return same_file or part.__module__ == taken.__module__


def _origin(part: Any) -> _Origin:
    module = sys.modules[part.__module__]
    file = getattr(module, "__file__", None)
    if file is not None:
        # That of a plugin may lie on another machine.
        digest = getattr(module, "digest", None)
        return _Origin(file, digest or hashlib.sha256(Path(file).read_bytes()).hexdigest())
    # Typed into a notebook: functions know their source there, classes do not.
    members = [part] if inspect.isfunction(part) else vars(part).values()
    try:
        source = "".join(inspect.getsource(m) for m in members if inspect.isfunction(m))
    except OSError:
        raise ValueError(
            f"The source of `{part.__name__}` is unavailable: write it into a file."
        ) from None
    fields = "" if inspect.isfunction(part) else repr(part.model_fields)
    return _Origin("this session", hashlib.sha256((source + fields).encode()).hexdigest())


def _place(part: Any) -> str:
    """File and line of a class or function."""
    try:
        file, (_, line) = inspect.getsourcefile(part), inspect.getsourcelines(part)
    except (OSError, TypeError):  # typed in
        return f"`{part.__qualname__}` of {part.__module__}"
    return f"{file}, line {line}"


def _import_file(path: Path, place: str) -> None:
    """Run a plugin file, unless it has been run as it is."""
    try:
        source = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"`{place}` names {path}: {error.strerror}.") from None
    _run(path, source, place)


def _run(path: Path, source: bytes, place: str) -> None:
    """Run the text of a plugin, unless it has been run as it is."""
    digest = hashlib.sha256(source).hexdigest()
    name = f"pmbnn_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if getattr(sys.modules.get(name), "digest", None) == digest:
        return
    # Known by a name of its own, so that pickles of its classes are read in other processes.
    module = sys.modules[name] = ModuleType(name)
    module.__file__, module.digest = str(path), digest
    try:
        exec(compile(source, path, "exec"), module.__dict__)
    except Exception as error:
        del sys.modules[name]
        line = _line(error, path)
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"`{place}` ({path}{line}) raised {type(error).__name__}: {reason.rstrip('.')}."
        ) from error


def _line(error: Exception, path: Path) -> str:
    """Where in a file an error came up, if it did there."""
    lines = list(_lines(error, path))
    return f", line {lines[-1]}" if lines else ""


def _lines(error: Exception, path: Path) -> Iterator[int]:
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            yield trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.filename == str(path) and error.lineno:
        yield error.lineno


@functools.cache
def _import_installed() -> None:
    """Import what installed packages name in the entry-point group, once."""
    for entry in entry_points(group=GROUP):
        try:
            entry.load()
        except Exception as error:
            package = f" of package `{entry.dist.name}`" if entry.dist else ""
            raise ConfigError(
                f"The installed plugin `{entry.name}`{package} raised {type(error).__name__}: "
                f"{str(error).rstrip('.')}."
            ) from error
