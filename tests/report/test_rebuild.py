"""Figures and claims that the command makes again from what is stored."""

import errno
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest
from makers import list_present
from typer.testing import CliRunner

from pmbnn.cli import app
from pmbnn.results.store import Results, trace_writer

OVERVIEW = "figures/synthetic-moons-noise-0.4-maps.png"
MADE = (OVERVIEW, "claims.csv")

STAGE = re.compile(r"[a-z ]+ (?:figure|cell) \d+/\d+")
"""A line on how far a stage is."""


@pytest.fixture
def small(make, tmp_path):
    """A results folder of one cell without figures and claims."""
    return bare(make, tmp_path / "small")


@pytest.fixture(scope="module")
def once(make, tmp_path_factory):
    """The same with all that the command makes."""
    folder = bare(make, tmp_path_factory.mktemp("once") / "whole")
    report(folder)
    return folder


@pytest.fixture
def whole(once, tmp_path):
    """A copy of that, which a test may change."""
    return Path(shutil.copytree(once, tmp_path / "whole"))


def bare(make, folder):
    make.results(folder, [make.record(hyperprior="half_normal", accuracy=0.8)])
    for path in folder.glob("figures/*"):
        path.unlink()
    return folder


def report(folder, *arguments):
    """Lines on the terminal but for the page's and those of stages, once the page is written."""
    done = CliRunner().invoke(app, ["report", str(folder), *map(str, arguments)])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("page ") and done.stdout.count("\n") == 1
    return [line for line in done.stderr.splitlines() if not STAGE.fullmatch(line)]


def fit_again(folder):
    """Change the record of the one cell, as a fit that comes out otherwise does."""
    results = Results(folder)
    (name,) = results.cell_names()
    record = results.load_record(name)
    figures = {path: path.read_bytes() for path in (results.cells / name).glob("*.png")}
    trace = trace_writer(results.load_trace(name))
    results.save_cell(record.model_copy(update={"seconds": 7.0}), {"trace.nc": trace})
    for path, content in figures.items():
        path.write_bytes(content)


def times(folder):
    """When everything was written but the page, and the note that it was."""
    of_page = ("index.html", "derived.json")
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in of_page]
    return {path: path.stat().st_mtime_ns for path in files}


def text(folder):
    return (folder / "index.html").read_text(encoding="utf-8")


def test_missing_figures_and_claims_are_made(small):
    (small / "figures").rmdir()
    assert report(small) == [
        "priors: making overview figures from 1 stored cells",
        "priors: making comparisons from 1 stored cells",
    ]
    assert (small / OVERVIEW).read_bytes().startswith(b"\x89PNG")
    assert "sparsity of the last layer" in (small / "claims.csv").read_text(encoding="utf-8")
    assert not list(small.glob(".part-*"))
    assert "sparsity of the last layer" in text(small)
    assert 'data-figure="maps: synthetic: moons, noise 0.4"' in text(small)


def test_what_takes_long_shows_itself(small):
    lines = CliRunner().invoke(app, ["report", str(small)]).stderr.splitlines()
    stages = [line for line in lines if STAGE.fullmatch(line)]
    drawn = len(list(small.glob("figures/*.png")))
    assert stages == [f"overviews figure 0/{drawn}", "comparing cell 0/1", "reading cell 0/1"]


def test_what_is_current_is_left_alone(whole):
    before = times(whole)
    assert len(before) > 5
    assert report(whole) == []
    assert times(whole) == before


def test_a_page_that_is_a_link_is_replaced_and_what_it_names_is_not(whole, tmp_path):
    other = tmp_path / "other.html"
    other.write_text("mine", encoding="utf-8")
    page = whole / "index.html"
    page.unlink()
    page.symlink_to(other)
    assert report(whole) == []
    assert not page.is_symlink()
    assert other.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("stale", "made"), [("figures/*", "overview figures"), ("claims.csv", "comparisons")]
)
def test_what_is_not_as_it_was_made_is_made_again(whole, stale, made):
    for path in whole.glob(stale):
        path.write_bytes(b"old")
    assert report(whole) == [f"priors: making {made} from 1 stored cells"]
    assert all(path.read_bytes() != b"old" for path in whole.glob(stale))


@pytest.mark.slow
def test_what_is_of_other_cells_is_made_again_whatever_its_time(whole):
    fit_again(whole)
    for path in whole.rglob("metrics.json"):
        os.utime(path, (0, 0))
    assert report(whole) == [
        "priors: making overview figures from 1 stored cells",
        "priors: making comparisons from 1 stored cells",
    ]
    assert report(whole) == []


def test_times_do_not_matter(whole):
    """Copying a folder, or moving it, may change them."""
    for path in whole.rglob("metrics.json"):
        os.utime(path, (path.stat().st_mtime + 3_600,) * 2)
    assert report(whole) == []


@pytest.mark.slow
def test_figures_of_other_data_do_not_count(make, whole):
    """The folder has grown by a data set of which nothing is drawn."""
    results, record = Results(whole), make.record(seed=1, accuracy=0.7, dataset={"noise": 0.2})
    results.save_cell(record, {"trace.nc": trace_writer(make.trace())})
    list_present(results)
    assert "priors: making overview figures from 2 stored cells" in report(whole)
    assert (whole / "figures" / "synthetic-moons-noise-0.2-maps.png").is_file()


def test_a_figure_of_its_own_that_a_cell_lacks_is_drawn(whole):
    (figure,) = whole.glob("cells/*/map.png")
    figure.unlink()
    assert report(whole) == ["priors: making missing figures of single cells from 1 stored cells"]
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_a_folder_without_cells_that_say_anything_on_the_claims(make, tmp_path):
    """A point fit has no distribution of weights; a table of earlier cells goes."""
    record = make.record(accuracy=0.8, inference={"guide": "map"})
    folder = make.results(tmp_path / "point", [record])
    (folder / "claims.csv").write_text("claim\nold\n", encoding="utf-8")
    assert report(folder)[-1] == "priors: making comparisons from 1 stored cells"
    assert not (folder / "claims.csv").exists()
    assert "comparisons-section" not in text(folder)


def test_a_folder_that_cannot_be_written_is_shown_as_far_as_it_goes(small, tmp_path, monkeypatch):
    def reject(*arguments, dir=None, **named):
        if dir == small:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(*arguments, dir=dir, **named)

    real = tempfile.TemporaryFile
    monkeypatch.setattr(tempfile, "TemporaryFile", reject)
    (line,) = report(small, "--out", tmp_path / "page")
    assert line.startswith(f"`{small}` cannot be written: Read-only file system; fix ")
    assert not any((small / made).exists() for made in MADE)
    assert "figures-section" not in text(tmp_path / "page")


def test_what_cannot_be_made_is_left_out_and_a_line_says_so(whole, monkeypatch):
    import pmbnn.figures.stage as stage

    def reject(figure, path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    before = {path: path.read_bytes() for path in whole.glob("figures/*")}
    fit_again(whole)
    monkeypatch.setattr(stage, "save_figure", reject)
    _, line = report(whole)
    assert line.startswith(f"`{whole / 'figures'}")
    assert "cannot be written: No space left on device; fix this" in line
    assert line.endswith("Figures and comparisons that are missing or stale are left out.")
    assert {path: path.read_bytes() for path in whole.glob("figures/*")} == before
    assert "figures-section" not in text(whole)
    assert not list(whole.glob(".part-*"))
