"""Which figures a cell's trace can be drawn as."""

import pytest
import xarray as xr
from matplotlib.figure import Figure

from pmbnn.figures.overviews import (
    CURVES,
    MAP,
    OF_CLASS_PROBABILITIES,
    OF_DENSITIES,
    CellFigure,
)

TEST = "test_predictions"


def held(trace):
    return {name: frozenset(map(str, group.variables)) for name, group in trace.children.items()}


@pytest.fixture(scope="module")
def pattern():
    return CellFigure("x", Figure, ((TEST, "sd"), ("ood_*", "sd")), ("validation",))


def test_groups_by_pattern_and_what_is_used_besides(pattern):
    sd = frozenset({"sd", "probability"})
    stored = {TEST: sd, "ood_a": sd, "ood_b": sd, "fit": sd}
    assert pattern.groups(stored) == [TEST, "ood_a", "ood_b"]
    stored["validation"] = frozenset()
    assert pattern.groups(stored)[-1] == "validation"


def test_groups_without_the_array_are_left_out(pattern):
    stored = {TEST: frozenset({"sd"}), "ood_a": frozenset({"sd"})}
    assert pattern.groups(stored | {"ood_b": frozenset()}) == [TEST, "ood_a"]
    assert pattern.groups(stored | {"ood_a": frozenset()}) == []
    assert pattern.groups({"ood_a": frozenset({"sd"})}) == []


def test_a_trace_on_a_plane_has_one_of_them(made):
    stored = held(made.plane_trace(resolution=(3, 3)))
    drawn = [figure.file for figure in OF_CLASS_PROBABILITIES if figure.groups(stored)]
    assert drawn == ["reliability"]
    assert MAP.groups(stored) == ["predictions", "test_predictions"]
    assert CURVES.groups(stored) == []


@pytest.mark.parametrize("figures", [OF_CLASS_PROBABILITIES, OF_DENSITIES])
def test_file_names_differ(figures):
    assert len({figure.file for figure in figures}) == len(figures)


def test_predictions_of_numbers_are_drawn_where_a_trace_has_them():
    stored = {TEST: frozenset({"mean", "target", "total_interval", "pit"})}
    assert [f.file for f in OF_DENSITIES if f.groups(stored)] == ["predicted-observed", "pit"]


# Points of a plane are no digits; their figure has a test of its own.
OF_DIGITS = [figure for figure in OF_CLASS_PROBABILITIES if figure.file != "points"]


# That of examples has 54 panels; `test_snapshot_examples` draws fewer from the same one group.
QUICK = [figure for figure in OF_DIGITS if figure.file != "examples"]
SLOW = [pytest.param(f, marks=pytest.mark.slow) for f in OF_DIGITS if f not in QUICK]


@pytest.mark.parametrize("figure", [*QUICK, *SLOW], ids=lambda figure: figure.file)
def test_every_figure_is_drawn_from_the_groups_it_names(full, figure):
    groups = figure.groups(held(full))
    part = xr.DataTree.from_dict({f"/{name}": full[name].dataset for name in groups})
    drawn = figure.plot(part, "some title (of a cell)")
    assert drawn.get_suptitle().startswith("some title (of a cell)")
    assert drawn.axes
