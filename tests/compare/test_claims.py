"""The table of a whole results folder, and the command that prints it."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from typer.testing import CliRunner

from pmbnn.cli import app
from pmbnn.compare.claims import (
    BOUNDARY,
    CLAIMS,
    COLUMNS,
    HYPERPRIORS,
    SCALES,
    SPARSITY,
    claims_table,
    measures_of,
    read_claims,
)
from pmbnn.results.reading import load_arrays, load_groups


def cells(made, seeds=(0, 1)):
    """Two priors, tuned and learned; Cauchy keeps four weights away from zero, Laplace two."""
    plane = made.plane_trace(resolution=(12, 10), points=20)
    for prior, away in (("laplace", 2), ("cauchy", 4)):
        for seed in seeds:
            data = made.MOONS | {"seed": seed}
            for hyperprior, scale in ((made.TUNED, None), (made.HALF_NORMAL, 0.5)):
                record = made.record(prior, hyperprior, data, excess_error=0.01 * (1 + seed))
                yield record, made.both(plane, made.weights_trace(away, scale, seed=seed))


@pytest.fixture(scope="module")
def results(made, tmp_path_factory):
    return made.store(tmp_path_factory.mktemp("toy"), cells(made))


@pytest.fixture(scope="module")
def rows(made, results):
    return claims_table("toy", results, [record for record, _ in cells(made)])


def row(rows, **wanted):
    (only,) = rows.query(" and ".join(f"{key} == @wanted['{key}']" for key in wanted)).to_dict(
        "records"
    )
    return only


def test_every_claim_has_rows_with_the_same_columns(rows):
    assert set(rows["claim"]) == set(CLAIMS)
    assert tuple(rows) == COLUMNS
    (place,) = rows[["experiment", "sweep", "data", "variant"]].drop_duplicates().values.tolist()
    assert place == ["toy", "toy", "moons, noise 0.4", ""]


def test_sparsity(rows):
    for prior, away in (("Laplace", 2), ("Cauchy", 4)):
        place = {"claim": SPARSITY, "prior": prior, "hyperprior": "half-normal"}
        assert row(rows, measure="weights", **place)["mean"] == 6
        found = row(rows, measure="away from zero", **place)
        assert (found["mean"], found["se"], found["seeds"]) == (away, 0, 2)
        narrow = row(rows, measure="share narrow about zero", **place)
        assert narrow["mean"] == pytest.approx(1 - away / 6)


def test_boundary(made, rows):
    """The map is even in nothing, so its correlation with the truth is neither 0 nor 1."""
    found = row(rows, claim=BOUNDARY, prior="Laplace", hyperprior="half-normal",
                measure="true error rate")  # fmt: skip
    assert found["mean"] == pytest.approx(1 - 0.8630, abs=0.01)
    trace = made.plane_trace(resolution=(40, 40), points=20)
    from pmbnn.data import Moons

    moons = Moons(noise=0.4)
    plane = trace["predictions"].dataset.copy(deep=True)
    grid = np.stack(np.meshgrid(plane["x1"], plane["x2"], indexing="ij"), axis=-1)
    truth = moons.class_probabilities(grid.reshape(-1, 2)).min(axis=1)
    plane["sd"][:] = truth.reshape(40, 40, 1)
    ideal = measures_of(type(trace).from_dict({"/predictions": plane}), made.record()).boundary
    assert ideal["rank correlation, map"] == pytest.approx(1)
    assert ideal["rank correlation, data"] > 0.98


def test_pairs_and_scales(rows):
    pair = row(rows, claim=HYPERPRIORS, prior="Laplace", measure="excess error")
    assert (pair["mean"], pair["against"], pair["seeds"]) == (0, "fixed (tuned)", 2)
    scale = row(rows, claim=SCALES, prior="Cauchy", measure="learned, layer 3")
    assert scale["mean"] == pytest.approx(1.5, rel=1e-5)


def test_point_fits_and_failed_cells_say_nothing_on_weights(made, tmp_path):
    point = made.record(inference={"guide": "map"})
    lost = made.record("laplace", failed=True)
    trace = made.both(made.plane_trace(resolution=(4, 4)), made.weights_trace())
    results = made.store(tmp_path, [(point, trace), (lost, None)])
    assert claims_table("toy", results, [point, lost]).empty


def test_refuted_chains_make_no_claim(made, tmp_path):
    """Their draws are not of the posterior, as the ELBO of the fit shows."""
    guide = {"engine": "compiled", "guide": "mean_field", "kl_weight": 1.0, "kl_scaling": "sum"}
    chains = {
        "inference": {"engine": "mclmc"},
        "log_likelihood": -400.0,
        "log_likelihood_mcse": 1.0,
    }
    fit = made.record("laplace", made.HALF_NORMAL, made.MOONS, inference=guide, elbo=-300.0)
    stuck = made.record("laplace", made.HALF_NORMAL, made.MOONS, **chains)
    trace = made.both(made.plane_trace(resolution=(12, 10), points=20), made.weights_trace(2, 0.5))
    results = made.store(tmp_path, [(fit, trace), (stuck, trace)])
    alone = claims_table("toy", results, [stuck])
    assert len(alone)
    of_fit = claims_table("toy", results, [fit])
    pd.testing.assert_frame_equal(claims_table("toy", results, [fit, stuck]), of_fit)


def test_a_trace_of_images_has_no_boundary(made):
    measures = measures_of(made.small_image_trace(size=20), made.record(dataset=made.MNIST))
    assert (measures.sparsity, measures.boundary, measures.scales) == ({}, {}, {})


def test_arrays_are_read_as_xarray_reads_them(made, results):
    name = next(cells(made))[0].name
    whole = load_groups(results, name, ["predictions", "posterior", "fit"])
    wanted = {"predictions": "sd|probability", "posterior": "weight_.*", "fit": "", "none": ".*"}
    found = load_arrays(results, name, wanted)
    assert set(found.children) == {"predictions", "posterior", "fit"}
    for group in ("predictions", "posterior"):
        for array, held in found[group].dataset.items():
            assert held.identical(whole[group][array].drop_attrs())
    assert not found["fit"].dataset.data_vars
    assert found["fit"].attrs["best"] == whole["fit"].attrs["best"] == 1


# The command


def run(*arguments):
    return CliRunner().invoke(app, ["claims", *map(str, arguments)])


def test_tables_are_printed_and_written(results, rows):
    done = run(results.folder)
    assert done.exit_code == 0, done.output
    assert f"table {results.folder / 'claims.csv'}" in done.output
    assert "sparsity of the last layer" in done.output and "half-Cauchy" not in done.output
    written = read_claims(results.folder / "claims.csv")
    expected = rows.assign(experiment=results.folder.name)
    by = [column for column in COLUMNS if column not in ("mean", "se", "seeds")]
    written, expected = (table.sort_values(by, ignore_index=True) for table in (written, expected))
    pd.testing.assert_frame_equal(written, expected, check_dtype=False, rtol=1e-12)
    assert not list(results.folder.glob(".part-*"))


def test_one_table_for_all_folders(results, tmp_path):
    done = run(results.folder, results.folder, "--out", tmp_path / "all.csv")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "all.csv").is_file()


def test_folders_of_one_experiment_have_tables_of_their_own(made, tmp_path):
    """The numbers of the second had stood in the place of those of the first."""
    folders = []
    for name, nll in (("one", 0.25), ("two", 0.5)):
        pair = [
            made.record(hyperprior=h, excess_nll=value)
            for h, value in ((made.HALF_NORMAL, nll), (made.FIXED, 0.0))
        ]
        folder = made.store(tmp_path / name, [(one, xr.DataTree()) for one in pair]).folder
        (folder / "provenance.json").write_text('{"experiment": "toy"}')
        folders.append(folder)
    done = run(*folders, folders[0], "--out", tmp_path / "all.csv")
    assert done.exit_code == 0, done.output
    table = read_claims(tmp_path / "all.csv").query("measure == 'excess NLL'")
    assert dict(zip(table["experiment"], table["mean"], strict=True)) == {
        f"toy ({folders[0]})": 0.25,
        f"toy ({folders[1]})": 0.5,
    }
    assert done.output.count("learned scale less fixed scale") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing"], "error: The results folder `missing` does not exist."),
        ([".", "--out", "missing/claims.csv"], "error: "),
    ],
)
def test_errors_are_one_line(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run(*arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith(message) and done.stderr.count("\n") == 1


def test_a_table_that_cannot_be_written(results, tmp_path):
    done = run(results.folder, "--out", tmp_path / "missing" / "claims.csv")
    assert done.exit_code == 2
    assert "`--out` must lie in a folder that exists, got `" in done.stderr
