"""User-defined parts, registered by a decorator in a file beside the experiment or in a package.

An experiment file names files and packages under ``plugins``; an installed package names modules
under the entry-point group ``pmbnn.plugins``. The classes that they register can be named like what
comes with the package; figures and tables that they register are made of every results folder.
"""

import functools
import hashlib
import importlib
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from pmbnn.core.errors import ConfigError, check_keys, must
from pmbnn.core.spec import (
    METRICS,
    ORIGINS,
    SESSION,
    Origin,
    Specification,
    classes_of,
    digests_among,
    digests_of,
)
from pmbnn.experiment.cells import REGISTRIES, Cell
from pmbnn.experiment.plugin_files import (
    IMPORTED,
    MODULES,
    Source,
    as_plugin_name,
    is_plugin_name,
    is_there,
    kept_name,
    read_source,
    source_of,
)

GROUP = "pmbnn.plugins"
"""Entry points of installed packages that register something when they are imported."""

KIND = re.compile(r"[a-z][a-z0-9_]*")

SHA256 = re.compile(r"[0-9a-f]{64}")

METRIC = "metric"
"""Stands beside the sections of a cell that are made of a source where a metric is."""

FIGURE, TABLE = "figure", "table"

OUTPUTS: dict[str, dict[str, Callable[[Any], Any]]] = {FIGURE: {}, TABLE: {}}
"""Registered functions that draw figures and make tables of an experiment's results, by name."""

RETURNS = {"Figure": FIGURE, "DataFrame": TABLE}
"""What a function makes, by the class that it is annotated to return."""

TAKEN = {
    FIGURE: frozenset(
        {
            *("accuracy", "classes", "confident_mistakes", "curves", "design", "examples"),
            *("gallery", "grid", "last_layer", "least_confident", "letters", "map", "maps"),
            *("network", "ood", "ood_examples", "pit", "points", "posterior"),
            *("predicted_observed", "reliability", "repair_ladder", "risk_coverage", "samples"),
            *("scales", "training", "uncertainty", "uncertainty_parts", "weights"),
        }
    ),
    TABLE: frozenset(
        {
            *("agreement", "baselines", "calibration", "claims", "compare"),
            *("compare_over_data", "compare_rows"),
            *("evidence", "ladder", "metrics", "ood", "paired_baselines", "prior", "regret"),
            *("sensitivity", "summary", "times"),
        }
    ),
    METRIC: frozenset(
        {
            *("accuracy", "balanced_accuracy", "brier_score", "crps", "expected_calibration_error"),
            *("normal_nll", "nll", "rmse", "best_accuracy", "excess_error", "excess_nll"),
            *("lowest_nll", "member_nll", "nll_mcse", "validation_nll"),
            *("elbo", "elbo_to_gain", "elpd_loo", "elpd_loo_se", "kl", "log_evidence"),
            *("log_evidence_mcse", "log_likelihood", "log_likelihood_mcse", "loo_pareto_k"),
            *("distance_to_optimum", "distance_to_optimum_error", "pareto_k", "rhat"),
            *("learning_rate", "scale", "learning_rate_at_grid_end", "scale_at_grid_end"),
            *("cells", "dataset", "device", "failed", "hyperprior", "inference", "likelihood"),
            *("name", "network", "not_converged", "overlap", "prior", "reason", "seconds", "seed"),
            *("status", "sweep"),
        }
    ),
}
"""Names of the figures and tables that come with the package, and of results and columns of cells
that a metric would share."""


_SOURCES: dict[str, Source] = {}
"""Plugins that were run in this process, by their SHA-256."""


_TRUSTED: ContextVar[bool] = ContextVar("whether kept copies of plugins may be run", default=False)


@contextmanager
def trusting(trust: bool = True) -> Iterator[None]:
    """Allow the copies of plugins that results folders keep to be run within the block."""
    token = _TRUSTED.set(trust or _TRUSTED.get())
    try:
        yield
    finally:
        _TRUSTED.reset(token)


