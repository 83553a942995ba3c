"""Names of cells and of their settings: in tables, on axes, in titles and in log lines."""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pmbnn.core.spec import Specification, Tune
from pmbnn.data.base import DatasetSpec
from pmbnn.experiment.cells import (
    SHOWN_DIGITS,
    Cell,
    file_label,
    has_scale,
    number_label,
    number_labels,
    short_name,
)
from pmbnn.models.hyperpriors import Match
from pmbnn.results.record import CellRecord

NAMING = ("points", "noise", "factor")
"""Settings of a data set that its label shows beside its kind."""

USER_DATA_NAMES = ("file", "path", "name", "id")
"""Settings that name a user's data set: the first that it has."""

OF_POSTERIOR = ("dataset", "network", "prior", "hyperprior", "likelihood")
"""Sections of settings that name a posterior in tables."""

CAPITALS = {"cauchy": "Cauchy", "laplace": "Laplace", "mnist": "MNIST", "student": "Student"}
"""Words with capital letters inside a name."""

ENGINE, KL_WEIGHT, KL_SCALING = "inference.engine", "inference.kl_weight", "inference.kl_scaling"
MIXTURE = "predict.mixture"

STATED = {KL_WEIGHT: 1, KL_SCALING: "sum", "inference.temperature": 1}
"""Settings that are shown unless they have this value: such a fit is not of the posterior."""

USUAL = {"engine": "compiled", "guide": "mean_field", "estimator": "reparameterisation"}
"""Settings that a line on a cell leaves out."""


# Columns


def settings_row(settings: Any) -> dict[str, Any]:
    """Settings under dotted names; lists as words with a hyphen between.

    A specification in a list has its short name: ``conv32x5.valid.tanh``.

    Parameters
    ----------
    settings
        A specification, a cell, or a mapping of stored settings.
    """
    return dict(_flatten(settings, ""))


