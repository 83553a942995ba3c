"""Which devices there are, what follows from each, and programs on several of them.

No GPU is needed: its programs run on a processor, which passes for several devices where
``XLA_FLAGS`` says so.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pmbnn
from pmbnn.core import machine as module
from pmbnn.core.machine import (
    CPU,
    Device,
    DeviceError,
    claim,
    current_device,
    device_here,
    device_text,
    find_devices,
    processes,
    running_on,
)
from pmbnn.inference.advi import build_program
from pmbnn.inference.groups import fit as fit_replicas
from pmbnn.inference.result import Replica, derive_keys
from pmbnn.inference.settings import Inference
from pmbnn.inference.xla.compile import compiler_options, precision
from pmbnn.models.build import dense_classifier
from pmbnn.prediction.predictor import Predictor

HOST = Device("gpu", platform="cpu")
TWO = (("NVIDIA A", "NVIDIA B"), "")
NONE = ((), "JAX has no GPU backend installed")


@pytest.fixture
def gpus(monkeypatch):
    """Have JAX find some GPUs, or say why there are none."""
    return lambda found: monkeypatch.setattr(module, "gpu_names", lambda: found)


# Which there are


@pytest.mark.parametrize(
    ("asked", "found", "devices"),
    [
        ("auto", NONE, (CPU,)),
        ("auto", TWO, (Device("gpu", 0, "NVIDIA A"), Device("gpu", 1, "NVIDIA B"))),
        ("gpu", TWO, (Device("gpu", 0, "NVIDIA A"), Device("gpu", 1, "NVIDIA B"))),
        ("cpu", TWO, (CPU,)),
    ],
)
def test_devices(gpus, asked, found, devices):
    gpus(found)
    assert find_devices(asked) == devices


def test_a_device_that_is_not_there(gpus):
    gpus(NONE)
    words = (
        "`--device` must be auto or cpu here, got 'gpu': JAX has no GPU backend installed. For a "
        "GPU, install JAX's own backend, pip install '.[cuda]' in a copy of the repository, on a "
        "machine with an NVIDIA GPU"
    )
    with pytest.raises(DeviceError) as raised:
        find_devices("gpu")
    assert str(raised.value) == f"{words}."


def test_a_device_that_is_none():
    with pytest.raises(DeviceError, match="must be one of auto, cpu, gpu, got 'tpu'"):
        find_devices("tpu")


def test_without_a_backend_nobody_is_asked(monkeypatch):
    """A sweep on a processor starts no process for it."""
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("asked"))
    assert module.gpu_names() == NONE


@pytest.mark.slow
def test_jax_is_asked_in_a_process_of_its_own(monkeypatch):
    """What it says is handed on: of a backend without a device, or without a driver."""
    monkeypatch.setattr(module, "find_spec", lambda name: find_spec("jax"))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    names, why = module.gpu_names()
    assert names == ()
    assert why.startswith("JAX finds no GPU (RuntimeError: ")
    assert "gpu" in why


@pytest.mark.slow
def test_the_benchmark_of_a_gpu_says_that_there_is_none():
    file = Path(pmbnn.__file__).parents[1] / "benchmarks" / "accelerator.py"
    done = subprocess.run(
        [sys.executable, str(file)],
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "nothing measured: `--device` must be auto or cpu here, got 'gpu'"
    )


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ((CPU,), "cpu"),
        ((HOST,), "gpu"),
        ((Device("gpu", 0, "NVIDIA A"), Device("gpu", 1, "NVIDIA A")), "gpu, 2 × NVIDIA A"),
    ],
)
def test_devices_in_words(devices, words):
    assert device_text(devices) == words


def test_each_accelerator_has_one_process():
    four = (HOST,) * 4
    assert [processes(n, four) for n in (1, 4, 16)] == [1, 4, 4]
    assert [processes(n, (CPU,)) for n in (1, 4, 16)] == [1, 4, 16]


# What follows from them


def test_programs_are_built_for_the_device_they_run_on():
    assert current_device() == CPU, "JAX's own, where nothing else is said"
    assert compiler_options() == {"xla_cpu_prefer_vector_width": 512}
    assert compiler_options(brief=True) == {"xla_backend_optimization_level": 1}
    with running_on(HOST):
        assert current_device() is HOST
        assert compiler_options() == compiler_options(brief=True) == {}
        with running_on(CPU):
            assert current_device() is CPU
    assert current_device() == CPU


def test_products_of_single_precision_are_exact_to_that():
    """JAX would take those of a GPU with 10 bits of mantissa; of a processor it has no choice."""
    for device, expected in ((CPU, None), (HOST, "highest")):
        with running_on(device), precision("float32"):
            assert jax.config.jax_default_matmul_precision == expected
            shown = str(jax.make_jaxpr(jnp.dot)(jnp.ones((2, 3)), jnp.ones((3, 2))))
        assert ("HIGHEST" in shown) == (expected is not None)
    assert jax.config.jax_default_matmul_precision is None


def test_a_process_sees_no_gpu_but_its_own(monkeypatch):
    """JAX takes hold of memory of every one that it sees."""
    said = {}
    monkeypatch.setattr(jax.config, "update", said.__setitem__)
    seen = claim(Device("gpu", 3, "NVIDIA B"))
    assert said == {"jax_cuda_visible_devices": "3"}
    assert seen == Device("gpu", 0, "NVIDIA B"), "the first and only one that is left"


def test_a_process_of_a_processor_leaves_the_gpu_alone(monkeypatch):
    said = {}
    monkeypatch.setattr(jax.config, "update", said.__setitem__)
    assert claim(CPU) is CPU
    assert said == {"jax_platforms": "cpu"}


# In a process that others use too


@pytest.fixture
def a_gpu(monkeypatch):
    """Have JAX take the processor for a GPU, which is not its first choice."""
    place = jax.devices("cpu")[0]
    monkeypatch.setattr(jax, "devices", lambda platform: [place] * 2)
    return Device("gpu", 0, place.device_kind)


def test_calls_from_python_take_the_first(a_gpu, monkeypatch):
    monkeypatch.setattr(jax.config, "update", lambda *_: pytest.fail("others use this process"))
    assert device_here("gpu") == a_gpu
    assert device_here("cpu") == device_here("auto") == CPU
    for device in (a_gpu, CPU):
        with running_on(device):
            assert jax.config.jax_default_device is jax.devices(device.kind)[0]
            assert device_here("auto") == device, "where programs run anyway"
    assert jax.config.jax_default_device is None


def test_calls_from_python_say_what_is_not_there():
    with pytest.raises(DeviceError, match="must be one of auto, cpu, gpu, got 'tpu'"):
        device_here("tpu")
    with pytest.raises(DeviceError, match="must be auto or cpu here, got 'gpu': JAX has no GPU"):
        device_here("gpu")


# Programs

ROWS = 40
X = np.random.default_rng(0).normal(size=(ROWS, 2))
Y = (X[:, 0] * X[:, 1] > 0).astype(int)


def replicas(n):
    return [
        Replica({"x": X + 0.01 * i, "target": Y, "prior_scale": 1.0}, derive_keys(str(i)))
        for i in range(n)
    ]


@pytest.mark.slow
def test_hundreds_at_once_are_fitted_as_a_few_are():
    """As many as a program for a GPU holds, and the groups of a processor: but for rounding."""
    model, settings = dense_classifier(X, Y, hidden=(3,)), Inference(steps=25)
    n = HOST.traits.replicas
    assert n >= 200
    every = replicas(n)
    with running_on(HOST):
        many = fit_replicas(build_program(model, settings, ROWS, n, "float64"), every)
    few = fit_replicas(build_program(model, settings, ROWS, CPU.traits.replicas, "float64"), every)
    for name in ("loc", "scale"):
        found, expected = (np.array([getattr(fit, name) for fit in fits]) for fits in (many, few))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    assert len({fit.elbo for fit in many}) == n


@pytest.mark.slow
def test_predictions_are_made_where_the_fit_was(a_gpu, monkeypatch):
    """Of `pb.fit` and the estimators, whatever the later calls run on."""
    used = []

    def predict(self, *given):
        used.append(current_device())
        return of_predictor(self, *given)

    of_predictor = Predictor.predict
    monkeypatch.setattr(Predictor, "predict", predict)
    model = dense_classifier(X, Y, hidden=(2,))
    for asked, device in (("gpu", a_gpu), ("cpu", CPU)):
        approx = pmbnn.fit(model, steps=10, device=asked, progress=False)
        network = pmbnn.BNNClassifier((2,), steps=10, draws=5, device=asked).fit(X, Y)
        assert approx.device == device
        for of in (approx, network):
            assert of.predict_proba(X).shape == (ROWS, 2)
        assert used == [device] * 2
        used.clear()


ON_FOUR = """
import json
import jax, numpy as np
import pmbnn as pb
from pmbnn.core.machine import Device, running_on
from pmbnn.inference import advi
from pmbnn.inference.groups import fit
from pmbnn.inference.result import Replica, derive_keys
from pmbnn.inference.settings import Inference
from pmbnn.inference.xla.compile import precision
from pmbnn.models.build import dense_classifier

