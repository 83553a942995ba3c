"""Lengths of fits, and settings that exclude each other."""

import pytest

from pmbnn.core.errors import ConfigError
from pmbnn.core.spec import Tune
from pmbnn.inference.settings import PYMC_LACKS, Inference


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({}, 10_000),
        ({"steps": 7}, 7),
        ({"steps": 7, "batch": 20}, 7),
        ({"epochs": 5.0}, 5),
        ({"epochs": 5.0, "batch": 20}, 25),
        ({"epochs": 0.5, "batch": 20}, 2),
        ({"epochs": 0.001, "batch": 20}, 1),
        ({"epochs": 3.0, "batch": 1000}, 3),
    ],
)
def test_total_steps(settings, steps):
    """On 100 rows."""
    assert Inference(**settings).total_steps(100) == steps


def reject(message, **settings):
    with pytest.raises(ConfigError, match=message):
        Inference(**settings)


def test_one_length():
    reject("must set `steps` or `epochs`, not both", steps=10, epochs=1.0)


@pytest.mark.parametrize("schedule", ["one_cycle", "cosine"])
def test_early_stop_takes_a_constant_rate(schedule):
    message = f"must have `schedule` constant with `early_stop`, got {schedule}: a rate that"
    reject(message, early_stop=True, schedule=schedule)
    assert Inference(early_stop=True, schedule="constant").early_stop


@pytest.mark.parametrize("guide", ["low_rank", "full_rank", "map", "maximum_likelihood"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("estimator", "local_reparameterisation"),
        ("estimator", "flipout"),
        ("kl_scaling", "first_dimension"),
    ],
)
def test_what_takes_independent_weights(guide, name, value):
    reject(
        f"must have `guide` mean_field with `{name}` {value}, got {guide}",
        **{
            "guide": guide,
            name: value,
        },
    )
    assert getattr(Inference(**{name: value}), name) == value


@pytest.mark.parametrize("guide", ["map", "maximum_likelihood"])
def test_points_have_no_estimator(guide):
    message = (
        f"must leave out `estimator` with `guide` {guide}, which draws nothing, got path_derivative"
    )
    reject(message, guide=guide, estimator="path_derivative")
    assert Inference(guide=guide).is_point


@pytest.mark.parametrize("guide", ["mean_field", "low_rank", "full_rank"])
def test_distributions_are_no_points(guide):
    assert not Inference(guide=guide, estimator="path_derivative").is_point


def test_path_derivative_is_of_the_elbo():
    message = "must have `kl_scaling` sum with `estimator` path_derivative"
    reject(message, kl_scaling="first_dimension", estimator="path_derivative")


NOT_BY_PYMC = {
    "guide": "low_rank",
    "estimator": "flipout",
    "kl": "monte_carlo",
    "kl_weight": 0.5,
    "kl_annealing": 0.1,
    "kl_scaling": "first_dimension",
    "optimiser": "sgd",
    "clip": 1.0,
    "iterate_averaging": 0.1,
    "early_stop": True,
}


def test_all_that_pymc_lacks_is_tried():
    assert set(NOT_BY_PYMC) == set(PYMC_LACKS)


@pytest.mark.parametrize("name", NOT_BY_PYMC)
def test_pymc_lacks(name):
    value = NOT_BY_PYMC[name]
    settings = {name: value, "schedule": "constant"}
    message = f"must leave out `{name}` with engine `pymc`, which has no other choice, got {value}"
    reject(message, engine="pymc", **settings)
    assert getattr(Inference(**settings), name) == value


def test_pymc_fits_full_batch():
    message = "must leave out `batch` with engine `pymc`, which fits full batch"
    reject(message, engine="pymc", batch=10)


def test_pymc_does_not_tune():
    candidates = Tune(log=(0.01, 0.1, 3))
    message = "must give a number for `learning_rate` with engine `pymc`"
    reject(message, engine="pymc", learning_rate=candidates)
    assert Inference(learning_rate=candidates).learning_rate is candidates
