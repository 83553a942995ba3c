"""Rungs of the repair ladder: cost against distance."""

import pandas as pd
import pytest

from pmbnn.compare import agreement
from pmbnn.compare.agreement import ladder_table, write_agreement
from pmbnn.figures.grids import plot_ladder
from pmbnn.results.names import LADDER
from pmbnn.results.store import Results


def rows(guide, mixture, distances, seconds, prior="normal", kind="moons"):
    return [
        {
            "sweep": "toy", "name": f"{guide}-{seed}", "dataset.kind": kind, "dataset.noise": 0.4,
            "dataset.seed": seed, "prior.kind": prior, "hyperprior.kind": "fixed", "guide": guide,
            "mixture": mixture, "seconds": seconds, "engine": "mclmc", "reference": f"r{seed}",
            "fit_status": "converged", "status": "converged", "reference_seconds": 20.0,
            "total_variation": distance, "total_variation_floor": 0.001,
        }
        for seed, distance in enumerate(distances)
    ]  # fmt: skip


AGREEMENT = pd.DataFrame(
    [
        *rows("full_rank", "best", [0.006, 0.008], 10.0),
        *rows("mean_field", "best", [0.02, 0.03], 2.0),
        *rows("mean_field", "stacked", [0.009, 0.0105], 3.0),
    ]
)


def test_the_cheapest_that_is_near_enough():
    table = ladder_table(AGREEMENT).set_index(["guide", "mixture"])
    assert list(table.index) == [
        ("mean_field", "best"), ("mean_field", "stacked"), ("full_rank", "best"),
        ("mclmc", "chains"),
    ]  # fmt: skip
    assert list(table["near_enough"]) == [False, True, True, True]
    assert list(table["cheapest"]) == [False, True, False, False]
    assert list(table["cost"]) == [0.1, 0.15, 0.5, 1.0]
    assert table.loc[("mean_field", "best"), "total_variation"] == pytest.approx(0.025)
    assert table.loc[("mean_field", "best"), "total_variation_largest"] == 0.03
    assert table.loc[("mclmc", "chains"), "total_variation"] == 0.001
    assert set(table["seeds"]) == {2}
    assert "dataset.seed" not in table


def test_fits_and_further_samplers_are_no_data_seeds():
    """Two fits of each data seed, and two samplers of one engine, of which the first counts."""
    again = AGREEMENT.assign(name=AGREEMENT["name"] + "-again", fit_status="not_converged")
    both = pd.concat([AGREEMENT, again], ignore_index=True)
    other = both.assign(reference="other", total_variation=0.5)
    table = ladder_table(pd.concat([both, other], ignore_index=True))
    assert set(table["seeds"]) == {2}
    fitted = table[table["mixture"] != "chains"]
    assert set(fitted["not_converged"]) == {2}
    assert list(fitted["total_variation"]) == pytest.approx([0.025, 0.00975, 0.007])


def test_nothing_is_cheapest_where_nothing_is_near_enough():
    table = ladder_table(AGREEMENT, target=1e-4)
    assert not table["cheapest"].any()


def test_one_fit_beside_the_reference_is_no_ladder(tmp_path, monkeypatch):
    one = AGREEMENT[AGREEMENT["guide"] == "full_rank"]
    assert ladder_table(one).empty
    assert ladder_table(pd.DataFrame()).empty
    results = Results(tmp_path)
    results.prepare()
    for table, rows_of_ladder in ((AGREEMENT, 4), (one, 0)):
        monkeypatch.setattr(agreement, "agreement_table", lambda *_, table=table: table)
        write_agreement(results, ())
        path = tmp_path / LADDER
        assert (len(pd.read_csv(path)) if path.exists() else 0) == rows_of_ladder
    assert not (tmp_path / LADDER).exists()


def test_figure_of_a_stored_table(tmp_path, words):
    path = tmp_path / LADDER
    other = pd.DataFrame(
        [
            *rows("mean_field", "best", [0.03], 2.0, kind="circles"),
            *rows("mean_field", "equal", [0.02], 2.0, kind="circles"),
        ]
    )
    ladder_table(pd.concat([AGREEMENT, other])).to_csv(path, index=False)
    figure = plot_ladder(pd.read_csv(path), "ladder")
    first, second = figure.axes
    assert (first.get_title(), second.get_title()) == ("moons, noise 0.4", "circles, noise 0.4")
    drawn = {line.get_label(): line.get_xydata()[0] for line in first.lines}
    assert drawn["mean field, stacked"] == pytest.approx([0.15, 0.00975])
    assert drawn["mclmc"] == pytest.approx([1.0, 0.001])
    shown = words(figure)
    assert {"mean field", "mean field, pooled", "full rank", "mclmc"} <= set(shown)
