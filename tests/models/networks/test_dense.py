"""Fully connected networks: parameters and forward pass against NumPy."""

import numpy as np
import pytensor.tensor as pt
import pytest
from scipy.special import expit

from pmbnn.core.errors import ConfigError
from pmbnn.models.networks import Dense

ACTIVATIONS = {"tanh": np.tanh, "relu": lambda a: np.maximum(a, 0), "sigmoid": expit}


def numpy_forward(x, values, n_layers, activation):
    hidden = x
    for layer in range(1, n_layers + 1):
        hidden = hidden @ values[f"weight_{layer}"] + values[f"bias_{layer}"]
        if layer < n_layers:
            hidden = ACTIVATIONS[activation](hidden)
    return hidden


@pytest.mark.parametrize("hidden", [(), (4,), (4, 2, 5)])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_forward_pass(activation, hidden, evaluate):
    rng = np.random.default_rng(20)
    network = Dense(hidden=hidden, activation=activation)
    x = rng.normal(size=(7, 3))
    values = {p.name: rng.normal(size=p.shape) for p in network.parameters((3,), 2)}
    symbols = {name: pt.tensor(name, shape=v.shape) for name, v in values.items()}
    x_symbol = pt.matrix("x")
    given = {x_symbol: x} | {symbols[name]: values[name] for name in values}
    [found] = evaluate([network.forward(x_symbol, symbols, (3,))], given)
    assert found.shape == (7, 2)
    expected = numpy_forward(x, values, len(hidden) + 1, activation)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_parameters_of_a_deep_network():
    found = Dense(hidden=(4, 6)).parameters((3,), n_outputs=2)
    assert [(p.name, p.layer, p.dims, p.shape, p.fan_in, p.size) for p in found] == [
        ("weight_1", 1, ("feature", "hidden_1"), (3, 4), 3, 12),
        ("bias_1", 1, ("hidden_1",), (4,), 3, 4),
        ("weight_2", 2, ("hidden_1", "hidden_2"), (4, 6), 4, 24),
        ("bias_2", 2, ("hidden_2",), (6,), 4, 6),
        ("weight_3", 3, ("hidden_2", "output"), (6, 2), 6, 12),
        ("bias_3", 3, ("output",), (2,), 6, 2),
    ]


def test_without_hidden_layers_inputs_meet_outputs():
    found = Dense(hidden=()).parameters((3,), n_outputs=2)
    assert [(p.name, p.dims, p.shape) for p in found] == [
        ("weight_1", ("feature", "output"), (3, 2)),
        ("bias_1", ("output",), (2,)),
    ]


@pytest.mark.parametrize(
    ("hidden", "input_shape", "n_outputs", "size"),
    [((64, 64), (1, 28, 28), 10, 55_050), ((5, 5), (2,), 2, 57), ((), (2,), 2, 6)],
)
def test_size(hidden, input_shape, n_outputs, size):
    network = Dense(hidden=hidden)
    assert network.size(input_shape, n_outputs) == size
    assert network.multiply_adds(input_shape, n_outputs) == size


def test_images_are_taken_as_features():
    network = Dense(hidden=(4,))
    assert network.parameters((2, 3, 5), 2) == network.parameters((30,), 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden": (0,)}, r"`hidden\[0\]` must be >= 1"),
        ({"hidden": (2.5,)}, r"`hidden\[0\]` must be a whole number"),
        ({"hidden": (2,) * 101}, "`hidden` must have at most 100 entries"),
        ({"activation": "swish"}, "`activation` must be one of"),
    ],
)
def test_impossible_settings_are_rejected(settings, message):
    with pytest.raises(ConfigError, match=message):
        Dense(**settings)
