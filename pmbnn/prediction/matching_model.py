"""Whether a model that is handed over with a stored posterior is the one it was found with."""

from collections.abc import Mapping
from dataclasses import fields
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm

from pmbnn.data.arrays import Rows
from pmbnn.inference.batches import model_values
from pmbnn.inference.flat import flat_vector, flatten_model, n_observations, value_shapes
from pmbnn.inference.xla.compile import precision
from pmbnn.prediction.draws import over_draws

PRIOR = ""
"""Key of the prior among the terms of a log-density, where observed variables have their names."""

RELATIVE, ABSOLUTE = 1e-5, 1e-3
"""By how much terms in double precision may differ: data in single precision, and the rounding of
other machines, change less. The second is in nats."""


def variables_of(model: pm.Model) -> list[tuple[str, list[int]]]:
    """Names and shapes of the unconstrained free variables of a model, in their order."""
    return [(name, [int(n) for n in shape]) for name, shape in value_shapes(model).items()]


def check_variables(path: Path, model: pm.Model, stored: list) -> None:
    """Raise ValueError unless a model has the free variables of a stored posterior."""
    for of_file, of_model in zip_longest(stored, variables_of(model)):
        if of_file is None or of_model is None or list(of_model) != of_file:
            expected, got = (
                "no further free variable" if of is None else f"`{of[0]}` of shape {tuple(of[1])}"
                for of in (of_file, of_model)
            )
            raise ValueError(
                f"`model` must have the free variables of the posterior in `{path}`, in their "
                f"order: {expected}, got {got}."
            )


def check_parts(path: Path, stored: Mapping[str, Any], parts: Mapping[str, Any]) -> None:
    """Raise ValueError unless the parts of a network, as JSON has them, are those of a file."""
    for name, part in stored.items():
        if parts[name] != part:
            raise ValueError(
                f"`model` must have the {name} of the posterior in `{path}`, {part}, "
                f"got {parts[name]}."
            )


def check_rows(path: Path, stored: Rows, rows: Rows) -> None:
    """Raise ValueError unless the training rows of a model are those of a stored posterior."""
    for field in fields(Rows):
        of_file, of_model = getattr(stored, field.name), getattr(rows, field.name)
        if isinstance(of_file, np.ndarray):
            same = of_file.shape == of_model.shape and np.allclose(of_file, of_model, RELATIVE)
        else:
            same = of_file == of_model
        if not same:
            raise ValueError(
                f"`model` must have the training rows of the posterior in `{path}`, got others: "
                f"`{field.name}` differs."
            )


def log_density_terms(model: pm.Model, values: np.ndarray) -> dict[str, list[float]]:
    """Terms of a model's log-density at flat vectors ``(draw, size)``, nats, one for each draw.

    The log-likelihood of each observed variable by its name, and under `PRIOR` the rest: the prior
    on the unconstrained variables, and potentials.
    """
    flat = flatten_model(model, n_observations(model))
    terms = {name: graph.sum() for name, graph in flat.log_likelihoods.items()}
    terms[PRIOR] = sum(flat.potentials.values(), start=flat.log_prior)
    vector = flat_vector(flat)
    with precision("float64"):
        graphs = flat.at(vector, list(terms.values()))
        read = over_draws([vector, *flat.data.values()], graphs, brief=True)
        found = read(np.asarray(values, np.float64), *model_values(model).values())
    return {name: np.asarray(of).tolist() for name, of in zip(terms, found, strict=True)}


def check_log_density(
    path: Path, model: pm.Model, values: np.ndarray, stored: Mapping[str, list[float]]
) -> None:
    """Raise ValueError unless a model has the log-density of a stored posterior at some draws.

    Parameters
    ----------
    values
        Those draws, flat vectors ``(draw, size)``.
    stored
        What `log_density_terms` gave when the posterior was saved.
    """
    found = log_density_terms(model, values)
    if found.keys() != stored.keys():
        expected, got = (", ".join(sorted(of.keys() - {PRIOR})) for of in (stored, found))
        raise ValueError(
            f"`model` must have the observed variables of the posterior in `{path}`: "
            f"{expected or 'none'}, got {got or 'none'}."
        )
    for name, terms in found.items():
        same = np.isclose(terms, stored[name], RELATIVE, ABSOLUTE, equal_nan=True)
        if same.all():
            continue
        i = int(np.argmin(same))
        what = f"log-likelihood of `{name}`" if name else "log-density of prior and potentials"
        cause = "likelihood or data" if name else "prior or potential"
        raise ValueError(
            f"`model` must be the one that the posterior in `{path}` was found with: at the stored "
            f"draws the {what} differs, {_nats(stored[name][i])} stored, {_nats(terms[i])} now. "
            f"It has another {cause}."
        )


def _nats(value: float) -> str:
    return "not a number" if np.isnan(value) else f"{value:.8g}"
