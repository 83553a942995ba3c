"""The benchmark on posteriordb: its statistics by simulation, its models by the reference draws."""

import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

DATA = os.environ.get("PMBNN_DATA")

REPLICATIONS = 100


@pytest.fixture
def posteriordb(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    import posteriordb

    return posteriordb


@pytest.fixture
def models(posteriordb):
    import posteriordb_models

    return posteriordb_models


# Comparison with the reference


def independent(rng, chains=10, draws=1000):
    return {"x": rng.standard_normal((chains, draws))}


def correlated(rng, chains=4, draws=1000, correlation=0.7):
    """Stationary autoregressive chains with standard normal draws."""
    x = rng.standard_normal((chains, draws))
    for t in range(1, draws):
        x[:, t] = correlation * x[:, t - 1] + np.sqrt(1 - correlation**2) * x[:, t]
    return {"x": x}


def test_differences_are_as_large_as_their_errors(posteriordb):
    """In the root mean square over replications, within four of its standard errors."""
    rng = np.random.default_rng(0)
    found = [posteriordb.compare(correlated(rng), independent(rng)) for _ in range(REPLICATIONS)]
    tolerance = 4 / np.sqrt(2 * REPLICATIONS)
    for name in ("mean_errors", "spread_errors"):
        values = np.array([getattr(comparison, name) for comparison in found])
        assert np.sqrt((values**2).mean()) == pytest.approx(1, abs=tolerance)
    assert all(comparison.is_right for comparison in found)


@pytest.mark.parametrize(
    ("scale", "shift", "is_right"),
    [(1, 0.03, True), (1, 0.2, False), (1, -0.2, False), (1.15, 0, False), (0.85, 0, False)],
)
def test_wrong_moments(posteriordb, scale, shift, is_right):
    rng = np.random.default_rng(1)
    draws = {"x": shift + scale * independent(rng)["x"]}
    found = posteriordb.compare(draws, independent(rng))
    assert found.is_right == is_right
    assert found.mean == pytest.approx(abs(shift), abs=0.05)
    assert found.spread == pytest.approx(abs(scale - 1), abs=0.05)


@pytest.mark.parametrize(("shift", "is_right"), [(0.1, True), (0.4, False)])
def test_guides_are_judged_by_their_means(posteriordb, shift, is_right):
    rng = np.random.default_rng(1)
    draws = {"x": shift + 0.2 * independent(rng)["x"]}
    within = posteriordb.GUIDE_MEAN, np.inf
    assert posteriordb.compare(draws, independent(rng), *within).is_right == is_right


def test_the_worst_parameter_counts(posteriordb):
    rng = np.random.default_rng(2)
    reference = {name: independent(rng)["x"] for name in "abc"}
    draws = {name: independent(rng)["x"] + (name == "b") for name in "cba"}
    assert posteriordb.compare(draws, reference).mean == pytest.approx(1, abs=0.05)


def test_few_draws_are_called_vague(posteriordb):
    rng = np.random.default_rng(3)
    few = posteriordb.compare(independent(rng, draws=10), independent(rng))
    run = posteriordb.Run("converged", "")
    assert few.precision > posteriordb.MEAN
    assert posteriordb.Row("a", "nuts", run, few).is_vague


def test_draws_that_are_not_numbers_are_off(posteriordb):
    rng = np.random.default_rng(4)
    draws = independent(rng)
    draws["x"][0, 0] = np.nan
    assert not posteriordb.compare(draws, independent(rng)).is_right


# Runs and tables, with a posterior that is known: a line under flat priors


@pytest.fixture
def line(tmp_path, monkeypatch):
    """Exact draws of intercept, slope and noise, (chain, draw), by name."""
    rng = np.random.default_rng(5)
    n, shape = 30, (10, 400)
    height = rng.normal(1, 0.5, n)
    earn = 2 + height + rng.standard_normal(n)
    x = np.stack([np.ones(n), height], axis=1)
    inverse = np.linalg.inv(x.T @ x)
    centre = inverse @ x.T @ earn
    squares = ((earn - x @ centre) ** 2).sum()
    # A flat prior of sigma leaves one degree of freedom less than that of its logarithm.
    sigma = np.sqrt(squares / rng.chisquare(n - 3, shape))
    beta = centre + sigma[..., None] * (
        rng.standard_normal((*shape, 2)) @ np.linalg.cholesky(inverse).T
    )
    draws = {"beta[1]": beta[..., 0], "beta[2]": beta[..., 1], "sigma": sigma}
    chains = [{name: v[i].tolist() for name, v in draws.items()} for i in range(len(sigma))]
    folder = tmp_path / "posteriordb"
    for kind, name, content in (
        ("data", "line", {"earn": earn.tolist(), "height": height.tolist()}),
        ("draws", "line-draws", chains),
    ):
        (folder / kind).mkdir(parents=True)
        with zipfile.ZipFile(folder / kind / f"{name}.json.zip", "w") as archive:
            archive.writestr(f"{name}.json", json.dumps(content))
    rows = ("known,earn_height,line,line-draws,3", "moving,lotka_volterra,line,line-draws,3")
    (folder / "posteriors.csv").write_text(
        "\n".join(["posterior,model,data,reference,dimensions", *rows, ""])
    )
    monkeypatch.setenv("PMBNN_DATA", str(tmp_path))
    return draws


def test_identities_hold_for_exact_draws_only(posteriordb, models, line):
    known = models.posteriors()["known"]
    assert np.abs(posteriordb.stein(known, models.reference_draws(known))).max() < 4
    other_mean = line | {"sigma": 1.05 * line["sigma"]}
    assert np.abs(posteriordb.stein(known, other_mean)[0]).max() > 6
    middle = line["beta[2]"].mean()
    wide = line | {"beta[2]": middle + 1.3 * (line["beta[2]"] - middle)}
    assert np.abs(posteriordb.stein(known, wide)[1]).max() > 6


def test_scalars_have_one_based_names(models):
    arrays = {"beta": np.arange(12).reshape(2, 3, 2), "sigma": np.zeros((2, 3))}
    found = models.scalars(arrays, ["beta[2]", "sigma"])
    np.testing.assert_array_equal(found["beta[2]"], arrays["beta"][..., 1])
    assert found["sigma"].shape == (2, 3)


def test_tables_of_runs(posteriordb, line, tmp_path):
    shifted = {name: values + 1 for name, values in line.items()}
    Run = posteriordb.Run
    for method, run, draws in (
        ("mclmc", Run("converged", "agreed", (2.0, 3.0), (1.0, 1.0), "abc"), shifted),
        ("nuts", Run("failed", "an error", commit="abc"), {}),
        ("nutpie", Run("", "R-hat", (4.0, 4.0), None, "abc"), line),
    ):
        posteriordb.store(posteriordb.file_of(tmp_path, "known", method), run, draws)
    methods = ("mclmc", "nuts", "nutpie")
    text = posteriordb.text_of(tmp_path, ["known", "moving"], methods)
    lines = [one.split() for one in text.splitlines()]
    # Right, off, no draws, wrong and converged, vague; times over those of nutpie.
    assert ["mclmc", "0", "1", "0", "1", "0", "0.50", "0.75"] in lines
    assert ["nuts", "0", "0", "1", "0", "0"] in lines
    assert ["nutpie", "1", "0", "0", "0", "0", "1.00", "1.00"] in lines
    assert ["mclmc,", "converged", "0", "1", "0"] in lines
    assert "at abc" in text.splitlines()[0]
    assert text.splitlines()[-1].startswith("moving: refused, a differential equation")


@pytest.mark.slow
def test_nuts_is_right_on_exact_draws(posteriordb, line, tmp_path):
    posteriordb.start("known", "nuts", tmp_path)
    (row,) = posteriordb.rows_of(tmp_path, ["known"], ["nuts"])
    assert (row.run.status, row.verdict) == ("converged", "right")
    assert not row.is_vague
    assert min(*row.run.cold, *row.run.again) > 0


def test_a_run_that_fails_is_kept_with_its_error(posteriordb, line, tmp_path):
    posteriordb.start("known", "no_such_method", tmp_path)
    run, draws = posteriordb.load(posteriordb.file_of(tmp_path, "known", "no_such_method"))
    assert run.status == "failed" and not draws
    assert "no_such_method" in run.reason


# Models


@pytest.mark.slow
@pytest.mark.skipif(
    DATA is None or not (Path(DATA) / "posteriordb").is_dir(),
    reason="PMBNN_DATA must have posteriordb",
)
@pytest.mark.parametrize(
    "name",
    [
        "arK-arK",
        "arma-arma11",
        "bball_drive_event_0-hmm_drive_0",
        "bball_drive_event_1-hmm_drive_1",
        "diamonds-diamonds",
        "earnings-logearn_interaction_z",
        "eight_schools-eight_schools_centered",
        "eight_schools-eight_schools_noncentered",
        "garch-garch11",
        "gp_pois_regr-gp_pois_regr",
        "gp_pois_regr-gp_regr",
        "hmm_example-hmm_example",
        "kidiq-kidscore_momhs",
        "kidiq_with_mom_work-kidscore_mom_work",
        "kilpisjarvi_mod-kilpisjarvi",
        "low_dim_gauss_mix-low_dim_gauss_mix",
        "mesquite-logmesquite_logvas",
        "nes1972-nes",
        "sblrc-blr",
    ],
)
def test_models_have_the_posterior_of_the_reference_draws(posteriordb, models, name):
    """Some 280 standard normal numbers exceed 4.5 with a probability of 0.002."""
    posterior = models.posteriors()[name]
    found = posteriordb.stein(posterior, models.reference_draws(posterior))
    assert np.abs(found).max() < 4.5
