"""A tuned scale by the evidence of Laplace's approximation, without held-out rows."""

from dataclasses import replace

import numpy as np
import pytest
from makers import TUNED, record
from scipy import stats

import pmbnn as pb
from pmbnn.core.errors import ConfigError
from pmbnn.core.spec import Tune
from pmbnn.data import Moons, Sine
from pmbnn.experiment.cells import Cell
from pmbnn.experiment.cost import cell_work
from pmbnn.fitting.fit import fit_job
from pmbnn.fitting.job import _selection_entry
from pmbnn.fitting.programs import GroupPrograms
from pmbnn.fitting.select import select_by_evidence
from pmbnn.inference.settings import Inference
from pmbnn.models.hyperpriors import Fixed
from pmbnn.models.likelihoods import Categorical
from pmbnn.models.likelihoods import Normal as Numbers
from pmbnn.models.networks import Dense
from pmbnn.models.priors import Normal
from pmbnn.prediction.settings import Predict
from pmbnn.report.details import _candidates
from pmbnn.results.record import AT_GRID_END, ScaleSelection

SD = 0.5
LAPLACE = Inference(guide="laplace", steps=1000, learning_rate=0.05, restarts=2, validation=0)
LINEAR = Cell(
    "toy",
    Sine(),
    Dense(hidden=()),
    Normal(),
    Fixed(scale=Tune(log=(0.01, 100, 5))),
    Numbers(sd=SD),
    LAPLACE,
    Predict(draws=20),
)
NETWORK = replace(
    LINEAR,
    dataset=Moons(noise=0.3, train=60, test=40),
    network=Dense(hidden=(3,)),
    hyperprior=Fixed(scale=Tune(log=(0.1, 10, 3))),
    likelihood=Categorical(),
)


def infer(cell):
    programs = GroupPrograms("evidence", 10)
    return fit_job([cell], {cell.dataset: cell.dataset.load()}, programs)[0]


def test_the_scale_is_that_of_the_highest_evidence_in_closed_form():
    inferred, rows = infer(LINEAR), LINEAR.dataset.load().training
    design = np.column_stack([rows.x, np.ones(len(rows))])
    noise = SD**2 * np.eye(len(rows))
    exact = [
        stats.multivariate_normal(cov=noise + h.scale**2 * design @ design.T).logpdf(rows.y.ravel())
        for h in LINEAR.hyperprior.candidates
    ]
    best, selection = int(np.argmax(exact)), inferred.selection
    assert 0 < best < 4
    np.testing.assert_allclose(selection.evidence, np.tile(exact, (2, 1)).T, atol=0.01)
    assert selection.candidate == best
    assert selection.nll is None
    assert inferred.hyperprior == LINEAR.hyperprior.candidates[best]


@pytest.mark.parametrize("curvature", ["full", "gauss_newton"])
def test_a_network_predicts_with_the_best_restart_of_the_best_candidate(curvature):
    inference = LAPLACE.model_copy(update={"curvature": curvature})
    inferred = infer(replace(NETWORK, inference=inference))
    selection = inferred.selection
    assert selection.evidence.shape == (3, 2)
    assert len(inferred.fits) == 2
    assert inferred.fits[inferred.best].elbo == np.nanmax(selection.evidence)
    assert selection.restart[selection.candidate] == inferred.best
    assert inferred.hyperprior.scale == selection.scales[selection.candidate]


def test_diverged_candidates_are_passed_over():
    class Made:
        def __init__(self, elbo):
            self.failed, self.elbo = np.isnan(elbo), elbo

    def chosen(*elbo):
        fits = [Made(value) for value in elbo]
        return select_by_evidence(NETWORK, fits, NETWORK.hyperprior.candidates)

    selection = chosen(np.nan, np.nan, -3.0, -2.0, -1.0, np.nan)
    assert selection.candidate == 2
    assert selection.restart.tolist()[1:] == [1, 0]
    assert selection.scores.tolist() == [np.inf, 2.0, 1.0]
    entry = _selection_entry(selection, log_scale=7.0)
    again = ScaleSelection.model_validate_json(entry.model_dump_json())
    assert again.nll is None
    assert again.evidence == ((None, None), (-3.0, -2.0), (-1.0, None))


def test_all_fits_are_of_all_rows():
    work = cell_work(NETWORK)
    assert (work.choosing_fits, work.final_fits) == (0, 6)
    held_out = replace(NETWORK, inference=LAPLACE.model_copy(update={"validation": 0.2}))
    work = cell_work(held_out)
    assert (work.choosing_fits, work.final_fits) == (6, 2)


def test_estimators_of_other_guides_need_held_out_rows():
    tuned = {"hyperprior": NETWORK.hyperprior, "settings": {"validation": 0}}
    x, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
    with pytest.raises((ConfigError, ValueError), match="with guide laplace, 0 tunes it"):
        pb.BNNClassifier(**tuned).fit(x, y)


def test_a_page_shows_evidence_and_no_nll():
    selection = ScaleSelection(
        scales=(0.1, 1.0),
        nll=None,
        restart=(1, 0),
        candidate=1,
        evidence=((None, -9.5), (-4.0, -6.0)),
    )
    made = record(hyperprior=TUNED).model_copy(update={"selection": selection})
    table = _candidates(made)
    assert table.headings[1] == "log evidence of all training rows (nats)"
    assert [row[1] for row in table.rows] == ["−9.5", "−4"]
    assert table.rows[1][2] == f"chosen, {AT_GRID_END}"
