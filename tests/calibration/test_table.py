"""``calibration.csv``: a row for each combination and quantity."""

from dataclasses import replace

import numpy as np
import pytest

from pmbnn.calibration.ranks import FAILED, rank_ecdfs
from pmbnn.calibration.table import calibration_table, summary
from pmbnn.inference.settings import Inference
from pmbnn.models.hyperpriors import HalfNormal
from pmbnn.models.networks import Dense
from pmbnn.models.priors import R2D2, Horseshoe


@pytest.mark.parametrize(
    ("shape", "direction"),
    [("wide", "over-dispersed"), ("narrow", "under-dispersed"), ("low", "biased low")],
)
def test_rows_say_what_is_wrong(made, shape, direction):
    stored = made.ranks(shape)
    table = calibration_table([made.ranks(), stored])
    assert list(table["quantity"]) == [*stored.quantities] * 2
    assert list(table["verdict"]) == ["calibrated"] * 3 + ["miscalibrated"]
    assert list(table["direction"]) == ["", "", "", direction]
    assert list(table["deviation"][2:]) == [
        one.deviation for one in rank_ecdfs(stored.ranks, stored.draws)
    ]
    row = table.iloc[3]
    assert (row["prior.kind"], row["hyperprior.kind"]) == ("normal", "half_normal")
    assert (row["inference.engine"], row["inference.guide"]) == ("compiled", "mean_field")
    assert (row["simulations"], row["failed"], row["draws"], row["restarts"]) == (300, 0, 99, 1)
    assert (row["truths"], row["reference"]) == ("prior", "")
    assert np.isnan(row["effective_draws"])
    assert "predict.draws" not in table


def test_fits_that_diverged_are_counted(made):
    stored = made.ranks()
    lost = stored.followed_by(
        made.ranks(numbers=np.array([300, 301]), ranks=np.full((2, 2), FAILED))
    )
    table = calibration_table([lost])
    assert table["simulations"].tolist() == [300, 300]
    assert table["failed"].tolist() == [2, 2]
    assert table["deviation"].tolist() == calibration_table([stored])["deviation"].tolist()
    none = made.ranks(ranks=np.full((300, 2), FAILED))
    table = calibration_table([none])
    assert table["simulations"].tolist() == [0, 0]
    assert table["verdict"].isna().all()


def test_the_summary_tells_settings_of_one_prior_apart(made):
    priors = [Horseshoe(), Horseshoe(per="unit"), Horseshoe(slab_scale=2.0)]
    cell = made.ranks().cell
    stored = [
        made.ranks(name=f"ranks-{i}", cell=replace(cell, prior=prior))
        for i, prior in enumerate(priors)
    ]
    headings, rows = summary(calibration_table(stored))
    names = [row[headings.index("prior")] for row in rows]
    assert names == ["horseshoe", "horseshoe unit", "horseshoe 2"]


def test_combinations_that_differ_in_any_setting_have_names_of_their_own(made):
    first = replace(made.ranks().cell, prior=R2D2(), inference=Inference(learning_rate=0.01))
    cells = [
        first,
        replace(first, prior=R2D2(concentration=2.0)),
        replace(first, hyperprior=HalfNormal(sigma=5.0)),
        replace(first, network=Dense(hidden=(9,))),
        replace(first, inference=Inference(learning_rate=0.1)),
        replace(first, prior=Horseshoe()),
        replace(first, inference=Inference(learning_rate=0.10000001)),
    ]
    table = calibration_table(made.ranks(name=f"c{i}", cell=c) for i, c in enumerate(cells))
    assert table["inference.learning_rate"].unique().tolist() == [0.01, 0.1, 0.10000001]
    assert "inference.seed" not in table
    headings, rows = summary(table)
    assert headings[:5] == ["data", "network", "prior", "hyperprior", "inference"]
    names = [tuple(row[1:5]) for row in rows]
    assert len(set(names)) == len(cells)
    assert names[1][1] == "r2d2, concentration 2"
    assert names[2][2] == "half_normal scale, sigma 5"
    assert names[3][0] == "hidden 9"
    assert names[4][3] == "compiled mean_field, learning rate 0.1"
    assert names[5][1] == "horseshoe"
    # Ranks that are not told apart by these have no column of them.
    assert "network" not in summary(calibration_table([made.ranks()]))[0]


def test_no_ranks_no_rows():
    assert calibration_table([]).empty