def posterior_row(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Stored settings that name a posterior, under dotted names."""
    return settings_row({s: settings[s] for s in OF_POSTERIOR if s in settings})


def _flatten(value: Any, prefix: str) -> Iterable[tuple[str, Any]]:
    if isinstance(value, Cell):
        value = value.settings
    elif isinstance(value, Specification):
        value = value.model_dump(mode="json")
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flatten(inner, f"{prefix}.{key}" if prefix else key)
    elif isinstance(value, list | tuple):
        words = (short_name(v) if isinstance(v, Mapping) else str(v) for v in value)
        yield prefix, "-".join(words)
    else:
        yield prefix, value


# Specifications


def kind_name(spec: Specification) -> str:
    """Kind of a specification; of a distribution of PyMC, its name there; of a cell, digits."""
    match spec.kind:
        case "pymc":
            return spec.dist
        case "cell":
            return f"cell {spec.sha256[:SHOWN_DIGITS]}"
    return spec.kind


def label(spec: Specification) -> str:
    """Short name of a specification: ``fixed 0.1``, ``half_normal``, ``Logistic``."""
    match getattr(spec, "scale", None):
        case Tune():
            return f"{spec.kind} (tuned)"
        case Match():
            return f"{spec.kind} (matched)"
        case tuple() as scales:
            return f"{spec.kind} {'-'.join(f'{scale:g}' for scale in scales)}"
        case float() | int() as scale:
            return f"{spec.kind} {scale:g}"
    return kind_name(spec)


def pretty(kind: str) -> str:
    """Name of a kind in words: ``half-normal``, ``half-Cauchy``, ``Laplace``."""
    return "-".join(CAPITALS.get(word, word) for word in kind.split("_"))


def title(spec: Specification) -> str:
    """Short name of a prior or hyperprior in words: ``half-Cauchy``, ``fixed 0.1``."""
    return label(spec).replace(spec.kind, pretty(spec.kind), 1)


def scale_label(hyperprior: Specification, name: Callable[[Specification], str] = label) -> str:
    """Name of a hyperprior; a prior without a scale has none."""
    return name(hyperprior) if has_scale(hyperprior) else "no scale"


def scale_title(hyperprior: Specification) -> str:
    """Name of a hyperprior in words; a prior without a scale has none."""
    return scale_label(hyperprior, title)


def dataset_label(dataset: DatasetSpec) -> str:
    """Name of a data set without its seed: ``moons, noise 0.4``."""
    return dataset_row_label(settings_row(dataset))


def dataset_row_label(row: Mapping[str, Any]) -> str:
    """Name of a data set from its settings, as the columns ``dataset.`` of a table have them."""
    # Missing values of a table are not a number, which is not equal to itself.
    row = {key: value for key, value in row.items() if value == value}
    shown = [f"{key} {number_label(row[key])}" for key in NAMING if key in row]
    name = next((row[key] for key in USER_DATA_NAMES if row.get(key) is not None), None)
    kind = row["kind"] if name is None else f"{row['kind']} {file_label(str(name))}"
    fold = row.get("split.fold")
    return ", ".join([kind, *shown, *([] if fold is None else [f"fold {number_label(fold)}"])])


def dataset_title(dataset: DatasetSpec) -> str:
    """Name of a data set with the kind in words: ``MNIST``."""
    return dataset_label(dataset).replace(dataset.kind, pretty(dataset.kind), 1)


def method_name(inference: Specification) -> str:
    """Guide of a fit, or sampler."""
    return getattr(inference, "guide", None) or inference.engine


def network_title(network: Specification) -> str:
    """Name of a network with its settings: ``dense 5-5 tanh``."""
    return " ".join(str(v) for v in settings_row(network).values() if v is not None)


def distinct[S](settings: Sequence[S], name: Callable[[S], str] = label) -> list[str]:
    """Distinct names of several settings: equal names are followed by the fields that differ."""
    names = [name(one) for one in settings]
    # A setting of no value is left out: others of that name have one.
    rows = [{k: v for k, v in settings_row(one).items() if v is not None} for one in settings]
    return [
        ", ".join(
            [own, *_differing(row, [r for r, n in zip(rows, names, strict=True) if n == own])]
        )
        for own, row in zip(names, rows, strict=True)
    ]


def distinct_names[S](settings: Iterable[S], name: Callable[[S], str] = label) -> dict[S, str]:
    """Distinct names by setting; see `distinct`."""
    settings = list(dict.fromkeys(settings))
    return dict(zip(settings, distinct(settings, name), strict=True))


def differences(spec: Specification, other: Specification) -> list[str]:
    """Fields of a specification that differ from those of another one: ``sigma 0.1``."""
    return _differing(settings_row(spec), [settings_row(other)])


def _differing(row: Mapping[str, Any], others: Iterable[Mapping[str, Any]]) -> list[str]:
    others = list(others)
    return [
        f"{key} {number_labels([value, *{other.get(key) for other in others}])[0]}"
        for key, value in row.items()
        if any(other.get(key) != value for other in others)
    ]


SECTION_NAMES: Mapping[str, Callable[[Any], str]] = {
    "dataset": dataset_title,
    "network": network_title,
    "hyperprior": scale_title,
    "inference": method_name,
    "predict": lambda _: "predict",
}
"""Names of a section's settings in headings; of other sections that of the kind."""


def section_labels(cells: Iterable[Cell], section: str) -> list[str]:
    """Distinct names of a section of cells, in their order, without seeds; empty where unknown."""
    specs = [getattr(cell.without_seeds, section) for cell in cells]
    name = SECTION_NAMES.get(section, title)
    names = distinct_names(specs, lambda spec: name(spec) if settings_row(spec) else "")
    return [names[spec] for spec in specs]


# Cells


def place_of(cell: Cell) -> Cell:
    """Data set, network and likelihood of a cell, without seeds: where priors are compared."""
    left_out = ("prior", "hyperprior", "inference", "predict")
    return replace(cell.without_seeds, sweep="", **dict.fromkeys(left_out))


def place_names(places: Iterable[Cell]) -> dict[Cell, str]:
    """Names of data sets, with the network, or what else sets them apart, where one has several."""
    places = list(dict.fromkeys(places))
    datasets = distinct_names((place.dataset for place in places), dataset_title)
    number = Counter(place.dataset for place in places)

    def name(place: Cell) -> str:
        data = datasets[place.dataset]
        has_several = number[place.dataset] > 1 and place.network is not None
        return f"{data}, {network_title(place.network)}" if has_several else data

    return distinct_names(places, name)


def combination_label(cell: Cell) -> str:
    """Prior and hyperprior: ``laplace × half_normal``."""
    return f"{label(cell.prior)} × {label(cell.hyperprior)}"


def fit_title(cell: Cell) -> str:
    """Prior, hyperprior and method of a cell: ``normal × fixed 1, NUTS``."""
    words = f"{title(cell.prior)} × {scale_title(cell.hyperprior)}"
    if cell.is_sampled:
        return f"{words}, {method_name(cell.inference).upper()}{_temperature(cell)}"
    guide = _unusual_guide(cell)
    return f"{words}, {guide}" if guide else words


def _unusual_guide(cell: Cell) -> str:
    """A point, or dropout with its rate; empty for other fits."""
    if cell.is_dropout:
        return f"dropout {cell.inference.dropout_rate:g}"
    return method_name(cell.inference).replace("_", " ") if cell.is_point else ""


def _temperature(cell: Cell) -> str:
    return "" if cell.temperature == 1 else f", temperature {cell.temperature:g}"


def seed_label(cell: Cell) -> str:
    """Data set and its seed: ``moons, noise 0.4, seed 0``."""
    return f"{dataset_label(cell.dataset)}, seed {cell.data_seed}"


def cell_line(cell: Cell) -> str:
    """Data, seed, prior, hyperprior, and its method unless it is the default."""
    values = ((getattr(cell.inference, name, None), default) for name, default in USUAL.items())
    unusual = [value for value, default in values if value and value != default]
    return ", ".join([seed_label(cell), combination_label(cell), *unusual]) + _temperature(cell)


def combination_title(cell: Cell, chosen_scale: float | None = None) -> str:
    """Prior and hyperprior of a cell: ``Normal prior, half-normal hyperprior``.

    A fixed scale is named with its value, which is the chosen one where it was tuned.
    """
    prior = pretty(kind_name(cell.prior))
    words = f"{prior[0].upper()}{prior[1:]} prior"
    if not cell.has_scale:
        return f"{words}, no scale"
    if cell.scale is None:
        return f"{words}, {pretty(kind_name(cell.hyperprior))} hyperprior"
    if chosen_scale is not None:
        return f"{words}, fixed scale {chosen_scale:.3g} (tuned)"
    return f"{words}, {title(cell.hyperprior).replace('fixed', 'fixed scale', 1)}"


def cell_title(record: CellRecord) -> str:
    """Title of a cell's own figure: data, prior, hyperprior, kind of fit and its main score."""
    words = f"{dataset_title(record.cell.dataset)}: "
    words += combination_title(record.cell, record.chosen_scale) + _fit_words(record.cell)
    for name, form in (("accuracy", "accuracy {:.3f}"), ("rmse", "RMSE {:.3g}")):
        if record.results.get(name) is not None:
            words += f", {form.format(record.results[name])}"
    return words


def _fit_words(cell: Cell) -> str:
    """Method of a fit unless it is the default: a sampler, a point, dropout, or tempered."""
    if cell.is_sampled:
        return f", by {method_name(cell.inference).upper()}{_temperature(cell)}"
    if guide := _unusual_guide(cell):
        return f", {guide}"
    weight = getattr(cell.inference, "kl_weight", 1.0)
    return "" if weight == 1 else f", KL weight {weight:g}"


def variant_words(cell: Cell, others: Iterable[Cell]) -> tuple[str, ...]:
    """Settings beside prior, hyperprior and seeds that differ from other cells: ``hidden 5-5``.

    Settings in `STATED` are named wherever they have another value.
    """
    own, rows = settings_row(cell), [settings_row(other) for other in others]
    # Settings that only one engine has say nothing beside the engine's name.
    comparable = [row for row in rows if row.get(ENGINE) == own.get(ENGINE)]
    words = []
    for key, value in own.items():
        if key == MIXTURE and cell.is_sampled:
            continue  # chains are always mixed in one way
        compared = comparable if key.startswith("inference.") and key != ENGINE else rows
        differs = any(row.get(key) != value for row in compared)
        if differs or value != STATED.get(key, value):
            words.append(setting_words(key, value))
    return tuple(words)


def setting_words(key: str, value: Any) -> str:
    """A setting with its value: ``hidden 5-5``, ``KL weight 0.1``, ``KL by first dimension``."""
    if key == KL_WEIGHT:
        return f"KL weight {value:g}"
    if key == KL_SCALING:
        return f"KL by {value.replace('_', ' ')}"
    *owners, last = key.split(".")
    if last == "log":  # of a value that is tuned
        return f"tuned {owners[-1].replace('_', ' ')} {value}"
    # The last part of a dotted name says enough, but for these.
    name = key.replace(".", " ") if last in ("kind", "seed") else last.replace("_", " ")
    return f"{name} {value}"


# Groups of cells: repetitions, variants of a data set, fits and samples of one posterior
#
# Fits are compared with samples of the same posterior.


RANKED_BY = "validation_nll"
"""Score on held-out training rows by which a best cell is chosen: never a test number."""


def grouped[Item, Key: Hashable](
    items: Iterable[Item], key: Callable[[Item], Key]
) -> dict[Key, list[Item]]:
    """Items, such as records, by a key, in order of first appearance."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def group_by_settings(records: Iterable[CellRecord]) -> list[list[CellRecord]]:
    """Groups of records that differ in their seeds alone; devices are told apart."""
    groups = grouped(records, lambda record: (record.device, record.cell.without_seeds))
    return list(groups.values())


@dataclass(frozen=True)
class Variant:
    """Records that differ in prior, hyperprior and seeds only.

    ``words`` are the settings that differ from other variants of the same data, and those of fits
    that are not of the posterior.
    """

    words: tuple[str, ...]
    records: tuple[CellRecord, ...]

    @property
    def label(self) -> str:
        """Sweep, data set and words: ``toy: moons, noise 0.4; hidden 5-5``."""
        cell = self.records[0].cell
        return f"{cell.sweep}: {'; '.join([dataset_label(cell.dataset), *self.words])}"

    @property
    def title_words(self) -> tuple[str, ...]:
        """The words, with what the engine makes in its place: ``mean-field fit``."""
        cell = self.records[0].cell
        engine = setting_words(ENGINE, getattr(cell.inference, "engine", None))
        has_guide = any(word.startswith("guide ") for word in self.words)
        if engine not in self.words:
            return self.words
        if cell.is_sampled:
            words = f"sampled by {cell.inference.engine.upper()}"
        elif cell.inference.engine == "pymc":
            words = "fitted by PyMC"
        else:
            words = "" if has_guide else f"{method_name(cell.inference).replace('_', '-')} fit"
        return tuple(filter(None, (words if word == engine else word for word in self.words)))

    @property
    def title(self) -> str:
        """The data set in words, and the words of titles."""
        return "; ".join([dataset_title(self.records[0].cell.dataset), *self.title_words])


def families(records: Sequence[CellRecord]) -> list[list[Variant]]:
    """Variants of each sweep and data set, in order of first appearance."""
    variants = grouped(
        records, lambda r: replace(r.cell.without_seeds, prior=None, hyperprior=None)
    )
    cells = grouped(variants, lambda cell: (cell.sweep, dataset_label(cell.dataset)))
    return [
        [Variant(variant_words(cell, family), tuple(variants[cell])) for cell in family]
        for family in cells.values()
    ]


def variants(records: Sequence[CellRecord]) -> list[Variant]:
    """Variants of all sweeps and data sets."""
    return [variant for family in families(records) for variant in family]


def best_group(records: Iterable[CellRecord]) -> list[CellRecord]:
    """Records of the combination with the lowest mean held-out score; empty without scores.

    Combinations of fewer data seeds than others, of which some are not fitted yet, are left out.
    """
    scored = [(np.mean(_scores(group)), group) for group in group_by_settings(records)]
    scored = [(score, group) for score, group in scored if math.isfinite(score)]
    seeds = [len({record.cell.data_seed for record in group}) for _, group in scored]
    scored = [pair for pair, n in zip(scored, seeds, strict=True) if n == max(seeds)]
    return min(scored, key=lambda pair: pair[0])[1] if scored else []


def _scores(group: Sequence[CellRecord]) -> list[float]:
    """Held-out scores of a combination; one failed or unscored cell rules it out."""
    scores = [r.results.get(RANKED_BY) if r.results else None for r in group]
    return [math.nan if score is None else score for score in scores]


# Fitted cells and the sampled cells of the same posterior


LADDER = "ladder.csv"
"""File of a results folder with its repair ladder: a row for each posterior and method."""

CHAINS = "chains"
"""Mixture of sampled cells in tables; fits have that of their restarts."""

ERRORS = 3.0
"""Monte-Carlo standard errors that a bound of the evidence must be above by."""


def model_key(record: CellRecord) -> tuple[Hashable, ...]:
    """Key of a posterior: its settings and data, and the scale where one was chosen."""
    return *posterior_key(record), record.results.get("scale")


def posterior_key(record: CellRecord) -> tuple[Hashable, ...]:
    """Key of a posterior and its predictions, by settings and data."""
    return record.fingerprint, record.cell.posterior


def pairs(records: Sequence[CellRecord]) -> Iterator[tuple[CellRecord, CellRecord]]:
    """Every fitted cell with each valid sampled one of the same posterior.

    Where a scale was tuned and the two cells chose different ones, the posteriors differ.
    """
    yield from _fits_with_samplers(records, model_key)


def other_scales(records: Sequence[CellRecord]) -> list[tuple[CellRecord, CellRecord]]:
    """Fitted and sampled cells of the same settings that chose different scales."""
    every = _fits_with_samplers(records, posterior_key)
    return [pair for pair in every if len(set(map(model_key, pair))) > 1]


def _fits_with_samplers(
    records: Sequence[CellRecord], key: Callable[[CellRecord], tuple]
) -> Iterator[tuple[CellRecord, CellRecord]]:
    finished = [r for r in valid_cells(records) if r.results]
    sampled = grouped((r for r in finished if r.cell.samples_posterior), key)
    for record in finished if sampled else ():
        if not record.cell.samples_posterior and not record.cell.is_tempered:
            yield from ((record, other) for other in sampled.get(key(record), ()))


def sampler_pairs(
    records: Sequence[CellRecord], key: Callable[[CellRecord], tuple] = model_key
) -> Iterator[tuple[CellRecord, CellRecord]]:
    """Every further sampled cell of a posterior with the first one: other engines, steps, seeds.

    Invalid ones are left out; cells of one posterior have one `key`.
    """
    first: dict[tuple, CellRecord] = {}
    for record in valid_cells(records):
        if not record.results or not record.cell.samples_posterior:
            continue
        other = first.setdefault(key(record), record)
        if other is not record:
            yield record, other


def invalid_chains(records: Sequence[CellRecord]) -> dict[str, str]:
    """Reasons why sampled cells cannot be of the posterior, by name.

    The log evidence is the posterior's mean log-likelihood less its divergence from the prior. So
    that mean is no lower than any ELBO or evidence of the same model; chains that are all stuck in
    one place, which agree with each other, may be.
    """
    if not any(record.cell.samples_posterior for record in records):
        return {}
    bounds: dict[tuple, list[tuple[float, str]]] = {}
    for record in records:
        if bounds_evidence(record):
            name = "log_evidence" if record.cell.is_sampled else "elbo"
            bound = record.results.get(name)
            error = record.results.get(f"{name}_mcse", 0.0)
            if bound is not None:
                words = name.replace("_", " ").replace("elbo", "ELBO")
                bounds.setdefault(model_key(record), []).append((bound - ERRORS * error, words))
    reasons = {}
    for record in records:
        mean, lower = record.results.get("log_likelihood"), bounds.get(model_key(record))
        if lower and mean is not None and record.cell.samples_posterior:
            bound, name = max(lower)
            if mean + ERRORS * record.results["log_likelihood_mcse"] < bound:
                reasons[record.name] = (
                    f"{record.name}: these draws are not of the posterior, whatever their R-hat "
                    f"says: their mean log-likelihood is {mean:.1f} nats, and the {name} of the "
                    f"same model is {bound:.1f}"
                )
    return reasons


def bounds_evidence(record: CellRecord) -> bool:
    """Whether the ELBO or evidence of a cell bounds the evidence of its posterior.

    A point has no width, and its objective is a density, as is that of dropout; Laplace's
    approximation of the evidence may be too high; an ensemble is no posterior.
    """
    cell = record.cell
    is_other = cell.lacks_elbo or cell.is_tempered or cell.is_ensemble
    return record.status != "improper" and not is_other


def valid_cells(records: Sequence[CellRecord]) -> list[CellRecord]:
    """Records without those of `invalid_chains`."""
    invalid = invalid_chains(records)
    return [record for record in records if record.name not in invalid]
