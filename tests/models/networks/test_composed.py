"""Networks of listed layers: parameters, and the forward pass against SciPy image by image."""

import pickle

import numpy as np
import pytensor.tensor as pt
import pytest
from scipy.signal import correlate2d
from scipy.special import expit

from pmbnn.core.errors import ConfigError
from pmbnn.models.networks import (
    NETWORKS,
    AveragePool,
    Convolution,
    Dense,
    DenseLayer,
    Flatten,
    GlobalAveragePool,
    Layered,
    MaxPool,
    ShapeError,
)

ACTIVATIONS = {
    "tanh": np.tanh,
    "relu": lambda a: np.maximum(a, 0),
    "sigmoid": expit,
    "linear": lambda a: a,
}
IMAGE = (2, 7, 6)


def random_values(parameters, rng):
    return {p.name: rng.normal(size=p.shape) for p in parameters}


def outputs_of(network, x, values, input_shape, evaluate):
    """Outputs of the network's own graph, `(observation, output)`."""
    symbols = {name: pt.tensor(name, shape=v.shape) for name, v in values.items()}
    x_symbol = pt.matrix("x")
    given = {x_symbol: x} | {symbols[name]: values[name] for name in values}
    return evaluate([network.forward(x_symbol, symbols, input_shape)], given)[0]


def by_scipy(layers, one, values):
    """Outputs of one image or point, layer after layer in plain loops."""
    number = 1
    for layer in (*layers, DenseLayer(units=1, activation="linear")):
        if layer.kind == "flatten":
            one = one.ravel()
        elif layer.kind == "max_pool":
            one = pooled(one, layer.size, np.max)
        elif layer.kind == "average_pool":
            one = pooled(one, layer.size, np.mean)
        elif layer.kind == "global_average_pool":
            one = one.mean(axis=(1, 2))
        else:
            weight, bias = values[f"weight_{number}"], values[f"bias_{number}"]
            one = convolved(one, weight, bias, layer) if weight.ndim == 4 else one @ weight + bias
            one, number = ACTIVATIONS[layer.activation](one), number + 1
    return one


def convolved(image, weight, bias, layer):
    """Every output channel: the sum of correlations of its input channels, and its bias."""
    return np.array(
        [
            sum(
                correlate2d(channel, kernel, mode=layer.padding)[:: layer.stride, :: layer.stride]
                for channel, kernel in zip(image, weight[..., unit], strict=True)
            )
            + bias[unit]
            for unit in range(weight.shape[-1])
        ]
    )


