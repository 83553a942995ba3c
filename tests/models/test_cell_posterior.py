"""The posterior of a stored cell as a prior."""

import hashlib
import json
import shutil

import numpy as np
import pytest
import xarray as xr
from scipy import stats

import pmbnn as pb
from pmbnn.core.errors import ConfigError
from pmbnn.data.arrays import Rows, Standardisation, identity_standardisation
from pmbnn.data.base import DataError
from pmbnn.experiment.cells import cell_label
from pmbnn.experiment.load import check_data, load_experiment
from pmbnn.experiment.plan import identity, jobs
from pmbnn.fitting.job import run_job
from pmbnn.fitting.tasks import JobTask
from pmbnn.inference.engines import fit_model
from pmbnn.inference.flat import flatten_model
from pmbnn.inference.log_density import build_log_density
from pmbnn.models import cell_posterior
from pmbnn.models.networks import Convolution, Dense, Flatten, Layered
from pmbnn.models.prior_draws import prior_draws
from pmbnn.models.priors import CellPosterior
from pmbnn.prior_predictive.plan import why_left_out
from pmbnn.results.loading import load_results, restore_cell
from pmbnn.sweep.cells import prepare, write_header

NETWORK = Dense(hidden=(3,))
INPUTS = Standardisation(np.array([2.0, -1.0]), np.array([0.5, 4.0]))
TARGETS = Standardisation(np.array([10.0]), np.array([3.0]))
OTHER_INPUTS = Standardisation(np.array([1.7, 3.0]), np.array([0.8, 2.5]))
OTHER_TARGETS = Standardisation(np.array([7.0]), np.array([5.0]))


@pytest.fixture(autouse=True)
def nothing_read(monkeypatch):
    """Another process has read no cell yet."""
    monkeypatch.setattr(cell_posterior, "_READ", {})


def draws_of(network, shape, n_outputs, seed=0, draws=50):
    rng = np.random.default_rng(seed)
    parameters = network.parameters(shape, n_outputs)
    return {p.name: rng.normal(size=(draws, *p.shape)).astype("f4") for p in parameters}


def write_cell(
    folder,
    network=NETWORK,
    shape=(2,),
    outputs=("y",),
    features=("a", "b"),
    seed=0,
    inputs=INPUTS,
    targets=TARGETS,
    plugins=(),
    **changed,
):
    """A stored cell with random draws in two chains; its draws, ``(draw, ...)``."""
    draws = draws_of(network, shape, len(outputs), seed) | changed
    dims = {p.name: p.dims for p in network.parameters(shape, len(outputs))}
    variables = {
        name: (("chain", "draw", *dims[name]), array.reshape(2, -1, *array.shape[1:]))
        for name, array in draws.items()
    }
    posterior = xr.Dataset(variables).assign(noise=("draw", np.ones(25)))
    labels = {"feature": list(features), "output": list(outputs)}
    lengths = posterior.sizes
    posterior = posterior.assign_coords(
        {d: labels.get(d, range(lengths[d])) for d in lengths if d not in ("chain", "draw")}
    )
    constant = {
        "standardisation_mean": ("feature", inputs.mean),
        "standardisation_sd": ("feature", inputs.sd),
    }
    if targets is not None:
        constant |= {"target_mean": ("target", targets.mean), "target_sd": ("target", targets.sd)}
    groups = {"/posterior": posterior, "/constant_data": xr.Dataset(constant)}
    folder.mkdir(parents=True, exist_ok=True)
    xr.DataTree.from_dict(groups).to_netcdf(folder / "trace.nc")
    digest = hashlib.sha256((folder / "trace.nc").read_bytes()).hexdigest()
    record = {
        "status": "converged",
        "files": {"trace.nc": {"sha256": digest}},
        "settings": {"network": network.model_dump(mode="json")},
        "plugins": [{"sections": list(plugins), "sha256": "0"}],
    }
    (folder / "metrics.json").write_text(json.dumps(record))
    return {name: array.astype(np.float64) for name, array in draws.items()}


