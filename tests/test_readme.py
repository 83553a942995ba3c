"""What the README shows runs as it stands, and says what the project says."""

import re
from pathlib import Path

import numpy as np
import pymc as pm
import pytest
from scipy import stats

from pmbnn import models
from pmbnn.config import load_experiment
from pmbnn.config_errors import ConfigError
from pmbnn.datasets import Moons
from pmbnn.likelihoods import Categorical
from pmbnn.networks import Dense
from pmbnn.priors import HalfNormal, weights

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


def test_the_prior_works_as_it_is_written():
    namespace = dict(vars(weights))
    exec(block("python", "class Logistic"), namespace)
    prior = namespace["Logistic"]()
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
    code = block("python", "dense_classifier").replace("pm.sample()", "pm.modelcontext(None)")
    namespace = {}
    exec(code, namespace)
    model = namespace["idata"]
    assert isinstance(model, pm.Model)
    assert {"weight_1", "weight_3", "layer_1_scale", "y"} <= set(model.named_vars)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\(([^):#]+)\)", TEXT))))
def test_every_link_leads_somewhere(path):
    assert (ROOT / path).exists()
