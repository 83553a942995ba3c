"""An experiment as checked and expanded: frozen, and independent of how its file is written."""

import functools
import json
import math
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, ValidationError

from pmbnn.core.display import Summarised
from pmbnn.core.spec import Registry, Specification, Tune, digests_of, with_new_names
from pmbnn.data import DATASETS
from pmbnn.data.base import DatasetSpec
from pmbnn.data.ood import OOD, OodSpec
from pmbnn.inference.samplers.settings import SAMPLING, Sampling
from pmbnn.inference.settings import (
    DEFAULT_STEPS,
    NO_ELBO_GUIDES,
    OBJECTIVES,
    POINT_GUIDES,
    Inference,
)
from pmbnn.models.cell_posterior import CellPosterior
from pmbnn.models.hyperpriors import HYPERPRIORS, Hyperprior, Match
from pmbnn.models.likelihoods import LIKELIHOODS, Categorical, Likelihood
from pmbnn.models.networks import NETWORKS, MaxPool, Network
from pmbnn.models.prior_base import Prior
from pmbnn.models.priors import PRIORS, StudentT
from pmbnn.prediction.settings import Predict

if TYPE_CHECKING:
    from pmbnn.experiment.expand import Sweep
    from pmbnn.experiment.plugin_files import Source


ENGINES: Registry[Inference | Sampling] = Registry(
    {"compiled": Inference, "pymc": Inference, **SAMPLING}
)
ENGINES.tag, ENGINES.default = "engine", "compiled"

SOURCES: dict[str, Registry | type[Specification]] = {
    "dataset": DATASETS,
    "network": NETWORKS,
    "prior": PRIORS,
    "hyperprior": HYPERPRIORS,
    "likelihood": LIKELIHOODS,
    "inference": ENGINES,
    "predict": Predict,
}
"""Classes of each section: a registry by ``kind``, or one class."""

REGISTRIES: dict[type[Specification], Registry] = {
    DatasetSpec: DATASETS,
    Hyperprior: HYPERPRIORS,
    Likelihood: LIKELIHOODS,
    Network: NETWORKS,
    OodSpec: OOD,
    Prior: PRIORS,
}
"""Registry of every base class of user-defined parts."""


MARGIN = 0.001
"""Difference of NLL, nats an observation, below which two cells count as equivalent."""


