"""Made-up but realistic cells: records and traces as a sweep stores them."""

from types import SimpleNamespace
from zlib import crc32

import numpy as np
import pytest
import xarray as xr

from pmbnn.storage import Results, json_writer, trace_writer

TUNED = {"kind": "fixed", "scale": {"log": [0.1, 10.0, 5]}}
FIXED = {"kind": "fixed", "scale": 1.0}
NO_SCALE = {"kind": "fixed", "scale": None}
HALF_NORMAL = {"kind": "half_normal", "on": "scale", "per": "layer", "centred": False, "sigma": 1.0}
MOONS = {"kind": "moons", "seed": 0, "noise": 0.4, "train": 700, "test": 300}
MNIST = {"kind": "mnist", "seed": 0, "source": "embedded", "folder": None, "train": None}


def record(prior="normal", hyperprior=HALF_NORMAL, dataset=MOONS, sweep="toy", **changes):
    """Record of a cell; settings are replaced by section name, results by their own."""
    settings = {
        "dataset": dict(dataset),
        "network": changes.pop("network", {"kind": "dense", "hidden": [5, 5]}),
        "prior": {"kind": prior, "fan_in": False},
        "hyperprior": dict(hyperprior),
        "likelihood": {"kind": "categorical"},
        "inference": changes.pop("inference", {"steps": 10000, "seed": 0}),
        "predict": {"draws": 100, "map": {"resolution": 100, "margin": 0.1}},
    }
    results = {"accuracy": 0.85, "mean_sd": 0.08, "scale": None, "validation_nll": 0.4}
    if "noise" in dataset:
        results |= {"excess_error": 0.01, "best_accuracy": 0.863}
    failed = changes.pop("failed", False)
    number = crc32(repr((sweep, settings)).encode())
    return {
        "sweep": sweep,
        "name": f"{dataset['kind']}-{prior}-{hyperprior['kind']}-{number:08x}",
        "status": "diverged" if failed else "converged",
        "reason": None,
        "settings": settings,
        "results": {} if failed else results | changes,
        "seconds": 1.0,
    }


def _moments(logit, spread, axes):
    """Moments of the logistic function of a normal variable, by quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    p = 1 / (1 + np.exp(-(logit[..., None] + spread[..., None] * nodes)))
    weights = weights / weights.sum()
    mean = p @ weights
    sd = np.sqrt(np.maximum(((p - mean[..., None]) ** 2) @ weights, 0))
    both = np.stack([mean, 1 - mean], axis=-1).astype("f4")
    return {
        "probability": ((*axes, "output"), both),
        "sd": ((*axes, "output"), np.stack([sd, sd], axis=-1).astype("f4")),
    }


def _field(x1, x2, steepness):
    """Log-odds of the first class and their spread: no symmetry in either coordinate."""
    logit = steepness * (x2 - np.sin(1.5 * x1) + 0.1 * x1)
    return logit, 0.4 + 0.5 * np.hypot(x1 - 0.5, x2 - 0.25)


def plane_trace(steepness=2.0, resolution=(100, 90), points=300, seed=0):
    """Trace of a cell on a plane; ``x1`` and ``x2`` differ in range and length."""
    rng = np.random.default_rng(seed)
    x1, x2 = np.linspace(-2.2, 3.2, resolution[0]), np.linspace(-1.6, 2.1, resolution[1])
    over = _moments(*_field(*np.meshgrid(x1, x2, indexing="ij"), steepness), ("x1", "x2"))
    x = rng.uniform([-2, -1.4], [3, 1.9], size=(points, 2)).astype("f4")
    logit, spread = _field(*x.T, steepness)
    label = (rng.random(points) > 1 / (1 + np.exp(-logit))).astype("i8")
    axes = ("test_observation",)
    test = _moments(logit, spread, axes)
    test |= {"label": (axes, label), "x": ((*axes, "feature"), x)}
    output = {"output": ["0", "1"]}
    return xr.DataTree.from_dict(
        {
            "/predictions": xr.Dataset(over, {"x1": x1, "x2": x2, **output}),
            "/test_predictions": xr.Dataset(test, output),
        }
    )


def image_trace(images, label, seed=0):
    """Trace of a cell on pictures ``(observation, row, column)`` with ten classes."""
    rng = np.random.default_rng(seed)
    doubt = rng.gamma(0.3, 1.0, size=(len(label), 1))
    logit = rng.normal(size=(len(label), 10)) * (0.5 + doubt)
    logit[np.arange(len(label)), label] += 5
    p = np.exp(logit) / np.exp(logit).sum(axis=1, keepdims=True)
    sd = np.sqrt(p * (1 - p)) * np.minimum(0.9, 0.1 + 0.3 * doubt)
    predicted_sd = sd[np.arange(len(label)), p.argmax(axis=1)]
    order = np.argsort(-predicted_sd, kind="stable")[:20]
    axes = ("test_observation",)
    test = {
        "probability": ((*axes, "output"), p.astype("f4")),
        "sd": ((*axes, "output"), sd.astype("f4")),
        "label": (axes, label),
        "gallery_index": (("rank",), order),
        "gallery_image": (("rank", "row", "column"), images[order].astype("u1")),
    }
    output = {"output": [str(digit) for digit in range(10)]}
    return xr.DataTree.from_dict({"/test_predictions": xr.Dataset(test, output)})


def small_image_trace():
    """Trace of a cell on 200 small pictures of noise."""
    rng = np.random.default_rng(0)
    return image_trace(rng.integers(256, size=(200, 6, 5)), rng.integers(10, size=200))


def store(folder, cells):
    """Write records and traces as finished cells; the results folder."""
    results = Results(folder)
    results.prepare()
    for made, trace in cells:
        files = {"metrics.json": json_writer(made)}
        files |= {} if trace is None else {"trace.nc": trace_writer(trace)}
        results.save_cell(made["name"], files)
    return results


@pytest.fixture(scope="session")
def made():
    """Makers of records, traces and results folders, and settings to make them with."""
    return SimpleNamespace(
        record=record,
        plane_trace=plane_trace,
        image_trace=image_trace,
        small_image_trace=small_image_trace,
        store=store,
        TUNED=TUNED,
        FIXED=FIXED,
        NO_SCALE=NO_SCALE,
        HALF_NORMAL=HALF_NORMAL,
        MOONS=MOONS,
        MNIST=MNIST,
    )


@pytest.fixture(scope="session")
def words():
    """Every text drawn in a figure, each on one line, as its reader sees them."""

    def of(figure):
        from matplotlib.text import Text

        figure.draw_without_rendering()
        found = (text.get_text() for text in figure.findobj(Text) if text.get_visible())
        return [" ".join(text.split()) for text in found if text.strip()]

    return of
