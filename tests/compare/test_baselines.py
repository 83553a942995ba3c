"""Networks beside baseline models and published results on the same rows."""

import math
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from makers import NO_SCALE, changed, record, store
from scipy import stats
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import KFold
from threadpoolctl import threadpool_limits
from typer.testing import CliRunner

from pmbnn.cli import app
from pmbnn.cli.tables import tally_table
from pmbnn.compare import baseline_models, baselines
from pmbnn.compare.baseline_models import BASELINES
from pmbnn.compare.baselines import (
    BY_ELBO,
    CHOSEN,
    DROPOUT,
    NAMED_NETWORK,
    _difference,
    make_baselines,
    tally,
)
from pmbnn.compare.intervals import holm
from pmbnn.compare.published_splits import read_splits, stored_splits
from pmbnn.core.errors import ConfigError
from pmbnn.data import DataError
from pmbnn.data.arrays import Dataset
from pmbnn.data.splits import RandomSplit
from pmbnn.results.derived import is_current, note_files
from pmbnn.results.ranking import BETTER, EQUIVALENT, UNDECIDED, WORSE
from pmbnn.results.store import Results, ResultsError


def numbers(seed=0, rows=80):
    """A line with noise of 2, far from zero."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 2))
    y = 100 + 10 * x[:, 0] + rng.normal(0, 2, rows)
    return Dataset.from_arrays(x, y, split=RandomSplit(test_size=0.25), seed=seed)


def classes(seed=0, rows=80):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 2))
    return Dataset.from_arrays(
        x, np.where(x[:, 0] > 0, "a", "b"), split=RandomSplit(test_size=0.25)
    )


@pytest.fixture(autouse=True)
def small_forests(monkeypatch):
    monkeypatch.setattr(baseline_models, "TREES", 60)


@pytest.mark.parametrize("method", BASELINES["density"], ids=lambda method: method.name)
def test_numbers_are_predicted_in_their_own_units(method):
    found = method.scores(numbers(), 0)
    trees = {"random forest": 6, "gradient boosting": 6}
    close = ({"ridge regression": 2.8, "Gaussian process": 2.8} | trees)[method.name]
    assert 1.2 < found["rmse"] < close
    # The least NLL is that of the noise itself.
    assert stats.norm(0, 2).entropy() - 0.4 < found["nll"] < stats.norm(0, close).entropy() + 0.5
    assert found["coverage_90"] > 0.6


def test_ridge_by_hand():
    data = numbers()
    method, *_ = BASELINES["density"]
    found = method.scores(data, 0)
    x = np.column_stack([np.ones(len(data.x_train)), data.x_train])
    weights, *_ = np.linalg.lstsq(x, data.raw_targets(data.y_train), rcond=None)
    mean = np.column_stack([np.ones(len(data.x_test)), data.x_test]) @ weights
    target = data.raw_targets(data.y_test)
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((target - mean) ** 2)), rel=0.02)


@threadpool_limits.wrap(1)
def test_boosting_by_hand():
    data, seed = numbers(rows=200), 3
    x, y = data.x_train, data.y_train
    rounds, folds = [], list(KFold(5, shuffle=True, random_state=seed).split(x))
    for kept, left in folds:
        mean, losses = y[kept].mean(), []
        fit = HistGradientBoostingRegressor(max_iter=200).fit(x[kept], y[kept])
        for predicted in [np.full(len(left), mean), *fit.staged_predict(x[left])]:
            losses.append(np.mean((y[left] - predicted) ** 2))
        rounds.append(np.argmin(losses))
    model = HistGradientBoostingRegressor(max_iter=round(np.mean(rounds)))
    residual = np.empty(len(x))
    for kept, left in folds:
        residual[left] = y[left] - model.fit(x[kept], y[kept]).predict(x[left])
    unit = data.target_standardisation.sd.item()
    mean = data.raw_targets(model.fit(x, y).predict(data.x_test))
    sd = np.sqrt(np.mean(residual**2)) * unit
    found = {m.key: m for m in BASELINES["density"]}["boosting"].scores(data, seed)
    target = data.raw_targets(data.y_test)
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((target - mean) ** 2)))
    # A fold that stopped before the chosen round leaves slightly other residuals.
    assert found["nll"] == pytest.approx(-stats.norm(mean, sd).logpdf(target).mean(), abs=0.02)


@pytest.mark.parametrize("predictive", BASELINES)
def test_boosting_chooses_few_rounds_where_there_is_nothing_to_learn(predictive):
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(200, 2)), rng.normal(size=200)
    y = noise if predictive == "density" else np.where(noise > 0, "a", "b")
    data = Dataset.from_arrays(x, y, split=RandomSplit(test_size=0.25))
    (boosting,) = [m for m in BASELINES[predictive] if m.key == "boosting"]
    least = stats.norm.entropy() if predictive == "density" else np.log(2)
    found = boosting.scores(data, 0)
    assert found["nll"] == pytest.approx(least, abs=0.2)
    assert found == boosting.scores(data, 0)


@pytest.mark.parametrize("method", BASELINES["class_probabilities"], ids=lambda method: method.name)
def test_classes(method):
    found = method.scores(classes(), 0)
    assert found["accuracy"] > 0.85
    assert 0 < found["nll"] < 0.4


def test_a_class_that_training_rows_lack():
    data = classes()
    rows = data.y_train == 0
    lacking = Dataset(
        x_train=np.concatenate([data.x_train, data.x_train[:5] + 9]),
        y_train=np.concatenate([data.y_train, np.full(5, 2)]),
        x_test=data.x_test,
        y_test=data.y_test,
        features=data.features,
        classes=("a", "b", "c", "d"),
        standardisation=data.standardisation,
        source="test",
    )
    assert rows.any()
    for method in BASELINES["class_probabilities"]:
        assert method.scores(lacking, 0)["accuracy"] > 0.85


class Known(NamedTuple):
    """In the place of a data set's specification."""

    dataset: Dataset

    def load(self):
        return self.dataset


