"""Power-scaling sensitivity against closed forms, and the table of sampled cells."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats
from scipy.integrate import trapezoid
from tiers import slow_but

from pmbnn.compare import sensitivity as module
from pmbnn.compare.sensitivity import (
    ALPHAS,
    FILE,
    cell_sensitivity,
    power_scaled,
    sensitivity_table,
    write_sensitivity,
)
from pmbnn.data.arrays import Rows
from pmbnn.experiment.load import load_experiment
from pmbnn.inference.flat import flatten_model
from pmbnn.models.build import build_model, model_data
from pmbnn.models.hyperpriors import Fixed, HalfCauchy, HalfNormal, InverseGamma
from pmbnn.models.likelihoods import Normal as NormalNoise
from pmbnn.models.networks import Dense
from pmbnn.models.priors import Horseshoe, Laplace, Normal
from pmbnn.prediction.draws import unconstrained_draws
from pmbnn.prediction.predictor import DensityParts
from pmbnn.results.store import ResultsError, trace_writer
from pmbnn.sweep.cells import prepare

SHAPE = (4, 5_000)


def regression(n=20, slope=1.0, noise=0.5):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(n, 1))
    return Rows(x, slope * x[:, 0] + noise * rng.normal(size=n), ("x",), ())


def conjugate(rows, scale, noise, prior_power=1.0, likelihood_power=1.0):
    """Mean and covariance of slope and intercept, prior and likelihood raised to powers."""
    design = np.column_stack([rows.x[:, 0], np.ones(len(rows))])
    precision = prior_power / scale**2 * np.eye(2) + likelihood_power / noise**2 * design.T @ design
    covariance = np.linalg.inv(precision)
    return likelihood_power / noise**2 * covariance @ design.T @ rows.y, covariance


def jensen_shannon(p, q, x):
    """Cumulative Jensen-Shannon distance of two distributions, Kallioinen et al. (2023), 2.4.

    Over the range of `x`, whose length it is measured by.
    """

    def divergence(a, b):
        a, b = np.maximum(a, 1e-300), np.maximum(b, 1e-300)
        rest = 0.5 / np.log(2) * trapezoid(b - a, x)
        return trapezoid(a * (np.log2(a) - np.log2((a + b) / 2)), x) + rest

    found = []
    for a, b in ((p.cdf(x), q.cdf(x)), (p.sf(x), q.sf(x))):
        total = divergence(a, b) + divergence(b, a)
        found.append(np.sqrt(max(total, 0) / trapezoid(a + b, x)))
    return max(found)


def sensitivity(of_power, draws):
    """Mean of both one-sided derivatives with respect to the logarithm of the power."""
    x = np.linspace(draws.min(), draws.max(), 100_001)
    slopes = [abs(jensen_shannon(of_power(1.0), of_power(a), x) / np.log2(a)) for a in ALPHAS]
    return float(np.mean(slopes))


@pytest.mark.parametrize(("n", "scale"), slow_but([(3, 0.3)], [(20, 1.0), (3, 0.3)]))
def test_a_conjugate_regression(n, scale):
    """Of exact draws the sensitivity of the slope is that of the scaled posteriors."""
    rows, noise = regression(n), 0.5
    model = build_model(Dense(hidden=()), Normal(), Fixed(scale=scale), NormalNoise(sd=noise), rows)
    mean, covariance = conjugate(rows, scale, noise)
    rng = np.random.default_rng(0)
    draws = rng.multivariate_normal(mean, covariance, size=SHAPE[0] * SHAPE[1])
    data = model_data(Fixed(scale=scale), rows, NormalNoise(sd=noise))
    parts = DensityParts(model)(data, draws)
    assert list(parts) == ["likelihood", "weights"]
    (row,) = power_scaled({"slope": draws[:, 0]}, parts, SHAPE)

    def scaled(**powers):
        m, c = conjugate(rows, scale, noise, **powers)
        return stats.norm(m[0], np.sqrt(c[0, 0]))

    prior = sensitivity(lambda a: scaled(prior_power=a), draws[:, 0])
    likelihood = sensitivity(lambda a: scaled(likelihood_power=a), draws[:, 0])
    assert row["prior_of_weights"] == pytest.approx(prior, rel=0.05, abs=1e-3)
    assert row["likelihood"] == pytest.approx(likelihood, rel=0.05, abs=1e-3)
    assert row["prior"] == pytest.approx(row["prior_of_weights"], abs=1e-6)
    assert np.isnan(row["prior_of_scales"])
    assert row["pareto_k"] < 0.5
    assert row["floor"] < 0.01
    expected = "potential prior-data conflict" if min(prior, likelihood) > 0.05 else "✓"
    assert row["diagnosis"] == expected


@pytest.mark.slow
def test_the_floor_is_what_unrelated_quantities_show():
    """It falls with the root of the number of draws, and rises with how much a part varies."""
    rng = np.random.default_rng(4)

    def at(draws, sd):
        parts = {n: sd * rng.normal(size=draws) for n in ("likelihood", "weights", "scales")}
        names = [f"q{i}" for i in range(12)]
        rows = power_scaled({n: rng.normal(size=draws) for n in names}, parts, (4, draws // 4))
        largest = [max(row[c] for c in module.COLUMNS) for row in rows]
        assert rows[0]["floor"] == pytest.approx(np.mean(largest), rel=0.3)
        return rows[0]["floor"]

    few, many, varied = at(400, 1.0), at(6_400, 1.0), at(6_400, 4.0)
    assert few == pytest.approx(4 * many, rel=0.35)
    assert varied == pytest.approx(4 * many, rel=0.35)


# Parts of the log-density


def parts_at(prior, hyperprior, named, noise=0.5):
    """Parts of the log-density of a linear regression at draws of its variables by name."""
    rows, likelihood = regression(), NormalNoise(sd=noise)
    model = build_model(Dense(hidden=()), prior, hyperprior, likelihood, rows)
    given = {name: np.asarray(value)[None] for name, value in named.items()}
    values = unconstrained_draws(model, given)[0]
    own = prior.bias_scale is not None
    return DensityParts(model, own)(model_data(hyperprior, rows, likelihood), values)


def drawn(draws=6):
    rng = np.random.default_rng(8)
    scale = rng.gamma(2.0, size=draws)
    return scale, rng.laplace(size=(draws, 1, 1)), rng.laplace(size=(draws, 1))


def test_weights_and_scales_have_densities_of_their_own():
    """On their own scale, without Jacobians; those of the weights are of standard draws."""
    scale, weight, bias = drawn()
    named = {"layer_1_scale": scale, "weight_1_z": weight, "bias_1_z": bias}
    found = parts_at(Laplace(), HalfNormal(sigma=2.0), named)
    expected = stats.laplace.logpdf(weight[:, 0, 0]) + stats.laplace.logpdf(bias[:, 0])
    np.testing.assert_allclose(found["weights"], expected, rtol=1e-10)
    np.testing.assert_allclose(found["scales"], stats.halfnorm.logpdf(scale, scale=2.0), rtol=1e-10)
    rows = regression()
    outputs = scale[:, None] * (rows.x[:, 0] * weight[:, 0] + bias)
    likelihood = stats.norm.logpdf(rows.y, outputs, 0.5).sum(axis=1)
    np.testing.assert_allclose(found["likelihood"], likelihood, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("per", ["layer", "network", "unit"])
@pytest.mark.parametrize("fan_in", [False, True])
def test_parts_are_those_of_the_posterior_not_of_its_form(per, fan_in):
    """Weights drawn around a scale, or scaled from standard draws: but for a constant."""
    scale, weight, bias = drawn()
    name = "network_scale" if per == "network" else "layer_1_scale"
    scales = {name: scale[:, None] if per == "unit" else scale}
    prior = Laplace(fan_in=fan_in)
    standard = {"weight_1_z": weight, "bias_1_z": bias} | scales
    own = {
        "weight_1": weight * scale[:, None, None],
        "bias_1": bias * scale[:, None],
    } | scales
    apart = parts_at(prior, HalfCauchy(per=per), standard)
    around = parts_at(prior, HalfCauchy(per=per, centred=True), own)
    for part in ("weights", "scales", "likelihood"):
        np.testing.assert_allclose(np.diff(around[part]), np.diff(apart[part]), rtol=1e-8)


@pytest.mark.parametrize("centred", slow_but([False], [False, True]))
def test_biases_with_a_scale_of_their_own_are_drawn_around_no_other(centred):
    scale, weight, bias = drawn()
    prior = Laplace(bias_scale=2.0)
    weights = {"weight_1": weight * scale[:, None, None]} if centred else {"weight_1_z": weight}
    named = weights | {"bias_1": bias, "layer_1_scale": scale}
    found = parts_at(prior, HalfCauchy(centred=centred), named)["weights"]
    expected = stats.laplace.logpdf(weight[:, 0, 0]) + stats.laplace.logpdf(bias[:, 0], scale=2.0)
    np.testing.assert_allclose(np.diff(found), np.diff(expected), rtol=1e-8)


@pytest.mark.slow
def test_variances_local_scales_and_noise():
    """A hyperprior on the variance is of it; local scales are the weights' own; noise a scale."""
    scale, weight, bias = drawn()
    named = {"layer_1_variance": scale**2, "weight_1_z": weight, "bias_1_z": bias}
    found = parts_at(Normal(), InverseGamma(on="variance"), named)
    np.testing.assert_allclose(found["scales"], stats.invgamma.logpdf(scale**2, 2.0), rtol=1e-10)
    local = {"weight_1_local": np.abs(weight), "bias_1_local": np.abs(bias)}
    named = {"weight_1_z": weight, "bias_1_z": bias, "noise": scale} | local
    found = parts_at(Horseshoe(), Fixed(), named, noise=HalfNormal())
    expected = sum(
        stats.norm.logpdf(z).reshape(6, -1).sum(axis=1)
        + stats.halfcauchy.logpdf(np.abs(z)).reshape(6, -1).sum(axis=1)
        for z in (weight, bias)
    )
    # PyMC's half-Cauchy is normalised in single precision.
    np.testing.assert_allclose(found["weights"], expected, rtol=1e-7)
    np.testing.assert_allclose(found["scales"], stats.halfnorm.logpdf(scale), rtol=1e-10)


