"""Experiment files: read, checked, and expanded into the cells of their grids.

Everything here can be checked without data and without PyMC, so that a mistake is reported
before anything is compiled.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from pmbnn.data.local_files import beside
from pmbnn.experiment.axes import Choice, check_size, expand_section
from pmbnn.experiment.cells import (
    SOURCES,
    Cell,
    Experiment,
    LeftOut,
    Sections,
    Sweep,
)
from pmbnn.experiment.checks import (
    check_batches,
    check_choosing,
    check_data,
    check_diagnostics,
    check_guides,
    check_improper,
    check_likelihoods,
    check_ood,
    check_points,
    check_shapes,
    check_stacking,
)
from pmbnn.experiment.contrasts import check_contrasts, read_contrasts
from pmbnn.experiment.errors import ConfigError, check_keys, must
from pmbnn.experiment.plugins import load_plugins
from pmbnn.experiment.published import FILE, published_text
from pmbnn.experiment.yaml_file import read_yaml, yaml_text
from pmbnn.inference.settings import Inference
from pmbnn.models.priors import Fixed
from pmbnn.spec import Specification

DEFAULTS = {"hyperprior": "fixed", "inference": {}, "predict": {}}
"""What a section says that a sweep leaves out. The likelihood follows the data sets; the other
sections are required."""

DATA_FOLDER = "data_folder"
"""Key of where files of data are looked up first, which results folders have."""

NAME = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)
"""Names become names of folders."""


def load_experiment(path: str | Path) -> Experiment:
    """Experiment that a YAML file describes, checked and expanded.

    Raises
    ------
    ConfigError
        The file cannot be read, or something in it is not valid; the message is one line.
    """
    return experiment_of(read_yaml(path), Path(path).parent)


def resolved(experiment: Experiment, folder: Path | None = None) -> dict[str, Any]:
    """The experiment with every default filled in, in the form of an experiment file.

    It names the copy of its published numbers that lies beside it in a results folder.

    Parameters
    ----------
    folder
        The results folder, from which the files of one's own data are found again.
    """
    plugins = {"plugins": list(experiment.plugins)} if experiment.plugins else {}
    published = {} if experiment.published is None else {"published": FILE}
    return {
        "name": experiment.name,
        **_data_folder(experiment, folder),
        **plugins,
        **published,
        **experiment.contrasts.as_written,
        "sweeps": [
            {"name": sweep.name}
            | {
                section: [as_written(spec) for spec in specs]
                for section, specs in sweep.sections.by_name.items()
            }
            for sweep in experiment.sweeps
        ],
    }


def _data_folder(experiment: Experiment, folder: Path | None) -> dict[str, str]:
    """Where data of one's own were looked up first, seen from a results folder."""
    own = any(spec.is_own for sweep in experiment.sweeps for spec in sweep.sections.dataset)
    if folder is None or not own:
        return {}
    try:
        return {DATA_FOLDER: os.path.relpath(experiment.folder, Path(folder).resolve())}
    except ValueError:  # on another drive
        return {}


def resolved_text(experiment: Experiment, folder: Path | None = None) -> str:
    """YAML text of the resolved experiment, which loads as an equal experiment.

    Parameters
    ----------
    folder
        The results folder, where it is written into one.
    """
    return yaml_text(resolved(experiment, folder))


def experiment_of(content: dict, folder: Path, results: Path | None = None) -> Experiment:
    """Experiment that the content of a file describes, checked and expanded.

    Parameters
    ----------
    folder
        Where the files lie that it names.
    results
        Where stored rows lie, if not there.

    Raises
    ------
    ConfigError
        Something in it is not valid.
    """
    known = ["name", DATA_FOLDER, "plugins", "published", "contrasts", "margin", "sweeps"]
    check_keys(content, known, "")
    name = name_of(content)
    plugins = load_plugins(content.get("plugins", []), folder)
    of_data = data_folder(content, folder)
    with beside(of_data, results or folder):
        sweeps = _sweeps(content)
    published = published_text(content.get("published"), folder)
    contrasts = read_contrasts(content)
    experiment = Experiment(name, sweeps, plugins, published, contrasts, of_data)
    _check_unique(experiment)
    check_contrasts(contrasts, experiment.cells)
    return experiment


def data_folder(content: dict, folder: Path) -> Path:
    """Where files of data are looked up first: beside the experiment file, unless it says where."""
    named = content.get(DATA_FOLDER, ".")
    if not isinstance(named, str):
        raise must(DATA_FOLDER, "must be text", named)
    return (Path(folder) / named).resolve()


def _sweeps(content: dict) -> tuple[Sweep, ...]:
    listed = content.get("sweeps")
    if not isinstance(listed, list) or not listed:
        raise must("sweeps", "must be a list with at least one sweep", listed)
    sweeps: list[Sweep] = []
    for index, item in enumerate(listed):
        sweep = _sweep(item, f"sweeps[{index}]")
        for other, earlier in enumerate(sweeps):
            if earlier.name == sweep.name:
                rule = f"must not repeat `sweeps[{other}].name`"
                raise must(f"sweeps[{index}].name", rule, sweep.name)
        sweeps.append(sweep)
    return tuple(sweeps)


def name_of(content: Mapping, place: str = "name") -> str:
    """Name of an experiment or a sweep, checked."""
    if "name" not in content:
        raise ConfigError(f"`{place}` is missing.")
    name = content["name"]
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise must(place, "must be text of at most 80 letters, digits, `-` and `_`", name)
    return name


