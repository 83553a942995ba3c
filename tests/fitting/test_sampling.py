"""Cells whose posterior is sampled: what becomes of their chains, from the file to the trace."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from scipy.special import logsumexp
from sklearn.datasets import make_moons

import pmbnn as pb
from pmbnn.core.stages import on_progress
from pmbnn.data import Moons
from pmbnn.experiment.load import load_experiment
from pmbnn.experiment.plan import jobs
from pmbnn.fitting import job as job_module
from pmbnn.fitting import sampling
from pmbnn.fitting.job import run_job
from pmbnn.fitting.sampling import spread
from pmbnn.fitting.tasks import JobTask
from pmbnn.inference.flat import flatten_model
from pmbnn.inference.groups import Checkpoints
from pmbnn.inference.samplers.mclmc import MclmcSampler
from pmbnn.inference.samplers.settings import Mile
from pmbnn.models.build import dense_classifier
from pmbnn.prediction.chain_errors import (
    jackknife_error,
    nll_without_each,
    probabilities_without_each,
)
from pmbnn.prediction.class_probabilities import ClassProbabilities
from pmbnn.prediction.density import Density
from pmbnn.prediction.draws import KeptDraws
from pmbnn.prediction.metrics import nll
from pmbnn.results.loading import restore_cell, sample_posterior
from pmbnn.results.present import ResultsError
from pmbnn.results.restore import _chain_weights
from pmbnn.results.store import Results
from pmbnn.sweep.cells import prepare

SHORT = "engine: mclmc, chains: 4, draws: 16, descent: 50, tuning: 200, thin: 2"

FILE = """
name: sampled
sweeps:
  - name: sampled
    dataset: {kind: %s}
    network: {kind: dense, hidden: [[2]]}
    prior: %s
    hyperprior: %s
    inference: {%s}
    predict: {draws: 10, trace_draws: 6, map: {resolution: 4}, fresh: {size: 2000, draws: 6}}
