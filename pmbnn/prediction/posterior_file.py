"""Posteriors as netCDF files: settings, arrays and draws, and nothing that is run."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pymc as pm
import xarray as xr
from pydantic import ValidationError

from pmbnn.core.machine import check_fits
from pmbnn.data.arrays import Rows, Standardisation, identity_standardisation
from pmbnn.inference.batches import model_values
from pmbnn.inference.flat import value_shapes
from pmbnn.inference.guides import build_guide
from pmbnn.inference.samplers.chains import Chains, Convergence, Evidence, Samples
from pmbnn.inference.samplers.settings import SAMPLING
from pmbnn.inference.settings import Inference
from pmbnn.models.build import ROW_DATA, NetworkParts, parts_of
from pmbnn.models.likelihoods import LIKELIHOODS
from pmbnn.models.networks import NETWORKS
from pmbnn.models.priors import HYPERPRIORS, PRIORS
from pmbnn.prediction.draws import GuideDraws, KeptDraws, first_draws
from pmbnn.prediction.matching_model import (
    check_log_density,
    check_parts,
    check_rows,
    check_variables,
    log_density_terms,
    variables_of,
)
from pmbnn.prediction.predictor import NetworkModel
from pmbnn.prediction.trace_file import load_tree, write_trace
from pmbnn.spec import Registry, Specification, plain
from pmbnn.spec.origins import ORIGINS, SESSION, digests_of

if TYPE_CHECKING:
    from pmbnn.prediction.posterior import Posterior

GROUP = "pmbnn"
"""Group of what a posterior needs beside the draws that ArviZ reads."""

FORMAT = 4
"""Version of that group; files of other versions are refused."""

TEXTS = ("settings", "variables", "log_density", "parts", "plugins")
"""Attributes that are JSON."""

CHECKED = 4
"""Draws at which the log-density of a model that is handed over is compared with the stored one."""

SECTIONS: dict[str, Registry] = {
    "network": NETWORKS,
    "prior": PRIORS,
    "hyperprior": HYPERPRIORS,
    "likelihood": LIKELIHOODS,
}
"""Parts of a model, and where their classes are registered."""


def save(posterior: "Posterior", path: Path, further: xr.Dataset | None = None) -> None:
    """Write a posterior as `Posterior.save` says, and arrays of others beside it."""
    tree = posterior.to_datatree()
    tree[GROUP] = xr.DataTree(_of_posterior(posterior))
    if further is not None:
        tree[f"{GROUP}/further"] = xr.DataTree(further)
    write_trace(tree, path)


def read_fields(
    path: Path, model: pm.Model | None = None
) -> tuple[dict[str, Any], xr.Dataset | None]:
    """Fields of the posterior in a file, and arrays that were written beside it.

    See `pmbnn.load` for arguments and errors.
    """
    if model is not None and not isinstance(model, pm.Model):
        raise TypeError(f"`model` must be a pm.Model, got {type(model).__name__}.")
    tree = _opened(path)
    group = tree[GROUP]
    further = group["further"].to_dataset() if "further" in group.children else None
    kept = group.to_dataset()
    if kept.attrs.get("format") != FORMAT:
        raise ValueError(
            f"`{path}` must be in format {FORMAT}, got format {kept.attrs.get('format')}: "
            "save it again with this version."
        )
    del tree[GROUP]
    try:
        said = {name: json.loads(kept.attrs[name]) for name in TEXTS}
        origin = _model(path, model, said, kept)
        return _fields(origin, tree, said, kept), further
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
    """Have errors of netCDF over a file be one of its content."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"`{path}` is no file of a posterior, or is damaged: {error}.") from error


# The model


def _network(origin: pm.Model | NetworkModel) -> NetworkModel | None:
    """A model as it can be built again of its parts; None of any that cannot."""
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


def _model(path: Path, model: pm.Model | None, said: Mapping[str, Any], kept: xr.Dataset):
    """The model that is handed over, or the network that a file tells how to build."""
    if model is not None:
        _check_model(path, model, said, kept)
        return model
    if not said["parts"]:
        raise ValueError(
            f"`model` must be given for `{path}`: it is not one that this package builds."
        )
    specs = {name: _part(path, name, said["parts"][name], said) for name in SECTIONS}
    strange = set().union(*map(digests_of, specs.values())) ^ said["plugins"].keys()
    if strange:
        raise _unregistered(path, said)
    rows = _rows(said, kept)
    return NetworkModel(NetworkParts(**specs, rows=rows.take([0])), rows, *_maps(kept))


