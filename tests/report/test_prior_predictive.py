"""The page's section on what priors say: only where functions were drawn from them."""

import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

from pmbnn.cli import app
from pmbnn.models.hyperpriors import Fixed
from pmbnn.prior_predictive.store import StoredPrior, figure_path, save_prior, write_priors
from pmbnn.report.page import report_page
from pmbnn.report.prior_predictive import atlas_sheets
from pmbnn.results.loading import load_results
from pmbnn.results.store import PRIORS, Results

NUMBERS = {
    "constant": 0.25, "constant_mcse": 0.013, "boundary_length": 0.8765,
    "boundary_length_mcse": 0.02, "common_class_sd": 0.125, "saturated": None,
}  # fmt: skip


def group():
    x1, x2 = np.linspace(0, 1, 5), np.linspace(0, 2, 4)
    half = np.full((5, 4, 2), 0.5)
    axes = ("x1", "x2", "output")
    arrays = {"probability": (axes, half), "sd": (axes, half / 2)}
    arrays["function"] = (("function", *axes), np.stack([half, half]))
    return xr.Dataset(arrays, {"x1": x1, "x2": x2, "output": ["0", "1"]})


@pytest.fixture(scope="module")
def folder(make, tmp_path_factory):
    """Cells of a prior, and functions drawn from two candidates of its scale; one has a figure."""
    record = make.record(accuracy=0.8)
    folder = make.results(tmp_path_factory.mktemp("atlas") / "priors", [record])
    results = Results(folder)
    for name, scale, groups in (("a", 0.1, {"predictions": group()}), ("b", 10.0, {})):
        cell = replace(record.cell, hyperprior=Fixed(scale=scale))
        prior = StoredPrior(name, cell, record.cell.hyperprior, NUMBERS)
        save_prior(results, prior, groups)
    write_priors(results, ["a", "b"])
    return folder


def page(folder):
    return report_page([load_results(folder)], [])


def test_without_a_table_there_is_no_section(folder, make, tmp_path):
    other = make.results(tmp_path / "other", [make.record(accuracy=0.8)])
    for text, said in ((page(other), False), (page(folder), True)):
        assert ("atlas-section" in text) == said
        assert ('<a href="#atlas-section">Prior atlas</a>' in text) == said


def test_the_report_draws_what_is_missing_and_shows_it(folder):
    """Of the one that has functions; the numbers of both are in the table."""
    done = CliRunner().invoke(app, ["report", str(folder)])
    assert done.exit_code == 0, done.output
    assert "making figures of priors" in done.stderr
    assert figure_path(Results(folder), "a").is_file()
    text = (folder / "index.html").read_text(encoding="utf-8")
    assert text.count('<details id="atlas-0-figure-') == 1
    assert "priors/prior/a.png" in text
    again = CliRunner().invoke(app, ["report", str(folder)])
    assert "figures of priors" not in again.stderr


def test_rows_have_numbers_with_errors(folder):
    (sheet,) = atlas_sheets([load_results(folder)])
    assert sheet.title == "priors, synthetic: moons, noise 0.4, dense"
    headings = [heading.title for heading in sheet.table.headings]
    expected = ["prior", "hyperprior", "constant functions", "length of the boundary"]
    assert headings == [*expected, "its sd over functions"]
    first, second = ([entry.text for entry in row] for row in sheet.table.rows)
    assert first == ["normal", "fixed 0.1 (candidate)", "0.250 ± 0.013", "0.876 ± 0.020", "0.125"]
    assert second[1] == "fixed 10 (candidate)"
    (view,) = sheet.views
    assert view.title == "normal × fixed 0.1 (candidate)"
    assert view.numbers["constant functions"] == "0.250 ± 0.013"
    assert "saturated hidden units" not in view.numbers


def test_names_on_the_page_are_unique(folder):
    ids = re.findall(r' id="([^"]*)"', page(folder))
    assert len(ids) == len(set(ids))


def test_a_table_whose_functions_are_gone_shows_nothing_of_them(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    for path in (copy / "prior").iterdir():
        path.unlink()
    assert (copy / PRIORS).is_file()
    assert atlas_sheets([load_results(copy)]) == []
