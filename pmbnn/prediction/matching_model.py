"""Checks that a model is the one of a stored posterior, by its variables and its log-density."""

from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pymc as pm

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
    for expected, got in zip_longest(stored, map(list, variables_of(model))):
        if got != expected:
            expected, got = (
                f"`{variable[0]}` of shape {tuple(variable[1])}"
                if variable
                else "no further free variable"
                for variable in (expected, got)
            )
            raise ValueError(
                f"`model` must have the free variables of the posterior in `{path}`, in their "
                f"order: {expected}, got {got}."
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
        by_term = read(np.asarray(values, np.float64), *model_values(model).values())
    return {name: np.asarray(term).tolist() for name, term in zip(terms, by_term, strict=True)}


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
    terms = log_density_terms(model, values)
    if terms.keys() != stored.keys():
        expected, got = (", ".join(sorted(t.keys() - {PRIOR})) for t in (stored, terms))
        raise ValueError(
            f"`model` must have the observed variables of the posterior in `{path}`: "
            f"{expected or 'none'}, got {got or 'none'}."
        )
    for name, term in terms.items():
        same = np.isclose(term, stored[name], RELATIVE, ABSOLUTE, equal_nan=True)
        if same.all():
            continue
        i = int(np.argmin(same))
        what = f"log-likelihood of `{name}`" if name else "log-density of prior and potentials"
        cause = "likelihood or data" if name else "prior or potential"
        raise ValueError(
            f"`model` must be that of the posterior in `{path}`: at the stored "
            f"draws the {what} differs, {_nats(stored[name][i])} stored, {_nats(term[i])} now. "
            f"It has another {cause}."
        )


def _nats(value: float) -> str:
    return "not a number" if np.isnan(value) else f"{value:.8g}"
