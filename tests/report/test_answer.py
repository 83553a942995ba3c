"""What the page leads with: a sentence and a forest plot."""

import math

import pandas as pd
import pytest

from pmbnn.cli.cell_tables import best_lines
from pmbnn.compare.scores import COLUMNS, NO_SCORE
from pmbnn.report.answer import (
    CHAINS_NOT_RANKED,
    NONE_LEFT,
    NOT_RANKED,
    answer_sentence,
    answers_of,
)
from pmbnn.report.details import grids
from pmbnn.report.forest import Difference, axis_of
from pmbnn.report.tables import CellView, Parts
from pmbnn.results.ranking import BEST, EQUIVALENT, NOT_WORSE, SIGNIFICANTLY_WORSE, UNDECIDED
from pmbnn.results.record import Counts

EXCESS = "excess NLL at fresh points"
PRIORS = ("Laplace", "normal", "Cauchy", "Student", "horseshoe")


def table(*rows):
    """Made-up ranking: a verdict, a difference to the best and the half-width of its interval."""
    made = []
    for prior, (verdict, difference, half) in zip(PRIORS, rows, strict=False):
        row = {"prior": prior, "hyperprior": "half-normal", "verdict": verdict, "seeds": 5}
        row |= {"mean": 0.2 + difference, "se": 0.014, "shared": 5}
        if verdict != BEST:
            ends = {"low": difference - half, "high": difference + half}
            row |= {"difference": difference, "difference_se": half / 3} | ends
        made.append(row)
    return pd.DataFrame(made, columns=COLUMNS)


def counts(fitted=25, not_converged=0):
    return Counts(fitted, not_converged, 0, 0, 0, 0, 0)


def sentence(*rows, fits=(25, 0), best=(5, 0), **settings):
    settings = {"noun": "prior"} | settings
    both = counts(*fits), counts(*best)
    return answer_sentence(table(*rows), "moons", EXCESS, *both, **settings)


LEADER = (BEST, 0.0, 0.0)


def test_no_difference():
    level = [(NOT_WORSE, 0.001, 0.004), (NOT_WORSE, 0.0031, 0.004)]
    assert sentence(LEADER, *level) == (
        "No prior stands out on moons: all 3 lie within 0.0031 nats."
    )
    worse = [(SIGNIFICANTLY_WORSE, 0.02, 0.01), (SIGNIFICANTLY_WORSE, 0.4, 0.1)]
    assert sentence(LEADER, *level, *worse) == (
        "No prior stands out on moons: 3 of 5 lie within 0.0031 nats; 2 are significantly worse, "
        "by 0.02 to 0.4 nats."
    )


def test_one_best():
    worse = [(SIGNIFICANTLY_WORSE, 0.06, 0.03), (SIGNIFICANTLY_WORSE, 0.4, 0.1)]
    assert sentence(LEADER, *worse) == (
        "Laplace is best on moons, by 0.060 ± 0.010 nats over the next, normal."
    )
    two = sentence(LEADER, worse[0], noun="combination")
    assert two == (
        "Laplace × half-normal is best on moons, by 0.060 ± 0.010 nats over normal × half-normal."
    )


def test_equivalent_within_the_margin():
    row = (EQUIVALENT, 0.0004, 0.0003)
    assert sentence(LEADER, row) == "Both priors are equivalent on moons, within 0.0004 nats."


def test_a_single_data_seed_has_no_interval():
    made = table(LEADER, (UNDECIDED, 0.1, math.nan)).assign(shared=1, se=math.nan)
    words = answer_sentence(made, "digits", EXCESS, counts(2), counts(1), "prior")
    assert words == (
        "Undecided on digits, as one data seed gives no interval: Laplace has the lowest excess "
        "NLL at fresh points, 0.2 nats."
    )
    words = answer_sentence(made.assign(shared=2), "digits", EXCESS, counts(2), counts(1))
    assert words.startswith("Undecided on digits, as 2 data seeds give no interval: Laplace × ")


def test_undecided_beside_others():
    rows = [(NOT_WORSE, 0.001, 0.004), (UNDECIDED, 0.1, math.nan)]
    assert sentence(LEADER, *rows).endswith("within 0.001 nats; 1 undecided, without an interval.")
    rows[0] = (SIGNIFICANTLY_WORSE, 0.06, 0.03)
    assert sentence(LEADER, *rows) == (
        "Laplace is best on moons, by 0.060 ± 0.010 nats over the next, normal; 1 undecided, "
        "without an interval."
    )


