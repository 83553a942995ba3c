"""Every overview of a results folder."""

from pathlib import Path

import numpy as np
import pytest

from pmbnn.figures import draw_files, overviews_of, sheet_of, sheets
from pmbnn.figures.overviews import OF_CLASS_PROBABILITIES
from pmbnn.figures.style import new_figure
from pmbnn.fitting.helpers import Helpers
from pmbnn.inference.samplers.settings import SAMPLING
from pmbnn.results.reading import load_groups, stored_variables, values_of


def planar(made, **changes):
    return made.record(**changes), made.plane_trace(resolution=(6, 5), points=20)


def digits(made, **changes):
    return made.record(dataset=made.MNIST, **changes), made.small_image_trace()


def drawn(results, records, processes=1):
    """Paths of all overviews, drawn anew."""
    drawings = overviews_of(results, records)
    with Helpers(processes, len(drawings)) as helpers:
        return draw_files(drawings, results, helpers)


def names(results, cells):
    """Names of the overviews that there are; none is drawn."""
    return [one.path.name for one in overviews_of(results, [record for record, _ in cells])]


def test_planar_data_get_maps_and_accuracy(made, tmp_path):
    cells = [planar(made), planar(made, prior="laplace")]
    results = made.store(tmp_path, cells)
    written = drawn(results, [record for record, _ in cells])
    assert [path.name for path in written] == [
        "toy-moons-noise-0.4-maps.png",
        "toy-moons-noise-0.4-accuracy.png",
        "toy-moons-noise-0.4-reliability.png",
    ]
    assert sorted(results.figures.iterdir()) == sorted(written)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)
    assert not list(tmp_path.rglob(".part-*"))


def test_image_data_get_tables_and_the_best_cell(made, tmp_path):
    cells = [digits(made, sweep="digits")]
    assert names(made.store(tmp_path, cells), cells) == [
        "digits-mnist-accuracy.png",
        "digits-mnist-grid.png",
        "digits-mnist-samples.png",
        "digits-mnist-classes.png",
        "digits-mnist-gallery.png",
        "digits-mnist-uncertainty.png",
        "digits-mnist-confident-mistakes.png",
        "digits-mnist-least-confident.png",
        "digits-mnist-reliability.png",
        "digits-mnist-risk-coverage.png",
        "digits-mnist-uncertainty-parts.png",
    ]


def test_what_else_a_trace_holds_is_drawn_as_well(made, tmp_path, full, monkeypatch):
    import pmbnn.figures.overviews as overviews

    loaded = []

    def spy(trace, title, **_):
        loaded.append(set(trace.children))
        return new_figure(1, 1)

    monkeypatch.setattr(
        overviews, "OF_CLASS_PROBABILITIES", [f._replace(plot=spy) for f in OF_CLASS_PROBABILITIES]
    )
    record = made.record(dataset=made.MNIST, sweep="digits")
    drawings = overviews_of(made.store(tmp_path, [(record, full)]), [record])
    kinds = [one.path.name.split("-", 2)[2] for one in drawings]
    of_digits = (figure.file for figure in OF_CLASS_PROBABILITIES if figure.file != "points")
    expected = ["accuracy", "grid", *of_digits]
    assert kinds == [f"{kind}.png" for kind in expected]
    for drawing in drawings[2:]:
        drawing.draw()
    by_kind = dict(zip(expected[2:], loaded, strict=True))
    assert by_kind["training"] == {"fit"}
    assert by_kind["letters"] == {
        "test_predictions",
        "validation_predictions",
        "ood_letters",
    }


def titles_of_the_gallery(monkeypatch, results, records, file="gallery"):
    """Titles under which the gallery is drawn, or another figure."""
    import pmbnn.figures.overviews as overviews

    gallery = next(figure for figure in OF_CLASS_PROBABILITIES if figure.file == file)
    told = gallery._replace(plot=lambda trace, title: title)
    monkeypatch.setattr(overviews, "OF_CLASS_PROBABILITIES", [told])
    return [one.draw() for one in overviews_of(results, records) if file in one.path.name]


def test_training_points_are_of_no_prior(made, tmp_path, monkeypatch):
    trace = made.plane_trace(resolution=(6, 5), points=20)
    rows = made.curves_trace()
    for group in ("constant_data", "observed_data"):
        trace[group] = rows[group]
    data = [made.MOONS | {"seed": seed} for seed in (0, 1)]
    cells = [
        (made.record(prior, dataset=d), trace) for prior in ("normal", "laplace") for d in data
    ]
    results = made.store(tmp_path, cells)
    records = [record for record, _ in cells]
    (title,) = titles_of_the_gallery(monkeypatch, results, records, "points")
    assert title == "moons, noise 0.4, data seed 0"
    (title,) = titles_of_the_gallery(monkeypatch, results, records[:1], "points")
    assert title == "moons, noise 0.4"


