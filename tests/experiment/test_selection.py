"""Cells picked by ``KEY=VALUE``."""

from dataclasses import replace
from itertools import product

import pytest

from pmbnn.core.spec import Tune
from pmbnn.data import Circles, Mnist, Moons
from pmbnn.experiment.cells import Cell
from pmbnn.experiment.load import ConfigError
from pmbnn.experiment.selection import select_cells
from pmbnn.inference.settings import Inference
from pmbnn.models.hyperpriors import Fixed, HalfNormal
from pmbnn.models.likelihoods import Categorical
from pmbnn.models.networks import Dense
from pmbnn.models.priors import Flat, Laplace, Normal
from pmbnn.prediction.settings import Predict

DATASETS = (Moons(noise=0.4, seed=0), Moons(noise=0.4, seed=1), Circles(noise=1))
HYPERPRIORS = (Fixed(scale=0.1), Fixed(scale=Tune(log=(0.1, 1, 3))), HalfNormal())
REST = (Categorical(), Inference(), Predict())
CELLS = [
    *(
        Cell("toy", dataset, Dense(), prior, hyperprior, *REST)
        for dataset, prior, hyperprior in product(DATASETS, (Normal(), Laplace()), HYPERPRIORS)
    ),
    Cell("toy", DATASETS[0], Dense(), Flat(), Fixed(scale=None), *REST),
    Cell("digits", Mnist(), Dense(hidden=(9,)), Normal(fan_in=True), Fixed(), *REST),
]


@pytest.mark.parametrize(
    ("conditions", "test"),
    [
        ([], lambda c: True),
        (["sweep=digits"], lambda c: c.sweep == "digits"),
        (["prior=laplace"], lambda c: c.prior == Laplace()),
        (["prior = laplace"], lambda c: c.prior == Laplace()),
        (["dataset=moons", "dataset=mnist"], lambda c: c.dataset.kind in ("moons", "mnist")),
        (
            ["dataset=moons", "dataset.seed=0", "prior=normal"],
            lambda c: c.dataset == DATASETS[0] and c.prior == Normal(),
        ),
        (["dataset.noise=0.40"], lambda c: c.dataset in DATASETS[:2]),
        (["hyperprior.scale=1e-1"], lambda c: c.hyperprior == HYPERPRIORS[0]),
        (["hyperprior.scale=tune"], lambda c: c.hyperprior == HYPERPRIORS[1]),
        (["hyperprior.scale=null"], lambda c: c.prior == Flat()),
        (["network.hidden=[9]"], lambda c: c.sweep == "digits"),
        (["prior.fan_in=true"], lambda c: c.sweep == "digits"),
        (["predict.map.resolution=100", "dataset.factor=0.5"], lambda c: c.dataset == DATASETS[2]),
    ],
)
def test_selection(conditions, test):
    selected = select_cells(CELLS, conditions)
    assert selected == [cell for cell in CELLS if test(cell)]
    assert selected


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        (["prior"], r"^`--only` must be KEY=VALUE, got 'prior'\.$"),
        (["=1"], r"^`--only` must be KEY=VALUE, got '=1'\.$"),
        (["prior="], r"^`--only` must be KEY=VALUE, got 'prior='\.$"),
        (["priors=normal"], "must be one of dataset, .*, sweep, got 'priors'; .* `prior`"),
        (["dataset.nois=1"], "got 'dataset.nois'; did you mean `dataset.noise`"),
        (["inference=fast"], "must be one of .*, inference.batch, .* got 'inference'"),
        (["predict.map=1"], "must be one of .*, predict.map.resolution, .* got 'predict.map'"),
        (
            ["prior=laplac"],
            r"^`--only prior` must be one of flat, laplace, normal, got 'laplac'; did you mean",
        ),
        (
            ["prior=laplace, normal"],
            "^`--only prior` must be one value, got laplace, normal: write --only prior=laplace "
            r"--only prior=normal\.$",
        ),
        (["dataset.seed=7"], r"^`--only dataset.seed` must be one of 0, 1, got '7'\.$"),
        (["prior.fan_in=1"], r"^`--only prior.fan_in` must be one of false, true, got '1'\.$"),
        (
            ["prior=flat", "dataset=mnist"],
            r"^`--only` matches no cell: prior=flat dataset=mnist\.$",
        ),
        (["dataset.seed=[1"], "^`--only`, line 1, column 3: expected"),
    ],
)
def test_mistaken_selection(conditions, message):
    with pytest.raises(ConfigError, match=message) as caught:
        select_cells(CELLS, conditions)
    assert "\n" not in str(caught.value)


def test_choices_are_those_of_the_experiment():
    cells = [replace(cell, prior=Normal()) for cell in CELLS]
    with pytest.raises(ConfigError, match="must be one of normal, got 'flat'"):
        select_cells(cells, ["prior=flat"])
