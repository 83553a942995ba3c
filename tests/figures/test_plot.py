"""One figure of stored results by its name."""

from io import BytesIO

import matplotlib
import pytest
from makers import FIXED, MOONS, plane_trace, record, store
from PIL import Image

import pmbnn as pb

CIRCLES = {"kind": "circles", "noise": 0.35, "factor": 0.5, "seed": 0}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    trace = plane_trace(resolution=(6, 5), points=20)
    cells = [
        (record("normal", dataset=MOONS, accuracy=0.8), trace),
        (record("normal", FIXED, MOONS, accuracy=0.7), trace),
        (record("laplace", dataset=CIRCLES, accuracy=0.9), trace),
    ]
    return pb.load_results(store(tmp_path_factory.mktemp("results"), cells).folder)


def test_a_figure_is_of_the_cells_that_are_asked_for(results, words):
    shown = words(pb.plot(results, "map", dataset="moons", hyperprior="fixed"))
    assert any("fixed" in text and "accuracy 0.700" in text for text in shown)
    shown = words(pb.plot(results, "accuracy", dataset="moons"))
    assert any(text.startswith("moons, noise 0.4") for text in shown)
    assert "Laplace" not in " ".join(shown)


def test_results_are_named_by_their_folder_or_by_a_cell(results, words):
    cell = results.cell(dataset="moons", hyperprior="fixed")
    assert words(pb.plot(cell, "map")) == words(
        pb.plot(results, "map", dataset="moons", hyperprior="fixed")
    )
    folder = results.results.folder
    for named in (folder, str(folder)):
        assert words(pb.plot(named, "accuracy", dataset="moons"))
    with pytest.raises(TypeError, match="`results` must be what `load_results` gives.* got int"):
        pb.plot(3, "map")


def test_a_figure_is_a_picture_without_a_backend_of_notebooks(results):
    """Its own canvas stays: a window it has been given is not taken from it."""
    figure = pb.plot(results, "map", dataset="circles")
    canvas, before = figure.canvas, matplotlib.get_backend()
    picture = Image.open(BytesIO(figure._repr_png_()))
    assert picture.format == "PNG" and min(picture.size) > 200
    assert figure.canvas is canvas and matplotlib.get_backend() == before


def test_a_script_shows_and_saves_it(results, tmp_path, monkeypatch):
    import matplotlib.pyplot as plt

    figure = pb.plot(results, "map", dataset="circles")
    figure.savefig(tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 5_000
    monkeypatch.setattr(plt, "show", lambda: shown.append(plt.gcf()))
    shown = []
    with matplotlib.rc_context({"backend": "agg"}):
        figure.show()
    assert shown == [figure]
    plt.close(figure)


def test_what_cannot_be_drawn_is_an_error(results):
    with pytest.raises(ValueError, match=r"`kind` must be one of accuracy, .*map, .* got 'scales'"):
        pb.plot(results, "scales", dataset="moons")
    with pytest.raises(
        ValueError, match=r"`maps` is a figure of each of 2: moons.*; circles.* Say"
    ):
        pb.plot(results, "maps")
    with pytest.raises(ValueError, match=r"0 of 3 cells have prior='cauchy'"):
        pb.plot(results, "maps", prior="cauchy")