def test_the_gallery_is_of_the_cell_with_the_best_held_out_score(made, tmp_path, monkeypatch):
    cells = [digits(made, validation_nll=0.3, accuracy=0.99)]
    cells += [digits(made, prior="laplace", validation_nll=0.2, accuracy=0.91)]
    results = made.store(tmp_path, cells)
    (title,) = titles_of_the_gallery(monkeypatch, results, [record for record, _ in cells])
    assert "Laplace prior" in title
    assert "accuracy 0.910 (best cell by held-out score)" in title


def test_without_a_score_the_first_finished_cell_is_shown(made, tmp_path, monkeypatch):
    failed = made.record("cauchy", dataset=made.MNIST, failed=True), None
    cells = [
        failed,
        *(digits(made, prior=p, validation_nll=None) for p in ("laplace", "normal")),
    ]
    results = made.store(tmp_path, cells)
    (title,) = titles_of_the_gallery(monkeypatch, results, [record for record, _ in cells])
    assert "Laplace prior" in title
    assert title.endswith("(first cell with results)")


def test_a_cell_without_others_is_no_choice(made, tmp_path, monkeypatch):
    cell = digits(made, accuracy=0.91)
    results = made.store(tmp_path, [cell])
    (title,) = titles_of_the_gallery(monkeypatch, results, [cell[0]])
    assert title.endswith("accuracy 0.910")


def test_data_sets_without_results_are_left_out(made, tmp_path):
    noisy = made.record(dataset=made.MOONS | {"noise": 0.9}, failed=True)
    cells = [(noisy, None), planar(made)]
    assert all("0.4" in name for name in names(made.store(tmp_path, cells), cells))


def test_failed_first_cells_do_not_matter(made, tmp_path):
    cells = [(made.record("laplace", failed=True), None), planar(made)]
    assert len(names(made.store(tmp_path, cells), cells)) == 3


def test_nothing_to_draw(made, tmp_path):
    assert drawn(made.store(tmp_path, []), []) == []


def test_an_interrupted_run_leaves_the_old_figure(made, tmp_path, monkeypatch):
    import pmbnn.figures.stage as stage

    cells = [planar(made)]
    results = made.store(tmp_path, cells)
    records = [record for record, _ in cells]
    path = overviews_of(results, records)[0].path
    path.write_bytes(before := b"old")

    def stop(figure, path):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(stage, "save_figure", stop)
    with pytest.raises(KeyboardInterrupt):
        drawn(results, records)
    assert path.read_bytes() == before
    assert not list(tmp_path.rglob(".part-*"))


@pytest.mark.slow
def test_several_processes_write_the_same_bytes(made, tmp_path):
    cells = [planar(made), digits(made, sweep="digits")]
    results = made.store(tmp_path, cells)
    records = [record for record, _ in cells]
    alone = {path: path.read_bytes() for path in drawn(results, records)}
    for path in alone:
        path.unlink()
    together = {path: path.read_bytes() for path in drawn(results, records, 2)}
    assert together == alone
    assert list(together) == list(alone)


def test_seeds_share_a_sheet_and_noise_levels_do_not(made):
    datasets = [made.MOONS | {"noise": n, "seed": s} for n in (0.2, 0.4) for s in (0, 1)]
    found = sheets([made.record(dataset=dataset) for dataset in datasets])
    assert [(sheet.file, len(sheet.records)) for sheet in found] == [
        ("toy-moons-noise-0.2", 2),
        ("toy-moons-noise-0.4", 2),
    ]


def test_data_sets_of_similar_names_have_figures_of_their_own(made):
    """Letters that are not English, and other signs, were left out of the names of files."""
    files = ("данные.csv", "мои.csv", "höhe.csv", "hähe.csv", "a b.csv", "a-b.csv")
    table = {"kind": "table", "target": "y", "task": "classification"}
    found = sheets([made.record(dataset=table | {"file": file}) for file in files])
    names = ("данные", "мои", "höhe", "hähe", "a-b-1", "a-b-2")
    assert [sheet.file for sheet in found] == [f"toy-table-{name}" for name in names]


def test_variants_are_named_by_what_differs(made):
    networks = [{"kind": "dense", "hidden": hidden} for hidden in ([5, 5], [10])]
    found = sheets([made.record(network=network) for network in networks])
    assert [sheet.file for sheet in found] == [
        "toy-moons-noise-0.4-hidden-5-5",
        "toy-moons-noise-0.4-hidden-10",
    ]
    assert [sheet.title for sheet in found] == [
        "moons, noise 0.4; hidden 5-5",
        "moons, noise 0.4; hidden 10",
    ]