def register[Part: Callable](part: Part) -> Part:
    """Decorator that makes a class or function available in experiment files; returns it unchanged.

    Parameters
    ----------
    part
        A subclass of `Prior`, `Hyperprior`, `Likelihood`, `Network`, `DatasetSpec` or `OodSpec`,
        which an experiment file names by its field ``kind``. Or a metric: a function of a
        prediction and the targets that returns a number, reported under the function's name;
        its first parameter is annotated with its kind of prediction. Or a figure or a
        table: a function of `ExperimentResults` that is annotated to return a matplotlib ``Figure``
        (a dictionary of several, or None where there is nothing to draw) or a pandas ``DataFrame``.
        Every sweep makes both under the function's name, ``figures/<name>.png`` (with a key of the
        dictionary before the name) and ``<name>.csv``; no cell's identity depends on them.

    Raises
    ------
    TypeError
        It is none of these, or a class without a ``kind``.
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

    >>> @register
    ... def slowest(results: ExperimentResults) -> pd.DataFrame:
    ...     return results.metrics.nlargest(10, "seconds")  # doctest: +SKIP
    """
    kind, choices, what = _registry(part)
    renamed = f"name the one at {part_place(part)} otherwise."
    if kind in TAKEN.get(what, ()):
        raise ValueError(f"A {what} `{kind}` comes with the package: {renamed}")
    taken = choices.get(kind)
    if taken is not None and not _is_newer(part, taken):
        raise ValueError(f"{what} `{kind}` is there already: {part_place(taken)}; {renamed}")
    # An earlier part of that name keeps its origin: there may be cells that are made of it.
    ORIGINS[part] = _origin(part)
    choices[kind] = part
    return part


def load_plugins(
    named: object, folders: Sequence[Path], kept: Path | None = None
) -> tuple[Source, ...]:
    """Read and run plugins; import installed ones as well.

    Parameters
    ----------
    named
        Entry ``plugins`` of an experiment file: a list of Python files and of folders with
        an ``__init__.py``. That of a results folder has their SHA-256 too,
        ``{file: my_priors.py, sha256: …}``.
    folders
        Folders that their paths are relative to; the first that has a file counts.
    kept
        Results folder that may keep a copy of a plugin that has changed. It is run only within
        `trusting`.

    Raises
    ------
    ConfigError
        A plugin is missing, has changed, or raises something; the message names its line.
    """
    if not isinstance(named, Sequence) or isinstance(named, str):
        raise must("plugins", "must be a list of Python files", named)
    sources: list[Source] = []
    for index, entry in enumerate(named):
        place = f"plugins[{index}]"
        name, digest = _entry(entry, place)
        if digest is None:
            paths = _paths(name, folders)
            path = next((path for path in paths if path.exists()), paths[0])
            sources.append(read_source(name, path, f"`{place}`"))
        else:
            sources.append(stored_source(name, digest, f"`{place}`", folders, kept))
    load_sources(sources)
    return tuple(sources)


def load_sources(sources: Iterable[Source]) -> None:
    """Run plugins that were read elsewhere, and import what is installed.

    Raises
    ------
    ConfigError
        One raises something.
    """
    digests: list[str] = []
    for source in sources:
        _run(source, f"`plugins[{len(digests)}]`", digests)
        digests.append(source.digest)
    _import_installed()


def stored_source(
    name: str, digest: str, user: str, folders: Sequence[Path], kept: Path | None
) -> Source:
    """A plugin as it was when cells were fitted with it.

    It is the one that was run in this process, the plugin if it has not changed, or the copy in a
    results folder where that is trusted (`trusting`).

    Parameters
    ----------
    name, digest
        Path of the plugin as the experiment file wrote it, and its SHA-256.
    user
        What needs it, for the message.
    folders, kept
        As those of `load_plugins`.

    Raises
    ------
    ConfigError
        There is none, or only a copy that is not trusted.
    """
    if digest in _SOURCES:
        return _SOURCES[digest]
    paths = [path for path in _paths(name, folders) if is_there(name, path)]
    for path in paths:
        source = read_source(name, path, user)
        if source.digest == digest:
            return source
    changed = f"has changed since ({paths[0]})" if paths else "is not there"
    problem = (
        f"{user} needs the plugin {name} as it was when cells were fitted with it, and it {changed}"
    )
    copy = None if kept is None else kept / kept_name(name, digest)
    if copy is None or not is_there(name, copy):
        raise ConfigError(
            f"{problem}: put it back, or fit again with the plugin as it is now. The "
            "results folder keeps no copy."
        )
    if not _TRUSTED.get():
        raise ConfigError(
            f"{problem}: put it back, or run the copy that the results folder keeps "
            f"({copy}), if you trust who wrote it, with `--trust-plugins` (in Python "
            "`trust_plugins=True`)."
        )
    source = read_source(name, copy, user)
    if source.digest != digest:
        raise ConfigError(
            f"{problem}; the copy that the results folder keeps ({copy}) is damaged: "
            "put the plugin back, or fit again."
        )
    return source