# Cells


TEXT = """
name: toy
sweeps:
  - name: toy
    dataset: {kind: sine, train: 8}
    network: {kind: dense, hidden: []}
    prior: [normal, flat]
    hyperprior: [fixed, half_normal]
    likelihood: {kind: normal, sd: 1.0}
    inference: [nuts, {steps: 10}]
"""


@pytest.fixture
def folder(tmp_path):
    """Made-up cells of a linear regression: each has draws, of whatever distribution."""
    (tmp_path / "toy.yaml").write_text(TEXT.replace("hidden: []", "hidden: [[]]"))
    run = prepare(load_experiment(tmp_path / "toy.yaml"), tmp_path / "out")
    run.results.prepare()
    records = []
    for number, (cell, task) in enumerate(run.tasks.items()):
        rows = cell.dataset.load().training
        model = build_model(cell.network, cell.prior, cell.hyperprior, cell.likelihood, rows)
        size = flatten_model(model, rows=None).size
        values = 0.5 * np.random.default_rng(number).normal(size=(4, 100, size))
        draws = xr.Dataset({"values": (("chain", "draw", "parameter"), values.astype("f4"))})
        record = task.record(
            status="undecided",
            predictive="density",
            results={"scale": getattr(cell.hyperprior, "scale", None), "rmse": 1.0},
        )
        trace = trace_writer(xr.DataTree.from_dict({"/draws": draws}))
        records.append(run.results.save_cell(record, {"trace.nc": trace}))
    return run.results, records