"""

MOONS = "moons, noise: 0.3, train: 60, test: 40"


def prepared(folder, data=MOONS, prior="normal", hyperprior="half_normal", inference=SHORT):
    file = folder / "sampled.yaml"
    file.write_text(FILE % (data, prior, hyperprior, inference))
    run = prepare(load_experiment(file), folder / "out")
    run.results.prepare()
    return run


def sampled(folder, told=lambda _: None, **settings):
    """Results of a tiny experiment, sampled in this process."""
    run, programs = prepared(folder, **settings), None
    for one in jobs(list(run.tasks)):
        task = JobTask(one.group, one.width, tuple(run.tasks[cell] for cell in one.wanted))
        with on_progress(told):
            programs = run_job(task, run.results.folder, lambda _: None, programs)
    return Results(run.results.folder)


def only(results):
    (name,) = (path.name for path in results.cells.iterdir())
    return results.load_record(name), results.load_trace(name), results.cells / name


@pytest.fixture(scope="module")
def cell(tmp_path_factory):
    return only(sampled(tmp_path_factory.mktemp("sampled")))


def test_the_record_says_how_the_chains_went(cell):
    record, _, folder = cell
    assert "half_normal_mclmc-" in folder.name
    assert record.status in ("converged", "undecided")
    assert (record.best, record.restarts, record.kl_forms) == (None, (), {})
    assert record.sampling.chains == 4
    assert record.sampling.draws in (16, 32, 64, 128)
    assert set(record.sampling.tuned) == {"step_size", "length"}
    assert record.results["rhat"] == record.sampling.rhat_largest
    assert not any(name.startswith("pooled_") or name == "elbo" for name in record.results)
    for name in ("nll", "excess_nll", "excess_error"):
        assert 0 < record.results[f"{name}_mcse"] < 1


ENSEMBLE = "engine: mile, chains: 3, draws: 30, descent: 50, tuning: 60, thin: 2, pooling: %s"


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["equal", "stacked"])
def test_an_ensemble_is_not_said_to_converge(pooling, tmp_path):
    record, trace, folder = only(sampled(tmp_path, inference=ENSEMBLE % pooling))
    assert (record.status, record.sampling.draws) == ("ensemble", 30)
    assert record.reason.startswith("3 members, each about a mode of its own; between them R-hat")
    assert record.results["rhat"] == record.sampling.rhat_largest
    # A mean of logarithms is at most the logarithm of the mean, if the weights are equal.
    assert record.results["member_nll"] > record.results["nll"] or pooling == "stacked"
    weights = trace["draws"]["weight"].values
    assert (np.ptp(weights) > 1e-3) == (pooling == "stacked") and weights.sum() == pytest.approx(1)
    # A cell that is opened again predicts with the same weights.
    data = Moons(noise=0.3, train=60, test=40).load()
    restored = restore_cell(folder)
    probability = restored.predict_proba(data.standardisation.undo(data.x_test))
    nll = -np.log(probability[np.arange(40), data.y_test]).mean()
    assert nll == pytest.approx(record.results["nll"], rel=1e-4)


def test_a_cell_without_the_weights_of_its_chains():
    """Equal ones, if they were; refused if they were not."""
    draws = xr.Dataset({"values": (("chain", "draw", "parameter"), np.zeros((2, 3, 4)))})
    record = SimpleNamespace(name="one")
    assert _chain_weights(record, draws, Mile()) == {0: 0.5, 1: 0.5}
    with pytest.raises(ResultsError, match="`one` was stored without the weights of its chains"):
        _chain_weights(record, draws, Mile(pooling="stacked"))


def test_members_are_not_stacked_in_silence():
    """``pb.sample`` pools all draws: it has no use for weights."""
    with pytest.raises(ValueError, match="`pooling` must be equal in `pb.sample`, got 'stacked'"):
        pb.sample(dense_classifier(*make_moons(20)), engine="mile", pooling="stacked")


def test_rows_are_left_out_by_the_draws(cell):
    record, trace, _ = cell
    log_likelihood = trace["log_likelihood"]["y"].values
    in_sample = log_likelihood.mean()
    assert in_sample - 1 < record.results["elpd_loo"] < 0
    by_chain = trace["log_likelihood"]["y"].sum("observation").mean("draw").values
    assert record.results["log_likelihood"] == pytest.approx(by_chain.mean(), rel=1e-4)
    error = by_chain.std(ddof=1) / 2
    assert record.results["log_likelihood_mcse"] == pytest.approx(error, rel=1e-2)
    assert 0 < record.results["elpd_loo_se"] < 0.5
    assert np.isfinite(record.results["loo_pareto_k"])
    assert "pareto_k" not in record.results


def test_statistics_belong_to_the_draws_of_the_trace(cell):
    """The log-density that the sampler saw is PyMC's at the very weights that are kept."""
    _, trace, _ = cell
    rows = Moons(noise=0.3, train=60, test=40).load().training
    model = dense_classifier(rows.x, rows.y, hidden=(2,), hyperprior="half_normal")
    logp = model.compile_logp(mode="FAST_COMPILE")
    slots = flatten_model(model, rows=None).layout.slots
    kept = trace["draws"]["values"].values
    for chain, place in ((0, 3), (3, 15)):
        vector = kept[chain, place].astype(np.float64)
        point = {slot.name: slot.of(vector) for slot in slots}
        lp = trace["sample_stats"]["lp"].isel(chain=chain, draw=place)
        assert float(lp) == pytest.approx(float(logp(point)), rel=1e-4)
    by_row = trace["log_likelihood"]["y"].sum("observation")
    assert by_row.dims == ("chain", "draw") == trace["posterior"]["weight_1"].dims[:2]
    assert trace["posterior"].sizes["draw"] == trace["sample_stats"].sizes["draw"] == 16


def test_predictions_are_means_over_the_chains(cell):
    _, trace, _ = cell
    for group in ("test_predictions", "predictions"):
        of_chains = trace[group]["chain_probability"]
        assert of_chains.sizes["chain"] == 4
        np.testing.assert_allclose(of_chains.mean("chain"), trace[group]["probability"], atol=1e-6)
        assert float(of_chains.std("chain").max()) > 1e-4


def test_a_restored_cell_predicts_the_same(cell):
    _, trace, folder = cell
    posterior, test = restore_cell(folder), trace["test_predictions"]
    again = posterior.predict_proba(test["x"].values)
    np.testing.assert_allclose(again, test["probability"].values, atol=2e-6)
    assert repr(posterior).startswith("4 chains of 16 draws by MCLMC: ")
    # The rows are loaded for the density.
    assert posterior.sample()["weight_1"].shape[0] == len(posterior.log_joint()) == 4 * 16


def test_draws_made_again_are_those_that_were_kept(cell):
    _, trace, folder = cell
    drawn = sample_posterior(folder, 1000)
    assert dict(drawn.sizes)["chain"] == 4
    assert drawn.sizes["draw"] == trace["draws"].sizes["draw"] == 16
    expected = np.sort(trace["posterior"]["weight_1"].values.ravel())
    np.testing.assert_allclose(np.sort(drawn["weight_1"].values.ravel()), expected, rtol=1e-6)


def test_arviz_takes_it(cell):
    import arviz as az

    _, trace, _ = cell
    assert isinstance(trace["posterior"].dataset, xr.Dataset)
    summary = az.summary(trace, var_names=["layer_1_scale"])
    assert summary["r_hat"].notna().all()