def test_fits_that_did_not_converge():
    worse = (SIGNIFICANTLY_WORSE, 0.06, 0.03)
    assert sentence(LEADER, worse, fits=(10, 10), best=(5, 5)) == (
        "No verdict on moons, as no fit converged: so far Laplace has the lowest excess NLL at "
        "fresh points, 0.200 ± 0.014 nats."
    )
    some = sentence(LEADER, worse, fits=(10, 3), best=(5, 2))
    assert some.endswith(" over normal, though 2 of its 5 fits did not converge.")


def test_one_combination_is_compared_with_none():
    assert sentence(LEADER) == (f"Laplace is the only one on moons: {EXCESS} 0.200 ± 0.014 nats.")
    failed = table(LEADER, (NO_SCORE, math.nan, math.nan))
    words = answer_sentence(failed, "moons", EXCESS, counts(5), counts(5), "prior")
    assert words.startswith("Laplace is the only one with a score on moons")


def test_no_score_at_all():
    assert sentence((NO_SCORE, math.nan, math.nan)) == "No prior has a score on moons."


# From cells to what the page shows


def ranking(records):
    cells = [CellView(f"cell-{n}", "own", r, {}, Parts(), ()) for n, r in enumerate(records)]
    (answer,) = answers_of(grids(cells), {"own": 0.001})
    (only,) = answer.rankings
    return answer.title, only


def cells(made, prior, scores, score="excess_nll", **changes):
    return [
        made.record(prior, dataset=made.MOONS | {"seed": seed}, **{score: value}, **changes)
        for seed, value in enumerate(scores)
    ]


def test_refuted_chains_are_not_ranked(made):
    """Chains that are stuck, as the ELBO of a fit shows, were the best."""
    fit = {"engine": "compiled", "guide": "mean_field", "kl_weight": 1.0, "kl_scaling": "sum"}
    chains = {"log_likelihood_mcse": 1.0, "inference": {"engine": "mclmc"}}
    records = [
        *cells(made, "normal", (0.3,), elbo=-300.0, inference=fit),
        *cells(made, "normal", (0.1,), log_likelihood=-400.0, **chains),
        *cells(made, "laplace", (0.2,), log_likelihood=-250.0, **chains),
    ]
    views = [CellView(f"cell-{n}", "own", r, {}, Parts(), ()) for n, r in enumerate(records)]
    (answer,) = answers_of(grids(views), {"own": 0.001})
    sampled, _ = answer.rankings
    assert sampled.method == "posterior, sampled by MCLMC"
    assert sampled.sentence.startswith("Laplace × half-normal is the only one")
    assert sampled.basis.endswith(" Left out: 1 cell whose draws are not of the posterior.")
    _, best, _ = best_lines(records)
    assert best.endswith("engine mclmc: Laplace × half-normal (excess NLL at fresh points 0.2000)")


def test_a_combination_without_common_data_seeds_is_undecided(made):
    """Each failed where the other did not: both have a score, and no difference."""
    records = cells(made, "normal", (0.4,)) + cells(made, "laplace", (0.9, 0.3))[1:]
    assert ranking(records)[1].sentence == (
        "Undecided on moons, noise 0.4, as the others have no finite score on its data seeds: "
        "Laplace has the lowest excess NLL at fresh points, 0.3 nats."
    )
    both = cells(made, "normal", (0.4, 0.5, 0.61)) + cells(made, "cauchy", (0.41, 0.5, 0.6))
    none = "No prior stands out on moons, noise 0.4"
    lone = cells(made, "laplace", (0.0, 0.0, 0.0, 0.3))[3:]
    assert ranking(both + lone)[1].sentence.startswith(f"{none}: 2 of 3 lie")
    assert ranking(both + lone)[1].sentence.endswith("; 1 undecided, without an interval.")


def test_one_that_lacks_a_data_seed_may_be_better_on_the_others(made):
    records = cells(made, "normal", (0.41, 0.42, 0.4, 0.4))
    records += cells(made, "laplace", (0.2, 0.22, 0.2))
    none = "No prior stands out on moons, noise 0.4"
    assert ranking(records)[1].sentence == f"{none}: both lie within 0.2 nats."


@pytest.fixture
def three(made):
    """A best, one that is not significantly worse, and one that is."""
    records = cells(made, "normal", [0.1, 0.2, 0.3])
    records += cells(made, "laplace", [0.3, 0.1, 0.4])
    return records + cells(made, "cauchy", [3.31, 3.42, 3.5])