@dataclass(frozen=True, repr=False)
class Cell(Summarised):
    """One point of the grid: all settings of a fit, and the name of its sweep."""

    sweep: str
    dataset: DatasetSpec
    network: Network
    prior: Prior
    hyperprior: Hyperprior
    likelihood: Likelihood
    inference: Inference | Sampling
    predict: Predict

    @property
    def is_sampled(self) -> bool:
        """Whether draws come from a sampler, not from a guide."""
        return getattr(self.inference, "engine", None) in SAMPLING

    @property
    def is_ensemble(self) -> bool:
        """Whether its chains keep to modes of their own."""
        return getattr(self.inference, "is_ensemble", False)

    @property
    def temperature(self) -> float:
        """Temperature of the posterior that it samples; 1 of a fit."""
        return getattr(self.inference, "temperature", 1.0)

    @property
    def samples_posterior(self) -> bool:
        """Whether its draws are of the posterior, if its chains have converged."""
        return self.is_sampled and not self.is_ensemble and not self.is_tempered

    @property
    def is_point(self) -> bool:
        """Whether it is fitted as a single point, with no distribution to draw from."""
        return getattr(self.inference, "guide", None) in POINT_GUIDES

    @property
    def is_laplace(self) -> bool:
        """Whether it is fitted by Laplace's approximation, which has no ELBO."""
        return getattr(self.inference, "guide", None) == "laplace"

    @property
    def is_dropout(self) -> bool:
        """Whether it is fitted and predicts with dropout."""
        return getattr(self.inference, "guide", None) == "dropout"

    @property
    def lacks_elbo(self) -> bool:
        """Whether it is fitted by another objective than the ELBO of a guide."""
        return getattr(self.inference, "guide", None) in NO_ELBO_GUIDES

    @property
    def objective(self) -> str:
        """Name of what its restarts are ranked by, which its results have as ``elbo``."""
        return OBJECTIVES.get(getattr(self.inference, "guide", None), "ELBO")

    def has_score(self, name: str) -> bool:
        """Whether a score of its snapshots says something that no other says."""
        if name in ("kl", "evidence"):
            return not self.lacks_elbo
        # Without a prior, what is maximised is the log-likelihood itself.
        return name != "elbo" or self.objective != "log-likelihood"

    @property
    def is_tempered(self) -> bool:
        """Whether it aims at another distribution than the posterior of its model."""
        weight = getattr(self.inference, "kl_weight", 1)
        scaling = getattr(self.inference, "kl_scaling", "sum")
        return weight != 1 or scaling != "sum" or self.temperature != 1

    @property
    def scale(self) -> float | tuple[float, ...] | Tune | Match | None:
        """Fixed scale of the prior; None where it is learned or there is none.

        Or those of the layers, its candidates, or the process that it is matched to.
        """
        return getattr(self.hyperprior, "scale", None)

    @property
    def has_scale(self) -> bool:
        """Whether its prior has a scale, which is fixed, tuned or learned."""
        return has_scale(self.hyperprior)

    @property
    def data_seed(self) -> int:
        """Seed of its data set."""
        return getattr(self.dataset, "seed", 0)

    @property
    def without_seeds(self) -> "Cell":
        """The same cell with the first seeds: repetitions of a fit share it."""
        seeded = {"dataset": self.dataset, "inference": self.inference}
        first = {
            name: spec.model_copy(update={"seed": 0})
            for name, spec in seeded.items()
            if getattr(spec, "seed", 0)
        }
        return replace(self, **first)

    @property
    def posterior(self) -> "Cell":
        """The same cell without its inference: all that decides posterior and predictions."""
        # Which restarts predict is no part of the posterior that they approximate.
        predict = self.predict.model_copy(update={"mixture": "best"})
        return replace(self, inference=None, predict=predict)

    @property
    def has_points(self) -> bool:
        """Whether some of its parameters are maximised, so that there is no posterior of all."""
        return self.hyperprior.is_point or self.likelihood.is_point

    @property
    def n_outputs(self) -> int:
        """Number of the network's outputs, from the likelihood and the targets."""
        return self.likelihood.n_outputs(self.dataset.n_classes, self.dataset.n_targets)

    @property
    def settings(self) -> dict[str, Specification]:
        """The specifications by section: everything but the sweep's name."""
        return {section: getattr(self, section) for section in SOURCES}

    @property
    def stored_settings(self) -> dict[str, dict[str, Any]]:
        """Settings by section as files store them; `stored_cell` reads them."""
        return {section: spec.model_dump(mode="json") for section, spec in self.settings.items()}


def has_scale(hyperprior: Specification) -> bool:
    """Whether a hyperprior belongs to a prior with a scale."""
    return getattr(hyperprior, "scale", True) is not None


Selection = Mapping[str, Mapping[str, Any]]
"""Fields by section that cells must have."""


@dataclass(frozen=True)
class Contrast:
    """Cells ``first`` less cells ``second``: below zero, the first are better."""

    name: str
    first: Selection
    second: Selection

    @property
    def as_written(self) -> dict[str, Any]:
        """The contrast as an experiment file writes it."""
        return {"name": self.name, "first": dict(self.first), "second": dict(self.second)}


@dataclass(frozen=True)
class Contrasts:
    """Every contrast of a file, and its margin of practical equivalence, nats an observation."""

    listed: tuple[Contrast, ...] = ()
    margin: float = MARGIN

    @property
    def as_written(self) -> dict[str, Any]:
        """Their keys of an experiment file, without defaults."""
        written: dict[str, Any] = {}
        if self.listed:
            written["contrasts"] = [contrast.as_written for contrast in self.listed]
        return written if self.margin == MARGIN else written | {"margin": self.margin}