@contextmanager
def stored_parts(
    plugins: Mapping[str, str], user: str, folders: Sequence[Path], kept: Path
) -> Iterator[None]:
    """Register, of user-defined parts, those of some sources and no others, within the block.

    Parameters
    ----------
    plugins
        Names of the sources by their SHA-256.
    user
        What needs them, for messages.
    folders, kept
        As those of `load_plugins`.

    Raises
    ------
    ConfigError
        One is not there as it was.
    """
    _import_installed()
    for index, (digest, name) in enumerate(plugins.items()):
        if _parts(digest, plugins):
            continue
        if not is_plugin_name(name):
            what = "a class typed into a notebook" if name == SESSION else f"`{name}`"
            raise ConfigError(
                f"{user} needs {what} as it was at the fit, which is not registered here, or has "
                "changed since: register it as it was, or fit again."
            )
        source = stored_source(name, digest, user, folders, kept)
        before = [*plugins][:index]
        with _only(before):
            _run(source, f"The plugin {name}", before)
    with _only(plugins):
        yield


@contextmanager
def experiment_parts(sources: Sequence[Source]) -> Iterator[None]:
    """Register, of plugins, those of an experiment and no others, within the block."""
    load_sources(sources)
    installed = {o.digest for o in ORIGINS.values() if not is_plugin_name(o.name)}
    with _only([*installed, *(source.digest for source in sources)]):
        yield


@contextmanager
def _only(digests: Collection[str]) -> Iterator[None]:
    """Keep only parts of the package, and of sources of these digests, in the registries."""
    before = {id(choices): dict(choices) for choices in _registries()}
    for choices in _registries():
        for kind in [kind for kind, part in choices.items() if part in ORIGINS]:
            del choices[kind]
    for digest in digests:
        _enter(_parts(digest, digests))
    # A module or notebook that was run again has several: what it registered last counts.
    for choices in _registries():
        for kind, part in before.get(id(choices), {}).items():
            made_of = digests_among(getattr(part, "__mro__", (part,)))
            if kind in choices and part in ORIGINS and made_of <= set(digests):
                choices[kind] = part
    try:
        yield
    finally:
        for choices in _registries():
            choices.clear()
            choices.update(before.get(id(choices), {}))


def _registries() -> list[dict[str, Any]]:
    """Every dictionary that parts are registered in."""
    return [*REGISTRIES.values(), *METRICS.values(), *OUTPUTS.values()]


def _parts(digest: str, among: Collection[str]) -> list[Any]:
    """Parts that a source has registered and that derive from `among` alone."""
    return [
        part
        for part, origin in ORIGINS.items()
        if origin.digest == digest and digests_among(getattr(part, "__mro__", ())) <= set(among)
    ]


def _enter(parts: Iterable[Any]) -> None:
    """Put parts into the registries once more."""
    for part in parts:
        kind, choices, _ = _registry(part)
        choices[kind] = part


def _entry(entry: object, place: str) -> tuple[str, str | None]:
    """Name of a plugin in an experiment file, and its SHA-256 if the file has it."""
    name, digest = entry, None
    if isinstance(entry, Mapping):
        check_keys(entry, ["file", "sha256"], place)
        name, digest = entry.get("file"), entry.get("sha256")
        if not isinstance(digest, str) or not SHA256.fullmatch(digest):
            raise must(f"{place}.sha256", "must be 64 hexadecimal digits", digest)
        place = f"{place}.file"
    return as_plugin_name(name, place), digest


def _paths(name: str, folders: Sequence[Path]) -> list[Path]:
    """Paths where a plugin may lie, each once."""
    return list(dict.fromkeys((Path(folder) / name).resolve() for folder in folders))