def _check_model(path: Path, model: pm.Model, said: Mapping[str, Any], kept: xr.Dataset) -> None:
    """Raise ValueError unless a model that is handed over is the one of a stored posterior."""
    check_variables(path, model, said["variables"])
    if not said["parts"]:
        check_log_density(path, model, kept["checked"].values, said["log_density"])
        return
    if not all(of.is_identity for of in _maps(kept)):
        raise ValueError(
            f"`model` must be left out for `{path}`: it is built with what standardises rows."
        )
    network = _network(model)
    if network is None:
        raise ValueError(
            f"`model` must be left out for `{path}`, or be the network that it describes as this "
            "package builds it, got another model."
        )
    check_parts(path, {n: said["parts"][n] for n in SECTIONS}, _parts(network))
    check_rows(path, _rows(said, kept), network.training)
    if _plugins(network.parts).keys() != said["plugins"].keys():
        raise _unregistered(path, said)


def _maps(kept: xr.Dataset) -> list[Standardisation]:
    """Of inputs and targets."""
    return [
        Standardisation(kept[f"{name}mean"].values, kept[f"{name}sd"].values)
        for name in ("", "target_")
    ]


def _rows(said: Mapping[str, Any], kept: xr.Dataset) -> Rows:
    names = {name: tuple(entries) for name, entries in said["parts"]["rows"].items()}
    return Rows(kept["x"].values, kept["target"].values, **names)


def _parts(network: NetworkModel) -> dict[str, Any]:
    """The parts of a model as JSON has them."""
    specs = {name: getattr(network.parts, name) for name in SECTIONS}
    rows, names = network.parts.rows, ("features", "classes", "input_shape", "target_names")
    return {name: written(spec) for name, spec in specs.items()} | {
        "rows": {name: getattr(rows, name) for name in names}
    }


def _part(path: Path, section: str, spec: Mapping[str, Any], said: Mapping) -> Specification:
    try:
        return read_part(section, spec)
    except KeyError as error:
        if said["plugins"]:
            raise _unregistered(path, said) from error
        raise ValueError(f"`{path}` needs the {section} {error}, which is not known.") from error


def _unregistered(path: Path, said: Mapping[str, Any]) -> ValueError:
    names = [
        "a class typed into a notebook" if name == SESSION else f"`{name}`"
        for name in said["plugins"].values()
    ]
    return ValueError(
        f"`{path}` needs {' and '.join(names) or 'the parts of this package'} as it was at the "
        "fit, which is not registered here, or has changed since: register it as it was, or fit "
        "again."
    )


def written(spec: Specification) -> dict[str, Any]:
    """A part of a model as JSON has it.

    Raises
    ------
    ValueError
        If its class is not registered.
    """
    if not any(type(spec) in classes.values() for classes in SECTIONS.values()):
        raise ValueError(
            f"{type(spec).__name__} must be registered to be saved: see pmbnn.register."
        )
    return spec.model_dump(mode="json")


def read_part(section: str, settings: Mapping[str, Any]) -> Specification:
    """A part as `written` wrote it; a KeyError names what is unknown."""
    return SECTIONS[section].class_of(settings).model_validate_json(json.dumps(settings))


def _plugins(parts: NetworkParts) -> dict[str, str]:
    """Names of the sources of one's own that a model is made of, by their SHA-256."""
    digests = set().union(*(digests_of(getattr(parts, name)) for name in SECTIONS))
    return {o.digest: o.name for o in ORIGINS.values() if o.digest in digests}


# The posterior


