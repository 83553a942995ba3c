"""Predictions of a fitted or sampled cell, and their metrics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, singledispatch
from typing import Any

import numpy as np

from pmbnn.core.spec import METRICS
from pmbnn.data import Synthetic
from pmbnn.data.arrays import Dataset, Line
from pmbnn.data.base import FEWEST_CALIBRATION_ROWS
from pmbnn.experiment.cost import is_large
from pmbnn.fitting.fit import InferredCell, predict_mixture
from pmbnn.fitting.image_evaluation import ImageEvaluation, evaluate_images
from pmbnn.fitting.sampling import trace_values
from pmbnn.fitting.snapshots import Diagnosis, diagnose
from pmbnn.prediction import metrics
from pmbnn.prediction.chain_errors import (
    jackknife_error,
    nll_without_each,
    probabilities_without_each,
)
from pmbnn.prediction.class_probabilities import ClassProbabilities, Predictive, Weights
from pmbnn.prediction.conformal import conformal_metrics
from pmbnn.prediction.density import Density, Moments, predict_moments
from pmbnn.prediction.leave_one_out import (
    LEAST_DRAWS,
    USABLE,
    leave_one_out,
    leave_one_out_of_guide,
    pareto_k,
)
from pmbnn.prediction.metrics import metrics_of
from pmbnn.prediction.predictor import Predictor
from pmbnn.prediction.settings import Map

FRESH_SEED = 2**31
"""Added to the seed of a data set, for its fresh points: far from the seeds in a file."""

FRESH_SCORES = {"excess_error": metrics.excess_error, "excess_nll": metrics.excess_nll}
"""Scores of predictions at fresh points, against the true class probabilities there."""


@dataclass(frozen=True)
class Plane:
    """Predictions over the plane: raw coordinates, and rows with ``x1`` slowest.

    ``of_chains`` are predictions of classes by each chain alone, where there are chains.
    """

    x1: np.ndarray
    x2: np.ndarray
    prediction: ClassProbabilities | Moments
    of_chains: tuple[ClassProbabilities, ...] = ()


@dataclass(frozen=True)
class Curve:
    """A line through the inputs and the predictions there.

    ``of_chains`` are predictions by each chain alone, where there are chains.
    """

    line: Line
    prediction: Density
    of_chains: tuple[Density, ...] = ()


@dataclass(frozen=True)
class Evaluation:
    """Results by name, and the predictions that they are computed from.

    Attributes
    ----------
    results
        Metrics and further numbers.
    test
        Prediction of the test rows, of the kind that the likelihood makes.
    of_chains
        The same by each chain alone, where there are chains.
    map
        Predictions over the plane, where there are two inputs.
    images
        Predictions of images.
    diagnosis
        Snapshots of the fit, where the settings name steps.
    curves
        Predictions on the lines of the data set; of ranges, the first is that of its rows.
    """

    results: Mapping[str, float]
    test: Predictive
    of_chains: tuple[Predictive, ...] = ()
    map: Plane | None = None
    images: ImageEvaluation | None = None
    diagnosis: Diagnosis | None = None
    curves: tuple[Curve, ...] = ()


def evaluate(fitted: InferredCell, dataset: Dataset, predictor: Predictor) -> Evaluation:
    """Predictions of a cell with their metrics, in the original units of the targets.

    Raises
    ------
    ValueError
        If no restart can predict, or predictions are not finite.
    """
    if fitted.best is None:
        raise ValueError("every restart diverged")
    draws, target = fitted.cell.predict.draws, dataset.raw_targets(dataset.y_test)
    mixtures, chains = _predictions(
        fitted, dataset, predictor, fitted.mixtures, dataset.x_test, draws, dataset.y_test
    )
    test = mixtures[""]
    if not np.isfinite(test.mean).all():
        raise ValueError("predictions are not finite")
    results = {
        f"{prefix}{name}": value
        for prefix, predictive in mixtures.items()
        for name, value in all_metrics(predictive, target).items()
    }
    aside = _prediction_of_rows_set_aside(fitted, dataset, predictor)
    if aside is not None:
        results |= _conformal_results(test, aside, dataset)
    if chains:
        results["nll_mcse"] = jackknife_error(nll_without_each(chains, target, fitted.mixtures[""]))
        scores = [chain.log_score(target).mean() for chain in chains]
        results["member_nll"] = -float(np.mean(scores))
    further = evaluate_further(test, aside, fitted, dataset, predictor)
    return Evaluation(results | further.pop("results"), test, chains, **further)


def all_metrics(predictive: Predictive, target: np.ndarray) -> dict[str, float]:
    """Metrics of a prediction by name: those of its kind, and user-defined ones.

    Raises
    ------
    ValueError
        If a user-defined metric has the name of another.
    """
    values = metrics_of(predictive, target)
    for name, metric in METRICS.get(predictive.key, {}).items():
        if name in values:
            raise ValueError(f"The metric `{name}` is there already: name yours otherwise.")
        values[name] = float(metric(predictive, target))
    return values


def _prediction_of_rows_set_aside(
    fitted: InferredCell, dataset: Dataset, predictor: Predictor
) -> Predictive | None:
    """Prediction of the rows that nothing was fitted on; None if there are none."""
    if dataset.x_validation is None:
        return None
    aside = predict_mixture(fitted, predictor, dataset.x_validation, fitted.cell.predict.draws)
    return aside.in_units_of(dataset.target_standardisation)


def _conformal_results(test: Predictive, aside: Predictive, dataset: Dataset) -> dict[str, float]:
    """Coverage and size of conformal intervals or sets; of several targets, of each one too."""
    target, aside_target = map(dataset.raw_targets, (dataset.y_test, dataset.y_validation))
    if len(aside_target) < FEWEST_CALIBRATION_ROWS:
        return {}
    results = conformal_metrics(test, target, aside, aside_target)
    for i, name in enumerate(dataset.target_names):
        parts = test.of_target(i), target[:, i], aside.of_target(i), aside_target[:, i]
        of_target = conformal_metrics(*parts)
        results |= {f"{metric}_{name}": value for metric, value in of_target.items()}
    return results


@singledispatch
def evaluate_further(
    test: Predictive,
    aside: Predictive | None,
    fitted: InferredCell,
    dataset: Dataset,
    predictor: Predictor,
) -> dict[str, Any]:
    """Further attributes of `Evaluation`, with further results.

    Each kind of prediction registers its own function. `aside` is the prediction of rows set aside.
    """
    return {"results": {}}


@evaluate_further.register
def _evaluate_classes(
    test: ClassProbabilities, aside, fitted, dataset, predictor
) -> dict[str, Any]:
    """Predictions over the plane, at fresh points, of images, and by snapshots of the fit."""
    further: dict[str, Any] = {"results": {}}
    if isinstance(fitted.cell.dataset, Synthetic):
        further["results"] = _fresh_metrics(fitted, dataset, predictor)
    if fitted.cell.dataset.is_user_data:
        further["results"] = metrics.recalls(test.mean, dataset.y_test, dataset.classes)
    if fitted.cell.dataset.is_planar:
        x1, x2, x = map_points(dataset, fitted.cell.predict.map)
        draws = fitted.cell.predict.map_draws
        further["map"] = Plane(x1, x2, *_prediction(fitted, dataset, predictor, x, draws))
    images = None
    if fitted.cell.dataset.image_shape is not None:
        images = evaluate_images(fitted, dataset, predictor, test, aside)
    diagnosis = diagnose(fitted, dataset, predictor, images)
    return further | {"images": images, "diagnosis": diagnosis}


@evaluate_further.register
def _evaluate_numbers(test: Density, aside, fitted, dataset, predictor) -> dict[str, Any]:
    """Predictions at the training rows, on lines and over the plane; results for each target."""
    draws = fitted.cell.predict.draws
    training = predict_mixture(fitted, predictor, dataset.x_train, draws)
    training = training.in_units_of(dataset.target_standardisation)
    standardise = dataset.standardisation
    curves = tuple(
        Curve(line, *_prediction(fitted, dataset, predictor, standardise(line.inputs), draws))
        for line in fitted.cell.dataset.lines()
    )
    further: dict[str, Any] = {"curves": curves}
    if fitted.cell.dataset.is_planar:
        further["map"] = _moments_over_plane(fitted, dataset, predictor)
    target = dataset.raw_targets(dataset.y_train)
    if not dataset.target_names:
        return further | {"results": _target_results(training, test, target, curves)}
    results, test_target = {}, dataset.raw_targets(dataset.y_test)
    for i, name in enumerate(dataset.target_names):
        values = metrics_of(test.of_target(i), test_target[:, i])
        del values["nll"]  # that of a row of targets is joint
        lines = [replace(curve, prediction=curve.prediction.of_target(i)) for curve in curves]
        parts = training.of_target(i), test.of_target(i)
        values |= _target_results(*parts, target[:, i], lines)
        results |= {f"{metric}_{name}": value for metric, value in values.items()}
    return further | {"results": results}


def _target_results(
    training: Density, test: Density, target: np.ndarray, curves: Sequence[Curve]
) -> dict[str, float]:
    """Results for one target, beside the metrics of its test rows.

    ``epistemic_ratio`` is the mean epistemic standard deviation at the test rows over that at the
    training rows: where test rows lie in a gap, how much more uncertain the network is there.
    """
    inside, outside = float(test.epistemic_sd.mean()), float(training.epistemic_sd.mean())
    results = {
        "train_rmse": metrics.rmse(training.mean, target),
        "train_mean_epistemic_sd": outside,
        "epistemic_ratio": inside / outside if outside > 0 else float("nan"),
    }
    return results | bands(curves) | gaps(curves)


def bands(curves: Sequence[Curve]) -> dict[str, float]:
    """Width of the band of two epistemic standard deviations.

    ``band_inside`` is its mean over the range of the rows; at each end of a wider range, such
    as 1.5, there are ``mean_at_1.5`` and ``band_at_1.5``, and ``band_ratio_1.5`` is the smaller
    of both ends' bands over that inside. A line across a gap is no range of the rows.
    """
    ranges = [curve for curve in curves if curve.line.gap is None]
    if not ranges:
        return {}
    inside = float(2 * ranges[0].prediction.epistemic_sd.mean())
    results = {"band_inside": inside}
    for curve in ranges[1:]:
        x = curve.line.position
        ends = {f"{x[i]:g}": i for i in (0, -1)}
        band = {end: float(2 * curve.prediction.epistemic_sd[i]) for end, i in ends.items()}
        results |= {f"mean_at_{end}": float(curve.prediction.mean[i]) for end, i in ends.items()}
        results |= {f"band_at_{end}": width for end, width in band.items()}
        # A single point has no band at all.
        ratio = min(band.values()) / inside if inside > 0 else float("nan")
        results[f"band_ratio_{x[-1]:g}"] = ratio
    return results


def gaps(curves: Sequence[Curve]) -> dict[str, float]:
    """Epistemic standard deviation in the gap of a line, and where it is smallest on it.

    Under names such as ``sd_at_0``, of the position of the gap, and ``smallest_sd``.
    """
    results = {}
    for curve in curves:
        line, sd = curve.line, curve.prediction.epistemic_sd
        if line.gap is not None:
            results[f"sd_at_{line.gap:g}"] = float(np.interp(line.gap, line.position, sd))
            results["smallest_sd"] = float(sd.min())
    return results


def _predictions(
    inferred: InferredCell,
    dataset: Dataset,
    predictor: Predictor,
    mixtures: Mapping[str, Weights],
    x: np.ndarray,
    draws: int,
    target: np.ndarray | None = None,
) -> tuple[dict[str, Predictive], tuple[Predictive, ...]]:
    """Predictions by each mixture of the sources, by name; and by each chain alone.

    `target` is in the units that were fitted, predictions are in original ones.
    """
    sources = [*inferred.sources.values()]
    alone = list(np.eye(len(sources))) if inferred.cell.is_sampled else []
    predictions = [
        prediction.in_units_of(dataset.target_standardisation)
        for prediction in predictor.predict_mixtures(
            sources, [*mixtures.values(), *alone], inferred.data, x, draws, target
        )
    ]
    count = len(mixtures)
    return dict(zip(mixtures, predictions, strict=False)), tuple(predictions[count:])


def _prediction(inferred: InferredCell, dataset: Dataset, predictor: Predictor, x, draws: int):
    """The prediction of a cell, and those by each chain alone."""
    weights = {"": inferred.mixtures[""]}
    mixtures, chains = _predictions(inferred, dataset, predictor, weights, x, draws)
    return mixtures[""], chains


@lru_cache(maxsize=64)
def _fresh_points(spec: Synthetic, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Raw fresh points and their true class probabilities, the same for every cell."""
    x = spec.spread(size, random_seed=FRESH_SEED + spec.seed)
    return x, spec.class_probabilities(x)