@dataclass(frozen=True, repr=False)
class Experiment(Summarised):
    """All sweeps of an experiment file.

    ``plugins`` are the files of its user-defined parts, as they were read;
    ``published`` is the text of the table of published numbers that it names; ``contrasts`` say
    which cells are to be compared. ``folder`` is where files of data are looked up first.
    ``overrides`` are the settings that a command or a call changed, as ``KEY=VALUE``.
    """

    name: str
    sweeps: "tuple[Sweep, ...]"
    plugins: "tuple[Source, ...]" = ()
    published: str | None = None
    contrasts: Contrasts = Contrasts()
    folder: Path = field(default=Path("."), compare=False)
    overrides: tuple[str, ...] = field(default=(), compare=False)

    def _summary(self) -> dict[str, object]:
        # Text does not read data, which some sweeps need to be expanded.
        cells = {s.name: "?" if s.needs_data else len(s.cells) for s in self.sweeps}
        return {"name": self.name} | {f"cells of {name}": n for name, n in cells.items()}

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Cells of all sweeps, in the order of the file."""
        return tuple(cell for sweep in self.sweeps for cell in sweep.cells)


def choosing_rows(rows: int, validation: float) -> int:
    """Training rows left to fit on when a share of them is held out to choose by."""
    # Scikit-learn rounds the held-out rows up.
    return rows - math.ceil(validation * rows)


# Cells as their results keep them: specifications made of stored settings, without any plugin


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
        SHA-256 of the user's sources of each section that has some.
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
    try:
        spec = _class_of(section, json.loads(text)).model_validate_json(text)
    except (KeyError, TypeError, ValidationError):
        return Unknown.model_validate_json(text)
    return spec if digests_of(spec) == plugins else Unknown.model_validate_json(text)


def _class_of(section: str, settings: Mapping[str, Any]) -> type[Specification]:
    """Class of a section's stored settings; a KeyError or TypeError where there is none."""
    source = SOURCES[section]
    return source.class_of(settings) if isinstance(source, Registry) else source