def rows(inputs=INPUTS, targets=TARGETS, features=("a", "b"), classes=(), n=4):
    rng = np.random.default_rng(3)
    y = np.arange(n) % 2 if classes else rng.normal(size=n)
    x = rng.normal(size=(n, len(features)))
    return Rows(x, y, features, classes, (), (), inputs, targets)


def build(prior, data=None, network=NETWORK, likelihood="normal"):
    return pb.build_model(network, prior, "fixed", likelihood, rows() if data is None else data)


# Moments


def test_every_weight_has_the_moments_of_its_draws(tmp_path, evaluate):
    draws = write_cell(tmp_path / "cell")
    model = build(CellPosterior(path=tmp_path / "cell"))
    point = {name: 0.3 + 0.1 * array[7] for name, array in draws.items()}
    values = {model.rvs_to_values[model[name]]: value for name, value in point.items()}
    found = evaluate(model.logp(vars=[model[name] for name in draws], sum=False), values)
    for (name, array), density in zip(draws.items(), found, strict=True):
        law = stats.norm(array.mean(axis=0), array.std(axis=0, ddof=1))
        np.testing.assert_allclose(density, law.logpdf(point[name]), rtol=1e-10)


def test_draws_are_transformed_to_the_standardisation_of_the_rows(tmp_path):
    """Affine maps of raw inputs have the same moments: of the first layer, and of the last."""
    draws = write_cell(tmp_path / "cell")
    prior = CellPosterior(path=tmp_path / "cell")
    new = prior.constants(rows(OTHER_INPUTS, OTHER_TARGETS))
    x = np.array([[0.0, 0.0], [2.0, -3.0], [1.7, 3.0]])
    before = np.einsum("nf,dfu->dnu", INPUTS(x), draws["weight_1"]) + draws["bias_1"][:, None]
    after = OTHER_INPUTS(x) @ new["prior_mean_weight_1"] + new["prior_mean_bias_1"]
    np.testing.assert_allclose(after, before.mean(axis=0), rtol=1e-10)
    # At the mean of the new rows the inputs are zero, and the bias is the whole of it.
    np.testing.assert_allclose(new["prior_sd_bias_1"], before[:, 2].std(axis=0, ddof=1))
    sd = draws["weight_1"].std(axis=0, ddof=1) * (OTHER_INPUTS.sd / INPUTS.sd)[:, None]
    np.testing.assert_allclose(new["prior_sd_weight_1"], sd)
    hidden = np.array([0.2, -0.7, 0.5])
    before = 10 + 3 * (hidden @ draws["weight_2"].mean(axis=0) + draws["bias_2"].mean(axis=0))
    after = 7 + 5 * (hidden @ new["prior_mean_weight_2"] + new["prior_mean_bias_2"])
    np.testing.assert_allclose(after, before, rtol=1e-10)
    same = prior.constants(rows())
    np.testing.assert_array_equal(same["prior_mean_bias_1"], draws["bias_1"].mean(axis=0))


def test_a_linear_model_takes_up_both_standardisations(tmp_path):
    linear = Dense(hidden=())
    draws = write_cell(tmp_path / "cell", linear)
    new = CellPosterior(path=tmp_path / "cell").constants(rows(OTHER_INPUTS, OTHER_TARGETS))
    x = np.array([[1.0, 2.0], [-3.0, 5.0]])
    mean = {name: array.mean(axis=0) for name, array in draws.items()}
    before = TARGETS.undo(INPUTS(x) @ mean["weight_1"] + mean["bias_1"])
    after = OTHER_INPUTS(x) @ new["prior_mean_weight_1"] + new["prior_mean_bias_1"]
    np.testing.assert_allclose(OTHER_TARGETS.undo(after), before, rtol=1e-10)


def test_smc_draws_it_by_its_quantiles(tmp_path):
    write_cell(tmp_path / "cell")
    model = build(CellPosterior(path=tmp_path / "cell"), likelihood={"kind": "normal", "sd": 1.0})
    density = build_log_density(model, 4, "float64")
    assert density.flat.size == 13