rng = np.random.default_rng(0)
x, y = rng.normal(size=(40, 2)), np.arange(40) % 2
model = dense_classifier(x, y, hidden=(3,))
data = {"x": x, "target": y, "prior_scale": 1.0}
replicas = tuple(Replica(data, derive_keys(str(i))) for i in range(3))
found = {}
for number in (0, 3, 1):
    with running_on(Device("gpu", number, platform="cpu")):
        program = advi.build_program(model, Inference(steps=20), 40, 3)
        with precision("float32"):
            data, state = advi.prepare(replicas, program), advi.init(replicas, program)
            keys = np.stack([replica.key for replica in replicas])
            end = advi.step(keys, state, program, data)
            arrays = jax.tree.leaves((data, state, end))
            places = sorted({device.id for array in arrays for device in array.devices()})
        fits = fit(program, replicas)
        numbers = [float(v).hex() for one in fits for v in (*one.loc, *one.scale, one.elbo)]
        found[number] = {"places": places, "numbers": numbers}
fitted = {}
for number in (0, 3):
    with running_on(Device("gpu", number, platform="cpu")):
        fitted[number] = pb.fit(model, steps=20, progress=False)
    flat, read = fitted[number]._compiled
    def placed(*given, read=read):
        out = read(*given)
        arrays = jax.tree.leaves(out)
        fitted[number, "places"] = sorted({d.id for array in arrays for d in array.devices()})
        return out
    fitted[number].__dict__["_compiled"] = flat, placed
    draws = fitted[number].sample(5)["weight_1"].ravel().tolist()
    found[f"fit on {number}"] = {"places": fitted[number, "places"], "numbers": draws}
print(json.dumps({"devices": len(jax.devices()), "found": found}))
"""


@pytest.mark.slow
def test_programs_and_data_lie_on_the_chosen_device():
    """Whichever it is of four, and to the last bit with the same numbers."""
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    done = subprocess.run(
        [sys.executable, "-c", ON_FOUR],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["devices"] == 4
    assert {number: one["places"] for number, one in told["found"].items()} == {
        "0": [0],
        "3": [3],
        "1": [1],
        "fit on 0": [0],
        "fit on 3": [3],
    }
    first, third, second, drawn, drawn_on_third = (one["numbers"] for one in told["found"].values())
    assert len(first) > 50
    assert first == second == third
    assert len(drawn) == 30 and drawn == drawn_on_third