def sources_of(cell: Cell) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Sources of user-defined parts that decide a cell's result, by their SHA-256.

    Returns
    -------
    dict
        For each its name, and the sections that are made of it, `METRIC` where a metric is. A
        plugin comes after those that it may derive classes from. Empty for a cell of nothing but
        what comes with the package.
    """
    if not ORIGINS:
        return {}
    # The metrics of its predictions are part of the result as well.
    by_section = {name: digests_of(spec) for name, spec in cell.settings.items()}
    by_section[METRIC] = digests_among(METRICS.get(cell.likelihood.predictive, {}).values())
    names = {origin.digest: origin.name for origin in ORIGINS.values()}
    names |= {digest: source.name for digest, source in _SOURCES.items()}
    return {
        digest: (names[digest], tuple(name for name, used in by_section.items() if digest in used))
        for digest in sorted(set().union(*by_section.values()), key=_depth)
    }


def _depth(digest: str) -> tuple[int, str]:
    """Sorts sources behind those that they derive classes from."""
    parts = [part for part, origin in ORIGINS.items() if origin.digest == digest]
    return max(len(digests_among(getattr(part, "__mro__", ()))) for part in parts), digest


def metric_modules(cell: Cell) -> tuple[str, ...]:
    """Names of the modules, other than plugins, that register metrics of a cell's predictions."""
    return tuple(
        name
        for name, sections in sources_of(cell).values()
        if METRIC in sections and not is_plugin_name(name)
    )


def check_reached(cells: Iterable[Cell]) -> None:
    """Raise ConfigError where a part of a script or a notebook decides a cell's result.

    Worker processes do not run these.
    """
    unreached = (SESSION, "__main__")
    if not any(origin.name in unreached for origin in ORIGINS.values()):
        return
    for cell in cells:
        for name, sections in sources_of(cell).values():
            if name in unreached:
                parts = ", ".join(
                    METRIC if section == METRIC else f"{section} `{getattr(cell, section).kind}`"
                    for section in sections
                )
                raise ConfigError(
                    f"`plugins` must name a file that registers the {parts}: worker processes do "
                    "not run the script or notebook that does."
                )


def is_current(spec: Specification) -> bool:
    """Whether no class that a specification is made of was registered anew, changed, since."""
    for part in classes_of(spec):
        if part in ORIGINS:
            kind, choices, _ = _registry(part)
            registered = ORIGINS.get(choices.get(kind))
            if registered is None or registered.digest != ORIGINS[part].digest:
                return False
    return True


def _registry(part: Callable) -> tuple[str, dict[str, Any], str]:
    """Name of a part, the dictionary that it is registered in, and what it is."""
    if inspect.isfunction(part):
        if what := _output(part):
            return part.__name__, OUTPUTS[what], what
        return part.__name__, METRICS.setdefault(_predictive(part), {}), METRIC
    bases = [b for b in REGISTRIES if isinstance(part, type) and issubclass(part, b)]
    if not bases or part in REGISTRIES:
        choices = ", ".join(sorted(base.__name__ for base in REGISTRIES))
        raise TypeError(
            "`register` takes a metric, a figure or a table (a function) or a subclass of one of "
            f"{choices}, got {part!r}."
        )
    kind = part.model_fields["kind"].default
    if not isinstance(kind, str) or not KIND.fullmatch(kind):
        raise TypeError(
            f"`{part.__name__}` must have a name for experiment files, of small letters, digits "
            f'and `_`: write `kind: Literal["my_name"] = "my_name"` into the class.'
        )
    return kind, REGISTRIES[bases[0]], bases[0].__name__


def _output(function: Callable) -> str | None:
    """`FIGURE` or `TABLE` of a function that is annotated to return one."""
    signature, name = inspect.signature(function), function.__name__
    returned = re.findall(r"\w+", inspect.formatannotation(signature.return_annotation))
    cls = next((cls for cls in RETURNS if cls in returned), None)
    if cls is None:
        return None
    if len(signature.parameters) != 1:
        raise TypeError(
            f"The {RETURNS[cls]} `{name}` must be a function of the results alone: write "
            f"`(results: ExperimentResults) -> {cls}`."
        )
    if not KIND.fullmatch(name):
        raise TypeError(
            f"The {RETURNS[cls]} `{name}` must have a name of small letters, digits and `_`, which "
            "becomes that of its file."
        )
    return RETURNS[cls]


def _predictive(metric: Callable) -> str:
    """Key of the kind of prediction that a metric is of: its class in small letters."""
    parameters = list(inspect.signature(metric).parameters.values())
    cls = parameters[0].annotation if len(parameters) == 2 else inspect.Parameter.empty
    if cls is inspect.Parameter.empty:
        raise TypeError(
            f"The metric `{metric.__name__}` must be a function of a prediction, annotated with "
            "its kind, and the targets: write `(predictive: ClassProbabilities, target)`. A figure "
            "or a table says what it returns: `(results: ExperimentResults) -> Figure`, "
            "`-> DataFrame`."
        )
    name = cls.rpartition(".")[2] if isinstance(cls, str) else cls.__name__
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _is_newer(part: Any, taken: Any) -> bool:
    """Whether a part is another version of a registered one: a file or notebook was run again.

    A file may be imported under its own name as well, by the script that sweeps.
    """
    if taken not in ORIGINS or part.__qualname__ != taken.__qualname__:
        return False
    return _origin(part).file == ORIGINS[taken].file or part.__module__ == taken.__module__