# What is refused

EQUAL = {"inputs": INPUTS, "targets": TARGETS}


def test_folders_that_are_no_finished_cell(tmp_path):
    path = tmp_path / "cell"
    with pytest.raises(ConfigError, match=r"^`path` must be there: .*, got '.*cell'\.$"):
        CellPosterior(path=path)
    path.mkdir()
    with pytest.raises(ConfigError, match=r"^`path` must be the folder of a finished cell"):
        CellPosterior(path=path)
    write_cell(path)
    with pytest.raises(ConfigError, match="`fan_in` must be false with prior `cell`"):
        CellPosterior(path=path, fan_in=True)
    record = json.loads((path / "metrics.json").read_text())
    (path / "metrics.json").write_text(json.dumps(record | {"files": {}, "status": "diverged"}))
    with pytest.raises(ConfigError, match="must be a cell with a fit, not one with status diverg"):
        CellPosterior(path=path)
    (path / "metrics.json").write_text(json.dumps(record))
    with (path / "trace.nc").open("ab") as file:
        file.write(b"more")
    with pytest.raises(ConfigError, match="must be a whole cell, but trace.nc is not the file tha"):
        CellPosterior(path=path)
    with pytest.raises(ConfigError, match="`path` is missing"):
        CellPosterior()


def test_points_and_draws_that_are_not_finite(tmp_path):
    point = np.full((50, 3), 0.1, "f4")
    write_cell(tmp_path / "map", bias_1=point)
    with pytest.raises(ConfigError, match="positive, finite spread, as those of `bias_1` do not"):
        CellPosterior(path=tmp_path / "map")
    broken = np.random.default_rng(0).normal(size=(50, 3, 1)).astype("f4")
    broken[4, 1] = np.inf
    write_cell(tmp_path / "infinite", weight_2=broken)
    with pytest.raises(ConfigError, match="spread, as those of `weight_2` do not"):
        CellPosterior(path=tmp_path / "infinite")


def test_a_cell_that_has_changed_since(tmp_path):
    write_cell(tmp_path / "cell")
    prior = CellPosterior(path=tmp_path / "cell")
    cell_posterior._READ.clear()
    write_cell(tmp_path / "cell", seed=1)
    with pytest.raises(DataError, match=r"`prior.path` .* but the cell has changed since, got"):
        build(prior)
    shutil.rmtree(tmp_path / "cell")
    with pytest.raises(DataError, match=r"`prior.path` must be there"):
        build(prior)


def refused(match, folder, data=None, error=DataError, **model):
    with pytest.raises(error, match=match):
        build(CellPosterior(path=folder), data, **model)


def test_other_networks_and_data(tmp_path):
    folder = tmp_path / "cell"
    write_cell(folder)
    refused("`prior` must be a cell of network .*relu", folder, error=ValueError,
            network=Dense(hidden=(3,), activation="relu"))  # fmt: skip
    refused(r"same feature names: \['b', 'a'\] here, \['a', 'b'\] there", folder,
            rows(features=("b", "a")))  # fmt: skip
    refused(r"`weight_2` has shape \(3, 2\) here, and \(3, 1\) there", folder,
            rows(classes=("m", "n")), likelihood="categorical")  # fmt: skip
    unknown = rows(None, None)
    refused("rows whose standardisation is known", folder, unknown)
    classes = tmp_path / "classes"
    write_cell(classes, outputs=("m", "n"), targets=None)
    refused(r"same output names: \['m', 'o'\] here, \['m', 'n'\] there", classes,
            rows(classes=("m", "o")), likelihood="categorical")  # fmt: skip


