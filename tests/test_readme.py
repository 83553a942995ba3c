"""What the README shows runs as it stands, and says what the project says."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from scipy import stats

from pmbnn.core.errors import ConfigError
from pmbnn.data import Moons
from pmbnn.experiment.load import load_experiment
from pmbnn.models import build as models
from pmbnn.models.hyperpriors import HalfNormal
from pmbnn.models.likelihoods import Categorical
from pmbnn.models.networks import Dense

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()


def block(language, containing):
    """The one block of code in a language that has some words in it."""
    found = re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    [only] = [text for text in found if containing in text]
    return only


def load(text, folder):
    (folder / "file.yaml").write_text(text)
    return load_experiment(folder / "file.yaml")


def test_the_experiment_is_part_of_the_file(tmp_path):
    shown = load(block("yaml", "sweeps:"), tmp_path)
    stored = load_experiment(ROOT / "experiments/priors.yaml")
    assert shown.name == stored.name
    assert [sweep.cells for sweep in shown.sweeps] == [stored.sweeps[0].cells]


def test_the_message_is_the_one_that_a_mistake_gives(tmp_path):
    text = block("yaml", "sweeps:").replace("laplace, cauchy, flat", "laplace, gaussian, flat")
    with pytest.raises(ConfigError) as raised:
        load(text, tmp_path)
    assert f"error: {raised.value}" in TEXT


@pytest.mark.usefixtures("registries")
def test_the_prior_works_as_it_is_written(tmp_path):
    (tmp_path / "my_priors.py").write_text(block("python", "class Logistic"))
    text = block("yaml", "sweeps:").replace("laplace, cauchy, flat", "logistic")
    cells = load(f"plugins: [my_priors.py]\n{text}", tmp_path).cells
    [prior] = {cell.prior for cell in cells if cell.prior.kind == "logistic"}
    rows = Moons(noise=0.4, train=10).load().training
    network, hyperprior = Dense(hidden=()), HalfNormal(centred=True)
    model = models.build_model(network, prior, hyperprior, Categorical(), rows)
    weight = np.array([[1.0, -2.0], [0.0, 30.0]])
    values = {
        model.rvs_to_values[model["weight_1"]]: weight,
        model.rvs_to_values[model["layer_1_scale"]]: np.log(0.7),
    }
    [graph] = model.logp(vars=[model["weight_1"]], sum=False)
    found = graph.eval(values, on_unused_input="ignore")
    np.testing.assert_allclose(found, stats.logistic(0, 0.7).logpdf(weight))


def test_the_model_is_plain_pymc():
    """The last line, which samples for a minute, is left to the tests of PyMC's functions."""
    code = block("python", "pm.sample()").replace("pm.sample()", "pm.modelcontext(None)")
    namespace = {}
    exec(code, namespace)
    model = namespace["idata"]
    assert isinstance(model, pm.Model)
    assert {"weight_1", "weight_3", "layer_1_scale", "y"} <= set(model.named_vars)


TINY = """
name: priors
sweeps:
  - name: synthetic
    dataset: {kind: moons, noise: 0.4, train: 40, test: 20}
    network: {kind: dense, hidden: [[2]]}
    prior: laplace
    hyperprior: half_cauchy
    inference: {steps: 20, validation: 0}
    predict: {draws: 5, trace_draws: 4, map: {resolution: 5}, fresh: {size: 50, draws: 2}}
"""


@pytest.mark.slow
def test_the_block_of_python(tmp_path, monkeypatch):
    """As it stands, but for the length of fits and the size of the experiment."""
    code = block("python", "pb.load_results")
    shorter = {
        "steps=10_000, restarts=6": "steps=100, restarts=2",
        "1000": "10",
        "pb.sample(model,": "pb.sample(model, chains=2, draws=20, tuning=100,",
    }
    for long, short in shorter.items():
        assert long in code
        code = code.replace(long, short)
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "priors.yaml").write_text(TINY)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(code, names)
    assert names["idata"]["posterior"].sizes["draw"] == 10
    assert names["proba"].shape == (5, 2)
    assert len(names["result"].metrics) == len(names["result"].summary) == 1
    assert "posterior" in names["cell"].trace.children


PAGES = [
    ROOT / "README.md",
    ROOT / "results" / "README.md",
    ROOT / "docs" / "published.md",
    *sorted((ROOT / "docs" / "findings").glob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_leads_somewhere(page):
    links = set(re.findall(r"\]\(([^):#]+)[)#]", page.read_text()))
    assert [link for link in sorted(links) if not (page.parent / link).exists()] == []


def test_pages_are_short():
    assert len(TEXT.splitlines()) <= 150
    assert {page.stem for page in PAGES[3:] if len(page.read_text().splitlines()) > 60} == set()


def test_every_finding_is_in_the_table():
    table = (ROOT / "results" / "README.md").read_text()
    assert [page.stem for page in PAGES[3:] if f"findings/{page.name})" not in table] == []


def test_stored_tables_have_a_commit_and_a_date():
    reference = ROOT / "results" / "reference"
    versions = pd.read_csv(reference / "versions.csv", parse_dates=["date"])
    assert list(versions["folder"]) == sorted(f.name for f in reference.iterdir() if f.is_dir())
    assert versions["commit"].str.fullmatch("[0-9a-f]{7,}").all()