@pytest.mark.slow
def test_an_interrupted_job_goes_on_from_its_last_draws(tmp_path, monkeypatch):
    """Its chains for one of two scales were done; these are not drawn again."""
    monkeypatch.setattr(sampling, "Checkpoints", partial(Checkpoints, interval=0.0))
    tuned = "{kind: fixed, scale: {tune: {log: [0.5, 1, 2]}}}"
    whole, found = (tmp_path / name for name in ("whole", "found"))
    for folder in (whole, found):
        folder.mkdir()
    news, stop = [], None

    def told(stages):
        news.append([one.stage for one in stages])
        if len(news) == stop:
            raise KeyboardInterrupt

    expected = sampled(whole, told, hyperprior=tuned)
    every, stop = news, news.index(["sample"])
    news = []
    with pytest.raises(KeyboardInterrupt):
        sampled(found, told, hyperprior=tuned)
    assert list((found / "out" / "checkpoints").iterdir())
    extended, stop = [], None
    watch = MclmcSampler.extend
    monkeypatch.setattr(MclmcSampler, "extend", lambda *of: extended.append(of[-1]) or watch(*of))
    results = sampled(found, told, hyperprior=tuned)
    assert extended
    assert not any("/choose/" in identity for identity in extended)
    (record, trace, _), (same, of_same, _) = only(expected), only(results)
    np.testing.assert_array_equal(trace["draws"]["values"], of_same["draws"]["values"])
    assert record.results == same.results
    assert record.sampling == same.sampling
    assert not (found / "out" / "checkpoints").exists()
    assert ["choose", "sample"] in every


@pytest.mark.slow
def test_a_scale_is_tuned_on_rows_that_no_chain_sees(tmp_path):
    """One candidate can say nothing: at scale 0.01 all classes are alike."""
    tuned = "{kind: fixed, scale: {tune: {log: [0.01, 1, 2]}}}"
    record, _, _ = only(sampled(tmp_path, hyperprior=tuned))
    assert record.results["scale"] == 1.0
    assert record.selection.candidate == 1
    assert record.selection.nll[0][0] == pytest.approx(np.log(2), abs=0.02)
    assert record.results["validation_nll"] == record.selection.nll[1][0] < np.log(2)


@pytest.mark.slow
def test_cells_of_a_group_share_programs_and_have_their_own_chains(tmp_path, monkeypatch):
    built = []
    kept = job_module.GroupPrograms.program

    def counted(self, cell, rows):
        built.append(id(kept(self, cell, rows)))
        return kept(self, cell, rows)

    monkeypatch.setattr(job_module.GroupPrograms, "program", counted)
    scales = "{kind: fixed, scale: [0.5, 1]}"
    results = sampled(tmp_path, data=f"{MOONS}, seed: [0, 1]", hyperprior=scales)
    assert len(built) == 4
    assert len(set(built)) == 1
    drawn = [results.load_trace(p.name)["draws"]["values"] for p in results.cells.iterdir()]
    assert len({float(values[0, 0, 0]) for values in drawn}) == 4


