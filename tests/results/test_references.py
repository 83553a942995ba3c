"""What a fit's ELBO says of draws that cannot be of the posterior."""

import pytest

from pmbnn.compare.contrasts import delta_table
from pmbnn.compare.evidence import evidence_table
from pmbnn.experiment.cells import Contrasts
from pmbnn.results.names import (
    invalid_chains,
    other_scales,
    pairs,
    posterior_key,
    sampler_pairs,
    valid_cells,
)

ADVI = {"engine": "compiled", "guide": "mean_field", "kl_weight": 1.0, "kl_scaling": "sum"}


@pytest.fixture
def cells(made):
    """A fit, chains at a given log-likelihood, and an evidence."""

    def of(log_likelihood, error=1.0, elbo=-300.0, inference=None, scales=(None, None)):
        return [
            made.record(inference=ADVI | (inference or {}), elbo=elbo, scale=scales[0]),
            made.record(
                inference={"engine": "mclmc"}, log_likelihood=log_likelihood,
                log_likelihood_mcse=error, scale=scales[1],
            ),
        ]  # fmt: skip

    return of


def test_no_posterior_explains_the_rows_worse_than_an_elbo(cells):
    """By more than three standard errors."""
    assert invalid_chains(cells(-250.0)) == {}
    assert invalid_chains(cells(-302.9)) == {}
    fit, stuck = cells(-303.1)
    assert invalid_chains([fit, stuck]) == {
        stuck.name: f"{stuck.name}: these draws are not of the posterior, whatever their R-hat "
        "says: their mean log-likelihood is -303.1 nats, and the ELBO of the same model is -300.0"
    }
    assert valid_cells([fit, stuck]) == [fit]


def test_an_evidence_is_a_bound_as_well(cells, made):
    fit, chains = cells(-290.0)
    smc = made.record(
        inference={"engine": "smc"}, log_evidence=-280.0, log_evidence_mcse=0.5,
        log_likelihood=-250.0, log_likelihood_mcse=1.0,
    )  # fmt: skip
    (words,) = invalid_chains([fit, chains, smc]).values()
    assert words.endswith("the log evidence of the same model is -281.5")


def test_a_tempered_fit_and_another_scale_say_nothing(cells):
    assert invalid_chains(cells(-400.0, inference={"kl_weight": 0.1})) == {}
    assert invalid_chains(cells(-400.0, scales=(1.0, 0.1))) == {}
    assert len(invalid_chains(cells(-400.0, scales=(0.1, 0.1)))) == 1
    assert invalid_chains(cells(-400.0)[1:]) == {}


@pytest.mark.parametrize("guide", ["map", "maximum_likelihood"])
def test_the_objective_of_a_point_is_no_bound(cells, guide):
    """It is a density, which may be any number."""
    assert invalid_chains(cells(-400.0, inference={"guide": guide})) == {}


def test_under_an_improper_prior_there_is_no_evidence(cells, made):
    fit, chains = cells(-400.0)
    assert invalid_chains([made.changed(fit, status="improper"), chains]) == {}


def test_a_diverged_fit_and_chains_of_an_older_version_say_nothing(cells, made):
    fit, chains = cells(-400.0)
    assert invalid_chains([made.changed(fit, results={}), chains]) == {}
    assert invalid_chains([fit, made.changed(chains, results={"nll": 0.5})]) == {}


def test_invalid_chains_are_no_reference(cells, made):
    fit, stuck = cells(-400.0)
    other = made.record(inference={"engine": "mclmc", "seed": 1})
    assert list(pairs([fit, stuck])) == []
    assert list(sampler_pairs([fit, stuck, other])) == []
    learned = [made.changed(r, results=r.results | {"excess_nll": 0.01}) for r in cells(-400.0)]
    fixed = [
        made.record(hyperprior=made.FIXED, inference=i, excess_nll=0.02)
        for i in (ADVI, {"engine": "mclmc"})
    ]
    table = delta_table([*learned, *fixed], Contrasts())
    assert table["delta_reference"].isna().all()
    assert list(table["delta_advi"]) == pytest.approx([-0.01])
    assert not evidence_table(learned)["sampled"].any()


def test_where_scales_were_chosen_posteriors_are_the_same_only_at_the_same(made):
    tuned = {"kind": "fixed", "scale": {"tune": {"log": [0.1, 10.0, 3]}}}
    chosen = [
        ("fit", ADVI, 1.0),
        ("sampled", {"engine": "mclmc"}, 1.0),
        ("other", {"engine": "mclmc", "seed": 1}, 0.1),
    ]
    fit, sampled, other = (
        made.changed(made.record(hyperprior=tuned, inference=i), name=n, results={"scale": scale})
        for n, i, scale in chosen
    )
    cells = [fit, sampled, other]
    assert list(pairs(cells)) == [(fit, sampled)]
    assert other_scales(cells) == [(fit, other)]
    assert list(sampler_pairs(cells)) == []
    assert list(sampler_pairs(cells, posterior_key)) == [(other, sampled)]