def test_standardisations_that_no_layer_takes_up(tmp_path):
    images = Layered(layers=(Convolution(filters=2, size=2), Flatten()))
    shape, features = (1, 3, 3), tuple(f"p{i}" for i in range(9))
    same, other = identity_standardisation(9), Standardisation(np.full(9, 0.1), np.ones(9))
    folder = tmp_path / "images"
    write_cell(folder, images, shape, ("m", "n"), features, inputs=same, targets=None)
    prior = CellPosterior(path=folder)
    data = Rows(np.zeros((2, 9)), np.arange(2), features, ("m", "n"), shape, (), other, TARGETS)
    with pytest.raises(DataError, match="its first layer cannot take up.*`standardise: none`"):
        build(prior, data, images, "categorical")
    like = Rows(np.zeros((2, 9)), np.arange(2), features, ("m", "n"), shape, (), same, TARGETS)
    assert build(prior, like, images, "categorical")["weight_1"].ndim == 4
    plugin = tmp_path / "plugin"
    write_cell(plugin, plugins=["likelihood"])
    refused("its last layer cannot take up the difference. Set `standardise_target: false`",
            plugin, rows(targets=OTHER_TARGETS))  # fmt: skip
    assert build(CellPosterior(path=plugin), rows(OTHER_INPUTS)) is not None
    write_cell(tmp_path / "network", plugins=["network"])
    refused("the same network, whose plugin has changed", tmp_path / "network", error=ValueError)


def test_large_networks_whose_first_layers_were_not_stored(tmp_path):
    draws = write_cell(tmp_path / "cell")
    del draws
    with xr.open_datatree(tmp_path / "cell" / "trace.nc") as tree:
        posterior = tree["posterior"].to_dataset().load()[["weight_2", "bias_2"]]
        constant = tree["constant_data"].to_dataset().load()
    tree = xr.DataTree.from_dict({"/posterior": posterior, "/constant_data": constant})
    (tmp_path / "cell" / "trace.nc").unlink()
    tree.to_netcdf(tmp_path / "cell" / "trace.nc")
    record = json.loads((tmp_path / "cell" / "metrics.json").read_text())
    digest = hashlib.sha256((tmp_path / "cell" / "trace.nc").read_bytes()).hexdigest()
    record["files"]["trace.nc"]["sha256"] = digest
    (tmp_path / "cell" / "metrics.json").write_text(json.dumps(record))
    with pytest.raises(ConfigError, match="draws of all its weights: of large networks few"):
        CellPosterior(path=tmp_path / "cell")


# Experiments

SECOND = """
name: second
sweeps:
  - name: second
    dataset: {kind: sine, train: 20}
    network: {kind: dense, hidden: [[3]]}
    prior: {kind: cell, path: %s}
    inference: {steps: 20, validation: 0, restarts: 1}
    predict: {draws: 5, trace_draws: 5}
"""


def second(folder, path="cell", name="second.yaml", text=SECOND):
    (folder / name).write_text(text % path)
    return load_experiment(folder / name)


def sine_cell(folder, **settings):
    return write_cell(folder, shape=(1,), features=("x",), **settings)


def test_the_content_of_the_cell_is_part_of_the_identity(tmp_path):
    one = Standardisation(np.zeros(1), np.ones(1))
    sine_cell(tmp_path / "cell", inputs=one)
    sine_cell(tmp_path / "moved" / "same", inputs=one)
    (cell,), (moved,) = (second(tmp_path, path).cells for path in ("cell", "moved/same"))
    assert identity(cell, "", {}) == identity(moved, "", {})
    sine_cell(tmp_path / "cell", inputs=one, seed=1)
    (changed,) = second(tmp_path).cells
    assert identity(changed, "", {}) != identity(cell, "", {})
    assert cell_label(cell) != cell_label(changed)
    assert f"cell-{cell.prior.sha256[:8]}_" in cell_label(cell)
    sine_cell(tmp_path / "cell", inputs=OTHER_TARGETS)
    (changed,) = second(tmp_path).cells
    assert changed.prior.sha256 != cell.prior.sha256
    assert why_left_out(cell) is None