@pytest.mark.slow
def test_numbers_do_not_depend_on_what_was_done_before(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
    first, again = (only(sampled(tmp_path / name)) for name in "ab")
    assert first[0].results == again[0].results
    xr.testing.assert_identical(first[1]["draws"].dataset, again[1]["draws"].dataset)


@pytest.mark.slow
def test_regressions_are_sampled_too(tmp_path):
    data = "sine, train: 20"
    record, trace, _ = only(sampled(tmp_path, data=data, hyperprior="half_normal"))
    assert record.predictive == "density"
    assert record.results["nll_mcse"] > 0
    assert "curve_1" in trace.children


@pytest.mark.slow
def test_a_prior_that_is_improper_is_said_to_be(tmp_path):
    record, trace, _ = only(sampled(tmp_path, prior="flat", hyperprior="fixed"))
    assert record.status in ("converged", "undecided")
    assert "a prior is improper" in trace["posterior"].attrs["reason"]


def test_chains_that_broke_are_a_recorded_failure(tmp_path, monkeypatch):
    run = prepared(tmp_path)
    (task,) = run.tasks.values()

    def broken(cells, *_):
        from pmbnn.fitting.sampling import sampled_cell
        from pmbnn.inference.samplers.chains import Chains, Samples

        chains = Chains(np.zeros((4, 2, 3)), {"lp": np.zeros((4, 2))}, np.ones(4, bool))
        samples = Samples(chains, "diverged", "4 of 4 chains", None, {})
        return [sampled_cell(cells[0], cells[0].hyperprior, {}, samples, None, 1.0, None)]

    monkeypatch.setattr(job_module, "sample_job", broken)
    stored = []
    run_job(JobTask("g", 1, (task,)), run.results.folder, stored.append)
    (record,) = stored
    assert (record.status, record.reason, record.results) == ("diverged", "4 of 4 chains", {})
    assert record.failed
    assert record.sampling.rhat_largest is None
    assert not record.files


def test_kept_draws_are_all_of_them_and_the_first_few_spread():
    values = np.arange(400.0)[:, None]
    kept = KeptDraws.spread(values).values[:, 0]
    np.testing.assert_array_equal(np.sort(kept), values[:, 0])
    assert np.diff(np.sort(kept[:20])).max() < 2.7 * 400 / 20
    assert abs(kept[:20].mean() - 199.5) < 15


@pytest.mark.parametrize(
    ("number", "most", "count"), [(400, 400, 400), (3200, 400, 400), (5, 2, 2)]
)
def test_what_is_kept_is_spread_and_has_the_last(number, most, count):
    kept = spread(number, most)
    assert len(kept) == count
    assert kept[-1] == number - 1
    assert len(set(np.diff(kept))) == 1


def test_the_error_of_a_mean_is_that_of_independent_chains():
    """Of a mean the jackknife is the usual standard error."""
    values = np.random.default_rng(0).normal(size=16)
    of_others = (values.sum() - values) / 15
    expected = values.std(ddof=1) / 4
    assert jackknife_error(of_others) == pytest.approx(expected)


def test_the_error_of_an_infinite_statistic_is_not_known():
    """Of the NLL of a class that all other chains give no probability."""
    assert np.isnan(jackknife_error([0.3, np.inf, 0.4]))


def test_nll_without_each_chain():
    rng = np.random.default_rng(1)
    p = rng.dirichlet([1, 1], size=(3, 5))
    chains = [ClassProbabilities(1, part, part, part[:, 0], part, part) for part in p]
    y = np.array([0, 1, 1, 0, 1])
    found = nll_without_each(chains, y, [1 / 3] * 3)
    log_p = np.log(p[:, np.arange(5), y])
    for left in range(3):
        others = np.delete(log_p, left, axis=0)
        expected = -(logsumexp(others, axis=0) - np.log(2)).mean()
        assert found[left] == pytest.approx(expected)


def test_errors_of_stacked_chains_are_of_their_weights():
    rng = np.random.default_rng(1)
    p = rng.dirichlet([1, 1], size=(3, 5))
    chains = [ClassProbabilities(1, part, part, part[:, 0], part, part) for part in p]
    y = np.array([0, 1, 1, 0, 1])
    weights = [0.75, 0.25, 0.0]
    others = [chains[1].mean, chains[0].mean]
    found = [*probabilities_without_each(chains, weights)]
    np.testing.assert_allclose(found, others)
    expected = [nll(mean, y) for mean in others]
    assert nll_without_each(chains, y, weights) == pytest.approx(expected)
    # Nothing is known of the error of a single one.
    assert np.isnan(jackknife_error(nll_without_each(chains, y, [0.0, 1.0, 0.0])))


def test_scores_of_chains_are_limited_as_the_nll_is():
    """A class without probability in single precision costs as much as in the score of all."""
    p = np.array([[1.0, 0.0], [0.5, 0.5]])
    chain = ClassProbabilities(1, p, p, p[:, 0], p, p)
    y = np.array([1, 0])
    assert -chain.log_score(y).mean() == nll(p, y) < 20


def test_nll_of_targets_that_a_chain_thinks_next_to_impossible():
    """Of a density of exp(−2000), which no number holds."""
    one = np.ones(2)
    chains = [Density(*[one] * 5, np.array([-2000.0, score]), one, one) for score in (-1, -2, -3)]
    found = nll_without_each(chains, one, [1 / 3] * 3)
    assert found[0] == pytest.approx((2000 - logsumexp([-2, -3]) + np.log(2)) / 2)
    assert np.isfinite(jackknife_error(found))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "statistics"),
    [
        ("engine: nuts, chains: 2, draws: 16, tuning: 60", {"tree_depth", "acceptance_rate"}),
        ("engine: smc, chains: 2, draws: 64", {"log_evidence", "n_temperatures"}),
    ],
)
def test_other_samplers_go_the_same_way(tmp_path, engine, statistics):
    record, trace, _ = only(sampled(tmp_path, inference=engine))
    assert record.status in ("converged", "undecided")
    assert statistics <= set(trace["sample_stats"].data_vars)
    assert ("log_evidence" in record.results) == ("smc" in engine)