@pytest.mark.parametrize(
    ("inferences", "titles"),
    [
        ([{}, {"engine": "mclmc"}], ["mean-field fit", "sampled by MCLMC"]),
        ([{}, {"engine": "pymc"}], ["mean-field fit", "fitted by PyMC"]),
        (
            [{}, {"guide": "map"}, {"engine": "nuts"}],
            ["guide mean_field", "guide map", "sampled by NUTS"],
        ),
    ],
)
def test_titles_name_what_an_engine_makes(made, inferences, titles):
    usual = {"engine": "compiled", "guide": "mean_field"}
    sampled = [one.get("engine") in SAMPLING for one in inferences]
    stored = [
        one if is_sampled else usual | one
        for one, is_sampled in zip(inferences, sampled, strict=True)
    ]
    found = sheets([made.record(inference=one) for one in stored])
    assert [sheet.title for sheet in found] == [f"moons, noise 0.4; {title}" for title in titles]
    # Names of files and of tables stay as they are.
    assert found[-1].file.endswith(f"engine-{inferences[-1]['engine']}")


def test_kinds_are_named_with_their_section(made):
    found = sheets([made.record(network={"kind": kind}) for kind in ("dense", "conv")])
    assert found[1].file == "toy-moons-noise-0.4-network-kind-conv"


def test_fits_with_other_seeds_share_a_sheet(made):
    found = sheets([made.record(inference={"seed": seed}) for seed in (0, 1)])
    assert [len(sheet.records) for sheet in found] == [2]


def test_rows_of_the_data_are_a_variant(made):
    found = sheets([made.record(dataset=made.MOONS | {"train": n}) for n in (100, 700)])
    assert [sheet.file[-9:] for sheet in found] == ["train-100", "train-700"]


def test_variants_with_long_or_equal_names_are_numbered(made):
    long = [{"kind": "dense", "hidden": [5] * 40}, {"kind": "dense", "hidden": [6] * 40}]
    alike = [{"kind": "dense", "activation": a} for a in ("a/b", "a b")]
    for networks in (long, alike):
        found = sheets([made.record(network=network) for network in networks])
        assert [sheet.file[-9:] for sheet in found] == ["variant-1", "variant-2"]


def test_sweeps_do_not_mix(made):
    found = sheets([made.record(sweep=sweep) for sweep in ("a", "b", "a")])
    assert [(sheet.file[0], len(sheet.records)) for sheet in found] == [("a", 2), ("b", 1)]


def test_only_the_groups_asked_for_are_loaded(made, tmp_path):
    record, trace = planar(made)
    results = made.store(tmp_path, [(record, trace)])
    found = load_groups(results, record.name, ["predictions", "posterior"])
    assert list(found.children) == ["predictions"]
    for name in ("probability", "sd", "x1", "output"):
        stored = trace["predictions"][name].values
        np.testing.assert_array_equal(found["predictions"][name].values, stored)
    stored = stored_variables(results, record.name)
    assert set(stored) == {"predictions", "test_predictions"}
    assert stored["predictions"] == {"probability", "sd", "x1", "x2", "output"}


def test_arrays_that_are_not_there_are_named(made):
    trace = made.plane_trace(resolution=(4, 3))
    assert values_of(trace, "predictions", "sd", "output", "x2", "x1").shape == (2, 3, 4)
    assert values_of(trace, "predictions", "sd").shape == (4, 3, 2)
    with pytest.raises(ValueError, match="The group `predictions` must have `votes`"):
        values_of(trace, "predictions", "votes")
    with pytest.raises(ValueError, match="must have a group `posterior`, got predictions, test_"):
        values_of(trace, "posterior", "sd")


def test_priors_beside_each_other(made, tmp_path):
    """Design, fixed against learned scales, and last layers are drawn where cells allow it."""
    scales = [{"kind": "fixed", "scale": scale} for scale in (0.1, 1.0, 10.0)]
    plane = made.plane_trace(resolution=(6, 5), points=20)
    cells = [
        (made.record(prior, hyperprior), made.both(plane, made.weights_trace(scale=learned)))
        for prior in ("laplace", "cauchy")
        for hyperprior, learned in [*((fixed, None) for fixed in scales), (made.HALF_NORMAL, 0.5)]
    ]
    kinds = ("maps", "accuracy", "design", "scales", "last-layer", "reliability", "network")
    expected = [f"toy-moons-noise-0.4-{kind}.png" for kind in kinds]
    assert names(made.store(tmp_path, cells), cells) == expected


