"""Maps of all combinations together."""

import numpy as np

from pmbnn.figures.maps import plot_map_overview
from pmbnn.results.reading import plane_map
from pmbnn.results.tables import combine


def draw(made, records, traces=None):
    """Overview of cells, and the names that were loaded, in order."""
    loaded = []

    def load(name):
        loaded.append(name)
        trace = (traces or {}).get(name, made.plane_trace(resolution=(8, 5)))
        return trace if trace is None else plane_map(trace)

    return plot_map_overview(combine(records), load, "moons, noise 0.4"), loaded


def panels(figure):
    """Panels of each half, without the colour bars."""
    return [[a for a in half.axes if a.get_label() != "<colorbar>"] for half in figure.subfigs]


def grid(made, priors=("normal", "flat")):
    return [
        made.record(prior, hyperprior, scale=0.316 if hyperprior is made.TUNED else None)
        for prior in priors
        for hyperprior in ([made.NO_SCALE] if prior == "flat" else [made.TUNED, made.HALF_NORMAL])
    ]


def test_a_panel_for_every_combination_in_both_halves(made):
    figure, loaded = draw(made, grid(made))
    assert [len(half) for half in panels(figure)] == [4, 4]
    assert len(loaded) == 3


def test_one_colour_scale_across_the_overview(made):
    records = grid(made, ("normal", "laplace"))
    traces = {r.name: made.plane_trace(s, (8, 5)) for s, r in enumerate(records, start=1)}
    left, right = panels(draw(made, records, traces)[0])
    assert {a.images[0].get_clim() for a in left} == {(0, 1)}
    (limits,) = {a.images[0].get_clim() for a in right}
    largest = max(float(t["predictions"]["sd"].max()) for t in traces.values())
    assert limits[0] == 0
    assert largest <= limits[1] <= 1.5 * largest


def test_every_map_is_in_its_own_panel(made):
    records = grid(made, ("normal", "laplace"))
    traces = {r.name: made.plane_trace(s, (8, 5)) for s, r in enumerate(records, start=1)}
    left, _ = panels(draw(made, records, traces)[0])
    for axes, record in zip(left, records, strict=True):
        expected = traces[record.name]["predictions"]["probability"].sel(output="0")
        np.testing.assert_array_equal(axes.images[0].get_array(), expected.values.T)


def test_panels_say_accuracy_and_chosen_scale(made):
    figure, _ = draw(made, grid(made))
    titles = [axes.get_title() for axes in panels(figure)[0]]
    assert titles[0] == "fixed (tuned)\naccuracy 0.850, scale 0.32"
    assert titles[1] == "half-normal\naccuracy 0.850"
    assert titles[2] == "accuracy 0.850, no scale"


def test_combinations_that_cannot_be_are_labelled(made):
    figure, _ = draw(made, grid(made))
    for half in panels(figure):
        assert not half[3].images
        assert [t.get_text() for t in half[3].texts] == ["no scale"]


def test_failed_and_unmapped_cells_are_labelled(made):
    records = [made.record(), made.record("laplace", failed=True), made.record("cauchy")]
    figure, _ = draw(made, records, {records[2].name: None})
    texts = [[t.get_text() for t in axes.texts] for axes in panels(figure)[0]]
    assert texts == [[], ["failed"], ["no map"]]


def test_nothing_to_show_still_gives_a_figure(made, words):
    record = made.record()
    figure, _ = draw(made, [record], {record.name: None})
    assert "no map" in words(figure)


def test_the_first_finished_seed_is_shown_and_named(made):
    def record(prior, seed, **changes):
        return made.record(prior, dataset=made.MOONS | {"seed": seed}, **changes)

    records = [record(p, s, accuracy=0.8 + s / 100) for p in ("normal", "laplace") for s in (3, 4)]
    records += [record("cauchy", 3, failed=True), record("cauchy", 4)]
    figure, loaded = draw(made, records)
    assert loaded == [records[i].name for i in (0, 2, 5)]
    assert "first of 2 data seeds (seed 3)" in " ".join(figure.get_suptitle().split())
    titles = [axes.get_title() for axes in panels(figure)[0]]
    assert titles[1:] == ["accuracy 0.830", "accuracy 0.850, seed 4"]


def test_a_single_seed_is_not_called_the_first(made):
    title = draw(made, [made.record()])[0].get_suptitle()
    assert title.startswith("moons, noise 0.4")
    assert "seed" not in title


def test_words_of_the_figure(made, words):
    found = words(draw(made, grid(made))[0])
    assert {"normal", "flat", "probability of class 0"} <= set(found)
    assert "sd of that probability over posterior draws" in found


def test_many_columns_put_the_halves_above_each_other(made):
    scales = [{"kind": "fixed", "scale": float(s)} for s in range(1, 8)]
    figure, _ = draw(made, [made.record("normal", h) for h in scales])
    upper, lower = (half.bbox for half in figure.subfigs)
    assert upper.x0 == lower.x0
    assert upper.y0 > lower.y0


def test_a_single_map_has_room_for_the_words_of_its_colours(made):
    figure, _ = draw(made, [made.record()], {"moons-normal": made.plane_trace()})
    figure.canvas.draw()
    for half in figure.subfigs:
        bar = half.axes[-1]
        words = bar.xaxis.label.get_window_extent()
        box = half.bbox
        assert box.x0 <= words.x0 and words.x1 <= box.x1
