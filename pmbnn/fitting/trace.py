"""A fitted cell as an xarray tree that ArviZ reads.

``posterior`` is what the cell predicts with: one chain of draws of its best restart, or of the
mixture of its restarts, each restart as often as its weight says. ``posterior_predictive``,
``log_likelihood`` and ``sample_stats`` belong to these draws. Where a cell has several restarts,
``restarts`` holds the same variables of each of them, whatever its weight, and ``fit`` and
``guide`` have the way and the parameters of each. Groups made of draws say in their attribute
``draws_of`` what these are draws of.

Small networks are kept in full. Of large ones, the posterior of the last layer and of all
scales is kept; the guide and its PRNG keys are, so that everything else can be drawn
again (`pmbnn.results.restore`), and the training rows are named by fingerprint only.

Several targets have a dim ``target_name`` in all groups but ``log_likelihood``, which is of rows:
what leave-one-out leaves out is a row with all its targets.

Where targets were standardised, what belongs to the model speaks of standardised ones, and
predictions of those in original units, as the attribute ``target_units`` of a group says;
``constant_data`` has the map between the two.

What a sampler's cell keeps is told in `pmbnn.fitting.sampling`.
"""

import json
from dataclasses import dataclass

import numpy as np
import pymc as pm
import xarray as xr

from pmbnn.data.arrays import Dataset
from pmbnn.experiment.cost import is_large
from pmbnn.fitting.evaluation import Evaluation
from pmbnn.fitting.inferred import InferredCell
from pmbnn.fitting.prediction_groups import diagnosis_arrays, prediction_groups, target_axes
from pmbnn.fitting.sampling import LARGE_TRACE_DRAWS, is_kept_of_large, sampled_groups
from pmbnn.fitting.snapshots import Diagnosis
from pmbnn.models.likelihoods import TARGET_NAME
from pmbnn.prediction.datatree import history_of
from pmbnn.prediction.draws import DrawSource, log_density_of_mixture
from pmbnn.prediction.posterior import source_of_draws
from pmbnn.prediction.predictor import Predictor
from pmbnn.results.reading import PHOTOGRAPHS

TARGET_UNITS = dict.fromkeys(
    (
        "posterior",
        "restarts",
        "draws",
        "posterior_predictive",
        "log_likelihood",
        "sample_stats",
        "observed_data",
    ),
    "standardised",
)
"""Units of targets in groups that belong to the model, where a data set standardises them."""


@dataclass(frozen=True)
class TraceDraws:
    """Draws that a trace keeps.

    Attributes
    ----------
    of_restart
        The first draws of the flat vector by each restart that did not diverge, ``(draw, size)``,
        by its number; none of a large network, unless densities are asked for.
    named
        Variables at these draws by name, ``(draw, *shape)`` each; of a large network the last
        layer and all scales.
    restart
        The restart that each draw of the posterior is of, ``(draw,)``: draw ``k`` is the ``k``-th
        of its restart.
    """

    of_restart: dict[int, np.ndarray]
    named: dict[int, dict[str, np.ndarray]]
    restart: np.ndarray

    @property
    def posterior(self) -> np.ndarray:
        """Draws of the posterior, ``(draw, size)``."""
        return self.pick(self.of_restart)

    def pick(self, of_restart: dict[int, np.ndarray]) -> np.ndarray:
        """What belongs to the draws of the posterior, from what belongs to those of restarts."""
        return np.stack([of_restart[i][k] for k, i in enumerate(self.restart)])


