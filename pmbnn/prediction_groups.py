"""Groups of a trace that hold predictions, and the pictures that they are of.

``test_predictions`` and, where rows were set aside, ``validation_predictions`` hold moments and
labels of all their rows. Of pictures, each keeps the pixels of a few: ``image`` ``(image, row,
column)`` as bytes, and ``image_index`` ``(image,)``, the row that each is. Traces of earlier
versions have no pixels of validation rows.
"""

import numpy as np
import xarray as xr

from pmbnn.datasets.rows import Dataset
from pmbnn.diagnosis import Diagnosis
from pmbnn.evaluation import Evaluation
from pmbnn.fitting import FittedCell
from pmbnn.moments import Moments
from pmbnn.picture_evaluation import Shown
from pmbnn.prediction import Predictor

UNCERTAIN, MISTAKEN, UNSURE, FIRST = 20, 24, 24, 4
"""Pictures kept with their pixels: the most uncertain ones, mistakes with the lowest expected
error rate (of equal ones the most confident), those of lowest confidence, and the first ones of
each class. Of validation rows, mistakes and those of lowest confidence only."""

EXAMPLES, EXAMPLE_DRAWS = 16, 50
"""Pictures of a set whose single draws are kept, and how many of those."""


def moment_arrays(moments: Moments, axes: tuple[str, ...], shape: tuple[int, ...]) -> dict:
    """Predictive moments as variables over `axes`, nats."""
    classes = moments.mean.shape[1]
    by_class = {"probability": moments.mean, "sd": moments.sd, "votes": moments.votes}
    by_row = {
        "entropy": moments.entropy,
        "mutual_information": moments.mutual_information,
        "error_rate": moments.expected_error_rate,
    }
    return {
        name: ((*axes, "output"), array.reshape(*shape, classes).astype("f4"))
        for name, array in by_class.items()
    } | {name: (axes, array.reshape(shape).astype("f4")) for name, array in by_row.items()}


def predictions_of_test(
    fitted: FittedCell, evaluation: Evaluation, dataset: Dataset, predictor: Predictor
) -> xr.Dataset:
    """Predictions of the test rows, with the points or some of the pictures."""
    axes, spec = ("test_observation",), fitted.cell.dataset
    arrays = moment_arrays(evaluation.test, axes, (len(dataset.y_test),))
    arrays["label"] = (axes, dataset.y_test)
    if spec.is_planar:
        raw = dataset.standardisation.undo(dataset.x_test)
        arrays["x"] = ((*axes, "feature"), raw.astype("f4"))
    if spec.image_shape is not None:
        kept = shown_pictures(evaluation.test, dataset.y_test)
        arrays |= kept_pixels(dataset, dataset.x_test, kept, spec.image_shape)
        half = EXAMPLES // 2
        doubtful = np.argsort(-evaluation.test.predicted_sd, kind="stable")
        examples = np.array(list(dict.fromkeys([*range(half), *doubtful[:half]])))
        examples = examples[examples < len(dataset.y_test)]
        raw = dataset.standardisation.undo(dataset.x_test[examples])
        arrays |= _examples(fitted, dataset, predictor, examples, raw)
    return xr.Dataset(arrays, coords={"output": list(dataset.classes)})


def shown_pictures(test: Moments, label: np.ndarray) -> np.ndarray:
    """Numbers of the test pictures whose pixels are kept, ascending."""
    chosen = [
        np.argsort(-test.predicted_sd, kind="stable")[:UNCERTAIN],
        hard_pictures(test, label),
        *(np.flatnonzero(label == i)[:FIRST] for i in range(test.mean.shape[1])),
    ]
    return np.unique(np.concatenate(chosen))


def hard_pictures(moments: Moments, label: np.ndarray) -> np.ndarray:
    """Numbers of the mistakes and of the least confident pictures that are kept, ascending."""
    mistaken, highest = np.flatnonzero(moments.predicted != label), moments.mean.max(axis=1)
    by_certainty = np.lexsort((-highest[mistaken], moments.expected_error_rate[mistaken]))
    unsure = np.argsort(highest, kind="stable")[:UNSURE]
    return np.union1d(mistaken[by_certainty][:MISTAKEN], unsure)


def kept_pixels(
    dataset: Dataset, x: np.ndarray, numbers: np.ndarray, shape: tuple[int, int]
) -> dict:
    """Variables that hold the pictures of these numbers among standardised rows `x`."""
    raw = dataset.standardisation.undo(x[numbers])
    return {
        "image_index": (("image",), numbers),
        "image": (("image", "row", "column"), _pixels(raw, shape)),
    }