def renamed_settings(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Stored settings by section, under the present names of fields."""
    renamed = {}
    for section, stored in settings.items():
        try:
            renamed[section] = with_new_names(_class_of(section, stored), stored)
        except (KeyError, TypeError):  # a class of a plugin, or of another version
            renamed[section] = dict(stored)
    return renamed


# Names of cells and of the specifications they are made of, for folders, tables and the plan


LABEL_LENGTH = 119

ALWAYS_SHOWN = {
    (DatasetSpec, "seed"),
    (MaxPool, "size"),
    (Network, "hidden"),
    (Sampling, "engine"),
    (StudentT, "nu"),
}
"""Fields that a label shows even where they have their default."""

LOCATIONS = ("file", "path")
"""Fields whose file alone is shown, without its folder and endings."""

NEVER_SHOWN = {"kind", "folder", "restarts", "validation", "improper_scale_cap"}
"""Fields that would make every label longer and tell little."""

SHOWN_DIGITS = 8
"""Hexadecimal digits of a digest that a label shows."""

SHORT_WORDS = {"convolution": "conv", "max_pool": "pool"}
"""Kinds that are cut short."""


def cell_label(cell: Cell) -> str:
    """Readable name of a cell, safe as part of a folder's name; cells may share one.

    It depends on the cell alone, not on the grid around it, so that a folder keeps its name
    when the experiment grows.
    """
    parts = [spec_label(cell.dataset), *model_words(cell)]
    safe = re.sub(r"[^A-Za-z0-9._+-]+", "-", "_".join(parts))
    return safe[:LABEL_LENGTH].rstrip("-._")


def model_words(cell: Cell, scale: bool = True) -> list[str]:
    """Network, prior, hyperprior (with its constants if asked), and what else is unusual."""
    hyperprior = spec_label(cell.hyperprior, None if scale else cell.hyperprior.structure)
    words = [spec_label(cell.network), spec_label(cell.prior), hyperprior]
    if cell.likelihood != Categorical():
        words.append(spec_label(cell.likelihood))
    unusual = spec_label(cell.inference)
    return [*words, unusual] if unusual else words


def spec_label(spec: Specification, among: Container[str] | None = None) -> str:
    """Kind of a specification and every field that is unusual (`among` some), hyphens between."""
    kind = [spec.kind] if "kind" in type(spec).model_fields else []
    fields = [name for name in _shown_fields(spec) if among is None or name in among]
    return "-".join(kind + [_field_label(name, getattr(spec, name)) for name in fields])


def file_label(named: str) -> str:
    """Name of a file without its folder and endings: ``boston`` of ``uci/boston.csv.gz``."""
    name = PurePath(named).name
    return name.partition(".")[0] or name


def short_name(settings: Mapping[str, Any]) -> str:
    """Kind, numbers and words of a specification: ``conv32x5.same.relu``.

    Parameters
    ----------
    settings
        The specification's fields, as a record holds them; ``kind`` among them.
    """
    numbers, words = [], []
    for name, value in settings.items():
        if isinstance(value, bool):
            words.append(name if value else f"no_{name}")
        elif isinstance(value, int | float):
            numbers.append(f"{value:.15g}")
        elif value is not None and name != "kind":
            words.append(str(value))
    kind = settings["kind"]
    return ".".join([SHORT_WORDS.get(kind, kind) + "x".join(numbers), *words])


@functools.cache  # cells share their specifications
def _shown_fields(spec: Specification) -> list[str]:
    """Fields that a label shows, in its order."""
    fields = [name for name in type(spec).model_fields if _is_shown(spec, name)]
    # The seed comes last, where names that differ in nothing else are told apart.
    return sorted(fields, key=lambda name: (name == "seed") - (name == "engine"))


def _is_shown(spec: Specification, name: str) -> bool:
    """Whether a label shows a field."""
    value = getattr(spec, name)
    if name in NEVER_SHOWN or value is None:
        return False
    if isinstance(spec, CellPosterior) and name == "path":
        return False  # a folder with a long name; its digest tells it from others
    if isinstance(spec, DatasetSpec) and spec.locations.get(name) is True:
        return name in LOCATIONS
    if any(isinstance(spec, cls) and name == field for cls, field in ALWAYS_SHOWN):
        return True
    usual = DEFAULT_STEPS if name == "steps" else type(spec).model_fields[name].default
    return value != usual


def _field_label(name: str, value: object) -> str:
    """One field: a text as it is, a number after the name of its field."""
    if name in LOCATIONS:
        return file_label(value)
    if name == "sha256":
        return value[:SHOWN_DIGITS]
    if isinstance(value, bool):
        return name if value else f"no_{name}"
    if isinstance(value, int | float):
        # The value of `sigma_1` must not run into its number.
        return f"{name}{'_' if name[-1].isdigit() else ''}{number_label(value)}"
    if isinstance(value, tuple):
        return "-".join(map(_entry_label, value)) or "linear"
    if isinstance(value, Match):
        return f"matched-{spec_label(value)}".removesuffix("-")
    if isinstance(value, Specification) and not isinstance(value, Tune):
        return f"{name}-{spec_label(value)}"
    if isinstance(value, Tune):
        return "tuned-" + "-".join(number_label(entry) for entry in value.log)
    return str(value)


def _entry_label(entry: Specification | float | str) -> str:
    """One entry of a list: a number, a name, or a specification with what is unusual of it."""
    if isinstance(entry, str):
        return entry
    if not isinstance(entry, Specification):
        return number_label(entry)
    fields = entry.model_dump(mode="json")
    return short_name({k: v for k, v in fields.items() if k == "kind" or _is_shown(entry, k)})


def number_label(value: object) -> str:
    """A number without trailing zeros: ``0.4``, ``1``; anything else as it is written."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def number_labels(values: Sequence[object]) -> list[str]:
    """Labels of values, as of `number_label`; different numbers of one label have all digits."""
    labels = [number_label(value) for value in values]
    numbers: dict[str, set[object]] = {}
    for text, value in zip(labels, values, strict=True):
        numbers.setdefault(text, set()).add(value)
    return [
        text if len(numbers[text]) == 1 else str(value)
        for text, value in zip(labels, values, strict=True)
    ]