def density(made, seed, **changes):
    """Record and trace of a cell that predicts a density; its data have one seed or another."""
    dataset = {"kind": "sine", "seed": seed, "noise": 0.1}
    record = made.record(dataset=dataset, predictive="density", rmse=0.2, **changes)
    return record, made.curves_trace()


def test_densities_get_curves_of_the_best_cell_and_of_all_beneath_each_other(made, tmp_path):
    cells = [density(made, 0), density(made, 0, prior="laplace"), density(made, 1)]
    expected = ["toy-sine-noise-0.1-curves.png", "sine-noise-0.1-curves.png"]
    assert names(made.store(tmp_path, cells), cells) == expected


def test_one_cell_has_nothing_beneath_it(made, tmp_path):
    cells = [density(made, 0), density(made, 1)]
    assert names(made.store(tmp_path, cells), cells) == ["toy-sine-noise-0.1-curves.png"]


def test_the_type_of_prediction_decides_not_the_arrays_of_the_trace(made, tmp_path):
    """Of a density no map is drawn, whatever else its trace holds; of an unknown type, nothing."""
    record, trace = density(made, 0)
    both = made.both(trace, made.plane_trace(resolution=(6, 5), points=20))
    other = made.changed(record, name="other", sweep="other", predictive="ranks")
    cells = [(record, both), (other, both)]
    assert names(made.store(tmp_path, cells), cells) == ["toy-sine-noise-0.1-curves.png"]


def test_a_file_belongs_to_the_sheet_with_the_longest_name():
    files = ["toy-moons", "toy-moons-variant-1"]
    assert sheet_of(Path("toy-moons-variant-1-maps.png"), files) == "toy-moons-variant-1"
    assert sheet_of(Path("toy-moons-maps.png"), files) == "toy-moons"
    assert sheet_of(Path("sine-curves.png"), files) == ""


def test_titles_tell_priors_of_one_kind_apart(made, tmp_path):
    """Scales of hyperpriors, of which titles have the kind alone, are named where they differ."""
    wide, narrow = ({**made.HALF_NORMAL, "sigma": sigma} for sigma in (3.0, 0.5))
    cells = [density(made, 0, hyperprior=h, validation_nll=h["sigma"]) for h in (wide, narrow)]
    results, records = made.store(tmp_path, cells), [record for record, _ in cells]
    best, compared = (one.draw() for one in overviews_of(results, records))
    assert "RMSE 0.2, hyperprior.sigma 0.5 (best" in best.get_suptitle()
    rows = [axes.get_title(loc="left") for axes in compared.axes]
    assert [row.partition("hyperprior.")[2][:9] for row in rows if row] == [
        "sigma 3; ",
        "sigma 0.5",
    ]


def test_curves_of_data_sets_whose_names_differ_in_a_sign_have_files_of_their_own(made, tmp_path):
    cells = []
    for file in ("a b.csv", "a-b.csv"):
        data = {"kind": "table", "file": file, "target": "y", "seed": 0}
        data["split"] = {"kind": "random", "test_size": 0.2}
        for prior in ("normal", "laplace"):
            record = made.record(prior, dataset=data, predictive="density", rmse=0.2)
            cells.append((record, made.curves_trace()))
    found = names(made.store(tmp_path, cells), cells)
    assert found[-2:] == ["table-a-b-curves-1.png", "table-a-b-curves-2.png"]


def test_a_title_says_that_not_all_curves_are_shown(made, tmp_path):
    scales = [{"kind": "fixed", "scale": float(scale)} for scale in range(1, 10)]
    trace = made.curves_trace(ranges=[(-1, 1)])
    cells = [(density(made, 0, hyperprior=scale)[0], trace) for scale in scales]
    results, records = made.store(tmp_path, cells), [record for record, _ in cells]
    (*_, compared) = overviews_of(results, records)
    figure = compared.draw()
    assert "the first 8 of 9" in " ".join(figure.get_suptitle().split())


def test_every_posterior_that_was_sampled_stands_beside_its_fit(made, tmp_path):
    """Hyperpriors of one kind are rows of their own."""
    cells = [
        planar(made, hyperprior={**made.HALF_NORMAL, "sigma": sigma}, inference=inference)
        for sigma in (3.0, 0.5)
        for inference in ({"engine": "compiled"}, {"engine": "nuts"})
    ]
    results, records = made.store(tmp_path, cells), [record for record, _ in cells]
    (beside,) = [d for d in overviews_of(results, records) if d.path.stem.endswith("posterior")]
    rows = [axes.get_ylabel() for axes in beside.draw().axes]
    assert [row.partition("sigma ")[2] for row in rows if row] == ["3", "0.5"]
