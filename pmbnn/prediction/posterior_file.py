"""Posteriors as netCDF files: settings, arrays and draws, and no code."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pymc as pm
import xarray as xr
from pydantic import ValidationError

from pmbnn.core.machine import check_fits
from pmbnn.core.spec import ORIGINS, SESSION, Registry, Specification, digests_of, plain
from pmbnn.data.arrays import Rows, Standardisation, identity_standardisation
from pmbnn.inference.batches import model_values
from pmbnn.inference.flat import flat_vector, flatten_model, n_observations, value_shapes
from pmbnn.inference.guides import build_guide
from pmbnn.inference.samplers.chains import Chains, Convergence, Evidence, Samples
from pmbnn.inference.samplers.settings import SAMPLING
from pmbnn.inference.settings import Inference
from pmbnn.inference.xla.compile import precision
from pmbnn.models.build import ROW_DATA, NetworkParts, parts_of
from pmbnn.models.hyperpriors import HYPERPRIORS
from pmbnn.models.likelihoods import LIKELIHOODS
from pmbnn.models.networks import NETWORKS
from pmbnn.models.priors import PRIORS
from pmbnn.prediction.draws import GuideDraws, KeptDraws, first_draws, over_draws
from pmbnn.prediction.predictor import NetworkModel
from pmbnn.prediction.trace_file import load_tree, write_trace

if TYPE_CHECKING:
    from pmbnn.prediction.posterior import Posterior


# Checks that a model is the one of a stored posterior, by its variables and its log-density


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


GROUP = "pmbnn"
"""Group with the parts of a posterior beside the draws that ArviZ reads."""

FORMAT = 4
"""Version of that group; files of other versions are refused."""

TEXTS = ("settings", "variables", "log_density", "parts", "plugins")
"""Attributes that are JSON."""

NAMED = ("status", "reason", "draws_of", "n_draws", "best", "dtype")
"""Attributes of a posterior that are text or numbers."""

ROW_NAMES = ("features", "classes", "input_shape", "target_names")
"""Attributes of rows that are no arrays."""

CHECKED = 4
"""Draws at which the log-density of a given model is compared with the stored one."""

SECTIONS: dict[str, Registry] = {
    "network": NETWORKS,
    "prior": PRIORS,
    "hyperprior": HYPERPRIORS,
    "likelihood": LIKELIHOODS,
}
"""Parts of a model, and where their classes are registered."""


def save(posterior: "Posterior", path: Path, further: xr.Dataset | None = None) -> None:
    """Write a posterior as `Posterior.save` does, with further arrays beside it."""
    tree = posterior.to_datatree()
    tree[GROUP] = xr.DataTree(_of_posterior(posterior))
    if further is not None:
        tree[f"{GROUP}/further"] = xr.DataTree(further)
    write_trace(tree, path)


def read_fields(
    path: Path, model: pm.Model | None = None
) -> tuple[dict[str, Any], xr.Dataset | None]:
    """Fields of the posterior in a file, and the further arrays that were written beside it.

    See `pmbnn.load` for arguments and errors.
    """
    if model is not None and not isinstance(model, pm.Model):
        raise TypeError(f"`model` must be a pm.Model, got {type(model).__name__}.")
    tree = _opened(path)
    group = tree[GROUP]
    further = group["further"].to_dataset() if "further" in group.children else None
    stored = group.to_dataset()
    if stored.attrs.get("format") != FORMAT:
        raise ValueError(
            f"`{path}` must be in format {FORMAT}, got format {stored.attrs.get('format')}: "
            "save it again with this version."
        )
    del tree[GROUP]
    try:
        texts = {name: json.loads(stored.attrs[name]) for name in TEXTS}
        origin = _origin(path, model, texts, stored)
        return _fields(origin, tree, texts["settings"], stored), further
    except (KeyError, ValidationError, json.JSONDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"`{path}` is damaged, or of another version: {reason}.") from error


def _opened(path: Path) -> xr.DataTree:
    """Everything in a file, in memory."""
    if not path.is_file():
        raise FileNotFoundError(f"`{path}` does not exist.")
    with _reading(path):
        opened = xr.open_datatree(path, engine="netcdf4")
    with opened:
        check_fits(opened.nbytes, path)
        with _reading(path):
            tree = load_tree(opened)
    if GROUP not in tree.children:
        raise ValueError(
            f"`{path}` is no file of a posterior, or of an earlier version: it has no group "
            f"`{GROUP}`."
        )
    return tree


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn errors of netCDF into a ValueError that names the file."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"`{path}` is no file of a posterior, or is damaged: {error}.") from error


# The model


def _network(origin: pm.Model | NetworkModel) -> NetworkModel | None:
    """A model that can be built again from its parts; None of another."""
    if isinstance(origin, NetworkModel):
        return origin
    parts = parts_of(origin)
    if parts is None or not _is_as_built(origin, parts):
        return None
    values, rows = model_values(origin), parts.rows
    rows = replace(rows, x=values["x"], y=values["target"])
    maps = map(identity_standardisation, (len(rows.features), rows.n_targets))
    return NetworkModel(replace(parts, rows=rows.take([0])), rows, *maps)


def _is_as_built(model: pm.Model, parts: NetworkParts) -> bool:
    """Whether nothing was added to a model since it was built, and no constant was changed."""
    built, values = parts.build(), model_values(model)
    constants = {name: value for name, value in parts.data.items() if name not in ROW_DATA}
    return (
        value_shapes(built) == value_shapes(model)
        and built.named_vars.keys() == model.named_vars.keys()
        and all(np.array_equal(values[name], value) for name, value in constants.items())
    )


def _origin(
    path: Path, model: pm.Model | None, texts: Mapping[str, Any], stored: xr.Dataset
) -> pm.Model | NetworkModel:
    """The given model if it is that of the file, or the network that the file describes."""
    if model is not None:
        check_variables(path, model, texts["variables"])
    if not texts["parts"]:
        if model is None:
            raise ValueError(
                f"`model` must be given for `{path}`: it is not one that this package builds."
            )
        check_log_density(path, model, stored["checked"].values, texts["log_density"])
        return model
    network = _stored_network(path, texts, stored)
    if model is None:
        return network
    given, maps = _network(model), (network.standardisation, network.target_standardisation)
    if given is None or not all(standardisation.is_identity for standardisation in maps):
        raise ValueError(
            f"`model` must be left out for `{path}`, or be the network that it describes, as this "
            "package builds it on rows that are not standardised, got another model."
        )
    _check_network(path, network, given)
    return model


def _stored_network(path: Path, texts: Mapping[str, Any], stored: xr.Dataset) -> NetworkModel:
    parts, plugins = texts["parts"], texts["plugins"]
    try:
        specs = {name: read_part(name, parts[name]) for name in SECTIONS}
    except KeyError:
        specs = {}
    if not specs or set().union(*map(digests_of, specs.values())) != plugins.keys():
        names = [
            "a class typed into a notebook" if name == SESSION else f"`{name}`"
            for name in plugins.values()
        ]
        raise ValueError(
            f"`{path}` needs {' and '.join(names) or 'the parts of this package'} as it was at the "
            "fit, which is not registered here, or has changed since: register it as it was, or "
            "fit again."
        )
    names = {name: tuple(parts["rows"][name]) for name in ROW_NAMES}
    rows = Rows(stored["x"].values, stored["target"].values, **names)
    maps = [
        Standardisation(stored[f"{name}mean"].values, stored[f"{name}sd"].values)
        for name in ("", "target_")
    ]
    return NetworkModel(NetworkParts(**specs, rows=rows.take([0])), rows, *maps)


def _check_network(path: Path, stored: NetworkModel, given: NetworkModel) -> None:
    """Raise ValueError unless a network has the parts and training rows of a stored one."""
    for name in SECTIONS:
        expected, got = (getattr(network.parts, name) for network in (stored, given))
        if got != expected:
            raise ValueError(
                f"`model` must have the {name} of the posterior in `{path}`, "
                f"{expected.model_dump(mode='json')}, got {got.model_dump(mode='json')}."
            )
    # What a file keeps of rows: how they were standardised is not among it.
    for name in ("x", "y", *ROW_NAMES):
        expected, got = (getattr(network.rows, name) for network in (stored, given))
        if isinstance(expected, np.ndarray):
            same = expected.shape == got.shape and np.allclose(expected, got, RELATIVE)
        else:
            same = expected == got
        if not same:
            raise ValueError(
                f"`model` must have the training rows of the posterior in `{path}`, got others: "
                f"`{name}` differs."
            )


def section_of(spec: Specification) -> str:
    """Name of the section that a part of a model belongs to.

    Raises
    ------
    ValueError
        If its class is not registered.
    """
    for name, classes in SECTIONS.items():
        if type(spec) in classes.values():
            return name
    raise ValueError(f"{type(spec).__name__} must be registered to be saved: see pmbnn.register.")


def read_part(section: str, settings: Mapping[str, Any]) -> Specification:
    """The part of a model with these settings; a KeyError names an unknown class."""
    return SECTIONS[section].class_of(settings).model_validate_json(json.dumps(settings))


# The posterior


def _of_posterior(posterior: "Posterior") -> xr.Dataset:
    """The group of a posterior: everything but its draws by name."""
    origin, best = posterior.origin, posterior.sources[posterior.best]
    network = _network(origin)
    model = origin if isinstance(origin, pm.Model) else network.graph_model
    arrays = {
        "number": np.array([*posterior.sources]),
        "weight": np.array([posterior.weights[i] for i in posterior.sources]),
    }
    parts, plugins, terms = {}, {}, {}
    if network is None:
        # The file does not describe the model, whose log-density tells it from others.
        arrays["checked"] = first_draws(best, best.n_distinct(CHECKED), posterior.dtype)
        terms = log_density_terms(model, arrays["checked"])
    else:
        specs, rows = [getattr(network.parts, name) for name in SECTIONS], network.rows
        parts = {section_of(spec): spec.model_dump(mode="json") for spec in specs}
        parts["rows"] = {name: getattr(rows, name) for name in ROW_NAMES}
        digests = set().union(*map(digests_of, specs))
        plugins = {o.digest: o.name for o in ORIGINS.values() if o.digest in digests}
        maps = {"": network.standardisation, "target_": network.target_standardisation}
        arrays |= {"x": rows.x, "target": rows.y}
        arrays |= {f"{name}mean": map_.mean for name, map_ in maps.items()}
        arrays |= {f"{name}sd": map_.sd for name, map_ in maps.items()}
    sources = list(posterior.sources.values())
    arrays |= _guide_arrays(sources) if posterior.samples is None else _chain_arrays(posterior)
    settings, variables = posterior.settings.model_dump(mode="json"), variables_of(model)
    texts = dict(zip(TEXTS, (settings, variables, terms, parts, plugins), strict=True))
    attrs = {"format": FORMAT} | {name: json.dumps(text) for name, text in texts.items()}
    attrs |= {name: getattr(posterior, name) for name in NAMED}
    return dataset_of(arrays).assign_attrs(attrs)


def dataset_of(arrays: Mapping[str, Any]) -> xr.Dataset:
    """Arrays by name, each with dims of its own."""
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    return xr.Dataset({n: ([f"{n}_{i}" for i in range(a.ndim)], a) for n, a in arrays.items()})


def _guide_arrays(sources: Sequence[GuideDraws]) -> dict[str, Any]:
    guide = sources[0].guide
    arrays = {
        name: np.stack([source.parameters[name] for source in sources])
        for name in guide.constrained_shapes
    }
    arrays["draw_key"] = np.stack([source.draw_key for source in sources])
    arrays["is_improper"] = guide.scale_cap is not None
    spread = getattr(guide, "spread", None)
    return arrays if spread is None else arrays | {"spread": spread}


def _chain_arrays(posterior: "Posterior") -> dict[str, Any]:
    samples, agreement = posterior.samples, posterior.samples.convergence
    arrays = {"kept": np.stack([source.values for source in posterior.sources.values()])}
    arrays |= {"values": samples.chains.values, "broken": samples.chains.broken}
    arrays |= {f"statistic_{n}": array for n, array in samples.chains.statistics.items()}
    arrays |= {f"tuned_{name}": value for name, value in samples.tuned.items()}
    if agreement is not None:
        arrays["convergence"] = [agreement.percentile, agreement.largest, agreement.draws]
    if samples.log_evidence is not None:
        arrays["evidence"] = [*samples.log_evidence]
    return arrays


def _fields(
    origin: pm.Model | NetworkModel,
    tree: xr.DataTree,
    settings: Mapping[str, Any],
    stored: xr.Dataset,
) -> dict[str, Any]:
    """Fields of a posterior."""
    settings = SAMPLING.get(settings["engine"], Inference).model_validate_json(json.dumps(settings))
    is_fit = isinstance(settings, Inference)
    numbers = stored["number"].values.tolist()
    sources = _guides(settings, stored) if is_fit else map(KeptDraws, stored["kept"].values)
    return dict(
        origin=origin,
        settings=settings,
        sources=dict(zip(numbers, sources, strict=True)),
        weights=dict(zip(numbers, stored["weight"].values.tolist(), strict=True)),
        **{name: plain(stored.attrs[name]) for name in NAMED},
        history=tree["fit"].to_dataset() if is_fit else None,
        samples=None if is_fit else _samples(stored),
        trace=tree,
    )


def _guides(settings: Inference, stored: xr.Dataset) -> list[GuideDraws]:
    spread = stored["spread"].values if "spread" in stored else None
    guide = build_guide(settings, stored["loc"].shape[-1], bool(stored["is_improper"]), spread)
    return GuideDraws.from_arrays(guide, stored)


def _samples(stored: xr.Dataset) -> Samples:
    def named(start: str) -> dict[str, np.ndarray]:
        names = [str(name) for name in stored if str(name).startswith(start)]
        return {name.removeprefix(start): stored[name].values for name in names}

    convergence = None
    if "convergence" in stored:
        percentile, largest, draws = stored["convergence"].values.tolist()
        convergence = Convergence(percentile, largest, int(draws))
    chains = Chains(stored["values"].values, named("statistic_"), stored["broken"].values)
    tuned = {name: value.item() for name, value in named("tuned_").items()}
    status, reason = (stored.attrs[name] for name in ("status", "reason"))
    evidence = Evidence(*stored["evidence"].values.tolist()) if "evidence" in stored else None
    return Samples(chains, status, reason, convergence, tuned, evidence=evidence)
