"""One sweep of an experiment file: read, checked, and expanded into cells.

Reading a sweep reads no data. What depends on the user's data is checked by `Sweep.check_data`,
which planning calls.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

from pmbnn.core.display import Summarised
from pmbnn.core.errors import ConfigError, check_keys, must
from pmbnn.core.spec import Specification
from pmbnn.data.base import DEFAULT_LIKELIHOODS
from pmbnn.experiment.axes import Choice, check_size, expand_section
from pmbnn.experiment.cells import SOURCES, Cell
from pmbnn.experiment.checks import Choices, check_data, check_sections
from pmbnn.models.hyperpriors import Fixed

DEFAULTS = {"hyperprior": "fixed", "inference": {}, "predict": {}}
"""Sections that a sweep may leave out. The likelihood follows the data sets; the others are
required."""

NAME = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)
"""Names of sweeps and experiments become names of folders."""


@dataclass(frozen=True, eq=False, repr=False)
class Sweep(Summarised):
    """One grid: its sections, the cells they make, and the combinations left out.

    Attributes
    ----------
    name
        Its name.
    place
        Where the file has it, such as ``sweeps[0]``.
    written
        Choices of each section. The likelihood is absent where the file gives none and only the
        user's data say whether the targets are classes or numbers.
    """

    name: str
    place: str
    written: Choices

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sweep):
            return NotImplemented
        return (self.name, self.sections) == (other.name, other.sections)

    def __hash__(self) -> int:
        return hash(self.name)

    def _summary(self) -> dict[str, object]:
        kinds = {
            section: ", ".join(dict.fromkeys(getattr(c.spec, "kind", "") for c in choices))
            for section, choices in self.written.items()
            if section not in ("inference", "predict")
        }
        # Text does not read data.
        cells = {} if self.needs_data else {"cells": len(self.cells)}
        return {"name": self.name} | cells | kinds

    @property
    def needs_data(self) -> bool:
        """Whether its cells are known only after the first data set has been read."""
        return "likelihood" not in self.written

    @cached_property
    def choices(self) -> Choices:
        """Choices of each section; reads the first data set where `needs_data`.

        Raises
        ------
        DataError
            That data set is unavailable, or not as it must be; the message names its place.
        """
        if not self.needs_data:
            return self.written
        first = self.written["dataset"][0]
        check_data([first])
        kind = DEFAULT_LIKELIHOODS[first.spec.task_of_rows]
        return self.written | {"likelihood": _likelihood(kind, self.place)}

    @cached_property
    def sections(self) -> dict[str, tuple[Specification, ...]]:
        """Every specification of each section, in the order of a file."""
        return {name: tuple(choice.spec for choice in self.choices[name]) for name in SOURCES}

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """The product of all sections, data sets slowest.

        Of sections that differ in how restarts are mixed alone, a sampler has a cell of the first
        only: its chains are always mixed in one way.
        """
        sections = self.sections
        pairs = [(p.spec, h.spec) for p, h in _pairs(self.written, self.place)]
        fixed = (sections[name] for name in ("likelihood", "inference", "predict"))
        cells = []
        for dataset, network, pair, *rest in product(
            sections["dataset"], sections["network"], pairs, *fixed
        ):
            cell = Cell(self.name, dataset, network, *pair, *rest)
            if cell.is_sampled:
                predict = cell.predict.model_copy(update={"mixture": "best"})
                cell = replace(cell, predict=predict)
            cells.append(cell)
        return tuple(dict.fromkeys(cells))

    @property
    def left_out(self) -> tuple[str, ...]:
        """Combinations that mean nothing, and why: one line for each prior without a scale."""
        hyperpriors = (choice.spec for choice in self.written["hyperprior"])
        skipped = dict.fromkeys(h.kind for h in hyperpriors if not isinstance(h, Fixed))
        priors = (choice.spec for choice in self.written["prior"])
        return tuple(
            f"prior {kind} with {', '.join(skipped)}: `{kind}` has no scale to put a hyperprior on"
            for kind in dict.fromkeys(prior.kind for prior in priors if not prior.has_scale)
            if skipped
        )

    def check_data(self) -> None:
        """Read the user's data and check what the file says against them.

        Raises
        ------
        DataError
            Some data set is unavailable, or not as it must be; the message names its place.
        ConfigError
            Another section does not fit one of them.
        """
        datasets = [choice for choice in self.written["dataset"] if choice.spec.is_user_data]
        check_data(datasets)
        _check(self.choices, datasets, self.place)


def read_sweep(item: object, place: str) -> Sweep:
    """A sweep of an experiment file, checked as far as that needs none of the user's data.

    Raises
    ------
    ConfigError
        Something in it is not valid.
    """
    if not isinstance(item, dict):
        raise must(place, "must be a mapping", item)
    check_keys(item, ["name", *SOURCES], place)
    name = name_of(item, f"{place}.name")
    choices: dict[str, list[Choice]] = {}
    for section, source in SOURCES.items():
        if section in item:
            choices[section] = expand_section(item[section], f"{place}.{section}", source)
        elif section == "likelihood":
            if (task := choices["dataset"][0].spec.declared_task) is not None:
                choices[section] = _likelihood(DEFAULT_LIKELIHOODS[task], place)
        elif section in DEFAULTS:
            choices[section] = expand_section(DEFAULTS[section], f"{place}.{section}", source)
        else:
            raise ConfigError(f"`{place}.{section}` is missing.")
    check_size([len(options) for options in choices.values()], place)
    sweep = Sweep(name, place, choices)
    if not sweep.needs_data:
        datasets = [choice for choice in choices["dataset"] if not choice.spec.is_user_data]
        _check(choices, datasets, place)
    return sweep


def _likelihood(kind: str, place: str) -> list[Choice]:
    return expand_section(kind, f"{place}.likelihood", SOURCES["likelihood"])


def _check(choices: Choices, datasets: list[Choice], place: str) -> None:
    """Raise ConfigError where sections of a sweep do not fit each other, or some data sets."""
    choices = {**choices, "dataset": datasets}
    check_sections(choices, list(_pairs(choices, place)))


def name_of(content: Mapping, place: str = "name") -> str:
    """Name of an experiment or a sweep, checked."""
    if "name" not in content:
        raise ConfigError(f"`{place}` is missing.")
    name = content["name"]
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise must(place, "must be text of at most 80 letters, digits, `-` and `_`", name)
    return name


def _pairs(choices: Choices, place: str) -> Iterator[tuple[Choice, Choice]]:
    """Every prior with every hyperprior that it can have."""
    hyperpriors = choices["hyperprior"]
    for prior in choices["prior"]:
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
    """Raise ConfigError where a centred form is asked for of weights that have none."""
    if getattr(hyperprior.spec, "centred", False) and not prior.spec.centrable:
        rule = (
            f"must be false with prior `{prior.spec.kind}` (`{prior.place}`), whose weights are "
            "always scaled from standard draws"
        )
        raise must(hyperprior.place_of("centred"), rule, True)