def test_rows_have_the_difference_its_interval_and_a_place_in_the_plot(three):
    title, found = ranking(three)
    assert title == "moons, noise 0.4"
    assert [row.combination for row in found.rows] == ["normal", "Laplace", "Cauchy"]
    assert [row.verdict.text for row in found.rows] == [BEST, NOT_WORSE, SIGNIFICANTLY_WORSE]
    assert [row.name for row in found.plot.rows] == ["normal", "Laplace", "Cauchy"]
    axis = found.plot.axis
    (first,), (second,), (third,) = (row.lines for row in found.plot.rows)
    assert (first.text, axis.mark(first.difference, first.kind).at) == ("", axis.zero)
    assert second.difference.low < 0 < second.difference.high
    assert third.text.startswith("+3.21 (+") and third.difference.is_clear
    assert [first.kind, second.kind, third.kind] == ["best", "level", "behind"]
    assert found.sentence.startswith("No prior stands out on moons, noise 0.4: 2 of 3 lie within")


def test_what_it_rests_on(three):
    basis = ranking(three)[1].basis
    for words in (
        "ADVI with a mean-field guide", "9 of 9 fits converged", "Data seeds 0, 1, 2".lower(),
        "95 % simultaneous intervals",
    ):  # fmt: skip
        assert words in basis


def test_a_regression_is_ranked_by_held_out_rows(made):
    records = []
    for prior, scores in {"normal": [1.0, 1.1, 1.2], "laplace": [1.5, 1.61, 1.7]}.items():
        records += cells(made, prior, scores, "validation_nll", rmse=0.4, predictive="density")
    words = ranking(records)[1].sentence
    assert words.startswith(
        "Normal is best on moons, noise 0.4, by 0.503 ± 0.003 nats over Laplace"
    )


def test_test_rows_rank_nothing(made):
    found = ranking([made.record(accuracy=0.99, validation_nll=None)])[1]
    assert found.sentence == NOT_RANKED.format(data="moons, noise 0.4")
    assert (found.plot, found.rows) == (None, ())


def test_chains_that_are_not_ranked_are_not_told_to_hold_out_rows(made):
    """They choose nothing by such rows, whatever share is held out."""
    chains = made.record(inference={"engine": "mclmc"}, accuracy=0.99, validation_nll=None)
    found = ranking([chains])[1]
    assert found.sentence == CHAINS_NOT_RANKED.format(data="moons, noise 0.4")


def test_where_all_chains_are_refuted_nothing_is_said_of_held_out_rows(made):
    fit = {"engine": "compiled", "guide": "mean_field", "kl_weight": 1.0, "kl_scaling": "sum"}
    chains = {"log_likelihood": -400.0, "log_likelihood_mcse": 1.0}
    records = [
        *cells(made, "normal", (0.3,), elbo=-300.0, inference=fit),
        *cells(made, "normal", (0.1,), inference={"engine": "mclmc"}, **chains),
    ]
    views = [CellView(f"cell-{n}", "own", r, {}, Parts(), ()) for n, r in enumerate(records)]
    (answer,) = answers_of(grids(views), {"own": 0.001})
    assert answer.rankings[0].sentence == NONE_LEFT.format(data="moons, noise 0.4")


def test_failed_cells_alone(made):
    assert ranking([made.record(failed=True)])[1].plot is None


# The axis


def test_the_axis_shows_intervals_about_zero_whole_and_far_differences_as_arrows():
    near, far = Difference(0.01, -0.02, 0.04), Difference(3.0, 2.0, 4.0)
    axis = axis_of([Difference(0.0), near, far], margin=0.001)
    assert 0 < axis.mark(near, "level").low < axis.zero < axis.mark(near, "level").high < 60
    assert axis.mark(far, "behind").beyond == "right"
    start, width = axis.band
    assert start < axis.zero < start + width


def test_the_axis_reaches_the_nearest_clear_difference():
    axis = axis_of([Difference(0.0), Difference(0.06, 0.03, 0.09)])
    assert axis.mark(Difference(0.06, 0.03, 0.09), "behind").beyond == ""
    assert all(text for _, text in axis.ticks)


def test_an_infinite_difference_lies_beyond_the_axis():
    infinite = Difference(math.inf, math.inf, math.inf)
    for others in ([], [Difference(0.01, -0.02, 0.04)]):
        mark = axis_of([Difference(0.0), infinite, *others]).mark(infinite, "behind")
        assert (mark.at, mark.low, mark.beyond) == (100.0, None, "right")


def test_an_axis_of_equal_scores():
    axis = axis_of([Difference(0.0), Difference(0.0)])
    assert axis.zero == 50.0


def test_ticks_of_an_axis_in_very_small_units():
    texts = [text for _, text in axis_of([Difference(0.0), Difference(2e-14)]).ticks]
    assert texts[0] == "0" and len(set(texts)) == len(texts) > 2