OWN = {"kind": "table", "file": "uci/houses.csv.gz"}


def cell(prior, seed, validation_nll, elbo, nll, **changes):
    """A cell on the line above; settings of makers.record may be changed."""
    given = {"dataset": OWN | {"seed": seed}, "predictive": "density", "accuracy": None}
    given |= {"validation_nll": validation_nll, "elbo": elbo, "nll": nll}
    given |= {"rmse": 2.0 + seed, "crps": 1.0, "coverage_90": 0.9}
    return record(prior, **given | changes)


def cells(**of_prior):
    """Cells of priors; of each a held-out score, an ELBO and an NLL for every data seed."""
    return [
        cell(prior, seed, *numbers)
        for prior, seeds in of_prior.items()
        for seed, numbers in enumerate(seeds)
    ]


BOTH = {
    "normal": [(1.0, -30, 2.0), (0.5, -10, 2.1), (0.5, -10, 2.2)],
    "laplace": [(0.4, -10, 1.8), (0.9, -20, 2.5), (0.9, -20, 2.6)],
}
"""Held-out rows choose the second on the first data seed, and the first on the others."""


def made(records, published=(), models=(), network=()):
    found = make_baselines(None, records, models, published, network=network)
    return found.means.set_index("method"), found.paired.set_index(["method", "metric"])


def test_a_network_is_chosen_on_each_data_seed():
    means, _ = made(cells(**BOTH))
    assert list(means.index[:2]) == [CHOSEN, BY_ELBO]
    assert means.loc[CHOSEN, "nll"] == pytest.approx(np.mean([1.8, 2.1, 2.2]))
    assert means.loc[CHOSEN, "combination"] == "normal × half-normal (2), Laplace × half-normal (1)"
    assert means.loc["normal × half-normal", "nll"] == pytest.approx(2.1)


def test_combinations_that_were_chosen_are_named_up_to_three():
    priors = ("normal", "laplace", "cauchy", "student_t", "flat")
    scores = {
        prior: [(0.1 if seed == own else 1.0, -10, 2.0) for seed in range(5)]
        for own, prior in enumerate(priors)
    }
    chosen = {n: made(cells(**dict([*scores.items()][:n])))[0].loc[CHOSEN] for n in (4, 5)}
    # Of four combinations the first is chosen twice, as all are level on the last data seed.
    assert chosen[4]["combination"].endswith(", 1 other (1)")
    assert chosen[5]["combination"].endswith(", 2 others (2)")