def pooled(image, size, of):
    channels, rows, columns = image.shape
    return np.array(
        [
            [
                [
                    of(channel[i * size : (i + 1) * size, j * size : (j + 1) * size])
                    for j in range(columns // size)
                ]
                for i in range(rows // size)
            ]
            for channel in image
        ]
    )


NETWORKS_OF_LAYERS = {
    "valid": (Convolution(filters=3, size=3), Flatten()),
    "same": (Convolution(filters=3, size=5, padding="same", activation="relu"), Flatten()),
    "pooled": (
        Convolution(filters=3, size=2, activation="sigmoid"),
        MaxPool(),
        Flatten(),
        DenseLayer(units=4),
    ),
    "two convolutions": (
        Convolution(filters=3, size=3, padding="same", activation="linear"),
        MaxPool(size=3),
        Convolution(filters=4, size=2),
        Flatten(),
        DenseLayer(units=5, activation="relu"),
        DenseLayer(units=3, activation="sigmoid"),
    ),
    "strides and means": (
        Convolution(filters=3, size=3, padding="same", stride=2),
        AveragePool(),
        Convolution(filters=4, size=1, activation="relu"),
        GlobalAveragePool(),
        DenseLayer(units=2),
    ),
    "a stride that does not fit": (Convolution(filters=2, size=3, stride=3), Flatten()),
    "means of the input": (GlobalAveragePool(),),
    "pooled inputs": (MaxPool(), Flatten(), DenseLayer(units=2, activation="linear")),
    "dense": (Flatten(), DenseLayer(units=3)),
    "linear": (Flatten(),),
}


@pytest.mark.parametrize("layers", NETWORKS_OF_LAYERS.values(), ids=NETWORKS_OF_LAYERS)
def test_forward_pass(layers, evaluate):
    rng = np.random.default_rng(1)
    network = Layered(layers=layers)
    images = rng.normal(size=(5, *IMAGE))
    values = random_values(network.parameters(IMAGE, 3), rng)
    found = outputs_of(network, images.reshape(5, -1), values, IMAGE, evaluate)
    expected = [by_scipy(layers, image, values) for image in images]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layers", [(), (DenseLayer(units=3),), (Flatten(), DenseLayer(units=3))])
def test_forward_pass_on_points(layers, evaluate):
    rng = np.random.default_rng(2)
    network, x = Layered(layers=layers), rng.normal(size=(5, 4))
    values = random_values(network.parameters((4,), 2), rng)
    found = outputs_of(network, x, values, (4,), evaluate)
    np.testing.assert_allclose(found, [by_scipy(layers, one, values) for one in x], rtol=1e-12)


@pytest.mark.parametrize("input_shape", [(6,), (1, 2, 3)])
def test_dense_layers_are_the_dense_network(input_shape, evaluate):
    """The same variables under the same names, with the same outputs."""
    layers = (Flatten(), *(DenseLayer(units=n, activation="relu") for n in (5, 4)))
    network, dense = Layered(layers=layers), Dense(hidden=(5, 4), activation="relu")
    parameters = network.parameters(input_shape, 3)
    assert parameters == dense.parameters(input_shape, 3)
    rng = np.random.default_rng(3)
    x, values = rng.normal(size=(7, 6)), random_values(parameters, rng)
    found = [outputs_of(n, x, values, input_shape, evaluate) for n in (network, dense)]
    np.testing.assert_array_equal(*found)


def test_parameters():
    """Kernel axes have names of their own; only layers with weights are counted."""
    layers = (
        Convolution(filters=3, size=2),
        MaxPool(),
        Convolution(filters=4, size=3, padding="same"),
        Flatten(),
        DenseLayer(units=5),
    )
    found = Layered(layers=layers).parameters(IMAGE, 2)
    kernel_1, kernel_2 = ((f"kernel_row_{i}", f"kernel_column_{i}") for i in (1, 2))
    assert [(p.name, p.layer, p.dims, p.shape, p.fan_in, p.positions) for p in found] == [
        ("weight_1", 1, ("channel", *kernel_1, "channel_1"), (2, 2, 2, 3), 8, 30),
        ("bias_1", 1, ("channel_1",), (3,), 8, 30),
        ("weight_2", 2, ("channel_1", *kernel_2, "channel_2"), (3, 3, 3, 4), 27, 6),
        ("bias_2", 2, ("channel_2",), (4,), 27, 6),
        ("weight_3", 3, ("flat_2", "hidden_3"), (24, 5), 24, 1),
        ("bias_3", 3, ("hidden_3",), (5,), 24, 1),
        ("weight_4", 4, ("hidden_3", "output"), (5, 2), 5, 1),
        ("bias_4", 4, ("output",), (2,), 5, 1),
    ]


def test_parameters_after_strides_and_means():
    """Features of a mean over an image are its channels."""
    found = Layered(layers=NETWORKS_OF_LAYERS["strides and means"]).parameters(IMAGE, 2)
    weights = [(p.dims, p.shape, p.positions) for p in found if not p.is_bias]
    assert weights[0] == (
        ("channel", "kernel_row_1", "kernel_column_1", "channel_1"), (2, 3, 3, 3), 4 * 3
    )  # fmt: skip
    assert weights[1][2] == 2
    assert weights[2] == (("channel_2", "hidden_3"), (4, 2), 1)


def test_a_stride_is_stored_where_there_is_one():
    """Digests of cells without one stay what they were."""
    assert "stride" not in Convolution(filters=2, size=3).model_dump()
    assert Convolution(filters=2, size=3, stride=2).model_dump()["stride"] == 2


def test_pooled_pixels_are_no_features():
    weight, _ = Layered(layers=(MaxPool(), Flatten())).parameters(IMAGE, 3)
    assert (weight.dims, weight.shape) == (("flat_0", "output"), (18, 3))


def test_size_and_work():
    """A kernel is stored once and used at every position."""
    network = Layered(layers=(Convolution(filters=3, size=3), Flatten()))
    assert network.size(IMAGE, 10) == (18 * 3 + 3) + (60 * 10 + 10)
    assert network.multiply_adds(IMAGE, 10) == (18 * 3 + 3) * 20 + (60 * 10 + 10)


@pytest.mark.parametrize(
    ("layers", "input_shape", "message"),
    [
        (
            (Convolution(filters=32, size=5), MaxPool(), Convolution(filters=8, size=4)),
            (1, 10, 8),
            "`network.layers[2]` (convolution, 4 × 4) does not fit its input of 32 × 3 × 2.",
        ),
        (
            (Convolution(filters=2, size=3, stride=2), Convolution(filters=8, size=4, stride=2)),
            IMAGE,
            "`network.layers[1]` (convolution, 4 × 4, stride 2) does not fit its input of "
            "2 × 3 × 2.",
        ),
        (
            (AveragePool(size=3), AveragePool(size=3)),
            IMAGE,
            "`network.layers[1]` (average_pool, 3 × 3) does not fit its input of 2 × 2 × 2.",
        ),
        (
            (Flatten(), GlobalAveragePool()),
            IMAGE,
            "`network.layers[1]` (global_average_pool) takes images, not its input of 84 features.",
        ),
        (
            (MaxPool(), MaxPool(size=4)),
            IMAGE,
            "`network.layers[1]` (max_pool, 4 × 4) does not fit its input of 2 × 3 × 3.",
        ),
        (
            (Convolution(filters=1, size=1),),
            (2,),
            "`network.layers[0]` (convolution, 1 × 1) takes images, not its input of 2 features.",
        ),
        (
            (Flatten(), MaxPool()),
            IMAGE,
            "`network.layers[1]` (max_pool, 2 × 2) takes images, not its input of 84 features.",
        ),
        (
            (MaxPool(), DenseLayer(units=7)),
            IMAGE,
            "`network.layers[1]` (dense, 7 units) takes features, not its input of 2 × 3 × 3: "
            "put `flatten` before it.",
        ),
        (
            (MaxPool(),),
            IMAGE,
            "`network.layers` must end with features, not with 2 × 3 × 3: put `flatten` last.",
        ),
    ],
)
def test_layers_that_do_not_fit(layers, input_shape, message):
    with pytest.raises(ShapeError) as caught:
        Layered(layers=layers).parameters(input_shape, 2)
    assert str(caught.value) == message
    # Errors come back from worker processes.
    assert str(pickle.loads(pickle.dumps(caught.value))) == message


def test_a_padded_kernel_may_be_larger_than_the_image(evaluate):
    rng = np.random.default_rng(4)
    layers = (Convolution(filters=2, size=5, padding="same"), Flatten())
    network, images = Layered(layers=layers), rng.normal(size=(3, 1, 2, 3))
    values = random_values(network.parameters((1, 2, 3), 2), rng)
    found = outputs_of(network, images.reshape(3, 6), values, (1, 2, 3), evaluate)
    # SciPy gives the size of the larger one of the two: widen the image by zeros instead.
    wide = np.pad(images, [(0, 0), (0, 0), (2, 2), (2, 2)])
    valid = (Convolution(filters=2, size=5), Flatten())
    expected = [by_scipy(valid, image, values) for image in wide]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Convolution(filters=0, size=3), "`filters` must be >= 1"),
        (lambda: Convolution(filters=2, size=0), "`size` must be >= 1"),
        (
            lambda: Convolution(filters=2, size=4, padding="same"),
            "must have an odd `size` with `padding` same, got 4",
        ),
        (lambda: Convolution(filters=2, size=3, padding="full"), "`padding` must be one of"),
        (lambda: MaxPool(size=0), "`size` must be >= 1"),
        (lambda: Flatten(order="C"), "no argument `order`"),
        (lambda: DenseLayer(units=2, activation="swish"), "`activation` must be one of"),
        (lambda: Layered(layers=(Flatten(),) * 101), "`layers` must have at most 100 entries"),
        (lambda: Layered(layers=(Dense(),)), "layers.0"),
    ],
)
def test_impossible_settings_are_rejected(build, message):
    with pytest.raises(ConfigError, match=message):
        build()


@pytest.mark.parametrize("layers", NETWORKS_OF_LAYERS.values(), ids=NETWORKS_OF_LAYERS)
def test_specifications_survive_being_written_down(layers):
    network = Layered(layers=layers)
    assert NETWORKS["layers"].model_validate_json(network.model_dump_json()) == network
    assert hash(network) == hash(Layered(layers=layers))