def _of_posterior(posterior: "Posterior") -> xr.Dataset:
    """What is kept of a posterior beside its draws."""
    origin, network, terms = posterior.origin, _network(posterior.origin), {}
    model = origin.graph_model if isinstance(origin, NetworkModel) else origin
    arrays = {
        "number": np.array([*posterior.sources]),
        "weight": np.array([posterior.weights[i] for i in posterior.sources]),
    }
    if network is None:
        # The file does not describe the model, whose log-density tells it from others.
        best = posterior.sources[posterior.best]
        arrays["checked"] = first_draws(best, best.n_distinct(CHECKED), posterior.dtype)
        terms = log_density_terms(model, arrays["checked"])
    texts = {
        "settings": posterior.settings.model_dump(mode="json"),
        "variables": variables_of(model),
        "log_density": terms,
        "parts": {} if network is None else _parts(network),
        "plugins": {} if network is None else _plugins(network.parts),
    }
    attrs = {"format": FORMAT} | {name: json.dumps(text) for name, text in texts.items()}
    attrs |= {name: getattr(posterior, name) for name in NAMED}
    if network is not None:
        training, of_targets = network.training, network.target_standardisation
        rows = training() if callable(training) else training
        arrays |= {"x": rows.x, "target": rows.y}
        arrays |= {"mean": network.standardisation.mean, "sd": network.standardisation.sd}
        arrays |= {"target_mean": of_targets.mean, "target_sd": of_targets.sd}
    sources = list(posterior.sources.values())
    more = _guide_arrays(sources) if posterior.samples is None else _chain_arrays(posterior)
    found = xr.Dataset({n: _numbered(n, np.asarray(a)) for n, a in (arrays | more).items()})
    return found.assign_attrs(attrs)


NAMED = ("status", "reason", "draws_of", "n_draws", "best", "dtype")
"""Attributes of a posterior that are text or numbers."""


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
    samples, found = posterior.samples, posterior.samples.convergence
    arrays = {"kept": np.stack([source.values for source in posterior.sources.values()])}
    arrays |= {"values": samples.chains.values, "broken": samples.chains.broken}
    arrays |= {f"statistic_{n}": array for n, array in samples.chains.statistics.items()}
    arrays |= {f"tuned_{name}": value for name, value in samples.tuned.items()}
    if found is not None:
        arrays["convergence"] = [found.percentile, found.largest, found.draws]
    if samples.log_evidence is not None:
        arrays["evidence"] = [*samples.log_evidence]
    return arrays


def _fields(origin, tree: xr.DataTree, said: Mapping[str, Any], kept: xr.Dataset) -> dict[str, Any]:
    settings = said["settings"]
    settings = SAMPLING.get(settings["engine"], Inference).model_validate_json(json.dumps(settings))
    is_fit = isinstance(settings, Inference)
    numbers = kept["number"].values.tolist()
    sources = _guides(settings, kept) if is_fit else map(KeptDraws, kept["kept"].values)
    return dict(
        origin=origin,
        settings=settings,
        sources=dict(zip(numbers, sources, strict=True)),
        weights=dict(zip(numbers, kept["weight"].values.tolist(), strict=True)),
        **{name: plain(kept.attrs[name]) for name in NAMED},
        history=tree["fit"].to_dataset() if is_fit else None,
        samples=None if is_fit else _samples(kept),
        trace=tree,
    )


def _guides(settings: Inference, kept: xr.Dataset) -> list[GuideDraws]:
    spread = kept["spread"].values if "spread" in kept else None
    guide = build_guide(settings, kept["loc"].shape[-1], bool(kept["is_improper"]), spread)
    return GuideDraws.restored(guide, kept)


def _samples(kept: xr.Dataset) -> Samples:
    def named(start: str) -> dict[str, np.ndarray]:
        found = {str(name): kept[name].values for name in kept if str(name).startswith(start)}
        return {name.removeprefix(start): array for name, array in found.items()}

    convergence = None
    if "convergence" in kept:
        percentile, largest, draws = kept["convergence"].values.tolist()
        convergence = Convergence(percentile, largest, int(draws))
    chains = Chains(kept["values"].values, named("statistic_"), kept["broken"].values)
    tuned = {name: value.item() for name, value in named("tuned_").items()}
    status, reason = (kept.attrs[name] for name in ("status", "reason"))
    evidence = Evidence(*kept["evidence"].values.tolist()) if "evidence" in kept else None
    return Samples(chains, status, reason, convergence, tuned, evidence=evidence)


def _numbered(name: str, array: np.ndarray) -> tuple[list[str], np.ndarray]:
    """An array with dims of its own."""
    return [f"{name}_{axis}" for axis in range(array.ndim)], array