def test_elbos_are_compared_where_they_are_bounds_of_the_same():
    scores = {"validation_nll": 9.0, "nll": 9.0}
    none = {"engine": "mclmc", "seed": 0}
    tempered = {"engine": "compiled", "kl_weight": 0.1, "seed": 0}
    point = {"engine": "compiled", "guide": "map", "seed": 0}
    others = [
        changed(cell("flat", 0, elbo=99, hyperprior=NO_SCALE, **scores), status="improper"),
        cell("normal", 0, elbo=None, inference=none, **scores),
        cell("normal", 0, elbo=99, inference=tempered, **scores),
        cell("normal", 0, elbo=99, inference=point, **scores),
    ]
    known = [cell("normal", 0, 1.0, -30, 2.0), cell("laplace", 0, 2.0, -20, 1.5)]
    means, _ = made(others + known)
    assert means.loc[BY_ELBO, ["nll", "combination"]].tolist() == [1.5, "Laplace × half-normal (1)"]
    assert means.loc[CHOSEN, "nll"] == 2.0
    sampled, _ = made(others[1:2])
    assert CHOSEN in sampled.index
    assert BY_ELBO not in sampled.index


def dropout_cells(*rates):
    """The first rate is best on held-out rows of the first data seed, the second on the other."""
    for rate, scores in zip(rates, [(0.1, 0.9), (0.3, 0.2)], strict=False):
        for seed, score in enumerate(scores):
            settings = {"guide": "dropout", "dropout_rate": rate, "seed": 0}
            yield cell("normal", seed, score, 999, 3 + 10 * rate, inference=settings)


def test_dropout_is_a_baseline_whose_rate_held_out_rows_choose():
    """It is no candidate for the network, however good its held-out score or its objective."""
    advi = cells(normal=[(1.0, -30, 2.0), (1.0, -30, 2.2)])
    means, paired = made([*advi, *dropout_cells(0.1, 0.2)])
    assert means.loc[CHOSEN, "nll"] == means.loc[BY_ELBO, "nll"] == pytest.approx(2.1)
    assert means.loc[DROPOUT, "nll"] == pytest.approx(np.mean([4, 5]))
    assert means.loc[DROPOUT, "kind"] == "baseline"
    chosen = means.loc[DROPOUT, "combination"].split(", normal")
    assert [words.split(", ")[-1] for words in chosen] == ["dropout 0.1 (1)", "dropout 0.2 (1)"]
    assert paired.loc[(DROPOUT, "nll"), "difference"] == pytest.approx(2.1 - 4.5)


def test_dropout_alone_is_the_network():
    means, _ = made([*dropout_cells(0.1, 0.2)])
    assert means.loc[CHOSEN, "nll"] == pytest.approx(4.5)
    assert not {DROPOUT, BY_ELBO} & set(means.index)


def test_fits_of_a_cell_count_by_their_mean():
    fits = [{"steps": 10, "seed": seed} for seed in (0, 1)]
    twice = [
        cell("normal", 0, score, -1, nll, inference=fit)
        for fit, score, nll in zip(fits, (0.1, 0.9), (1.0, 3.0), strict=True)
    ]
    means, _ = made([*twice, cell("laplace", 0, 0.4, -1, 7.0, inference=fits[0])])
    assert means.loc[CHOSEN, "nll"] == 7.0
    assert means.loc["normal × half-normal", ["nll", "seeds"]].tolist() == [2.0, 1]


def test_a_network_that_was_named_beforehand_is_paired_with_all_others():
    sampled = [
        cell("normal", s, None, None, 1.0 + s, inference={"engine": "mclmc", "seed": 0})
        for s in range(3)
    ]
    named = ["prior=normal", "inference.engine=mclmc"]
    means, paired = made([*cells(**BOTH), *sampled], network=named)
    network = means.loc[NAMED_NETWORK]
    assert network["combination"] == "normal × half-normal, MCLMC (3)"
    assert network["nll"] == 2.0
    assert set(paired["network"]) == {NAMED_NETWORK}
    others = set(paired.index.get_level_values("method"))
    combinations = {"normal × half-normal", "Laplace × half-normal"}
    assert others == {CHOSEN, BY_ELBO} | combinations
    row = paired.loc[("Laplace × half-normal", "nll")]
    assert row["difference"] == pytest.approx(np.mean([1.0 - 1.8, 2.0 - 2.5, 3.0 - 2.6]))


