"""Names of cells and of their settings: in tables, on axes, in titles and in log lines."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pmbnn.data.base import DatasetSpec
from pmbnn.experiment.cells import Cell, has_scale
from pmbnn.experiment.names import file_label, number_label, short_name
from pmbnn.results.record import CellRecord
from pmbnn.spec import Specification

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

STATED = {KL_WEIGHT: 1, KL_SCALING: "sum"}
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


def label(spec: Specification) -> str:
    """Short name of a specification: ``fixed 0.1``, ``half_normal``."""
    scale = getattr(spec, "scale", None)
    if scale is None:
        return spec.kind
    return f"{spec.kind} {scale:g}" if isinstance(scale, float | int) else f"{spec.kind} (tuned)"


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
    names, rows = [name(one) for one in settings], [settings_row(one) for one in settings]
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
        f"{key} {number_label(value)}"
        for key, value in row.items()
        if any(other.get(key) != value for other in others)
    ]


# Cells


def combination_label(cell: Cell) -> str:
    """Prior and hyperprior: ``laplace × half_normal``."""
    return f"{label(cell.prior)} × {label(cell.hyperprior)}"


def fit_title(cell: Cell) -> str:
    """Prior, hyperprior and method of a cell: ``normal × fixed 1, NUTS``."""
    words = f"{title(cell.prior)} × {scale_title(cell.hyperprior)}"
    if cell.is_sampled:
        return f"{words}, {method_name(cell.inference).upper()}"
    return f"{words}, {method_name(cell.inference).replace('_', ' ')}" if cell.is_point else words


def seed_label(cell: Cell) -> str:
    """Data set and its seed: ``moons, noise 0.4, seed 0``."""
    return f"{dataset_label(cell.dataset)}, seed {cell.data_seed}"


def cell_line(cell: Cell) -> str:
    """Data, seed, prior, hyperprior, and its method unless it is the default."""
    values = ((getattr(cell.inference, name, None), default) for name, default in USUAL.items())
    unusual = [value for value, default in values if value and value != default]
    return ", ".join([seed_label(cell), combination_label(cell), *unusual])


def combination_title(cell: Cell, chosen_scale: float | None = None) -> str:
    """Prior and hyperprior of a cell: ``Normal prior, half-normal hyperprior``.

    A fixed scale is named with its value, which is the chosen one where it was tuned.
    """
    prior = pretty(cell.prior.kind)
    words = f"{prior[0].upper()}{prior[1:]} prior"
    if not cell.has_scale:
        return f"{words}, no scale"
    if cell.scale is None:
        return f"{words}, {pretty(cell.hyperprior.kind)} hyperprior"
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
    """Method of a fit unless it is the default: a sampler, a point, or a tempered posterior."""
    if cell.is_sampled:
        return f", by {method_name(cell.inference).upper()}"
    if cell.is_point:
        return f", {method_name(cell.inference).replace('_', ' ')}"
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