def build_trace(
    fitted: InferredCell,
    evaluation: Evaluation,
    dataset: Dataset,
    predictor: Predictor,
    model: pm.Model,
) -> xr.DataTree:
    """Trace of a cell; `model` gives the dims and coordinates of its variables."""
    large, spec = is_large(fitted.cell), fitted.cell.dataset
    # A figure of curves shows the rows, which are few.
    keeps_rows = not large or bool(evaluation.curves)
    if fitted.samples is not None:
        groups = sampled_groups(fitted, predictor, model, large)
    else:
        groups = _guide_groups(fitted, evaluation, predictor, model, large)
    groups["constant_data"] = _constant_data(dataset, keeps_rows, spec.is_user_data)
    if keeps_rows:
        targets = (target_axes("observation", dataset), dataset.y_train)
        groups["observed_data"] = xr.Dataset({"y": targets})
    predictions = prediction_groups(evaluation.test, fitted, evaluation, dataset, predictor)
    for group in predictions.values():
        group.attrs.setdefault("draws_of", fitted.draws_of)
        if spec.image_shape is not None and not spec.has_bright_foreground:
            group.attrs[PHOTOGRAPHS] = 1
    groups |= predictions
    for name in ("observed_data", "constant_data") if keeps_rows else ():
        groups[name] = groups[name].assign_coords(_row_coords(groups[name], model))
    for name, group in groups.items():
        if TARGET_NAME in group.dims:
            groups[name] = group.assign_coords({TARGET_NAME: list(dataset.target_names)})
    if not dataset.target_standardisation.is_identity:
        for name, units in TARGET_UNITS.items() | dict.fromkeys(predictions, "original").items():
            if name in groups:
                groups[name].attrs["target_units"] = units
    return xr.DataTree.from_dict({f"/{name}": group for name, group in groups.items()})


def _guide_groups(
    fitted: InferredCell, evaluation: Evaluation, predictor: Predictor, model: pm.Model, large: bool
) -> dict[str, xr.Dataset]:
    """What is kept of draws of guides, and the guides."""
    kept = _trace_draws(fitted, predictor, large)
    groups = _variable_groups(fitted, kept, model)
    groups |= {
        "fit": _fit_group(fitted, evaluation.diagnosis),
        "guide": _guide_group(fitted, predictor),
    }
    if not large or fitted.cell.predict.log_likelihood:
        groups |= _density_groups(fitted, predictor, kept)
    if not large:
        groups["posterior_predictive"] = _posterior_predictive(fitted, predictor, kept)
    return groups


def _trace_draws(fitted: InferredCell, predictor: Predictor, large: bool) -> TraceDraws:
    draws = fitted.cell.predict.trace_draws
    if large:
        draws = max(draws, LARGE_TRACE_DRAWS)
    sources = fitted.sources
    named = {i: _named(fitted, predictor, s, draws, large) for i, s in sources.items()}
    values = {}
    if not large or fitted.cell.predict.log_likelihood:
        values = {i: predictor.values(source, draws) for i, source in sources.items()}
    restart = source_of_draws(sources, fitted.weights, fitted.best, draws)
    return TraceDraws(values, named, restart)


def _named(
    fitted: InferredCell, predictor: Predictor, source: DrawSource, draws: int, large: bool
) -> dict[str, np.ndarray]:
    """Variables by name at the first draws of a source, a few of which are in memory at a time."""
    parts = []
    for block in predictor.blocks(source, draws):
        named = predictor.posterior(fitted.data, block)
        names = [name for name in named if not large or is_kept_of_large(name, named)]
        parts.append({name: named[name] for name in names})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _chain_coords(kept: TraceDraws) -> dict[str, list[int]]:
    return {"chain": [0], "draw": list(range(len(kept.restart)))}


def _variable_groups(fitted, kept: TraceDraws, model) -> dict[str, xr.Dataset]:
    """``posterior``, and ``restarts`` where there are several: weights and scales by name."""
    names = list(next(iter(kept.named.values())))
    dims = {name: model.named_vars_to_dims.get(name, ()) for name in names}
    of_name = {name: {i: named[name] for i, named in kept.named.items()} for name in names}
    used = {dim for name in names for dim in dims[name]}
    labels = {name: list(label) for name, label in model.coords.items() if name in used}
    picked = {
        name: (("chain", "draw", *dims[name]), kept.pick(of_name[name])[None].astype("f4"))
        for name in names
    }
    attrs = {"draws_of": fitted.draws_of}
    groups = {"posterior": xr.Dataset(picked, _chain_coords(kept) | labels, attrs)}
    if len(fitted.fits) > 1:
        every = {
            name: (("restart", "draw", *dims[name]), np.stack([*array.values()]).astype("f4"))
            for name, array in of_name.items()
        }
        coords = {"restart": list(kept.named), "draw": list(range(len(kept.restart)))}
        attrs = {"draws_of": "the guide of each restart that did not diverge"}
        groups["restarts"] = xr.Dataset(every, coords | labels, attrs)
    return groups