def test_a_combination_with_the_scores_of_the_named_network_is_paired_with_it():
    twins = {name: [(1.0, -30, 2.0), (0.5, -10, 2.1)] for name in ("normal", "laplace")}
    _, paired = made(cells(**twins), network=["prior=normal"])
    assert paired.loc[("Laplace × half-normal", "nll"), "verdict"] == EQUIVALENT


def test_a_named_network_is_one_combination():
    with pytest.raises(ConfigError, match=r"`--network` must leave one .* got 2 on .*houses"):
        made(cells(**BOTH), network=["hyperprior=half_normal"])
    with pytest.raises(ConfigError, match="`--network prior` must be one of"):
        made(cells(**BOTH), network=["prior=cauchy"])


def test_p_values_are_corrected_for_the_number_of_data_sets():
    others = [
        cell(prior, seed, score, -1, nll, dataset=OWN | {"file": f"{name}.csv.gz", "seed": seed})
        for name, spread in (("a", 0.1), ("b", 0.3))
        for seed in range(3)
        for prior, score, nll in (("normal", 1, 1.0), ("laplace", 2, 2.0 + spread * seed))
    ]
    _, paired = made([*cells(**BOTH), *others])
    tests = paired.loc[("Laplace × half-normal", "nll")].sort_values("p_value")
    smallest, middle, largest = tests["p_value"]
    expected = np.maximum.accumulate([3 * smallest, 2 * middle, largest])
    assert tests["p_holm"].tolist() == pytest.approx(np.minimum(expected, 1))


def test_holm_by_hand():
    corrected = holm(pd.Series([0.03, np.nan, 0.01, 0.04], list("abcd")))
    assert corrected.dropna().to_dict() == pytest.approx({"a": 0.06, "c": 0.03, "d": 0.06})
    assert np.isnan(corrected["b"])


def test_differences_by_hand():
    records = [changed(r, overlap=0.25) for r in cells(**BOTH)]
    _, paired = made(records)
    row = paired.loc[("Laplace × half-normal", "nll")]
    differences = np.array([0.0, -0.4, -0.4])
    error = differences.std(ddof=1) * np.sqrt(1 / 3 + 0.25)
    low, high = stats.t.interval(0.95, 2, differences.mean(), error)
    assert row[["low", "difference", "high"]].tolist() == pytest.approx(
        [low, differences.mean(), high]
    )
    assert row["p_value"] == pytest.approx(2 * stats.t.sf(-differences.mean() / error, 2))
    assert row[["ahead", "level", "behind", "verdict"]].tolist() == [2, 1, 0, UNDECIDED]
    # The RMSE of all cells is the same, data seed by data seed.
    same = paired.loc[("Laplace × half-normal", "rmse")]
    assert same[["level", "verdict"]].tolist() == [3, EQUIVALENT]


@pytest.mark.parametrize("unit", [1e-15, 1e15])
def test_errors_in_any_unit_are_compared(unit):
    """But for rounding: what that leaves has the size of the errors."""
    ours = pd.Series([2.0, 3.0, 4.0, 5.0]) * unit
    found = _difference(ours, ours * 1.1, 0.0)
    assert (found["ahead"], found["level"], found["verdict"]) == (4, 0, BETTER)
    found = _difference(ours, ours * (1 + 1e-15), 0.0)
    assert (found["level"], found["verdict"]) == (4, EQUIVALENT)


@pytest.mark.parametrize(
    ("step", "verdict"), [([0.1, 0.2], UNDECIDED), ([0.10, 0.11], BETTER), ([-0.10, -0.11], WORSE)]
)
def test_verdicts(step, verdict):
    one, *_ = BOTH.values()
    other = [(9.0, -50, nll + more) for (_, _, nll), more in zip(one, step, strict=False)]
    _, paired = made(cells(normal=one[:2], laplace=other))
    assert paired.loc[("Laplace × half-normal", "nll"), "verdict"] == verdict
    assert "normal × half-normal" not in paired.index.get_level_values("method")  # chosen always