def picture_groups(
    fitted: FittedCell, evaluation: Evaluation, dataset: Dataset, predictor: Predictor
) -> dict[str, xr.Dataset]:
    """Predictions of validation rows and of each unfamiliar set, by the name of their group."""
    coords, groups = {"output": list(dataset.classes)}, {}
    pictures = evaluation.pictures
    if pictures.validation is not None:
        axes, label = ("validation_observation",), dataset.y_validation
        arrays = moment_arrays(pictures.validation, axes, (len(label),))
        arrays["label"] = (axes, label)
        kept, shape = hard_pictures(pictures.validation, label), fitted.cell.dataset.image_shape
        arrays |= kept_pixels(dataset, dataset.x_validation, kept, shape)
        groups["validation_predictions"] = xr.Dataset(arrays, coords)
    for name, shown in pictures.unfamiliar.items():
        arrays = moment_arrays(shown.moments, ("picture",), (len(shown.pictures),))
        arrays["label"] = (("picture",), np.array(shown.pictures.labels, dtype=object))
        chosen = _one_of_each(shown)
        arrays |= _examples(fitted, dataset, predictor, chosen, shown.pictures.x[chosen])
        attrs = {"source": shown.pictures.source}
        groups[f"unfamiliar_{name}"] = xr.Dataset(arrays, coords, attrs)
    return groups


def _one_of_each(shown: Shown) -> np.ndarray:
    """Numbers of the first picture of each label, and of more up to the number of examples."""
    labels = shown.pictures.labels
    first = list({label: i for i, label in reversed(list(enumerate(labels)))}.values())
    more = [i for i in range(len(labels)) if i not in first]
    return np.array(sorted(first + more[: max(0, EXAMPLES - len(first))]))


def _examples(fitted, dataset: Dataset, predictor: Predictor, numbers, raw) -> dict:
    """Raw pictures, and class probabilities of single draws of the best restart."""
    x = dataset.standardisation(raw).astype(np.float32)
    draws = predictor.single_draws(fitted.fits[fitted.best], fitted.data, x, EXAMPLE_DRAWS)
    pixels = _pixels(raw, fitted.cell.dataset.image_shape)
    return {
        "example_index": (("example",), numbers),
        "example_image": (("example", "row", "column"), pixels),
        "example_probability": (("draw", "example", "output"), draws.astype("f4")),
    }


def _pixels(raw: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Pictures as bytes; noise beyond black and white is cut off."""
    return np.rint(255 * raw).clip(0, 255).astype("u1").reshape(-1, *shape)


def diagnosis_arrays(diagnosis: Diagnosis) -> dict:
    """What the group ``fit`` keeps of the looks at a fit."""
    tensors, densities = ("tensor", "edge"), ("snapshot", "tensor", "bin")
    arrays = {
        "snapshot_step": (("snapshot",), diagnosis.steps),
        "snapshot_kl": (("snapshot",), diagnosis.kl),
        "mean_edge": (tensors, diagnosis.mean_edges),
        "sd_edge": (tensors, diagnosis.sd_edges),
        "snapshot_mean_density": (densities, diagnosis.mean_densities),
        "snapshot_sd_density": (densities, diagnosis.sd_densities),
        "part": (("part",), list(diagnosis.parts)),
        "tensor": (("tensor",), list(diagnosis.tensors)),
    }
    for name in ("accuracy", "log_likelihood", "elbo", "evidence"):
        arrays[f"snapshot_{name}"] = (("part", "snapshot"), getattr(diagnosis, name))
    return arrays


def snapshot_group(diagnosis: Diagnosis, dataset: Dataset, fitted: FittedCell) -> xr.Dataset:
    """Single pictures at every look."""
    examples = diagnosis.examples
    axes = ("snapshot", "draw", "example", "output")
    return xr.Dataset(
        {
            "probability": (axes, examples.probability.astype("f4")),
            "image": (
                ("example", "row", "column"),
                _pixels(examples.x, fitted.cell.dataset.image_shape),
            ),
            "label": (("example",), np.array(examples.labels, dtype=object)),
            "kind": (("example",), np.array(examples.kinds, dtype=object)),
            "snapshot_step": (("snapshot",), diagnosis.steps),
            "refused": (("snapshot", "set"), examples.refused),
        },
        coords={"output": list(dataset.classes), "set": list(examples.sets)},
        attrs={"cutoff": fitted.cell.predict.cutoff},
    )