def _density_groups(fitted, predictor, kept: TraceDraws) -> dict[str, xr.Dataset]:
    log_likelihood, log_p = predictor.log_joint(fitted.data, kept.posterior)
    sources, weights = fitted.sources.values(), fitted.weights.values()
    log_q = log_density_of_mixture(sources, weights, kept.posterior)
    coords, attrs = _chain_coords(kept), {"draws_of": fitted.draws_of}
    axes = ("chain", "draw")
    of_rows = {"y": ((*axes, "observation"), log_likelihood[None].astype("f4"))}
    of_draws = {"log_p": (axes, log_p[None]), "log_q": (axes, log_q[None])}
    return {
        "log_likelihood": xr.Dataset(of_rows, coords, attrs),
        "sample_stats": xr.Dataset(of_draws, coords, attrs),
    }


def _posterior_predictive(fitted, predictor, kept: TraceDraws) -> xr.Dataset:
    """Targets drawn at the training rows, one for each posterior draw."""
    rng = np.random.default_rng([*fitted.fits[fitted.best].keys.draws, 1])
    targets = predictor.observations(fitted.data, kept.posterior, rng)
    attrs = {"draws_of": fitted.draws_of}
    axes = ("chain", "draw", "observation", TARGET_NAME)[: 1 + targets.ndim]
    return xr.Dataset({"y": (axes, targets[None])}, _chain_coords(kept), attrs)


def _fit_group(fitted: InferredCell, diagnosis: Diagnosis | None) -> xr.Dataset:
    """ELBO histories and snapshots; a restart that stopped early ends in not-a-number."""
    attrs = {
        "status": json.dumps([fit.status for fit in fitted.fits]),
        "best": fitted.best,
        "kl_forms": json.dumps(dict(fitted.fits[0].kl_forms)),
    }
    arrays = {
        "learning_rate": (("restart",), [fit.learning_rate for fit in fitted.fits]),
        "weight": (("restart",), [fitted.weights.get(i, 0.0) for i in range(len(fitted.fits))]),
    }
    arrays |= {} if diagnosis is None else diagnosis_arrays(diagnosis)
    return history_of(fitted.fits).assign(arrays).assign_attrs(attrs)


def _guide_group(fitted: InferredCell, predictor: Predictor) -> xr.Dataset:
    """Constrained parameters and PRNG keys, from which every draw can be made again.

    ``scale`` is the standard deviation of every parameter, whatever the guide.
    """
    slots = [[s.name, s.start, list(s.shape)] for s in predictor.flat.layout.slots]
    stacked = {
        name: np.stack([fit.constrained[name] for fit in fitted.fits]).astype("f4")
        for name in fitted.sources[fitted.best].parameters
    }
    stacked["scale"] = np.stack([fit.scale for fit in fitted.fits]).astype("f4")
    keys = np.stack([fit.keys.draws for fit in fitted.fits])
    return xr.Dataset(
        {
            name: (("restart", "parameter", f"{name}_column")[: array.ndim], array)
            for name, array in stacked.items()
        }
        | {"draw_key": (("restart", "word"), keys)},
        coords={"restart": range(len(fitted.fits))},
        attrs={"slots": json.dumps(slots)},
    )


def _row_coords(group: xr.Dataset, model: pm.Model) -> dict[str, list]:
    """Labels of rows and columns as ``pm.sample`` has them: numbers of rows, names of columns."""
    coords = {"observation": range(group.sizes.get("observation", 0))}
    coords["feature"] = model.coords.get("feature") or ()
    return {
        dim: list(labels) for dim, labels in coords.items() if len(labels) == group.sizes.get(dim)
    }


def _constant_data(dataset: Dataset, keeps_rows: bool, is_user_data: bool) -> xr.Dataset:
    attrs = {"fingerprint": dataset.fingerprint, "source": dataset.source}
    arrays = {
        "standardisation_mean": ("feature", dataset.standardisation.mean),
        "standardisation_sd": ("feature", dataset.standardisation.sd),
    }
    if is_user_data:
        # So that a cell can be restored where the file is no longer.
        attrs["input_shape"] = json.dumps(dataset.input_shape)
    if not dataset.target_standardisation.is_identity:
        axis = TARGET_NAME if dataset.target_names else "target"
        arrays["target_mean"] = (axis, dataset.target_standardisation.mean)
        arrays["target_sd"] = (axis, dataset.target_standardisation.sd)
    if keeps_rows:
        arrays["x"] = (("observation", "feature"), dataset.x_train.astype("f4"))
    return xr.Dataset(arrays, attrs=attrs)