@pytest.mark.parametrize(("nll", "verdict"), [(math.inf, BETTER), (-math.inf, WORSE)])
def test_an_infinite_score_is_a_verdict(nll, verdict):
    """Of a method that gave a target of one data seed no probability."""
    one, *_ = BOTH.values()
    other = [(9.0, -50, nll if seed == 0 else 0.3) for seed in range(len(one))]
    row = made(cells(normal=one, laplace=other))[1].loc[("Laplace × half-normal", "nll")]
    assert row["verdict"] == verdict and row["difference"] == -nll


def test_the_network_is_paired_with_the_nearest_combinations():
    rows = {prior: [(score, -1, 1.0)] for prior, score in zip("abcdef", range(6), strict=True)}
    _, paired = made(cells(**rows))
    methods = list(paired.xs("nll", level="metric").index)
    assert methods == [BY_ELBO, *(f"{prior} × half-normal" for prior in "bcd")]


def test_one_data_seed_gives_no_verdict():
    _, paired = made(cells(normal=BOTH["normal"][:1], laplace=BOTH["laplace"][:1]))
    row = paired.loc[("normal × half-normal", "nll")]
    assert row[["seeds", "verdict"]].tolist() == [1, UNDECIDED]


def test_verdicts_are_counted_over_data_sets(tmp_path):
    other = {"kind": "table", "file": "flats.csv"}
    records = cells(**BOTH)
    records += [
        cell("normal", seed, 1.0, -1, nll, dataset=other | {"seed": seed})
        for seed, nll in enumerate((1.0, 1.1))
    ]
    file = tmp_path / "splits.csv"
    lines = [f"houses,{seed},{nll + 0.5}" for seed, nll in enumerate((1.8, 2.11, 2.2))]
    lines += ["flats,0,0.5", "flats,1,0.61", "flats,2,0.5"]
    file.write_text("\n".join(["set,split,nll", *lines]))
    found = make_baselines(None, records, (), read_splits(str(file), "dropout"))
    counts = tally(found.paired).set_index("method")
    assert counts.loc["dropout"].tolist() == ["nll", 1, 0, 0, 1]
    assert set(counts.index) == {BY_ELBO, "dropout"}
    means = found.means[found.means["method"] == "dropout"]
    assert means["seeds"].tolist() == [3, 2]


def test_a_published_method_counts_once(tmp_path):
    """Named by the experiment's table and by hand, it would count twice in Holm's correction."""
    file = tmp_path / "splits.csv"
    file.write_text("set,split,nll\nhouses,0,2.3\nhouses,1,2.6\n")
    (method,) = read_splits(str(file), "dropout")
    with pytest.raises(DataError, match="the method `dropout` must be named once, got it twice"):
        make_baselines(None, cells(**BOTH), (), [method, method])


# Published results


@pytest.fixture
def splits(tmp_path):
    def written(text):
        path = tmp_path / "by_split.csv"
        path.write_text(text)
        return str(path)

    return written


def test_columns_of_published_results(splits):
    text = "split,set,test_log_likelihood,error,epochs\n3,a,-1.5,0.25,40\n4,b,-2,0,40\n"
    (method,) = read_splits(splits(text))
    assert method.name == "by split"
    assert method.on({"a"}, {3, 4}).to_dict("index") == {3: {"nll": 1.5, "accuracy": 0.75}}
    text = "set,split,method,test_rmse\na,0,first,1\na,0,second,2\n"
    both = read_splits(splits(text), "unused")
    assert [(m.name, m.scores["rmse"].item()) for m in both] == [("first", 1), ("second", 2)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("set,rmse\na,1\n", "must have the columns set and split, `split` is missing"),
        ("set,split,seconds\na,0,1\n", "must have a column of nll, .*, with or without `test_`"),
        ("set,split,nll,test_nll\na,0,1,1\n", "`nll` and `test_nll` say the same"),
        ("set,split,nll\na,0,1\na,0,2\n", "must have every split once, got a split 0 twice"),
        ("set,split,nll\na,0,1\na,1,low\n", "a split 1: `nll` must be a number, got 'low'"),
        ("set,split,nll\na,0,\n", "a split 0: `nll` must be a number, got nothing"),
        ("set,split,nll\na,first,1\n", "`split` must be a whole number, got 'first'"),
    ],
)
def test_mistakes_in_published_results(splits, text, message):
    with pytest.raises(DataError, match=message):
        read_splits(splits(text))