def _fresh_metrics(
    fitted: InferredCell, dataset: Dataset, predictor: Predictor
) -> dict[str, float]:
    """Excess error and excess NLL over the bounds, as predicted and with all restarts pooled."""
    spec, fresh = fitted.cell.dataset, fitted.cell.predict.fresh
    x, truth = _fresh_points(spec, fresh.size)
    x = dataset.standardisation(x)
    others, pooled = fitted.mixtures, {}
    if len(fitted.sources) > 1 and "pooled_" in others:
        pooled = {"pooled_": others.pop("pooled_")}
    mixtures, chains = _predictions(fitted, dataset, predictor, others, x, fresh.draws)
    if pooled:
        # All restarts pooled have as many draws together as one of them has alone.
        share = -(-fresh.draws // len(fitted.sources))
        mixtures |= _predictions(fitted, dataset, predictor, pooled, x, share)[0]
    results = {
        f"{prefix}{name}": score(predictive.mean, truth)
        for prefix, predictive in mixtures.items()
        for name, score in FRESH_SCORES.items()
    }
    for name, score in FRESH_SCORES.items() if chains else ():
        without = probabilities_without_each(chains, fitted.mixtures[""])
        scores = [score(mean, truth) for mean in without]
        results[f"{name}_mcse"] = jackknife_error(scores)
    bounds = spec.bounds()
    return results | {"best_accuracy": bounds.best_accuracy, "lowest_nll": bounds.lowest_nll}


def _moments_over_plane(fitted: InferredCell, dataset: Dataset, predictor: Predictor) -> Plane:
    x1, x2, x = map_points(dataset, fitted.cell.predict.map)
    sources, weights = [*fitted.sources.values()], [*fitted.weights.values()]
    draws = fitted.cell.predict.map_draws
    moments = predict_moments(predictor, sources, weights, fitted.data, x, draws)
    return Plane(x1, x2, moments.in_units_of(dataset.target_standardisation))


def map_points(dataset: Dataset, settings: Map) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Raw coordinates of a map about the training rows, and standardised points, x1 slowest."""
    raw = dataset.standardisation.undo(dataset.x_train)
    low, high = raw.min(axis=0), raw.max(axis=0)
    reach = settings.margin * (high - low)
    x1, x2 = np.linspace(low - reach, high + reach, settings.resolution, axis=1)
    points = np.stack(np.meshgrid(x1, x2, indexing="ij"), axis=-1).reshape(-1, 2)
    return x1, x2, dataset.standardisation(points)


# Diagnostics by importance weights of a cell's draws: Pareto k-hat of a guide, LOO of chains


def importance_results(
    inferred: InferredCell, predictor: Predictor, log_scale: float = 0.0
) -> dict[str, float]:
    """Results by name.

    Of a fit ``pareto_k``, k-hat of the ratios of joint density and guide of the best restart,
    whatever the mixture; missing of a point and of Laplace's approximation, whose draws predict by
    another network, and of large networks, whose draws at every row would take longer than the fit.
    Of a sampler, by the draws that its trace keeps, ``log_likelihood``, the mean of that of all
    training rows, in nats, with its Monte-Carlo standard error ``log_likelihood_mcse``.
    Of draws of the posterior, and of a fit whose ratios are usable, ``elpd_loo``, the expected log
    predictive density by leaving rows out, in nats an observation, of targets in original units
    (higher is better), its standard error over rows ``elpd_loo_se``, and ``loo_pareto_k``, the
    largest k-hat of a row.

    Parameters
    ----------
    log_scale
        `Standardisation.log_scale` of the targets; ``log_likelihood``, like an ELBO, is that of the
        model, whose targets are standardised.

    References
    ----------
    Yao et al. (2018), Yes, but did it work? Evaluating variational inference; Vehtari, Gelman and
    Gabry (2017), Practical Bayesian model evaluation using leave-one-out cross-validation and WAIC.
    """
    if inferred.samples is not None:
        return _chain_results(inferred, predictor, log_scale)
    cell = inferred.cell
    if is_large(cell) or cell.lacks_elbo:
        return {}
    best = inferred.sources[inferred.best]
    values = predictor.values(best, inferred.cell.predict.draws)
    log_likelihood, log_joint = predictor.log_joint(inferred.data, values)
    log_ratio = log_joint - best.log_density(values)
    k = pareto_k(log_ratio)
    if np.isnan(k):
        return {}
    if k > USABLE:
        return {"pareto_k": k}
    by_row, row_k = leave_one_out_of_guide(log_likelihood, log_ratio)
    known = np.isfinite(by_row).all()
    return {"pareto_k": k} | (_left_out_results(by_row, row_k, log_scale) if known else {})


def _chain_results(
    sampled: InferredCell, predictor: Predictor, log_scale: float
) -> dict[str, float]:
    values = trace_values(sampled)
    chains, draws, size = values.shape
    log_likelihood, _ = predictor.log_joint(sampled.data, values.reshape(-1, size))
    by_draw = log_likelihood.sum(axis=1, dtype=np.float64)
    by_chain = by_draw.reshape(chains, draws).mean(axis=1)
    results = {
        "log_likelihood": float(by_chain.mean()),
        "log_likelihood_mcse": float(by_chain.std(ddof=1) / np.sqrt(chains)),
    }
    # Importance weights of other draws would be wrong.
    if chains * draws < LEAST_DRAWS or not sampled.cell.samples_posterior:
        return results
    return results | _left_out_results(*leave_one_out(log_likelihood), log_scale)


def _left_out_results(by_row: np.ndarray, k: np.ndarray, log_scale: float) -> dict[str, float]:
    """Results by log densities of rows left out, and k-hat of each."""
    error = by_row.std(ddof=1) / np.sqrt(len(by_row))
    return {
        "elpd_loo": float(by_row.mean()) - log_scale,
        "elpd_loo_se": float(error),
        "loo_pareto_k": float(np.max(k)),
    }