def test_mistakes_are_found_before_anything_is_fitted(tmp_path):
    with pytest.raises(ConfigError, match=r"`sweeps\[0\].prior.path` must be there"):
        second(tmp_path)
    sine_cell(tmp_path / "cell")
    wrong = r"`sweeps\[0\].prior` must be a cell of network .* \(`sweeps\[0\].network`\)\.$"
    with pytest.raises(ConfigError, match=wrong):
        second(tmp_path, text=SECOND.replace("[[3]]", "[[4]]"))
    learned = SECOND + "    hyperprior: half_normal\n"
    with pytest.raises(ConfigError, match=r"hyperprior` must include fixed for prior `cell`"):
        second(tmp_path, text=learned)


PARTS = """
name: %s
sweeps:
  - name: parts
    dataset: {kind: table, file: %s, target: y, standardise_target: false,
              split: {kind: random, test_size: 0.1}}
    network: {kind: dense, hidden: [[]]}
    prior: %s
    likelihood: {kind: normal, sd: 0.5}
    inference: {guide: laplace, steps: 200, validation: 0, restarts: 1}
    predict: {draws: 50, trace_draws: 4000}
"""


def run(folder, name, file, prior):
    """Results folder of one cell that is fitted in this process, and the cell's folder."""
    (folder / f"{name}.yaml").write_text(PARTS % (name, file, prior))
    experiment = load_experiment(folder / f"{name}.yaml")
    check_data(experiment)
    prepared = prepare(experiment, folder / "results" / name)
    write_header(prepared)
    (job,) = jobs(list(prepared.tasks))
    task = JobTask(job.group, job.width, tuple(prepared.tasks[cell] for cell in job.wanted))
    records = []
    run_job(task, prepared.results.folder, records.append)
    assert records[0].status == "converged", records[0].reason
    (cell,) = prepared.results.cells.iterdir()
    return cell, experiment.cells[0].dataset.load()


def exact(prior_mean, prior_precision, x, y):
    """Posterior mean and precision of weight and bias with noise of 0.5."""
    design = np.column_stack([x, np.ones(len(x))])
    precision = prior_precision + design.T @ design / 0.25
    return np.linalg.solve(precision, prior_precision @ prior_mean + design.T @ y / 0.25), precision


def test_two_parts_one_after_the_other_are_as_all_rows_at_once(tmp_path, monkeypatch):
    """A linear model, by closed forms.

    Inputs of the parts have other scales and nearly one mean: at another one weight and bias are
    correlated under the first posterior, which independent priors leave out.
    """
    rng = np.random.default_rng(0)
    for name, centre, spread in (("one", 1.0, 1.0), ("two", 1.05, 0.5)):
        x = centre + spread * rng.normal(size=30)
        y = 0.7 - 0.4 * x + 0.5 * rng.normal(size=30)
        lines = [f"{a},{b}" for a, b in zip(x, y, strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["x,y", *lines]))
    first, one = run(tmp_path, "first", "one.csv", "normal")
    relative = first.relative_to(tmp_path).as_posix()
    again, two = run(tmp_path, "second", "two.csv", f"{{kind: cell, path: {relative}}}")
    drawn = load_results(again.parent.parent).cell(name=again.name).trace["posterior"].dataset
    weight, bias = (drawn[name].values.ravel() for name in ("weight_1", "bias_1"))
    # In the coordinates of the first part, in which the prior of all rows is standard normal.
    x_two = one.standardisation(two.standardisation.undo(two.x_train))
    x_all, y_all = np.concatenate([one.x_train, x_two]), np.concatenate([one.y_train, two.y_train])
    mean, precision = exact(np.zeros(2), np.eye(2), x_all, y_all)
    shift = (two.standardisation.mean - one.standardisation.mean) / one.standardisation.sd
    factor = two.standardisation.sd / one.standardisation.sd
    at = np.array([[-1.0, 1.0], [0.0, 1.0], [1.0, 1.0]])
    found = (at[:, :1] - shift) / factor * weight.mean() + bias.mean()
    error = np.sqrt(np.einsum("ni,ij,nj->n", at, np.linalg.inv(precision), at))
    # Correlations of the first posterior are left out, which moves the mean by less than its sd.
    assert (np.abs(found.ravel() - at @ mean) < 0.5 * error).all()
    alone, _ = exact(np.zeros(2), np.eye(2), two.x_train, two.y_train)
    at_two = np.column_stack([(at[:, 0] - shift) / factor, np.ones(3)])
    assert (np.abs(at_two @ alone - at @ mean) > error).any()
    # Exactly what the independent prior gives.
    prior = CellPosterior(path=first).constants(two.training)
    means = np.array([prior[f"prior_mean_{n}_1"].item() for n in ("weight", "bias")])
    sds = np.array([prior[f"prior_sd_{n}_1"].item() for n in ("weight", "bias")])
    mean, precision = exact(means, np.diag(sds**-2), two.x_train, two.y_train)
    error = np.sqrt(np.diag(np.linalg.inv(precision)) / 4000)
    assert (np.abs([weight.mean(), bias.mean()] - mean) < 5 * error).all()
    # The results of the second are read without the first.
    shutil.rmtree(first.parent.parent)
    cell_posterior._READ.clear()
    cell = load_results(again.parent.parent).cell(name=again.name)
    assert cell.record.cell.prior.kind == "cell"
    experiment = load_experiment(again.parent.parent / "experiment.yaml")
    assert experiment.cells[0] == cell.record.cell
    predicted = restore_cell(cell).predict(two.standardisation.undo(two.x_test)).mean
    expected = two.x_test @ mean[:1] + mean[1]
    np.testing.assert_allclose(predicted, expected, atol=0.2)


