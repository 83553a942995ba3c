"""Parts of the page: drawings, images, and what is read of a trace."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from pmbnn.figures import style
from pmbnn.report.details import _diagnostics, draw_training, draw_weights, grid_views, grids
from pmbnn.report.images import figure_image, map_image
from pmbnn.report.tables import (
    MOST_CURVES,
    MOST_POINTS,
    CellView,
    Parts,
    Training,
    Weights,
    read_parts,
)
from pmbnn.results.reading import PlaneMap
from pmbnn.results.store import Results, ResultsError, trace_writer


def coordinates(path):
    return np.array([[float(x) for x in p.split()] for p in re.split("[ML]", path) if p])


def paths(drawing, kind):
    return [path.d for path in drawing.paths if path.kind == kind]


def test_elbo_rises_inside_the_drawing():
    elbo = np.array([[-1e9, *np.linspace(-400, -300, 39)], [np.nan] * 20 + [-350.0] * 20])
    drawing = draw_training(Training(np.arange(1, 41), elbo, best=0))
    [best], [other] = paths(drawing, "best"), paths(drawing, "other")
    x, y = coordinates(best).T
    assert (np.diff(x) > 0).all() and (np.diff(y) <= 0).all()
    assert (y > 0).all() and (y < 170).all()
    assert len(coordinates(other)) == 20


def test_an_objective_that_is_no_elbo_is_named():
    training = Training(np.arange(1, 41), np.linspace(-400, -300, 40)[None], best=0)
    drawing = draw_training(training, "log-posterior")
    assert drawing.label.startswith("log-posterior from")
    assert drawing.caption.startswith("log-posterior (nats)")
    assert "ELBO" not in drawing.label + drawing.caption


@pytest.mark.parametrize(
    ("guide", "expected"),
    [
        ("map", ["step", "test log likelihood", "test log-posterior"]),
        ("maximum_likelihood", ["step", "test log likelihood"]),
        ("mean_field", ["step", "KL", "test log likelihood", "test ELBO", "test evidence"]),
    ],
)
def test_diagnostics_on_the_way_name_the_objective(made, guide, expected):
    test = {"log_likelihood": [-2.0], "elbo": [-2.5], "evidence": [0.8]}
    numbers = {"step": [0], "kl": [0.5], "parts": {"test": test}}
    record = made.record(inference={"guide": guide}).model_copy(update={"diagnostics": numbers})
    assert list(_diagnostics(record).headings) == expected


def test_an_elbo_that_is_never_finite_is_not_drawn():
    assert draw_training(Training(np.arange(3), np.full((1, 3), np.nan), 0)) is None


def test_weights_away_from_zero_have_another_line():
    at = np.linspace(-1, 2, 5)
    density = np.array([[0, 1, 0.5, 0, 0], [0, 0, 0, 0.5, 1]])
    drawing = draw_weights(Weights(at, density, np.array([False, True])))
    assert len(paths(drawing, "near")) == len(paths(drawing, "away")) == 1
    assert [path.kind for path in drawing.paths] == ["axis", "zero", "near", "away"]


def test_parts_of_a_trace(make, tmp_path):
    results = Results(tmp_path)
    results.prepare()
    results.save_cell(make.record(name="a"), {"trace.nc": trace_writer(make.trace())})
    training, weights, plane = read_parts(results, "a")
    assert training.best == 1
    assert training.elbo.shape == (2, MOST_POINTS)
    assert (training.step[0], training.step[-1]) == (100, 8000)
    assert weights.away.tolist() == [True, True, False, False]
    peaks = weights.at[np.argmax(weights.density, axis=1)]
    np.testing.assert_allclose(peaks, [3, 3, 0, 0], atol=0.3)
    assert plane.probability.shape == (12, 10)


def test_many_weights_share_one_density(make, tmp_path):
    results = Results(tmp_path)
    results.prepare()
    trace = make.trace(weights=MOST_CURVES + 1)
    del trace["predictions"]
    results.save_cell(make.record(name="a"), {"trace.nc": trace_writer(trace)})
    training, weights, plane = read_parts(results, "a")
    assert weights.density.shape == (1, MOST_POINTS)
    assert weights.away.sum() == 2
    assert plane is None
    assert read_parts(results, "b") == (None, None, None)


def decoded(address):
    return Image.open(io.BytesIO(base64.b64decode(address.split(",")[1])))


def test_maps_have_x1_across_and_x2_up():
    x1, x2 = np.linspace(0, 1, 60), np.linspace(0, 1, 40)
    probability = np.where(x1[:, None] > 0.5, 0.9, 0.1) * np.ones(40)
    sd = np.zeros((60, 40))
    sd[:20, 20:] = 0.2
    plane = PlaneMap(x1, x2, probability, sd, "0")
    image = decoded(map_image(plane, plane.probability, style.PROBABILITY, 1.0).src).convert("RGB")
    assert image.size == (120, 80)
    left, right = (image.getpixel((at, 40)) for at in (10, 100))
    assert left[0] > left[2] and right[2] > right[0]
    assert max(image.getpixel((60, 40))) < 80, "the line of the boundary"
    uncertain = decoded(map_image(plane, plane.sd, style.UNCERTAINTY, 0.2).src).convert("RGB")
    brightest = tuple(round(255 * part) for part in style.UNCERTAINTY(1.0)[:3])
    assert np.abs(np.subtract(uncertain.getpixel((10, 10)), brightest)).max() <= 3


def test_figures_are_made_small_on_white(tmp_path):
    Image.new("RGBA", (400, 100), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    address, width, height = figure_image(tmp_path / "clear.png", widest=200)
    assert (width, height) == (200, 50) == decoded(address).size
    assert decoded(address).convert("RGB").getpixel((0, 0)) == (255, 255, 255)


def test_a_figure_goes_into_the_page_without_loss(tmp_path):
    figure = style.new_figure(2, 1)
    figure.subplots().plot([0, 1], [1, 0])
    style.save_figure(figure, tmp_path / "line.png")
    address, width, height = figure_image(tmp_path / "line.png")
    with Image.open(tmp_path / "line.png") as written:
        assert written.convert("RGB").tobytes() == decoded(address).convert("RGB").tobytes()
    assert (width, height) == decoded(address).size == (220, 110)


@pytest.mark.parametrize("kept", [0.1, 0.5])
def test_a_figure_that_is_no_whole_image_is_named(tmp_path, kept):
    style.save_figure(style.new_figure(2, 1), tmp_path / "half.png")
    whole = (tmp_path / "half.png").read_bytes()
    (tmp_path / "half.png").write_bytes(whole[: int(kept * len(whole))])
    with pytest.raises(ResultsError, match=r"half.png` cannot be read"):
        figure_image(tmp_path / "half.png")


def test_a_cell_of_another_seed_that_is_missing_is_not_one_that_failed(made):
    """The first prior has a failed cell of the second data seed, and the second prior none."""
    data = [made.MOONS | {"seed": seed} for seed in (0, 1)]
    records = [made.record("normal", dataset=data[0]), made.record("laplace", dataset=data[0])]
    records.append(made.record("normal", dataset=data[1], failed=True))
    plane = PlaneMap(np.arange(2.0), np.arange(2.0), *np.full((2, 2, 2), 0.4), "0")
    cells = [
        CellView(f"cell-{n}", "own", r, {}, Parts(plane=plane if r.results else None), ())
        for n, r in enumerate(records)
    ]
    (view,) = grid_views(list(grids(cells)), {})
    (_, (failed,)), (_, (missing,)) = view.tables[1].rows
    assert [shown.key for shown in failed] == ["cell-2"]
    assert missing == "not run"