def _origin(part: Any) -> Origin:
    module = sys.modules[part.__module__]
    file, source = getattr(module, "__file__", None), source_of(module)
    if source is not None:  # whose files may lie on another machine
        return Origin(file, source.digest, source.name)
    if file is not None:
        return Origin(file, hashlib.sha256(Path(file).read_bytes()).hexdigest(), module.__name__)
    # Typed into a notebook: functions know their source there, classes do not.
    members = [part] if inspect.isfunction(part) else vars(part).values()
    try:
        source = "".join(inspect.getsource(m) for m in members if inspect.isfunction(m))
    except OSError:
        raise ValueError(
            f"The source of `{part.__name__}` is unavailable: write it into a file."
        ) from None
    fields = "" if inspect.isfunction(part) else repr(_fields(part))
    return Origin(SESSION, hashlib.sha256((source + fields).encode()).hexdigest(), SESSION)


def _fields(cls: type[Specification]) -> dict[str, Any]:
    """Fields of a class; without those `core.spec.added` gave its bases."""
    own = vars(cls).get("__annotations__", {})
    fields = cls.model_fields.items()
    return {name: field for name, field in fields if field.exclude_if is None or name in own}


def part_place(part: Any) -> str:
    """File and line of a class or function."""
    try:
        file, (_, line) = inspect.getsourcefile(part), inspect.getsourcelines(part)
    except (OSError, TypeError):  # typed in
        return f"`{part.__qualname__}` of {part.__module__}"
    return f"{file}, line {line}"


def _run(source: Source, user: str, before: Sequence[str]) -> None:
    """Import the text of a plugin, unless it was imported before; its parts replace earlier ones.

    `user` needs it, for messages; it may derive classes from plugins of the SHA-256 `before`.
    """
    _retire(source)
    # Known by a name of its own, so that pickles of its classes are read in other processes.
    digest = hashlib.sha256("".join([*before, source.digest]).encode()).hexdigest()
    name = f"{MODULES}{Path(source.name).stem}_{digest[:16]}"
    if name in sys.modules:
        _enter(part for part in ORIGINS if part.__module__.partition(".")[0] == name)
        return
    IMPORTED[name] = source
    registries = [*_registries(), METRICS, ORIGINS]
    contents = [dict(registry) for registry in registries]
    try:
        importlib.import_module(name)
    except Exception as error:
        for module in [m for m in sys.modules if m.partition(".")[0] == name]:
            del sys.modules[module]
        for registry, content in zip(registries, contents, strict=True):
            registry.clear()
            registry.update(content)
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"{user} ({_error_place(error, source)}) raised {type(error).__name__}: "
            f"{reason.rstrip('.')}."
        ) from error
    _SOURCES[source.digest] = source


def _retire(source: Source) -> None:
    """Forget what earlier versions of a file have registered; their cells keep it."""
    for choices in _registries():
        for kind, part in list(choices.items()):
            origin = ORIGINS.get(part)
            if origin is None or origin.digest == source.digest:
                continue
            # A moved folder has its plugins under the same names.
            if origin.name == source.name or Path(origin.file).is_relative_to(source.path):
                del choices[kind]


def _error_place(error: Exception, source: Source) -> str:
    """File of a plugin, with the last line in it that an error passed, if it passed one."""
    files = {source.place(file) for file in source.files}
    if isinstance(error, SyntaxError) and error.filename in files and error.lineno:
        return f"{error.filename}, line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    passed = [f"{f.filename}, line {f.lineno}" for f in frames if f.filename in files]
    return passed[-1] if passed else source.path


@functools.cache
def _import_installed() -> None:
    """Import plugins of installed packages, once."""
    for entry in entry_points(group=GROUP):
        try:
            entry.load()
        except Exception as error:
            package = f" of package `{entry.dist.name}`" if entry.dist else ""
            raise ConfigError(
                f"The installed plugin `{entry.name}`{package} raised {type(error).__name__}: "
                f"{str(error).rstrip('.')}."
            ) from error
