"""Networks that go by a name."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pmbnn.data.arrays import Rows
from pmbnn.models.build import build_model
from pmbnn.models.hyperpriors import HalfNormal
from pmbnn.models.likelihoods import Categorical
from pmbnn.models.networks import (
    NETWORKS,
    Convolution,
    DenseLayer,
    Flatten,
    Layered,
    Lenet5,
    MaxPool,
    ReportConv,
    ShapeError,
)
from pmbnn.models.priors import Normal

DIGIT = (1, 28, 28)


def padded(filters):
    return Convolution(filters=filters, size=5, padding="same", activation="relu")


WRITTEN_OUT = {
    "report_conv": (
        Convolution(filters=32, size=5, padding="valid", activation="tanh"),
        MaxPool(size=2),
        Convolution(filters=32, size=5, padding="valid", activation="tanh"),
        MaxPool(size=2),
        Flatten(),
        DenseLayer(units=64, activation="tanh"),
    ),
    "lenet5": (
        padded(6),
        MaxPool(size=2),
        padded(16),
        MaxPool(size=2),
        padded(120),
        Flatten(),
        DenseLayer(units=84, activation="relu"),
    ),
}

# Weights and biases: kernels, then dense layers.
SIZES = {
    "report_conv": (25 + 1) * 32 + (800 + 1) * 32 + (512 + 1) * 64 + (64 + 1) * 10,
    "lenet5": (25 + 1) * 6 + (150 + 1) * 16 + (400 + 1) * 120 + (120 * 49 + 1) * 84 + (84 + 1) * 10,
}


@pytest.mark.parametrize("kind", WRITTEN_OUT)
def test_a_name_stands_for_its_layers(kind):
    network, layers = NETWORKS[kind](), WRITTEN_OUT[kind]
    assert network.composition == layers
    assert network.parameters(DIGIT, 10) == Layered(layers=layers).parameters(DIGIT, 10)
    assert network.size(DIGIT, 10) == SIZES[kind]


@pytest.mark.parametrize("network", [ReportConv(activation="relu"), Lenet5(activation="relu")])
def test_activation(network):
    layers = [layer for layer in network.composition if hasattr(layer, "activation")]
    assert {layer.activation for layer in layers} == {"relu"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", WRITTEN_OUT)
# PyTensor says so of every check in a graph, since a traced JAX function cannot raise.
@pytest.mark.filterwarnings("ignore:(?s)Skipping .* as JAX tracing would remove it:UserWarning")
def test_model(kind):
    """Log-probability and gradient are finite, and every weight has a part in them."""
    rng = np.random.default_rng(0)
    pixels = tuple(f"pixel_{i}" for i in range(784))
    rows = Rows(rng.normal(size=(2, 784)), np.array([0, 1]), pixels, ("0", "1"), DIGIT)
    with pytensor.config.change_flags(traceback__limit=0):
        model = build_model(
            NETWORKS[kind](), Normal(fan_in=True), HalfNormal(), Categorical(), rows
        )
        logp = model.logp()
        gradient = pt.grad(logp, model.value_vars)
        function = pytensor.function(model.value_vars, [logp, *gradient], mode="JAX")
    point = [rng.normal(size=v.shape.eval(mode="FAST_COMPILE")) for v in model.free_RVs]
    found = function(*point)
    assert isinstance(model, pm.Model)
    assert all(np.isfinite(value).all() for value in found)
    assert all(np.any(np.asarray(value) != 0) for value in found)


@pytest.mark.parametrize(
    ("network", "input_shape", "message"),
    [
        (
            ReportConv(),
            (2,),
            "`network` (report_conv): its layer 1 (convolution, 5 × 5) takes images, not its "
            "input of 2 features.",
        ),
        (
            ReportConv(),
            (1, 12, 12),
            "`network` (report_conv): its layer 3 (convolution, 5 × 5) does not fit its input of "
            "32 × 4 × 4.",
        ),
        (
            Lenet5(),
            (3, 3, 3),
            "`network` (lenet5): its layer 4 (max_pool, 2 × 2) does not fit its input of "
            "16 × 1 × 1.",
        ),
    ],
)
def test_inputs_that_do_not_fit(network, input_shape, message):
    with pytest.raises(ShapeError) as caught:
        network.parameters(input_shape, 2)
    assert str(caught.value) == message