def _sweep(item: object, place: str) -> Sweep:
    if not isinstance(item, dict):
        raise must(place, "must be a mapping", item)
    check_keys(item, ["name", *SOURCES], place)
    name = name_of(item, f"{place}.name")
    choices: dict[str, list[Choice]] = {}
    for section, source in SOURCES.items():
        value = _section(item, section, place, choices)
        choices[section] = expand_section(value, f"{place}.{section}", source)
        if section == "dataset":
            # What its targets are decides what other sections may say.
            check_data(choices[section])
    check_size([len(options) for options in choices.values()], place)
    pairs = list(_pairs(choices["prior"], choices["hyperprior"], place))
    guided = [c for c in choices["inference"] if isinstance(c.spec, Inference)]
    check_choosing(pairs, choices["inference"])
    check_improper(pairs, guided)
    check_batches(choices["dataset"], guided)
    check_shapes(choices["dataset"], choices["network"])
    check_likelihoods(choices["dataset"], choices["likelihood"])
    check_points(choices)
    check_guides(choices, guided, pairs)
    check_stacking(choices, guided)
    check_ood(choices["dataset"], choices["predict"])
    check_diagnostics(choices["dataset"], choices["inference"], choices["predict"])
    sections = Sections(
        **{section: tuple(c.spec for c in options) for section, options in choices.items()}
    )
    return Sweep(name, sections, _cells(name, sections, pairs), _left_out(sections))


def _section(item: dict, section: str, place: str, before: dict[str, list[Choice]]) -> object:
    """What the file says of a section, or its default; `before` are the sections above it."""
    if section in item:
        return item[section]
    if section == "likelihood":
        return before["dataset"][0].spec.default_likelihood
    if section not in DEFAULTS:
        raise ConfigError(f"`{place}.{section}` is missing.")
    return DEFAULTS[section]


def _cells(sweep: str, sections: Sections, pairs: list[tuple[Choice, Choice]]) -> tuple[Cell, ...]:
    """The product of all sections, data sets slowest.

    Of sections that differ in how restarts are mixed alone, a sampler has a cell of the first only:
    its chains are always mixed alike.
    """
    product_of_all = (
        Cell(sweep, dataset, network, prior.spec, hyperprior.spec, *rest)
        for dataset, network, (prior, hyperprior), *rest in product(
            sections.dataset,
            sections.network,
            pairs,
            sections.likelihood,
            sections.inference,
            sections.predict,
        )
    )
    return tuple(dict.fromkeys(map(_of_first_mixture, product_of_all)))


def _of_first_mixture(cell: Cell) -> Cell:
    if not cell.is_sampled:
        return cell
    return replace(cell, predict=cell.predict.model_copy(update={"mixture": "best"}))


def _pairs(
    priors: list[Choice], hyperpriors: list[Choice], place: str
) -> Iterator[tuple[Choice, Choice]]:
    """Every prior with every hyperprior it can meet."""
    for prior in priors:
        kind = prior.spec.kind
        if prior.spec.has_scale:
            for hyperprior in hyperpriors:
                if isinstance(hyperprior.spec, Fixed) and hyperprior.spec.scale is None:
                    rule = f"must be a number with prior `{kind}`"
                    raise must(hyperprior.place_of("scale"), rule, None)
                _check_centred(prior, hyperprior)
                yield prior, hyperprior
            continue
        fixed = next((h for h in hyperpriors if isinstance(h.spec, Fixed)), None)
        if fixed is None:
            raise ConfigError(
                f"`{place}.hyperprior` must include fixed for prior `{kind}` "
                f"(`{prior.place}`), which has no scale to put a hyperprior on."
            )
        yield prior, replace(fixed, spec=Fixed(scale=None))


def _check_centred(prior: Choice, hyperprior: Choice) -> None:
    """Raise ConfigError where weights that are never centred are asked to be."""
    if getattr(hyperprior.spec, "centred", False) and not prior.spec.centrable:
        rule = (
            f"must be false with prior `{prior.spec.kind}` (`{prior.place}`), whose weights are "
            "always scaled from standard draws"
        )
        raise must(hyperprior.place_of("centred"), rule, True)


def _left_out(sections: Sections) -> tuple[LeftOut, ...]:
    """What `_pairs` skips, one entry a prior."""
    skipped = dict.fromkeys(h.kind for h in sections.hyperprior if not isinstance(h, Fixed))
    without_scale = dict.fromkeys(p.kind for p in sections.prior if not p.has_scale)
    return tuple(
        LeftOut(kind, tuple(skipped), f"`{kind}` has no scale to put a hyperprior on")
        for kind in without_scale
        if skipped
    )


def _check_unique(experiment: Experiment) -> None:
    seen: dict[tuple[Specification, ...], str] = {}
    for index, sweep in enumerate(experiment.sweeps):
        for cell in sweep.cells:
            first = seen.setdefault(tuple(cell.settings.values()), sweep.name)
            if first != sweep.name:
                kinds = (cell.dataset, cell.network, cell.prior, cell.hyperprior)
                what = ", ".join(spec.kind for spec in kinds)
                raise ConfigError(f"`sweeps[{index}]` repeats a cell of sweep `{first}`: {what}.")


def as_written(spec: Specification) -> dict[str, Any]:
    """A specification as an experiment file writes it."""
    return {name: value_as_written(getattr(spec, name)) for name in type(spec).model_fields}


def value_as_written(value: object) -> object:
    """A value of a specification, or a specification, as an experiment file writes it."""
    if isinstance(value, Specification) and not value.expands:
        return {type(value).__name__.lower(): value.model_dump(mode="json")}
    if isinstance(value, Specification):
        return as_written(value)
    if isinstance(value, tuple):
        return [[value_as_written(entry) for entry in value]]
    return value