PROGRAMS = {}
"""What was compiled for cells that several tests look at."""


@pytest.fixture
def looked_at(monkeypatch):
    """Names of the cells that were looked at."""
    names, compute = [], cell_sensitivity

    def counted(results, record, _):
        names.append(record.name)
        return compute(results, record, PROGRAMS)

    monkeypatch.setattr(module, "cell_sensitivity", counted)
    return names


def test_sampled_cells_of_proper_priors_have_rows(folder, looked_at):
    results, records = folder
    table = sensitivity_table(results, records)
    assert set(table["engine"]) == {"nuts"}
    assert set(table["prior.kind"]) == {"normal"}
    for kind, rows in table.groupby("hyperprior.kind"):
        outputs = [name for name in rows["quantity"] if name.startswith("output at test row")]
        assert len(outputs) == 3
        scales = ["layer_1_scale"] if kind == "half_normal" else []
        assert list(rows["quantity"]) == ["mean test NLL", *outputs, *scales]
        assert rows["prior_of_scales"].notna().all() == bool(scales)
        assert (rows[["prior_of_weights", "prior", "likelihood"]] > 0).all(axis=None)
    # The scale's own prior pulls at it more than that of the standard draws.
    (row,) = table[table["quantity"] == "layer_1_scale"].to_dict("records")
    assert row["prior_of_scales"] > 3 * row["prior_of_weights"]


def test_a_fit_is_refused(folder):
    results, records = folder
    fitted = next(r for r in records if r.settings["inference"]["engine"] == "compiled")
    with pytest.raises(ResultsError, match=f"`{fitted.name}` must be sampled: draws of a fit"):
        cell_sensitivity(results, fitted)
    assert sensitivity_table(results, [fitted]).empty


def test_the_table_is_kept_and_completed(folder, looked_at):
    """What it holds is not looked at again; without sampled cells there is none."""
    results, records = folder
    sampled = [r for r in records if r.settings["inference"]["engine"] == "nuts"]
    write_sensitivity(results, sampled[:1])
    first = pd.read_csv(results.folder / FILE)
    assert set(first["name"]) == {sampled[0].name}
    looked_at.clear()
    write_sensitivity(results, records)
    assert sampled[0].name not in looked_at and sampled[1].name in looked_at
    both = pd.read_csv(results.folder / FILE)
    pd.testing.assert_frame_equal(both.iloc[: len(first)][first.columns], first)
    text = (results.folder / FILE).read_text()
    write_sensitivity(results, records)
    assert (results.folder / FILE).read_text() == text
    for change in (lambda text: text.replace(",", ";"), lambda text: text.replace("0.", "1.")):
        # As a spreadsheet has saved it: separators ended the sweep in a KeyError, numbers stayed.
        (results.folder / FILE).write_text(change(text))
        write_sensitivity(results, records)
        assert (results.folder / FILE).read_text() == text
    write_sensitivity(results, [r for r in records if r not in sampled])
    assert not (results.folder / FILE).exists()