def test_published_results_have_a_set_in_common(splits):
    text = "set,split,nll\n{},{},1\n"
    match = r"must have a set and split of the cells \(houses, table houses\), got"
    for name, split in (("flats", 0), ("houses", 7)):
        with pytest.raises(DataError, match=match):
            made(cells(**BOTH), read_splits(splits(text.format(name, split))))
    means, _ = made(cells(**BOTH), read_splits(splits(text.format("table houses", 0)), "dropout"))
    assert means.loc["dropout", "nll"] == 1


# The folder


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Cells of two priors and two data seeds, whose data set is the line above."""
    records = [r for r in cells(**BOTH) if r.settings["dataset"]["seed"] < 2]
    seeds = [one.settings["dataset"]["seed"] for one in records]
    prints = [numbers(seed).fingerprint for seed in seeds]
    records = [changed(r, fingerprint=f) for r, f in zip(records, prints, strict=True)]
    results = store(tmp_path / "houses", [(one, None) for one in records])

    def specifications(_, one, sections):
        return {"dataset": Known(numbers(one.settings["dataset"]["seed"]))}

    monkeypatch.setattr(baselines, "stored_specifications", specifications)
    monkeypatch.chdir(tmp_path)
    (results.folder / "experiment.yaml").write_text("name: houses\nsweeps: []\n")
    return results, records


def test_baseline_models_are_fitted_to_the_rows_of_each_data_seed(folder):
    results, records = folder
    said = []
    found = make_baselines(results, records, ["linear"], on_progress=said.append)
    means = found.means.set_index("method")
    both = [BASELINES["density"][0].scores(numbers(seed), seed)["rmse"] for seed in (0, 1)]
    assert means.loc["ridge regression", "rmse"] == pytest.approx(np.mean(both))
    assert means.loc["ridge regression", "rmse_se"] == pytest.approx(stats.sem(both))
    assert "random forest" not in means.index
    assert said[0] == "table houses (1 of 1), data seed 0: ridge regression"
    row = found.paired.set_index(["method", "metric"]).loc[("ridge regression", "rmse")]
    assert row["difference"] == pytest.approx(np.mean([2, 3]) - np.mean(both))


def test_data_that_have_changed_since_are_an_error(folder):
    results, records = folder
    others = [changed(record, fingerprint="of another table") for record in records]
    with pytest.raises(DataError, match=r"The data of cell `.*` are not those that it was fitted"):
        make_baselines(results, others, ["linear"])


def test_large_data_have_no_gaussian_process(folder, monkeypatch):
    results, records = folder
    small = [method._replace(max_rows=method.max_rows and 10) for method in BASELINES["density"]]
    monkeypatch.setitem(baseline_models.BASELINES, "density", tuple(small))
    found = make_baselines(results, records, ["linear", "process"])
    assert "Gaussian process" not in set(found.means["method"])


def test_the_command(folder, tmp_path):
    results, _ = folder
    (tmp_path / "dropout.csv").write_text("set,split,nll\nhouses,0,2.0\nhouses,1,2.2\n")
    named = "splits:\n- {{method: {}, file: {}}}\n"
    (results.folder / "published.yaml").write_text(named.format("Absent", "absent.csv"))

    def call(*arguments):
        return CliRunner().invoke(app, ["baselines", *arguments])

    done = call("houses", "--published", "dropout.csv", "--name", "Dropout")
    assert done.exit_code == 0, done.output
    assert "left out: Absent: absent.csv is not there" in done.stderr
    assert "data seed 1: random forest" in done.stderr, "a log says how far it is"
    table = pd.read_csv(results.folder / "baselines.csv")
    models = [method.name for method in BASELINES["density"]]
    assert table["method"].tolist()[:7] == [CHOSEN, BY_ELBO, *models, "Dropout"]
    paired = pd.read_csv(results.folder / "paired_baselines.csv")
    assert {"Dropout", BY_ELBO, *models} < set(paired["method"])
    assert "over data sets" not in done.stdout, "there is one"
    shown = tally_table("houses", pd.concat([paired, paired.assign(data="huts")]))
    assert "over data sets, the network against" in str(shown.title)
    assert [str(column.header) for column in shown.columns[:2]] == ["method", "metric"]
    assert shown.row_count == len(paired[paired["kind"] != "combination"])

    (results.folder / "published.yaml").write_text(named.format("Named", "dropout.csv"))
    (method,), absent = stored_splits(results)
    assert (method.name, absent) == ("Named", [])
    nothing = [("gone",), ("houses", "--methods", "tree"), ("houses", "--published", "gone.csv")]
    failed = [call(*arguments) for arguments in nothing]
    assert [one.exit_code for one in failed] == [2, 2, 2]
    assert "must be one of boosting, forest, linear, none, process, got 'tree'" in failed[1].stderr
    assert "`--published` must be there" in failed[2].stderr


def test_published_results_are_of_one_target(splits):
    """Those of one target of a file were paired with the networks of the other as well."""
    table = {"kind": "table", "file": "uci/energy.csv", "task": "regression"}
    records = [
        record("normal", dataset=table | {"target": y, "seed": seed}, predictive="density",
               nll=0.5 + 0.1 * seed)
        for y in ("heating", "cooling")
        for seed in range(2)
    ]  # fmt: skip
    both = "table energy, target heating or table energy, target cooling"
    (method,) = read_splits(splits("set,split,nll\nenergy,0,1.0\nenergy,1,1.2\n"))
    with pytest.raises(DataError, match=f"the set `energy` must be one data set, .* {both}"):
        make_baselines(None, records, (), [method])
    lines = (f'"table energy, target cooling",{seed},1.0' for seed in range(2))
    (method,) = read_splits(splits("\n".join(["set,split,nll", *lines])))
    means = make_baselines(None, records, (), [method]).means
    assert means[means["kind"] == "published"]["data"].tolist() == ["table energy, target cooling"]


def test_tables_are_stale_where_published_splits_have_changed(tmp_path):
    """Differences from numbers that were corrected since were shown as current."""
    results, file = Results(tmp_path), "paired_baselines.csv"
    (tmp_path / file).write_text("made up")
    published, splits = tmp_path / "published.yaml", tmp_path / "splits.csv"

    def current():
        return is_current(results, file, "digest")

    note_files(results, [file], "digest")
    named = "splits:\n- {{method: Theirs, file: {}}}\n"
    published.write_text(named.format("splits.csv"))
    assert current(), "tables that were noted before do not say"
    splits.write_text("set,split,nll\nhouses,0,2.0\n")
    note_files(results, [file], "digest")
    assert current()
    splits.write_text("set,split,nll\nhouses,0,1.0\n")
    assert not current()
    splits.unlink()
    assert current(), "a colleague may not have them"
    published.write_text(named.format("others.csv"))
    assert not current()


def test_without_a_score_nothing_is_paired(folder, monkeypatch):
    results, records = folder
    for one in records:
        results.save_cell(changed(one, results=one.results | {"validation_nll": None}), {})
    done = CliRunner().invoke(app, ["baselines", "houses", "--methods", "none"])
    assert done.exit_code == 0, done.output
    assert "Nothing is paired on " in done.stderr
    assert not (results.folder / "paired_baselines.csv").exists()


def test_a_data_set_called_null_keeps_its_name(tmp_path):
    row = {"data": "null", "method": "NA", "nll": np.nan, "combination": "None"}
    pd.DataFrame([row]).to_csv(tmp_path / "baselines.csv", index=False)
    (found,) = baselines.read_baselines(Results(tmp_path)).means.to_dict("records")
    assert found | {"nll": 0} == row | {"nll": 0}
    assert np.isnan(found["nll"])


def test_unknown_verdicts_are_an_error(tmp_path):
    row = {"data": "houses", "verdict": "win"}
    pd.DataFrame([row]).to_csv(tmp_path / "paired_baselines.csv", index=False)
    with pytest.raises(ResultsError, match="`verdict` must be one of better, .*, got 'win': run"):
        baselines.read_baselines(Results(tmp_path))