def test_a_posterior_is_saved_and_read_without_the_cell(tmp_path):
    write_cell(tmp_path / "cell")
    model = build(CellPosterior(path=tmp_path / "cell"))
    posterior = pb.fit(model, steps=50, progress=False)
    x = np.array([[0.5, -1.0]])
    before = posterior.predict(x).mean
    posterior.save(tmp_path / "posterior.nc")
    shutil.rmtree(tmp_path / "cell")
    cell_posterior._READ.clear()
    loaded = pb.load(tmp_path / "posterior.nc")
    np.testing.assert_allclose(loaded.predict(x).mean, before, rtol=1e-6)
    with pytest.raises(DataError, match="must be there"):
        _ = loaded.model


def test_models_of_raw_arrays(tmp_path):
    inputs = identity_standardisation(2)
    write_cell(tmp_path / "cell", outputs=("0", "1"), features=("x1", "x2"), inputs=inputs,
               targets=None)  # fmt: skip
    x, prior = np.random.default_rng(0).normal(size=(6, 2)), {"kind": "cell"}
    model = pb.dense_classifier(
        x, np.arange(6) % 2, (3,), prior=prior | {"path": tmp_path / "cell"}
    )
    assert flatten_model(model, rows=None).size == 17


def test_functions_are_drawn_from_it(tmp_path):
    """As ``pmbnn prior`` does."""
    draws = write_cell(tmp_path / "cell")
    model = build(CellPosterior(path=tmp_path / "cell"))
    drawn = prior_draws(model, ["weight_2"], random_seed=0)(400)["weight_2"]
    mean, sd = draws["weight_2"].mean(axis=0), draws["weight_2"].std(axis=0, ddof=1)
    assert (np.abs(drawn.mean(axis=0) - mean) < 4 * sd / 20).all()
    np.testing.assert_allclose(drawn.std(axis=0), sd, rtol=0.2)


def test_its_divergence_is_exact(tmp_path):
    write_cell(tmp_path / "cell")
    model = build(CellPosterior(path=tmp_path / "cell"))
    _, fits = fit_model(model, pb.Inference(steps=20, restarts=1))
    assert {fits[0].kl_forms[name] for name in ("weight_1", "bias_1")} == {"exact"}
    assert fits[0].status != "improper"
